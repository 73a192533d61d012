//! Whether a program did well: by its exit status, and by every line that it printed, because most
//! of these programs end with 0 whatever happened.

use std::fmt;

use anyhow::{Result, bail, ensure};

/// Parts of lines that are no failure, though they read like one: program, part, reason.
const ALLOWED: &str = include_str!("allowed.tsv");
/// What no line may have in it, in any case.
const BAD: [&str; 10] = [
    "error",
    "fail",
    "mismatch",
    "invalid",
    "err:",
    "err ",
    "couldn't",
    "cannot",
    "no memory",
    "unexpected",
];

/// What a client says that came before its server listened, of programs whose servers call them
/// before they do: program, line. `docs/dat-programs.md` shows where.
const EARLY: [(&str, &str); 1] = [("dtestx", "unexpected event, !conn established: 0x4003")];

/// The client came before its server listened.
#[derive(Debug)]
pub(super) struct Early;

impl fmt::Display for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its client came before its server listened, as the program allows")
    }
}

impl std::error::Error for Early {}

/// Fails if a client came before its server listened, by a fault of the program's.
pub(super) fn in_time(program: &str, client: &Ended) -> Result<(), Early> {
    let early = |line: &String| EARLY.contains(&(program, line.trim()));
    if client.lines.iter().any(early) {
        return Err(Early);
    }
    Ok(())
}

/// How a program ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended {
    /// Its exit status; `None`: it had to be ended, or a signal did.
    pub(super) status: Option<i32>,
    /// What it printed.
    pub(super) lines: Vec<String>,
}

impl Ended {
    /// The end of what it printed.
    pub(super) fn tail(&self) -> String {
        const KEPT: usize = 25;
        let from = self.lines.len().saturating_sub(KEPT);
        self.lines.get(from..).unwrap_or_default().join("\n")
    }
}

/// Parts of lines that are no failure, of a program.
fn allowed(program: &str) -> impl Iterator<Item = &'static str> {
    ALLOWED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('\t'))
        .filter(move |(of, _)| *of == program)
        .filter_map(|(_, rest)| Some(rest.split_once('\t')?.0))
}

/// The first line that tells of a failure.
pub(super) fn complaint<'l>(program: &str, lines: &'l [String]) -> Option<&'l str> {
    let bad = |line: &&String| {
        let low = line.to_lowercase();
        BAD.iter().any(|word| low.contains(word))
            && !allowed(program).any(|part| line.contains(part))
    };
    lines.iter().find(bad).map(String::as_str)
}

/// Fails if lines of a side complain, or lack what has to be in them.
pub(super) fn lines(
    side: &str,
    program: &str,
    lines: &[String],
    says: Option<&(usize, String)>,
) -> Result<()> {
    if let Some(line) = complaint(program, lines) {
        bail!("{side} says: {}", line.trim());
    }
    if let Some((times, text)) = says {
        let said: usize = lines.iter().map(|line| line.matches(text).count()).sum();
        ensure!(said == *times, "{side} says \"{text}\" {said} times instead of {times}");
    }
    Ok(())
}

/// Fails if a program ended otherwise than well.
pub(super) fn ended(
    side: &str,
    program: &str,
    ended: &Ended,
    says: Option<&(usize, String)>,
) -> Result<()> {
    // What it said tells more than that it ended.
    lines(side, program, &ended.lines, None)?;
    match ended.status {
        Some(0) => lines(side, program, &ended.lines, says),
        Some(status) => bail!("{side} ended with {status}"),
        None => bail!("{side} did not end by itself in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn only_a_program_that_calls_too_soon_may_come_too_early() {
        let client = Ended {
            status: Some(1),
            lines: said(&["unexpected event, !conn established: 0x4003"]),
        };
        assert!(in_time("dtestx", &client).is_err());
        assert!(in_time("dtest", &client).is_ok());
    }

    #[test]
    fn a_line_that_complains_is_found_in_any_case() {
        let lines = said(&["fine", "12 Error unexpected DTO event", "PASSED"]);
        assert_eq!(complaint("dtest", &lines), Some("12 Error unexpected DTO event"));
        assert!(
            complaint("dapltest", &said(&["rc == DAT_SUCCESS failed in file x, line 1"])).is_some()
        );
        assert!(complaint("dtestsrq", &said(&[" ERR: ep 1 recv msg 2 exp 3"])).is_some());
    }

    #[test]
    fn an_end_has_to_be_good_in_every_way() {
        let says = (2, "PASSED".to_owned());
        let end = |status, text: &[&str]| Ended { status, lines: said(text) };
        let judged = |it: &Ended| ended("client", "dtest", it, Some(&says)).is_ok();
        assert!(judged(&end(Some(0), &["a PASSED", "b PASSED"])));
        assert!(!judged(&end(Some(0), &["a PASSED"])));
        assert!(!judged(&end(Some(1), &["a PASSED", "b PASSED"])));
        assert!(!judged(&end(None, &["a PASSED", "b PASSED"])));
        assert!(!judged(&end(Some(0), &["a PASSED", "b PASSED", "Error"])));
    }

    #[test]
    fn what_is_allowed_has_a_reason() {
        for line in ALLOWED.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            assert!(fields.len() == 3 && fields.iter().all(|f| f.len() > 3), "{line}");
        }
    }
}
