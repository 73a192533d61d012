//! What honest peers do while somebody attacks, and how long it takes them.

use std::time::Duration;

use dat_core::{CloseFlag, Event};

use crate::session::{LIMIT, Session};

/// What looking at intervals adds to every measurement.
pub const LOOK: Duration = Duration::from_millis(2);
/// A connection that takes longer has failed.
const FAILED: Duration = Duration::from_secs(30);
/// Time between two looks, and between two turns of the attacker, in nanoseconds.
const TURN: u64 = 100_000;
/// What a host spends on one datagram, in nanoseconds: the instructions of the most costly hostile
/// frame of the benchmarks, three in a nanosecond. QP1 has 512 receives for those that wait.
const COST: u64 = 1_100;

/// The attacker: puts frames on the wire whenever it has its turn.
pub type Flood<'a> = &'a mut dyn FnMut(&mut Session<'_>);

/// Most frames of a flood in one turn: fewer than the dispatcher of requests holds.
const BURST: u64 = 12;

/// A flood of so many frames a second, even and not in bursts: what was due while nobody looked is
/// not made up for.
pub fn rate(
    per_second: u64,
    mut one: impl FnMut(&mut Session<'_>, u32),
) -> impl FnMut(&mut Session<'_>) {
    let (mut start, mut passed, mut sent) = (None, 0_u64, 0_u32);
    move |session| {
        let now = session.now();
        let elapsed = now.since(*start.get_or_insert(now)).as_nanos() as u64;
        let due = elapsed * per_second / 1_000_000_000 + 1;
        for _ in 0..due.saturating_sub(passed).min(BURST) {
            one(session, sent);
            sent = sent.wrapping_add(1);
        }
        passed = due;
    }
}

/// Lets a turn pass, and as much more as the victim's datagrams of it take.
fn turn(session: &mut Session<'_>) {
    let handled = |session: &Session<'_>| session.pair.ias[1].cm_counters();
    let before = handled(session);
    session.pair.turn_by(TURN);
    let after = handled(session);
    // Taken in, and replaced in the waiting room before that.
    let frames = (after.received - before.received) + (after.gave_way - before.gave_way);
    session.pair.world.turn_by(COST * frames);
}

/// Lets time pass while the attacker goes on, and rejects its requests.
pub fn pass(session: &mut Session<'_>, time: Duration, flood: Flood<'_>) {
    let end = session.now() + time;
    while session.now() < end {
        flood(session);
        turn(session);
        answer_requests(session, |_, _| {});
    }
}

/// Connects a new Endpoint of side 0 with one of side 1 under attack, and ends the connection; the
/// time until both were established. The consumer of side 1 rejects every request that is not this
/// one.
///
/// # Panics
/// If the connection fails, or an event comes that is none of it.
pub fn connect(session: &mut Session<'_>, flood: Flood<'_>) -> Duration {
    let eps = [session.endpoint(0), session.endpoint(1)];
    let evds = [session.sides[0].conn, session.sides[1].conn];
    let start = session.now();
    session.ask(eps[0], b"good", LIMIT);
    let mut up = [false; 2];
    while up != [true; 2] {
        flood(session);
        let took = session.now().since(start);
        assert!(took < FAILED, "no connection within {took:?}");
        turn(session);
        answer_requests(session, |session, cr| {
            let now = session.now();
            session.pair.ias[1].cr_accept(now, cr, Some(eps[1]), b"").unwrap();
        });
        for side in 0..2 {
            while let Ok(event) = session.pair.ias[side].evd_dequeue(evds[side]) {
                assert_eq!(event, Event::Established(eps[side]), "side {side}");
                up[side] = true;
            }
        }
    }
    let took = session.now().since(start);
    for (side, ep) in eps.into_iter().enumerate() {
        let now = session.now();
        let _ = session.pair.ias[side].ep_disconnect(now, ep, CloseFlag::Abrupt);
    }
    pass(session, Duration::from_millis(5), flood);
    for (side, ep) in eps.into_iter().enumerate() {
        while session.pair.ias[side].evd_dequeue(evds[side]).is_ok() {}
        let now = session.now();
        session.pair.ias[side].ep_free(now, ep).unwrap();
    }
    took
}

/// Takes the requests at both sides: the good one is for `good`, the others are rejected.
fn answer_requests(
    session: &mut Session<'_>,
    mut good: impl FnMut(&mut Session<'_>, dat_core::Cr),
) {
    for side in 0..2 {
        let evd = session.sides[side].cr;
        while let Ok(event) = session.pair.ias[side].evd_dequeue(evd) {
            let (Event::ConnectionRequest { cr, .. } | Event::UdConnectionRequest { cr, .. }) =
                event
            else {
                panic!("{event:?}")
            };
            let param = session.pair.ias[side].cr_query(cr);
            if side == 1 && param.is_ok_and(|param| param.private_data.starts_with(b"good")) {
                good(session, cr);
            } else {
                let now = session.now();
                let _ = session.pair.ias[side].cr_reject(now, cr, b"");
            }
        }
    }
}
