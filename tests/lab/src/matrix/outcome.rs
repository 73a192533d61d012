//! How a cell of a matrix or a row of programs went.

use std::time::Instant;

use anyhow::{Error, Result};

/// How it went.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// Well, in so many seconds.
    Passed(f64),
    /// The same, but only at a later attempt.
    Again(f64),
    /// It did not, for this reason.
    Failed(String),
    /// It did not, as is known of the stock provider.
    Known(&'static str),
    /// It cannot be run, for this reason.
    Cannot(&'static str),
}

impl Outcome {
    /// Returns the text of its cell in a table.
    pub(crate) fn cell(&self) -> String {
        match self {
            Self::Passed(seconds) => format!("{} s", seconds.ceil()),
            Self::Again(seconds) => format!("{} s, again", seconds.ceil()),
            Self::Failed(why) => format!("**fails**: {why}"),
            Self::Known(why) => format!("fails, as known: {why}"),
            Self::Cannot(why) => format!("{why}."),
        }
    }

    /// Returns whether it failed for an unknown reason.
    pub(crate) fn is_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

/// Runs until it goes well, at most `most` times, and again only after errors that `repeats`
/// admits.
pub(crate) fn attempt(
    name: &str,
    most: u32,
    repeats: impl Fn(&Error) -> bool,
    mut run: impl FnMut() -> Result<()>,
) -> Outcome {
    let mut nth = 1;
    loop {
        let start = Instant::now();
        let result = run();
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                println!("    {name}: {seconds:.1} s");
                return if nth > 1 { Outcome::Again(seconds) } else { Outcome::Passed(seconds) };
            }
            Err(error) => {
                println!("    {name}: FAILED after {seconds:.1} s: {error:#}");
                if nth == most || !repeats(&error) {
                    return failed(&error);
                }
            }
        }
        nth += 1;
    }
}

/// The outcome of an error: the first line of its cause.
pub(crate) fn failed(error: &Error) -> Outcome {
    let cause = error.root_cause().to_string();
    Outcome::Failed(cause.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_attempt_is_reported() {
        let mut left = 2;
        let mut run = || {
            left -= 1;
            anyhow::ensure!(left == 0, "why\nmore");
            Ok(())
        };
        assert_eq!(attempt("x", 2, |_| false, &mut run), Outcome::Failed("why".into()));
        left = 2;
        let mut run = || {
            left -= 1;
            anyhow::ensure!(left == 0, "why");
            Ok(())
        };
        assert!(matches!(attempt("x", 2, |_| true, &mut run), Outcome::Again(_)));
    }
}
