//! Random DAT calls against a reference model.
//!
//! Two adapters on one loop fabric get calls in any order, with handles and arguments that are
//! mostly right and often not: stale, foreign or invented handles, memory outside its region,
//! missing rights, full queues, undefined flags. A small model of the table of objects, written
//! from the manual pages ([`model`]), says what each call must answer and which events may come;
//! after every call the state of all Endpoints is compared, and at idle points that nothing is
//! pending: every cookie came back, every connection ended with one event, no object is left.
//!
//! Events that come by themselves (a peer's answer, the end of a drain) are allowed where the model
//! knows a reason for them, and demanded when both sides have been advanced until they are idle.
//! Not covered: threads, a device that fails or lies, lost datagrams of the connection manager,
//! upcalls, contents of memory; those have tests of their own. Fast registrations are never
//! suppressed: of a silent end the model would know too little.
#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::too_many_arguments,
    clippy::wildcard_enum_match_arm,
    reason = "a test"
)]

mod contexts;
mod data;
mod datagrams;
mod endpoint;
mod events;
mod fast;
mod found;
mod lookups;
mod memory;
mod model;
mod notify;
mod passive;
mod pick;
mod rng;
mod shared;
mod verdict;
mod watch;
mod world;

use std::time::Duration;

use world::{Done, Seen, World};

/// One call of the consumer, or one turn of the drive, on either side.
fn step(world: &mut World) -> Done {
    let side = world.rng.below(2);
    if world.restless >= 8 {
        return world.drain();
    }
    if !world.sides[side].crs.is_empty() && world.rng.percent(15) {
        return world.cr_accept(side);
    }
    match world.rng.below(1000) {
        0..400 | 716..730 | 794..798 => world.post(side),
        400..508 => world.reap(side),
        508..520 => world.srq_post_recv(side),
        520..570 => world.advance(side).map(|_| ()),
        570..585 => {
            world.now = world.now + Duration::from_micros(10);
            world.run_until_idle()
        }
        585..595 => world.drain(),
        595 => world.pause(),
        596..600 => world.srq(side),
        600..640 => world.ep_connect(side),
        640..700 => world.cr_accept(side),
        700..706 => {
            let cr = world.pick_cr(side);
            world.cr_reject(side, cr)
        }
        706..716 if world.calm > 1 && world.rng.percent(70) => world.post(side),
        706..716 => world.ep_disconnect(side),
        730..765 => world.ep_reset(side),
        765..785 => world.ep_create(side),
        785..790 => world.datagrams(side),
        790..794 => {
            let ep = world.pick_ep(side);
            world.ep_free(side, ep)
        }
        798..815 => world.ep_modify(side),
        815..827 => world.psp_create(side),
        827..833 => world.rsp_create(side),
        833..836 => world.csp_create(side),
        836..840 => world.cr_handoff(side),
        840..845 => {
            let point = world.pick_point(side);
            world.point_free(side, point)
        }
        845..855 => world.pz_create(side),
        855..860 => {
            let pz = world.pick_pz(side);
            world.pz_free(side, pz)
        }
        860..870 => world.lmr_create(side),
        870..880 => world.fast(side),
        880..883 => {
            let lmr = world.pick_lmr(side);
            world.lmr_free(side, lmr)
        }
        883..894 => world.rmr_create(side),
        894..898 => {
            let rmr = world.pick_rmr(side);
            world.rmr_free(side, rmr)
        }
        898..918 => world.bind(side),
        918..930 => world.evd_create(side),
        930..933 => {
            let evd = world.pick_evd(side);
            world.evd_free(side, evd)
        }
        933..948 => world.post_se(side),
        948..956 => world.move_reaper(side),
        956..966 => world.move_poster(side),
        966..972 => world.ring(side),
        972..975 => world.early_close(side),
        975..979 => world.contexts(side),
        979 => world.watch(side),
        980..990 => world.notify(side),
        990 => world.set_async_evd(side),
        991..995 => world.watch(side),
        _ => world.queries(side),
    }
}

/// Runs one seed; on failure says at which call, and why.
fn run(seed: u64, calls: u64, log: bool) -> Result<Seen, String> {
    let mut world = World::new(seed, log);
    for call in 0..calls {
        let mut done = step(&mut world);
        for side in 0..2 {
            done = done.and_then(|()| world.audit_device(side));
            done = done.and_then(|()| {
                if call % 64 == 0 { world.audit_all(side) } else { world.audit(side) }
            });
        }
        done.map_err(|text| tell(&world, seed, call, &text))?;
    }
    world.finish(seed % 3 != 0).map_err(|text| tell(&world, seed, calls, &text))?;
    world.seen.calls = calls;
    Ok(world.seen)
}

fn tell(world: &World, seed: u64, call: u64, text: &str) -> String {
    let log = world.log.iter().flatten().map(|line| format!("  {line}\n")).collect::<String>();
    format!("seed {seed}, call {call}: {text}\n{log}")
}

/// Names the seed should dat-core itself panic.
struct Announce(u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

/// Runs many seeds and adds up what they saw.
fn runs(seeds: std::ops::Range<u64>, calls: u64) -> Vec<Seen> {
    seeds
        .map(|seed| {
            let _announce = Announce(seed);
            match run(seed, calls, false) {
                Ok(seen) => seen,
                // The same again, with the calls that led there.
                Err(text) => panic!("{}", run(seed, calls, true).err().unwrap_or(text)),
            }
        })
        .collect()
}

/// Calls of each of a hundred seeds: a million in all, and ten million where the compiler optimizes
/// (`cargo xtask calls`).
const CALLS: u64 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };

#[test]
fn random_calls_answer_as_the_model_does() {
    let seen = runs(0..100, CALLS);
    let sum = |field: fn(&Seen) -> u64| seen.iter().map(field).sum::<u64>();
    assert_eq!(sum(|s| s.calls), 100 * CALLS);
    let mut kinds = [0; 9];
    seen.iter().for_each(|s| (0..9).for_each(|k| kinds[k] += s.kinds[k]));
    eprintln!("kinds {kinds:?}");
    // The runs are not empty.
    for (what, count, least) in [
        ("carried out", sum(|s| s.carried_out), 100_000),
        ("refused", sum(|s| s.refused), 100_000),
        ("established", sum(|s| s.established), 1000),
        ("terminal", sum(|s| s.terminal), 1000),
        ("completed", sum(|s| s.completed), 10_000),
        ("flushed", sum(|s| s.flushed), 1000),
        ("failed", sum(|s| s.failed), 100),
        ("binds", sum(|s| s.binds), 100),
        ("closes", sum(|s| s.closes), 200),
        ("hints", sum(|s| s.hints), 100),
        ("waits", sum(|s| s.waits), 200),
        ("handoffs", sum(|s| s.handoffs), 50),
        ("from common queues", sum(|s| s.shared), 400),
        ("ended on common queues", sum(|s| s.ended), 100),
        ("atomics", sum(|s| s.atomics), 100),
        ("immediates", sum(|s| s.immediates), 100),
        ("closed by a peer", sum(|s| s.closed), 10),
        ("read to an RMR", sum(|s| s.reads_to_rmr), 100),
        ("watermarks", sum(|s| s.warned), 100),
        ("overrun", sum(|s| s.overrun), 10),
        ("receives held", sum(|s| s.held), 100),
        ("counters", sum(|s| s.counted), 500),
        ("registered by request", sum(|s| s.registered), 50),
        ("closed by request", sum(|s| s.invalidated), 15),
        ("service points found", sum(|s| s.found), 30),
        ("datagrams", sum(|s| s.datagrams), 200),
        ("connected as another", sum(|s| s.dup), 50),
        ("connected to an address", sum(|s| s.common), 100),
    ] {
        eprintln!("{what}: {count}");
        assert!(count >= least, "{what}: {count}");
    }
}
