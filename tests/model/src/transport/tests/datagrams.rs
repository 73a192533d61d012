//! UD and QP1.

use std::net::IpAddr;

use super::mock::*;
use crate::transport::host::*;
use crate::transport::packet::Layers;
use crate::wire::frame::Network;
use crate::wire::opcode::Opcode;

fn station(n: u8) -> Peer {
    Peer::with(n, |a| a.kind = QpKind::Ud)
}

fn network(source: &DatagramSource) -> Network {
    match source.layers {
        Layers::Roce(net) => net,
        Layers::Ib { .. } => panic!("of RoCE"),
    }
}

fn datagram(peer: &mut Peer, operation: Operation, change: impl FnOnce(&mut Datagram)) -> u16 {
    let mut av = Datagram { path: peer.attr.path, qpn: peer.attr.remote_qpn, qkey: 0x1111 };
    change(&mut av);
    let index = peer.queue(operation, |w| (w.av, w.solicited) = (Some(av), true));
    peer.ring();
    index
}

#[test]
fn a_datagram_arrives_behind_its_header() {
    let (mut a, mut b) = (station(1), station(2));
    let op = Operation::Send { trailer: Trailer::Imm(0xabc), data: Payload::Inline(vec![7; 5]) };
    datagram(&mut a, op, |_| {});
    assert_eq!(a.send_results(), [(0, Ok(()))]);
    b.post_recv(0x100, 64);
    let frame = a.host.frames[0].clone();
    assert_eq!(b.deliver_all(&a.take()), []);
    let got = b.host.received[0].result.unwrap();
    assert_eq!((got.kind, got.byte_len, got.solicited), (RecvKind::SendImm(0xabc), 45, true));
    let source = got.source.unwrap();
    assert_eq!((source.qpn, source.pkey), (a.attr.qpn, 0xffff));
    let net = network(&source);
    assert_eq!((net.smac, net.vlan, net.layer3()), (addr(1).mac, None, Layer3::Ipv4));
    assert_eq!(b.host.memory[0x100..0x114], [0; 20]);
    assert_eq!(b.host.memory[0x114..0x128], frame[14..34]);
    assert_eq!(b.host.memory[0x128..0x12d], [7; 5]);
    assert_eq!(b.host.memory[0x12d], 0);
}

#[test]
fn ipv6_and_vlan() {
    let six = |n: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
    let (mut a, mut b) = (station(1), station(2));
    a.host.address = RoceAddress { ip: six(1), vlan: Some(5), ..addr(1) };
    b.host.address = RoceAddress { ip: six(2), vlan: Some(5), ..addr(2) };
    datagram(&mut a, send(&[9]), |av| {
        let path = roce(&av.path);
        let new = RocePath { dst: six(2), priority: 3, tclass: 0x6a, flow_label: 0x12345, ..path };
        av.path = Path::Roce(new);
    });
    b.post_recv(0, 41);
    let frame = a.host.frames[0].clone();
    assert_eq!(frame[12..16], [0x81, 0x00, 0x60, 0x05]);
    b.deliver_all(&a.take());
    let got = b.host.received[0].result.unwrap();
    let net = network(&got.source.unwrap());
    assert_eq!((net.vlan, net.layer3()), (Some(0x6005), Layer3::Ipv6));
    assert_eq!(b.host.memory[..40], frame[18..58]);
}

#[test]
fn qp1_is_number_one_on_the_wire() {
    let mut a = Peer::with(1, |a| (a.kind, a.qkey) = (QpKind::Gsi, 0x8001_0000));
    for _ in 0..2 {
        datagram(&mut a, send(&[0; 256]), |av| (av.qpn, av.qkey) = (1, 0x8001_0000));
    }
    assert_eq!(a.host.frames[0].len(), 322);
    let p = a.take();
    assert_eq!((p[0].bth.dest_qp, p[0].ext.deth.unwrap().src_qp), (1, 1));
    assert_eq!(p[0].ext.deth.unwrap().qkey, 0x8001_0000);
    assert_eq!(p[1].bth.psn, p[0].bth.psn + 1);
}

#[test]
fn a_privileged_key_in_the_request_means_that_of_the_qp() {
    let mut a = station(1);
    datagram(&mut a, send(&[1]), |av| av.qkey = 0x8000_0000);
    assert_eq!(a.take()[0].ext.deth.unwrap().qkey, a.attr.qkey);
}

#[test]
fn a_datagram_that_cannot_be_received_is_dropped() {
    let (mut a, mut b) = (station(1), station(2));
    datagram(&mut a, send(&[1; 8]), |_| {});
    let p = a.take();
    assert_eq!(b.deliver_all(&p), [], "no receive");
    b.post_recv(0, 47);
    b.deliver_all(&p);
    assert_eq!(b.recv_results(), [], "receive one byte too short");
    let mut small = p[0].clone();
    small.payload.truncate(7);
    b.deliver(&small);
    assert_eq!(b.recv_results(), [(0, Ok(47))], "it serves the next datagram");
    b.post_recv(0, 100);
    let mut key = p[0].clone();
    key.ext.deth.as_mut().unwrap().qkey = 0x2222;
    b.deliver(&key);
    let rc = b.incoming(Opcode::SendOnly, 100);
    b.deliver(&rc);
    assert_eq!(b.recv_results().len(), 1);
    assert_eq!(b.engine.state(), QpState::Rts);
}

#[test]
fn a_send_error_stops_the_send_queue_only() {
    let cases: [(Operation, Syndrome); 4] = [
        (send(&[0; 1025]), Syndrome::LocalLength),
        (write_from(0, 4, 0), Syndrome::LocalQpOperation),
        (umr(), Syndrome::LocalQpOperation),
        (
            Operation::Send { trailer: Trailer::Invalidate(1), data: Payload::Inline(vec![]) },
            Syndrome::LocalQpOperation,
        ),
    ];
    for (op, syndrome) in cases {
        let (mut a, mut b) = (station(1), station(2));
        a.post_recv(0, 100);
        datagram(&mut a, op, |_| {});
        datagram(&mut a, send(&[1]), |_| {});
        assert_eq!(a.send_results(), [(0, Err(syndrome)), (1, Err(Syndrome::Flushed))]);
        assert_eq!(a.host.errors, [QpState::Sqer]);
        datagram(&mut b, send(&[1]), |_| {});
        a.deliver_all(&b.take());
        assert_eq!(a.recv_results(), [(0, Ok(41))]);
        a.engine.configure(&a.attr.clone());
        datagram(&mut a, send(&[1]), |_| {});
        assert_eq!(a.send_results()[2], (2, Ok(())), "SQER to RTS lets it go on");
    }
}

fn umr() -> Operation {
    Operation::Umr(UmrWqe { mkey: 1, fence: 0, segments: Vec::new() })
}

#[test]
fn a_receive_error_is_an_error_of_the_qp() {
    let (mut a, mut b) = (station(1), station(2));
    datagram(&mut a, send(&[1]), |_| {});
    let bad = DataSegment { len: 64, lkey: BAD_LKEY, addr: 0 };
    b.host.rq.push_back(Ok(RecvWqe { index: 4, segments: vec![bad], pool: None }));
    b.post_recv(0, 9);
    b.deliver_all(&a.take());
    assert_eq!(
        b.recv_results(),
        [(4, Err(Syndrome::LocalProtection)), (0, Err(Syndrome::Flushed))]
    );
    assert_eq!(b.host.errors, [QpState::Err]);
}
