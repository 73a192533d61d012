//! Work requests by bytes: every layout, and bytes that are none.

use super::super::umr::Umr;
use super::super::wqe::{Control, parse_recv, parse_send};
use super::{control, pointer};
use crate::config::LinkLayer;
use crate::transport::host::{
    DataSegment, Fence, IbPath, Operation, Path, Payload, QpKind, RemoteAddress, Syndrome, Trailer,
};
use proptest::prelude::*;

fn remote(va: u64, rkey: u32) -> Vec<u8> {
    let mut out = va.to_be_bytes().to_vec();
    out.extend(rkey.to_be_bytes());
    out.extend([0; 4]);
    out
}

fn wqe(opcode: u8, imm: u32, body: &[Vec<u8>]) -> Vec<u8> {
    let body = body.concat();
    let mut out = control(opcode, 3, 0x48, 1 + (body.len() / 16) as u8, imm);
    out.extend(body);
    out
}

fn operation(bytes: &[u8]) -> Operation {
    parse_send(bytes, QpKind::Rc, LinkLayer::Ethernet).unwrap().operation
}

const SEGMENT: DataSegment = DataSegment { len: 5, lkey: 0x700, addr: 0x1234 };

fn data() -> Vec<u8> {
    pointer(5, 0x700, 0x1234)
}

#[test]
fn sends() {
    let data_of = || Payload::Segments(vec![SEGMENT]);
    for (opcode, trailer) in
        [(0x0a, Trailer::None), (0x0b, Trailer::Imm(9)), (0x01, Trailer::Invalidate(9))]
    {
        let want = Operation::Send { trailer, data: data_of() };
        assert_eq!(operation(&wqe(opcode, 9, &[data()])), want);
    }
}

#[test]
fn rdma_and_atomics() {
    let at = RemoteAddress { pool: None, va: 0x5555, rkey: 0x66 };
    let raddr = || remote(0x5555, 0x66);
    let segments = || Payload::Segments(vec![SEGMENT]);
    let write = operation(&wqe(8, 1, &[raddr(), data()]));
    assert_eq!(write, Operation::Write { remote: at, imm: None, data: segments() });
    let imm = operation(&wqe(9, 1, &[raddr(), data()]));
    assert_eq!(imm, Operation::Write { remote: at, imm: Some(1), data: segments() });
    let read = operation(&wqe(0x10, 0, &[raddr(), data()]));
    assert_eq!(read, Operation::Read { remote: at, into: vec![SEGMENT] });
    let operands = [1u64.to_be_bytes(), 2u64.to_be_bytes()].concat();
    let eight = pointer(8, 0x700, 0x1234);
    let into = vec![DataSegment { len: 8, ..SEGMENT }];
    let swap = operation(&wqe(0x11, 0, &[raddr(), operands.clone(), eight.clone()]));
    assert_eq!(
        swap,
        Operation::CompareSwap { remote: at, swap: 1, compare: 2, into: into.clone() }
    );
    let add = operation(&wqe(0x12, 0, &[raddr(), operands.clone(), eight]));
    assert_eq!(add, Operation::FetchAdd { remote: at, add: 1, into });
    let odd =
        parse_send(&wqe(0x12, 0, &[raddr(), operands, data()]), QpKind::Rc, LinkLayer::Ethernet)
            .unwrap_err();
    assert_eq!(odd.syndrome, Syndrome::LocalLength);
}

#[test]
fn inline_data_is_padded_after_its_length_word() {
    let mut segment = vec![0x80, 0, 0, 13];
    segment.extend(1..=13u8);
    segment.resize(32, 0);
    let want = Payload::Inline((1..=13).collect());
    let send = operation(&wqe(0x0a, 0, &[segment.clone()]));
    assert_eq!(send, Operation::Send { trailer: Trailer::None, data: want });
    // Behind inline data nothing but inline data may follow.
    let mixed =
        parse_send(&wqe(0x0a, 0, &[segment, data()]), QpKind::Rc, LinkLayer::Ethernet).unwrap_err();
    assert_eq!(mixed.syndrome, Syndrome::LocalLength);
}

#[test]
fn a_count_of_zero_is_two_gibibytes() {
    let Operation::Send { data, .. } = operation(&wqe(0x0a, 0, &[pointer(0, 1, 2)])) else {
        panic!("not a send")
    };
    assert_eq!(data.len(), 1 << 31);
}

#[test]
fn control_bits() {
    let mut bytes = wqe(0, 0, &[]);
    for (byte, fence, signaled, solicited) in [
        (0x00, Fence::None, false, false),
        (0x28, Fence::InitiatorSmall, true, false),
        (0x46, Fence::Fence, false, true),
        (0x8c, Fence::SmallAndFence, true, false),
        (0x68, Fence::Strong, true, false),
    ] {
        bytes[11] = byte;
        let wqe = parse_send(&bytes, QpKind::Rc, LinkLayer::Ethernet).unwrap();
        assert_eq!((wqe.fence, wqe.signaled, wqe.solicited), (fence, signaled, solicited));
    }
}

#[test]
fn datagrams_carry_an_address() {
    let mut av = vec![0; 48];
    av[..4].copy_from_slice(&0x8001_0000u32.to_be_bytes());
    av[8..12].copy_from_slice(&0x8000_0001u32.to_be_bytes());
    av[0x0c] = 6;
    av[0x0e..0x10].copy_from_slice(&[0xc0, 7]);
    av[0x14..0x1a].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    av[0x1a..0x1c].copy_from_slice(&[0x42, 64]);
    av[0x1c..0x20].copy_from_slice(&(1 << 30 | 3 << 20 | 0x77u32).to_be_bytes());
    av[0x2a..0x30].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 2]);
    let bytes = wqe(0x0a, 0, &[av.clone(), data()]);
    let wqe = parse_send(&bytes, QpKind::Gsi, LinkLayer::Ethernet).unwrap();
    let to = wqe.av.unwrap();
    assert_eq!((to.qpn, to.qkey), (1, 0x8001_0000));
    let Path::Roce(path) = to.path else { panic!("a path of RoCE") };
    assert_eq!((path.source_index, path.udp_sport, path.priority), (3, 0xc007, 3));
    assert_eq!((path.tclass, path.hop_limit, path.flow_label), (0x42, 64, 0x77));
    assert_eq!(path.dst, std::net::IpAddr::from([10, 0, 0, 2]));
    // The same bytes on an InfiniBand port: rate and service level, path bits, LID, GRH.
    av[0x0c..0x0e].copy_from_slice(&[0x26, 0x83]);
    let bytes = super::wqe::wqe(0x0a, 0, &[av.clone(), data()]);
    let to = parse_send(&bytes, QpKind::Ud, LinkLayer::InfiniBand).unwrap().av.unwrap();
    let Path::Ib(path) = to.path else { panic!("a path of InfiniBand") };
    assert_eq!((path.dlid, path.path_bits, path.sl), (0xc007, 3, 6));
    let global = path.global.unwrap();
    assert_eq!((global.source_index, global.tclass, global.hop_limit), (3, 0x42, 64));
    assert_eq!((global.flow_label, global.dgid[10..12].to_vec()), (0x77, vec![0xff, 0xff]));
    av[0x1c] = 0;
    let bytes = super::wqe::wqe(0x0a, 0, &[av.clone(), data()]);
    let to = parse_send(&bytes, QpKind::Ud, LinkLayer::InfiniBand).unwrap().av.unwrap();
    assert!(matches!(to.path, Path::Ib(IbPath { global: None, .. })));
    av[8] = 0;
    let short = super::wqe::wqe(0x0a, 0, &[av, data()]);
    assert_eq!(
        parse_send(&short, QpKind::Ud, LinkLayer::Ethernet).unwrap_err().syndrome,
        Syndrome::LocalQpOperation
    );
}

#[test]
fn each_service_has_its_operations() {
    let umr = wqe(0x25, 0, &[vec![0; 112]]);
    assert!(
        parse_send(&umr, QpKind::Rc, LinkLayer::Ethernet).is_ok()
            && parse_send(&umr, QpKind::RegUmr, LinkLayer::Ethernet).is_ok()
    );
    assert!(parse_send(&umr, QpKind::Ud, LinkLayer::Ethernet).is_err());
    let send = wqe(0x0a, 0, &[data()]);
    assert!(parse_send(&send, QpKind::RegUmr, LinkLayer::Ethernet).is_err());
    for opcode in [0x02, 0x0e, 0x14, 0x18, 0x23, 0x29, 0xff] {
        let bad =
            parse_send(&wqe(opcode, 0, &[data()]), QpKind::Rc, LinkLayer::Ethernet).unwrap_err();
        assert_eq!((bad.syndrome, bad.opcode), (Syndrome::LocalQpOperation, opcode));
    }
}

#[test]
fn receives_end_at_the_terminating_key() {
    let stride = [data(), pointer(0, 0x100, 0), data()].concat();
    assert_eq!(parse_recv(4, &stride).segments, [SEGMENT]);
    assert_eq!(parse_recv(4, &[data(), data()].concat()).segments, [SEGMENT, SEGMENT]);
    // Bit 31 of the count asks for padding, it is no length.
    let padded = pointer(0x8000_05f2, 1, 2);
    assert_eq!(parse_recv(4, &padded).segments[0].len, 0x5f2);
}

#[test]
fn block_counts() {
    for (ds, bbs) in [(0, 1), (1, 1), (4, 1), (5, 2), (12, 3), (63, 16)] {
        let head: [u8; 16] = control(0, 0, 0, ds, 0).try_into().unwrap();
        assert_eq!(Control::parse(&head).bbs(), bbs);
    }
}

proptest! {
    #[test]
    fn any_bytes_parse_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..1024)) {
        for kind in [QpKind::Rc, QpKind::Ud, QpKind::Gsi, QpKind::RegUmr] {
            let _ = parse_send(&bytes, kind, LinkLayer::Ethernet);
        }
        let _ = parse_recv(0, &bytes);
        let _ = Umr::parse(&bytes);
        let _ = super::super::ethernet::EthSegment::parse(&bytes);
        if let Some(headers) = super::super::ethernet::Headers::of(&bytes) {
            let _ = headers.match_set(&bytes);
            let _ = (headers.verdict(&bytes), headers.kinds(&bytes));
            headers.offload(&mut bytes.clone(), 0xff);
        }
    }

    #[test]
    fn known_opcodes_with_any_body(
        opcode in prop::sample::select(vec![0u8, 1, 8, 9, 0xa, 0xb, 0x10, 0x11, 0x12, 0x1b, 0x25]),
        body in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut bytes = control(opcode, 0, 1, 63, 0);
        bytes.extend(body);
        let _ = parse_send(&bytes, QpKind::Rc, LinkLayer::Ethernet);
        let _ = parse_send(&bytes, QpKind::Ud, LinkLayer::Ethernet);
    }
}
