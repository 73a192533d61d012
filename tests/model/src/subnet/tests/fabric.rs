//! One switch and four channel adapters, brought up by a manager on the first.

use proptest::prelude::*;

use super::sweep::Manager;
use super::*;
use crate::ifc::subnet::{port_info, switch_info as info};
use crate::subnet::port::{CAPABILITY_SM, State};
use crate::subnet::smp::attribute;
use crate::subnet::{Cause, End, Fabric, NodeId};
use crate::wire::ib::packet::DEFAULT_PKEY;
use crate::wire::ib::{BadLink, Grh, Malformed, Packet, lid, link};
use crate::wire::pcap::{LinkType, Tap};
use crate::wire::switch::cable;
use crate::wire::{ModelClock, Wire};

pub(super) const SWITCH: u64 = 0x5000;
pub(super) const GUIDS: [u64; 4] = [0x10, 0x20, 0x30, 0x40];

pub(super) struct Net {
    pub(super) fabric: Fabric,
    pub(super) manager: Manager,
    pub(super) ends: [End; 4],
    pub(super) switch: NodeId,
}

impl Net {
    /// Cables only: no port has a LID.
    pub(super) fn cabled() -> Self {
        let mut fabric = Fabric::default();
        let switch = fabric.add(Node::switch(identity(SWITCH, "switch"), 6));
        let ends = GUIDS.map(|guid| End { node: fabric.add(adapter(guid)), port: 1 });
        for (end, port) in ends.into_iter().zip(2..) {
            fabric.connect(end, End { node: switch, port });
        }
        fabric.node_mut(ends[0].node).set_capability(1, CAPABILITY_SM, true);
        Self { fabric, manager: Manager::new(ends[0]), ends, switch }
    }

    pub(super) fn active() -> Self {
        let mut net = Self::cabled();
        net.manager.bring_up(&mut net.fabric);
        net
    }

    pub(super) fn switch_end(&self, port: u8) -> End {
        End { node: self.switch, port }
    }

    pub(super) fn lid(&self, index: usize) -> u16 {
        self.manager.lid(GUIDS[index])
    }

    /// A datagram to queue pair 1.
    pub(super) fn datagram(&self, from: usize, dlid: u16, payload: &[u8]) -> Packet {
        let mut packet = Packet::management(dlid, self.lid(from), &[0; 256]);
        packet.lrh.vl = 0;
        packet.bth.dest_qp = 1;
        packet.payload = payload.to_vec();
        packet
    }

    pub(super) fn state(&self, end: End) -> State {
        self.fabric.node(end.node).port(end.port).unwrap().state()
    }

    /// Sends a packet by an adapter and expects that it is dropped once, there and so.
    fn assert_dropped(&mut self, from: usize, packet: &Packet, at: End, why: Cause) {
        let (all, here) = (self.fabric.all_dropped(), self.fabric.dropped(at, why));
        self.fabric.send(self.ends[from], packet.build());
        assert_eq!(self.fabric.dropped(at, why), here + 1, "{why:?} {:?}", self.fabric);
        assert_eq!(self.fabric.all_dropped(), all + 1);
    }
}

#[test]
fn a_manager_finds_every_node_by_directed_route() {
    let mut net = Net::cabled();
    net.manager.discover(&mut net.fabric);
    let found: Vec<_> = net.manager.nodes.iter().map(|(guid, n)| (*guid, n.path.clone())).collect();
    let expected = [
        (0x10, vec![]),
        (0x20, vec![1, 3]),
        (0x30, vec![1, 4]),
        (0x40, vec![1, 5]),
        (SWITCH, vec![1]),
    ];
    assert_eq!(found, expected);
    assert_eq!(net.fabric.all_dropped(), 0);
}

/// What passes the cables while the manager works, as a file for an analyser.
#[test]
fn a_bring_up_is_captured() {
    let mut net = Net::cabled();
    net.fabric.record();
    net.manager.bring_up(&mut net.fabric);
    let frames = net.fabric.take_record();
    assert!(frames.len() > 100);
    let (wire, _peer) = cable();
    let clock = ModelClock::default();
    let mut tap = Tap::of_link(LinkType::InfiniBandErf, wire, Vec::new(), clock.clone()).unwrap();
    for frame in &frames {
        assert!(Packet::parse(frame).unwrap().subnet_mad().is_some());
        clock.advance(1000);
        tap.send(frame);
    }
    let (_, file) = tap.into_parts().unwrap();
    assert_eq!(file.len(), 24 + frames.len() * (16 + 16 + 290));
}

#[test]
fn all_pairs_reach_each_other() {
    let mut net = Net::active();
    for end in net.ends {
        assert_eq!(net.state(end), State::Active);
    }
    assert_eq!(net.fabric.all_dropped(), 0);
    for from in 0..4 {
        for to in (0..4).filter(|to| *to != from) {
            let packet = net.datagram(from, net.lid(to), &[from as u8, to as u8]);
            net.fabric.send(net.ends[from], packet.build());
            let frame = net.fabric.receive(net.ends[to]).unwrap();
            assert_eq!(Packet::parse(&frame), Ok(packet));
            for end in net.ends {
                assert_eq!(net.fabric.receive(end), None);
            }
        }
    }
    assert_eq!(net.fabric.all_dropped(), 0);
}

#[test]
fn management_by_lid_reaches_adapters_and_the_switch() {
    let mut net = Net::active();
    for guid in GUIDS.into_iter().chain([SWITCH]) {
        let dlid = net.manager.lid(guid);
        let smp = get(attribute::NODE_INFO, 0);
        let answer = net.manager.ask_lid(&mut net.fabric, smp, dlid).unwrap();
        assert_eq!(crate::ifc::subnet::node_info::node_guid.get64(answer.data()), guid);
    }
    assert_eq!(net.fabric.all_dropped(), 0);
    net.fabric.submit(net.ends[0], get(attribute::NODE_INFO, 0), 40);
    assert_eq!(net.fabric.dropped(net.switch_end(2), Cause::DlidMapping), 1);
}

/// The LID routes a request to the switch, from there the path leads on; and the other way round.
#[test]
fn a_directed_route_may_begin_and_end_by_lid() {
    let mut net = Net::active();
    let own = net.lid(0);
    let mut smp = get(attribute::NODE_INFO, 0).directed(&[4]);
    smp.set(layout::dr_slid, own.into());
    let frame = Packet::management(net.manager.lid(SWITCH), own, &smp.0).build();
    net.fabric.send(net.ends[0], frame);
    let answer = Packet::parse(&net.fabric.receive(net.ends[0]).unwrap()).unwrap();
    let data = Smp(*answer.subnet_mad().unwrap());
    assert_eq!(crate::ifc::subnet::node_info::node_guid.get64(data.data()), 0x30);
    assert_eq!(answer.lrh.dlid, own);

    let mut smp = get(attribute::NODE_INFO, 0).directed(&[1]);
    smp.set(layout::dr_dlid, net.lid(3).into());
    net.fabric.submit(net.ends[0], smp, lid::PERMISSIVE);
    let answer = Packet::parse(&net.fabric.receive(net.ends[0]).unwrap()).unwrap();
    let data = Smp(*answer.subnet_mad().unwrap());
    assert_eq!(crate::ifc::subnet::node_info::node_guid.get64(data.data()), 0x40);
    assert_eq!(net.fabric.all_dropped(), 0, "{:?}", net.fabric);
}

#[test]
fn frames_are_dropped_and_counted_by_cause() {
    let mut net = Net::active();
    let entry = net.switch_end(2);
    let [_, second, ..] = net.ends;
    let to = |net: &Net, dlid| net.datagram(0, dlid, b"x");
    let zero = to(&net, 0);
    net.assert_dropped(0, &zero, entry, Cause::LidZero);
    for dlid in [40, 64, 0xbfff] {
        let packet = to(&net, dlid);
        net.assert_dropped(0, &packet, entry, Cause::DlidMapping);
    }
    let itself = to(&net, net.lid(0));
    net.assert_dropped(0, &itself, entry, Cause::Looping);
    let permissive = to(&net, lid::PERMISSIVE);
    net.assert_dropped(0, &permissive, entry, Cause::PermissiveLid);
    let group = to(&net, 0xc005);
    net.assert_dropped(0, &group, entry, Cause::DlidMapping);
    let beyond = to(&net, 0xc400);
    net.assert_dropped(0, &beyond, entry, Cause::DlidMapping);
    let mut foreign = to(&net, net.lid(1));
    foreign.bth.pkey = 0x8123;
    net.assert_dropped(0, &foreign, second, Cause::PKey);
    let port = net.fabric.node(second.node).port(1).unwrap();
    assert_eq!(port.get(port_info::p_key_violations), 1);
    let mut zero_qp = to(&net, net.lid(1));
    zero_qp.bth.dest_qp = 0;
    net.assert_dropped(0, &zero_qp, second, Cause::QpZero);
    let mut lane = to(&net, lid::PERMISSIVE);
    lane.lrh.vl = 15;
    net.assert_dropped(0, &lane, entry, Cause::NotSubnetManagement);
    let mut long = to(&net, net.lid(1));
    long.payload = vec![0; 2049 + 124];
    net.assert_dropped(0, &long, net.ends[0], Cause::NeighborMtu);
    let route = get(attribute::NODE_INFO, 0).directed(&[1, 9]);
    net.fabric.submit(net.ends[0], route, lid::PERMISSIVE);
    assert_eq!(net.fabric.dropped(entry, Cause::Route), 1);
    let frame = to(&net, net.lid(1)).build();
    let mut wrong = frame.clone();
    wrong[30] ^= 1;
    net.fabric.send(net.ends[0], wrong.clone());
    assert_eq!(net.fabric.dropped(entry, Cause::Link(BadLink::Vcrc)), 1);
    // A switch does not look at the ICRC.
    link::set_vl(&mut wrong, 0);
    net.fabric.send(net.ends[0], wrong);
    assert_eq!(net.fabric.dropped(second, Cause::Malformed(Malformed::Icrc)), 1);
    for end in net.ends {
        assert_eq!(net.fabric.receive(end), None);
    }
}

#[test]
fn multicast_goes_where_the_table_says() {
    let mut net = Net::active();
    let mut smp = set_to(&get(attribute::MULTICAST_FORWARDING, 0));
    // Group 0xc001: ports 2, 3 and 5.
    smp.data_mut()[2..4].copy_from_slice(&(1_u16 << 2 | 1 << 3 | 1 << 5).to_be_bytes());
    assert_eq!(net.manager.ask(&mut net.fabric, smp, &[1]).unwrap().status(), 0);
    let mut packet = net.datagram(0, 0xc001, b"all");
    packet.grh =
        Some(Grh { tclass: 0, flow_label: 0, hop_limit: 0, sgid: [1; 16], dgid: [0xff; 16] });
    packet.lrh.next = crate::wire::ib::Next::Grh;
    net.fabric.send(net.ends[0], packet.build());
    let got = net.ends.map(|end| net.fabric.receive(end).is_some());
    assert_eq!(got, [false, true, false, true]);
    assert_eq!(net.fabric.all_dropped(), 0);
    // Groups beyond the table go to the default port, and from there to the other one.
    let read = net.manager.ask(&mut net.fabric, get(attribute::SWITCH_INFO, 0), &[1]).unwrap();
    let mut smp = set_to(&read);
    info::default_multicast_primary_port.set(smp.data_mut(), 4);
    info::default_multicast_not_primary_port.set(smp.data_mut(), 3);
    assert_eq!(net.manager.ask(&mut net.fabric, smp, &[1]).unwrap().status(), 0);
    for (from, to) in [(0, 2), (2, 1)] {
        let packet = net.datagram(from, 0xfff0, b"all");
        net.fabric.send(net.ends[from], packet.build());
        assert!(net.fabric.receive(net.ends[to]).is_some());
    }
}

#[test]
fn partitions_are_those_of_the_table() {
    let mut net = Net::active();
    let mut smp = set_to(&get(attribute::P_KEY_TABLE, 0));
    smp.data_mut()[..4].copy_from_slice(&[0x80, 0x11, 0x00, 0x12]);
    assert_eq!(net.manager.ask(&mut net.fabric, smp, &[1, 3]).unwrap().status(), 0);
    let cases = [
        (0x8011, true),
        (0x0011, true),
        (0x8012, true),
        (0x0012, false),
        (DEFAULT_PKEY, false),
        (0x8000, false),
    ];
    for (p_key, is_member) in cases {
        let mut packet = net.datagram(0, net.lid(1), b"x");
        packet.bth.pkey = p_key;
        net.fabric.send(net.ends[0], packet.build());
        assert_eq!(net.fabric.receive(net.ends[1]).is_some(), is_member, "{p_key:#x}");
    }
    assert_eq!(net.fabric.dropped(net.ends[1], Cause::PKey), 3);
    // The switch enforces its own table where a manager asks for it.
    let enforce = [(port_info::partition_enforcement_inbound, 1)];
    assert_eq!(net.manager.set_port(&mut net.fabric, &[1], 2, &enforce), 0);
    let mut packet = net.datagram(0, net.lid(1), b"x");
    packet.bth.pkey = 0x8011;
    net.assert_dropped(0, &packet, net.switch_end(2), Cause::PKey);
}

#[test]
fn service_levels_choose_the_lane() {
    let mut net = Net::active();
    let mut smp = set_to(&get(attribute::SL_TO_VL, 2 << 8 | 3));
    smp.data_mut()[..8].copy_from_slice(&[0x13, 0xf4, 0, 0, 0, 0, 0, 0]);
    assert_eq!(net.manager.ask(&mut net.fabric, smp, &[1]).unwrap().status(), 0);
    for (sl, vl) in [(0, Some(1)), (1, Some(3)), (2, None), (3, None)] {
        let mut packet = net.datagram(0, net.lid(1), b"x");
        packet.lrh.sl = sl;
        net.fabric.send(net.ends[0], packet.build());
        let got = net.fabric.receive(net.ends[1]).map(|f| Packet::parse(&f).unwrap().lrh.vl);
        assert_eq!(got, vl);
    }
    assert_eq!(net.fabric.dropped(net.switch_end(3), Cause::VlMapping), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in a frame that is intact on the link, the fabric drops it or carries it, and
    /// comes to rest.
    #[test]
    fn any_frame_is_carried_or_dropped(
        bytes in prop::collection::vec(any::<u8>(), 256),
        dlid in prop_oneof![0_u16..8, Just(0xffff), Just(0xc000), any::<u16>()],
        management: bool,
        class in prop::sample::select(vec![1_u8, 0x81]),
        hops in (0_u8..4, 0_u8..4),
    ) {
        let mut net = Net::active();
        let mut mad: [u8; 256] = bytes.try_into().unwrap();
        mad[..3].copy_from_slice(&[1, class, 1]);
        mad[3] &= 3;
        mad[6..8].copy_from_slice(&[hops.0, hops.1]);
        let mut packet = Packet::management(dlid, net.lid(0), &mad);
        if !management {
            packet.lrh.vl = 0;
        }
        net.fabric.send(net.ends[0], packet.build());
        net.fabric.advance(1_000_000_000);
    }
}
