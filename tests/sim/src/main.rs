//! Runs seeds of the simulation. `cargo xtask sim` starts it.
#![expect(clippy::print_stdout, reason = "a program for the command line")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use dat_sim::oracle::Violation;
use dat_sim::run::{Options, Outcome, run};
use dat_sim::script::Script;
use dat_sim::shrink::shrink;
use dat_sim::trace::Lines;

/// Simulates hosts, devices and a switch from one number.
#[derive(Debug, Parser)]
struct Args {
    /// Runs this seed
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Runs so many seeds
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Steps of a run
    #[arg(long, default_value_t = 1500)]
    ops: usize,
    /// With --seed, only the steps of these numbers, as `3,7,12-20`
    #[arg(long, requires = "seed")]
    keep: Option<String>,
    /// With --seed, prints the story of the run
    #[arg(long, requires = "seed")]
    trace: bool,
    /// With --seed, writes all frames to a capture file
    #[arg(long, requires = "seed", value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// With --seed, prints the script instead of running it
    #[arg(long, requires = "seed")]
    script: bool,
    /// Does not cut failing scripts down
    #[arg(long)]
    no_shrink: bool,
    /// Seconds after which no further seed is started
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Runs seeds from --from on until one fails or so many calls are made, and says that in one
    /// line
    #[arg(long, value_name = "CALLS", conflicts_with = "seed")]
    budget: Option<u64>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let Some(budget) = args.budget {
        return spend(budget, args.from, args.ops);
    }
    let start = Instant::now();
    let seeds = args.seed.map_or(args.from..args.from + args.seeds, |seed| seed..seed + 1);
    let (mut runs, mut calls, mut failed, mut time) = (0, 0, Vec::new(), 0);
    for seed in seeds {
        if start.elapsed() > Duration::from_secs(args.limit) {
            println!("the time is over before seed {seed}");
            break;
        }
        let mut script = Script::draw(seed, args.ops);
        if let Some(keep) = &args.keep {
            script = script.only(&numbers(keep)?);
        }
        if args.script {
            println!("{:?}", script.shape);
            script.steps.iter().for_each(|step| println!("{step}"));
            return Ok(ExitCode::SUCCESS);
        }
        let lines = if args.trace { Lines::Print } else { Lines::Hash };
        let began = Instant::now();
        let outcome = run(&script, &Options { lines, pcap: args.pcap.clone() })?;
        runs += 1;
        calls += outcome.calls;
        time += outcome.time;
        println!("{}", summary(seed, &script, &outcome, began.elapsed()));
        if outcome.violation.is_some() {
            failed.push(seed);
            report(seed, args.ops, &script, &outcome, args.no_shrink)?;
        }
    }
    let took = start.elapsed();
    println!(
        "{runs} runs, {calls} calls, {} s of virtual time in {:.1} s: {:.0} calls/s; {} failed {failed:?}",
        time / 1_000_000_000,
        took.as_secs_f64(),
        calls as f64 / took.as_secs_f64(),
        failed.len()
    );
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs seeds until one fails or so many calls are made.
fn spend(budget: u64, from: u64, ops: usize) -> Result<ExitCode> {
    let mut calls = 0;
    for seed in from.. {
        let outcome = run(&Script::draw(seed, ops), &Options::default())?;
        calls += outcome.calls;
        if let Some(Violation { rule, text }) = outcome.violation {
            // The parent reads only after the end, and a pipe holds 64 KiB.
            let text: String = text.replace(['\t', '\n'], " ").chars().take(1000).collect();
            println!("found\t{calls}\t{seed}\t{rule}\t{text}");
            return Ok(ExitCode::FAILURE);
        }
        if calls >= budget {
            break;
        }
    }
    println!("kept\t{calls}");
    Ok(ExitCode::SUCCESS)
}

fn summary(seed: u64, script: &Script, outcome: &Outcome, took: Duration) -> String {
    let shape = &script.shape;
    format!(
        "seed {seed}: hash {:016x}, {} hosts, {} links, {} calls, {} lines, {} ms of virtual time, \
         {} ms, faults {:?}",
        outcome.hash,
        shape.hosts,
        shape.links.len(),
        outcome.calls,
        outcome.lines,
        outcome.time / 1_000_000,
        took.as_millis(),
        shape.faults
    )
}

/// Says what failed, and how little of the script that needs.
fn report(seed: u64, ops: usize, script: &Script, outcome: &Outcome, whole: bool) -> Result<()> {
    let Some(violation) = &outcome.violation else { return Ok(()) };
    println!("seed {seed}: {}: {}", violation.rule, violation.text);
    if whole {
        return Ok(());
    }
    let (less, runs) = shrink(script, violation)?;
    let again = run(&less, &Options { lines: Lines::Keep, pcap: None })?;
    println!("{} of {} steps are left after {runs} runs:", less.steps.len(), script.steps.len());
    less.steps.iter().for_each(|step| println!("  {step}"));
    println!("the end of its story:");
    let from = again.kept.len().saturating_sub(40);
    again.kept.iter().skip(from).for_each(|line| println!("  {line}"));
    if let Some(violation) = &again.violation {
        println!("{}: {}", violation.rule, violation.text);
    }
    let keep: Vec<usize> = less.steps.iter().map(|step| step.number).collect();
    println!("cargo xtask sim --seed {seed} --ops {ops} --keep {} --trace", ranges(&keep));
    Ok(())
}

/// Numbers of a list such as `3,7,12-20`.
fn numbers(text: &str) -> Result<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        match part.split_once('-') {
            Some((first, last)) => all.extend(first.parse::<usize>()?..=last.parse::<usize>()?),
            None => all.push(part.parse()?),
        }
    }
    all.sort_unstable();
    Ok(all)
}

/// Such a list of numbers.
fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let text =
        parts.iter().map(
            |(first, last)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            },
        );
    text.collect::<Vec<_>>().join(",")
}
