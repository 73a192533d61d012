//! `cargo xtask mutants`: checks whether the tests notice small faults.
//!
//! A copy of the workspace in `target/mutants` gets all chosen faults at once, each behind a
//! switch, so that one build serves all. Every test runs once to record which mutants it reaches;
//! then a mutant is tested in the tests that reach it, layer by layer. `--bless` writes
//! docs/generated/mutants.md.

mod build;
pub(crate) mod copy;
mod names;
mod page;
mod runner;
mod sites;
mod splice;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;

use self::build::{Built, Mutant, Source, Tree, build};
use self::page::{Group, cell, equals, page, survivors, why};
use self::runner::{Layer, Outcome, Suite};
use dat_lab::run;

/// The files of the four seed pages, and the code that orders and delivers events. A file that
/// moves is renamed here.
const PAGES: &[&str] = &[
    "dat-core/src/api/ep/reset.rs",
    "dat-core/src/api/ep/disconnect.rs",
    "dat-core/src/api/ep/get_status.rs",
    "dat-core/src/engine/connections.rs",
    "dat-core/src/api/rmr/free.rs",
    "dat-core/src/api/evd/*",
    "dat-core/src/data/chain.rs",
    "dat-core/src/data/count.rs",
    "dat-core/src/data/finish.rs",
    "dat-core/src/data/reaper.rs",
    "dat-core/src/engine/absorb.rs",
    "dat-core/src/engine/arrivals.rs",
    "dat-core/src/engine/drain.rs",
    "dat-core/src/engine/follow.rs",
    "dat-core/src/engine/windows.rs",
    "dat-core/src/objects/notify.rs",
    "dat-core/src/objects/retire.rs",
];
/// Of these, calls that only make, change or query an object.
const NOT_PAGES: &[&str] = &[
    "dat-core/src/api/evd/create.rs",
    "dat-core/src/api/evd/kcreate.rs",
    "dat-core/src/api/evd/modify_*",
    "dat-core/src/api/evd/query.rs",
];
/// Mutants drawn from the rest of dat-core and from hca-mlx5.
const DRAWN: [usize; 2] = [400, 150];
/// Percent to be caught: of the pages and events, and of the drawn ones.
const GOALS: [f64; 2] = [95.0, 92.0];
/// Mutants that change nothing: key, change and reason, with tabs between.
const EQUAL: &str = "tests/data/mutants-equal.tsv";
const PAGE: &str = "docs/generated/mutants.md";
const GROUPS: [&str; 3] = ["pages and events", "rest of dat-core", "hca-mlx5"];

/// Layers in the order in which they run. Conformance catches more than random calls, in a tenth of
/// the time.
const LAYERS: [Layer; 6] = [
    Layer { name: "unit and API", tests: &[("dat-core", "*"), ("hca-mlx5", "*")], prefix: "" },
    Layer { name: "cm", tests: &[("dat-core", "cm")], prefix: "" },
    Layer {
        name: "conformance on loop",
        tests: &[("tests", "conformance")],
        prefix: "conformance::loopback",
    },
    Layer { name: "random calls", tests: &[("dat-core", "random_calls")], prefix: "" },
    Layer { name: "laws", tests: &[("tests", "model")], prefix: "laws::" },
    Layer {
        name: "driver on the model",
        tests: &[("tests", "*"), ("tests", "conformance")],
        prefix: "",
    },
];
/// Test programs that start programs, look at nothing but files, need a feature, or take long.
const NOT_RUN: &[&str] = &["seeded", "dat_provider", "records", "notations"];

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Draws other mutants
    #[arg(long, default_value_t = 20)]
    seed: u64,
    /// All mutants of the files whose names begin so, and no other
    #[arg(long, value_name = "PATH")]
    only: Option<String>,
    /// Only those that docs/generated/mutants.md lists as survivors
    #[arg(long)]
    survivors: bool,
    /// Only the tests of this package: faster, and enough to check a new test of it
    #[arg(long, value_name = "NAME")]
    package: Option<String>,
    /// Test every mutant in every layer, not only until one catches it
    #[arg(long)]
    layers: bool,
    /// Mutants of a small crate only: tests this verb itself
    #[arg(long)]
    short: bool,
    /// Runs at a time
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, std::num::NonZero::get))]
    jobs: usize,
    /// Write docs/generated/mutants.md
    #[arg(long, conflicts_with_all = ["only", "survivors", "package", "short"])]
    bless: bool,
}

impl Options {
    /// Returns whether the run covers everything that the goals are defined for.
    const fn is_whole(&self) -> bool {
        self.only.is_none() && !self.survivors && self.package.is_none()
    }
}

/// Reasons by key and change.
type Equal<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

fn is_equal(mutant: &Mutant, equal: &Equal<'_>) -> bool {
    equal.contains_key(&(mutant.key.as_str(), mutant.change.what.as_str()))
}

pub(crate) fn mutants(options: &Options) -> Result<()> {
    if options.short { short() } else { full(options) }
}

/// Whether a name fits a pattern, which may end in `*`.
fn fits(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start))
}

fn group_of(file: &str) -> usize {
    let any = |patterns: &[&str]| patterns.iter().any(|pattern| fits(file, pattern));
    match () {
        () if any(PAGES) && !any(NOT_PAGES) => 0,
        () if file.starts_with("dat-core/") => 1,
        () => 2,
    }
}

/// Returns the rank of a mutant in a random order. It depends only on seed and key, so that a draw
/// changes little when code changes (FNV-1a, mixed as in SplitMix64).
fn rank(seed: u64, key: &str) -> u64 {
    let mut z = key.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Returns the mutants to test: all of the first group, and a number of the others.
fn choose(all: &[Mutant], seed: u64, equal: &Equal<'_>) -> Vec<Mutant> {
    let mut chosen = Vec::new();
    for group in 0..GROUPS.len() {
        let mut own: Vec<&Mutant> =
            all.iter().filter(|m| group_of(&m.file) == group && !is_equal(m, equal)).collect();
        if let Some(most) = group.checked_sub(1).and_then(|i| DRAWN.get(i)) {
            own.sort_by_key(|m| rank(seed, &m.key));
            own.truncate(*most);
        }
        chosen.extend(own.into_iter().cloned());
    }
    chosen.sort_by(|a, b| a.file.cmp(&b.file));
    chosen
}

/// Returns the workspace with the test programs to run.
fn workspace(package: Option<&str>) -> Result<Tree> {
    let root = run::root();
    let folder = root.join("target/mutants");
    let mut packages = vec!["dat-core", "hca-mlx5", "dat-suite"];
    packages.retain(|name| package.is_none_or(|package| package == *name));
    ensure!(!packages.is_empty(), "no package of that name has mutants or tests of them");
    let mut tests = vec!["--lib".to_owned()];
    tests.extend(packages.iter().flat_map(|name| ["-p".to_owned(), (*name).to_owned()]));
    let metadata = MetadataCommand::new().current_dir(&root).no_deps().exec()?;
    for package in metadata.packages.iter().filter(|p| packages.contains(&p.name.as_str())) {
        for target in
            package.targets.iter().filter(|t| t.is_test() && !NOT_RUN.contains(&t.name.as_str()))
        {
            tests.extend(["--test".to_owned(), target.name.clone()]);
        }
    }
    let source = |folder: &str, switch| Source { folder: folder.into(), switch };
    Ok(Tree {
        from: root,
        to: folder.join("tree"),
        target: folder.join("build"),
        sources: vec![
            source("dat-core/src/", "crate::mutants"),
            source("hca-mlx5/src/", "::dat_core::mutants"),
        ],
        tests,
    })
}

fn full(options: &Options) -> Result<()> {
    let start = Instant::now();
    println!("$ mutants, seed {}", options.seed);
    let tree = workspace(options.package.as_deref())?;
    let past = if options.survivors {
        fs::read_to_string(tree.from.join(PAGE)).with_context(|| PAGE.to_owned())?
    } else {
        String::new()
    };
    let past = survivors(&past);
    let text = fs::read_to_string(tree.from.join(EQUAL)).with_context(|| EQUAL.to_owned())?;
    let equal = equals(&text);
    let known = std::cell::RefCell::new(BTreeSet::new());
    let built = build(&tree, &|all| {
        let names = all.iter().map(|m| (m.key.clone(), m.change.what.clone()));
        known.borrow_mut().extend(names);
        if options.only.is_none() && !options.survivors {
            return choose(all, options.seed, &equal);
        }
        let start = options.only.as_deref().unwrap_or_default();
        let is_wanted = |m: &&Mutant| {
            m.file.starts_with(start)
                && !is_equal(m, &equal)
                && (!options.survivors || past.contains(&(m.key.clone(), cell(&m.change.what))))
        };
        all.iter().filter(is_wanted).cloned().collect()
    })?;
    let known = known.into_inner();
    for pattern in PAGES.iter().chain(NOT_PAGES) {
        if !known.iter().any(|(key, _)| fits(key.split(' ').next().unwrap_or_default(), pattern)) {
            println!("  {pattern} fits no file with mutants");
        }
    }
    let left = built.left_out;
    let left = format!(
        "{} changes in what the compiler evaluates, {} in `Debug`, {} behind `#[cfg]`, and the arguments of {} macros",
        left.constant, left.debug, left.cfg, left.macros
    );
    println!("  left out: {left}");
    println!("  built after {} s", start.elapsed().as_secs());

    let folder = tree.to.with_file_name("reach");
    let groups = run_tests(&built, folder, options, &equal)?;
    for group in &groups {
        for (mutant, outcome) in group.survivors() {
            println!("  {}: {} {}", mutant.key, mutant.change.what, why(outcome));
        }
    }
    for group in &groups {
        println!("{}", group.line());
    }
    println!("{} s in all", start.elapsed().as_secs());
    if options.bless {
        let command = format!("cargo xtask mutants --seed {} --bless", options.seed);
        let names: Vec<&str> = LAYERS.iter().map(|layer| layer.name).collect();
        let path = run::root().join(PAGE);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        fs::write(path, page(&command, options.seed, &left, &names, &groups))?;
        println!("wrote {PAGE}");
    }
    if options.is_whole() {
        let poor: Vec<_> = groups.iter().filter(|g| !g.is_good()).map(|g| g.name).collect();
        ensure!(poor.is_empty(), "below the goal: {}", poor.join(", "));
        let is_known =
            |(key, what): &(&str, &str)| known.contains(&((*key).into(), (*what).into()));
        let stale: Vec<_> = equal.keys().filter(|name| !is_known(name)).collect();
        ensure!(stale.is_empty(), "{EQUAL} names mutants that do not exist: {stale:?}");
    }
    Ok(())
}

/// Records the mutants that tests reach, tests the mutants and groups the results.
fn run_tests(
    built: &Built,
    folder: PathBuf,
    options: &Options,
    equal: &Equal<'_>,
) -> Result<Vec<Group>> {
    let suite = Suite::record(built.programs.clone(), &LAYERS, &folder, options.jobs)?;
    let (tests, time) = suite.size();
    println!("  {tests} tests, {} s one after another", time.as_secs());
    let keys: Vec<String> = built.mutants.iter().map(|m| m.key.clone()).collect();
    // Continue an interrupted run of the same sources and the same options.
    let past = folder.with_file_name("outcomes.tsv");
    let names = LAYERS.map(|layer| layer.name);
    let stamp = format!("{:016x} {} {names:?} {tests}", built.stamp, options.layers);
    let text = fs::read_to_string(&past).unwrap_or_default();
    let mut known = BTreeMap::new();
    if text.lines().next() == Some(stamp.as_str()) {
        let rows = text.lines().filter_map(|line| line.split_once('\t'));
        known.extend(rows.filter_map(|(key, word)| Some((key.to_owned(), Outcome::read(word)?))));
        println!("  {} mutants were tested before", known.len());
    } else {
        fs::write(&past, format!("{stamp}\n"))?;
    }
    let file = Mutex::new(fs::OpenOptions::new().append(true).open(&past)?);
    let outcomes = suite.test(&keys, options.layers, &known, |key, outcome| {
        if !known.contains_key(key) {
            let line = format!("{key}\t{}\n", outcome.written());
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            // Errors are ignored: without the file the next run is only slower.
            let _ = file.write_all(line.as_bytes());
        }
    })?;
    let file = |key: &str| key.split(' ').next().unwrap_or_default().to_owned();
    let only = options.only.as_deref().unwrap_or_default();
    let mut groups = Vec::new();
    for (number, name) in GROUPS.into_iter().enumerate() {
        let rows = built.mutants.iter().cloned().zip(outcomes.iter().cloned());
        let group = Group {
            name,
            goal: GOALS[number.min(1)],
            not_viable: built.dropped.iter().filter(|key| group_of(&file(key)) == number).count(),
            equal: equal
                .keys()
                .filter(|(key, _)| group_of(&file(key)) == number && key.starts_with(only))
                .count(),
            rows: rows.filter(|(mutant, _)| group_of(&mutant.file) == number).collect(),
        };
        if !group.rows.is_empty() {
            groups.push(group);
        }
    }
    Ok(groups)
}

/// Tests all mutants of a small crate and compares the results with the expected ones.
pub(crate) fn short() -> Result<()> {
    const MANIFEST: &str =
        "[package]\nname = \"specimen\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    const LAYERS: &[Layer] = &[Layer { name: "API", tests: &[("tree", "*")], prefix: "" }];
    println!("$ mutants --short");
    let start = Instant::now();
    let folder = run::root().join("target/mutants/short");
    let from = folder.join("from");
    for (name, text) in [
        ("Cargo.toml", MANIFEST),
        ("src/lib.rs", include_str!("specimen/lib.rs")),
        ("tests/api.rs", include_str!("specimen/api.rs")),
    ] {
        let path = from.join(name);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        fs::write(path, text)?;
    }
    let source = Source { folder: "src/".into(), switch: "crate::mutants" };
    let tree = Tree {
        from,
        to: folder.join("tree"),
        target: folder.join("build"),
        sources: vec![source],
        tests: vec!["--test".into(), "api".into()],
    };
    let built = build(&tree, &<[Mutant]>::to_vec)?;
    let suite = Suite::record(built.programs, LAYERS, &folder.join("reach"), 2)?;
    let keys: Vec<String> = built.mutants.iter().map(|m| m.key.clone()).collect();
    let outcomes = suite.test(&keys, false, &BTreeMap::new(), |_, _| {})?;
    let survived = |reached: bool| -> Vec<&str> {
        let rows = built.mutants.iter().zip(&outcomes);
        let own =
            rows.filter(|(_, outcome)| outcome.caught.is_empty() && outcome.reached == reached);
        own.map(|(mutant, _)| mutant.change.key.as_str()).collect()
    };
    let dropped: Vec<&str> = built.dropped.iter().map(String::as_str).collect();
    let caught = outcomes.iter().filter(|outcome| !outcome.caught.is_empty()).count();
    println!(
        "  {} mutants, {} not viable, {caught} caught, {} s",
        built.mutants.len() + dropped.len(),
        dropped.len(),
        start.elapsed().as_secs()
    );
    ensure!(dropped == ["src/lib.rs Queue::drain statement 1"], "not viable: {dropped:?}");
    ensure!(
        survived(true) == ["Queue::push statement 3", "Queue::push number 2"],
        "survivors: {:?}",
        survived(true)
    );
    ensure!(survived(false) == ["Queue::hints else 1"], "not reached: {:?}", survived(false));
    ensure!(caught == 16, "{caught} caught");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_groups() {
        for (file, group) in [
            ("dat-core/src/data/reaper.rs", 0),
            ("dat-core/src/api/evd/modify_cno.rs", 1),
            ("dat-core/src/api/rmr/free.rs", 0),
            ("dat-core/src/api/rmr/bind.rs", 1),
            ("hca-mlx5/src/verbs/cq.rs", 2),
        ] {
            assert_eq!(group_of(file), group, "{file}");
        }
    }

    #[test]
    fn a_draw_is_of_its_seed_and_of_nothing_else() {
        let keys: Vec<String> = (0..1000).map(|i| format!("a.rs f number {i}")).collect();
        let draw = |seed| {
            let mut own: Vec<&String> = keys.iter().collect();
            own.sort_by_key(|key| rank(seed, key));
            own.truncate(100);
            own
        };
        assert_eq!(draw(1), draw(1));
        let both = draw(2).iter().filter(|key| draw(1).contains(key)).count();
        assert!((1..30).contains(&both), "{both} of 100");
    }
}
