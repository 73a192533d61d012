//! Look-ups of services for datagrams: with loss, from foreign hosts, and refused.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use dat_core::Instant;
use dat_core::cm::wire::{Message, SidrReq, WireError};
use dat_core::cm::{
    CmError, CmEvent, Config, ConnId, Reason, ServiceId, SidrParams, SidrReply, SidrStatus,
};
use proptest::prelude::*;

use crate::pair::*;

const SERVICE: ServiceId = ServiceId::udp(PORT);

fn params(pair: &Pair) -> SidrParams<'static> {
    SidrParams {
        remote: pair.nodes[B].address,
        local: pair.nodes[A].address,
        service: SERVICE,
        class: CLASS,
        source_port: 41564,
        private_data: b"who",
    }
}

fn ask(pair: &mut Pair) -> ConnId {
    let params = params(pair);
    pair.nodes[A].cm.sidr_request(pair.now, &params).unwrap()
}

fn found(conn: ConnId) -> CmEvent {
    CmEvent::SidrReply(SidrReply { conn, status: SidrStatus::VALID, qpn: QPN_B, q_key: Q_KEY })
}

fn refused(conn: ConnId, status: SidrStatus) -> CmEvent {
    CmEvent::SidrReply(SidrReply { conn, status, qpn: 0, q_key: 0 })
}

/// How often B was asked.
fn requests(pair: &Pair) -> usize {
    let asked = |event: &&CmEvent| matches!(event, CmEvent::SidrRequest(_));
    pair.nodes[B].events.iter().filter(asked).count()
}

#[test]
fn a_look_up_has_one_event_on_each_side() {
    for addresses in [[v4(1), v4(2)], [v6(1), v6(2)]] {
        let mut pair = Pair::with(8, 8, addresses);
        let a = ask(&mut pair);
        pair.exchange();
        assert_eq!(pair.events_of(A, a), [found(a)]);
        assert!(pair.nodes[A].cm.private_data(a).starts_with(b"here\0"));
        let [CmEvent::SidrRequest(request)] = pair.nodes[B].events[..] else {
            panic!("{:?}", pair.nodes[B].events);
        };
        assert_eq!((request.remote, request.local), (addresses[0], addresses[1]));
        assert_eq!((request.service, request.remote_port), (SERVICE, 41564));
        let private = &pair.nodes[B].private;
        assert!(private.starts_with(b"who\0") && private.len() == 180);
        assert_eq!(pair.kinds(), [Kind::SidrReq, Kind::SidrRep]);
        pair.exhaust();
        assert_eq!(pair.log.len(), 2);
        pair.no_leaks(8);
    }
}

#[test]
fn any_number_of_losses_below_the_retries_is_survived() {
    let interval = Config::new(0).request_interval();
    for what in [Kind::SidrReq, Kind::SidrRep] {
        for count in [1, 2, 15] {
            let mut pair = Pair::new();
            pair.lose(what, count);
            let a = ask(&mut pair);
            pair.exhaust();
            assert_eq!(pair.events_of(A, a), [found(a)]);
            assert_eq!(requests(&pair), 1, "{what:?} {count}");
            let sent = pair.sent(Kind::SidrReq);
            assert_eq!(sent.len(), count + 1);
            assert!(sent.windows(2).all(|two| two[0].mad == two[1].mad));
            assert!(sent.windows(2).all(|two| two[1].at - two[0].at == interval));
            pair.no_leaks(8);
        }
    }
}

#[test]
fn no_answer_is_unreachable() {
    let mut pair = Pair::new();
    pair.lose(Kind::SidrReq, 1000);
    let a = ask(&mut pair);
    pair.exhaust();
    assert_eq!(pair.events_of(A, a), [CmEvent::Unreachable { conn: a }]);
    assert_eq!(pair.kinds(), [Kind::SidrReq; 16]);
    pair.no_leaks(8);
}

#[test]
fn a_refusal_has_a_reason() {
    for (reason, status) in [
        (Reason::INVALID_SERVICE_ID, SidrStatus::UNSUPPORTED_SERVICE),
        (Reason::CONSUMER, SidrStatus::REJECTED),
        (Reason::NO_QP, SidrStatus::NO_QP),
        (Reason::INVALID_CLASS_VERSION, SidrStatus::UNSUPPORTED_VERSION),
    ] {
        let mut pair = Pair::new();
        pair.nodes[B].consumer = Consumer::Unwilling(reason);
        pair.lose(Kind::SidrRep, 3);
        let a = ask(&mut pair);
        pair.exhaust();
        assert_eq!(pair.events_of(A, a), [refused(a, status)]);
        assert_eq!(status.reason(), reason);
        assert!(pair.nodes[A].cm.private_data(a).starts_with(b"go away\0"));
        assert_eq!(requests(&pair), 1);
        pair.no_leaks(8);
    }
    assert_eq!(SidrStatus::REDIRECT.reason(), Reason::PORT_AND_CM_REDIRECT);
    assert_eq!(SidrStatus(200).reason(), Reason::UNSUPPORTED);
    assert_eq!(SidrStatus::of(Reason::NO_RESOURCES), SidrStatus::NO_QP);
}

#[test]
fn a_slow_consumer_is_asked_once_and_answered_at_last() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = ask(&mut pair);
    pair.run(Duration::from_secs(20));
    assert_eq!((requests(&pair), pair.sent(Kind::SidrRep).len()), (1, 0));
    assert!(pair.sent(Kind::SidrReq).len() > 3);
    let CmEvent::SidrRequest(request) = pair.nodes[B].events[0] else {
        panic!("{:?}", pair.nodes[B].events);
    };
    let cm = &mut pair.nodes[B].cm;
    let state = cm.accept(pair.now, request.conn, &Pair::accept_params());
    assert!(matches!(state, Err(CmError::State(..))));
    let long = cm.sidr_accept(pair.now, request.conn, QPN_B, Q_KEY, &[1; 137]);
    let (given, most) = (137, 136);
    assert_eq!(long, Err(CmError::TooLong { given, most }));
    let long = cm.reject(pair.now, request.conn, Reason::CONSUMER, &[], &[1; 137]);
    assert_eq!(long, Err(CmError::TooLong { given, most }));
    for qpn in [0, 1, 1 << 24] {
        let bad = cm.sidr_accept(pair.now, request.conn, qpn, Q_KEY, b"");
        assert!(matches!(bad, Err(CmError::Parameter(_))));
    }
    cm.sidr_accept(pair.now, request.conn, QPN_B, Q_KEY, b"here").unwrap();
    let again = cm.sidr_accept(pair.now, request.conn, QPN_B, Q_KEY, b"");
    assert_eq!(again, Err(CmError::Unknown(request.conn)));
    pair.exchange();
    assert_eq!(pair.events_of(A, a), [found(a)]);
    pair.exhaust();
    pair.no_leaks(8);
}

#[test]
fn either_side_may_give_up() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = ask(&mut pair);
    pair.exchange();
    pair.nodes[A].cm.abort(pair.now, a);
    pair.exchange();
    // The late answer is for nobody.
    let b = pair.nodes[B].events[0].conn();
    pair.nodes[B].cm.abort(pair.now, b);
    pair.exhaust();
    assert_eq!(pair.events_of(A, a), []);
    assert_eq!(pair.kinds(), [Kind::SidrReq, Kind::SidrRep]);
    assert_eq!(pair.nodes[A].cm.counters().unknown, 1);
    pair.no_leaks(8);

    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = ask(&mut pair);
    pair.exchange();
    let b = pair.nodes[B].events[0].conn();
    pair.nodes[B].cm.abort(pair.now, b);
    pair.exchange();
    assert_eq!(pair.events_of(A, a), [refused(a, SidrStatus::NO_QP)]);
}

#[test]
fn an_impossible_question_is_refused() {
    let mut pair = Pair::with(1, 1, [v4(1), v4(2)]);
    let good = params(&pair);
    let cm = &mut pair.nodes[A].cm;
    let long = SidrParams { private_data: &[1; 181], ..good };
    let (given, most) = (181, 180);
    let refused = cm.sidr_request(pair.now, &long);
    assert_eq!(refused, Err(CmError::TooLong { given, most }));
    let families = SidrParams { local: v6(1), ..good };
    let refused = cm.sidr_request(pair.now, &families);
    assert!(matches!(refused, Err(CmError::Parameter(_))));
    let a = cm.sidr_request(pair.now, &good).unwrap();
    assert_eq!(cm.sidr_request(pair.now, &good), Err(CmError::NoSlot));
    assert!(matches!(cm.disconnect(pair.now, a), Err(CmError::State(..))));
    assert!(matches!(cm.ready(pair.now, a), Err(CmError::State(..))));
}

#[test]
fn a_service_of_nobodys_carries_all_its_private_data() {
    let mut pair = Pair::new();
    let params =
        SidrParams { service: ServiceId(0x1234), private_data: &[7; 216], ..params(&pair) };
    let a = pair.nodes[A].cm.sidr_request(pair.now, &params).unwrap();
    pair.exchange();
    assert_eq!(pair.events_of(A, a), [found(a)]);
    let CmEvent::SidrRequest(request) = pair.nodes[B].events[0] else {
        panic!("{:?}", pair.nodes[B].events);
    };
    assert_eq!((request.service, request.remote_port), (params.service, 0));
    assert_eq!(pair.nodes[B].private, [7; 216]);
    // The request does not carry the peer's own address, only the family.
    assert_eq!(request.local, Ipv4Addr::UNSPECIFIED);

    let mut pair = Pair::with(8, 8, [v6(1), v6(2)]);
    let params = SidrParams { remote: v6(2), local: v6(1), ..params };
    pair.nodes[A].cm.sidr_request(pair.now, &params).unwrap();
    pair.exchange();
    let CmEvent::SidrRequest(request) = pair.nodes[B].events[0] else {
        panic!("{:?}", pair.nodes[B].events);
    };
    assert_eq!(request.local, Ipv6Addr::UNSPECIFIED);
}

#[test]
fn look_ups_want_their_paths_in_turn_until_they_are_sent() {
    let mut pair = Pair::new();
    let params = params(&pair);
    let (now, cm) = (pair.now, &mut pair.nodes[A].cm);
    assert_eq!(cm.sidr_next(), None);
    let [first, second] =
        [7, 7].map(|asker| cm.sidr_prepare(now, &params, Instant::NEVER, asker).unwrap());
    for conn in [first, second, first] {
        assert_eq!(cm.sidr_next(), Some((conn, v4(2))));
    }
    cm.sidr_go(now, second);
    assert_eq!([cm.sidr_next(), cm.sidr_next()], [Some((first, v4(2))); 2]);
    assert_eq!(cm.asking(), 2);
    cm.sidr_go(now, first);
    assert_eq!(cm.sidr_next(), None);
}

#[test]
fn who_asks_ends_its_own_look_ups_and_no_others() {
    let mut pair = Pair::new();
    let params = params(&pair);
    let ask = |pair: &mut Pair, asker| {
        let (now, cm) = (pair.now, &mut pair.nodes[A].cm);
        let conn = cm.sidr_prepare(now, &params, Instant::NEVER, asker).unwrap();
        cm.sidr_go(now, conn);
        conn
    };
    let answered = [3, 4].map(|asker| ask(&mut pair, asker));
    pair.exchange();
    for conn in answered {
        let Some(CmEvent::SidrReply(reply)) = pair.last(A, conn) else {
            panic!("{:?}", pair.nodes[A].events);
        };
        pair.nodes[A].cm.sidr_keep(&reply);
    }
    let waiting = [3, 4, 3].map(|asker| ask(&mut pair, asker));
    let cm = &mut pair.nodes[A].cm;
    assert_eq!(cm.asking(), 3);
    cm.sidr_end_all(3, false);
    assert_eq!(cm.asking(), 1);
    assert_eq!(answered.map(|conn| cm.sidr_kept(conn).is_some()), [true, true]);
    cm.sidr_end_all(3, true);
    assert_eq!(answered.map(|conn| cm.sidr_kept(conn).is_some()), [false, true]);
    assert_eq!(cm.asking(), 1);
    cm.sidr_end_all(4, true);
    assert_eq!(cm.asking(), 0);
    assert!(waiting.iter().all(|conn| cm.sidr_kept(*conn).is_none()));
}

#[test]
fn an_answer_that_is_kept_goes_by_its_own_name_alone() {
    let mut pair = Pair::with(1, 8, [v4(1), v4(2)]);
    let keep = |pair: &mut Pair| {
        let asked = ask(pair);
        pair.exchange();
        let Some(CmEvent::SidrReply(reply)) = pair.last(A, asked) else {
            panic!("{:?}", pair.nodes[A].events);
        };
        pair.nodes[A].cm.sidr_keep(&reply);
        assert_eq!(pair.nodes[A].cm.sidr_kept(asked), Some(reply));
        asked
    };
    let old = keep(&mut pair);
    let new = keep(&mut pair);
    assert_eq!(old.index(), new.index());
    assert_eq!(pair.nodes[A].cm.sidr_kept(old), None);
}

/// The SIDR_REQ of a pair.
fn question() -> [u8; 256] {
    let mut pair = Pair::new();
    ask(&mut pair);
    pair.turn();
    pair.log[0].mad
}

#[test]
fn foreign_messages_do_no_harm() {
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let a = ask(&mut pair);
    pair.exchange();
    let b = pair.nodes[B].events[0].conn();
    pair.nodes[B].cm.sidr_accept(pair.now, b, QPN_B, Q_KEY, b"").unwrap();
    let answer = pair.nodes[B].cm.poll_transmit(pair.now).unwrap().mad;
    // From another address, for another question, and with nothing to send to.
    pair.inject(A, v4(9), &answer);
    let mut other = answer;
    other[24] ^= 0x80;
    pair.inject(A, v4(2), &other);
    let mut earlier = answer;
    earlier[15] ^= 1;
    pair.inject(A, v4(2), &earlier);
    let mut nobody = answer;
    nobody[32..35].fill(0);
    pair.inject(A, v4(2), &nobody);
    assert_eq!(pair.events_of(A, a), []);
    let counters = pair.nodes[A].cm.counters();
    assert_eq!((counters.foreign, counters.unknown, counters.malformed), (2, 1, 1));
    assert_eq!((counters.wrong_address, counters.wrong_transaction), (1, 1));
    pair.inject(A, v4(2), &answer);
    assert_eq!(pair.events_of(A, a), [found(a)]);
    pair.inject(A, v4(2), &answer);
    assert_eq!(pair.events_of(A, a).len(), 1);

    // A request in another host's name gets an answer, and raises no event.
    let mut pair = Pair::new();
    pair.inject(B, v4(9), &question());
    assert_eq!((requests(&pair), pair.kinds()), (0, vec![Kind::SidrRep]));
    let mut headless = question();
    headless[24 + 16] = 9;
    pair.inject(B, v4(1), &headless);
    assert_eq!((requests(&pair), pair.log.len()), (0, 2));
    // Nothing stands in the fields that have no meaning.
    assert!(pair.log.iter().all(|sent| sent.mad[30..32] == [0; 2]));
    assert!(pair.log.iter().all(|sent| matches!(
        sent.message(),
        Message::SidrRep(rep) if rep.status == SidrStatus::REJECTED
    )));
    let mut unnamed = question();
    unnamed[24..28].fill(0);
    pair.inject(B, v4(1), &unnamed);
    assert_eq!((requests(&pair), pair.log.len()), (0, 2));
    assert_eq!(Message::parse(&unnamed), Err(WireError::Field));
}

#[test]
fn messages_of_connections_do_not_reach_look_ups() {
    let (mut past, ..) = Pair::established();
    let (a, b) = (past.nodes[A].ready[0], past.request().conn);
    past.nodes[A].cm.disconnect(past.now, a).unwrap();
    past.exchange();
    let mut pair = Pair::new();
    pair.nodes[B].consumer = Consumer::Silent;
    let asked = ask(&mut pair);
    pair.exchange();
    let answering = pair.nodes[B].events[0].conn();
    for sent in &past.log {
        // Every ID of the old connection becomes that of a look-up.
        let mut mad = sent.mad;
        for at in [24, 28] {
            let id = u32::from_be_bytes(mad[at..at + 4].try_into().unwrap());
            let new = if id == a.comm_id() {
                asked
            } else if id == b.comm_id() {
                answering
            } else {
                continue;
            };
            mad[at..at + 4].copy_from_slice(&new.comm_id().to_be_bytes());
        }
        let (to, from) = if sent.by == A { (B, v4(1)) } else { (A, v4(2)) };
        if sent.kind() != Kind::Req {
            pair.inject(to, from, &mad);
        }
    }
    assert_eq!(pair.events_of(A, asked), []);
    pair.nodes[B].cm.sidr_accept(pair.now, answering, QPN_B, Q_KEY, b"").unwrap();
    pair.exchange();
    assert_eq!(pair.events_of(A, asked), [found(asked)]);
}

#[test]
fn a_full_table_is_reported_and_answered_requests_free_slots() {
    let mut pair = Pair::with(8, 2, [v4(1), v4(2)]);
    pair.nodes[B].consumer = Consumer::Silent;
    let asked: Vec<_> = (0..3).map(|_| ask(&mut pair)).collect();
    pair.exchange();
    assert_eq!(requests(&pair), 2);
    let third = asked[2];
    assert_eq!(pair.events_of(A, third), [refused(third, SidrStatus::NO_QP)]);
    assert_eq!(pair.nodes[B].cm.counters().no_slot, 1);
    for event in pair.nodes[B].events.clone() {
        pair.nodes[B].cm.sidr_accept(pair.now, event.conn(), QPN_B, Q_KEY, b"").unwrap();
    }
    pair.exchange();
    pair.nodes[B].consumer = Consumer::Willing;
    let next = ask(&mut pair);
    pair.exchange();
    assert_eq!(pair.events_of(A, next), [found(next)]);
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Deliver),
        2 => Just(Fate::Lose),
        1 => (0_u64..9000).prop_map(|ms| Fate::Twice(Duration::from_millis(ms))),
        1 => (0_u64..3000).prop_map(|ms| Fate::Late(Duration::from_millis(ms))),
    ]
}

proptest! {
    #[test]
    fn over_any_link_a_look_up_ends_once(
        fates in proptest::collection::vec(fate(), 0..12),
        abort in proptest::option::of(0_u64..12_000),
        willing: bool,
    ) {
        let mut pair = Pair::with(2, 2, [v4(1), v4(2)]);
        let mut fates = fates.into_iter();
        pair.link(move |_| fates.next().unwrap_or(Fate::Deliver));
        if !willing {
            pair.nodes[B].consumer = Consumer::Unwilling(Reason::CONSUMER);
        }
        let a = ask(&mut pair);
        if let Some(after) = abort {
            pair.run(Duration::from_millis(after));
            pair.nodes[A].cm.abort(pair.now, a);
        }
        pair.exhaust();
        let wanted = if willing { found(a) } else { refused(a, SidrStatus::REJECTED) };
        let events = pair.events_of(A, a);
        prop_assert!(events == [wanted] || (events.is_empty() && abort.is_some()), "{:?}", events);
        pair.no_leaks(2);
    }

    #[test]
    fn no_bytes_break_a_look_up(
        storm in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec((0_usize..256, any::<u8>()), 0..5), 1_u8..4, any::<bool>()),
            1..20,
        ),
    ) {
        let mut pair = Pair::with(3, 3, [v4(1), v4(2)]);
        pair.nodes[B].consumer = Consumer::Silent;
        let a = ask(&mut pair);
        pair.exchange();
        let b = pair.nodes[B].events[0].conn();
        let question = pair.log[0].mad;
        let mut answer = question;
        answer[17] = 0x18;
        for (to_a, changes, from, pause) in storm {
            let mut mad = if to_a { answer } else { question };
            for (at, value) in changes {
                mad[at] = value;
            }
            pair.inject(if to_a { A } else { B }, v4(from), &mad);
            if pause {
                pair.run(Duration::from_secs(3));
            }
        }
        let _ = pair.nodes[B].cm.sidr_accept(pair.now, b, QPN_B, Q_KEY, b"");
        pair.exhaust();
        prop_assert_eq!(pair.events_of(A, a).len(), 1);
        prop_assert_eq!(SidrReq::new_unchecked(&question).p_key(), 0xffff);
    }
}
