//! A requester, station 1 at PSN 100, against scripted answers.
//!
//! Long because each rule has a short test of its own and all share the same few answers.
//!
//! Length: one test per rule of the requester.

use super::mock::*;
use crate::transport::host::*;
use crate::wire::frame::{Aeth, Packet};
use crate::wire::opcode::Opcode;

const PSN: u32 = 100;
const OK: Result<(), Syndrome> = Ok(());

fn answer(peer: &Peer, psn: u32, syndrome: u8) -> Packet {
    let mut p = peer.incoming(Opcode::Ack, psn);
    p.ext.aeth = Some(Aeth { syndrome, msn: 0 });
    p
}

fn ack(peer: &mut Peer, psn: u32, syndrome: u8) -> Vec<Packet> {
    let p = answer(peer, psn, syndrome);
    peer.deliver(&p)
}

fn read_data(peer: &Peer, opcode: Opcode, psn: u32, len: usize) -> Packet {
    let mut p = peer.incoming(opcode, psn);
    if opcode != Opcode::ReadMiddle {
        p.ext.aeth = Some(Aeth { syndrome: 0x1f, msn: 0 });
    }
    p.payload = vec![psn as u8; len];
    p
}

fn psns(packets: &[Packet]) -> Vec<u32> {
    packets.iter().map(|p| p.bth.psn).collect()
}

fn flushed(indices: &[u16]) -> Vec<(u16, Result<(), Syndrome>)> {
    indices.iter().map(|i| (*i, Err(Syndrome::Flushed))).collect()
}

#[test]
fn messages_are_cut_at_the_mtu() {
    let mut peer = Peer::new(1);
    peer.host.memory[5..2505].fill(9);
    let op = Operation::Send {
        trailer: Trailer::Imm(7),
        data: Payload::Segments(vec![local(5, 1000), local(1005, 1500)]),
    };
    peer.queue(op, |w| w.solicited = true);
    peer.ring();
    let p = peer.take();
    use Opcode::{SendFirst, SendLastImm, SendMiddle};
    let ops: Vec<_> = p.iter().map(|p| (p.bth.opcode, p.payload.len(), p.bth.solicited)).collect();
    assert_eq!(
        ops,
        [(SendFirst, 1024, false), (SendMiddle, 1024, false), (SendLastImm, 452, true)]
    );
    assert!(p.iter().all(|p| p.payload.iter().all(|b| *b == 9)));
    assert_eq!(psns(&p), [PSN, PSN + 1, PSN + 2]);
    assert_eq!(p[2].ext.imm, Some(7));
    assert_eq!(p.iter().map(|p| p.bth.ack_req).collect::<Vec<_>>(), [false, false, true]);
    let write = Operation::Write { remote: remote(0), imm: Some(1), data: Payload::Inline(vec![]) };
    peer.post(write);
    let p = peer.take();
    assert_eq!((p[0].bth.opcode, p[0].ext.reth.unwrap().len), (Opcode::WriteOnlyImm, 0));
}

#[test]
fn one_ack_stands_for_all_before_it() {
    let mut peer = Peer::new(1);
    for n in 0..3 {
        peer.queue(send(&[n]), |w| w.signaled = n != 1);
    }
    peer.ring();
    ack(&mut peer, PSN + 2, 0x1f);
    assert_eq!(peer.send_results(), [(0, OK), (2, OK)]);
    assert_eq!(peer.engine.next_deadline(), None);
}

#[test]
fn answers_to_what_was_never_sent_are_ignored() {
    let mut peer = Peer::new(1);
    peer.post(send(&[1]));
    for (psn, syndrome) in [(PSN + 1, 0x1f), (PSN - 1, 0x1f), (PSN + 9, 0x62), (PSN - 1, 0x60)] {
        ack(&mut peer, psn, syndrome);
    }
    let p = read_data(&peer, Opcode::ReadOnly, PSN, 4);
    peer.deliver(&p);
    // A reserved syndrome type and a reserved NAK code.
    ack(&mut peer, PSN, 0x45);
    ack(&mut peer, PSN, 0x70);
    assert_eq!(peer.send_results(), []);
    assert_eq!(peer.engine.state(), QpState::Rts);
    ack(&mut peer, PSN, 0x1f);
    assert_eq!(peer.send_results(), [(0, OK)]);
}

#[test]
fn sequence_nak_goes_back() {
    let mut peer = Peer::new(1);
    peer.queue(send_from(0, 3000), |_| {});
    peer.queue(send_from(0, 2000), |_| {});
    peer.ring();
    assert_eq!(psns(&peer.take()), [100, 101, 102, 103, 104]);
    assert_eq!(psns(&ack(&mut peer, 101, 0x60)), [101, 102, 103, 104]);
    assert_eq!(psns(&ack(&mut peer, 101, 0x60)), [0; 0], "a doubled NAK says nothing new");
    assert_eq!(psns(&ack(&mut peer, 103, 0x60)), [103, 104]);
    assert_eq!(peer.send_results(), [(0, OK)]);
    ack(&mut peer, 104, 0x1f);
    assert_eq!(peer.send_results(), [(0, OK), (1, OK)]);
}

/// An acknowledgement of the first transmission that comes after going back.
#[test]
fn late_ack_spares_what_it_covers() {
    let mut peer = Peer::with(1, |a| a.window = 4);
    peer.post(send_from(0, 8 * 1024));
    assert_eq!(psns(&peer.take()), [100, 101, 102, 103]);
    peer.expire();
    assert_eq!(psns(&peer.take()), [100, 101, 102, 103]);
    assert_eq!(psns(&ack(&mut peer, 102, 0x1f)), [104, 105, 106]);
    assert_eq!(psns(&ack(&mut peer, 106, 0x1f)), [107]);
    ack(&mut peer, 107, 0x1f);
    assert_eq!(peer.send_results(), [(0, OK)]);
}

#[test]
fn fatal_naks_have_their_syndromes_and_flush_in_order() {
    for (code, syndrome) in [
        (0x61, Syndrome::RemoteInvalidRequest),
        (0x62, Syndrome::RemoteAccess),
        (0x63, Syndrome::RemoteOperation),
    ] {
        let mut peer = Peer::new(1);
        for n in 0..3 {
            peer.queue(send(&[n]), |w| w.signaled = false);
        }
        peer.ring();
        peer.queue(send(&[9]), |w| w.bbs = 3);
        peer.queue(send(&[9]), |_| {});
        peer.post_recv(0, 8);
        ack(&mut peer, PSN + 1, code);
        let mut expected = vec![(1, Err(syndrome))];
        expected.extend(flushed(&[2, 3, 6]));
        assert_eq!(peer.send_results(), expected, "the first had arrived, unsignalled");
        assert_eq!(peer.recv_results(), [(0, Err(Syndrome::Flushed))]);
        assert_eq!(peer.host.errors, [QpState::Err]);
        assert_eq!(peer.engine.next_deadline(), None);
        let late = peer.post(send(&[1]));
        assert_eq!(peer.send_results().last(), Some(&(late, Err(Syndrome::Flushed))));
        assert_eq!(ack(&mut peer, PSN + 2, 0x1f), [], "late answers are dropped");
    }
}

#[test]
fn retries_are_counted_and_seven_is_seven() {
    for retry_count in [0, 1, 7] {
        let mut peer = Peer::with(1, |a| a.retry_count = retry_count);
        peer.post(send(&[1]));
        for round in 0..=retry_count {
            assert_eq!(peer.take().len(), 1);
            assert_eq!(peer.send_results(), []);
            assert_eq!(
                peer.engine.next_deadline(),
                Some((u64::from(round) + 1) * 4096 * (1 << 14))
            );
            peer.expire();
        }
        assert_eq!(peer.send_results(), [(0, Err(Syndrome::TransportRetryExceeded))]);
        assert_eq!(peer.take(), []);
    }
}

#[test]
fn progress_restores_the_retries() {
    let mut peer = Peer::with(1, |a| a.retry_count = 1);
    peer.post(send_from(0, 4000));
    for psn in PSN..PSN + 3 {
        peer.expire();
        ack(&mut peer, psn, 0x1f);
    }
    peer.expire();
    ack(&mut peer, PSN + 3, 0x1f);
    assert_eq!(peer.send_results(), [(0, OK)]);
}

#[test]
fn timeout_zero_never_expires() {
    let mut peer = Peer::with(1, |a| a.ack_timeout = 0);
    peer.post(send(&[1]));
    assert_eq!(peer.engine.next_deadline(), None);
}

#[test]
fn receiver_not_ready() {
    let mut peer = Peer::with(1, |a| a.rnr_retry = 2);
    peer.queue(send(&[1]), |_| {});
    peer.queue(send(&[2]), |_| {});
    peer.ring();
    peer.take();
    for _ in 0..2 {
        assert_eq!(ack(&mut peer, PSN, 0x20 | 5), []);
        assert_eq!(ack(&mut peer, PSN, 0x60), [], "the wait wins over the sequence NAK");
        assert_eq!(ack(&mut peer, PSN, 0x20 | 5), [], "the same NAK again");
        peer.post(Operation::Nop);
        assert_eq!(peer.engine.next_deadline(), Some(peer.host.now + 60_000));
        peer.engine.on_timer(&mut peer.host);
        assert_eq!(peer.take(), [], "not before its time");
        peer.expire();
        assert_eq!(psns(&peer.take()), [PSN, PSN + 1]);
    }
    ack(&mut peer, PSN, 0x20 | 5);
    assert_eq!(peer.send_results()[0], (0, Err(Syndrome::RnrRetryExceeded)));
    assert_eq!(peer.send_results()[1..], flushed(&[1, 2, 3]));
}

#[test]
fn rnr_retry_seven_is_endless() {
    let mut peer = Peer::new(1);
    peer.post(send(&[1]));
    for _ in 0..100 {
        ack(&mut peer, PSN, 0x21);
        peer.expire();
    }
    ack(&mut peer, PSN, 0x1f);
    assert_eq!(peer.send_results(), [(0, OK)]);
}

#[test]
fn read_collects_its_responses() {
    let mut peer = Peer::new(1);
    peer.post(read_into(64, 2500, 7));
    let p = peer.take();
    let reth = p[0].ext.reth.unwrap();
    assert_eq!((reth.va, reth.rkey, reth.len), (VA + 7, RKEY, 2500));
    peer.post(send(&[1]));
    assert_eq!(psns(&peer.take()), [PSN + 3], "a READ takes the PSNs of its responses");
    for (op, i, len) in
        [(Opcode::ReadFirst, 0, 1024), (Opcode::ReadMiddle, 1, 1024), (Opcode::ReadLast, 2, 452)]
    {
        assert_eq!(peer.send_results(), []);
        let p = read_data(&peer, op, PSN + i, len);
        peer.deliver(&p);
    }
    assert_eq!(peer.send_results(), [(0, OK)]);
    assert_eq!(peer.host.sent[0].byte_len, 2500);
    assert_eq!(peer.host.memory[64 + 2499], 102);
    assert_eq!(peer.host.memory[64 + 2500], 0);
}

#[test]
fn a_lost_response_is_asked_for_by_suffix() {
    let mut peer = Peer::new(1);
    peer.post(read_into(0, 4000, 0));
    peer.take();
    let p = read_data(&peer, Opcode::ReadFirst, PSN, 1024);
    peer.deliver(&p);
    let p = read_data(&peer, Opcode::ReadMiddle, PSN + 2, 1024);
    let again = peer.deliver(&p);
    let reth = again[0].ext.reth.unwrap();
    assert_eq!((again[0].bth.psn, reth.va, reth.len), (PSN + 1, VA + 1024, 2976));
    let p = read_data(&peer, Opcode::ReadLast, PSN + 3, 928);
    assert_eq!(peer.deliver(&p), [], "one loss, one request");
    // The replay may begin with "first" or "middle".
    for (op, i, len) in
        [(Opcode::ReadFirst, 1, 1024), (Opcode::ReadMiddle, 2, 1024), (Opcode::ReadLast, 3, 928)]
    {
        let p = read_data(&peer, op, PSN + i, len);
        peer.deliver(&p);
        peer.deliver(&p);
    }
    assert_eq!(peer.send_results(), [(0, OK)]);
}

#[test]
fn an_ack_beyond_an_open_read_implies_its_loss() {
    let mut peer = Peer::new(1);
    peer.queue(send(&[1]), |_| {});
    peer.queue(read_into(0, 8, 0), |_| {});
    peer.queue(send(&[1]), |_| {});
    peer.ring();
    peer.take();
    assert_eq!(psns(&ack(&mut peer, PSN + 2, 0x1f)), [PSN + 1, PSN + 2]);
    assert_eq!(peer.send_results(), [(0, OK)]);
    let p = read_data(&peer, Opcode::ReadOnly, PSN + 1, 8);
    peer.deliver(&p);
    ack(&mut peer, PSN + 2, 0x1f);
    assert_eq!(peer.send_results(), [(0, OK), (1, OK), (2, OK)]);
}

#[test]
fn responses_that_make_no_sense() {
    for (op, len) in [
        (Opcode::ReadOnly, 1024),
        (Opcode::ReadFirst, 1020),
        (Opcode::ReadLast, 1024),
        (Opcode::AtomicAck, 0),
    ] {
        let mut peer = Peer::new(1);
        peer.post(read_into(0, 2000, 0));
        let mut p = read_data(&peer, op, PSN, len);
        p.ext.atomic_ack = (op == Opcode::AtomicAck).then_some(1);
        peer.deliver(&p);
        assert_eq!(peer.send_results(), [(0, Err(Syndrome::BadResponse))], "{op:?}");
    }
}

#[test]
fn reads_wait_for_the_initiator_depth() {
    let mut peer = Peer::with(1, |a| a.max_rd_atomic = 2);
    for n in 0..3 {
        peer.queue(read_into(n * 8, 8, 0), |_| {});
    }
    peer.queue(send(&[1]), |_| {});
    peer.ring();
    assert_eq!(psns(&peer.take()), [PSN, PSN + 1]);
    let p = read_data(&peer, Opcode::ReadOnly, PSN, 8);
    assert_eq!(psns(&peer.deliver(&p)), [PSN + 2, PSN + 3]);
    let mut none = Peer::with(1, |a| a.max_rd_atomic = 0);
    none.post(read_into(0, 8, 0));
    assert_eq!(none.send_results(), [(0, Err(Syndrome::LocalQpOperation))]);
}

#[test]
fn atomic_results_come_in_either_byte_order() {
    for little in [false, true] {
        let mut peer = Peer::with(1, |a| a.atomic_little_endian = little);
        peer.post(fetch_add(16, 0, 5));
        let request = peer.take();
        assert_eq!(request[0].ext.atomic.unwrap().swap_add, 5);
        let mut p = peer.incoming(Opcode::AtomicAck, PSN);
        p.ext.aeth = Some(Aeth { syndrome: 0x1f, msn: 1 });
        p.ext.atomic_ack = Some(0x0102);
        peer.deliver(&p);
        assert_eq!(peer.send_results(), [(0, OK)]);
        let at = if little { 16 } else { 23 };
        assert_eq!(peer.host.memory[at], 2);
    }
}

#[test]
fn the_window_closes_with_an_ack_request() {
    let mut peer = Peer::with(1, |a| (a.window, a.mtu) = (8, 256));
    peer.post(send_from(0, 256 * 20));
    let p = peer.take();
    assert_eq!(p.len(), 8);
    assert_eq!(p.iter().filter(|p| p.bth.ack_req).count(), 1);
    assert!(p[7].bth.ack_req);
    assert_eq!(ack(&mut peer, PSN + 7, 0x1f).len(), 8);
    // Sixteen packets were a burst: the port lets the rest go a little later.
    assert_eq!(ack(&mut peer, PSN + 15, 0x1f).len(), 0);
    peer.expire();
    assert_eq!(peer.take().len(), 4);
}

#[test]
fn psns_wrap() {
    let mut peer = Peer::with(1, |a| a.sq_psn = 0xff_fffe);
    peer.queue(send_from(0, 3000), |_| {});
    peer.queue(read_into(0, 2000, 0), |_| {});
    peer.queue(send(&[1]), |_| {});
    peer.ring();
    assert_eq!(psns(&peer.take()), [0xff_fffe, 0xff_ffff, 0, 1, 3]);
    ack(&mut peer, 0, 0x1f);
    assert_eq!(peer.send_results(), [(0, OK)]);
    for (op, psn, len) in [(Opcode::ReadFirst, 1, 1024), (Opcode::ReadLast, 2, 976)] {
        let p = read_data(&peer, op, psn, len);
        peer.deliver(&p);
    }
    ack(&mut peer, 3, 0x1f);
    assert_eq!(peer.send_results(), [(0, OK), (1, OK), (2, OK)]);
}

fn umr(mkey: u32) -> Operation {
    Operation::Umr(UmrWqe { mkey, fence: 0, segments: Vec::new() })
}

#[test]
fn key_edits_run_in_order_and_late_only_if_allowed() {
    for (lazy, fence, expected) in [
        (false, Fence::None, ["umr 0x1", "SendOnly"]),
        (true, Fence::None, ["SendOnly", "umr 0x1"]),
        (true, Fence::InitiatorSmall, ["umr 0x1", "SendOnly"]),
        (true, Fence::SmallAndFence, ["umr 0x1", "SendOnly"]),
        (true, Fence::Strong, ["umr 0x1", "SendOnly"]),
    ] {
        let mut peer = Peer::with(1, |a| a.lazy_umr = lazy);
        peer.queue(umr(1), |w| w.bbs = 3);
        peer.queue(send(&[1]), |w| w.fence = fence);
        peer.ring();
        assert_eq!(peer.host.log, expected);
        ack(&mut peer, PSN, 0x1f);
        assert_eq!(peer.send_results(), [(0, OK), (3, OK)]);
    }
}

#[test]
fn fences_hold_back() {
    for (fence, waits_for_read, waits_for_send) in [
        (Fence::None, false, false),
        (Fence::InitiatorSmall, false, false),
        (Fence::Fence, true, false),
        (Fence::SmallAndFence, true, false),
        (Fence::Strong, true, true),
    ] {
        for (op, waits) in [(read_into(0, 8, 0), waits_for_read), (send(&[1]), waits_for_send)] {
            let mut peer = Peer::new(1);
            peer.queue(op, |_| {});
            peer.queue(send(&[2]), |w| w.fence = fence);
            peer.ring();
            assert_eq!(peer.take().len(), if waits { 1 } else { 2 }, "{fence:?}");
        }
    }
    let mut peer = Peer::new(1);
    peer.queue(send(&[1]), |_| {});
    peer.queue(Operation::LocalInvalidate(5), |_| {});
    peer.ring();
    assert_eq!(peer.host.log, ["SendOnly"]);
    ack(&mut peer, PSN, 0x1f);
    assert_eq!(peer.host.log, ["SendOnly", "invalidate 0x5"]);
    assert_eq!(peer.send_results(), [(0, OK), (1, OK)]);
}

#[test]
fn local_failures_wait_for_what_is_before_them() {
    let bad = DataSegment { len: 4, lkey: BAD_LKEY, addr: 0 };
    let bad = Operation::Send { trailer: Trailer::None, data: Payload::Segments(vec![bad]) };
    let mut peer = Peer::new(1);
    peer.queue(send(&[1]), |_| {});
    peer.queue(bad, |w| w.signaled = false);
    peer.queue(send(&[2]), |_| {});
    peer.ring();
    assert_eq!(peer.take().len(), 1);
    assert_eq!(peer.send_results(), []);
    ack(&mut peer, PSN, 0x1f);
    let expected = [(0, OK), (1, Err(Syndrome::LocalProtection)), (2, Err(Syndrome::Flushed))];
    assert_eq!(peer.send_results(), expected);
}

#[test]
fn failing_bind_and_broken_entries() {
    let mut peer = Peer::new(1);
    peer.host.umr_result = Err(Syndrome::MwBind);
    peer.post(umr(1));
    assert_eq!(peer.send_results(), [(0, Err(Syndrome::MwBind))]);
    assert_eq!(peer.engine.state(), QpState::Err);

    let mut peer = Peer::new(1);
    let bad = BadWqe { syndrome: Syndrome::LocalQpOperation, bbs: 2, opcode: 0x77 };
    peer.host.sq.insert(0, Err(bad));
    peer.host.sq_tail = 2;
    peer.post(send(&[1]));
    let expected = [(0, Err(Syndrome::LocalQpOperation)), (2, Err(Syndrome::Flushed))];
    assert_eq!(peer.send_results(), expected);
    assert_eq!(peer.host.sent[0].opcode, 0x77);
    assert_eq!(peer.take(), []);
}

#[test]
fn messages_above_the_limit_and_atomics_without_room() {
    let mut peer = Peer::with(1, |a| a.log_msg_max = 10);
    peer.post(send_from(0, 1025));
    assert_eq!(peer.send_results(), [(0, Err(Syndrome::LocalLength))]);
    let mut peer = Peer::new(1);
    let into = vec![local(0, 4)];
    peer.post(Operation::FetchAdd { remote: remote(0), add: 1, into });
    assert_eq!(peer.send_results(), [(0, Err(Syndrome::LocalLength))]);
}

#[test]
fn the_key_queue_of_the_driver_never_sends() {
    let mut peer = Peer::with(1, |a| a.kind = QpKind::RegUmr);
    peer.post(umr(3));
    assert_eq!(peer.send_results(), [(0, OK)]);
    peer.post(send(&[1]));
    assert_eq!(peer.send_results()[1], (1, Err(Syndrome::LocalQpOperation)));
    assert_eq!(peer.take(), []);
}

#[test]
fn nothing_is_sent_before_rts_and_reset_forgets() {
    for state in [QpState::Reset, QpState::Init, QpState::Rtr] {
        let mut peer = Peer::with(1, |a| a.state = state);
        peer.post(send(&[1]));
        assert_eq!((peer.take(), peer.send_results()), (vec![], vec![]));
        let attr = QpAttr { state: QpState::Rts, ..peer.attr };
        peer.engine.configure(&attr);
        peer.ring();
        assert_eq!(psns(&peer.take()), [PSN]);
        peer.engine.reset();
        assert_eq!(peer.engine.next_deadline(), None);
        assert_eq!(peer.engine.send_index(), 0);
        assert_eq!(peer.send_results(), []);
    }
}

#[test]
fn configured_error_flushes_at_the_next_chance() {
    let mut peer = Peer::new(1);
    peer.post(send(&[1]));
    let attr = QpAttr { state: QpState::Err, ..peer.attr };
    peer.engine.configure(&attr);
    peer.expire();
    assert_eq!(peer.send_results(), flushed(&[0]));
    assert_eq!(peer.engine.next_deadline(), None);
}

#[test]
fn a_vanished_source_address_ends_in_retries() {
    let lost = RocePath { source_index: 9, ..RocePath::default() };
    let mut peer = Peer::with(1, |a| a.path = Path::Roce(lost));
    peer.post(send(&[1]));
    for _ in 0..8 {
        peer.expire();
    }
    assert_eq!(peer.send_results(), [(0, Err(Syndrome::TransportRetryExceeded))]);
}

/// While waiting for the receiver, the requester has gone back; an acknowledgement that covers
/// part of what would go out again spares it.
#[test]
fn an_ack_during_the_wait_spares_what_it_covers() {
    let mut peer = Peer::new(1);
    peer.post(send_from(0, 4096));
    peer.take();
    ack(&mut peer, PSN, 0x21);
    assert_eq!(ack(&mut peer, PSN + 1, 0x1f), []);
    peer.expire();
    assert_eq!(psns(&peer.take()), [PSN + 2, PSN + 3]);
}

#[test]
fn progress_restores_the_rnr_retries() {
    let mut peer = Peer::with(1, |a| a.rnr_retry = 1);
    for n in 0..3 {
        peer.queue(send(&[n]), |_| {});
    }
    peer.ring();
    for psn in PSN..PSN + 3 {
        ack(&mut peer, psn, 0x21);
        peer.expire();
    }
    ack(&mut peer, PSN + 2, 0x1f);
    assert_eq!(peer.send_results(), [(0, OK), (1, OK), (2, OK)]);
}

/// Two READs of 2^23 packets each: together they would leave the peer unable to tell old from new.
#[test]
fn no_more_than_half_of_all_psns_in_flight() {
    let mut peer = Peer::with(1, |a| a.mtu = 256);
    peer.queue(read_into(0, 1 << 31, 0), |_| {});
    peer.queue(read_into(0, 1 << 31, 0), |_| {});
    peer.queue(send(&[1]), |_| {});
    peer.ring();
    assert_eq!(psns(&peer.take()), [PSN]);
    let p = read_data(&peer, Opcode::ReadFirst, PSN, 256);
    assert_eq!(psns(&peer.deliver(&p)), [0; 0]);
    assert_eq!(peer.send_results(), []);
}

/// 2ERR straight from RESET: whatever is posted afterwards is flushed.
#[test]
fn from_reset_to_error() {
    let mut peer = Peer::with(1, |a| a.state = QpState::Reset);
    peer.engine.reset();
    let attr = QpAttr { state: QpState::Err, ..peer.attr };
    peer.engine.configure(&attr);
    peer.engine.to_error(&mut peer.host);
    peer.post(send(&[1]));
    peer.post_recv(0, 1);
    peer.engine.on_receive_posted(&mut peer.host);
    assert_eq!(peer.send_results(), flushed(&[0]));
    assert_eq!(peer.recv_results(), [(0, Err(Syndrome::Flushed))]);
}

/// Two QPs of one device talk through the same frames as any others.
#[test]
fn both_ends_in_one_device() {
    let mut peer = Peer::with(1, |a| {
        let own = RocePath { dst: addr(1).ip, dmac: addr(1).mac, ..roce(&a.path) };
        a.path = Path::Roce(own);
        (a.remote_qpn, a.rq_psn) = (a.qpn, a.sq_psn);
    });
    peer.post_recv(0x100, 4);
    peer.post(send(b"loop"));
    let out = peer.take();
    let answers = peer.deliver_all(&out);
    assert_eq!(peer.deliver_all(&answers), []);
    assert_eq!(peer.send_results(), [(0, OK)]);
    assert_eq!(peer.host.memory[0x100..0x104], *b"loop");
}
