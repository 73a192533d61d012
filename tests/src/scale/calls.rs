//! The measured calls, in the order in which a program would make them.
//!
//! A name of a case stands in the call of [`Meter::run`] that measures it. Between two measured
//! calls the devices do what is due, so that an `advance` finds one event, and which.

use std::time::Duration;

use dat_core::{
    CloseFlag, CompletionFlags, Ep, EpModify, Evd, EvdFlags, Event, Instant, LmrTriplet, MemPriv,
    PspFlag, Qos, RmrTriplet, SrqAttr,
};

use hca_mlx5::platform::Clock;

use super::crowd::{Crowd, DTOS, MEMORY, QUALIFIER, address, attr};
use super::meter::Meter;

const NONE: CompletionFlags = CompletionFlags::empty();
const LIMIT: Duration = Duration::from_secs(30);
/// Service points of the measured calls, which the crowd does not have.
const FREE_QUALIFIER: u64 = 5000;
const QKEY: u32 = 0x1234;
/// Event Dispatchers with a CNO, for an idle `advance` that looks through them.
pub const LISTENED: [(&str, usize); 2] = [("idle_16", 16), ("idle_157", 157)];

/// The active and the passive side.
const A: usize = 0;
const B: usize = 1;

/// Makes every call so many times.
///
/// # Panics
/// If a call is refused, or an event is not the expected one: then nothing was measured.
pub fn all(crowd: &mut Crowd, meter: &mut Meter, rounds: usize) {
    let kept = [A, B].map(|side| crowd.make(side, rounds)).map(Vec::into_iter);
    let [ours, theirs] = kept;
    for (ours, theirs) in ours.zip(theirs) {
        crowd.finish_work();
        idle(crowd, meter);
        reconnect(crowd, meter, [ours, theirs]);
        refused(crowd, meter, [ours, theirs]);
        early(crowd, meter, [ours, theirs]);
        broken(crowd, meter, [ours, theirs]);
        look_up(crowd, meter);
        endpoints(crowd, meter);
        dispatchers(crowd, meter);
        memory(crowd, meter);
        service_points(crowd, meter);
        shared(crowd, meter);
    }
}

/// Measures the idle `advance` of a side that looks through so many Event Dispatchers with a CNO.
///
/// # Panics
/// If a call is refused.
pub fn listened(crowd: &mut Crowd, meter: &mut Meter, rounds: usize) {
    let cno = crowd.ias[A].cno_create(None).unwrap();
    let mut listened = 0;
    for (name, count) in LISTENED {
        while listened < count {
            crowd.ias[A].evd_create_with_cno(1, Some(cno), EvdFlags::DTO).unwrap();
            listened += 1;
        }
        for _ in 0..rounds {
            crowd.finish_work();
            crowd.advance(meter, name, A);
        }
    }
}

impl Crowd {
    /// One measured `advance` of a side, after the devices have done what is due.
    fn advance(&mut self, meter: &mut Meter, case: &'static str, side: usize) {
        self.pass();
        let now = self.now();
        meter.run(case, || self.ias[side].advance(now));
    }

    /// One measured `evd_dequeue`.
    fn dequeue(&mut self, meter: &mut Meter, case: &'static str, side: usize, evd: Evd) -> Event {
        meter.run(case, || self.ias[side].evd_dequeue(evd)).unwrap()
    }

    /// The next event, without measure.
    fn event(&mut self, side: usize, evd: Evd) -> Event {
        self.wait(side, evd)
    }

    fn word(&self, side: usize) -> [LmrTriplet; 1] {
        let (addr, context, _) = self.of[side].memory;
        [LmrTriplet { addr, len: 8, context }]
    }

    fn far(&self, side: usize) -> RmrTriplet {
        let (addr, _, context) = self.of[side].memory;
        RmrTriplet { addr: addr + 4096, len: 4096, context }
    }

    fn reset(&mut self, eps: [Ep; 2]) {
        for (side, ep) in eps.into_iter().enumerate() {
            self.ias[side].ep_reset(ep).unwrap();
        }
    }

    /// Ends the connection, empties the queues of both sides, and resets both.
    fn part(&mut self, eps: [Ep; 2]) {
        let now = self.now();
        let _ = self.ias[A].ep_disconnect(now, eps[A], CloseFlag::Abrupt);
        self.finish_work();
        for side in [A, B] {
            let Self { ias, of, .. } = self;
            for evd in [of[side].dto, of[side].conn] {
                while ias[side].evd_dequeue(evd).is_ok() {}
            }
        }
        self.reset(eps);
        self.finish_work();
    }

    /// Asks for a connection. What the other side gets: nothing is measured.
    fn ask(&mut self, ep: Ep) -> dat_core::Cr {
        let now = self.now();
        let to = address(B);
        self.ias[A].ep_connect(now, ep, to, QUALIFIER, LIMIT, b"", Qos::BestEffort).unwrap();
        let cr = self.of[B].cr;
        match self.event(B, cr) {
            Event::ConnectionRequest { cr, .. } => cr,
            other => unreachable!("{other:?} instead of a request"),
        }
    }
}

/// `advance` of a side with nothing to do.
fn idle(crowd: &mut Crowd, meter: &mut Meter) {
    for side in [A, B] {
        crowd.advance(meter, "idle", side);
    }
    // Nothing of the model is counted: what this costs beside the way there and back is its.
    meter.run("model", || crowd.hosts[A].relax());
}

/// A connection made and ended, step by step.
fn reconnect(crowd: &mut Crowd, meter: &mut Meter, eps: [Ep; 2]) {
    let [ours, theirs] = eps;
    let now = crowd.now();
    let to = address(B);
    meter
        .run("ep_connect", || {
            crowd.ias[A].ep_connect(now, ours, to, QUALIFIER, LIMIT, b"", Qos::BestEffort)
        })
        .unwrap();
    crowd.advance(meter, "send_req", A);
    crowd.advance(meter, "req", B);
    let evd = crowd.of[B].cr;
    let Event::ConnectionRequest { cr, .. } = crowd.dequeue(meter, "request_event", B, evd) else {
        unreachable!("something other than a request");
    };
    let _ = meter.run("cr_query", || crowd.ias[B].cr_query(cr).map(|_| ()));
    let now = crowd.now();
    meter.run("cr_accept", || crowd.ias[B].cr_accept(now, cr, Some(theirs), b"")).unwrap();
    crowd.advance(meter, "send_rep", B);
    crowd.advance(meter, "rep", A);
    let evd = crowd.of[A].conn;
    assert_eq!(crowd.dequeue(meter, "established_event", A, evd), Event::Established(ours));
    crowd.advance(meter, "rtu", B);
    let evd = crowd.of[B].conn;
    assert_eq!(crowd.dequeue(meter, "established_event", B, evd), Event::Established(theirs));
    crowd.finish_work();
    notice(crowd, meter, eps);
    let now = crowd.now();
    meter
        .run("ep_disconnect", || crowd.ias[A].ep_disconnect(now, ours, CloseFlag::Abrupt))
        .unwrap();
    crowd.advance(meter, "send_dreq", A);
    crowd.advance(meter, "dreq", B);
    let evd = crowd.of[B].conn;
    assert_eq!(crowd.dequeue(meter, "disconnected_event", B, evd), Event::Disconnected(theirs));
    crowd.advance(meter, "drep", A);
    let evd = crowd.of[A].conn;
    assert_eq!(crowd.dequeue(meter, "disconnected_event", A, evd), Event::Disconnected(ours));
    for (side, ep) in eps.into_iter().enumerate() {
        meter.run("ep_reset", || crowd.ias[side].ep_reset(ep)).unwrap();
    }
    crowd.finish_work();
}

/// Completions that somebody waits for.
fn notice(crowd: &mut Crowd, meter: &mut Meter, [ours, theirs]: [Ep; 2]) {
    let (evd, own) = (crowd.of[B].dto, crowd.of[A].dto);
    let (word, piece, far) = (crowd.word(A), crowd.word(B), crowd.far(B));
    crowd.ias[B].ep_post_recv(theirs, &piece, 1, NONE).unwrap();
    let now = crowd.now();
    let mut wait = meter.run("evd_wait", || crowd.ias[B].evd_wait(now, evd, LIMIT, 1)).unwrap();
    assert!(crowd.ias[B].evd_waited(now, &mut wait).is_pending());
    meter.run("evd_arm", || crowd.ias[B].evd_arm(evd, false)).unwrap();
    let before = crowd.hosts[B].hca().stats().eqes;
    meter.run("ep_post_send", || crowd.ias[A].ep_post_send(ours, &word, 2, NONE)).unwrap();
    crowd.advance(meter, "completion_notice", B);
    assert_ne!(crowd.hosts[B].hca().stats().eqes, before, "the device announced no completion");
    let now = crowd.now();
    let waited = meter.run("evd_waited", || crowd.ias[B].evd_waited(now, &mut wait));
    assert!(matches!(waited, std::task::Poll::Ready(Ok(Event::Dto(_)))), "{waited:?}");
    crowd.ias[B].evd_wait_end(&mut wait);
    let _ = crowd.event(A, own);
    meter
        .run("ep_post_rdma_write", || crowd.ias[A].ep_post_rdma_write(ours, &word, 3, &far, NONE))
        .unwrap();
    crowd.pass();
    assert!(matches!(crowd.dequeue(meter, "completion", A, own), Event::Dto(_)));
    meter.run("ep_get_status", || crowd.ias[A].ep_get_status(ours)).unwrap();
    let piece = piece[0];
    let rmr = crowd.ias[B].rmr_create(crowd.of[B].pz).unwrap();
    let bound = meter.run("rmr_bind", || {
        crowd.ias[B].rmr_bind(rmr, &piece, MemPriv::REMOTE_WRITE, theirs, 4, NONE)
    });
    bound.unwrap();
    crowd.pass();
    let _ = crowd.event(B, evd);
    meter.run("rmr_free_bound", || crowd.ias[B].rmr_free(rmr)).unwrap();
    crowd.finish_work();
    while crowd.ias[B].evd_dequeue(evd).is_ok() {}
}

/// A connection that is not wanted.
fn refused(crowd: &mut Crowd, meter: &mut Meter, [ours, _]: [Ep; 2]) {
    let cr = crowd.ask(ours);
    let now = crowd.now();
    meter.run("cr_reject", || crowd.ias[B].cr_reject(now, cr, b"")).unwrap();
    crowd.advance(meter, "send_rej", B);
    crowd.advance(meter, "rej", A);
    let evd = crowd.of[A].conn;
    let _ = crowd.dequeue(meter, "rejected_event", A, evd);
    meter.run("ep_reset_rejected", || crowd.ias[A].ep_reset(ours)).unwrap();
    crowd.finish_work();
}

/// Data that comes with the message that makes the connection ready.
fn early(crowd: &mut Crowd, meter: &mut Meter, eps: [Ep; 2]) {
    let [ours, theirs] = eps;
    let (word, piece) = (crowd.word(A), crowd.word(B));
    crowd.ias[B].ep_post_recv(theirs, &piece, 1, NONE).unwrap();
    let cr = crowd.ask(ours);
    let now = crowd.now();
    crowd.ias[B].cr_accept(now, cr, Some(theirs), b"").unwrap();
    let evd = crowd.of[A].conn;
    for _ in 0..100 {
        crowd.pass();
        let now = crowd.now();
        let _ = crowd.ias[B].advance(now);
        crowd.pass();
        // The RTU leaves, and then the data.
        let now = crowd.now();
        let _ = crowd.ias[A].advance(now);
        if let Ok(event) = crowd.ias[A].evd_dequeue(evd) {
            assert_eq!(event, Event::Established(ours));
            break;
        }
    }
    crowd.ias[A].ep_post_send(ours, &word, 2, NONE).unwrap();
    crowd.advance(meter, "established", B);
    let evd = crowd.of[B].conn;
    assert_eq!(crowd.event(B, evd), Event::Established(theirs));
    let evd = crowd.of[A].dto;
    let _ = crowd.event(A, evd);
    crowd.part(eps);
}

/// A connection that a wrong key breaks.
fn broken(crowd: &mut Crowd, meter: &mut Meter, eps: [Ep; 2]) {
    let [ours, theirs] = eps;
    crowd.connect(&[ours], &[theirs]);
    crowd.finish_work();
    let (word, mut far) = (crowd.word(A), crowd.far(B));
    far.context ^= 0x55;
    crowd.ias[A].ep_post_rdma_write(ours, &word, 1, &far, NONE).unwrap();
    crowd.advance(meter, "qp_error", B);
    let evd = crowd.of[A].dto;
    let _ = crowd.event(A, evd);
    crowd.advance(meter, "trouble", A);
    crowd.part(eps);
}

/// A service point for datagrams is asked for.
fn look_up(crowd: &mut Crowd, meter: &mut Meter) {
    let eps = [A, B].map(|side| {
        let (ia, of) = (&mut crowd.ias[side], &crowd.of[side]);
        let datagrams = dat_core::EpAttr { max_message_size: 1024, max_request_iov: 1, ..attr(ia) };
        meter
            .run("ep_create_ud", || {
                ia.ep_create_ud(of.pz, of.dto, of.dto, Some(of.conn), Some(&datagrams), QKEY)
            })
            .unwrap()
    });
    let now = crowd.now();
    let to = address(B);
    crowd.ias[A].ep_connect(now, eps[A], to, QUALIFIER, LIMIT, b"", Qos::BestEffort).unwrap();
    crowd.advance(meter, "send_sidr_req", A);
    crowd.advance(meter, "sidr_req", B);
    let evd = crowd.of[B].cr;
    let Event::UdConnectionRequest { cr, .. } = crowd.event(B, evd) else {
        unreachable!("something other than a request");
    };
    let now = crowd.now();
    meter.run("cr_accept_ud", || crowd.ias[B].cr_accept(now, cr, Some(eps[B]), b"")).unwrap();
    crowd.advance(meter, "send_sidr_rep", B);
    crowd.advance(meter, "sidr_rep", A);
    let evd = crowd.of[A].conn;
    let Event::UdEstablished(..) = crowd.event(A, evd) else {
        unreachable!("something other than an answer");
    };
    for (side, ep) in eps.into_iter().enumerate() {
        let now = crowd.now();
        meter.run("ep_free_ud", || crowd.ias[side].ep_free(now, ep)).unwrap();
    }
    crowd.finish_work();
    for side in [A, B] {
        let Crowd { ias, of, .. } = crowd;
        while ias[side].evd_dequeue(of[side].conn).is_ok() {}
    }
}

/// Endpoints made, changed, asked and freed.
fn endpoints(crowd: &mut Crowd, meter: &mut Meter) {
    let now = crowd.now();
    let (ia, of) = (&mut crowd.ias[A], &crowd.of[A]);
    let attr = attr(ia);
    let (zone, dto, conn) = (Some(of.pz), Some(of.dto), Some(of.conn));
    let ep = meter.run("ep_create", || ia.ep_create(zone, dto, dto, conn, Some(&attr))).unwrap();
    meter.run("ep_query", || ia.ep_query(ep).map(|_| ())).unwrap();
    let fewer = dat_core::EpAttr { max_recv_dtos: DTOS / 2, ..attr };
    let change = EpModify { attr: Some(fewer), ..EpModify::default() };
    meter.run("ep_modify", || ia.ep_modify(ep, &change)).unwrap();
    meter.run("ep_set_watermark", || ia.ep_set_watermark(now, ep, Some(1), None)).unwrap();
    meter.run("ep_free", || ia.ep_free(now, ep)).unwrap();
    crowd.finish_work();
}

/// Event Dispatchers, CNOs and zones.
fn dispatchers(crowd: &mut Crowd, meter: &mut Meter) {
    let (now, ia) = (crowd.now(), &mut crowd.ias[A]);
    let evd = meter.run("evd_create", || ia.evd_create(1, EvdFlags::DTO)).unwrap();
    let cno = meter.run("cno_create", || ia.cno_create(None)).unwrap();
    meter.run("evd_modify_cno", || ia.evd_modify_cno(evd, Some(cno))).unwrap();
    meter.run("cno_query", || ia.cno_query(cno)).unwrap();
    let mut wait = meter.run("cno_wait", || ia.cno_wait(now, cno, LIMIT)).unwrap();
    let _ = meter.run("cno_waited", || ia.cno_waited(now, &mut wait));
    ia.cno_wait_end(&mut wait);
    meter.run("evd_query", || ia.evd_query(evd)).unwrap();
    meter.run("evd_resize", || ia.evd_resize(evd, 8)).unwrap();
    meter.run("evd_dequeue_empty", || ia.evd_dequeue(evd)).unwrap_err();
    ia.evd_modify_cno(evd, None).unwrap();
    meter.run("cno_free", || ia.cno_free(cno)).unwrap();
    meter.run("evd_free", || ia.evd_free(evd)).unwrap();
    let evd = ia.evd_create(8, EvdFlags::SOFTWARE).unwrap();
    meter.run("evd_post_se", || ia.evd_post_se(evd, 1)).unwrap();
    ia.evd_dequeue(evd).unwrap();
    ia.evd_free(evd).unwrap();
    let pz = meter.run("pz_create", || ia.pz_create()).unwrap();
    meter.run("pz_free", || ia.pz_free(pz)).unwrap();
}

/// Regions and windows.
fn memory(crowd: &mut Crowd, meter: &mut Meter) {
    let (ia, of) = (&mut crowd.ias[A], &crowd.of[A]);
    let region = dat_core::provider::Region { addr: of.memory.0, len: MEMORY as u64 };
    let made = meter.run("lmr_create", || ia.lmr_create(of.pz, region, MemPriv::ALL)).unwrap();
    meter.run("lmr_query", || ia.lmr_query(made.lmr)).unwrap();
    meter.run("lmr_free", || ia.lmr_free(made.lmr)).unwrap();
    let rmr = meter.run("rmr_create", || ia.rmr_create(of.pz)).unwrap();
    meter.run("rmr_query", || ia.rmr_query(rmr)).unwrap();
    meter.run("rmr_free", || ia.rmr_free(rmr)).unwrap();
}

/// Service points.
fn service_points(crowd: &mut Crowd, meter: &mut Meter) {
    let now = crowd.now();
    let (ia, of) = (&mut crowd.ias[A], &crowd.of[A]);
    let flag = PspFlag::Consumer;
    let psp = meter.run("psp_create", || ia.psp_create(FREE_QUALIFIER, of.cr, flag)).unwrap();
    meter.run("psp_query", || ia.psp_query(psp)).unwrap();
    meter.run("psp_free", || ia.psp_free(psp)).unwrap();
    let (psp, _) = meter.run("psp_create_any", || ia.psp_create_any(of.cr, flag)).unwrap();
    ia.psp_free(psp).unwrap();
    let rsp = meter.run("rsp_create", || ia.rsp_create(FREE_QUALIFIER, None, of.cr));
    if let Ok(rsp) = rsp {
        meter.run("rsp_free", || ia.rsp_free(now, rsp)).unwrap();
    }
}

/// A Shared Receive Queue that runs low.
fn shared(crowd: &mut Crowd, meter: &mut Meter) {
    let ours = crowd.make(A, 1)[0];
    let piece = crowd.word(B);
    let (ia, of) = (&mut crowd.ias[B], &crowd.of[B]);
    let asked = SrqAttr { max_recv_dtos: 2, max_recv_iov: 1, low_watermark: 0 };
    let srq = meter.run("srq_create", || ia.srq_create(of.pz, &asked)).unwrap();
    let (zone, dto, conn) = (Some(of.pz), Some(of.dto), Some(of.conn));
    let attr = attr(ia);
    // Receives of such a queue do not complete where others do.
    let own = ia.evd_create(16, EvdFlags::DTO).unwrap();
    let receives = Some(own);
    let theirs = meter
        .run("ep_create_with_srq", || ia.ep_create_with_srq(zone, receives, dto, conn, srq, &attr))
        .unwrap();
    for cookie in 0..2 {
        meter.run("srq_post_recv", || ia.srq_post_recv(srq, &piece, cookie)).unwrap();
    }
    meter.run("srq_set_lw", || ia.srq_set_lw(srq, 2)).unwrap();
    meter.run("srq_query", || ia.srq_query(srq)).unwrap();
    crowd.connect(&[ours], &[theirs]);
    crowd.finish_work();
    let word = crowd.word(A);
    crowd.ias[A].ep_post_send(ours, &word, 2, NONE).unwrap();
    crowd.advance(meter, "srq_limit", B);
    crowd.finish_work();
    for (side, ep) in [ours, theirs].into_iter().enumerate() {
        let now: Instant = crowd.now();
        meter.run("ep_free_connected", || crowd.ias[side].ep_free(now, ep)).unwrap();
        crowd.finish_work();
    }
    meter.run("srq_free", || crowd.ias[B].srq_free(srq)).unwrap();
    while crowd.ias[B].evd_dequeue(own).is_ok() {}
    crowd.ias[B].evd_free(own).unwrap();
    for side in [A, B] {
        let Crowd { ias, of, .. } = crowd;
        for evd in [of[side].dto, of[side].conn] {
            while ias[side].evd_dequeue(evd).is_ok() {}
        }
    }
}
