//! How the rows went, as a table, and where the documentation keeps it.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result, anyhow, bail};

use super::rows::{self, Row, Tier};
use super::tiers::Outcomes;
use crate::matrix::outcome::Outcome;
use crate::run;

/// The documentation.
const PAGE: &str = "docs/dat-programs.md";

/// The table of these columns: a heading, and how its rows went.
pub(super) fn table(columns: &[(&str, &Outcomes)]) -> Result<String> {
    let rows = rows::rows()?;
    let mut text = String::from("| row | command |");
    for (heading, _) in columns {
        let _ = write!(text, " {heading} |");
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(columns.len()));
    text.push('\n');
    for row in &rows {
        let cells: Vec<Option<&Outcome>> =
            columns.iter().map(|(_, outcomes)| outcome(outcomes, row)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(text, "| {} | `{}` |", row.name, row.shown());
        for cell in cells {
            let _ = match cell {
                None => write!(text, " |"),
                Some(outcome) => write!(text, " {} |", outcome.cell()),
            };
        }
        text.push('\n');
    }
    Ok(text)
}

fn outcome<'p>(outcomes: &'p Outcomes, row: &Row) -> Option<&'p Outcome> {
    let found = outcomes.iter().find(|(name, _)| *name == row.name);
    found.map(|(_, outcome)| outcome)
}

/// A line for the table of scenarios, or why it failed.
pub(super) fn sum(columns: &[(&str, &Outcomes)]) -> Result<String> {
    let all = || columns.iter().flat_map(|(_, outcomes)| outcomes.iter());
    let failed: Vec<String> = all()
        .filter_map(|(name, outcome)| match outcome {
            Outcome::Failed(why) => Some(format!("{name} ({why})")),
            Outcome::Passed(_) | Outcome::Again(_) | Outcome::Known(_) | Outcome::Cannot(_) => None,
        })
        .collect();
    let count = all().count();
    match (count, failed.len()) {
        (0, _) => Err(anyhow!("no row ran")),
        (_, 0) => Ok(format!("{count} rows pass")),
        (_, bad) => {
            const NAMED: usize = 12;
            let more = if bad > NAMED { " and others" } else { "" };
            let named = failed.get(..bad.min(NAMED)).unwrap_or_default();
            bail!("{bad} of {count} rows fail: {}{more}", named.join(", "))
        }
    }
}

/// What a selection of guests leaves to whole runs.
pub(super) fn left(guest: &Outcomes, wire: &Outcomes) -> Result<String> {
    let rows = rows::rows()?;
    let mut text = String::from("not run here:");
    for (tier, outcomes) in [(Tier::Guest, guest), (Tier::Wire, wire)] {
        let all = rows.iter().filter(|row| row.is_of(tier)).count();
        let left = all.saturating_sub(outcomes.len());
        let _ = write!(text, " {left} of {all} rows of {},", tier.name());
    }
    text.push_str(
        " stock, and repeats: what runs is shortened; `cargo xtask qemu-test --dat` runs all of it",
    );
    Ok(text)
}

/// Writes a text between the marks of its name in the documentation.
pub(super) fn bless(name: &str, text: &str) -> Result<()> {
    let path = run::root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let page =
        between(&page, name, text).with_context(|| format!("{PAGE} has no place for {name}"))?;
    fs::write(&path, page)?;
    Ok(())
}

/// Writes rows of a table over those of the same names in the documentation.
pub(super) fn bless_rows(name: &str, table: &str) -> Result<()> {
    let path = run::root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let old = section(&page, name).with_context(|| format!("{PAGE} has no place for {name}"))?;
    let text = with_rows(old, table);
    fs::write(&path, between(&page, name, &text).context("no place")?)?;
    Ok(())
}

/// A table in which rows are replaced by those of another.
fn with_rows(old: &str, new: &str) -> String {
    let of = |line: &str| line.split(" | ").next().unwrap_or_default().to_owned();
    let rows = new.lines().skip(2);
    let found = |line: &str| rows.clone().find(|row| of(row) == of(line));
    let lines = old.lines().map(|line| found(line).unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// What the documentation has for a name.
fn section<'p>(page: &'p str, name: &str) -> Option<&'p str> {
    let (_, rest) = page.split_once(&format!("<!-- {name}:begin -->\n"))?;
    Some(rest.split_once(&format!("<!-- {name}:end -->"))?.0)
}

fn between(page: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{}\n{end}{after}", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_goes_between_its_marks() {
        let page = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        assert_eq!(
            between(page, "x", "new\n").unwrap(),
            "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n"
        );
        assert!(between(page, "y", "new").is_none());
    }

    #[test]
    fn a_row_that_ran_again_is_replaced() {
        let old = "| row | command | a |\n|---|---|---|\n| b | `x` | 1 s |\n| b, c | `y` | 2 s |\n";
        let new = "| row | command | a |\n|---|---|---|\n| b | `x` | 3 s |\n";
        let wanted =
            "| row | command | a |\n|---|---|---|\n| b | `x` | 3 s |\n| b, c | `y` | 2 s |";
        assert_eq!(with_rows(old, new), wanted);
        let page = format!("a\n<!-- x:begin -->\n{old}<!-- x:end -->\nb\n");
        assert_eq!(section(&page, "x"), Some(old));
    }

    #[test]
    fn the_documentation_has_a_place_for_each() {
        let page = fs::read_to_string(run::root().join(PAGE)).unwrap();
        for name in super::super::SECTIONS {
            assert!(between(&page, name, "").is_some(), "{name}");
        }
    }

    #[test]
    fn rows_left_out_are_counted() {
        let all = rows::rows().unwrap();
        let of = |tier| all.iter().filter(|row| row.is_of(tier)).count();
        let outcomes = vec![("dtest".to_owned(), Outcome::Passed(1.0))];
        let text = left(&outcomes, &Outcomes::new()).unwrap();
        for (tier, ran) in [(Tier::Guest, 1), (Tier::Wire, 0)] {
            let count = of(tier);
            let said = format!("{} of {count} rows of {},", count - ran, tier.name());
            assert!(text.contains(&said), "{text}");
        }
    }

    #[test]
    fn a_failure_is_named() {
        let outcomes = vec![
            ("dtest".to_owned(), Outcome::Passed(1.2)),
            ("dtestx".to_owned(), Outcome::Failed("why".into())),
        ];
        let columns = [("host", &outcomes)];
        assert!(sum(&columns).unwrap_err().to_string().contains("dtestx"));
        let text = table(&columns).unwrap();
        assert!(text.contains("| dtest | `dtest -P hca -b 4096 -B 100` | 2 s |"), "{text}");
        assert!(text.contains("**fails**: why"), "{text}");
    }
}
