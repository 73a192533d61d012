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
    /// Instead, let a device leave the bus at so many random points in traffic
    #[arg(long, value_name = "POINTS", conflicts_with_all = ["hours", "minutes", "bless"])]
    unplug: Option<u64>,
    /// Instead, move so many MiB each way over a wire that loses, corrupts, reorders and doubles
    /// 15 % of the frames each. A connection whose seven retries run out is made anew, and goes on
    /// with the first message that no completion has confirmed
    #[arg(long, value_name = "MIB", conflicts_with_all = ["hours", "minutes", "bless"])]
    lossy: Option<u64>,
    /// Instead, let a device write so many random and mutated entries into completion and event
    /// queues
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["hours", "minutes", "bless"])]
    entries: Option<u64>,
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
    let others =
        [("unplug", options.unplug), ("lossy", options.lossy), ("entries", options.entries)];
    for (name, value) in others {
        command.args(value.map(|value| format!("--{name}={value}")));
    }
    if options.bless {
        command.args(["--svg", CHART]).current_dir(run::root());
    }
    println!("$ {}", run::shown(&command));
    let status = command.status()?;
    ensure!(status.success(), "something grows, or a connection went wrong");
    Ok(())
}
