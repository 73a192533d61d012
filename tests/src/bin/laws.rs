//! Runs the laws of `dat_tests::laws` for as long as wanted, or repeats one episode. `cargo xtask
//! laws` starts it.
#![expect(clippy::print_stdout, reason = "a program for the command line")]

use std::process::ExitCode;

use clap::Parser;
use dat_tests::laws::run::{once, run};
use dat_tests::laws::{Episode, Law, Plan, Provider};

/// Random programs against the laws of liveness and safety.
#[derive(Parser)]
struct Args {
    /// Steps of each law
    #[arg(long, default_value_t = 10_000_000)]
    steps: u64,
    /// Seed of the run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The driver over the device model, not the loop provider
    #[arg(long)]
    model: bool,
    /// Only this law: liveness or safety
    #[arg(long)]
    law: Option<String>,
    /// Failing episodes to collect
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Repeats the episode of this seed, with every call printed
    #[arg(long, value_parser = number)]
    episode: Option<u64>,
    /// Steps of that episode
    #[arg(long)]
    cut: Option<u64>,
}

/// A number, decimal or hexadecimal.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let provider = if args.model { Provider::Model } else { Provider::Loop };
    let wanted = |law: &Law| args.law.as_ref().is_none_or(|name| name == law.name());
    let mut failed = false;
    // A panic of an episode is reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    for law in Law::ALL.into_iter().filter(wanted) {
        if let Some(seed) = args.episode {
            let outcome = once(
                law,
                provider,
                Episode { seed, cut: args.cut.unwrap_or(u64::MAX), verbose: true },
            );
            println!(
                "{}: {} steps of the program, {:?}",
                law.name(),
                outcome.program,
                outcome.check
            );
            failed |= outcome.check.is_err();
            continue;
        }
        let report = run(&Plan {
            law,
            provider,
            seed: args.seed,
            steps: args.steps,
            failures: args.failures,
        });
        println!("{} on {provider:?}, seed {}: {report}", law.name(), args.seed);
        failed |= !report.failures.is_empty();
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
