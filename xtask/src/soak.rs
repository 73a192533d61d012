//! `cargo xtask soak`: connections without end; nothing may grow.

use anyhow::{Result, ensure};
use dat_lab::run;

const CHART: &str = "docs/generated/soak.svg";

/// Options of the verb.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Hours to run for
    #[arg(long, default_value_t = 0)]
    hours: u64,
    /// Minutes to run for, beside the hours; 1 if neither is given
    #[arg(long)]
    minutes: Option<u64>,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the samples into docs/generated/soak.svg
    #[arg(long)]
    bless: bool,
}

pub(crate) fn soak(options: &Options) -> Result<()> {
    let mut command = run::cargo();
    command.args(["run", "--release", "-p", "dat-tests", "--bin", "soak", "--"]);
    command.arg(format!("--hours={}", options.hours));
    command.arg(format!("--seed={}", options.seed));
    if let Some(minutes) = options.minutes {
        command.arg(format!("--minutes={minutes}"));
    }
    if options.bless {
        command.args(["--svg", CHART]).current_dir(run::root());
    }
    println!("$ {}", run::shown(&command));
    let status = command.status()?;
    ensure!(status.success(), "something grows, or a connection went wrong");
    Ok(())
}
