//! Frames of an InfiniBand link into the model's nodes: a channel adapter alone, and a switch with
//! two channel adapters, each with forwarding tables that a manager may have set.
//!
//! Each frame leads to a bounded number of others, what does not pass is counted, and a packet that
//! the model understands is the same when it is built and parsed again.

use arbitrary::{Arbitrary, Unstructured};
use mlx5_model::ifc::subnet::smp as layout;
use mlx5_model::subnet::{End, Fabric, Identity, Node, Smp};
use mlx5_model::wire::headers::Deth;
use mlx5_model::wire::ib::crc::{icrc, vcrc};
use mlx5_model::wire::ib::{Grh, Next, Packet};

use crate::input::{Patch, patch, steps};

/// Frames that one may lead to: what a switch relays, answers, and traps of each node.
const MOST: usize = 200;

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Any {
        port: u8,
        bytes: &'a [u8],
    },
    Packet {
        port: u8,
        lids: [u8; 2],
        vl: u8,
        qpn: u8,
        grh: bool,
        len: u16,
        patches: [Option<Patch>; 2],
    },
    Smp {
        port: u8,
        lids: [u8; 2],
        method: u8,
        attribute: u8,
        modifier: u8,
        path: Option<[u8; 3]>,
        pointer: u8,
        patches: [Option<Patch>; 3],
    },
    /// A manager behind a channel adapter sends it.
    Submit {
        node: bool,
        method: u8,
        attribute: u8,
        modifier: u8,
        path: Option<[u8; 3]>,
        patches: [Option<Patch>; 3],
    },
    Pass {
        millis: u16,
    },
    Replug,
}

fn identity(n: u64) -> Identity {
    Identity {
        node_guid: 0x0002_c903_0000_0000 | n << 8,
        system_guid: n,
        description: "node".into(),
        vendor_id: 0x02_c903,
        device_id: 0x1017,
    }
}

fn lid(code: u8) -> u16 {
    match code {
        0..=7 => code.into(),
        8 => 0xc000,
        9 => 0xc123,
        10 => 0xfffe,
        11 => 0xbfff,
        _ => 0xffff,
    }
}

fn smp(method: u8, attribute: u8, modifier: u8, path: Option<[u8; 3]>) -> Smp {
    let method = [1, 2, 5, 7, 0x81, method][usize::from(method % 6)];
    let attribute = match attribute % 24 {
        0 => 2,
        n => u16::from(n) + 0x0f,
    };
    let smp = Smp::request(method, attribute, modifier.into(), 7);
    path.map_or(smp, |path| smp.directed(&path[..usize::from(modifier % 4).min(3)]))
}

/// Gives a changed frame the checksums that go with its bytes.
fn seal(frame: &mut Vec<u8>) {
    let Some(body) = frame.len().checked_sub(6).filter(|body| *body >= 20) else { return };
    let next = if frame[1] & 3 == 3 { Next::Grh } else { Next::Bth };
    let sum = icrc(&frame[..body], next);
    frame.truncate(body);
    frame.extend(sum);
    let sum = vcrc(frame);
    frame.extend(sum);
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let mut fabric = Fabric::default();
    let switch = fabric.add(Node::switch(identity(1), 3));
    let nodes = [2, 3].map(|n| fabric.add(Node::channel_adapter(identity(n), 1)));
    let cable = |fabric: &mut Fabric, n: usize| {
        let port = 1 + n as u8;
        fabric.connect(End { node: nodes[n], port: 1 }, End { node: switch, port });
    };
    (0..2).for_each(|n| cable(&mut fabric, n));
    let mut now = 0;
    for step in steps(&mut bytes, 64) {
        fabric.record();
        let port = |port: u8| match port % 3 {
            0 => End { node: nodes[0], port: 1 },
            1 => End { node: nodes[1], port: 1 },
            _ => End { node: switch, port: 3 },
        };
        match step {
            Step::Any { port: at, bytes } => arrive(&mut fabric, port(at), bytes.to_vec()),
            Step::Packet { port: at, lids, vl, qpn, grh, len, patches } => {
                let [slid, dlid] = lids.map(lid);
                let mut packet = Packet::management(dlid, slid, &[0; 256]);
                packet.lrh.vl = vl & 15;
                packet.bth.dest_qp = if qpn == 255 { 0xff_ffff } else { qpn.into() };
                packet.ext.deth = Some(Deth { qkey: 0x8001_0000, src_qp: 1 });
                packet.payload = vec![0xab; usize::from(len) % 5000];
                packet.grh = grh.then_some(Grh {
                    tclass: 0,
                    flow_label: 0,
                    hop_limit: 1,
                    sgid: [0xfe; 16],
                    dgid: [0xff; 16],
                });
                let mut frame = packet.build();
                patch(&mut frame, &patches);
                seal(&mut frame);
                arrive(&mut fabric, port(at), frame);
            }
            Step::Smp { port: at, lids, method, attribute, modifier, path, pointer, patches } => {
                let [slid, dlid] = lids.map(lid);
                let mut smp = smp(method, attribute, modifier, path);
                smp.set(layout::hop_pointer, pointer.into());
                patch(&mut smp.0, &patches);
                let dlid = if path.is_some() { 0xffff } else { dlid };
                arrive(&mut fabric, port(at), Packet::management(dlid, slid, &smp.0).build());
            }
            Step::Submit { node, method, attribute, modifier, path, patches } => {
                let mut smp = smp(method, attribute, modifier, path);
                patch(&mut smp.0, &patches);
                fabric.submit(port(node.into()), smp, lid(modifier));
            }
            Step::Pass { millis } => now += u64::from(millis) * 1_000_000,
            Step::Replug => (0..2).for_each(|n| cable(&mut fabric, n)),
        }
        fabric.advance(now);
        let frames = fabric.take_record();
        assert!(frames.len() <= MOST, "{} frames of one step", frames.len());
        for frame in frames {
            again(&frame);
        }
        for end in [port(0), port(1), End { node: switch, port: 0 }] {
            while let Some(frame) = fabric.receive(end) {
                again(&frame);
            }
        }
    }
}

fn arrive(fabric: &mut Fabric, at: End, frame: Vec<u8>) {
    again(&frame);
    fabric.node_mut(at.node).arrive(at.port, frame);
}

fn again(frame: &[u8]) {
    let Ok(packet) = Packet::parse(frame) else { return };
    let built = packet.build();
    assert_eq!(Packet::parse(&built).as_ref(), Ok(&packet), "a packet built and parsed again");
}
