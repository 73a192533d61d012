//! Single packets, most of them abusive, against a responder: the table of answers recorded
//! from Linux Soft-RoCE, with IBTA's answer where Soft-RoCE differs.
//!
//! Long because each row of the table is a test with a name of its own.
//!
//! Length: one test per rule of the responder.

use super::mock::*;
use crate::transport::host::*;
use crate::wire::frame::{AtomicEth, Packet, Reth};
use crate::wire::opcode::Opcode;

const ACK: Option<u8> = Some(0x1f);
const PSN: u32 = 200;

fn reth(p: &mut Packet, va: u64, rkey: u32, len: u32) {
    p.ext.reth = Some(Reth { va, rkey, len });
}

/// A responder, station 1, expecting PSN 200; one receive of 16 bytes at 0x1000.
fn responder() -> Peer {
    let mut peer = Peer::new(1);
    peer.post_recv(0x1000, 16);
    for (i, b) in peer.host.memory.iter_mut().enumerate() {
        *b = (i * 7 % 251) as u8;
    }
    peer
}

/// Sends one request and expects exactly one answer with this syndrome at PSN + `at`.
fn probe(opcode: Opcode, change: impl FnOnce(&mut Packet), at: u32, syndrome: u8) -> Peer {
    let mut peer = responder();
    let mut p = peer.incoming(opcode, PSN);
    change(&mut p);
    let answers = peer.deliver(&p);
    assert_eq!(brief(&answers), [(Opcode::Ack, PSN + at, Some(syndrome))], "{opcode:?}");
    let dies = matches!(syndrome, 0x61..=0x63);
    assert_eq!(peer.engine.state() == QpState::Err, dies, "{opcode:?}");
    assert_eq!(peer.host.errors.len(), usize::from(dies));
    peer
}

#[test]
fn write_with_a_wrong_key_index() {
    let p = probe(
        Opcode::WriteOnly,
        |p| {
            reth(p, VA, 0x9901, 4);
            p.payload = vec![1; 4]
        },
        0,
        0x62,
    );
    assert_eq!(p.host.events, [QpEvent::AccessError]);
    assert_eq!(p.recv_results(), [(0, Err(Syndrome::Flushed))]);
}

#[test]
fn write_with_a_wrong_key_byte() {
    probe(
        Opcode::WriteOnly,
        |p| {
            reth(p, VA, RKEY ^ 1, 4);
            p.payload = vec![1; 4]
        },
        0,
        0x62,
    );
}

#[test]
fn write_whose_length_is_not_its_payload() {
    let p = probe(
        Opcode::WriteOnly,
        |p| {
            reth(p, VA, RKEY, 8);
            p.payload = vec![1; 4]
        },
        0,
        0x61,
    );
    assert_eq!(p.host.events, [QpEvent::InvalidRequest]);
    assert_ne!(p.host.memory[..4], [1; 4]);
}

#[test]
fn write_beyond_the_mtu() {
    let f = |p: &mut Packet| {
        reth(p, VA, RKEY, 1028);
        p.payload = vec![1; 1028]
    };
    probe(Opcode::WriteOnly, f, 0, 0x61);
}

#[test]
fn short_first_packet() {
    let f = |p: &mut Packet| {
        reth(p, VA, RKEY, 2000);
        p.payload = vec![1; 512]
    };
    probe(Opcode::WriteFirst, f, 0, 0x61);
}

#[test]
fn first_packet_of_a_message_that_needs_only_one() {
    let f = |p: &mut Packet| {
        reth(p, VA, RKEY, 1024);
        p.payload = vec![1; 1024]
    };
    probe(Opcode::WriteFirst, f, 0, 0x61);
}

#[test]
fn empty_write_needs_no_key() {
    probe(Opcode::WriteOnly, |p| reth(p, 0, 0xdead, 0), 0, 0x1f);
}

#[test]
fn read_past_the_end() {
    probe(Opcode::ReadRequest, |p| reth(p, VA + (1 << 18) - 10, RKEY, 11), 0, 0x62);
}

#[test]
fn read_with_an_address_that_wraps() {
    probe(Opcode::ReadRequest, |p| reth(p, u64::MAX - 3, RKEY, 100), 0, 0x62);
}

#[test]
fn read_of_more_than_two_gibibytes() {
    probe(Opcode::ReadRequest, |p| reth(p, VA, RKEY, 0x8000_0001), 0, 0x61);
}

#[test]
fn read_request_with_a_payload() {
    let f = |p: &mut Packet| {
        reth(p, VA, RKEY, 8);
        p.payload = vec![0; 4]
    };
    probe(Opcode::ReadRequest, f, 0, 0x61);
}

#[test]
fn empty_read_needs_no_key() {
    let mut peer = responder();
    let mut p = peer.incoming(Opcode::ReadRequest, PSN);
    reth(&mut p, 0, 0xdead, 0);
    let answers = peer.deliver(&p);
    assert_eq!(brief(&answers), [(Opcode::ReadOnly, PSN, ACK)]);
    assert!(answers[0].payload.is_empty());
}

fn atomic(p: &mut Packet, va: u64, rkey: u32, swap_add: u64, compare: u64) {
    p.ext.atomic = Some(AtomicEth { va, rkey, swap_add, compare });
}

#[test]
fn atomic_without_the_right() {
    probe(Opcode::FetchAdd, |p| atomic(p, VA, NO_ATOMIC, 1, 0), 0, 0x62);
}

#[test]
fn atomic_not_aligned() {
    probe(Opcode::FetchAdd, |p| atomic(p, VA + 4, RKEY, 1, 0), 0, 0x61);
}

#[test]
fn middle_and_last_without_first() {
    for (op, len) in [
        (Opcode::SendMiddle, 1024),
        (Opcode::SendLast, 4),
        (Opcode::WriteMiddle, 1024),
        (Opcode::WriteLast, 4),
    ] {
        probe(op, |p| p.payload = vec![0; len], 0, 0x61);
    }
}

fn begin_write(peer: &mut Peer, len: u32) {
    let mut p = peer.incoming(Opcode::WriteFirst, PSN);
    reth(&mut p, VA, RKEY, len);
    p.payload = vec![0xaa; 1024];
    p.bth.ack_req = false;
    assert_eq!(peer.deliver(&p), []);
}

#[test]
fn send_inside_a_write() {
    let mut peer = responder();
    begin_write(&mut peer, 3000);
    let p = peer.incoming(Opcode::SendOnly, PSN + 1);
    assert_eq!(brief(&peer.deliver(&p)), [(Opcode::Ack, PSN + 1, Some(0x61))]);
    assert_eq!(peer.engine.state(), QpState::Err);
}

#[test]
fn read_inside_a_write() {
    let mut peer = responder();
    begin_write(&mut peer, 3000);
    let mut p = peer.incoming(Opcode::ReadRequest, PSN + 1);
    reth(&mut p, VA, RKEY, 8);
    assert_eq!(brief(&peer.deliver(&p)), [(Opcode::Ack, PSN + 1, Some(0x61))]);
}

#[test]
fn last_packet_that_brings_too_much_or_too_little() {
    for (op, len) in
        [(Opcode::WriteLast, 100), (Opcode::WriteLast, 977), (Opcode::WriteMiddle, 1024)]
    {
        let mut peer = responder();
        begin_write(&mut peer, 2000);
        let mut p = peer.incoming(op, PSN + 1);
        p.payload = vec![1; len];
        assert_eq!(brief(&peer.deliver(&p)), [(Opcode::Ack, PSN + 1, Some(0x61))], "{op:?} {len}");
    }
}

/// IBTA: 0x61 and a local length error. (Soft-RoCE answers 0x63.)
#[test]
fn send_longer_than_the_receive() {
    let p = probe(Opcode::SendOnly, |p| p.payload = vec![1; 32], 0, 0x61);
    assert_eq!(p.recv_results(), [(0, Err(Syndrome::LocalLength))]);
}

#[test]
fn empty_send() {
    let p = probe(Opcode::SendOnly, |_| {}, 0, 0x1f);
    assert_eq!(p.recv_results(), [(0, Ok(0))]);
}

#[test]
fn gaps_are_reported_once_until_closed() {
    let mut peer = responder();
    peer.post_recv(0x2000, 16);
    let gap = |peer: &mut Peer, psn| {
        let p = peer.incoming(Opcode::SendOnly, psn);
        brief(&peer.deliver(&p))
    };
    assert_eq!(gap(&mut peer, PSN + 5), [(Opcode::Ack, PSN, Some(0x60))]);
    assert_eq!(gap(&mut peer, PSN + 6), []);
    assert_eq!(gap(&mut peer, PSN), [(Opcode::Ack, PSN, ACK)]);
    assert_eq!(gap(&mut peer, PSN + 5), [(Opcode::Ack, PSN + 1, Some(0x60))]);
    assert_eq!(peer.engine.state(), QpState::Rts);
}

#[test]
fn duplicate_write_is_acknowledged_not_executed() {
    let mut peer = responder();
    let mut p = peer.incoming(Opcode::WriteOnly, PSN);
    reth(&mut p, VA, RKEY, 4);
    p.payload = vec![1; 4];
    peer.deliver(&p);
    let q = peer.incoming(Opcode::SendOnly, PSN + 1);
    peer.deliver(&q);
    p.payload = vec![2; 4];
    p.bth.ack_req = false;
    assert_eq!(brief(&peer.deliver(&p)), [(Opcode::Ack, PSN + 1, ACK)]);
    assert_eq!(peer.host.memory[..4], [1; 4]);
    assert_eq!(peer.recv_results().len(), 1);
}

/// The acknowledgement of a duplicate must not carry the PSN of a READ response.
#[test]
fn duplicate_send_before_a_read() {
    let mut peer = responder();
    let s = peer.incoming(Opcode::SendOnly, PSN);
    peer.deliver(&s);
    let mut r = peer.incoming(Opcode::ReadRequest, PSN + 1);
    reth(&mut r, VA, RKEY, 8);
    peer.deliver(&r);
    assert_eq!(brief(&peer.deliver(&s)), [(Opcode::Ack, PSN, ACK)]);
}

#[test]
fn duplicate_read_for_the_rest_of_it() {
    let mut peer = responder();
    let mut p = peer.incoming(Opcode::ReadRequest, PSN);
    reth(&mut p, VA + 8, RKEY, 4000);
    let whole = peer.deliver(&p);
    let ops: Vec<Opcode> = whole.iter().map(|p| p.bth.opcode).collect();
    use Opcode::{ReadFirst, ReadLast, ReadMiddle};
    assert_eq!(ops, [ReadFirst, ReadMiddle, ReadMiddle, ReadLast]);
    assert_eq!(peer.engine.receive_psn(), PSN + 4);
    let mut q = peer.incoming(Opcode::ReadRequest, PSN + 1);
    reth(&mut q, VA + 8 + 1024, RKEY, 2976);
    let rest = peer.deliver(&q);
    assert_eq!(rest.len(), 3);
    assert_eq!(rest[0].bth.psn, PSN + 1);
    for (a, b) in whole[1..].iter().zip(&rest) {
        assert_eq!(a.payload, b.payload);
    }
    assert_eq!(peer.engine.receive_psn(), PSN + 4);
}

#[test]
fn duplicate_read_that_does_not_fit_is_not_answered() {
    let mut peer = responder();
    let mut p = peer.incoming(Opcode::ReadRequest, PSN);
    reth(&mut p, VA, RKEY, 4000);
    peer.deliver(&p);
    for (psn, va, rkey, len) in [
        (PSN, VA, RKEY, 4001),
        (PSN, VA + 1, RKEY, 100),
        (PSN, VA, NO_ATOMIC, 4000),
        (PSN + 1, VA, RKEY, 4000),
        (PSN - 1, VA, RKEY, 4000),
    ] {
        let mut q = peer.incoming(Opcode::ReadRequest, psn);
        reth(&mut q, va, rkey, len);
        assert_eq!(peer.deliver(&q), []);
    }
    assert_eq!(peer.engine.state(), QpState::Rts);
}

#[test]
fn atomics_execute_once_and_their_results_are_repeated() {
    let mut peer = responder();
    peer.host.memory[64..72].copy_from_slice(&40u64.to_le_bytes());
    let mut p = peer.incoming(Opcode::FetchAdd, PSN);
    atomic(&mut p, VA + 64, RKEY, 2, 0);
    for _ in 0..3 {
        let answers = peer.deliver(&p);
        assert_eq!(brief(&answers), [(Opcode::AtomicAck, PSN, ACK)]);
        assert_eq!(answers[0].ext.atomic_ack, Some(40));
        assert_eq!(peer.host.memory[64..72], 42u64.to_le_bytes());
    }
    for (compare, old, new) in [(41, 42, 42u64), (42, 42, 7)] {
        let mut p = peer.incoming(Opcode::CompareSwap, peer.engine.receive_psn());
        atomic(&mut p, VA + 64, RKEY, 7, compare);
        assert_eq!(peer.deliver(&p)[0].ext.atomic_ack, Some(old));
        assert_eq!(peer.host.memory[64..72], new.to_le_bytes());
    }
}

#[test]
fn atomics_too_old_are_forgotten() {
    let mut peer = responder();
    for psn in PSN..PSN + 5 {
        let mut p = peer.incoming(Opcode::FetchAdd, psn);
        atomic(&mut p, VA, RKEY, 1, 0);
        assert_eq!(peer.deliver(&p).len(), 1);
    }
    let mut p = peer.incoming(Opcode::FetchAdd, PSN);
    atomic(&mut p, VA, RKEY, 1, 0);
    assert_eq!(peer.deliver(&p), [], "four resources remember four");
    p.bth.psn = PSN + 1;
    assert_eq!(peer.deliver(&p).len(), 1);
}

/// IBTA: after an RNR NAK what follows is dropped in silence. (Soft-RoCE adds NAK 0x60.)
#[test]
fn three_sends_one_receive() {
    let mut peer = responder();
    let sends: Vec<Packet> = (0..3).map(|i| peer.incoming(Opcode::SendOnly, PSN + i)).collect();
    let answers = peer.deliver_all(&sends);
    assert_eq!(brief(&answers), [(Opcode::Ack, PSN, ACK), (Opcode::Ack, PSN + 1, Some(0x21))]);
    peer.post_recv(0x2000, 16);
    peer.post_recv(0x3000, 16);
    assert_eq!(brief(&peer.deliver_all(&sends[1..])).len(), 2);
    assert_eq!(peer.recv_results(), [(0, Ok(0)), (1, Ok(0)), (2, Ok(0))]);
}

#[test]
fn packets_for_others_are_ignored() {
    let mut peer = responder();
    let good = peer.incoming(Opcode::SendOnly, PSN);
    let mut strange = good.clone();
    strange.net.src = [10, 0, 0, 77].into();
    assert_eq!(peer.deliver(&strange), []);
    let mut misled = good.clone();
    misled.net.dst = [10, 0, 0, 78].into();
    assert_eq!(peer.deliver(&misled), []);
    let mut datagram = peer.incoming(Opcode::UdSendOnly, PSN);
    datagram.ext.deth = Some(crate::wire::frame::Deth { qkey: 0x1111, src_qp: 9 });
    assert_eq!(peer.deliver(&datagram), []);
    let mut limited = good;
    limited.bth.pkey = 0x7fff;
    limited.net.udp_sport = 0x1111;
    assert_eq!(brief(&peer.deliver(&limited)), [(Opcode::Ack, PSN, ACK)]);
}

/// The message is acknowledged, then the QP fails: the sender did nothing the wire forbids.
#[test]
fn invalidation_of_an_ordinary_key() {
    let mut peer = responder();
    let mut p = peer.incoming(Opcode::SendOnlyInval, PSN);
    p.ext.ieth = Some(RKEY);
    assert_eq!(brief(&peer.deliver(&p)), [(Opcode::Ack, PSN, ACK)]);
    assert_eq!(peer.recv_results(), [(0, Err(Syndrome::RemoteInvalidRequest))]);
    assert_eq!(peer.engine.state(), QpState::Err);
}

#[test]
fn invalidation_of_a_window() {
    let mut peer = responder();
    let mut p = peer.incoming(Opcode::SendOnlyInval, PSN);
    p.ext.ieth = Some(NO_ATOMIC);
    p.payload = vec![5; 9];
    peer.deliver(&p);
    let got = peer.host.received[0].result.unwrap();
    assert_eq!((got.kind, got.byte_len), (RecvKind::SendInval(NO_ATOMIC), 9));
    assert!(!peer.host.keys.contains_key(&NO_ATOMIC));
}

#[test]
fn write_without_ack_request_is_placed_in_silence() {
    let mut peer = responder();
    let mut p = peer.incoming(Opcode::WriteOnly, PSN);
    reth(&mut p, VA + 3, RKEY, 5);
    p.payload = b"hello".to_vec();
    p.bth.ack_req = false;
    assert_eq!(peer.deliver(&p), []);
    assert_eq!(&peer.host.memory[3..8], b"hello");
}

#[test]
fn rights_of_the_qp_itself() {
    for op in [Opcode::WriteOnly, Opcode::ReadRequest, Opcode::FetchAdd] {
        let mut peer = Peer::with(1, |a| {
            (a.remote_read, a.remote_write, a.remote_atomic) = (false, false, false);
        });
        let mut p = peer.incoming(op, PSN);
        reth(&mut p, VA, RKEY, 0);
        if op == Opcode::FetchAdd {
            p.ext.reth = None;
            atomic(&mut p, VA, RKEY, 1, 0);
        }
        assert_eq!(brief(&peer.deliver(&p)), [(Opcode::Ack, PSN, Some(0x61))], "{op:?}");
    }
}

#[test]
fn no_resources_for_reads() {
    let mut peer = Peer::with(1, |a| a.max_dest_rd_atomic = 0);
    let mut p = peer.incoming(Opcode::ReadRequest, PSN);
    reth(&mut p, VA, RKEY, 8);
    assert_eq!(brief(&peer.deliver(&p)), [(Opcode::Ack, PSN, Some(0x61))]);
}

#[test]
fn write_with_immediate_takes_a_receive_at_its_end() {
    let mut peer = Peer::new(1);
    let mut first = peer.incoming(Opcode::WriteFirst, PSN);
    reth(&mut first, VA, RKEY, 1500);
    first.payload = vec![1; 1024];
    let mut last = peer.incoming(Opcode::WriteLastImm, PSN + 1);
    last.payload = vec![2; 476];
    last.ext.imm = Some(0xfeed);
    last.bth.solicited = true;
    assert_eq!(brief(&peer.deliver(&first)), [(Opcode::Ack, PSN, ACK)]);
    assert_eq!(brief(&peer.deliver(&last)), [(Opcode::Ack, PSN + 1, Some(0x21))]);
    peer.post_recv(0, 0);
    assert_eq!(brief(&peer.deliver(&last)), [(Opcode::Ack, PSN + 1, ACK)]);
    let got = peer.host.received[0].result.unwrap();
    assert_eq!((got.kind, got.byte_len, got.solicited), (RecvKind::WriteImm(0xfeed), 1500, true));
    assert_eq!(peer.host.memory[1499], 2);
}

#[test]
fn message_numbers_count_messages() {
    let mut peer = responder();
    begin_write(&mut peer, 2000);
    let gap = peer.incoming(Opcode::SendOnly, PSN + 9);
    assert_eq!(peer.deliver(&gap)[0].ext.aeth.unwrap().msn, 0);
    let mut last = peer.incoming(Opcode::WriteLast, PSN + 1);
    last.payload = vec![0; 976];
    assert_eq!(peer.deliver(&last)[0].ext.aeth.unwrap().msn, 1);
    let mut read = peer.incoming(Opcode::ReadRequest, PSN + 2);
    reth(&mut read, VA, RKEY, 3000);
    let answers = peer.deliver(&read);
    assert_eq!(answers[0].ext.aeth.unwrap().msn, 2);
    assert_eq!(answers[1].ext.aeth, None);
    assert_eq!(answers[2].ext.aeth.unwrap().msn, 2);
}

#[test]
fn first_packet_in_rtr_establishes() {
    let mut peer = Peer::with(1, |a| a.state = QpState::Rtr);
    peer.post_recv(0, 16);
    peer.post_recv(0, 16);
    for psn in [PSN, PSN + 1] {
        let p = peer.incoming(Opcode::SendOnly, psn);
        assert_eq!(peer.deliver(&p).len(), 1);
    }
    assert_eq!(peer.host.events, [QpEvent::CommunicationEstablished]);
}

#[test]
fn states_below_rtr_are_deaf() {
    for state in [QpState::Reset, QpState::Init, QpState::Err] {
        let mut peer = Peer::with(1, |a| a.state = state);
        let p = peer.incoming(Opcode::SendOnly, PSN);
        assert_eq!(peer.deliver(&p), []);
    }
}

#[test]
fn a_receive_list_that_is_no_good() {
    let mut peer = Peer::new(1);
    let bad = DataSegment { len: 64, lkey: BAD_LKEY, addr: 0 };
    peer.host.rq.push_back(Ok(RecvWqe { index: 0, segments: vec![bad], pool: None }));
    peer.post_recv(0, 64);
    let mut p = peer.incoming(Opcode::SendOnly, PSN);
    p.payload = vec![1; 4];
    assert_eq!(brief(&peer.deliver(&p)), [(Opcode::Ack, PSN, Some(0x63))]);
    assert_eq!(
        peer.recv_results(),
        [(0, Err(Syndrome::LocalProtection)), (0, Err(Syndrome::Flushed))]
    );
    let mut peer = Peer::new(1);
    peer.host.rq.push_back(Err((7, Syndrome::LocalQpOperation)));
    assert_eq!(brief(&peer.deliver(&p)), [(Opcode::Ack, PSN, Some(0x63))]);
    assert_eq!(peer.recv_results(), [(7, Err(Syndrome::LocalQpOperation))]);
}

#[test]
fn half_a_message_is_flushed_first() {
    let mut peer = Peer::new(1);
    peer.post_recv(0, 4096);
    peer.post_recv(0, 4096);
    let mut p = peer.incoming(Opcode::SendFirst, PSN);
    p.payload = vec![1; 1024];
    peer.deliver(&p);
    peer.engine.to_error(&mut peer.host);
    let flushed = Err(Syndrome::Flushed);
    assert_eq!(peer.recv_results(), [(0, flushed), (1, flushed)]);
    assert_eq!(peer.deliver(&p), [], "no answers in ERR");
    peer.post_recv(0, 1);
    peer.engine.on_receive_posted(&mut peer.host);
    assert_eq!(peer.recv_results()[2], (2, flushed));
    assert!(peer.host.errors.is_empty(), "the caller asked for it");
}

#[test]
fn a_shared_queue_is_not_flushed() {
    let mut peer = Peer::with(1, |a| a.srq = true);
    peer.post_recv(0, 4096);
    peer.post_recv(0, 4096);
    let mut p = peer.incoming(Opcode::SendFirst, PSN);
    p.payload = vec![1; 1024];
    peer.deliver(&p);
    peer.engine.to_error(&mut peer.host);
    assert_eq!(peer.recv_results(), [(0, Err(Syndrome::Flushed))]);
    assert_eq!(peer.host.rq.len(), 1);
    assert_eq!(peer.host.events, [QpEvent::LastWqeReached]);
}

/// A key that vanishes while a long READ is under way: what is left of it is refused.
#[test]
fn key_lost_in_the_middle_of_a_read() {
    let mut peer = Peer::with(1, |a| a.mtu = 256);
    let mut p = peer.incoming(Opcode::ReadRequest, PSN);
    reth(&mut p, VA, RKEY, 1 << 17);
    let burst = peer.deliver(&p);
    assert!(burst.len() < 512 && burst.iter().all(|p| p.payload.len() == 256));
    peer.host.keys.clear();
    peer.expire();
    let next = PSN + burst.len() as u32;
    assert_eq!(brief(&peer.take()), [(Opcode::Ack, next, Some(0x62))]);
    assert_eq!(peer.engine.state(), QpState::Err);
    assert_eq!(peer.host.events, [QpEvent::AccessError]);
}

#[test]
fn answers_to_a_flood_of_reads_stay_bounded() {
    let mut peer = Peer::with(1, |a| a.mtu = 256);
    let mut p = peer.incoming(Opcode::ReadRequest, PSN);
    reth(&mut p, VA, RKEY, 1 << 17);
    peer.deliver(&p);
    for _ in 0..50 {
        peer.deliver(&p);
    }
    let mut answers = Vec::new();
    while peer.engine.next_deadline().is_some() {
        peer.expire();
        answers.extend(peer.take());
        assert!(answers.len() <= 3 * 512);
    }
    assert_eq!(answers.last().unwrap().bth.opcode, Opcode::ReadLast);
}

/// An answer being given again does not use up what the peer may have open.
#[test]
fn a_replay_leaves_room_for_the_next_read() {
    let mut peer = Peer::with(1, |a| (a.mtu, a.max_dest_rd_atomic) = (256, 1));
    let mut p = peer.incoming(Opcode::ReadRequest, PSN);
    reth(&mut p, VA, RKEY, 300 * 256);
    peer.deliver(&p);
    while peer.engine.next_deadline().is_some() {
        peer.expire();
    }
    peer.take();
    peer.deliver(&p);
    assert!(peer.engine.next_deadline().is_some(), "the replay is under way");
    let mut q = peer.incoming(Opcode::ReadRequest, PSN + 300);
    reth(&mut q, VA, RKEY, 8);
    let mut rest = peer.deliver(&q);
    while peer.engine.next_deadline().is_some() {
        peer.expire();
        rest.extend(peer.take());
    }
    assert_eq!(brief(&rest).last(), Some(&(Opcode::ReadOnly, PSN + 300, ACK)));
    assert_eq!(peer.engine.state(), QpState::Rts);
}

/// More READs at once than this side has resources for is an invalid request.
#[test]
fn too_many_reads_at_once() {
    let mut peer = Peer::with(1, |a| (a.mtu, a.max_dest_rd_atomic) = (256, 1));
    let mut p = peer.incoming(Opcode::ReadRequest, PSN);
    reth(&mut p, VA, RKEY, 512 * 256);
    peer.deliver(&p);
    let mut q = peer.incoming(Opcode::ReadRequest, PSN + 512);
    reth(&mut q, VA, RKEY, 8);
    let mut answers = peer.deliver(&q);
    while peer.engine.next_deadline().is_some() {
        peer.expire();
        answers.extend(peer.take());
    }
    let last = answers.iter().rev().take(2).rev().cloned().collect::<Vec<_>>();
    let expected = [(Opcode::ReadLast, PSN + 511, ACK), (Opcode::Ack, PSN + 512, Some(0x61))];
    assert_eq!(brief(&last), expected, "the NAK does not overtake the data");
    assert_eq!(peer.engine.state(), QpState::Err);
}
