//! `cargo xtask switches`: the driver on the model with every open fact of silicon set otherwise.
//!
//! Each setting alone, all pairs of the ten likeliest, random sets from a seed, and every kind of
//! card. A run is that of the suites of connections, data, windows, losses and teardown. It passes,
//! or the driver names the fact that it cannot work with. `--bless` writes
//! docs/generated/switches.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;
use dat_lab::run;

const PAGE: &str = "docs/generated/switches.md";
const HEAD: &str = "\
# Open facts of silicon, each both ways

Made by `cargo xtask switches --bless`. Do not edit.

What public sources leave open about the cards is a switch of the model (`mlx5-model --facts list` says what each is, and
which source leaves it open). Each run below is one of the suites of connections, data, windows, losses and teardown, on two
models with that setting. Not run, because nothing could work: sets in which neither the checksum nor the kind of the header
says what stands before a datagram, and sets in which a command waits for pages that no event asks for.

";
/// Modules of the test program `model` that a run consists of.
const SUITES: &[&str] =
    &["dat_connect", "dat_extensions", "dat_memory", "dat_transfer", "dat_break"];
/// The ten likeliest to be met: all pairs of them run.
const LIKELIEST: &[&str] = &[
    "link=after-20s",
    "port-admin=down",
    "shortage=stall",
    "health=stale",
    "qp-ts-format=1",
    "mac=zero",
    "grh-checksum=rewritten",
    "cqe-l3-type=absent",
    "umr-entry-bits=required",
    "umr-fence=1",
];
/// Settings that this driver does not work with, and what it says.
const REFUSED: &[(&str, &str)] = &[
    ("cqe-version=0", "completions do not carry the caller's index"),
    ("port-type=infiniband", "LINK_TYPE"),
    ("roce-version=1", "roce_version"),
    ("umr-indirect-mkey-disabled=1", "umr_indirect_mkey_disabled"),
];
/// Settings that exclude each other: with both nothing can work, and neither is to blame. Something
/// has to say which header stands before a datagram; a firmware that holds a command back until it
/// has pages has to ask for them by an event.
const EXCLUDE: &[(&str, &str)] =
    &[("grh-checksum=", "cqe-l3-type="), ("shortage=stall", "page-event=polled")];
/// Longest run: it ends in a few seconds.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seed of the random sets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Random sets
    #[arg(long, default_value_t = 200)]
    random: usize,
    /// Only the settings that begin so, each alone
    #[arg(long, value_name = "FACT")]
    only: Option<String>,
    /// Write docs/generated/switches.md
    #[arg(long, conflicts_with = "only")]
    bless: bool,
}

/// One run: a kind of card, or a set of settings.
#[derive(Clone, Debug)]
struct Run {
    kind: &'static str,
    card: Option<String>,
    facts: Vec<String>,
}

impl Run {
    fn name(&self) -> String {
        self.card.clone().unwrap_or_else(|| self.facts.join(","))
    }

    /// What the driver may say if it cannot work with it.
    fn refusals(&self) -> Vec<&'static str> {
        let refused = REFUSED.iter().filter(|(fact, _)| self.facts.iter().any(|own| own == fact));
        refused.map(|(_, words)| *words).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passes,
    /// Every failure is a refusal, with these words.
    Named(&'static str),
    Fails(String),
}

pub(crate) fn switches(options: &Options) -> Result<()> {
    let start = Instant::now();
    let program = build()?;
    let facts = facts()?;
    let runs = match &options.only {
        Some(only) => {
            let all = alone(&facts).into_iter();
            all.filter(|run| run.name().starts_with(only)).collect()
        }
        None => runs(&facts, &cards()?, options),
    };
    ensure!(!runs.is_empty(), "nothing to run");
    println!("  {} runs", runs.len());
    let outcomes = run_all(&program, &runs)?;
    let table = page(&runs, &outcomes, options);
    let failed: Vec<_> = runs.iter().zip(&outcomes).filter(|(_, o)| is_failure(o)).collect();
    for (run, outcome) in &failed {
        println!("  {} {}: {outcome:?}", run.kind, run.name());
    }
    println!("  {} of {} failed, {} s", failed.len(), runs.len(), start.elapsed().as_secs());
    if options.bless {
        fs::write(run::root().join(PAGE), table)?;
        println!("wrote {PAGE}");
    }
    ensure!(failed.is_empty(), "{} runs failed", failed.len());
    Ok(())
}

const fn is_failure(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Fails(_))
}

/// Builds the test program and returns its path.
fn build() -> Result<PathBuf> {
    let mut cargo = run::cargo();
    cargo.args(["test", "--no-run", "--profile", "sim", "-p", "dat-suite", "--test", "model"]);
    cargo.args(["--message-format", "json"]);
    let out = run::capture(cargo)?;
    for message in Message::parse_stream(out.as_bytes()) {
        if let Message::CompilerArtifact(artifact) = message? {
            if artifact.target.name == "model" {
                if let Some(path) = artifact.executable {
                    return Ok(path.into());
                }
            }
        }
    }
    bail!("cargo built no test program")
}

fn model(list: &str) -> Result<String> {
    let mut cargo = run::cargo();
    cargo.args(["run", "-q", "-p", "mlx5-model", "--features", "vfio-user", "--"]);
    cargo.args([list, "list"]);
    run::capture(cargo)
}

/// The open facts and their settings, the default first.
fn facts() -> Result<BTreeMap<String, Vec<String>>> {
    let text = model("--facts")?;
    let rows = text.lines().filter(|line| !line.starts_with(' '));
    let rows = rows.filter_map(|line| line.split_once('='));
    Ok(rows.map(|(fact, all)| (fact.into(), all.split('|').map(Into::into).collect())).collect())
}

/// The kinds of cards with an Ethernet port.
fn cards() -> Result<Vec<String>> {
    let text = model("--cards")?;
    let all = text.lines().filter_map(|line| line.strip_prefix("## "));
    Ok(all.filter(|card| !card.ends_with("-ib")).map(Into::into).collect())
}

fn alone(facts: &BTreeMap<String, Vec<String>>) -> Vec<Run> {
    let other = |(fact, all): (&String, &Vec<String>)| -> Vec<Run> {
        let facts = all.iter().skip(1).map(|setting| vec![format!("{fact}={setting}")]);
        facts.map(|facts| Run { kind: "alone", card: None, facts }).collect()
    };
    facts.iter().flat_map(other).collect()
}

fn runs(facts: &BTreeMap<String, Vec<String>>, cards: &[String], options: &Options) -> Vec<Run> {
    let mut runs = alone(facts);
    let card = |card: &String| Run { kind: "card", card: Some(card.clone()), facts: Vec::new() };
    runs.extend(cards.iter().map(card));
    for (n, one) in LIKELIEST.iter().enumerate() {
        for other in LIKELIEST.iter().skip(n + 1) {
            let facts = vec![(*one).to_owned(), (*other).to_owned()];
            runs.push(Run { kind: "pair", card: None, facts });
        }
    }
    let random = (options.seed..).map(|seed| drawn(facts, seed)).filter(|run| !excluded(run));
    runs.retain(|run| !excluded(run));
    runs.extend(random.take(options.random));
    runs
}

fn excluded(run: &Run) -> bool {
    let has = |fact: &str| run.facts.iter().any(|own| own.starts_with(fact));
    EXCLUDE.iter().any(|(one, other)| has(one) && has(other))
}

/// A random set: one in four facts is not as by default.
fn drawn(facts: &BTreeMap<String, Vec<String>>, seed: u64) -> Run {
    let number = |text: &str| {
        // FNV-1a, mixed as in SplitMix64.
        let mut z = text.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let mut set = Vec::new();
    for (fact, settings) in facts {
        let draw = number(fact);
        let others = settings.len() as u64 - 1;
        if draw % 4 == 0 {
            if let Some(setting) = settings.get(1 + (draw / 4 % others) as usize) {
                set.push(format!("{fact}={setting}"));
            }
        }
    }
    Run { kind: "random", card: None, facts: set }
}

fn run_all(program: &Path, runs: &[Run]) -> Result<Vec<Outcome>> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..thread::available_parallelism().map_or(1, usize::from))
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        let Some(run) = runs.get(n) else { break };
                        let outcome = once(program, run)?;
                        if is_failure(&outcome) {
                            println!("  {} {}: {outcome:?}", run.kind, run.name());
                        }
                        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                        if done % 50 == 0 {
                            println!("  {done} of {}", runs.len());
                        }
                        let mut all = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                        all.insert(n, outcome);
                    }
                    Ok(())
                })
            })
            .collect();
        jobs.into_iter().try_for_each(|job| job.join().unwrap_or_else(|_| bail!("a job panicked")))
    })?;
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(outcomes.len() == runs.len(), "runs were lost");
    Ok(outcomes.into_values().collect())
}

fn once(program: &Path, run: &Run) -> Result<Outcome> {
    let mut command = Command::new(program);
    command
        .args(SUITES)
        .args(["--test-threads", "1"])
        .current_dir(run::root().join("tests/tests"))
        .env("MODEL_FACTS", run.facts.join(","))
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(card) = &run.card {
        command.env("MODEL_CARD", card);
    }
    let mut child = command.spawn().context("cannot start the tests")?;
    let out = child.stdout.take().context("no output")?;
    let reader = thread::spawn(move || std::io::read_to_string(out));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() >= LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(Outcome::Fails(format!("no end within {} s", LIMIT.as_secs())));
        }
        thread::sleep(Duration::from_millis(20));
    };
    let text = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    Ok(judge(run, status.success(), &text))
}

/// The result of a run whose tests printed `text`.
fn judge(run: &Run, success: bool, text: &str) -> Outcome {
    let passed = text.lines().any(|line| line.starts_with("test result: ok. "));
    let refusals = run.refusals();
    if success && passed {
        return match refusals.first() {
            None => Outcome::Passes,
            Some(words) => Outcome::Fails(format!("works, and should say {words}")),
        };
    }
    // What a test panicked with is on the line behind the place where it did.
    let lines: Vec<&str> = text.lines().collect();
    let said = lines.windows(2).filter(|pair| pair[0].contains("panicked at"));
    let said: Vec<&str> = said.map(|pair| pair[1]).collect();
    let named = |line: &&str| refusals.iter().find(|words| line.contains(**words)).copied();
    let names: Option<Vec<_>> = said.iter().map(named).collect();
    if let Some(words) = names.as_ref().and_then(|names| names.first()) {
        return Outcome::Named(words);
    }
    let failed = lines.iter().filter(|line| line.ends_with("... FAILED"));
    let tests: Vec<&str> = failed.filter_map(|line| line.split(' ').nth(1)).collect();
    let unnamed = said.iter().find(|line| named(line).is_none());
    let first = unnamed.copied().unwrap_or("it crashed");
    Outcome::Fails(format!("{} tests ({}): {first}", tests.len(), tests.join(" ")))
}

fn page(runs: &[Run], outcomes: &[Outcome], options: &Options) -> String {
    let mut text = HEAD.to_owned();
    let words = |outcome: &Outcome| match outcome {
        Outcome::Passes => "passes".to_owned(),
        Outcome::Named(words) => format!("refused, naming `{words}`"),
        Outcome::Fails(why) => format!("FAILS: {}", why.replace('|', "/")),
    };
    for (kind, title) in [("alone", "Each setting alone"), ("card", "Kinds of cards")] {
        let _ = write!(text, "## {title}\n\n| | result |\n|---|---|\n");
        for (run, outcome) in runs.iter().zip(outcomes).filter(|(run, _)| run.kind == kind) {
            let _ = writeln!(text, "| {} | {} |", run.name(), words(outcome));
        }
        text.push('\n');
    }
    let random = format!("Random sets, from seed {} on", options.seed);
    for (kind, title) in [("pair", "Pairs of the ten likeliest"), ("random", &random)] {
        let of_kind = || runs.iter().zip(outcomes).filter(|(run, _)| run.kind == kind);
        let passed = of_kind().filter(|(_, outcome)| **outcome == Outcome::Passes).count();
        let named = of_kind().filter(|(_, outcome)| matches!(outcome, Outcome::Named(_))).count();
        let _ = write!(
            text,
            "## {title}\n\n{} runs: {passed} pass, {named} are refused by name.\n\n",
            of_kind().count()
        );
        for (run, outcome) in of_kind().filter(|(_, outcome)| is_failure(outcome)) {
            let _ = writeln!(text, "* {}: {}", run.name(), words(outcome));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(facts: &[&str]) -> Run {
        let facts = facts.iter().map(|fact| (*fact).to_owned()).collect();
        Run { kind: "alone", card: None, facts }
    }

    #[test]
    fn a_refusal_counts_only_if_every_failure_is_one() {
        let refused = run(&["cqe-version=0"]);
        let text = "test a ... FAILED\nthread 'a' panicked at x.rs:1:2:\nopen: completions do not carry the caller's index\n";
        assert_eq!(judge(&refused, false, text), Outcome::Named(REFUSED[0].1));
        let more = format!("{text}thread 'b' panicked at y.rs:1:2:\nleft is not right\n");
        assert!(is_failure(&judge(&refused, false, &more)));
        assert!(is_failure(&judge(&run(&["mac=zero"]), false, text)));
        let two = text.replace(REFUSED[0].1, REFUSED[1].1);
        let both = run(&["cqe-version=0", "port-type=infiniband"]);
        assert_eq!(judge(&both, false, &two), Outcome::Named(REFUSED[1].1));
        assert!(is_failure(&judge(&refused, false, "")), "a crash says nothing");
        let passed = "test result: ok. 3 passed; 0 failed\n";
        assert_eq!(judge(&run(&["mac=zero"]), true, passed), Outcome::Passes);
        assert!(is_failure(&judge(&refused, true, passed)));
        assert!(is_failure(&judge(&run(&["mac=zero"]), true, "")), "no test ran");
    }

    #[test]
    fn a_draw_is_of_its_seed() {
        let settings = |count: usize| (0..count).map(|n| n.to_string()).collect();
        let facts = (0..40).map(|n| (format!("fact-{n}"), settings(2 + n % 3))).collect();
        assert_eq!(drawn(&facts, 1).facts, drawn(&facts, 1).facts);
        assert_ne!(drawn(&facts, 1).facts, drawn(&facts, 2).facts);
        let sum: usize = (0..200).map(|seed| drawn(&facts, seed).facts.len()).sum();
        assert!((1_600..2_400).contains(&sum), "{sum}: one in four of 8,000");
        assert!(drawn(&facts, 7).facts.iter().all(|fact| !fact.ends_with("=0")));
    }
}
