//! Endpoints for datagrams and service points: the answer to a request says where to send.

use std::task::Poll;
use std::time::Duration;

use dat_core::cm::Reason;
use dat_core::{
    CloseFlag, Cr, DatReturn, DatSubtype, DatType, DtoOperation, Event, IaCounter, IbOperation,
    LookUp, MAX_CONNECT_UD_PRIVATE, MAX_UD_REPLY_PRIVATE, PspFlag, Qos,
};

use super::super::adapters::owner;
use super::super::{A, Adapters, B, End, LIMIT, NONE, Point, Side, refused};
use super::{QKEY, datagrams, done, extended, qpn};

const STATE: DatType = DatType::InvalidState;

/// `end` asks the other side's service point, or says why it may not.
fn ask(
    ias: &mut Adapters<'_, impl Side>,
    end: &End,
    qualifier: u64,
    timeout: Duration,
    private: &[u8],
) -> Result<(), DatReturn> {
    let (now, to) = (ias.now(), ias[1 - end.side].address());
    let asked =
        ias[end.side].ep_connect(now, end.ep, to, qualifier, timeout, private, Qos::BestEffort);
    asked.map_err(|error| error.ret())
}

/// The next request at a service point, which must be a look-up of a queue pair.
#[track_caller]
fn look_up(ias: &mut Adapters<'_, impl Side>, point: &Point) -> Cr {
    match ias.event(point.side, point.evd) {
        Event::UdConnectionRequest { psp, cr, conn_qual }
            if (psp, conn_qual) == (point.psp, point.qualifier) =>
        {
            cr
        }
        other => panic!("expected a request at {point:?}, got {other:?}"),
    }
}

/// The next event at `end`: an answer, or a refusal.
#[track_caller]
fn answered(ias: &mut Adapters<'_, impl Side>, end: &End) -> LookUp {
    match ias.event(end.side, end.conn) {
        Event::UdEstablished(ep, of) if ep == end.ep => of,
        other => panic!("expected an answer to {end:?}, got {other:?}"),
    }
}

/// The same of a refusal.
#[track_caller]
fn denied(ias: &mut Adapters<'_, impl Side>, end: &End) -> LookUp {
    match ias.event(end.side, end.conn) {
        Event::UdReject(ep, of) if ep == end.ep => {
            assert_eq!(Event::UdReject(ep, of).number(), 0x4_0003);
            of
        }
        other => panic!("expected a refusal of {end:?}, got {other:?}"),
    }
}

/// Accepts with an Endpoint for datagrams.
#[track_caller]
fn tell(ias: &mut Adapters<'_, impl Side>, cr: Cr, end: &End, private: &[u8]) {
    let now = ias.now();
    ias[end.side].cr_accept(now, cr, Some(end.ep), private).unwrap();
}

/// The answer has the address of the accepting Endpoint, private data arrives at both sides, and
/// the Endpoint that asked stays CONNECTED to everybody. Many may get the accepting one's address.
pub fn a_look_up_of_a_service_point_leads_to_its_endpoint(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = datagrams(ias);
    let point = ias.listen(B);
    for round in 0..2 {
        ask(ias, &ends[A], point.qualifier, LIMIT, b"who").unwrap();
        assert!(ias.a.ep_ud_address(ends[A].ep).is_err());
        assert_eq!(ias.a.ep_private_data(ends[A].ep).unwrap(), b"");
        let cr = look_up(ias, &point);
        let request = ias.b.cr_query(cr).unwrap();
        assert_eq!((request.remote, request.local_ep), (ias.a.address(), None));
        assert_eq!(request.private_data, b"who");
        let asker = request.asker.unwrap();
        assert_eq!((asker.qpn, asker.qkey), (qpn(ias, A, ends[A].ep), QKEY));
        tell(ias, cr, &ends[B], b"here");
        assert!(ias.b.cr_query(cr).is_err());
        let accepted = Event::UdAccepted(ends[B].ep);
        assert_eq!(ias.event(B, ends[B].conn), accepted);
        assert_eq!(accepted.number(), 0x4_0002);
        let of = answered(ias, &ends[A]);
        assert_eq!(Event::UdEstablished(ends[A].ep, of).number(), 0x4_0002);
        let private = ias.a.ep_private_data(ends[A].ep).unwrap();
        assert!(private.starts_with(b"here\0"));
        let to = ias.a.ep_ud_address(ends[A].ep).unwrap();
        assert_eq!((to.qpn, to.qkey), (qpn(ias, B, ends[B].ep), QKEY));
        assert_eq!(owner(B, to.path.remote), ias.b.address());
        ias.recv(&ends[B], &mems[B], 0, 128, 10 + round);
        ias.a.ep_post_send_ud(ends[A].ep, &[mems[A].seg(0, 5)], &to, None, 4, NONE).unwrap();
        done(ias, &ends[A], IbOperation::SendUd, 4);
        assert_eq!(extended(ias, B, ends[B].recv).cookie, 10 + round);
        // And back, to the queue pair that asked.
        let a = ias.a.address();
        let back = ias.until(|ias| {
            let now = ias.now();
            match ias.b.ud_address(now, a, asker.qpn, asker.qkey) {
                Poll::Ready(back) => Some(back),
                Poll::Pending => None,
            }
        });
        ias.recv(&ends[A], &mems[A], 0, 128, 20 + round);
        ias.b
            .ep_post_send_ud(ends[B].ep, &[mems[B].seg(0, 5)], &back.unwrap(), None, 5, NONE)
            .unwrap();
        done(ias, &ends[B], IbOperation::SendUd, 5);
        assert_eq!(extended(ias, A, ends[A].recv).cookie, 20 + round);
    }
    let resolved = IaCounter::CmAhResolved;
    let resolved = [A, B].map(|side| ias[side].ia_query_counter(resolved, false).unwrap());
    assert_eq!(resolved, [2, 0]);
    // The other side gets no more events.
    ias.expect_no_event(Duration::from_millis(5), &[(B, ends[B].conn)]);
}

/// Nobody listens, the consumer says no, or the service point has Endpoints for connections only.
pub fn a_refused_address_has_a_reason(ias: &mut Adapters<'_, impl Side>) {
    let (ends, _) = datagrams(ias);
    let a = ends[A].ep;
    let nobody = ias.free_qualifier();
    ask(ias, &ends[A], nobody, LIMIT, b"").unwrap();
    denied(ias, &ends[A]);
    let why = ias.a.ep_reject_reason(a).unwrap();
    assert_eq!(why, Some(Reason::INVALID_SERVICE_ID));
    let point = ias.listen(B);
    ask(ias, &ends[A], point.qualifier, LIMIT, b"").unwrap();
    assert_eq!(ias.a.ep_reject_reason(a).unwrap(), None);
    let cr = look_up(ias, &point);
    let now = ias.now();
    let long =
        ias.b.cr_reject(now, cr, &[1; MAX_UD_REPLY_PRIVATE + 1]).map_err(|error| error.ret());
    refused(long, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    ias.b.cr_reject(now, cr, b"no").unwrap();
    denied(ias, &ends[A]);
    assert_eq!(ias.a.ep_reject_reason(a).unwrap(), Some(Reason::CONSUMER));
    assert!(ias.a.ep_private_data(a).unwrap().starts_with(b"no\0"));
    let provided = ias.free_qualifier();
    ias.b.psp_create(provided, point.evd, PspFlag::Provider).unwrap();
    ask(ias, &ends[A], provided, LIMIT, b"").unwrap();
    denied(ias, &ends[A]);
    assert_eq!(ias.a.ep_reject_reason(a).unwrap(), Some(Reason::NO_QP));
    // A refusal takes the place of an address that was found before.
    let [yes, no] = [(); 2].map(|()| {
        ask(ias, &ends[A], point.qualifier, LIMIT, b"").unwrap();
        look_up(ias, &point)
    });
    tell(ias, yes, &ends[B], b"");
    answered(ias, &ends[A]);
    assert!(ias.a.ep_ud_address(a).is_ok());
    let now = ias.now();
    ias.b.cr_reject(now, no, b"").unwrap();
    denied(ias, &ends[A]);
    let address = ias.a.ep_ud_address(a).map_err(|error| error.ret());
    refused(address, STATE, DatSubtype::InvalidStateEpNotReady);
    ias.expect_no_event(Duration::from_millis(5), &[(B, point.evd)]);
}

/// Handed to another service point, a question arrives there like a new one; to one that is for
/// connections it cannot go.
pub fn a_question_is_handed_to_another_service_point(ias: &mut Adapters<'_, impl Side>) {
    let (ends, _) = datagrams(ias);
    let (one, other) = (ias.listen(B), ias.listen(B));
    let [provided, reserved, nobody] = [(); 3].map(|()| ias.free_qualifier());
    ias.b.psp_create(provided, other.evd, PspFlag::Provider).unwrap();
    ias.b.rsp_create(reserved, None, other.evd).unwrap();
    ask(ias, &ends[A], one.qualifier, LIMIT, b"where to").unwrap();
    let cr = look_up(ias, &one);
    let now = ias.now();
    for qualifier in [nobody, provided, reserved, one.qualifier] {
        let handed = ias.b.cr_handoff(now, cr, qualifier);
        refused(handed, DatType::InvalidParameter, DatSubtype::InvalidArg2);
    }
    ias.b.cr_handoff(now, cr, other.qualifier).unwrap();
    let gone = ias.b.cr_query(cr);
    refused(gone, DatType::InvalidHandle, DatSubtype::InvalidHandleCr);
    let cr = look_up(ias, &other);
    let request = ias.b.cr_query(cr).unwrap();
    assert_eq!((request.remote, request.local_ep), (ias.a.address(), None));
    assert_eq!(request.private_data, b"where to");
    assert!(request.asker.is_some());
    tell(ias, cr, &ends[B], b"here");
    answered(ias, &ends[A]);
    let to = ias.a.ep_ud_address(ends[A].ep).unwrap();
    assert_eq!(to.qpn, qpn(ias, B, ends[B].ep));
    ias.expect_no_event(
        Duration::from_millis(5),
        &[(B, one.evd), (B, other.evd), (A, ends[A].conn)],
    );
}

/// Several questions at a time: the event of each tells which, with its own address and words, in
/// the order of the answers. One that runs out of time takes none of the others along, and a
/// disconnect ends all that are left.
pub fn many_questions_have_an_answer_each(ias: &mut Adapters<'_, impl Side>) {
    let (ends, _) = datagrams(ias);
    let [asked_nothing, other] = datagrams(ias).0;
    let (a, point) = (ends[A].ep, ias.listen(B));
    let soon = Duration::from_millis(200);
    for (word, timeout) in [(b"1", LIMIT), (b"2", soon), (b"3", LIMIT), (b"4", LIMIT)] {
        ask(ias, &ends[A], point.qualifier, timeout, word).unwrap();
    }
    let crs = [(); 4].map(|()| {
        let cr = look_up(ias, &point);
        let request = ias.b.cr_query(cr).unwrap();
        (request.private_data.first().copied(), cr)
    });
    assert_eq!(ias.event(A, ends[A].conn), Event::UdError(a));
    let cr = |word| crs.iter().find(|(said, _)| *said == Some(word)).unwrap().1;
    let [one, three] = [cr(b'1'), cr(b'3')];
    tell(ias, three, &other, b"third");
    let third = answered(ias, &ends[A]);
    tell(ias, one, &ends[B], b"first");
    let first = answered(ias, &ends[A]);
    for (of, end, word) in [(first, &ends[B], b"first"), (third, &other, b"third")] {
        let qpn = qpn(ias, B, end.ep);
        let answer = ias.a.ep_ud_answer(a, of).unwrap();
        assert!(answer.private_data.starts_with(word));
        assert_eq!(answer.address.unwrap().qpn, qpn);
    }
    ias.a.ud_cm_free(a, third).unwrap();
    assert!(ias.a.ep_ud_answer(a, third).is_err());
    let of_another = ias.a.ep_ud_answer(asked_nothing.ep, first).map_err(|error| error.ret());
    refused(of_another, STATE, DatSubtype::InvalidStateEpNotReady);
    ias.disconnect(&ends[A], CloseFlag::Abrupt);
    assert_eq!(ias.event(A, ends[A].conn), Event::Disconnected(a));
    ias.expect_no_event(Duration::from_millis(5), &[(A, ends[A].conn)]);
    assert!(ias.a.ep_ud_answer(a, first).is_ok());
    ias.a.ep_reset(a).unwrap();
    assert!(ias.a.ep_ud_answer(a, first).is_err());
}

/// The consumer's time is over before an answer: an error, and a late answer is for nobody.
pub fn an_address_that_does_not_come_is_an_error(ias: &mut Adapters<'_, impl Side>) {
    let (ends, _) = datagrams(ias);
    let point = ias.listen(B);
    let soon = Duration::from_millis(200);
    ask(ias, &ends[A], point.qualifier, soon, b"").unwrap();
    let cr = look_up(ias, &point);
    let event = ias.event(A, ends[A].conn);
    assert_eq!((event, event.number()), (Event::UdError(ends[A].ep), 0x4_0004));
    tell(ias, cr, &ends[B], b"");
    ias.expect_no_event(Duration::from_millis(20), &[(A, ends[A].conn)]);
    let address = ias.a.ep_ud_address(ends[A].ep).map_err(|error| error.ret());
    refused(address, STATE, DatSubtype::InvalidStateEpNotReady);
}

/// Private data that does not fit, and an answer without a live Endpoint for datagrams.
pub fn questions_and_answers_that_cannot_be_are_refused(ias: &mut Adapters<'_, impl Side>) {
    let (ends, _) = datagrams(ias);
    let connected = ias.end(B);
    let point = ias.listen(B);
    let long = ask(ias, &ends[A], point.qualifier, LIMIT, &[1; MAX_CONNECT_UD_PRIVATE + 1]);
    refused(long, DatType::InvalidParameter, DatSubtype::InvalidArg5);
    let most = [1; MAX_CONNECT_UD_PRIVATE];
    ask(ias, &ends[A], point.qualifier, LIMIT, &most).unwrap();
    let cr = look_up(ias, &point);
    assert_eq!(ias.b.cr_query(cr).unwrap().private_data, most);
    let accept = |ias: &mut Adapters<'_, _>, ep, private: &[u8]| {
        let now = ias.now();
        let accepted = ias.b.cr_accept(now, cr, ep, private);
        accepted.map_err(|error| error.ret())
    };
    for ep in [None, Some(connected.ep)] {
        let wrong = accept(ias, ep, b"");
        refused(wrong, DatType::InvalidHandle, DatSubtype::InvalidHandleEp);
    }
    let most = [2; MAX_UD_REPLY_PRIVATE + 1];
    let long = accept(ias, Some(ends[B].ep), &most);
    refused(long, DatType::InvalidParameter, DatSubtype::InvalidArg3);
    ias.disconnect(&ends[B], CloseFlag::Abrupt);
    let over = accept(ias, Some(ends[B].ep), b"");
    refused(over, STATE, DatSubtype::InvalidStateEpDisconnected);
    ias.b.ep_reset(ends[B].ep).unwrap();
    tell(ias, cr, &ends[B], &most[1..]);
    answered(ias, &ends[A]);
    assert!(ias.a.ep_private_data(ends[A].ep).unwrap().starts_with(&most[1..]));
    // A request for a connection gets none of an Endpoint for datagrams.
    let client = ias.end(A);
    ias.ask(&client, point.qualifier, LIMIT, b"");
    let cr = ias.request(&point);
    let now = ias.now();
    assert!(ias.b.cr_accept(now, cr, Some(ends[B].ep), b"").is_err());
    ias.b.cr_reject(now, cr, b"").unwrap();
    assert_eq!(ias.event(A, client.conn), Event::PeerRejected(client.ep));
}

/// A disconnect, a reset or a free ends the question with it.
pub fn an_endpoint_that_ends_asks_no_more(ias: &mut Adapters<'_, impl Side>) {
    let (ends, _) = datagrams(ias);
    let (a, point) = (ends[A].ep, ias.listen(B));
    for flag in [CloseFlag::Abrupt, CloseFlag::Graceful] {
        ask(ias, &ends[A], point.qualifier, LIMIT, b"").unwrap();
        let cr = look_up(ias, &point);
        ias.disconnect(&ends[A], flag);
        tell(ias, cr, &ends[B], b"");
        assert_eq!(ias.event(A, ends[A].conn), Event::Disconnected(a));
        ias.expect_no_event(Duration::from_millis(20), &[(A, ends[A].conn)]);
        let over = ask(ias, &ends[A], point.qualifier, LIMIT, b"");
        refused(over, STATE, DatSubtype::InvalidStateEpDisconnected);
        ias.a.ep_reset(a).unwrap();
        ask(ias, &ends[A], point.qualifier, LIMIT, b"").unwrap();
        let cr = look_up(ias, &point);
        tell(ias, cr, &ends[B], b"");
        answered(ias, &ends[A]);
    }
    // Freed in the midst of a question.
    ask(ias, &ends[A], point.qualifier, LIMIT, b"").unwrap();
    let cr = look_up(ias, &point);
    let now = ias.now();
    ias.a.ep_free(now, a).unwrap();
    tell(ias, cr, &ends[B], b"");
    ias.expect_no_event(Duration::from_millis(20), &[(A, ends[A].conn)]);
}

/// Each message is measured by the receive that takes it, whatever others have: to the byte, over
/// all its segments.
pub fn a_message_is_measured_by_its_own_receive(ias: &mut Adapters<'_, impl Side>) {
    let (ends, mems) = ias.armed();
    let [a, b] = ends;
    let two = [mems[B].seg(100, 40), mems[B].seg(300, 60)];
    ias.recv(&b, &mems[B], 0, 8, 1);
    ias.b.ep_post_recv(b.ep, &two, 2, NONE).unwrap();
    ias.recv(&b, &mems[B], 0, 16, 3);
    ias.recv(&b, &mems[B], 0, 4096, 4);
    for (len, cookie) in [(8, 1), (100, 2)] {
        ias.send(&a, &mems[A], 0, len, cookie);
        assert_eq!(ias.done(&b, DtoOperation::Receive, cookie) as usize, len);
        ias.done(&a, DtoOperation::Send, cookie);
    }
    let sent = ias.bytes(&mems[A], 0, 100);
    assert_eq!(ias.bytes(&mems[B], 100, 40), sent[..40]);
    assert_eq!(ias.bytes(&mems[B], 300, 60), sent[40..]);
    // The receive behind it would take it.
    let behind = ias.bytes(&mems[B], 16, 64);
    ias.send(&a, &mems[A], 0, 17, 3);
    let dto = ias.dto(B, b.recv);
    assert_eq!((dto.cookie, dto.status, dto.len), (3, dat_core::DtoStatus::ErrLocalLength, 0));
    let dto = ias.dto(B, b.recv);
    assert_eq!((dto.cookie, dto.status), (4, dat_core::DtoStatus::ErrFlushed));
    ias.broken(B, b.conn, b.ep);
    assert_eq!(ias.bytes(&mems[B], 16, 64), behind);
}
