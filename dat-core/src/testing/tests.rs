use super::*;
use crate::provider::*;
use crate::types::time::Instant;
use core::task::Poll;

const RIGHTS: Access = Access::all();

struct Side<'f> {
    hca: LoopHca<'f>,
    pd: Pd,
    cq: Cq,
    cqe: LoopCq<'f>,
    qp: NewQp<LoopSq<'f>, LoopRq<'f>>,
    mr: Mr,
    base: u64,
}

fn side(fabric: &Fabric, port: usize) -> Side<'_> {
    let mut hca = LoopHca::new(fabric, port);
    let addr = core::net::IpAddr::from([10, 0, 0, 1 + port as u8]);
    let net = Net::new(addr, 24);
    hca.set_net(&net, Instant::ZERO).unwrap();
    let pd = hca.pd_create().unwrap();
    let (cq, cqe) = hca.cq_create(64).unwrap();
    let qp = hca
        .qp_create(&QpInit {
            service: Service::Connected,
            pd,
            send_cq: cq,
            recv_cq: cq,
            requests: 16,
            receives: 16,
            request_segments: 4,
            receive_segments: 4,
            binds: true,
            index: 70 + port as u32,
            shared: None,
        })
        .unwrap();
    let region = fabric.region(port);
    let mr = hca.mr_create(pd, region, RIGHTS).unwrap();
    Side { hca, pd, cq, cqe, qp, mr, base: region.addr }
}

fn connect(a: &mut Side<'_>, b: &Side<'_>, far: u8) {
    a.hca.qp_modify(a.qp.qp, &QpStep::Init { access: RIGHTS }).unwrap();
    let remote = core::net::IpAddr::from([10, 0, 0, far]);
    let Poll::Ready(Ok(path)) = a.hca.resolve(remote, Instant::ZERO) else { panic!("no path") };
    a.hca
        .qp_modify(
            a.qp.qp,
            &QpStep::Rtr {
                path,
                remote_qpn: b.qp.qp.number,
                rq_psn: 0,
                mtu: Mtu::B1024,
                responder_resources: 1,
                min_rnr_timer: 1,
            },
        )
        .unwrap();
    let rts = QpStep::Rts {
        sq_psn: 0,
        initiator_depth: 1,
        ack_timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
    };
    a.hca.qp_modify(a.qp.qp, &rts).unwrap();
}

fn pair(fabric: &Fabric) -> (Side<'_>, Side<'_>) {
    let (mut a, mut b) = (side(fabric, 0), side(fabric, 1));
    connect(&mut a, &b, 2);
    connect(&mut b, &a, 1);
    (a, b)
}

fn seg(side: &Side<'_>, at: u64, len: u32) -> [Segment; 1] {
    [Segment { addr: side.base + at, len, lkey: side.mr.lkey }]
}

#[test]
fn a_send_waits_for_its_receive() {
    let fabric = Fabric::new();
    let (mut a, mut b) = pair(&fabric);
    fabric.write(a.base, b"hello");
    let token = a.qp.sq.post(WorkRequest::Send, &seg(&a, 0, 5), PostFlags::SIGNALED);
    assert_eq!(a.cqe.poll(), None);
    b.qp.rq.recv(&seg(&b, 100, 64));
    let done = a.cqe.poll().unwrap();
    assert_eq!((done.index, done.token, done.status), (70, token, Status::Success));
    let got = b.cqe.poll().unwrap();
    assert_eq!((got.index, got.len, got.direction), (71, 5, Direction::Recv));
    let mut bytes = [0; 5];
    assert!(fabric.read(b.base + 100, &mut bytes));
    assert_eq!(&bytes, b"hello");
}

#[test]
fn write_and_read_move_bytes_and_unsignaled_ones_are_silent() {
    let fabric = Fabric::new();
    let (mut a, b) = pair(&fabric);
    fabric.write(a.base, b"abcd");
    let far = RmrTriplet { addr: b.base + 8, len: u32::MAX, context: b.mr.rkey };
    a.qp.sq.post(WorkRequest::Write(&far), &seg(&a, 0, 4), PostFlags::empty());
    assert_eq!(a.cqe.poll(), None);
    a.qp.sq.post(WorkRequest::Read(&far), &seg(&a, 16, 4), PostFlags::SIGNALED);
    assert_eq!(a.cqe.poll().unwrap().len, 4);
    let mut bytes = [0; 4];
    fabric.read(a.base + 16, &mut bytes);
    assert_eq!(&bytes, b"abcd");
}

#[test]
fn an_access_outside_the_region_breaks_both_sides_and_flushes_in_order() {
    let fabric = Fabric::new();
    let (mut a, mut b) = pair(&fabric);
    b.qp.rq.recv(&seg(&b, 0, 8));
    b.qp.rq.recv(&seg(&b, 8, 8));
    fabric.hold(true);
    let far = RmrTriplet { addr: b.base + MEMORY as u64 - 2, len: u32::MAX, context: b.mr.rkey };
    let bad = a.qp.sq.post(WorkRequest::Write(&far), &seg(&a, 0, 4), PostFlags::SIGNALED);
    let flushed = a.qp.sq.post(WorkRequest::Send, &seg(&a, 0, 1), PostFlags::empty());
    fabric.hold(false);
    let first = a.cqe.poll().unwrap();
    assert_eq!((first.token, first.status), (bad, Status::RemoteAccess));
    let second = a.cqe.poll().unwrap();
    assert_eq!((second.token, second.status), (flushed, Status::Flushed));
    for token in 0..2 {
        let done = b.cqe.poll().unwrap();
        assert_eq!((done.token, done.status), (token, Status::Flushed));
    }
    assert!(matches!(b.hca.notice(), Some(Notice::QpError(..))));
}

#[test]
fn a_window_opens_only_its_range_and_its_newest_key() {
    let fabric = Fabric::new();
    let (mut a, mut b) = pair(&fabric);
    let mw = b.hca.mw_create(b.pd).unwrap();
    let mut bind = Bind {
        old_rkey: mw.rkey,
        new_rkey: mw.rkey & !0xff | 0x77,
        lkey: b.mr.lkey,
        addr: b.base + 64,
        start: b.base + 64,
        len: 16,
        access: Access::REMOTE_WRITE,
        ..Bind::default()
    };
    b.qp.sq.post(WorkRequest::Bind(&bind), &[], PostFlags::SIGNALED);
    assert_eq!(b.cqe.poll().unwrap().status, Status::Success);
    let far = RmrTriplet { addr: b.base + 64, len: 16, context: bind.new_rkey };
    a.qp.sq.post(WorkRequest::Write(&far), &seg(&a, 0, 16), PostFlags::SIGNALED);
    assert_eq!(a.cqe.poll().unwrap().status, Status::Success);
    bind.old_rkey = bind.new_rkey;
    bind.new_rkey = mw.rkey & !0xff | 0x78;
    b.qp.sq.post(WorkRequest::Bind(&bind), &[], PostFlags::SIGNALED);
    a.qp.sq.post(WorkRequest::Write(&far), &seg(&a, 0, 16), PostFlags::SIGNALED);
    assert_eq!(a.cqe.poll().unwrap().status, Status::RemoteAccess);
}

#[test]
fn deferred_requests_start_at_the_doorbell() {
    let fabric = Fabric::new();
    let (mut a, b) = pair(&fabric);
    let far = RmrTriplet { addr: b.base, len: u32::MAX, context: b.mr.rkey };
    a.qp.sq.post(WorkRequest::Write(&far), &seg(&a, 0, 1), PostFlags::SIGNALED | PostFlags::DEFER);
    a.qp.sq.post(WorkRequest::Write(&far), &seg(&a, 0, 1), PostFlags::SIGNALED | PostFlags::DEFER);
    assert_eq!(a.cqe.poll(), None);
    a.qp.sq.ring();
    assert!(a.cqe.poll().is_some() && a.cqe.poll().is_some());
}

#[test]
fn objects_in_use_are_not_destroyed_and_all_come_back() {
    let fabric = Fabric::new();
    let mut a = side(&fabric, 0);
    assert_eq!(a.hca.pd_destroy(a.pd).unwrap_err().kind, FaultKind::BadState);
    a.hca.qp_destroy(a.qp.qp, a.qp.sq, a.qp.rq).unwrap();
    a.hca.cq_destroy(a.cq, a.cqe).unwrap();
    a.hca.mr_destroy(a.mr).unwrap();
    assert!(a.hca.mr_destroy(a.mr).is_err());
    a.hca.pd_destroy(a.pd).unwrap();
    assert_eq!(fabric.alive(0), (0, 0, 0, 0));
}

#[test]
fn the_nth_control_call_fails_when_asked_to() {
    let fabric = Fabric::new();
    let mut hca = LoopHca::new(&fabric, 0);
    fabric.fail_nth(Some(1));
    assert!(hca.pd_create().is_ok());
    assert_eq!(hca.pd_create().unwrap_err().kind, FaultKind::Resources);
    assert!(hca.pd_create().is_ok());
}

#[test]
fn datagrams_follow_the_filter() {
    let fabric = Fabric::new();
    let (mut a, mut b) = pair(&fabric);
    let to = core::net::IpAddr::from([10, 0, 0, 2]);
    let Poll::Ready(Ok(path)) = a.hca.resolve(to, Instant::ZERO) else { panic!() };
    fabric.filter(|mad| match mad[0] {
        0 => Verdict::Lose,
        1 => Verdict::Deliver,
        _ => Verdict::Duplicate,
    });
    for first in 0..3 {
        let mut mad = [0; 256];
        mad[0] = first;
        a.hca.mad_send(&path, &mad).unwrap();
    }
    let got: heapless::Vec<u8, 8> =
        core::iter::from_fn(|| b.hca.mad_recv()).map(|m| m.mad[0]).collect();
    assert_eq!(got, [1, 2, 2]);
}
