//! A soak for as long as wanted. `cargo xtask soak` starts it.
#![expect(clippy::print_stdout, reason = "a program for the command line")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use dat_tests::soak::{Plan, chart, entries, judge, lossy, run, unplug};

/// Connections without end, under faults; what this process and the devices hold must not grow.
#[derive(Parser)]
struct Args {
    /// Hours to run for
    #[arg(long, default_value_t = 0)]
    hours: u64,
    /// Minutes to run for, beside the hours; 1 if neither is given
    #[arg(long)]
    minutes: Option<u64>,
    /// Seconds to run for, beside both
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes a chart of the samples to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Instead, lets a device leave the bus at so many random points in traffic
    #[arg(long, value_name = "POINTS")]
    unplug: Option<u64>,
    /// Instead, moves so many MiB each way over a wire with 15 % of each fault
    #[arg(long, value_name = "MIB")]
    lossy: Option<u64>,
    /// Instead, lets a device write so many random and mutated entries into completion and event
    /// queues
    #[arg(long, value_name = "COUNT")]
    entries: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(points) = args.unplug {
        println!("{}", unplug::run(points, args.seed));
    }
    if let Some(mib) = args.lossy {
        println!("{}", lossy::run(mib << 20, args.seed));
    }
    if let Some(count) = args.entries {
        println!("{}", entries::run(count, args.seed));
    }
    if args.unplug.or(args.lossy).or(args.entries).is_some() {
        return ExitCode::SUCCESS;
    }
    let short = u64::from(args.hours == 0 && args.seconds == 0);
    let minutes = 60 * args.hours + args.minutes.unwrap_or(short);
    let time = Duration::from_secs(60 * minutes + args.seconds);
    let report = run(&Plan { time, seed: args.seed });
    println!("{report}");
    if let Some(path) = args.svg {
        if let Err(error) = std::fs::write(&path, chart::svg(&report)) {
            println!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    let faults = judge::faults(&report);
    for fault in &faults {
        println!("GROWS: {fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
