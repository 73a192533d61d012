//! rdma-core's own tests of its Python bindings, as the distribution ships them: what they find
//! wrong with mlx5_ib on the model.
//!
//! Each module runs by itself. What asks for a capability that the model does not claim skips
//! itself, and says so: the reasons are counted and printed. Whatever fails must be in
//! `pyverbs.tsv`, with why it is no fault of the model.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use crate::guest::shell::{Answer, Shell};
use crate::guest::stage::{Guest, Stage, System};

/// What may fail, with reasons.
const KNOWN: &str = include_str!("pyverbs.tsv");
/// Seconds that a module may take.
const LIMIT: u64 = 240;
/// What Python's processes share is a file here, and a page size that a test of large pages wants.
pub(super) const PREPARE: &str = "gunzip /tests/*.gz; mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm && \
    echo 64 > /proc/sys/vm/nr_hugepages; for test in /tests/test_*.py; do echo $test; done";

/// How a module of tests went.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) run: u32,
    pub(super) skipped: u32,
    /// Names.
    pub(super) failed: Vec<String>,
    /// Why tests skipped themselves, and how many.
    reasons: BTreeMap<String, u32>,
}

pub(super) fn run(stage: &mut Stage<'_>) -> Result<String> {
    let python = stage.path("python.cpio");
    std::fs::write(&python, stage.stock()?.python()?)?;
    let socket = stage.path("a");
    let server = stage.server("model", &[&socket], &["--profile", "big"])?;
    let guest = Guest {
        system: System::Stock,
        script: "HOST=1 HCA='9 10' HCA_VLAN='11 12'\n",
        devices: &[&socket],
        memory: 1536,
        more: Some(&python),
        ..Guest::default()
    };
    let id = stage.guest("linux", &guest)?;
    let (mut shell, set_up) = Shell::new(stage, id)?;
    ensure!(set_up.status == 0, "the guest's set-up failed:\n{}", set_up.text());
    let files = shell.must(stage, 30, PREPARE)?;
    let modules: Vec<String> = files
        .lines()
        .filter_map(|line| line.trim().strip_prefix("/tests/")?.strip_suffix(".py"))
        .filter(|module| stage.cells().is_none_or(|part| module.contains(part)))
        .map(str::to_owned)
        .collect();
    let mut sum = Report::default();
    let mut bad = Vec::new();
    for module in &modules {
        let command =
            format!("cd / && PYTHON_COLORS=0 python3 /tests/one.py {module} --dev mlx5_0 -v");
        let answer = shell.run(stage, LIMIT, &command)?;
        let report = read(&answer).with_context(|| module.clone())?;
        println!(
            "    {module}: {} run, {} skipped, {} failed",
            report.run,
            report.skipped,
            report.failed.len()
        );
        if report.failed.iter().any(|name| known(name).is_none()) {
            bad.push(format!("--- {module}\n{}", answer.text()));
        }
        sum.add(report);
    }
    stage.say(id, "0 5 poweroff -f");
    stage.ended(id, std::time::Duration::from_secs(20))?;
    stage.hang_up(server, std::time::Duration::from_secs(10))?;
    println!("  why tests skipped themselves:");
    for (reason, times) in &sum.reasons {
        println!("  {times:4} x {reason}");
    }
    for name in &sum.failed {
        if let Some(reason) = known(name) {
            println!("  {name} fails: {reason}");
        }
    }
    if !bad.is_empty() {
        bail!("tests fail that should not\n{}", bad.join("\n"));
    }
    let passed = sum.run as usize - sum.skipped as usize - sum.failed.len();
    ensure!(passed > 0, "no test passed");
    Ok(format!(
        "{} modules: {} tests run, {passed} passed, {} failed as explained, {} skipped themselves",
        modules.len(),
        sum.run,
        sum.failed.len(),
        sum.skipped
    ))
}

/// Why a test is known to fail.
fn known(name: &str) -> Option<&'static str> {
    KNOWN
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .find_map(|(known, reason)| (known == name).then_some(reason))
}

/// What Python's `unittest` says of a module: a line for each test, a heading for each failure, and
/// a summary. The exit status does not count: where tests skip in their preparation, the Python
/// objects go in an order that the library does not survive.
pub(super) fn read(answer: &Answer) -> Result<Report> {
    let mut report = Report::default();
    let mut ended = false;
    for line in &answer.lines {
        if let Some((_, reason)) = line.split_once(" ... skipped ") {
            let reason = reason.trim_matches(['\'', '"']);
            *report.reasons.entry(kind(reason)).or_default() += 1;
        } else if let Some(rest) = line.strip_prefix("FAIL: ").or(line.strip_prefix("ERROR: ")) {
            // `name (tests.module.Class.name)`
            let path = rest.split_once('(').map_or(rest, |(_, path)| path);
            let path = path.trim_end_matches(')').trim_start_matches("tests.");
            report.failed.push(path.to_owned());
        } else if let Some(rest) = line.strip_prefix("Ran ") {
            let number = rest.split(' ').next().unwrap_or_default();
            report.run = number.parse().context("how many ran")?;
        } else if line.starts_with("OK")
            || line.starts_with("FAILED (")
            || line.starts_with("NO TESTS RAN")
        {
            ended = true;
            if let Some((_, rest)) = line.split_once("skipped=") {
                let number = rest.split([',', ')']).next().unwrap_or_default();
                report.skipped = number.parse().context("how many were skipped")?;
            }
        }
    }
    ensure!(ended, "it does not end:\n{}", answer.text());
    Ok(report)
}

/// A reason without what differs from test to test.
fn kind(reason: &str) -> String {
    let words = reason.split(' ').map(|word| {
        if word.contains(|c: char| c.is_ascii_digit()) && !word.contains("mlx5") {
            "#"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

impl Report {
    fn add(&mut self, other: Self) {
        self.run += other.run;
        self.skipped += other.skipped;
        self.failed.extend(other.failed);
        for (reason, times) in other.reasons {
            *self.reasons.entry(reason).or_default() += times;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, KNOWN, read};

    #[test]
    fn a_module_is_judged_by_its_summary() {
        let said = "test_a (tests.test_x.X.test_a) ... ok\n\
            test_b (tests.test_x.X.test_b)\n\
            Something longer. ... skipped 'Opcode 12 is not supported'\n\
            test_c (tests.test_x.X.test_c) ... ERROR\n\
            ======\nERROR: test_c (tests.test_x.X.test_c)\nSomething.\n------\n\
            Ran 3 tests in 0.1s\n\nFAILED (errors=1, skipped=1)";
        let answer = Answer { status: 139, lines: said.lines().map(str::to_owned).collect() };
        let report = read(&answer).unwrap();
        assert_eq!((report.run, report.skipped), (3, 1));
        assert_eq!(report.failed, ["test_x.X.test_c"]);
        assert_eq!(report.reasons["Opcode # is not supported"], 1);
        assert!(read(&Answer::default()).is_err(), "silence is no success");
    }

    #[test]
    fn whatever_may_fail_has_a_reason() {
        for line in KNOWN.lines().filter(|line| !line.starts_with('#')) {
            let (name, reason) = line.split_once('\t').expect(line);
            assert!(name.starts_with("test_") && reason.len() > 20, "{line}");
        }
    }
}
