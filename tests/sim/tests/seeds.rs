//! A few seeds of the simulation; `cargo xtask sim` runs more, and says how little of a failing one
//! is needed.

use std::time::{Duration, Instant};

use dat_sim::run::{Options, run};
use dat_sim::script::Script;

/// Steps of a run.
const STEPS: usize = 1000;
/// No seed is started after this time.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn what_consumers_see_is_what_they_may_see() {
    let start = Instant::now();
    for seed in 1..=40 {
        if start.elapsed() > LIMIT {
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
