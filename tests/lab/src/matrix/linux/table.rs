//! The matrix as a table, and what the models said of it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::side::Pairing;

/// How lines of a model's report begin that somebody should read.
const SHOWN: [&str; 3] = ["complaint: ", "note: ", "refused "];

/// The first lines of the table.
fn heading(pairings: &[Pairing]) -> String {
    let mut text = String::from("| server - client |");
    for pairing in pairings {
        let _ = write!(text, " {} |", pairing.shown());
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(pairings.len()));
    text.push('\n');
    text
}

/// The table of these rows, with numbers in place of reasons, and the reasons below it.
pub(super) fn markdown(pairings: &[Pairing], rows: &[(&str, Vec<String>)]) -> String {
    let mut text = heading(pairings);
    let mut reasons: Vec<&str> = Vec::new();
    for (name, cells) in rows {
        let _ = write!(text, "| {name} |");
        for cell in cells {
            // A reason ends like a sentence, nothing else does but a failure.
            let _ = if cell.ends_with('.') && !cell.starts_with("**") {
                write!(text, " ({}) |", number(&mut reasons, cell))
            } else if cell.is_empty() {
                write!(text, " |")
            } else {
                write!(text, " {cell} |")
            };
        }
        text.push('\n');
    }
    text.push('\n');
    for (nth, reason) in reasons.iter().enumerate() {
        let _ = writeln!(text, "({}) {reason}  ", nth + 1);
    }
    text
}

/// A page's rows by name, with reasons in place of their numbers.
fn rows_of(page: &str) -> BTreeMap<&str, Vec<String>> {
    let reasons: BTreeMap<&str, &str> = page
        .lines()
        .filter(|line| line.starts_with('('))
        .filter_map(|line| line.trim_end().split_once(' '))
        .collect();
    let lines = page.lines().filter_map(|line| {
        let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
        row.split_once(" | ")
    });
    // The heading comes first.
    let rows = lines.skip(1).map(|(name, cells)| {
        let read = |cell| reasons.get(cell).copied().unwrap_or(cell).to_owned();
        (name, cells.split(" | ").map(read).collect())
    });
    rows.collect()
}

/// The table of a page in which `part` has the rows that ran last; `names` is the order of
/// all. A row that did not run in full stays as it is.
pub(super) fn merged(
    pairings: &[Pairing],
    page: &str,
    part: &[(&str, Vec<String>)],
    names: impl Iterator<Item = &'static str>,
) -> String {
    let mut rows = rows_of(page);
    let whole = part.iter().filter(|(_, cells)| cells.iter().all(|cell| !cell.is_empty()));
    rows.extend(whole.cloned());
    let rows: Vec<_> = names.filter_map(|name| Some((name, rows.remove(name)?))).collect();
    markdown(pairings, &rows)
}

/// The number of a reason, a new one if need be.
fn number<'r>(reasons: &mut Vec<&'r str>, reason: &'r str) -> usize {
    let known = reasons.iter().position(|known| *known == reason);
    let nth = known.unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    });
    nth + 1
}

/// What the models saw that somebody should read, each kind of thing once: lines that differ in
/// numbers only are one kind.
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
    use super::super::side::PAIRINGS;
    use super::{markdown, merged, said};

    #[test]
    fn a_page_keeps_rows_that_did_not_run() {
        let row = |name, cell: &str| (name, vec![cell.to_owned(); PAIRINGS.len()]);
        let old = markdown(&PAIRINGS, &[row("a", "two."), row("c", "2 s"), row("d", "one.")]);
        let mut half = row("c", "");
        half.1[0] = "9 s".to_owned();
        let new = [row("b", "other."), half, row("d", "3 s, again")];
        let whole = markdown(
            &PAIRINGS,
            &[row("a", "two."), row("b", "other."), row("c", "2 s"), row("d", "3 s, again")],
        );
        assert!(
            whole.contains("| a | (1) | (1) |") && whole.ends_with("(1) two.  \n(2) other.  \n")
        );
        let names = || ["a", "b", "c", "d"].into_iter();
        assert_eq!(merged(&PAIRINGS, &format!("Front.\n\n{old}"), &new, names()), whole);
        assert_eq!(merged(&PAIRINGS, &whole, &[], names()), whole);
        assert!(markdown(&PAIRINGS, &new).contains("| c | 9 s | | | | | | |\n"));
    }

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
