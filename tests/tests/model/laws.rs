//! The laws of `dat_tests::laws`: random programs, the same each time. `cargo xtask laws` runs more
//! of them; with `LAWS_PERCENT=400` this file runs four times as many, for `cargo xtask mutants`:
//! some orders are wrong once in a million steps.

use dat_tests::laws::run::run;
use dat_tests::laws::{Law, Plan, Provider};

/// Seed of the runs of this file.
const SEED: u64 = 20;

#[track_caller]
fn holds(law: Law, provider: Provider, steps: u64) {
    let percent = std::env::var("LAWS_PERCENT").unwrap_or_else(|_| "100".into());
    let percent: Result<u64, _> = percent.parse();
    assert!(matches!(percent, Ok(1..)), "LAWS_PERCENT: {percent:?}");
    let steps = steps * percent.unwrap_or(100) / 100;
    let report = run(&Plan { law, provider, seed: SEED, steps, failures: 1 });
    eprintln!("{} on {provider:?}, seed {SEED}: {report}", law.name());
    assert!(report.failures.is_empty(), "{report}");
    assert!(report.steps >= steps, "{report}");
}

#[test]
fn liveness_on_the_loop_provider() {
    holds(Law::Liveness, Provider::Loop, 900_000);
}

#[test]
fn liveness_on_the_model() {
    holds(Law::Liveness, Provider::Model, 100_000);
}

#[test]
fn safety_on_the_loop_provider() {
    holds(Law::Safety, Provider::Loop, 900_000);
}

#[test]
fn safety_on_the_model() {
    holds(Law::Safety, Provider::Model, 100_000);
}
