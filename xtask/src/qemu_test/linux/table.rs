//! The matrix as a table, and what the models said of it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::matrix::{Outcome, Row};
use super::side::PAIRINGS;

/// How lines of a model's report begin that somebody should read.
const SHOWN: [&str; 3] = ["complaint: ", "note: ", "refused "];

/// The table of the documentation.
pub(super) fn markdown(rows: &[Row]) -> String {
    let mut text = String::from("| server - client |");
    for pairing in PAIRINGS {
        let _ = write!(text, " {} |", pairing.name().replace('-', " - "));
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(PAIRINGS.len()));
    text.push('\n');
    let mut reasons: Vec<&str> = Vec::new();
    for row in rows
        .iter()
        .filter(|row| row.cells.iter().any(Option::is_some))
    {
        let _ = write!(text, "| {} |", row.test.name);
        for cell in &row.cells {
            let _ = match cell {
                None => write!(text, " |"),
                Some(Outcome::Passed(seconds)) => write!(text, " {} s |", seconds.ceil()),
                Some(Outcome::Again(seconds)) => write!(text, " {} s, again |", seconds.ceil()),
                Some(Outcome::Failed) => write!(text, " **fails** |"),
                Some(Outcome::Cannot(reason)) => {
                    let nth = reasons.iter().position(|known| known == reason);
                    let nth = nth.unwrap_or_else(|| {
                        reasons.push(reason);
                        reasons.len() - 1
                    });
                    write!(text, " ({}) |", nth + 1)
                }
            };
        }
        text.push('\n');
    }
    text.push('\n');
    for (nth, reason) in reasons.iter().enumerate() {
        let _ = writeln!(text, "({}) {reason}.  ", nth + 1);
    }
    text
}

/// What the models saw that somebody should read, each kind of thing once: lines that differ in numbers only are one kind.
pub(super) fn said(reports: &[String]) -> String {
    let mut kinds: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for line in reports {
        let line = line.trim();
        if SHOWN.iter().any(|kind| line.starts_with(kind)) {
            let words = line.split(' ').map(|word| {
                let number = word.starts_with(|c: char| c.is_ascii_digit());
                if number { "#" } else { word }
            });
            let kind = words.collect::<Vec<_>>().join(" ");
            kinds.entry(kind).or_insert((0, line)).0 += 1;
        }
    }
    let mut text = String::new();
    for (times, line) in kinds.values() {
        let _ = writeln!(text, "  {times} x {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::said;

    #[test]
    fn what_differs_in_numbers_is_said_once() {
        let lines = [
            "/tmp/a: 2 clients",
            "  complaint: CQ 0x406: armed with 3",
            "  complaint: CQ 0x407: armed with 1",
            "  note: lost",
            "  refused 2 times: QUERY_ESW (0x752), status 0x2, syndrome 0x1",
        ];
        let lines = lines.map(str::to_owned);
        assert_eq!(
            said(&lines),
            "  2 x complaint: CQ 0x406: armed with 3\n  1 x note: lost\n  \
                1 x refused 2 times: QUERY_ESW (0x752), status 0x2, syndrome 0x1\n"
        );
    }
}
