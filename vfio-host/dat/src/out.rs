//! Where words go: results to standard output, everything else to standard error.
//!
//! A reader that closed its end of the pipe is not an error: the command goes on without it. A full
//! disk is.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tracing::level_filters::LevelFilter;

use super::failure::Failure;

/// The way out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    json: bool,
}

impl Out {
    /// Results as JSON, or as text.
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether results are wanted as JSON.
    pub(crate) fn json(self) -> bool {
        self.json
    }

    /// A result: `value` as one JSON document, or `text`.
    pub(crate) fn result(self, value: &impl Serialize, text: &str) -> Result<(), Failure> {
        if !self.json {
            return print(text);
        }
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::new(format!("the result cannot be written: {error}")))?;
        text.push('\n');
        print(&text)
    }

    /// Whether progress may be drawn: somebody is watching, and nothing else is written there.
    fn draws(self) -> bool {
        !self.json && io::stderr().is_terminal() && LevelFilter::current() < LevelFilter::INFO
    }

    /// Something said on the way, for a person: nothing if results are JSON.
    pub(crate) fn say(self, text: &str) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        print(&format!("{text}\n"))
    }

    /// Tells why the command gave up.
    pub(crate) fn failure(self, failure: &Failure) -> ExitCode {
        #[derive(Serialize)]
        struct Told<'a> {
            error: &'a str,
            help: &'a str,
        }
        let told = Told { error: &failure.cause, help: &failure.remedy };
        if self.json {
            // What cannot be written here cannot be told anywhere else either.
            let _ = self.result(&told, "");
        }
        note(&format!("dat: {failure}"));
        ExitCode::from(failure.code())
    }
}

/// Writes a line to standard error, if anybody reads there.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
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

/// Logs of the given verbosity go to standard error.
pub(crate) fn logs(verbose: u8) {
    let level = match verbose {
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
        .with_writer(|| Quiet)
        .try_init();
}

/// Standard error that nobody may read: what cannot be written is dropped.
struct Quiet;

impl Write for Quiet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A bar for `count` operations, on a terminal where nothing else is written; 0 for a number that
/// is not known.
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

/// Columns of text, as wide as their widest cell.
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
