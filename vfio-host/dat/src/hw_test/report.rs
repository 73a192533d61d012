//! The report: JSON lines, each on disk before what it announces runs.
//!
//! A line is an object with a `kind`; docs/hw-test.md lists them. The last line of a report names
//! what was under way when the machine stopped. A report that ends early is continued behind that
//! check, which counts as failed.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use dat_core::{DatReturn, Fault};
use serde_json::{Value, json};

use super::super::failure::Failure;
use super::super::out::{note, table};
use super::names::Names;

/// The format's number.
pub(super) const FORMAT: u64 = 1;

/// Why a check did not pass.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It cannot be made here.
    Skip(String),
    /// It failed.
    Fail(String),
}

/// The result of a check: its finding.
pub(crate) type Finding = Result<String, Stop>;

/// Makes a failed check.
pub(crate) fn fail<T>(says: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Fail(says.into()))
}

/// Makes a skipped check.
pub(crate) fn skip<T>(says: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Skip(says.into()))
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Fail(match failure.remedy.as_str() {
            "" => failure.cause,
            remedy => format!("{}; {remedy}", failure.cause),
        })
    }
}

macro_rules! stops {
    ($($type:ty),*) => {$(
        impl From<$type> for Stop {
            fn from(error: $type) -> Self {
                Self::Fail(error.to_string())
            }
        }
    )*};
}
stops!(Fault, DatReturn, dat_core::Error, vfio_host::Error, vfio_host::WaitError);

/// Counts of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
}

impl Tally {
    pub(super) fn count(&mut self, result: &str) {
        match result {
            "pass" => self.passed += 1,
            "skip" => self.skipped += 1,
            _ => self.failed += 1,
        }
    }
}

/// What a report knows of itself.
pub(super) struct State {
    pub(super) file: File,
    pub(super) names: Names,
    pub(super) tally: Tally,
    /// Checks that were announced, in this run or one before.
    pub(super) before: BTreeSet<String>,
    /// The greatest step that it announced.
    pub(super) reached: u8,
    /// The device that it was about.
    pub(super) device: Option<String>,
    pub(super) facts: BTreeSet<(String, String)>,
    /// Name, value and unit of each number of this run.
    pub(super) numbers: Vec<Vec<String>>,
    /// The step under way.
    pub(super) step: u8,
    /// What happened to the file, if that cannot be written.
    pub(super) broken: Option<String>,
}

/// A report under way.
pub(crate) struct Report {
    path: PathBuf,
    state: Mutex<State>,
}

impl Report {
    /// Makes a new one. An existing file is refused: it may be the only one of a card.
    pub(crate) fn create(path: &Path, names: Names) -> Result<Self, Failure> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| {
            Failure::new(format!("{}: {error}", path.display()))
                .remedy("name another file, or continue that one with --resume")
        })?;
        Ok(Self::over(path, file, names))
    }

    fn over(path: &Path, file: File, names: Names) -> Self {
        let state = State {
            file,
            names,
            tally: Tally::default(),
            before: BTreeSet::new(),
            reached: 0,
            device: None,
            facts: BTreeSet::new(),
            numbers: Vec::new(),
            step: 0,
            broken: None,
        };
        Self { path: path.to_path_buf(), state: Mutex::new(state) }
    }

    /// Continues one. Its last line may be cut; a check that was announced and has no end hung.
    pub(crate) fn resume(path: &Path, names: Names) -> Result<Self, Failure> {
        let at = |what: &dyn std::fmt::Display| Failure::new(format!("{}: {what}", path.display()));
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| at(&e))?;
        let report = Self::over(path, file, names);
        let open = {
            let mut state = report.state();
            let (whole, open) = super::resume::read(&mut state).map_err(|what| {
                at(&what)
                    .remedy("continue a report of dat hw-test, or begin a new one without --resume")
            })?;
            state.file.set_len(whole).map_err(|e| at(&e))?;
            state.file.seek(SeekFrom::End(0)).map_err(|e| at(&e))?;
            open
        };
        for (check, step) in open {
            note(&format!("  {check}: it hung in the run before"));
            report.end(step, &check, "fail", "it hung: the run before this one ended here", 0.0);
            report.state().before.insert(check);
        }
        Ok(report)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `what` on the stand-ins.
    pub(crate) fn names<T>(&self, what: impl FnOnce(&mut Names) -> T) -> T {
        what(&mut self.state().names)
    }

    /// Writes a line; `durable` has it on disk before this returns.
    pub(crate) fn line(&self, kind: &str, mut value: Value, durable: bool) {
        let state = &mut *self.state();
        if let Some(fields) = value.as_object_mut() {
            for field in fields.values_mut() {
                if let Value::String(text) = field {
                    *text = state.names.scrub_text(text);
                }
            }
            fields.insert("kind".into(), kind.into());
        }
        let text = format!("{value}\n");
        let mut written = state.file.write_all(text.as_bytes());
        if durable {
            written = written.and_then(|()| state.file.sync_data());
        }
        if let Err(error) = written {
            state.broken.get_or_insert(error.to_string());
        }
    }

    /// Writes the first line, or compares it with that of the report that is continued.
    pub(crate) fn head(&self, device: &str, revision: u8, card: &str) -> Result<(), Failure> {
        let before = self.state().device.clone();
        if let Some(before) = before.filter(|before| before != device) {
            return Err(Failure::new(format!(
                "{}: it is a report of {before}, and the device is {device}",
                self.path.display()
            ))
            .remedy("begin a new one without --resume"));
        }
        let utc = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.line(
            "head",
            json!({
                "format": FORMAT,
                "program": concat!("dat ", env!("CARGO_PKG_VERSION")),
                "device": device,
                "revision": revision,
                "card": card,
                "anonymous": self.names(|names| names.hides()),
                "utc": utc.map_or(0, |time| time.as_secs()),
            }),
            true,
        );
        self.whole()
    }

    /// An error if the file cannot be written.
    fn whole(&self) -> Result<(), Failure> {
        match &self.state().broken {
            None => Ok(()),
            Some(error) => Err(Failure::new(format!("{}: {error}", self.path.display()))
                .remedy("make room on the disk, then continue with --resume")),
        }
    }

    /// Whether a step is still to be done.
    pub(crate) fn wants(&self, step: u8) -> bool {
        step >= self.state().reached
    }

    /// The step under way.
    pub(crate) fn step(&self) -> u8 {
        self.state().step
    }

    /// Announces a check, runs it and writes how it ended. One that a run before has announced is
    /// not run again. Returns whether it passed now.
    pub(crate) fn check(
        &self,
        step: u8,
        name: &str,
        run: impl FnOnce() -> Finding,
    ) -> Result<bool, Failure> {
        let check = format!("{step}.{name}");
        if self.state().before.contains(&check) {
            return Ok(false);
        }
        self.run(step, &check, run)
    }

    /// The same of what later checks need: it is run again after a run that ended early, under
    /// another name each time that it hung.
    pub(crate) fn prepare(
        &self,
        step: u8,
        name: &str,
        run: impl FnOnce() -> Finding,
    ) -> Result<bool, Failure> {
        let mut check = format!("{step}.{name}");
        while self.state().before.contains(&check) {
            check.push_str(".again");
        }
        self.run(step, &check, run)
    }

    fn run(&self, step: u8, check: &str, run: impl FnOnce() -> Finding) -> Result<bool, Failure> {
        self.whole()?;
        {
            let state = &mut *self.state();
            state.step = step;
            state.before.insert(check.to_owned());
        }
        self.line("begin", json!({ "step": step, "check": check }), true);
        note(&format!("  {check} ..."));
        let start = Instant::now();
        let finding = run();
        let us = micros(start);
        let (result, says) = match finding {
            Ok(says) => ("pass", says),
            Err(Stop::Skip(says)) => ("skip", says),
            Err(Stop::Fail(says)) => ("fail", says),
        };
        note(&format!("  {check}: {result}{}{says}", if says.is_empty() { "" } else { ": " }));
        self.end(step, check, result, &says, us);
        Ok(result == "pass")
    }

    fn end(&self, step: u8, check: &str, result: &str, says: &str, us: f64) {
        let end = json!({ "step": step, "check": check, "result": result, "says": says, "us": us });
        self.line("end", end, true);
        self.state().tally.count(result);
    }

    /// Writes an open fact of silicon, once for each setting.
    pub(crate) fn fact(&self, fact: &str, setting: &str) {
        if self.state().facts.insert((fact.to_owned(), setting.to_owned())) {
            self.line("fact", json!({ "fact": fact, "setting": setting }), false);
        }
    }

    /// Writes a property of the machine.
    pub(crate) fn machine(&self, name: &str, value: &str) {
        self.line("machine", json!({ "name": name, "value": value }), false);
    }

    /// Writes a number, once for each value.
    pub(crate) fn number(&self, name: &str, value: impl Into<Value>, unit: &str) {
        let value: Value = value.into();
        let row = vec![name.to_owned(), value.to_string(), unit.to_owned()];
        if self.state().numbers.contains(&row) {
            return;
        }
        self.state().numbers.push(row);
        self.line("number", json!({ "name": name, "value": value, "unit": unit }), false);
    }

    /// The numbers of this run as a table.
    pub(crate) fn table(&self) -> String {
        let mut rows = vec![["", "THIS CARD", ""].map(str::to_owned).to_vec()];
        rows.extend(self.state().numbers.iter().cloned());
        if rows.len() > 1 { table(&rows) } else { String::new() }
    }

    /// Writes bytes, with stand-ins in them.
    pub(crate) fn bytes(&self, kind: &str, mut bytes: Vec<u8>, mut more: Value) {
        self.names(|names| names.scrub(&mut bytes));
        if let Some(fields) = more.as_object_mut() {
            fields.insert("bytes".into(), hex(&bytes).into());
        }
        self.line(kind, more, false);
    }

    /// Writes the last line and returns the counts.
    pub(crate) fn finish(&self) -> Result<Tally, Failure> {
        let tally = self.state().tally;
        let Tally { passed, failed, skipped } = tally;
        self.line("done", json!({ "passed": passed, "failed": failed, "skipped": skipped }), true);
        self.whole()?;
        Ok(tally)
    }
}

/// Microseconds since `start`, with one decimal.
pub(crate) fn micros(start: Instant) -> f64 {
    (start.elapsed().as_secs_f64() * 1e7).round() / 10.0
}

/// Bytes as the report has them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}
