//! Frames against the sample packet of the specification and against captured ones.

use proptest::prelude::*;

use super::crc::{icrc, vcrc};
use super::*;
use crate::wire::frame::{Aeth, AtomicEth, Bth, Deth, Extended, Reth};
use crate::wire::opcode::{Opcode, Service};

/// Eight of the 43 frames of `infiniband.pcap` (sample captures of the Wireshark project), which a
/// capture card took from a link of two hosts with OpenSM: SMInfo and its answer, an IPoIB
/// broadcast with a GRH, a CM REQ, IPoIB over RC, an acknowledgement, IPv6 Neighbor Solicitation to
/// a multicast LID with a GRH, a path record. In all 43 the ICRC and the VCRC are what
/// [`super::crc`] computes.
const CAPTURED: &str = include_str!("fixtures/captured.hex");

/// The sample data packet of IBTA volume 1, 7.8, table 29 (as quoted on linux-rdma in January 2025, message
/// 20250129183009.GC2120662@ziepe.ca): with the VL and Resv8a as ones, without CRCs.
const SAMPLE: &str = "f012375c000e17d20a202487ff87b1b3000dec2a01710a1c015d400238f27a05\
    0000000ebb884d85fd5cfba4728bc0690ed40000";
/// Its ICRC, of the same source.
const SAMPLE_ICRC: [u8; 4] = [0x96, 0x25, 0xb7, 0x5a];

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The VCRC bit by bit: the register shifts to the right, so the generator 0x100b stands reversed.
fn vcrc_by_bits(frame: &[u8]) -> [u8; 2] {
    let mut register = 0xffff_u16;
    for byte in frame {
        register ^= u16::from(*byte);
        for _ in 0..8 {
            register = register >> 1 ^ if register & 1 != 0 { 0xd008 } else { 0 };
        }
    }
    (!register).to_le_bytes()
}

#[test]
fn sample_packet_has_the_published_icrc() {
    let mut packet = hex(SAMPLE);
    assert_eq!(icrc(&packet, Next::Bth), SAMPLE_ICRC);
    packet[0] = 0x70;
    packet[12] = 0;
    assert_eq!(icrc(&packet, Next::Bth), SAMPLE_ICRC);
    let crc = icrc(&packet, Next::Bth);
    packet.extend_from_slice(&crc);
    let crc = vcrc(&packet);
    packet.extend_from_slice(&crc);
    let parsed = Packet::parse(&packet).unwrap();
    assert_eq!((parsed.lrh.vl, parsed.lrh.sl), (7, 1));
    assert_eq!((parsed.lrh.dlid, parsed.lrh.slid), (0x375c, 0x17d2));
    assert_eq!(parsed.ext.reth.unwrap().len, 14);
    assert_eq!(parsed.payload.len(), 14);
    assert_eq!(parsed.build(), packet);
}

#[test]
fn captured_frames_have_the_crcs_that_hardware_made_and_survive_a_round_trip() {
    assert_eq!(CAPTURED.lines().count(), 8);
    for frame in CAPTURED.lines().map(hex) {
        let (body, vcrc_of_frame) = frame.split_at(frame.len() - 2);
        assert_eq!(vcrc(body), vcrc_of_frame);
        assert_eq!(vcrc_by_bits(body), vcrc_of_frame);
        let lrh = link::check(&frame).unwrap();
        let (body, icrc_of_frame) = body.split_at(body.len() - 4);
        assert_eq!(icrc(body, lrh.next), icrc_of_frame);
        let packet = Packet::parse(&frame).unwrap();
        assert_eq!(packet.build(), frame, "{packet:?}");
        assert_eq!(packet.lrh.next, if packet.grh.is_some() { Next::Grh } else { Next::Bth });
    }
}

#[test]
fn captured_subnet_management_packet_is_one() {
    let frames: Vec<Packet> = CAPTURED.lines().map(|l| Packet::parse(&hex(l)).unwrap()).collect();
    let mad = frames[0].subnet_mad().unwrap();
    assert_eq!(mad[..4], [1, 0x81, 1, 1]);
    let own = Packet::management(lid::PERMISSIVE, lid::PERMISSIVE, mad);
    assert_eq!(Packet { bth: Bth { psn: frames[0].bth.psn, ..own.bth }, ..own }, frames[0]);
    assert!(frames[2].subnet_mad().is_none());
    assert_eq!(lid::kind(frames[2].lrh.dlid), lid::Kind::Multicast);
}

#[test]
fn a_switch_changes_the_lane_and_not_the_icrc() {
    let mut frame = Packet::parse(&hex(CAPTURED.lines().nth(3).unwrap())).unwrap().build();
    link::set_vl(&mut frame, 5);
    let packet = Packet::parse(&frame).unwrap();
    assert_eq!(packet.lrh.vl, 5);
    link::set_vl(&mut [], 5);
    link::set_vl(&mut [1], 5);
}

/// A frame with both CRCs made anew after `change`, and why it is thrown away.
fn verdict(change: impl FnOnce(&mut Vec<u8>)) -> Malformed {
    let mut frame = hex(CAPTURED.lines().nth(2).unwrap());
    frame.truncate(frame.len() - 6);
    change(&mut frame);
    let next = if frame[1] & 3 == 3 { Next::Grh } else { Next::Bth };
    let crc = icrc(&frame, next);
    frame.extend_from_slice(&crc);
    let crc = vcrc(&frame);
    frame.extend_from_slice(&crc);
    Packet::parse(&frame).unwrap_err()
}

#[test]
fn frames_are_dropped_by_cause() {
    use Malformed::{Grh, Icrc, Link, Opcode, Raw, Truncated, Version};
    assert_eq!(verdict(|f| f[0] |= 1), Link(BadLink::Version));
    assert_eq!(verdict(|f| f[5] += 1), Link(BadLink::Length));
    assert_eq!(verdict(|f| f.extend_from_slice(&[0; 4])), Link(BadLink::Length));
    assert_eq!(verdict(|f| f[1] &= 0xfc), Raw);
    assert_eq!(verdict(|f| f[8] = 0x40), Grh);
    assert_eq!(verdict(|f| f[13] -= 1), Grh);
    assert_eq!(verdict(|f| f[14] = 0x11), Grh);
    assert_eq!(verdict(|f| f[48] = 0xff), Opcode(0xff));
    assert_eq!(verdict(|f| f[49] |= 1), Version);
    let cut = |f: &mut Vec<u8>| {
        f.truncate(60);
        f[5] = 16;
        f[13] = 16;
    };
    assert_eq!(verdict(cut), Truncated);
    let frame = hex(CAPTURED.lines().next().unwrap());
    let mut wrong = frame.clone();
    wrong[100] ^= 1;
    assert_eq!(Packet::parse(&wrong), Err(Link(BadLink::Vcrc)));
    link::set_vl(&mut wrong, 15);
    assert_eq!(Packet::parse(&wrong), Err(Icrc));
    assert_eq!(Packet::parse(&frame[..9]), Err(Link(BadLink::Short)));
    // Fifteen bytes of headers: the padding would reach into the BTH.
    let mut short = vec![0xf0, 2, 0xff, 0xff, 0, 6, 0xff, 0xff, 4, 0x30, 0xff, 0xff];
    short.resize(20, 0);
    let crc = icrc(&short, Next::Bth);
    short.extend_from_slice(&crc);
    let crc = vcrc(&short);
    short.extend_from_slice(&crc);
    assert_eq!(Packet::parse(&short), Err(Truncated));
}

#[test]
fn lids_have_their_kinds() {
    use lid::Kind::{Multicast, Permissive, Reserved, Unicast};
    let kinds = [0, 1, 0xbfff, 0xc000, 0xfffe, 0xffff].map(lid::kind);
    assert_eq!(kinds, [Reserved, Unicast, Unicast, Multicast, Multicast, Permissive]);
}

fn headers(opcode: Opcode, a: u64, b: u64) -> Extended {
    let has = opcode.headers();
    let [rkey, len] = [a as u32, b as u32];
    Extended {
        xrc_srqn: None,
        reth: has.reth.then_some(Reth { va: a, rkey, len }),
        atomic: has.atomic.then_some(AtomicEth { va: b, rkey: len, swap_add: a, compare: !a }),
        aeth: has.aeth.then_some(Aeth { syndrome: a as u8, msn: len & 0xff_ffff }),
        atomic_ack: has.atomic_ack.then_some(b),
        deth: has.deth.then_some(Deth { qkey: rkey, src_qp: len & 0xff_ffff }),
        imm: has.imm.then_some(rkey),
        ieth: has.ieth.then_some(len),
    }
}

prop_compose! {
    fn packets()(
        lanes in (0_u8..16, 0_u8..16),
        lids in any::<(u16, u16)>(),
        global in proptest::option::of((any::<(u8, u8)>(), 0_u32..1 << 20, any::<([u8; 16], [u8; 16])>())),
        opcode in proptest::sample::select(Opcode::ALL),
        flags in any::<(bool, bool, bool, bool, bool)>(),
        numbers in (any::<u16>(), 0_u32..1 << 24, 0_u32..1 << 24),
        words in any::<(u64, u64)>(),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
    ) -> Packet {
        let grh = global.map(|((tclass, hop_limit), flow_label, (sgid, dgid))| Grh {
            tclass, flow_label, hop_limit, sgid, dgid,
        });
        Packet {
            lrh: Lrh {
                vl: lanes.0,
                sl: lanes.1,
                next: if grh.is_some() { Next::Grh } else { Next::Bth },
                dlid: lids.0,
                slid: lids.1,
            },
            grh,
            bth: Bth {
                service: if opcode.is_datagram() { Service::Ud } else { Service::Rc },
                opcode,
                solicited: flags.0,
                migrated: flags.1,
                pkey: numbers.0,
                fecn: flags.2,
                becn: flags.3,
                dest_qp: numbers.1,
                ack_req: flags.4,
                psn: numbers.2,
            },
            ext: headers(opcode, words.0, words.1),
            payload,
        }
    }
}

proptest! {
    #[test]
    fn what_was_built_is_parsed(packet in packets()) {
        let frame = packet.build();
        prop_assert_eq!(frame.len() % 4, 2);
        prop_assert_eq!(Packet::parse(&frame), Ok(packet));
    }

    #[test]
    fn a_flipped_bit_is_noticed(packet in packets(), at in any::<prop::sample::Index>()) {
        let mut frame = packet.build();
        let bit = at.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(Packet::parse(&frame), Err(Malformed::Link(BadLink::Vcrc)));
    }

    #[test]
    fn no_bytes_are_too_wrong_to_parse(mut bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = Packet::parse(&bytes);
        // The same behind a right VCRC and a right length, so that all of the parser sees it.
        if bytes.len() >= 10 {
            bytes.truncate(bytes.len() / 4 * 4);
            bytes[0] &= 0xf0;
            bytes[4] = 0;
            bytes[5] = (bytes.len() / 4) as u8;
            let crc = vcrc(&bytes);
            bytes.extend_from_slice(&crc);
            let _ = Packet::parse(&bytes);
        }
    }

    #[test]
    fn both_ways_to_compute_the_vcrc_agree(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(vcrc(&bytes), vcrc_by_bits(&bytes));
    }
}
