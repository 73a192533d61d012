//! Unreliable connections, where nobody answers, and XRC, where the request names the receive
//! queue.

use super::mock::{Peer, RKEY, local, read_into, remote, send_from};
use crate::transport::host::*;
use crate::wire::frame::Packet;
use crate::wire::opcode::{Opcode, Service};

fn unreliable(n: u8) -> Peer {
    Peer::with(n, |attr| {
        attr.kind = QpKind::Uc;
        attr.mtu = 256;
    })
}

fn send(len: u32) -> Operation {
    send_from(0, len)
}

fn opcodes(packets: &[Packet]) -> Vec<(Service, Opcode)> {
    packets.iter().map(|p| (p.bth.service, p.bth.opcode)).collect()
}

#[test]
fn a_send_is_done_when_it_has_left_and_nobody_answers() {
    let (mut a, mut b) = (unreliable(1), unreliable(2));
    a.host.memory[..600].fill(7);
    a.post(send(600));
    assert_eq!(a.send_results(), [(0, Ok(()))]);
    assert_eq!(a.engine.next_deadline(), None, "no timer runs");
    let packets = a.take();
    assert_eq!(
        opcodes(&packets),
        [
            (Service::Uc, Opcode::SendFirst),
            (Service::Uc, Opcode::SendMiddle),
            (Service::Uc, Opcode::SendLast)
        ]
    );
    assert!(packets.iter().all(|p| !p.bth.ack_req));
    b.post_recv(0x1000, 1024);
    assert_eq!(b.deliver_all(&packets), []);
    assert_eq!(b.recv_results(), [(0, Ok(600))]);
    assert_eq!(b.host.memory[0x1000..0x1258], [7; 600]);
}

#[test]
fn a_lost_packet_loses_its_message_and_the_receive_serves_the_next() {
    let (mut a, mut b) = (unreliable(1), unreliable(2));
    a.post(send(600));
    a.post(send(10));
    let packets = a.take();
    b.post_recv(0, 1024);
    for (at, packet) in packets.iter().enumerate() {
        if at != 1 {
            assert_eq!(b.deliver(packet), []);
        }
    }
    assert_eq!(b.recv_results(), [(0, Ok(10))]);
    assert_eq!(b.host.errors, []);
}

#[test]
fn a_message_without_a_receive_is_dropped() {
    let (mut a, mut b) = (unreliable(1), unreliable(2));
    a.post(send(10));
    a.post(send(20));
    let packets = a.take();
    assert_eq!(b.deliver(&packets[0]), []);
    b.post_recv(0, 64);
    b.deliver(&packets[1]);
    assert_eq!(b.recv_results(), [(0, Ok(20))]);
}

#[test]
fn a_receive_that_is_too_short_ends_the_receiver_only() {
    let (mut a, mut b) = (unreliable(1), unreliable(2));
    a.post(send(65));
    b.post_recv(0, 64);
    assert_eq!(b.deliver_all(&a.take()), []);
    assert_eq!(b.recv_results(), [(0, Err(Syndrome::LocalLength))]);
    assert_eq!(b.host.errors, [QpState::Err]);
}

#[test]
fn writes_arrive_and_a_wrong_key_is_only_dropped() {
    let (mut a, mut b) = (unreliable(1), unreliable(2));
    a.host.memory[..300].fill(9);
    let write = |rkey, imm| Operation::Write {
        remote: RemoteAddress { rkey, ..remote(0x2000) },
        imm,
        data: Payload::Segments(vec![local(0, 300)]),
    };
    a.post(write(0xbad, None));
    a.post(write(RKEY, Some(5)));
    b.post_recv(0, 0);
    assert_eq!(b.deliver_all(&a.take()), []);
    let got = b.host.received[0].result.unwrap();
    assert_eq!((got.kind, got.byte_len), (RecvKind::WriteImm(5), 300));
    assert_eq!(b.host.memory[0x2000..0x212c], [9; 300]);
    assert_eq!(b.host.errors, []);
}

#[test]
fn an_unsupported_operation_ends_the_send_queue_alone() {
    let mut a = unreliable(1);
    a.post(read_into(0, 8, 0));
    assert_eq!(a.send_results(), [(0, Err(Syndrome::LocalQpOperation))]);
    assert_eq!(a.host.errors, [QpState::Sqer]);
}

#[test]
fn packets_of_another_service_are_not_for_this_queue_pair() {
    let (mut a, mut b) = (Peer::new(1), unreliable(2));
    a.post(send(4));
    b.post_recv(0, 64);
    assert_eq!(b.deliver_all(&a.take()), []);
    assert_eq!(b.host.received, []);
}

/// The shared receive queue of the XRC tests.
const POOL: u32 = 0x77;

fn xrc() -> (Peer, Peer) {
    let initiator = Peer::with(1, |attr| attr.kind = QpKind::XrcInitiator);
    let mut target = Peer::with(2, |attr| attr.kind = QpKind::XrcTarget);
    target.host.pool = Some(POOL);
    (initiator, target)
}

fn post_to(peer: &mut Peer, pool: u32, operation: Operation) {
    peer.queue(operation, |wqe| wqe.xrc_srqn = Some(pool));
    peer.ring();
}

#[test]
fn an_xrc_request_names_its_receive_queue_and_is_acknowledged() {
    let (mut a, mut b) = xrc();
    post_to(&mut a, POOL, send(4));
    let packets = a.take();
    assert_eq!(opcodes(&packets), [(Service::Xrc, Opcode::SendOnly)]);
    assert_eq!(packets[0].ext.xrc_srqn, Some(POOL));
    b.host.rq.push_back(Ok(RecvWqe { index: 3, segments: vec![local(0, 64)], pool: Some(POOL) }));
    let answers = b.deliver_all(&packets);
    assert_eq!(opcodes(&answers), [(Service::Xrc, Opcode::Ack)]);
    assert_eq!(answers[0].ext.xrc_srqn, None, "answers name none");
    assert_eq!(b.host.received[0].pool, Some(POOL));
    a.deliver_all(&answers);
    assert_eq!(a.send_results(), [(0, Ok(()))]);
}

#[test]
fn an_xrc_read_and_a_foreign_receive_queue() {
    let (mut a, mut b) = xrc();
    b.host.memory[..8].copy_from_slice(b"eight by");
    post_to(&mut a, POOL, read_into(0x100, 8, 0));
    let answers = b.deliver_all(&a.take());
    assert_eq!(opcodes(&answers), [(Service::Xrc, Opcode::ReadOnly)]);
    a.deliver_all(&answers);
    assert_eq!(a.host.memory[0x100..0x108], *b"eight by");
    post_to(&mut a, POOL + 1, send(4));
    let answers = b.deliver_all(&a.take());
    assert_eq!(answers[0].ext.aeth.map(|aeth| aeth.syndrome), Some(0x62), "remote access");
    assert_eq!(b.host.errors, [QpState::Err]);
}
