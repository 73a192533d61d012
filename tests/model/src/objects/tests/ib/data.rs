//! Connections and datagrams by LID.

use proptest::prelude::*;

use super::station::{Got, Q_KEY};
use super::*;
use crate::ifc::mkey::mkc;
use crate::ifc::qp::ads;
use crate::wire::ib::{Grh, Next, Packet, lid};
use crate::wire::pcap::{LinkType, Tap};
use crate::wire::switch::cable;
use crate::wire::{ModelClock, Wire};

const MGID: [u8; 16] = [0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];

/// Connected queue pairs of both devices.
fn connected(link: &mut Link, address: impl Fn(usize) -> Vec<(Field, u32)>) -> [u32; 2] {
    let qps = [0, 1].map(|n| link.ends[n].connection());
    for n in 0..2 {
        link.ends[n].connect(qps[n], qps[1 - n], &address(n)).unwrap();
    }
    qps
}

fn by_lid(n: usize) -> Vec<(Field, u32)> {
    vec![(ads::rlid, 2 - n as u32), (ads::sl, 3)]
}

fn fine(got: &[Got]) -> Vec<u32> {
    assert!(got.iter().all(|got| got.opcode < 13), "{got:?}");
    got.iter().map(|got| got.opcode).collect()
}

/// A send, a write and a read over a link whose ports are active.
fn passes_data(link: &mut Link, qps: [u32; 2]) {
    link.ends[1].receive(qps[1]);
    let long: Vec<u8> = (0..900_u32).map(|n| n as u8).collect();
    link.ends[0].send(qps[0], &long);
    link.run();
    let got = link.ends[1].take_received(qps[1]).unwrap();
    assert_eq!(got.bytes, long);
    assert_eq!(fine(&link.ends[0].completions()), [0]);
    let key = link.ends[1].rig.key(|mkc| mkc::pd.set(mkc, 1)).unwrap();
    link.ends[0].remote(qps[0], 0x08, DATA, key, b"over the fabric");
    link.run();
    assert_eq!(fine(&link.ends[0].completions()), [0]);
    assert_eq!(link.ends[1].rig.peek(DATA, 15), b"over the fabric");
    link.ends[0].remote(qps[0], 0x10, DATA, key, &[0; 15]);
    link.run();
    assert_eq!(fine(&link.ends[0].completions()), [0]);
    let at = link.ends[0].data(qps[0]) + 0x4000;
    assert_eq!(link.ends[0].rig.peek(at, 15), b"over the fabric");
}

#[test]
fn a_connection_by_lid_sends_writes_and_reads() {
    let mut link = Link::active();
    let qps = connected(&mut link, by_lid);
    link.frames.clear();
    passes_data(&mut link, qps);
    let first = Packet::parse(&link.frames[0]).unwrap();
    assert_eq!((first.lrh.dlid, first.lrh.slid, first.lrh.sl, first.lrh.vl), (2, 1, 3, 3));
    assert_eq!((first.grh, first.bth.pkey), (None, 0xffff));
    // The same as a file for an analyser.
    let clock = ModelClock::default();
    let (wire, _peer) = cable();
    let mut tap = Tap::of_link(LinkType::InfiniBandErf, wire, Vec::new(), clock).unwrap();
    link.frames.iter().for_each(|frame| tap.send(frame));
    let bytes: usize = link.frames.iter().map(|frame| 32 + frame.len()).sum();
    assert_eq!(tap.into_parts().unwrap().1.len(), 24 + bytes);
}

#[test]
fn a_connection_may_carry_a_global_header() {
    let mut link = Link::active();
    let qps = [0, 1].map(|n| link.ends[n].connection());
    for n in 0..2 {
        let gid = link.ends[1 - n].port().gid(0);
        let mut address = by_lid(n);
        address.extend([(ads::grh, 1), (ads::hop_limit, 64)]);
        for (at, word) in gid.chunks(4).enumerate() {
            let word = u32::from_be_bytes(word.try_into().unwrap());
            address.push((Field::at(ads::rgid_rip.bit + at * 32, 32), word));
        }
        link.ends[n].connect(qps[n], qps[1 - n], &address).unwrap();
    }
    link.frames.clear();
    passes_data(&mut link, qps);
    let grh = Packet::parse(&link.frames[0]).unwrap().grh.unwrap();
    assert_eq!((grh.dgid, grh.hop_limit), (link.ends[1].port().gid(0), 64));
}

#[test]
fn an_unreliable_connection_goes_by_lid() {
    let mut link = Link::active();
    let qps = [0, 1].map(|n| link.ends[n].connection_of(1));
    for n in 0..2 {
        link.ends[n].connect(qps[n], qps[1 - n], &by_lid(n)).unwrap();
    }
    link.ends[1].receive(qps[1]);
    link.ends[0].send(qps[0], b"once");
    link.run();
    assert_eq!(link.ends[1].take_received(qps[1]).unwrap().bytes, b"once");
}

#[test]
fn payload_beyond_the_links_mtu_is_dropped_where_it_leaves() {
    let mut link = Link::active();
    assert_eq!(link.set_port(&[], 0, &[(port_info::neighbor_mtu, 1)]), Some(0));
    let qps = [0, 1].map(|n| link.ends[n].datagrams(2, Q_KEY, 0));
    link.ends[1].receive(qps[1]);
    link.ends[0].send_datagram(qps[0], &[(av::rlid, 2), (av::dqpn, qps[1])], &[1; 400]);
    link.run();
    assert_eq!(link.dropped(0, Cause::NeighborMtu), 1);
}

#[test]
fn both_ends_of_a_connection_may_be_in_one_device() {
    let mut link = Link::active();
    let qps = [0, 1].map(|_| link.ends[0].connection());
    for (own, peer) in [(qps[0], qps[1]), (qps[1], qps[0])] {
        link.ends[0].connect(own, peer, &[(ads::rlid, 1)]).unwrap();
    }
    link.frames.clear();
    link.ends[0].receive(qps[1]);
    link.ends[0].send(qps[0], b"round");
    link.run();
    assert_eq!(link.ends[0].take_received(qps[1]).unwrap().bytes, b"round");
    assert!(link.frames.is_empty());
}

#[test]
fn a_path_that_names_no_port_is_refused() {
    let mut link = Link::active();
    for rlid in [0, 0xc000, 0xffff] {
        let qp = link.ends[0].connection();
        assert!(link.ends[0].connect(qp, 5, &[(ads::rlid, rlid)]).is_err());
    }
    let qp = link.ends[0].connection();
    let address = [(ads::rlid, 2), (ads::grh, 1), (ads::src_addr_index, 8)];
    assert!(link.ends[0].connect(qp, 5, &address).is_err());
}

#[test]
fn what_is_for_another_lid_is_dropped_and_the_sender_gives_up() {
    let mut link = Link::active();
    let qps = connected(&mut link, |_| vec![(ads::rlid, 5)]);
    link.ends[0].send(qps[0], b"astray");
    link.run();
    assert_eq!(link.dropped(1, Cause::NotMine), 1);
    for _ in 0..4 {
        link.ends[0].rig.hca.bus.now += 1_000_000_000;
        link.run();
    }
    let got = link.ends[0].completions();
    assert_eq!((got[0].opcode, got[0].syndrome), (13, 0x15));
}

#[test]
fn a_packet_from_another_lid_is_none_of_the_connection() {
    let mut link = Link::active();
    let qps = connected(&mut link, by_lid);
    link.ends[1].receive(qps[1]);
    link.ends[0].send(qps[0], b"forged");
    let now = link.ends[0].rig.hca.bus.now;
    link.ends[0].rig.hca.step(now);
    let frame = link.ends[0].rig.sent.lock().unwrap().pop_front().unwrap();
    let mut packet = Packet::parse(&frame).unwrap();
    packet.lrh.slid = 3;
    link.ends[1].rig.coming.lock().unwrap().push_back(packet.build());
    link.run();
    assert!(link.ends[1].take_received(qps[1]).is_none());
}

#[test]
fn datagrams_say_who_sent_them() {
    let mut link = Link::active();
    assert_eq!(link.set_port(&[1], 0, &[(port_info::lmc, 2), (port_info::lid, 4)]), Some(0));
    let qps = [0, 1].map(|n| link.ends[n].datagrams(2, Q_KEY, 0));
    link.ends[1].receive(qps[1]);
    link.ends[0].send_datagram(qps[0], &[(av::rlid, 6), (av::dqpn, qps[1]), (av::sl, 2)], b"plain");
    link.run();
    let got = link.ends[1].take_received(qps[1]).unwrap();
    assert_eq!((got.len, got.src_qp, got.slid, got.sl), (45, qps[0], 1, 2));
    assert_eq!((got.has_grh, got.path_bits), (false, 2));
    assert_eq!(got.bytes[..40], [0xee; 40], "left as it was");
    assert_eq!(&got.bytes[40..], b"plain");
    // With a GRH, and from the second of the own LIDs.
    link.ends[0].receive(qps[0]);
    let dgid = link.ends[0].port().gid(0);
    let address =
        [(av::rlid, 1), (av::dqpn, qps[0]), (av::mlid, 1), (av::grh, 1), (av::hop_limit, 9)];
    link.ends[1].send_global(qps[1], &address, dgid, b"global");
    link.run();
    let got = link.ends[0].take_received(qps[0]).unwrap();
    assert_eq!((got.has_grh, got.slid, got.path_bits), (true, 5, 0));
    assert_eq!((got.bytes[0] >> 4, got.bytes[6..8].to_vec()), (6, vec![0x1b, 9]));
    assert_eq!(got.bytes[24..40], dgid);
    assert_eq!(&got.bytes[40..], b"global");
}

#[test]
fn general_services_are_queue_pair_one() {
    let mut link = Link::active();
    let qps = [0, 1].map(|n| link.ends[n].datagrams(8, 0x8001_0000, 0));
    link.ends[1].receive(qps[1]);
    let address = [(av::rlid, 2), (av::dqpn, 1), (av::qkey, 0x8001_0000)];
    link.ends[0].send_datagram(qps[0], &address, &[7; 256]);
    link.run();
    let got = link.ends[1].take_received(qps[1]).unwrap();
    assert_eq!((got.src_qp, got.p_key, got.len), (1, 0xffff, 296));
    // Its own number names nothing on the wire.
    link.ends[0].send_datagram(qps[0], &[(av::rlid, 2), (av::dqpn, qps[1])], &[7; 256]);
    link.run();
    assert_eq!(link.dropped(1, Cause::NoQueuePair), 1);
}

#[test]
fn datagrams_to_nowhere_are_dropped_by_cause() {
    let mut link = Link::active();
    let qps = [0, 1].map(|n| link.ends[n].datagrams(2, Q_KEY, 0));
    link.ends[1].receive(qps[1]);
    for (rlid, n, why) in [
        (0, 0, Cause::LidZero),
        (0xffff, 0, Cause::PermissiveLid),
        (9, 1, Cause::NotMine),
        (0xc001, 1, Cause::NoGroup),
    ] {
        link.ends[0].send_datagram(qps[0], &[(av::rlid, rlid), (av::dqpn, qps[1])], b"x");
        link.run();
        assert_eq!(link.dropped(n, why), 1, "{why:?}");
    }
    link.ends[0].send_datagram(qps[0], &[(av::rlid, 2), (av::dqpn, 0x3333)], b"x");
    link.ends[0].send_datagram(qps[0], &[(av::rlid, 2), (av::dqpn, 0)], b"x");
    link.ends[0].send_datagram(qps[0], &[(av::rlid, 2), (av::dqpn, qps[1]), (av::sl, 4)], b"x");
    let wrong = [(av::rlid, 2), (av::dqpn, qps[1]), (av::qkey, 1)];
    link.ends[0].send_datagram(qps[0], &wrong, b"x");
    link.ends[0].send_global(
        qps[0],
        &[(av::rlid, 2), (av::dqpn, qps[1]), (av::grh, 1)],
        [0xfe; 16],
        b"x",
    );
    link.run();
    let causes = [Cause::NoQueuePair, Cause::QpZero, Cause::Gid];
    assert_eq!(causes.map(|why| link.dropped(1, why)), [1, 1, 1]);
    assert_eq!(link.ends[1].port().get(port_info::q_key_violations), 1);
    // Service level 4 goes by lane 0 of four, so it arrives.
    assert!(link.ends[1].take_received(qps[1]).is_some());
}

#[test]
fn partitions_keep_apart() {
    let mut link = Link::active();
    for path in [&[][..], &[1]] {
        let mut smp = Smp::request(method::SET, attribute::P_KEY_TABLE, 0, 0);
        smp.data_mut()[..6].copy_from_slice(&[0xff, 0xff, 0x80, 0x11, 0x00, 0x22]);
        assert_eq!(link.ask(smp, path).unwrap().status(), 0);
    }
    let senders = [0, 1, 2].map(|index| link.ends[0].datagrams(2, Q_KEY, index));
    let receiver = link.ends[1].datagrams(2, Q_KEY, 1);
    let limited = link.ends[1].datagrams(2, Q_KEY, 2);
    link.ends[1].receive(receiver);
    link.ends[1].receive(limited);
    let violations = |link: &Link| link.ends[1].port().get(port_info::p_key_violations);
    for (sender, to, arrives, wrong) in [
        (senders[0], receiver, false, 1),
        (senders[1], receiver, true, 1),
        // Two limited members; the port has no key that would take it at all.
        (senders[2], limited, false, 2),
    ] {
        link.ends[0].send_datagram(sender, &[(av::rlid, 2), (av::dqpn, to)], b"x");
        link.run();
        assert_eq!(link.ends[1].take_received(to).is_some(), arrives);
        assert_eq!(violations(&link), wrong);
    }
    assert!(link.ends[1].rig.modify(0x502, 0, 0, &[]).is_err());
}

#[test]
fn groups_are_for_attached_queue_pairs() {
    let mut link = Link::active();
    let sender = link.ends[0].datagrams(2, Q_KEY, 0);
    let own = link.ends[0].datagrams(2, Q_KEY, 0);
    let members = [0, 1].map(|_| link.ends[1].datagrams(2, Q_KEY, 0));
    let outsider = link.ends[1].datagrams(2, Q_KEY, 0);
    for qp in members {
        link.ends[1].attach(qp, MGID).unwrap();
        link.ends[1].receive(qp);
    }
    link.ends[1].receive(outsider);
    link.ends[0].attach(own, MGID).unwrap();
    link.ends[0].receive(own);
    assert!(link.ends[1].attach(outsider, [0xfe; 16]).is_err(), "no group");
    let address = [(av::rlid, 0xc005), (av::dqpn, 0xff_ffff), (av::grh, 1), (av::hop_limit, 1)];
    link.ends[0].send_global(sender, &address, MGID, b"all");
    link.run();
    for qp in members {
        let got = link.ends[1].take_received(qp).unwrap();
        assert_eq!((&got.bytes[40..], got.has_grh, got.slid), (&b"all"[..], true, 1));
        assert_eq!(got.bytes[24..40], MGID);
    }
    assert!(link.ends[1].take_received(outsider).is_none());
    assert!(link.ends[0].take_received(own).is_some(), "a member in the sender's device");
    // Without a GRH nobody knows the group.
    link.ends[0].send_datagram(sender, &[(av::rlid, 0xc005), (av::dqpn, 0xff_ffff)], b"all");
    link.run();
    assert_eq!(link.dropped(1, Cause::NoGroup), 1);
}

#[test]
fn data_passes_active_links_only() {
    let mut link = Link::active();
    let qps = [0, 1].map(|n| link.ends[n].datagrams(2, Q_KEY, 0));
    link.ends[1].receive(qps[1]);
    link.ends[0].rig.hca.set_link(false);
    link.ends[0].send_datagram(qps[0], &[(av::rlid, 2), (av::dqpn, qps[1])], b"x");
    link.run();
    assert_eq!(link.dropped(0, Cause::Inactive), 1);
    link.ends[0].rig.hca.set_link(true);
    link.ends[0].send_datagram(qps[0], &[(av::rlid, 2), (av::dqpn, qps[1])], b"x");
    // Not to itself, either.
    link.ends[0].send_datagram(qps[0], &[(av::rlid, 1), (av::dqpn, qps[0])], b"x");
    link.run();
    assert_eq!(link.dropped(0, Cause::Inactive), 3);
    link.ends[1].rig.hca.set_link(false);
    link.ends[1].rig.hca.set_link(true);
    link.bring_up(&[&[], &[1]]);
    link.ends[0].send_datagram(qps[0], &[(av::rlid, 2), (av::dqpn, qps[1])], b"x");
    link.run();
    assert!(link.ends[1].take_received(qps[1]).is_some());
}

#[test]
fn a_connection_keeps_its_lid_when_the_port_gets_another() {
    let mut link = Link::active();
    let qps = connected(&mut link, by_lid);
    assert_eq!(link.set_port(&[1], 0, &[(port_info::lid, 9)]), Some(0));
    link.ends[1].receive(qps[1]);
    link.ends[0].send(qps[0], b"late");
    link.run();
    assert_eq!(link.dropped(1, Cause::NotMine), 1);
    assert!(link.ends[1].take_received(qps[1]).is_none());
}

#[test]
fn a_switch_stands_between() {
    let [a, b] = [1, 2].map(|n| Config { mac: [2, 0xc9, 3, 0, 0, n], ..Config::infiniband() });
    let mut link = Link::with([a, b], true);
    // The switch has LID 2, and its table a port for each LID.
    let mut table = Smp::request(method::SET, attribute::LINEAR_FORWARDING, 0, 0);
    table.data_mut()[..4].copy_from_slice(&[255, 1, 0, 2]);
    let read = link.ask(Smp::request(method::GET, attribute::SWITCH_INFO, 0, 0), &[1]).unwrap();
    let mut info = Smp::request(method::SET, attribute::SWITCH_INFO, 0, 0);
    info.data_mut().copy_from_slice(read.data());
    crate::ifc::subnet::switch_info::linear_fdb_top.set(info.data_mut(), 63);
    for smp in [table, info] {
        assert_eq!(link.ask(smp, &[1]).unwrap().status(), 0);
    }
    let mtu = (port_info::neighbor_mtu, 4);
    for (path, lid) in [(&[][..], 1), (&[1], 2), (&[1, 2], 3)] {
        let fields = [(port_info::lid, lid), (port_info::master_sm_lid, 1), mtu];
        assert_eq!(link.set_port(path, 0, &fields), Some(0), "{path:?}");
    }
    for state in [3, 4] {
        for (path, port) in [(&[][..], 0), (&[1], 1), (&[1], 2), (&[1, 2], 0)] {
            let fields = [(port_info::port_state, state), mtu];
            assert_eq!(link.set_port(path, port, &fields), Some(0), "{path:?} {port}");
        }
    }
    let lids = [1, 3];
    let qps = connected(&mut link, |n| vec![(ads::rlid, lids[1 - n])]);
    passes_data(&mut link, qps);
    assert_eq!(link.switch.as_ref().unwrap().drops().count(), 0);
    assert_eq!(lid::kind(lids[1] as u16), lid::Kind::Unicast);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever comes out of the cable, the device drops, answers or delivers it, and comes to rest.
    #[test]
    fn any_frame_is_borne(
        frames in prop::collection::vec((
            prop::collection::vec(any::<u8>(), 0..300),
            prop_oneof![0_u16..4, Just(0xffff), Just(0xc005), any::<u16>()],
            prop::sample::select(crate::wire::opcode::Opcode::ALL),
            prop_oneof![0_u32..3, Just(0xff_ffff), 0x48_u32..0x50],
            any::<(bool, bool, u8)>(),
        ), 1..20),
    ) {
        let mut link = Link::active();
        let qps = connected(&mut link, by_lid);
        let datagrams = link.ends[1].datagrams(2, Q_KEY, 0);
        link.ends[1].datagrams(8, 0x8001_0000, 0);
        link.ends[1].attach(datagrams, MGID).unwrap();
        for qp in [qps[1], datagrams] {
            link.ends[1].receive(qp);
        }
        for (payload, dlid, opcode, dest_qp, (is_management, is_global, slid)) in frames {
            let mut packet = Packet::management(dlid, slid.into(), &[0; 256]);
            packet.lrh.vl = if is_management { 15 } else { slid & 3 };
            packet.bth.opcode = opcode;
            packet.bth.service = match opcode.is_datagram() {
                true => crate::wire::opcode::Service::Ud,
                false => crate::wire::opcode::Service::Rc,
            };
            packet.bth.dest_qp = dest_qp;
            if is_global {
                packet.lrh.next = Next::Grh;
                let grh =
                    Grh { tclass: 0, flow_label: 0, hop_limit: 1, sgid: [1; 16], dgid: MGID };
                packet.grh = Some(grh);
            }
            let has = opcode.headers();
            let (va, rkey) = (DATA, 0x10_025a);
            packet.ext = crate::wire::frame::Extended {
                deth: has.deth.then_some(crate::wire::frame::Deth { qkey: Q_KEY, src_qp: 5 }),
                reth: has.reth.then_some(crate::wire::frame::Reth { va, rkey, len: 9 }),
                atomic: has.atomic.then_some(crate::wire::frame::AtomicEth {
                    va,
                    rkey,
                    swap_add: 1,
                    compare: 2,
                }),
                aeth: has.aeth.then_some(crate::wire::frame::Aeth { syndrome: slid, msn: 1 }),
                atomic_ack: has.atomic_ack.then_some(1),
                imm: has.imm.then_some(1),
                ieth: has.ieth.then_some(1),
                xrc_srqn: None,
            };
            packet.payload = payload;
            link.ends[1].rig.coming.lock().unwrap().push_back(packet.build());
            link.run();
        }
    }
}
