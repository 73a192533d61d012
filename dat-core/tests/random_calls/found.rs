//! Findings of the random calls, each by itself and in few steps.

use std::time::Duration;

use dat_core::provider::{Completion, Cq, Direction, Extra, Notice, Region, Status};
use dat_core::testing::Fabric;
use dat_core::*;

use crate::model::LoopIa;
use crate::world::{addr, open};

const NOW: Instant = Instant::from_nanos(1_000_000_000);

struct Side {
    ia: LoopIa,
    pz: Pz,
    evd: Evd,
    ep: Ep,
}

struct Two {
    fabric: &'static Fabric,
    sides: [Side; 2],
}

impl Two {
    /// Two adapters with an Endpoint each; the second listens.
    fn new(flag: PspFlag) -> Self {
        let fabric: &'static Fabric = Box::leak(Box::new(Fabric::new()));
        let sides = [0, 1].map(|side| {
            let mut ia = open(fabric, side, 77 + side as u64);
            let pz = ia.pz_create().expect("a zone");
            let all = EvdFlags::DEFAULT & !EvdFlags::ASYNC;
            let evd = ia.evd_create(128, all).expect("an EVD");
            let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None).expect("an EP");
            Side { ia, pz, evd, ep }
        });
        let mut two = Self { fabric, sides };
        let evd = two.sides[1].evd;
        two.sides[1].ia.psp_create(7000, evd, flag).expect("a PSP");
        two
    }

    fn run_until_idle(&mut self) {
        while self.sides.iter_mut().map(|s| s.ia.advance(NOW).work).fold(false, |a, b| a | b) {}
    }

    fn drain(&mut self, side: usize) -> Vec<Event> {
        let s = &mut self.sides[side];
        std::iter::from_fn(|| s.ia.evd_dequeue(s.evd).ok()).collect()
    }

    /// The first asks the second, and what it gets is the request.
    fn ask(&mut self) -> Cr {
        let s = &mut self.sides[0];
        let (ep, wait) = (s.ep, Duration::from_secs(5));
        s.ia.ep_connect(NOW, ep, addr(1), 7000, wait, b"", Qos::BestEffort).expect("a start");
        self.run_until_idle();
        match self.drain(1)[..] {
            [Event::ConnectionRequest { cr, .. }] => cr,
            ref other => panic!("{other:?}"),
        }
    }

    fn connect(&mut self) {
        let cr = self.ask();
        let ep = self.sides[1].ep;
        self.sides[1].ia.cr_accept(NOW, cr, Some(ep), b"").expect("an acceptance");
        self.run_until_idle();
        for side in 0..2 {
            assert_eq!(self.drain(side), [Event::Established(self.sides[side].ep)]);
        }
    }
}

#[test]
fn a_bind_that_succeeds_in_silence_lets_go_of_its_rmr() {
    let mut two = Two::new(PspFlag::Consumer);
    two.connect();
    let region = two.fabric.region(0);
    let Side { ia, pz, ep, .. } = &mut two.sides[0];
    let lmr = ia.lmr_create(*pz, region, MemPriv::ALL).expect("an LMR");
    let rmr = ia.rmr_create(*pz).expect("an RMR");
    let range = LmrTriplet { addr: region.addr, len: 64, context: lmr.lmr_context };
    let silent = CompletionFlags::SUPPRESS;
    ia.rmr_bind(rmr, &range, MemPriv::REMOTE, *ep, 1, silent).expect("a bind");
    let nowhere = RmrTriplet::default();
    ia.ep_post_rdma_write(*ep, &[], 2, &nowhere, CompletionFlags::empty()).expect("a write");
    assert_eq!(two.drain(0).len(), 1);
    let Side { ia, pz, ep, .. } = &mut two.sides[0];
    ia.rmr_free(rmr).expect("a free RMR");
    ia.lmr_free(lmr.lmr).expect("a free LMR");
    ia.ep_free(NOW, *ep).expect("a free EP");
    ia.pz_free(*pz).expect("a free PZ");
}

#[test]
fn a_request_is_not_rejected_while_the_posting_half_of_its_endpoint_is_out() {
    let mut two = Two::new(PspFlag::Provider);
    let cr = two.ask();
    let fabric = two.fabric;
    let Side { ia, pz, evd, .. } = &mut two.sides[1];
    let (before, ep) = (fabric.alive(1), ia.cr_query(cr).expect("the request").local_ep);
    let ep = ep.expect("an EP of its own");
    let given = Some(*evd);
    let change = EpModify {
        pz: Some(*pz),
        recv_evd: given,
        request_evd: given,
        connect_evd: given,
        attr: None,
    };
    ia.ep_modify(ep, &change).expect("a configured EP");
    let poster = ia.ep_take_poster(ep).expect("the poster");
    let refusal = ia.cr_reject(NOW, cr, b"").expect_err("a refusal");
    assert_eq!(refusal.ret().ty(), DatType::InvalidState);
    assert!(ia.cr_query(cr).is_ok() && ia.ep_query(ep).is_ok());
    ia.ep_return_poster(poster).expect("the poster is back");
    ia.cr_reject(NOW, cr, b"").expect("a rejection");
    assert_eq!(fabric.alive(1), before);
    assert!(ia.ep_query(ep).is_err());
}

#[test]
fn events_from_before_a_reset_do_not_touch_the_next_connection() {
    let mut two = Two::new(PspFlag::Consumer);
    two.connect();
    let fabric = two.fabric;
    let Side { ia, ep, .. } = &mut two.sides[0];
    let qp = ia.ep_query(*ep).expect("the EP").qp.expect("its queue pair");
    let fault = dat_core::fault!(BadState, "event", "the peer wrote outside its range");
    fabric.raise(0, Notice::QpError(qp, fault));
    ia.ep_disconnect(NOW, *ep, CloseFlag::Abrupt).expect("the end");
    ia.ep_reset(*ep).expect("a reset");
    two.run_until_idle();
    let Side { ia, ep, .. } = &mut two.sides[0];
    assert_eq!(ia.ep_query(*ep).map(|p| (p.state, p.qp)), Ok((EpState::Unconnected, Some(qp))));
    let own = ia.async_evd();
    assert_eq!(ia.evd_dequeue(own), Err(DatReturn::QUEUE_EMPTY));
}

#[test]
fn a_service_point_is_not_freed_while_the_posting_half_of_its_endpoint_is_out() {
    let mut two = Two::new(PspFlag::Consumer);
    let fabric = two.fabric;
    let Side { ia, pz, evd, .. } = &mut two.sides[0];
    let before = fabric.alive(0);
    let rsp = ia.rsp_create(7001, None, *evd).expect("an RSP");
    let ep = ia.rsp_query(rsp).expect("the RSP").ep;
    let given = Some(*evd);
    let change = EpModify {
        pz: Some(*pz),
        recv_evd: given,
        request_evd: given,
        connect_evd: given,
        attr: None,
    };
    ia.ep_modify(ep, &change).expect("a configured EP");
    let poster = ia.ep_take_poster(ep).expect("the poster");
    let refusal = ia.rsp_free(NOW, rsp).expect_err("a refusal");
    assert_eq!(refusal.ret().ty(), DatType::InvalidState);
    assert!(ia.rsp_query(rsp).is_ok() && ia.ep_query(ep).is_ok());
    ia.ep_return_poster(poster).expect("the poster is back");
    ia.rsp_free(NOW, rsp).expect("a freed RSP");
    assert_eq!(fabric.alive(0), before);
    assert!(ia.ep_query(ep).is_err());
}

/// Memory of a side, and an SRQ for two receives.
fn common_queue(Side { ia, pz, .. }: &mut Side, region: Region) -> (LmrParam, Srq) {
    let attr = SrqAttr { max_recv_dtos: 2, max_recv_iov: 1, low_watermark: 0 };
    let lmr = ia.lmr_create(*pz, region, MemPriv::ALL).expect("memory");
    (lmr, ia.srq_create(*pz, &attr).expect("an SRQ"))
}

#[test]
fn a_message_may_be_longer_than_its_endpoint_sends_if_the_common_queue_takes_it() {
    let mut two = Two::new(PspFlag::Consumer);
    let regions = [0, 1].map(|side| two.fabric.region(side));
    let side = &mut two.sides[1];
    let (lmr, srq) = common_queue(side, regions[1]);
    let Side { ia, pz, evd, ep, .. } = side;
    let short = EpAttr { max_message_size: 100, ..ia.ep_attr_default() };
    let all = Some(*evd);
    let made = ia.ep_create_with_srq(Some(*pz), all, all, all, srq, &short);
    *ep = made.expect("an EP");
    let segment = |addr, context| LmrTriplet { addr, len: 190, context };
    let receive = segment(regions[1].addr, lmr.lmr_context);
    ia.srq_post_recv(srq, &[receive], 7).expect("a receive");
    two.connect();
    let Side { ia, pz, ep, .. } = &mut two.sides[0];
    let lmr = ia.lmr_create(*pz, regions[0], MemPriv::ALL).expect("memory");
    let message = segment(regions[0].addr, lmr.lmr_context);
    ia.ep_post_send(*ep, &[message], 1, CompletionFlags::empty()).expect("a send");
    two.run_until_idle();
    match two.drain(1)[..] {
        [Event::Dto(dto)] => assert_eq!((dto.cookie, dto.len), (7, 190)),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_receive_takes_what_fits_it_however_short_the_messages_that_its_endpoint_sends() {
    let mut two = Two::new(PspFlag::Consumer);
    let regions = [0, 1].map(|side| two.fabric.region(side));
    let Side { ia, pz, ep, .. } = &mut two.sides[1];
    let lmr = ia.lmr_create(*pz, regions[1], MemPriv::ALL).expect("memory");
    let segment = |addr, len, context| LmrTriplet { addr, len, context };
    let post = |ia: &mut LoopIa, ep, cookie| {
        let receive = segment(regions[1].addr, 190, lmr.lmr_context);
        ia.ep_post_recv(ep, &[receive], cookie, CompletionFlags::empty())
    };
    post(ia, *ep, 7).expect("a receive");
    let short = EpAttr { max_message_size: 100, ..ia.ep_attr_default() };
    let change = EpModify { attr: Some(short), ..EpModify::default() };
    ia.ep_modify(*ep, &change).expect("a short EP");
    post(ia, *ep, 8).expect("a receive longer than that");
    two.connect();
    let Side { ia, pz, ep, .. } = &mut two.sides[0];
    let lmr = ia.lmr_create(*pz, regions[0], MemPriv::ALL).expect("memory");
    for len in [150, 190] {
        let message = segment(regions[0].addr, len, lmr.lmr_context);
        ia.ep_post_send(*ep, &[message], 1, CompletionFlags::SUPPRESS).expect("a send");
    }
    two.run_until_idle();
    match two.drain(1)[..] {
        [Event::Dto(first), Event::Dto(second)] => {
            let completions = [first, second].map(|dto| (dto.cookie, dto.status, dto.len));
            let fine = DtoStatus::Success;
            assert_eq!(completions, [(7, fine, 150), (8, fine, 190)]);
        }
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_completion_longer_than_its_receive_makes_no_sense() {
    let mut two = Two::new(PspFlag::Consumer);
    let region = two.fabric.region(1);
    let Side { ia, pz, ep, .. } = &mut two.sides[1];
    let lmr = ia.lmr_create(*pz, region, MemPriv::ALL).expect("memory");
    let receive = LmrTriplet { addr: region.addr, len: 64, context: lmr.lmr_context };
    ia.ep_post_recv(*ep, &[receive], 7, CompletionFlags::empty()).expect("a receive");
    two.connect();
    let fabric = two.fabric;
    let Side { ia, ep, evd, .. } = &mut two.sides[1];
    let qp = ia.ep_query(*ep).expect("the EP").qp.expect("its QP");
    // The first completion queue of the adapter that has one.
    let forged = |len| Completion {
        index: fabric.index(1, qp).expect("its index"),
        len,
        token: 0,
        direction: Direction::Recv,
        status: Status::Success,
        syndrome: 0,
        vendor: 0,
        extra: Extra::default(),
    };
    for cq in 0..8 {
        fabric.forge(1, Cq(cq), forged(65));
    }
    assert_eq!(ia.evd_dequeue(*evd), Err(DatReturn::QUEUE_EMPTY));
    assert_eq!(ia.evd_dropped(*evd).map(|(_, nonsense)| nonsense), Ok(1));
}

#[test]
fn an_endpoint_without_a_queue_pair_holds_nothing_of_the_one_in_its_slot_before() {
    let mut two = Two::new(PspFlag::Consumer);
    let regions = [0, 1].map(|side| two.fabric.region(side));
    let side = &mut two.sides[1];
    let (lmr, srq) = common_queue(side, regions[1]);
    let Side { ia, pz, evd, ep, .. } = side;
    let (all, attr) = (Some(*evd), ia.ep_attr_default());
    ia.ep_free(NOW, *ep).expect("a freed EP");
    let made = ia.ep_create_with_srq(Some(*pz), all, all, all, srq, &attr);
    *ep = made.expect("an EP");
    let receive = LmrTriplet { addr: regions[1].addr, len: 8, context: lmr.lmr_context };
    ia.srq_post_recv(srq, &[receive], 7).expect("a receive");
    two.connect();
    let Side { ia, ep, .. } = &mut two.sides[0];
    ia.ep_post_send(*ep, &[], 1, CompletionFlags::empty()).expect("a send");
    let Side { ia, evd, ep, .. } = &mut two.sides[1];
    // A receive that an Endpoint holds is not available until it has been dequeued.
    let left = |ia: &mut LoopIa| ia.srq_query(srq).map(|srq| (srq.available, srq.outstanding));
    assert_eq!(left(ia), Ok((Some(0), 1)));
    assert!(matches!(ia.evd_dequeue(*evd), Ok(Event::Dto(dto)) if dto.cookie == 7));
    assert_eq!(left(ia), Ok((Some(0), 0)));
    ia.ep_free(NOW, *ep).expect("a freed EP");
    // Without a zone it has no queue pair.
    let bare = ia.ep_create_with_srq(None, all, all, all, srq, &attr).expect("an EP");
    assert_eq!(left(ia), Ok((Some(0), 0)));
    ia.ep_set_watermark(NOW, bare, Some(5), None).expect("a watermark");
    let own = ia.async_evd();
    let broken = Ok(Event::Async(AsyncEvent::EpBroken(*ep)));
    assert!([broken, Err(DatReturn::QUEUE_EMPTY)].contains(&ia.evd_dequeue(own)));
    assert_eq!(ia.evd_dequeue(own), Err(DatReturn::QUEUE_EMPTY));
}

#[test]
fn a_look_up_that_is_handed_off_stays_one() {
    let mut two = Two::new(PspFlag::Consumer);
    for side in 0..2 {
        let Side { ia, pz, evd, ep } = &mut two.sides[side];
        let made = ia.ep_create_ud(*pz, *evd, *evd, Some(*evd), None, 5);
        *ep = made.expect("an EP for datagrams");
    }
    let Side { ia, evd, .. } = &mut two.sides[1];
    let psp = ia.psp_create(7001, *evd, PspFlag::Consumer).expect("a PSP");
    ia.psp_create(7002, *evd, PspFlag::Provider).expect("a PSP");
    let rsp = ia.rsp_create(7003, None, *evd).expect("an RSP");
    let Side { ia, ep, .. } = &mut two.sides[0];
    let wait = Duration::from_secs(5);
    ia.ep_connect(NOW, *ep, addr(1), 7000, wait, b"", Qos::BestEffort).expect("a look-up");
    two.run_until_idle();
    let cr = match two.drain(1)[..] {
        [Event::UdConnectionRequest { cr, .. }] => cr,
        ref other => panic!("{other:?}"),
    };
    // Reserved service points, and Endpoints of the provider, are for connections.
    let ia = &mut two.sides[1].ia;
    for qual in [7002, 7003] {
        let refusal = ia.cr_handoff(NOW, cr, qual).expect_err("a refusal");
        assert_eq!(refusal.ret().ty(), DatType::InvalidParameter);
    }
    let reserved = ia.rsp_query(rsp).expect("the RSP").ep;
    let state = ia.ep_get_status(reserved).map(|status| status.state);
    assert_eq!(state, Ok(EpState::UnconfiguredReserved));
    ia.cr_handoff(NOW, cr, 7001).expect("a handoff");
    let cr = match two.drain(1)[..] {
        [Event::UdConnectionRequest { psp: to, cr, conn_qual: 7001 }] if to == psp => cr,
        ref other => panic!("{other:?}"),
    };
    let Side { ia, ep, .. } = &mut two.sides[1];
    ia.cr_accept(NOW, cr, Some(*ep), b"").expect("an answer");
    two.run_until_idle();
    let asked = two.sides[0].ep;
    assert!(matches!(two.drain(0)[..], [Event::UdEstablished(ep, _)] if ep == asked));
}
