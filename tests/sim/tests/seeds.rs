//! Seeds of the simulation; `cargo xtask sim` runs more, faster, and says how little of a failing
//! one is needed.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use dat_sim::run::{Options, run};
use dat_sim::script::Script;

/// How many.
const SEEDS: u64 = 200;
/// Steps of a run: all seeds together take a minute or two, as tests are optimized.
const STEPS: usize = 600;

#[test]
fn what_consumers_see_is_what_they_may_see() {
    let next = AtomicU64::new(1);
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > SEEDS {
                break;
            }
            let outcome = run(&Script::draw(seed, STEPS), &Options::default()).unwrap();
            if let Some(violation) = outcome.violation {
                panic!(
                    "`cargo xtask sim --seed {seed} --ops {STEPS}`: {}: {}",
                    violation.rule, violation.text
                );
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(worker);
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 8, 11] {
        let hash = || run(&Script::draw(seed, STEPS), &Options::default()).unwrap().hash;
        assert_eq!(hash(), hash(), "seed {seed}");
    }
    let hash = |seed| run(&Script::draw(seed, 50), &Options::default()).unwrap().hash;
    assert_ne!(hash(1), hash(2));
}
