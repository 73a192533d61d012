//! The story of a run: a line for each call, event and fault, with virtual time and host.
//!
//! The hash is over every line, whether lines are kept or not: two runs with the same hash did the
//! same.

use std::fmt::{Arguments, Write as _};

use mlx5_model::host::Nanos;

/// What happens to the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lines {
    /// Only hashed.
    #[default]
    Hash,
    /// Kept, the latest of them.
    Keep,
    /// Printed.
    Print,
}

/// Lines kept at most.
const KEPT: usize = 400;

/// The lines of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    count: u64,
    lines: Lines,
    kept: std::collections::VecDeque<String>,
    line: String,
}

impl Trace {
    /// No line yet.
    #[must_use]
    pub fn new(lines: Lines) -> Self {
        let hash = 0xcbf2_9ce4_8422_2325;
        Self { hash, count: 0, lines, kept: std::collections::VecDeque::new(), line: String::new() }
    }

    /// Adds a line.
    pub fn say(&mut self, now: Nanos, host: Option<usize>, text: Arguments<'_>) {
        self.line.clear();
        let (seconds, nanos) = (now / 1_000_000_000, now % 1_000_000_000);
        let _ = match host {
            Some(host) => write!(self.line, "{seconds:>3}.{nanos:09} h{host} {text}"),
            None => write!(self.line, "{seconds:>3}.{nanos:09} -- {text}"),
        };
        // Words, not bytes: every call and event has a line.
        let words = self.line.as_bytes().chunks_exact(8);
        let rest = words.remainder().iter().map(|byte| u64::from(*byte));
        let words = words.filter_map(<[_]>::first_chunk::<8>);
        for word in words.map(|word| u64::from_le_bytes(*word)).chain(rest) {
            self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        self.count += 1;
        match self.lines {
            Lines::Hash => {}
            Lines::Keep => {
                if self.kept.len() == KEPT {
                    self.kept.pop_front();
                }
                self.kept.push_back(self.line.clone());
            }
            Lines::Print => println!("{}", self.line),
        }
    }

    /// The hash of all lines.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many lines there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The lines that were kept.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(String::as_str)
    }
}
