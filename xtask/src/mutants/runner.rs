//! Runs tests with one active mutant at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::build::Program;

/// A layer of tests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    /// Folder of the package, and test program; `*` is any that no other layer names.
    pub(crate) tests: &'static [(&'static str, &'static str)],
    /// Prefix of the tests' names. A test belongs to the first layer that fits.
    pub(crate) prefix: &'static str,
}

/// Tests that compile code of their own, which no mutant reaches.
const SKIPPED: &[&str] = &["misuse_does_not_compile"];
/// Time limit of a run, in addition to ten times the slowest test of the run without a mutant.
const PATIENCE: Duration = Duration::from_secs(3);
/// Memory of a test program, in KiB.
const MEMORY: &str = "16777216";
/// Tests of the first run; a mutant that passes these is tested in all others that reach it.
const FIRST: usize = 6;

#[derive(Debug)]
struct Test {
    program: usize,
    name: String,
    layer: usize,
    time: Duration,
    reach: BTreeSet<u32>,
    caught: AtomicUsize,
    tested: AtomicUsize,
}

/// All tests, and which mutants each reaches.
#[derive(Debug)]
pub(crate) struct Suite {
    programs: Vec<Program>,
    tests: Vec<Test>,
    layers: usize,
    jobs: usize,
}

/// The result of a mutant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether any test reaches it.
    pub(crate) reached: bool,
    /// Layers that caught it.
    pub(crate) caught: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
}

/// Runs some tests of a program until one fails or none ends within `limit`.
fn run(program: &Program, names: &[&str], variable: (&str, &str), limit: Duration) -> Result<End> {
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"")])
        .arg(&program.path)
        .args(["--exact", "--test-threads=1"])
        .args(names)
        .current_dir(&program.folder)
        .env(variable.0, variable.1)
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .env("PROPTEST_RNG_SEED", "1")
        // A failure is enough; the least one takes minutes to find.
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("LAWS_PERCENT", "400")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", program.path.display()))?;
    let out = child.stdout.take().context("no output")?;
    let (sender, lines) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let done = loop {
        match lines.recv_timeout(limit) {
            Ok(line) if line.starts_with(b"test ") && line.ends_with(b"FAILED") => break false,
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => break false,
            Err(RecvTimeoutError::Disconnected) => break true,
        }
    };
    drop(lines);
    if !done {
        // Errors are ignored: it may have ended already.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let _ = reader.join();
    Ok(if done && status.success() { End::Passed } else { End::Failed })
}

/// Runs `work` for each number below `count` on several threads.
fn parallel<T: Send>(
    jobs: usize,
    count: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        break;
                    }
                    let result = work(i);
                    if result.is_err() {
                        next.store(count, Ordering::Relaxed);
                    }
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(i, result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_values().collect()
}

impl Suite {
    /// Lists the tests and runs each once, without a mutant.
    pub(crate) fn record(
        programs: Vec<Program>,
        layers: &[Layer],
        folder: &Path,
        jobs: usize,
    ) -> Result<Self> {
        let mut tests = Vec::new();
        for (number, program) in programs.iter().enumerate() {
            let mut list = Command::new(&program.path);
            list.args(["--list", "--format", "terse"]).current_dir(&program.folder);
            let out = list.output()?;
            for line in String::from_utf8_lossy(&out.stdout).lines() {
                let Some(name) = line.strip_suffix(": test") else {
                    continue;
                };
                let target = if program.unit { "" } else { &program.target };
                let of = |target: &str| {
                    let is = |(package, name): &(&str, &str)| {
                        *package == program.package && *name == target
                    };
                    layers.iter().position(|l| name.starts_with(l.prefix) && l.tests.iter().any(is))
                };
                let layer = of(target).or_else(|| of("*"));
                if let (Some(layer), false) = (layer, SKIPPED.contains(&name)) {
                    tests.push((number, name.to_owned(), layer));
                }
            }
        }
        fs::create_dir_all(folder)?;
        let tests = parallel(jobs, tests.len(), |i| {
            let (program, name, layer) = &tests[i];
            let file = folder.join(i.to_string());
            let _ = fs::remove_file(&file);
            let start = Instant::now();
            let variable = ("MUTANT_REACH", file.to_string_lossy());
            if run(
                &programs[*program],
                &[name],
                (variable.0, &variable.1),
                Duration::from_secs(120),
            )? != End::Passed
            {
                bail!("{name} fails without a mutant");
            }
            let time = start.elapsed();
            let text = fs::read_to_string(&file).unwrap_or_default();
            Ok(Test {
                program: *program,
                name: name.clone(),
                layer: *layer,
                time,
                reach: text.lines().filter_map(|line| line.parse().ok()).collect(),
                caught: AtomicUsize::new(0),
                tested: AtomicUsize::new(0),
            })
        })?;
        Ok(Self { programs, tests, layers: layers.len(), jobs })
    }

    /// Returns the number of tests, and the sum of their times.
    pub(crate) fn size(&self) -> (usize, Duration) {
        (self.tests.len(), self.tests.iter().map(|test| test.time).sum())
    }

    /// Tests these mutants; with `whole` in every layer, otherwise until one catches it. Skips
    /// those in `known` from an earlier run; calls `report` for each.
    pub(crate) fn test(
        &self,
        keys: &[String],
        whole: bool,
        known: &BTreeMap<String, Outcome>,
        report: impl Fn(&str, &Outcome) + Sync,
    ) -> Result<Vec<Outcome>> {
        let done = AtomicUsize::new(0);
        let start = Instant::now();
        parallel(self.jobs, keys.len(), |i| {
            let outcome = match known.get(&keys[i]) {
                Some(outcome) => outcome.clone(),
                None => self.one(u32::try_from(i)? + 1, whole)?,
            };
            report(&keys[i], &outcome);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done % 100 == 0 {
                println!("  {done} of {} tested, {} s", keys.len(), start.elapsed().as_secs());
            }
            Ok(outcome)
        })
    }

    fn one(&self, mutant: u32, whole: bool) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        for layer in 0..self.layers {
            let mut tests: Vec<&Test> = self
                .tests
                .iter()
                .filter(|t| t.layer == layer && t.reach.contains(&mutant))
                .collect();
            if tests.is_empty() {
                continue;
            }
            outcome.reached = true;
            tests.sort_by(|a, b| b.promise().total_cmp(&a.promise()));
            let (first, rest) = tests.split_at(FIRST.min(tests.len()));
            if self.caught(mutant, first)? || self.caught(mutant, rest)? {
                outcome.caught.push(layer);
                if !whole {
                    break;
                }
            }
        }
        Ok(outcome)
    }

    /// Returns whether one of these tests catches it.
    fn caught(&self, mutant: u32, tests: &[&Test]) -> Result<bool> {
        let mut programs: Vec<usize> = Vec::new();
        for test in tests {
            if !programs.contains(&test.program) {
                programs.push(test.program);
            }
        }
        for program in programs {
            let own: Vec<&&Test> = tests.iter().filter(|test| test.program == program).collect();
            let names: Vec<&str> = own.iter().map(|test| test.name.as_str()).collect();
            let limit = PATIENCE + own.iter().map(|test| test.time * 10).max().unwrap_or_default();
            let end = run(&self.programs[program], &names, ("MUTANT", &mutant.to_string()), limit)?;
            for test in &own {
                test.tested.fetch_add(1, Ordering::Relaxed);
                if end == End::Failed {
                    test.caught.fetch_add(1, Ordering::Relaxed);
                }
            }
            if end == End::Failed {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Outcome {
    /// Formats it as a word for a file.
    pub(crate) fn written(&self) -> String {
        let caught: Vec<String> = self.caught.iter().map(ToString::to_string).collect();
        format!("{}:{}", u8::from(self.reached), caught.join(","))
    }

    pub(crate) fn read(word: &str) -> Option<Self> {
        let (reached, caught) = word.split_once(':')?;
        let caught = caught.split(',').filter(|number| !number.is_empty()).map(str::parse);
        Some(Self { reached: reached == "1", caught: caught.collect::<Result<_, _>>().ok()? })
    }
}

impl Test {
    /// Returns the estimated probability to catch another mutant, per time.
    fn promise(&self) -> f64 {
        let (caught, tested) =
            (self.caught.load(Ordering::Relaxed), self.tested.load(Ordering::Relaxed));
        (caught as f64 + 1.0) / (tested as f64 + 2.0) / (self.time.as_secs_f64() + 0.01)
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn outcomes_are_read_as_written() {
        for caught in [vec![], vec![3], vec![0, 4]] {
            let outcome = Outcome { reached: true, caught };
            assert_eq!(Outcome::read(&outcome.written()), Some(outcome));
        }
        assert_eq!(Outcome::read("1:x"), None);
    }
}
