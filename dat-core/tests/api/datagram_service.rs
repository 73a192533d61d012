//! Endpoints for datagrams and service points: the answer to a request says where to send.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that goes wrong here has failed, which is all it has to say"
)]

use core::time::Duration;

use crate::pair::*;
use dat_core::cm::Reason;
use dat_core::*;

const QKEY: u32 = 0x0123_4567;
const SECOND: Duration = Duration::from_secs(1);

/// An Endpoint for datagrams on each side.
fn datagrams(p: &mut Pair) -> [Ep; 2] {
    [&mut p.a, &mut p.b].map(|side| {
        let (pz, recv, request, conn) = (side.pz, side.recv, side.request, side.conn);
        side.ia.ep_create_ud(pz, recv, request, Some(conn), None, QKEY).unwrap()
    })
}

fn ask(p: &mut Pair, ep: Ep, port: u64, private: &[u8]) -> Result<(), Error> {
    p.a.ia.ep_connect(p.now, ep, addr(1), port, 5 * SECOND, private, Qos::BestEffort)
}

/// The request that waits at `b`.
fn request(p: &mut Pair) -> Cr {
    p.run_until_idle();
    match p.b.next(p.b.cr) {
        Some(Event::UdConnectionRequest { cr, conn_qual, .. }) => {
            assert_eq!(conn_qual, PORT);
            cr
        }
        other => panic!("{other:?}"),
    }
}

/// The only event at `a`: something was found.
#[track_caller]
fn found(p: &mut Pair, ep: Ep) -> LookUp {
    match p.a.drain(p.a.conn)[..] {
        [Event::UdEstablished(of, look_up)] if of == ep => look_up,
        ref other => panic!("{other:?}"),
    }
}

/// The only event at `a`: it was refused.
#[track_caller]
fn refused(p: &mut Pair, ep: Ep) -> LookUp {
    match p.a.drain(p.a.conn)[..] {
        [Event::UdReject(of, look_up)] if of == ep => look_up,
        ref other => panic!("{other:?}"),
    }
}

fn reason(error: Error) -> (DatType, DatSubtype) {
    (error.ret().ty(), error.ret().subtype())
}

#[test]
fn a_look_up_of_a_service_point_leads_to_its_endpoint() {
    for merge in Merge::ALL {
        let mut p = Pair::unconnected(merge, None);
        let [a, b] = datagrams(&mut p);
        ask(&mut p, a, PORT, b"who").unwrap();
        assert_eq!(p.a.ia.ep_private_data(a), Ok(&[][..]));
        let cr = request(&mut p);
        let param = p.b.ia.cr_query(cr).unwrap();
        assert_eq!((param.remote, param.local_ep), (addr(0), None));
        assert!(param.private_data.starts_with(b"who\0"));
        p.b.ia.cr_accept(p.now, cr, Some(b), b"here").unwrap();
        assert!(p.b.ia.cr_query(cr).is_err());
        p.run_until_idle();
        assert_eq!(p.b.next(p.b.conn), Some(Event::UdAccepted(b)));
        let of = found(&mut p, a);
        assert!(p.a.ia.ep_private_data(a).unwrap().starts_with(b"here\0"));
        let to = p.a.ia.ep_ud_address(a).unwrap();
        assert_eq!(p.a.ia.ep_ud_answer(a, of).unwrap().address, Ok(to));
        let qpn = p.b.ia.ep_query(b).unwrap().qp.unwrap().number;
        assert_eq!((to.qpn, to.qkey, to.path.remote), (qpn, QKEY, addr(1)));
        let (here, there) = (p.a.seg(0, 5), p.b.seg(1024, 64));
        p.b.ia.ep_post_recv(b, &[there], 2, FLAGS).unwrap();
        p.a.ia.ep_post_send_ud(a, &[here], &to, None, 1, FLAGS).unwrap();
        p.run_until_idle();
        match p.b.next(p.b.recv) {
            Some(Event::IbDto(event)) => assert_eq!((event.ep, event.cookie), (b, 2)),
            other => panic!("{other:?}"),
        }
        // The Endpoint may ask again, and get the same one's address again.
        ask(&mut p, a, PORT, b"").unwrap();
        assert!(p.a.ia.ep_ud_address(a).is_err());
        let cr = request(&mut p);
        p.b.ia.cr_accept(p.now, cr, Some(b), b"").unwrap();
        p.run_until_idle();
        assert_eq!(p.a.ia.ep_ud_address(a), Ok(to));
        for (side, ep) in [(&mut p.a, a), (&mut p.b, b)] {
            assert_eq!(side.ia.ep_query(ep).unwrap().state, EpState::Connected);
            side.ia.ep_free(p.now, ep).unwrap();
        }
    }
}

#[test]
fn a_refused_look_up_has_a_reason() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let [a, _] = datagrams(&mut p);
    ask(&mut p, a, PORT + 1, b"").unwrap();
    p.run_until_idle();
    refused(&mut p, a);
    assert_eq!(p.a.ia.ep_reject_reason(a), Ok(Some(Reason::INVALID_SERVICE_ID)));
    ask(&mut p, a, PORT, b"").unwrap();
    assert_eq!(p.a.ia.ep_reject_reason(a), Ok(None));
    let cr = request(&mut p);
    let long = p.b.ia.cr_reject(p.now, cr, &[1; MAX_UD_REPLY_PRIVATE + 1]);
    assert_eq!(reason(long.unwrap_err()), (DatType::InvalidParameter, DatSubtype::InvalidArg2));
    p.b.ia.cr_reject(p.now, cr, b"no").unwrap();
    p.run_until_idle();
    refused(&mut p, a);
    assert_eq!(p.a.ia.ep_reject_reason(a), Ok(Some(Reason::CONSUMER)));
    assert!(p.a.ia.ep_private_data(a).unwrap().starts_with(b"no\0"));
    // A service point whose Endpoints the provider makes has none for datagrams.
    let (cr, port) = (p.b.cr, PORT + 2);
    p.b.ia.psp_create(port, cr, PspFlag::Provider).unwrap();
    ask(&mut p, a, port, b"").unwrap();
    p.run_until_idle();
    refused(&mut p, a);
    assert_eq!(p.a.ia.ep_reject_reason(a), Ok(Some(Reason::NO_QP)));
    assert_eq!(p.b.drain(cr), []);
}

#[test]
fn nobody_there_is_an_error_in_time() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let [a, _] = datagrams(&mut p);
    // The request stays without an answer.
    ask(&mut p, a, PORT, b"").unwrap();
    p.pass(4 * SECOND);
    assert_eq!(p.a.drain(p.a.conn), []);
    p.pass(2 * SECOND);
    assert_eq!(p.a.drain(p.a.conn), [Event::UdError(a)]);
    let cr = request(&mut p);
    // A late answer is for nobody.
    let b = datagrams(&mut p)[1];
    p.b.ia.cr_accept(p.now, cr, Some(b), b"").unwrap();
    p.run_until_idle();
    assert_eq!(p.a.drain(p.a.conn), []);
    assert!(p.a.ia.ep_ud_address(a).is_err());
}

#[test]
fn unfit_questions_and_answers_are_refused_and_change_nothing() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let [a, b] = datagrams(&mut p);
    let long = ask(&mut p, a, PORT, &[1; MAX_CONNECT_UD_PRIVATE + 1]);
    assert_eq!(reason(long.unwrap_err()), (DatType::InvalidParameter, DatSubtype::InvalidArg5));
    ask(&mut p, a, PORT, &[1; MAX_CONNECT_UD_PRIVATE]).unwrap();
    let cr = request(&mut p);
    assert_eq!(p.b.ia.cr_query(cr).unwrap().private_data, [1; MAX_CONNECT_UD_PRIVATE]);
    let handle = (DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    for ep in [None, Some(p.b.ep)] {
        let refused = p.b.ia.cr_accept(p.now, cr, ep, b"");
        assert_eq!(reason(refused.unwrap_err()), handle);
    }
    let long = [1; MAX_UD_REPLY_PRIVATE + 1];
    let refused = p.b.ia.cr_accept(p.now, cr, Some(b), &long);
    assert_eq!(reason(refused.unwrap_err()), (DatType::InvalidParameter, DatSubtype::InvalidArg3));
    p.b.ia.ep_disconnect(p.now, b, CloseFlag::Abrupt).unwrap();
    let refused = p.b.ia.cr_accept(p.now, cr, Some(b), b"");
    assert_eq!(
        reason(refused.unwrap_err()),
        (DatType::InvalidState, DatSubtype::InvalidStateEpDisconnected)
    );
    p.b.ia.ep_reset(b).unwrap();
    p.b.ia.cr_accept(p.now, cr, Some(b), &long[1..]).unwrap();
    p.run_until_idle();
    found(&mut p, a);
    // A request for a connection is none for datagrams.
    p.ask(b"").unwrap();
    p.run_until_idle();
    let cr = p.request().unwrap();
    assert!(p.b.ia.cr_accept(p.now, cr, Some(b), b"").is_err());
    p.b.ia.cr_reject(p.now, cr, b"").unwrap();
}

/// Many questions of one Endpoint, each with its own time, event and answer, whatever the order of
/// the answers.
#[test]
fn many_questions_at_a_time_have_an_answer_each() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let [a, b] = datagrams(&mut p);
    ask(&mut p, a, PORT, b"one").unwrap();
    ask(&mut p, a, PORT, b"two").unwrap();
    ask(&mut p, a, PORT + 1, b"").unwrap();
    let [one, _two] = [(); 2].map(|()| request(&mut p));
    let no = refused(&mut p, a);
    p.pass(4 * SECOND);
    ask(&mut p, a, PORT, b"ten").unwrap();
    let ten = request(&mut p);
    let mut answers = Vec::new();
    for (cr, word) in [(ten, b"ten"), (one, b"one")] {
        let param = p.b.ia.cr_query(cr).unwrap();
        assert!(param.private_data.starts_with(word));
        p.b.ia.cr_accept(p.now, cr, Some(b), word).unwrap();
        p.run_until_idle();
        answers.push((found(&mut p, a), word));
    }
    // The one that nobody answers is over after its own five seconds.
    assert_eq!(p.a.drain(p.a.conn), []);
    p.pass(2 * SECOND);
    assert_eq!(p.a.drain(p.a.conn), [Event::UdError(a)]);
    for (look_up, word) in answers {
        let answer = p.a.ia.ep_ud_answer(a, look_up).unwrap();
        assert!(answer.private_data.starts_with(word));
        assert_eq!(answer.address.unwrap().path.remote, addr(1));
        p.a.ia.ud_cm_free(a, look_up).unwrap();
        assert!(p.a.ia.ep_ud_answer(a, look_up).is_err());
    }
    let answer = p.a.ia.ep_ud_answer(a, no).unwrap();
    assert_eq!(answer.address, Err(Reason::INVALID_SERVICE_ID));
    // The answer goes to the Endpoint that asked.
    let (pz, recv, sends, conn) = (p.a.pz, p.a.recv, p.a.request, p.a.conn);
    let other = p.a.ia.ep_create_ud(pz, recv, sends, Some(conn), None, QKEY).unwrap();
    assert_eq!(
        reason(p.a.ia.ep_ud_answer(other, no).unwrap_err()),
        (DatType::InvalidState, DatSubtype::InvalidStateEpNotReady)
    );
    // A disconnect ends all that are asked, with one event; the answer that came stays until the
    // reset.
    ask(&mut p, a, PORT, b"").unwrap();
    ask(&mut p, a, PORT, b"").unwrap();
    p.run_until_idle();
    p.a.ia.ep_disconnect(p.now, a, CloseFlag::Abrupt).unwrap();
    p.pass(10 * SECOND);
    assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(a)]);
    assert!(p.a.ia.ep_ud_answer(a, no).is_ok());
    p.a.ia.ep_reset(a).unwrap();
    assert!(p.a.ia.ep_ud_answer(a, no).is_err());
}

#[test]
fn a_refusal_takes_the_place_of_what_was_found_before() {
    let mut p = Pair::unconnected(Merge::Apart, None);
    let [a, b] = datagrams(&mut p);
    ask(&mut p, a, PORT, b"").unwrap();
    ask(&mut p, a, PORT, b"").unwrap();
    let [yes, no] = [(); 2].map(|()| request(&mut p));
    p.b.ia.cr_accept(p.now, yes, Some(b), b"").unwrap();
    p.run_until_idle();
    found(&mut p, a);
    assert_eq!(p.a.ia.ep_ud_address(a).unwrap().path.remote, addr(1));
    p.b.ia.cr_reject(p.now, no, b"").unwrap();
    p.run_until_idle();
    refused(&mut p, a);
    assert_eq!(
        reason(p.a.ia.ep_ud_address(a).unwrap_err()),
        (DatType::InvalidState, DatSubtype::InvalidStateEpNotReady)
    );
}

#[test]
fn an_endpoint_that_ends_asks_no_more() {
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        let mut p = Pair::unconnected(Merge::Apart, None);
        let [a, b] = datagrams(&mut p);
        ask(&mut p, a, PORT, b"").unwrap();
        let cr = request(&mut p);
        p.a.ia.ep_disconnect(p.now, a, flag).unwrap();
        p.b.ia.cr_accept(p.now, cr, Some(b), b"").unwrap();
        p.pass(10 * SECOND);
        assert_eq!(p.a.drain(p.a.conn), [Event::Disconnected(a)]);
        let refused = ask(&mut p, a, PORT, b"");
        assert_eq!(
            reason(refused.unwrap_err()),
            (DatType::InvalidState, DatSubtype::InvalidStateEpDisconnected)
        );
        p.a.ia.ep_reset(a).unwrap();
        ask(&mut p, a, PORT, b"").unwrap();
        let cr = request(&mut p);
        p.b.ia.cr_accept(p.now, cr, Some(b), b"").unwrap();
        p.run_until_idle();
        found(&mut p, a);
        // Freed in the midst of a question, and closed with one to answer.
        ask(&mut p, a, PORT, b"").unwrap();
        let _ = request(&mut p);
        p.a.ia.ep_free(p.now, a).unwrap();
        p.b.ia.close(p.now, CloseFlag::Abrupt).unwrap();
    }
}
