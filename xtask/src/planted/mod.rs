//! `cargo xtask sim --planted`: bugs that drivers really had, and whether the simulation finds them.
//!
//! Each file of `tests/sim/planted` is a bug. A copy of the workspace in `target/planted` gets all
//! of them, each behind a switch, and is built once; then each is switched on, and seeds run until
//! a rule does not hold or so many calls are made. `--bless` writes docs/generated/planted.md.

mod bugs;

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use dat_lab::run;

use self::bugs::Bug;
use crate::mutants::copy::{add_switch, files, sync};

/// Where the bugs are.
const FOLDER: &str = "tests/sim/planted";
const PAGE: &str = "docs/generated/planted.md";
/// A run that takes longer does not end.
const LONGEST: Duration = Duration::from_secs(600);

/// Options of the verb, behind `--planted`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
pub(crate) struct Options {
    /// Only those whose names begin so
    #[arg(long, value_name = "NAME", conflicts_with = "bless")]
    only: Option<String>,
    /// Calls of consumers for each of them
    #[arg(long, default_value_t = 100_000)]
    ops: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Runs at a time
    #[arg(long, default_value_t = thread::available_parallelism().map_or(1, std::num::NonZero::get))]
    jobs: usize,
    /// Write docs/generated/planted.md
    #[arg(long)]
    bless: bool,
}

/// What came of a bug.
#[derive(Clone, Debug)]
struct Found {
    calls: u64,
    seed: String,
    rule: String,
    text: String,
}

pub(crate) fn planted(options: &Options) -> Result<()> {
    let root = run::root();
    let bugs = bugs::read(&root.join(FOLDER))?;
    let program = build(&root, &bugs)?;
    let begin = options.only.as_deref().unwrap_or_default();
    let chosen: Vec<(usize, &Bug)> =
        (1..).zip(&bugs).filter(|(_, bug)| bug.name.starts_with(begin)).collect();
    ensure!(!chosen.is_empty(), "no bug has a name that begins with {begin}");
    // The copy without any bug is the original: nothing may be found there.
    if let Some(Found { seed, rule, text, .. }) = try_one(&program, 0, options)? {
        bail!("without any bug, seed {seed}: {rule}: {text}");
    }
    let found = try_all(&program, &chosen, options)?;
    let page = page(&chosen, &found, options);
    print!("{page}");
    if options.bless {
        fs::write(root.join(PAGE), page)?;
        println!("wrote {PAGE}");
    }
    let missed: Vec<&str> = { chosen.iter().zip(&found) }
        .filter(|(_, found)| found.is_none())
        .map(|((_, bug), _)| bug.name.as_str())
        .collect();
    ensure!(missed.is_empty(), "not found: {}", missed.join(", "));
    Ok(())
}

/// Builds the simulation with all bugs in it; the program.
fn build(root: &Path, bugs: &[Bug]) -> Result<PathBuf> {
    let folder = run::target()?.join("planted");
    let (tree, target) = (folder.join("tree"), folder.join("build"));
    let mut files = files(root)?;
    bugs::splice(bugs, &mut files)?;
    for folder in bugs::switches() {
        add_switch(&mut files, folder)?;
    }
    sync(&tree, &files)?;
    let mut cargo = run::cargo();
    cargo.args(["build", "--quiet", "--profile", "sim", "-p", "dat-sim", "--bin", "sim"]);
    cargo.current_dir(&tree).env("CARGO_TARGET_DIR", &target);
    // Where a bug is on, some code is not used.
    cargo.env("RUSTFLAGS", "--cap-lints=allow");
    run::capture(cargo)?;
    Ok(target.join("sim/sim"))
}

/// Tries all, several at a time.
fn try_all(
    program: &Path,
    bugs: &[(usize, &Bug)],
    options: &Options,
) -> Result<Vec<Option<Found>>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![None; bugs.len()]);
    let worker = || -> Result<()> {
        while let Some(&(number, bug)) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = try_one(program, number, options)?;
            match &found {
                Some(Found { calls, rule, .. }) => {
                    println!("  {}: after {calls} calls by `{rule}`", bug.name);
                }
                None => println!("  {}: not found", bug.name),
            }
            let place = bugs.iter().position(|(other, _)| *other == number);
            let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(result) = place.and_then(|place| results.get_mut(place)) {
                *result = found;
            }
        }
        Ok(())
    };
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..options.jobs.max(1)).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok(())
    })?;
    Ok(results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Switches one bug on and runs seeds until a rule does not hold. Bug 0 is none.
fn try_one(program: &Path, number: usize, options: &Options) -> Result<Option<Found>> {
    let mut command = Command::new(program);
    command.env("MUTANT", number.to_string()).arg("--budget").arg(options.ops.to_string());
    command.arg("--from").arg(options.from.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("{}", program.display()))?;
    let mut output = child.stdout.take().context("the search has no output")?;
    // Read while it runs: a pipe that is full stops it.
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).map(|_| bytes)
    });
    let begin = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if begin.elapsed() < LONGEST => thread::sleep(Duration::from_millis(20)),
            None => {
                child.kill()?;
                child.wait()?;
                break None;
            }
        }
    };
    let out = reader.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    let text = String::from_utf8_lossy(&out);
    let last = text.lines().last().unwrap_or_default();
    let mut words = last.split('\t');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (kind, calls) = (word(), word().parse().unwrap_or(0));
    match (status, kind.as_str()) {
        (_, "found") => Ok(Some(Found { calls, seed: word(), rule: word(), text: word() })),
        (Some(status), "kept") if status.success() => Ok(None),
        (status, _) => {
            let rule = if status.is_none() { "end" } else { "abort" }.to_owned();
            Ok(Some(Found { calls, seed: word(), rule, text: last.to_owned() }))
        }
    }
}

/// The table.
fn page(bugs: &[(usize, &Bug)], found: &[Option<Found>], options: &Options) -> String {
    let mut calls: Vec<u64> = found.iter().flatten().map(|found| found.calls).collect();
    calls.sort_unstable();
    let middle = calls.get(calls.len() / 2).copied().unwrap_or(0);
    let most = calls.last().copied().unwrap_or(0);
    let mut page = format!(
        "# Planted bugs\n\nMade by `cargo xtask sim --planted --bless`. Do not edit.\n\n\
         Bugs that drivers had, put into a copy of the driver and of the device model one at a \
         time. The simulation runs seeds from {} on until a rule does not hold, for {} calls of \
         consumers at the most. What each is, and who had it, is in `{FOLDER}`.\n\n\
         {} of {} are found; after {middle} calls by the median, after {most} at the most.\n\n\
         | bug | effect | found after calls | by rule | seed |\n|---|---|---|---|---|\n",
        options.from,
        options.ops,
        calls.len(),
        bugs.len(),
    );
    for ((_, bug), found) in bugs.iter().zip(found) {
        let effect = bug.effect.trim().replace('\n', " ").replace('|', "/");
        let _ = match found {
            Some(Found { calls, seed, rule, .. }) => {
                writeln!(page, "| {} | {effect} | {calls} | `{rule}` | {seed} |", bug.name)
            }
            None => writeln!(page, "| {} | {effect} | not found | | |", bug.name),
        };
    }
    page
}
