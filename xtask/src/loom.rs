//! `cargo xtask loom`: all interleavings of the threads that share an adapter.
//!
//! With `--cfg loom` the words that threads share are loom's, see `dat-core/src/types/atomic.rs`
//! and `vfio-host/dapl/src/sync.rs`. That is another build, so it has a folder of its own.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use dat_lab::run;

use crate::suite::Sum;

/// What tries interleavings. The tests of `vfio-host` bring their own device and are loom's in
/// every build.
const SUITES: [&[&str]; 4] = [
    &["-p", "dat-core", "--lib", "interleavings::"],
    &["-p", "dat-core", "--features", "testing", "--test", "interleavings"],
    &["-p", "dapldat", "--test", "interleavings"],
    &["-p", "vfio-host", "--test", "wakeup"],
];

pub(crate) fn loom() -> Result<()> {
    run_suites(&SUITES)
}

/// The words by themselves, in seconds: for `cargo xtask test`.
pub(crate) fn short() -> Result<()> {
    run_suites(&SUITES[..1])
}

fn run_suites(suites: &[&[&str]]) -> Result<()> {
    let mut passed = 0;
    for suite in suites {
        let start = Instant::now();
        let sum = Sum::of(&run::capture(test(suite)?)?);
        println!("  {} tests, {} s", sum.passed, start.elapsed().as_secs());
        passed += sum.passed;
    }
    ensure!(passed > 0, "no test ran");
    Ok(())
}

fn test(suite: &[&str]) -> Result<Command> {
    let mut cargo = run::cargo();
    cargo
        .args(["test", "--quiet"])
        .args(suite)
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", run::target()?.join("loom"));
    Ok(cargo)
}
