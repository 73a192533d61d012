//! Connections over the models in this process, under virtual time: each is made, moves data both
//! ways and ends, and nothing of it is left.

use std::time::{Duration, Instant};

use dat_core::{CloseFlag, Ep, EpState, MemPriv, RmrTriplet};
use mlx5_model::Verdict;
use mlx5_model::faults::{Script, When};
use mlx5_model::wire::impair::Rates;

use super::Report;
use crate::laws::rng::Rng;
use crate::session::{Session, Setup};

/// What both adapters hold together: bytes of the arenas, pages of the firmware, and what
/// [`Hca::live`](mlx5_model::Hca::live) counts.
pub type Held = [u64; 5];

/// Of 100 connections, so many meet a fault.
const FAULTS: usize = 15;
/// Before that many connections an adapter may still take what it keeps.
const WARM: u64 = 4;
/// Nobody has that context.
const NOBODY: u32 = 0x00de_ad00;

/// Churns connections until a time.
///
/// # Panics
/// If a transfer or an event is not as it should be, or a connection leaves something behind.
#[must_use]
pub fn round(seed: u64, until: Instant, report: &mut Report) -> Held {
    Setup::seed(seed).run(|session| {
        let mut rng = Rng::new(seed);
        let mut first = None;
        for n in 0.. {
            connection(session, &mut rng, n as u32, report);
            let held = held(session);
            if n == WARM {
                first = Some(held);
            } else if let Some(first) = first {
                assert_eq!(held, first, "seed {seed}: connection {n} left something behind");
            }
            if n >= WARM && Instant::now() >= until {
                return held;
            }
        }
        unreachable!()
    })
}

fn held(session: &Session<'_>) -> Held {
    let mut sum = Held::default();
    for slot in session.pair.slots {
        let [queues, cqs, keys] = slot.hca().live().map(|count| count as u64);
        let own = [slot.in_use() as u64, slot.views().pages_out() as u64, queues, cqs, keys];
        sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
    }
    sum
}

/// One connection, with a key and a fault of its own.
fn connection(session: &mut Session<'_>, rng: &mut Rng, n: u32, report: &mut Report) {
    let fault = rng.percent(FAULTS).then(|| strike(session, rng));
    session.connect();
    session.traffic(n);
    let extra = session.register(1, MemPriv::ALL);
    end(session, rng);
    session.pair.ias[1].lmr_free(extra.lmr).unwrap();
    if let Some(mend) = fault {
        mend(session);
        report.faults += 1;
    }
    renew(session, rng);
    report.connections += 1;
}

/// Ends the connection in one of the ways there are.
fn end(session: &mut Session<'_>, rng: &mut Rng) {
    let side = rng.below(2);
    match rng.below(4) {
        0 => session.disconnect(side, CloseFlag::Abrupt),
        1 => {
            // The peer refuses it, and both see the connection break.
            let to = RmrTriplet { addr: 0, len: 64, context: NOBODY };
            session.recv(1 - side, 0, 64, 1);
            session.write_to(side, 0, 64, to, 1);
        }
        _ => session.disconnect(side, CloseFlag::Graceful),
    }
    session.ended();
    for side in 0..2 {
        let own = &session.sides[side];
        for evd in [own.recv, own.request, session.pair.ias[side].async_evd()] {
            while session.pair.ias[side].evd_dequeue(evd).is_ok() {}
        }
    }
}

/// Resets the Endpoints for the next connection, or frees them for new ones.
fn renew(session: &mut Session<'_>, rng: &mut Rng) {
    for side in 0..2 {
        let ep = session.sides[side].ep;
        if rng.percent(50) {
            ready(session, side, |session| session.pair.ias[side].ep_reset(ep));
            assert_eq!(session.state(side), EpState::Unconnected);
        } else {
            let now = session.now();
            ready(session, side, |session| session.pair.ias[side].ep_free(now, ep));
            let new: Ep = session.endpoint(side);
            session.sides[side].ep = new;
        }
    }
}

/// Makes a call that must succeed.
fn ready(
    session: &mut Session<'_>,
    side: usize,
    call: impl FnOnce(&mut Session<'_>) -> Result<(), dat_core::Error>,
) {
    if let Err(error) = call(session) {
        panic!("side {side}: {error}");
    }
}

/// Ends a fault.
type Mend = Box<dyn FnOnce(&mut Session<'_>)>;

/// Lets something go wrong for the time of one connection.
fn strike(session: &mut Session<'_>, rng: &mut Rng) -> Mend {
    let side = rng.below(2);
    match rng.below(4) {
        0 => {
            let rates = Rates { drop: 10, duplicate: 10, reorder: 10, ..Rates::default() };
            session.lines.iter().for_each(|line| line.rates(rates));
            Box::new(|session| {
                session.lines.iter().for_each(|line| line.rates(Rates::default()));
            })
        }
        1 => {
            let count = i32::try_from(1 + rng.below(8)).unwrap();
            session.pair.slots[side].hca().request_pages(count);
            Box::new(move |session| {
                session.pass(Duration::from_millis(2));
                session.pair.slots[side].hca().request_pages(-count);
                session.pass(Duration::from_millis(2));
            })
        }
        kind => {
            let verdict = if kind == 2 { Verdict::Late(3_000_000) } else { Verdict::NoEvent };
            let mut hca = session.pair.slots[side].hca();
            let script = Script::new().on(When::From(hca.commands()), verdict);
            hca.set_command_hook(Some(Box::new(script)));
            Box::new(move |session| session.pair.slots[side].hca().set_command_hook(None))
        }
    }
}
