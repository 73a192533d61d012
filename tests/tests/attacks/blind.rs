//! Attacks of whoever cannot read the wire: guesses, and messages that need no guess.

use std::time::Duration;

use dat_core::{EpState, Event};
use dat_tests::attack::mad::Req;
use dat_tests::attack::{Cm, EVIL, Mad, arp, datagram, station};
use dat_tests::session::{QUALIFIER, Session, Setup};

use crate::stage::{NOBODY, State, messages, reach};

const SECOND: Duration = Duration::from_secs(1);
/// The longest that one packet may hold an Endpoint.
const HELD: Duration = Duration::from_secs(30);

/// Every ID that has the form of today's: an index, six bits of generation, ten random ones.
fn guesses(generation: u32, index: u32) -> impl Iterator<Item = u32> {
    (0..1 << 10).map(move |random| (generation << 10 | random) << 16 | index)
}

fn established(session: &Session<'_>) {
    assert_eq!([session.state(0), session.state(1)], [EpState::Connected; 2]);
}

/// Sends what `forge` makes of each guess, as from the peer of `victim`.
fn guess(session: &mut Session<'_>, victim: usize, forge: impl Fn(u32) -> Mad) {
    let addrs = [session.address(1 - victim), session.address(victim)];
    for generation in 0..4 {
        for id in guesses(generation, 0) {
            let frame = datagram([EVIL, station(victim)], addrs, &forge(id).0);
            session.lines[victim].inject(frame);
        }
        session.pass(Duration::from_millis(20));
    }
}

/// A peer that gave up names itself only: its ID and its adapter, whose GUID is no secret.
#[test]
fn a_thousand_rejections_of_a_peer_that_gave_up_end_no_connection() {
    for victim in [0, 1] {
        Setup::default().run(|session| {
            let state =
                if victim == 0 { State::EstablishedActive } else { State::EstablishedPassive };
            let guid = reach(session, state).peer_guid.to_be_bytes();
            guess(session, victim, |id| Mad::rej(1, [id, 0], 0, 4, &guid));
            established(session);
            session.expect_no_event(SECOND);
            session.traffic(1);
        });
    }
}

/// Even one that knows the peer's ID: a connection that is established was not given up.
#[test]
fn a_rejection_without_our_id_ends_no_established_connection() {
    for state in [State::EstablishedActive, State::EstablishedPassive] {
        Setup::default().run(|session| {
            let known = reach(session, state);
            for about in 0..3_u8 {
                let mad = known.given_up().put(8, &[about << 6]);
                known.inject(session, &mad, false);
                let mad = mad.with_transaction(0);
                known.inject(session, &mad, false);
            }
            session.pass(SECOND);
            assert_eq!(known.unharmed(session), Ok(()));
        });
    }
}

/// While the peer waits for the consumer, its retransmissions show its ID to nobody else.
#[test]
fn guesses_of_the_peer_s_id_end_no_request() {
    Setup::default().run(|session| {
        let known = reach(session, State::ReqReceived);
        let guid = known.peer_guid.to_be_bytes();
        guess(session, 1, |id| Mad::rej(1, [id, 0], 0, 4, &guid));
        assert_eq!(known.unharmed(session), Ok(()));
    });
}

#[test]
fn guesses_of_our_id_answer_no_request() {
    for kind in [Cm::Rep, Cm::Rej, Cm::Mra] {
        Setup::default().run(|session| {
            let known = reach(session, State::ReqSent);
            guess(session, 0, |id| match kind {
                Cm::Rep => Mad::rep(1, [0x6666, id], 0x123, 1, 2),
                Cm::Rej => Mad::rej(1, [0x6666, id], 0, 28, &[]),
                _ => Mad::mra(1, [0x6666, id], 0, 31),
            });
            if let Err(harm) = known.unharmed(session) {
                panic!("a guessed {}: {harm}", kind.name());
            }
        });
    }
}

#[test]
fn guesses_of_our_id_answer_no_look_up() {
    Setup::default().run(|session| {
        let known = reach(session, State::SidrSent);
        guess(session, 0, |id| Mad::sidr_rep(1, id, 0, 0x123, 0x666));
        assert_eq!(known.unharmed(session), Ok(()));
    });
}

#[test]
fn guesses_of_our_id_end_no_connection() {
    for state in [State::EstablishedActive, State::EstablishedPassive, State::RepSent] {
        Setup::default().run(|session| {
            let known = reach(session, state);
            let qpn = known.qpn;
            guess(session, known.victim, |id| Mad::dreq(1, [known.peer ^ 1, id], qpn));
            guess(session, known.victim, |id| Mad::rej(1, [known.peer ^ 1, id], 2, 28, &[]));
            assert_eq!(known.unharmed(session), Ok(()));
        });
    }
}

/// A REQ of a queue pair that is connected says that its peer has lost the connection. Anybody can
/// say that.
#[test]
fn a_stale_request_ends_no_connection_of_a_peer_that_is_there() {
    for state in [State::EstablishedActive, State::EstablishedPassive, State::RepSent] {
        Setup::default().run(|session| {
            let known = reach(session, state);
            let mad = known.genuine(session, Cm::Req);
            known.inject(session, &mad, false);
            session.pass(Duration::from_millis(20));
            assert_eq!(known.unharmed(session), Ok(()), "{state:?}");
        });
    }
}

#[test]
fn many_stale_requests_end_no_connection_either() {
    for state in [State::EstablishedActive, State::EstablishedPassive] {
        Setup::default().run(|session| {
            let known = reach(session, state);
            let good = known.genuine(session, Cm::Req);
            for n in 0..100_u32 {
                let mad = good.clone().put(0, &(0x5000_0000 + n).to_be_bytes());
                known.inject(session, &mad.with_transaction(n.into()), false);
                session.pass(Duration::from_millis(300));
            }
            session.pass(Duration::from_secs(60));
            session.expect_no_event(SECOND);
            session.traffic(1);
        });
    }
}

/// A peer that is gone is found out by the same message.
#[test]
fn a_stale_request_ends_the_connection_of_a_peer_that_is_gone() {
    Setup::default().run(|session| {
        let known = reach(session, State::EstablishedPassive);
        session.lines[0].cut(true);
        let mad = known.genuine(session, Cm::Req);
        known.inject(session, &mad, false);
        let end = session.connection(1);
        assert!(matches!(end, Event::Disconnected(_) | Event::Broken(_)), "{end:?}");
    });
}

/// A stale REQ while this side only waits: for the consumer, or for the peer's end.
#[test]
fn a_stale_request_ends_no_request() {
    Setup::default().run(|session| {
        let known = reach(session, State::ReqReceived);
        let mad = known.genuine(session, Cm::Req);
        known.inject(session, &mad, false);
        session.pass(Duration::from_millis(20));
        assert_eq!(known.unharmed(session), Ok(()));
    });
}

/// One that claims another address than it comes from.
#[test]
fn a_request_for_the_peer_s_address_from_elsewhere_is_not_taken() {
    Setup::default().run(|session| {
        let known = reach(session, State::EstablishedPassive);
        let mad = known.genuine(session, Cm::Req);
        known.inject(session, &mad, true);
        session.pass(SECOND);
        assert_eq!(known.unharmed(session), Ok(()));
    });
}

/// Answers ARP for `NOBODY` on the link of a side: a host that is there, and says nothing else.
fn answer_arp(session: &mut Session<'_>, side: usize) -> Vec<Vec<u8>> {
    let frames = session.lines[side].recorded();
    session.lines[side].record();
    let (std::net::IpAddr::V4(own), std::net::IpAddr::V4(ghost)) = (session.address(side), NOBODY)
    else {
        unreachable!("the stage has IPv4 addresses")
    };
    for frame in &frames {
        if frame[12..14] == [8, 6] && frame[38..42] == ghost.octets() {
            let mac = station(side);
            session.lines[side].inject(arp([EVIL, mac], 2, (EVIL, ghost), (mac, own)));
        }
    }
    frames
}

/// A REQ with the longest response time and most retries, accepted by the consumer; then silence.
#[test]
fn a_silent_host_holds_an_endpoint_for_seconds_only() {
    for response in [0, 20, 21, 25, 31] {
        for retries in [0, 15] {
            Setup::default().run(|session| {
                session.lines[1].record();
                let addrs = [NOBODY, session.address(1)];
                let mut req = Req::new(1, QUALIFIER as u16, addrs);
                (req.response, req.retries) = (response, retries);
                session.lines[1].inject(datagram([EVIL, station(1)], addrs, &req.mad().0));
                // Nothing is done for a host that is not there.
                session.pass(Duration::from_millis(2));
                answer_arp(session, 1);
                let cr = session.request();
                let (now, ep) = (session.now(), session.sides[1].ep);
                session.pair.ias[1].cr_accept(now, cr, Some(ep), b"").unwrap();
                let (start, evd) = (session.now(), session.sides[1].conn);
                loop {
                    answer_arp(session, 1);
                    session.pass(Duration::from_millis(50));
                    if session.pair.ias[1].evd_dequeue(evd).is_ok() {
                        break;
                    }
                    let held = session.now().since(start);
                    assert!(held < HELD, "response {response}, {retries} retries: {held:?}");
                }
            });
        }
    }
}

/// The same with an MRA behind the REP, which asks for the longest time.
#[test]
fn an_mra_of_the_longest_time_holds_an_endpoint_for_seconds_only() {
    Setup::default().run(|session| {
        session.lines[1].record();
        let addrs = [NOBODY, session.address(1)];
        let req = Req::new(1, QUALIFIER as u16, addrs);
        session.lines[1].inject(datagram([EVIL, station(1)], addrs, &req.mad().0));
        // Nothing is done for a host that is not there.
        session.pass(Duration::from_millis(2));
        answer_arp(session, 1);
        let cr = session.request();
        let (now, ep) = (session.now(), session.sides[1].ep);
        session.pair.ias[1].cr_accept(now, cr, Some(ep), b"").unwrap();
        let (start, evd) = (session.now(), session.sides[1].conn);
        loop {
            let frames = answer_arp(session, 1);
            for rep in messages(&frames, Cm::Rep) {
                let mra = Mad::mra(rep.transaction(), [req.id, rep.word(0)], 1, 31);
                session.lines[1].inject(datagram([EVIL, station(1)], addrs, &mra.0));
            }
            session.pass(Duration::from_millis(50));
            if session.pair.ias[1].evd_dequeue(evd).is_ok() {
                break;
            }
            let held = session.now().since(start);
            assert!(held < HELD + Duration::from_secs(10), "{held:?}");
        }
    });
}

/// Requests that the consumer rejects, of a host that says nothing more: the rejections hold no
/// slot that a good peer needs.
#[test]
fn rejections_to_a_silent_host_take_no_slots() {
    Setup::default().run(|session| {
        session.lines[1].record();
        for n in 0..40_u32 {
            let addrs = [NOBODY, session.address(1)];
            let req = Req::new(n, QUALIFIER as u16, addrs);
            session.lines[1].inject(datagram([EVIL, station(1)], addrs, &req.mad().0));
            session.pass(Duration::from_millis(5));
            answer_arp(session, 1);
            let evd = session.sides[1].cr;
            while let Ok(Event::ConnectionRequest { cr, .. }) = session.pair.ias[1].evd_dequeue(evd)
            {
                let now = session.now();
                let _ = session.pair.ias[1].cr_reject(now, cr, b"");
            }
        }
        let start = session.now();
        session.connect();
        let took = session.now().since(start);
        assert!(took < SECOND, "{took:?}");
        session.traffic(1);
    });
}

/// Bits of the communication IDs of both sides, of their PSNs and of the transaction ID that are
/// not the same in every run.
pub(crate) fn varying() -> [u32; 5] {
    let (mut ones, mut zeros) = ([0_u64; 5], [0_u64; 5]);
    for seed in 0..40 {
        Setup::seed(seed).run(|session| {
            let lines = session.lines.clone();
            lines.iter().for_each(dat_tests::session::Line::record);
            session.connect();
            let sent = [0, 1].map(|side| lines[side].recorded());
            let req = messages(&sent[0], Cm::Req).remove(0);
            let rep = messages(&sent[1], Cm::Rep).remove(0);
            let seen = [
                u64::from(req.word(0)),
                u64::from(rep.word(0)),
                u64::from(req.number(44)),
                u64::from(rep.number(20)),
                req.transaction(),
            ];
            for (n, value) in seen.into_iter().enumerate() {
                ones[n] |= value;
                zeros[n] |= !value;
            }
        });
    }
    [0, 1, 2, 3, 4].map(|n| (ones[n] & zeros[n]).count_ones())
}

#[test]
fn every_bit_of_what_a_peer_must_guess_varies() {
    let [active, passive, psn, other_psn, transaction] = varying();
    assert_eq!([active, passive, psn, other_psn], [32, 32, 24, 24], "bits of IDs and PSNs");
    assert!(transaction >= 32, "{transaction} bits of the transaction ID");
}
