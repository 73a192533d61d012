//! Frames against recorded ones: two captures of Linux Soft-RoCE and four single vectors.

#![expect(clippy::cast_possible_truncation, reason = "random fields are cut to their width")]

use std::net::Ipv4Addr;

use super::*;
use crate::wire::opcode::{Opcode, Service};

/// Two Soft-RoCE hosts (Linux 6.1): connect, SEND, READ, WRITE, disconnect of one rping.
const RXE: &str = include_str!("fixtures/rxe-rping.hex");
/// An independent endpoint against Soft-RoCE: three rping rounds and a REJ.
const ENDPOINT: &str = include_str!("fixtures/pypeer-rping.hex");

const V1: &str = "525400123401525400123402080045000030d2364000401154720a0900020a090001\
    c52512b7001c00001100ffff0000001100acb4631f0000014b01472d";
const V2: &str = "52540012340252540012340186dd6000000000281140fd0000090000000000000000\
    00000001fd000009000000000000000000000002e3b012b7002800000400ffff000000128042695000005\
    58c774883a000000978000009c4e278ae8a";
const V3: &str = "0200000000020200000000010800456a0034123440001111d317c0000201c0000202\
    c0de12b7002000000470ffff8012345680abcdef68656c6c6f000000fe5e50da";
const V4: &str = "02000000000202000000000186dd66aabcde001c111120010db8000000000000000000\
    00000120010db8000000000000000000000002c0de12b7001c00001100ffff0012345600abcdef1f000007\
    a072cb29";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn captured() -> impl Iterator<Item = Vec<u8>> {
    RXE.lines().chain(ENDPOINT.lines()).map(hex)
}

/// The ICRC by another library and another way of masking: each field named by its offset.
fn reference_icrc(frame: &[u8], l3_at: usize) -> [u8; 4] {
    let mut b = frame[l3_at..frame.len() - 4].to_vec();
    let l4 = if b[0] >> 4 == 4 {
        b[1] = 0xff;
        b[8] = 0xff;
        b[10..12].fill(0xff);
        20
    } else {
        b[0] = 0x6f;
        b[1..4].fill(0xff);
        b[7] = 0xff;
        40
    };
    b[l4 + 6..l4 + 8].fill(0xff);
    b[l4 + 12] = 0xff;
    let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
    let mut digest = crc.digest();
    digest.update(&[0xff; 8]);
    digest.update(&b);
    digest.finalize().to_le_bytes()
}

#[test]
fn the_register_after_the_dummy_header_is_the_known_constant() {
    assert_eq!(crc32fast::hash(&[0xff; 8]), 0x2144_df1c);
}

#[test]
fn icrc_of_all_vectors_and_all_captured_frames() {
    assert_eq!(captured().count(), 76);
    let vectors = [V1, V2, V3, V4].into_iter().map(hex);
    for frame in vectors.chain(captured()) {
        let l3 = if frame[12..14] == [0x08, 0x00] { 20 } else { 40 };
        let crc = &frame[frame.len() - 4..];
        assert_eq!(icrc(&frame[14..frame.len() - 4], l3, 8), crc);
        assert_eq!(reference_icrc(&frame, 14), crc);
    }
}

#[test]
fn captured_frames_survive_parse_and_build() {
    for frame in [V1, V2, V3, V4].into_iter().map(hex).chain(captured()) {
        let packet = Packet::parse(&frame).unwrap();
        assert_eq!(packet.build(), frame, "{packet:?}");
    }
}

#[test]
fn captured_rping_tells_its_story() {
    use Opcode::{Ack, ReadFirst, ReadLast, ReadMiddle, ReadRequest, SendOnly, UdSendOnly};
    use Opcode::{WriteFirst, WriteLast, WriteMiddle};
    let packets: Vec<Packet> = RXE.lines().map(|l| Packet::parse(&hex(l)).unwrap()).collect();
    let opcodes: Vec<Opcode> = packets.iter().map(|p| p.bth.opcode).collect();
    let expected = [
        UdSendOnly,
        UdSendOnly,
        UdSendOnly,
        SendOnly,
        Ack,
        ReadRequest,
        ReadFirst,
        ReadMiddle,
        ReadLast,
        SendOnly,
        Ack,
        SendOnly,
        Ack,
        WriteFirst,
        WriteMiddle,
        WriteLast,
        Ack,
        SendOnly,
        Ack,
        UdSendOnly,
        UdSendOnly,
    ];
    assert_eq!(opcodes, expected);
    assert_eq!(packets[3].bth.psn, 11_318_371);
    assert_eq!(packets[4].ext.aeth, Some(Aeth { syndrome: 0x1f, msn: 1 }));
    assert_eq!(packets[5].ext.reth.unwrap().len, 2500);
    assert_eq!(packets[6].payload.len(), 1024);
    assert_eq!(packets[8].payload.len(), 452);
    assert_eq!(packets[0].ext.deth, Some(Deth { qkey: 0x8001_0000, src_qp: 1 }));
    assert_eq!(packets[0].payload.len(), 256);
}

#[test]
fn every_field_of_vector_three() {
    let p = Packet::parse(&hex(V3)).unwrap();
    assert_eq!(p.net.dmac, [2, 0, 0, 0, 0, 2]);
    assert_eq!(p.net.src, IpAddr::from([192, 0, 2, 1]));
    assert_eq!(p.net.dst, IpAddr::from([192, 0, 2, 2]));
    assert_eq!((p.net.tclass, p.net.hop_limit, p.net.ident), (0x6a, 17, 0x1234));
    assert_eq!(p.net.udp_sport, 0xc0de);
    assert_eq!(p.bth.opcode, Opcode::SendOnly);
    assert!(p.bth.migrated && p.bth.fecn && p.bth.ack_req);
    assert!(!p.bth.solicited && !p.bth.becn);
    assert_eq!((p.bth.dest_qp, p.bth.psn, p.bth.pkey), (0x12_3456, 0xab_cdef, 0xffff));
    assert_eq!(p.payload, b"hello");
    assert_eq!(p.grh[..20], [0; 20]);
    assert_eq!(p.grh[20..], hex(V3)[14..34]);
}

#[test]
fn every_field_of_vector_four() {
    let p = Packet::parse(&hex(V4)).unwrap();
    assert_eq!((p.net.tclass, p.net.hop_limit, p.net.flow_label), (0x6a, 17, 0xabcde));
    assert_eq!(p.net.dst, "2001:db8::2".parse::<IpAddr>().unwrap());
    assert_eq!(p.ext.aeth, Some(Aeth { syndrome: 0x1f, msn: 7 }));
    assert_eq!(p.grh[..], hex(V4)[14..54]);
}

/// A VLAN tag lies outside the ICRC: the same datagram, tagged.
#[test]
fn vlan_tags_are_carried_and_not_covered() {
    let mut frame = hex(V1);
    frame.splice(12..12, [0x81, 0x00, 0x60, 0x05]);
    let p = Packet::parse(&frame).unwrap();
    assert_eq!(p.net.vlan, Some(0x6005));
    assert_eq!(p.build(), frame);
}

#[test]
fn fields_that_routers_change_are_not_covered() {
    let fix_ip = |f: &mut Vec<u8>| {
        f[24..26].fill(0);
        let sum = !ones_complement(&f[14..34]);
        f[24..26].copy_from_slice(&sum.to_be_bytes());
    };
    for (at, value) in [(15, 3), (22, 9), (46, 0x80), (46, 0x40), (46, 0x15)] {
        let mut frame = hex(V1);
        frame[at] = value;
        fix_ip(&mut frame);
        assert!(Packet::parse(&frame).is_ok(), "byte {at}");
    }
    // The UDP checksum is masked as well.
    let mut frame = hex(V1);
    frame[40..42].copy_from_slice(&[0x12, 0x34]);
    assert!(Packet::parse(&frame).is_ok());
}

#[test]
fn fields_that_routers_must_not_change_are_covered() {
    for at in [18, 19, 34, 35, 43, 45, 47, 50, 51, 53, 54, 57, 61] {
        let mut frame = hex(V1);
        frame[at] ^= 1;
        frame[24..26].fill(0);
        let sum = !ones_complement(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Packet::parse(&frame), Err(Malformed::Icrc), "byte {at}");
    }
}

fn with_icrc(mut frame: Vec<u8>) -> Vec<u8> {
    let n = frame.len() - 4;
    let crc = icrc(&frame[14..n], 20, 8);
    frame[n..].copy_from_slice(&crc);
    frame
}

#[test]
fn malformed_transport_headers_have_their_reasons() {
    let change = |at: usize, value: u8| {
        let mut frame = hex(V1);
        frame[at] = value;
        Packet::parse(&with_icrc(frame))
    };
    assert_eq!(change(43, 0x01), Err(Malformed::Version));
    assert_eq!(change(42, 0x15), Err(Malformed::Opcode(0x15)));
    assert_eq!(
        change(42, 0x2c),
        Err(Malformed::Opcode(0x2c)),
        "no READ on an unreliable connection"
    );
    assert_eq!(change(42, 0x40), Err(Malformed::Opcode(0x40)));
    assert_eq!(change(42, 0x81), Err(Malformed::Opcode(0x81)));
    assert_eq!(change(49, 0x00), Err(Malformed::QpZero));
    assert_eq!(change(44, 0x12), Err(Malformed::Pkey(0x12ff)));
    assert!(change(44, 0x7f).is_ok(), "limited member of the default partition");
    // An ACK with three bytes of padding, but no payload to pad.
    assert_eq!(change(43, 0x30), Err(Malformed::Truncated));
    // An ATOMIC ACK that ends with the AETH.
    assert_eq!(change(42, 0x12), Err(Malformed::Truncated));
}

#[test]
fn lengths_must_agree_and_tails_are_ignored() {
    let mut frame = hex(V1);
    frame.extend_from_slice(&[0xee; 7]);
    assert!(Packet::parse(&frame).is_ok(), "bytes after the IP packet are none of it");
    let mut frame = hex(V1);
    frame.truncate(60);
    assert_eq!(Packet::parse(&frame), Err(Malformed::Truncated));
    let mut frame = hex(V1);
    frame[39] -= 4;
    assert_eq!(Packet::parse(&frame), Err(Malformed::Ip));
    let mut frame = hex(V1);
    frame[25] ^= 1;
    assert_eq!(Packet::parse(&frame), Err(Malformed::Ip), "IP header checksum");
}

#[test]
fn demux_sorts_frames() {
    let own = |net: &Network| net.dst == IpAddr::from(Ipv4Addr::new(10, 9, 0, 1));
    assert!(matches!(demux(&hex(V1), own), Demux::Roce(_)));
    assert_eq!(demux(&hex(V1), |_| false), Demux::Ethernet);
    let mut bad = hex(V1);
    bad[61] ^= 1;
    assert_eq!(demux(&bad, own), Demux::Drop(Malformed::Icrc));
    assert_eq!(demux(&bad, |_| false), Demux::Ethernet);
    for frame in [V1, V2].map(hex) {
        let other = with_pkey(&frame, 0x9234).unwrap();
        let changed = frame.iter().zip(&other).filter(|(a, b)| a != b).count();
        assert_eq!((other.len(), changed), (frame.len(), 6));
        assert_eq!(Packet::parse(&other), Err(Malformed::Pkey(0x9234)));
        assert_eq!(with_pkey(&other, DEFAULT_PKEY), Some(frame));
    }
    let mut dns = hex(V1);
    dns[36..38].copy_from_slice(&[0, 53]);
    assert_eq!(demux(&dns, own), Demux::Ethernet);
    assert_eq!(with_pkey(&dns, 0x9234), None);
    let mut tcp = hex(V1);
    tcp[23] = 6;
    assert_eq!(demux(&tcp, own), Demux::Ethernet);
    let mut fragment = hex(V1);
    fragment[20] = 0x20;
    assert_eq!(demux(&fragment, own), Demux::Ethernet);
    let mut arp = hex(V1);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(demux(&arp, own), Demux::Ethernet);
}

#[test]
fn prefixes_and_bit_flips_never_panic() {
    for frame in [V1, V2, V3, V4].into_iter().map(hex).chain(captured().take(20)) {
        for len in 0..frame.len() {
            let _ = demux(&frame[..len], |_| true);
        }
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let _ = demux(&bad, |_| true);
            // The transport parser alone, with the ICRC put right again.
            if bad[12..14] == [0x08, 0x00] {
                let _ = demux(&with_icrc(bad), |_| true);
            }
        }
    }
}

#[test]
fn opcodes_agree_with_their_numbers_and_header_lengths() {
    let lengths = [
        (0x00u8, 12),
        (0x01, 12),
        (0x02, 12),
        (0x03, 16),
        (0x04, 12),
        (0x05, 16),
        (0x06, 28),
        (0x07, 12),
        (0x08, 12),
        (0x09, 16),
        (0x0a, 28),
        (0x0b, 32),
        (0x0c, 28),
        (0x0d, 16),
        (0x0e, 12),
        (0x0f, 16),
        (0x10, 16),
        (0x11, 16),
        (0x12, 24),
        (0x13, 40),
        (0x14, 40),
        (0x16, 16),
        (0x17, 16),
        (0x64, 20),
        (0x65, 24),
    ];
    assert_eq!(lengths.len(), Opcode::ALL.len());
    for (byte, len) in lengths {
        let opcode = Opcode::try_from(byte).unwrap();
        assert_eq!(u8::from(opcode), byte);
        let h = opcode.headers();
        let sizes = [
            (h.reth, 16),
            (h.atomic, 28),
            (h.aeth, 4),
            (h.atomic_ack, 8),
            (h.deth, 8),
            (h.imm, 4),
            (h.ieth, 4),
        ];
        let sum: usize = sizes.iter().map(|(has, n)| usize::from(*has) * n).sum();
        assert_eq!(BTH_LEN + sum, len, "{opcode:?}");
    }
}

proptest::proptest! {
    #[test]
    fn any_packet_survives_build_and_parse(
        at in 0..Opcode::ALL.len(),
        payload in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
        n in proptest::prelude::any::<[u64; 6]>(),
        v6 in proptest::prelude::any::<bool>(),
        tagged in proptest::prelude::any::<bool>(),
        v1 in proptest::prelude::any::<bool>(),
        which in 0..3u8,
    ) {
        let opcode = Opcode::ALL[at];
        let h = opcode.headers();
        let service = match (opcode.is_datagram(), which) {
            (true, _) => Service::Ud,
            (false, 1) if opcode.is_unacknowledged() => Service::Uc,
            (false, 2) => Service::Xrc,
            (false, _) => Service::Rc,
        };
        let ip = |x: u64| if v6 {
            IpAddr::from((u128::from(x) | 0x2001_u128 << 112).to_be_bytes())
        } else {
            IpAddr::from((x as u32).to_be_bytes())
        };
        let mut packet = Packet {
            net: Network {
                dmac: [2, 0, 0, 0, 0, n[0] as u8],
                smac: [2, 0, 0, 0, 1, n[0] as u8],
                vlan: tagged.then_some(n[0] as u16),
                src: ip(n[1]),
                dst: ip(n[2]),
                tclass: n[3] as u8,
                hop_limit: n[4] as u8,
                flow_label: if v6 || v1 { n[3] as u32 & 0xf_ffff } else { 0 },
                ident: if v6 || v1 { 0 } else { n[5] as u16 },
                udp_sport: if v1 { 0 } else { n[4] as u16 },
                v1,
            },
            bth: Bth {
                service,
                opcode,
                solicited: n[5] & 1 != 0,
                migrated: n[5] & 2 != 0,
                pkey: DEFAULT_PKEY,
                fecn: n[5] & 4 != 0,
                becn: n[5] & 8 != 0,
                dest_qp: n[0] as u32 & 0xff_ffff | 1,
                ack_req: n[5] & 16 != 0,
                psn: n[1] as u32 & 0xff_ffff,
            },
            ext: Extended {
                xrc_srqn: (service == Service::Xrc && !opcode.is_response()).then_some(n[3] as u32 & 0xff_ffff),
                reth: h.reth.then_some(Reth { va: n[0], rkey: n[1] as u32, len: n[2] as u32 }),
                atomic: h.atomic.then_some(AtomicEth {
                    va: n[0], rkey: n[1] as u32, swap_add: n[2], compare: n[3],
                }),
                aeth: h.aeth.then_some(Aeth { syndrome: n[0] as u8, msn: n[1] as u32 & 0xff_ffff }),
                atomic_ack: h.atomic_ack.then_some(n[4]),
                deth: h.deth.then_some(Deth { qkey: n[2] as u32, src_qp: n[3] as u32 & 0xff_ffff }),
                imm: h.imm.then_some(n[5] as u32),
                ieth: h.ieth.then_some(n[5] as u32),
            },
            payload,
            grh: [0; 40],
        };
        let parsed = Packet::parse(&packet.build()).unwrap();
        packet.grh = parsed.grh;
        proptest::prop_assert_eq!(parsed, packet);
    }
}
