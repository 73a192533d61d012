//! `cargo xtask fuzz`: searches for inputs that break a promise, keeps the corpus small, and writes
//! what it covers.
//!
//! The targets are in `tests/fuzz`. The fuzzer is libFuzzer, which `libfuzzer-sys` compiles from
//! its C++ sources: it needs a C++ compiler and the stable toolchain, no more. It is built with
//! `--cfg fuzzing`, which nothing else sets, so no other build contains it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dat_lab::run;

const PAGE: &str = "docs/generated/fuzz.md";
const HEAD: &str = "\
# What the fuzz targets cover

Made by `cargo xtask fuzz --coverage --bless`. Do not edit.

Each target has run on its corpus, `tests/fuzz/corpus`, once. A number is that of the lines of a crate's sources which it
reached; the last column has the files of which it reached the most lines.

";
/// Flags of a build for libFuzzer: counters of edges, and the operands of comparisons.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Longest input in bytes, longest run of one in seconds, most memory in MiB.
const LIMITS: [&str; 3] = ["-max_len=4096", "-timeout=20", "-rss_limit_mb=2048"];
/// The crates of the page's columns: name, and folder of their sources.
const CRATES: &[(&str, &str)] = &[
    ("dat-core", "dat-core/src/"),
    ("hca-mlx5", "hca-mlx5/src/"),
    ("vfio-host", "vfio-host/src/"),
    ("dapldat", "vfio-host/dapl/src/"),
    ("dat", "vfio-host/dat/src/"),
    ("model", "tests/model/src/"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Targets; all of them if none is named
    targets: Vec<String>,
    /// How long each is fuzzed, in minutes
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Instead, list the targets
    #[arg(long, conflicts_with_all = ["minimize", "coverage"])]
    list: bool,
    /// Instead, merge what was found into the corpus, and leave out what adds nothing
    #[arg(long, conflicts_with = "coverage")]
    minimize: bool,
    /// Instead, run each corpus and print which lines it reaches
    #[arg(long)]
    coverage: bool,
    /// With --coverage, write docs/generated/fuzz.md
    #[arg(long, requires = "coverage", conflicts_with = "targets")]
    bless: bool,
}

pub(crate) fn fuzz(options: &Options) -> Result<()> {
    let all = targets()?;
    let known = |name: &String| all.iter().any(|(known, _)| known == name);
    if let Some(name) = options.targets.iter().find(|name| !known(name)) {
        anyhow::bail!("no target is named {name}: `cargo xtask fuzz --list`");
    }
    let wanted =
        |name: &str| options.targets.is_empty() || options.targets.iter().any(|t| t == name);
    let names: Vec<&str> =
        all.iter().map(|(name, _)| name.as_str()).filter(|n| wanted(n)).collect();
    if options.list {
        all.iter().for_each(|(name, about)| println!("{name:14} {about}"));
        return Ok(());
    }
    if options.coverage {
        return coverage(&names, options.bless);
    }
    let program = build(FLAGS, "fuzz")?;
    if options.minimize {
        return names.iter().try_for_each(|name| minimize(&program, name));
    }
    let mut rows = Vec::new();
    for name in &names {
        rows.push(search(&program, name, options.minutes)?);
    }
    println!("{:14} {:>12} {:>10}", "target", "inputs", "per second");
    for (name, [inputs, rate, _]) in names.iter().zip(&rows) {
        println!("{name:14} {inputs:>12} {rate:>10}");
    }
    let failed: Vec<&str> =
        names.iter().zip(&rows).filter(|(_, row)| row[2] != 0).map(|(name, _)| *name).collect();
    ensure!(failed.is_empty(), "{}: inputs that fail are above", failed.join(", "));
    Ok(())
}

/// Names and descriptions of the targets, from the list in their crate.
fn targets() -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(run::root().join("tests/fuzz/src/lib.rs"))?;
    let (_, list) =
        text.split_once("\ntargets! {\n").context("tests/fuzz/src/lib.rs has no list")?;
    let lines = list.lines().take_while(|line| *line != "}");
    let mut targets = Vec::new();
    for line in lines {
        let row = line.trim().strip_suffix("\";").and_then(|row| row.split_once(": \""));
        let (name, about) = row.with_context(|| format!("tests/fuzz/src/lib.rs: {line}"))?;
        targets.push((name.to_owned(), about.to_owned()));
    }
    Ok(targets)
}

fn host() -> Result<String> {
    let mut command = Command::new("rustc");
    command.arg("-vV");
    let text = run::silent(command)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_owned())
}

/// Builds the program with these flags. A target is named, so that the flags do not reach what
/// runs while it is built.
fn build(flags: &str, profile: &str) -> Result<PathBuf> {
    let host = host()?;
    let mut command = run::cargo();
    command.args(["build", "-p", "dat-fuzz", "--bin", "fuzz", "--profile", profile, "--target"]);
    command.arg(&host).env("RUSTFLAGS", flags);
    println!("$ RUSTFLAGS=\"{flags}\" {}", run::shown(&command));
    ensure!(command.status()?.success(), "the fuzzer does not compile");
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(run::target()?.join(host).join(folder).join("fuzz"))
}

fn corpus(name: &str) -> PathBuf {
    run::root().join("tests/fuzz/corpus").join(name)
}

/// Where new inputs of a target are kept until they are merged into its corpus.
fn found(name: &str) -> Result<PathBuf> {
    let folder = run::target()?.join("fuzz-found").join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn libfuzzer(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.env("FUZZ_TARGET", name).env("RUST_BACKTRACE", "1").current_dir(run::root());
    command.args(LIMITS);
    command
}

/// Fuzzes a target: inputs tried, inputs in a second, and whether one failed.
fn search(program: &Path, name: &str, minutes: f64) -> Result<[u64; 3]> {
    let found = found(name)?;
    let seconds = (minutes * 60.0).ceil().max(1.0);
    let failing = run::target()?.join("fuzz-found").join(format!("{name}-"));
    let mut command = libfuzzer(program, name);
    command.args(["-print_final_stats=1", "-verbosity=1"]);
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}", failing.display()));
    command.arg(&found).arg(corpus(name));
    println!("$ FUZZ_TARGET={name} {}", run::shown(&command));
    let out = command.output()?;
    let text = String::from_utf8_lossy(&out.stderr);
    let statistic = |which: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(which));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    };
    if !out.status.success() {
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.len().saturating_sub(60);
        println!("{}", lines[last..].join("\n"));
        println!(
            "{name}: the input's file is named above; again: `cargo run -p dat-fuzz -- {name} FILE`"
        );
    }
    let numbers = ["stat::number_of_executed_units:", "stat::average_exec_per_sec:"].map(statistic);
    Ok([numbers[0], numbers[1], u64::from(!out.status.success())])
}

/// Makes the corpus of a target anew from what it has and what was found.
fn minimize(program: &Path, name: &str) -> Result<()> {
    let (corpus, found) = (corpus(name), found(name)?);
    fs::create_dir_all(&corpus)?;
    let fresh = found.with_extension("merged");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    fs::create_dir(&fresh)?;
    let mut command = libfuzzer(program, name);
    command.arg("-set_cover_merge=1").arg(&fresh).arg(&corpus).arg(&found);
    run::capture(command)?;
    let before = files(&corpus)?;
    for file in &before {
        // Inputs with a name of their own stand for something that once failed.
        if file.file_stem().is_some_and(|stem| stem.len() == 40) {
            fs::remove_file(file)?;
        }
    }
    for file in files(&fresh)? {
        fs::copy(&file, corpus.join(file.file_name().unwrap_or_default()))?;
    }
    let after = files(&corpus)?;
    println!(
        "{name:14} {} inputs, {} bytes (before: {})",
        after.len(),
        bytes(&after),
        before.len()
    );
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    Ok(files)
}

fn bytes(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum()
}

/// A tool of the compiler's own LLVM, whose format of profiles it reads, or of the nightly
/// toolchain's, which reads it too unless its LLVM is of another major version.
fn llvm(tool: &str) -> Result<Command> {
    let path = Path::new("lib/rustlib").join(host()?).join("bin").join(tool);
    let own: &[&str] = &["rustc", "--print", "sysroot"];
    let nightly: &[&str] = &["rustup", "run", "nightly", "rustc", "--print", "sysroot"];
    for words in [own, nightly] {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        let Ok(root) = run::silent(command) else { continue };
        let file = Path::new(root.trim()).join(&path);
        if file.is_file() {
            return Ok(Command::new(file));
        }
    }
    anyhow::bail!("{tool} is missing: rustup component add llvm-tools --toolchain nightly")
}

/// Lines reached and lines of each file of the workspace.
type Lines = BTreeMap<String, (u64, u64)>;

fn coverage(names: &[&str], bless: bool) -> Result<()> {
    let program = build("-Cinstrument-coverage", "dev")?;
    let folder = run::target()?.join("fuzz-coverage");
    fs::create_dir_all(&folder)?;
    let crates: Vec<&str> = CRATES.iter().map(|(name, _)| *name).collect();
    let mut page = HEAD.to_owned();
    writeln!(page, "| target | inputs | bytes | {} | most |", crates.join(" | "))?;
    writeln!(page, "|---|---|---|{}---|", "---|".repeat(CRATES.len()))?;
    for name in names {
        let inputs = files(&corpus(name))?;
        let lines = reached(&program, &folder, name)?;
        let columns = CRATES.iter().map(|(_, sources)| column(&lines, sources));
        let columns: Vec<String> = columns.collect();
        let most: Vec<String> = most(&lines);
        writeln!(
            page,
            "| `{name}` | {} | {} | {} | {} |",
            inputs.len(),
            bytes(&inputs),
            columns.join(" | "),
            most.join(", ")
        )?;
    }
    print!("{page}");
    if bless {
        fs::write(run::root().join(PAGE), page)?;
    }
    Ok(())
}

/// Runs a corpus; which lines it reached.
fn reached(program: &Path, folder: &Path, name: &str) -> Result<Lines> {
    let [raw, profile] = ["profraw", "profdata"].map(|kind| folder.join(name).with_extension(kind));
    let mut command = Command::new(program);
    command.arg(name).arg(corpus(name)).env("LLVM_PROFILE_FILE", &raw);
    run::capture(command)?;
    let mut merge = llvm("llvm-profdata")?;
    merge.args(["merge", "-sparse", "-o"]).arg(&profile).arg(&raw);
    run::silent(merge)?;
    let mut export = llvm("llvm-cov")?;
    export.args(["export", "-format=lcov", "-summary-only", "-instr-profile"]);
    let report = run::silent({
        export.arg(&profile).arg(program);
        export
    })?;
    let root = run::root();
    let (mut lines, mut file, mut of) = (Lines::new(), String::new(), 0);
    for line in report.lines() {
        match line.split_once(':') {
            Some(("SF", path)) => {
                let ours = Path::new(path).strip_prefix(&root);
                file = ours.map_or_else(|_| String::new(), |path| path.display().to_string());
            }
            Some(("LF", number)) => of = number.parse()?,
            Some(("LH", number)) if !file.is_empty() => {
                lines.insert(std::mem::take(&mut file), (number.parse()?, of));
            }
            _ => {}
        }
    }
    Ok(lines)
}

/// The lines of a crate that were reached; empty if none.
fn column(lines: &Lines, sources: &str) -> String {
    let of_crate = lines.iter().filter(|(file, _)| file.starts_with(sources));
    match of_crate.map(|(_, (reached, _))| reached).sum() {
        0 => String::new(),
        reached => u64::to_string(&reached),
    }
}

/// The three files of the crates of which most lines were reached.
fn most(lines: &Lines) -> Vec<String> {
    let ours = |file: &str| CRATES.iter().any(|(_, sources)| file.starts_with(sources));
    let mut files: Vec<_> = lines.iter().filter(|(file, _)| ours(file)).collect();
    files.sort_by_key(|(_, (reached, _))| std::cmp::Reverse(*reached));
    let three = files.into_iter().take(3).filter(|(_, (reached, _))| *reached > 0);
    three.map(|(file, (reached, of))| format!("{file} {reached}/{of}")).collect()
}
