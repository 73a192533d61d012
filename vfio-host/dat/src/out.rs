//! Output of the command: results go to standard output, everything else to standard error.
//!
//! A closed pipe is not an error: the command continues without output. A full disk is an error.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tracing::level_filters::LevelFilter;

use super::failure::Failure;

/// The output of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    json: bool,
}

impl Out {
    /// Makes an output of JSON or of text.
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Returns whether results are JSON.
    pub(crate) fn json(self) -> bool {
        self.json
    }

    /// Prints a result: `value` as one JSON document, or `text`.
    pub(crate) fn result(self, value: &impl Serialize, text: &str) -> Result<(), Failure> {
        if !self.json {
            return print(text);
        }
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::new(format!("the result cannot be written: {error}")))?;
        text.push('\n');
        print(&text)
    }

    /// Returns whether to draw progress: only on a terminal without other output.
    fn draws(self) -> bool {
        !self.json
            && !ERRORS_ONLY.load(Ordering::Relaxed)
            && io::stderr().is_terminal()
            && LevelFilter::current() < LevelFilter::INFO
    }

    /// Prints an intermediate message; nothing if results are JSON.
    pub(crate) fn say(self, text: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        print(&format!("{text}\n"))
    }

    /// Prints why the command failed.
    pub(crate) fn failure(self, failure: &Failure) -> ExitCode {
        #[derive(Serialize)]
        struct Report<'a> {
            error: &'a str,
            help: &'a str,
        }
        let report = Report { error: &failure.cause, help: &failure.remedy };
        if self.json {
            // If this cannot be written, nothing else can report it.
            let _ = self.result(&report, "");
        }
        let _ = writeln!(io::stderr().lock(), "dat: {failure}");
        ExitCode::from(failure.code())
    }
}

/// Only errors go to standard error.
static ERRORS_ONLY: AtomicBool = AtomicBool::new(false);

/// Writes a line to standard error, unless only errors go there. What goes wrong here is ignored.
pub(crate) fn note(text: &str) {
    if !ERRORS_ONLY.load(Ordering::Relaxed) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Starts logging of the given verbosity to standard error.
pub(crate) fn logs(verbose: u8, errors_only: bool) {
    ERRORS_ONLY.store(errors_only, Ordering::Relaxed);
    let level = match verbose {
        0 if errors_only => LevelFilter::ERROR,
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        3.. => LevelFilter::TRACE,
    };
    // A second call in one process keeps the first choice.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false)
        .with_writer(|| LossyStderr)
        .try_init();
}

/// Standard error that drops what cannot be written.
struct LossyStderr;

impl Write for LossyStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a progress bar for `count` operations, 0 for an unknown number. Hidden unless progress may
/// be drawn.
pub(crate) fn progress(out: Out, count: u64, what: &'static str) -> ProgressBar {
    if !out.draws() {
        return ProgressBar::hidden();
    }
    let (bar, form) = match count {
        0 => (ProgressBar::new_spinner(), "{msg} {spinner} {pos}"),
        count => (ProgressBar::new(count), "{msg} {wide_bar} {pos}/{len} {per_sec} {eta}"),
    };
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar.with_message(what)
}

/// Formats columns of text, as wide as their widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(column) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
