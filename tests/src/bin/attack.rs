//! A random attacker beside two honest peers, for as long as wanted. `cargo xtask attack` starts it.
#![expect(clippy::print_stdout, reason = "a program for the command line")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use dat_tests::attack::storm::{EPISODE, episode};

/// Random attacks on the wire. Each episode has a seed of its own, the first that of the run.
#[derive(Parser)]
struct Args {
    /// Minutes to attack for
    #[arg(long)]
    minutes: Option<u64>,
    /// Frames to attack with
    #[arg(long, default_value_t = 10 * EPISODE)]
    frames: u64,
    /// Seed of the first episode
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let (start, mut left) = (Instant::now(), args.frames);
    for seed in args.seed.. {
        let over = match args.minutes {
            Some(minutes) => start.elapsed() >= Duration::from_secs(60 * minutes),
            None => left == 0,
        };
        if over {
            break;
        }
        let frames = if args.minutes.is_some() { EPISODE } else { left.min(EPISODE) };
        match catch_unwind(AssertUnwindSafe(|| episode(seed, frames))) {
            Ok(report) => println!("seed {seed}: {report}"),
            Err(_) => {
                println!(
                    "seed {seed}: failed; `cargo xtask attack --seed {seed} --frames {frames}`"
                );
                return ExitCode::FAILURE;
            }
        }
        left -= frames.min(left);
    }
    ExitCode::SUCCESS
}
