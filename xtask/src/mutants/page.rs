//! The results of the mutants, as text and as `docs/generated/mutants.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::build::Mutant;
use super::runner::Outcome;

/// Mutants with one goal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) goal: f64,
    pub(crate) not_viable: usize,
    pub(crate) equal: usize,
    pub(crate) rows: Vec<(Mutant, Outcome)>,
}

impl Group {
    pub(crate) fn caught(&self) -> usize {
        self.rows.iter().filter(|(_, outcome)| !outcome.caught.is_empty()).count()
    }

    pub(crate) fn percent(&self) -> f64 {
        100.0 * self.caught() as f64 / self.rows.len().max(1) as f64
    }

    /// Returns whether the goal is reached.
    pub(crate) fn is_good(&self) -> bool {
        self.percent() >= self.goal
    }

    /// Returns one line of numbers.
    pub(crate) fn line(&self) -> String {
        format!(
            "{}: {} mutants, {} change nothing, {} viable, {} caught, {:.1} % (goal {} %)",
            self.name,
            self.rows.len() + self.not_viable + self.equal,
            self.equal,
            self.rows.len(),
            self.caught(),
            self.percent(),
            self.goal
        )
    }

    pub(crate) fn survivors(&self) -> impl Iterator<Item = &(Mutant, Outcome)> {
        self.rows.iter().filter(|(_, outcome)| outcome.caught.is_empty())
    }
}

/// Returns why a mutant survived.
pub(crate) fn why(outcome: &Outcome) -> &'static str {
    if outcome.reached { "SURVIVED" } else { "SURVIVED, no test reaches it" }
}

fn caught_by(outcome: &Outcome, layers: &[&str]) -> String {
    if outcome.caught.is_empty() {
        return why(outcome).to_owned();
    }
    let names: Vec<&str> = outcome.caught.iter().filter_map(|i| layers.get(*i).copied()).collect();
    names.join(", ")
}

/// Escapes a text for a table cell.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Returns the page.
pub(crate) fn page(
    command: &str,
    seed: u64,
    left_out: &str,
    layers: &[&str],
    groups: &[Group],
) -> String {
    let mut out = format!(
        "# Mutants\n\nMade by `{command}`; the seed is {seed}. Do not edit.\n\n\
         A mutant is one small fault in dat-core or hca-mlx5. It is caught if a test fails, crashes or hangs.\n\
         Left out because it cannot be switched at run time: {left_out}.\n\n\
         | mutants of | mutants | viable | equal | caught | percent | goal |\n|---|---|---|---|---|---|---|\n"
    );
    for g in groups {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {:.1} | {} |",
            g.name,
            g.rows.len() + g.not_viable + g.equal,
            g.rows.len(),
            g.equal,
            g.caught(),
            g.percent(),
            g.goal
        );
    }
    out.push_str("\n| layer | catches |\n|---|---|\n");
    for (i, layer) in layers.iter().enumerate() {
        let rows = groups.iter().flat_map(|g| &g.rows);
        let count = rows.filter(|(_, outcome)| outcome.caught.contains(&i)).count();
        let _ = writeln!(out, "| {layer} | {count} |");
    }
    out.push_str("\nUnless `--layers` is given a mutant is tested until the first layer catches it, in this order.\n");
    for g in groups {
        let _ = write!(out, "\n## Survivors: {}\n\n", g.name);
        table(&mut out, g.survivors(), layers);
    }
    for g in groups {
        let _ = write!(out, "\n## All: {}\n\n", g.name);
        table(&mut out, g.rows.iter(), layers);
    }
    out
}

fn table<'a>(out: &mut String, rows: impl Iterator<Item = &'a (Mutant, Outcome)>, layers: &[&str]) {
    let mut files: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for row in rows {
        files.entry(&row.0.file).or_default().push(row);
    }
    if files.is_empty() {
        out.push_str("None.\n");
    }
    for (i, (file, rows)) in files.into_iter().enumerate() {
        let _ = writeln!(
            out,
            "{}`{file}`\n\n| mutant | change | caught by |\n|---|---|---|",
            if i == 0 { "" } else { "\n" }
        );
        for (mutant, outcome) in rows {
            let (key, what) = (&mutant.change.key, cell(&mutant.change.what));
            let _ = writeln!(out, "| {} | {what} | {} |", cell(key), caught_by(outcome, layers));
        }
    }
}

/// Parses the list of mutants that change nothing: lines of key, change and reason, separated by
/// tabs. The change is part of the name here, so that inserted code does not make a line name
/// another mutant.
pub(crate) fn equals(text: &str) -> BTreeMap<(&str, &str), &str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.filter_map(|line| {
        let (key, rest) = line.split_once('\t')?;
        let (what, reason) = rest.split_once('\t')?;
        Some(((key, what), reason))
    });
    rows.filter(|(_, reason)| !reason.trim().is_empty()).collect()
}

/// Returns the survivors that a page lists, by key and change.
pub(crate) fn survivors(page: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let (mut file, mut listed) = ("", false);
    for line in page.lines() {
        if line.starts_with("## ") {
            listed = line.starts_with("## Survivors");
        } else if let Some(name) = line.strip_prefix('`') {
            file = name.trim_end_matches('`');
        } else if let Some((key, rest)) = line.strip_prefix("| ").and_then(|l| l.split_once(" | "))
        {
            if let Some((what, _)) = rest.rsplit_once(" | SURVIVED") {
                if listed {
                    found.insert((format!("{file} {key}"), what.to_owned()));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::sites::Change;
    use super::*;

    fn row(key: &str, caught: &[usize]) -> (Mutant, Outcome) {
        let change = Change {
            key: key.into(),
            function: "f".into(),
            what: "`a | b` dropped".into(),
            forced: false,
        };
        let mutant = Mutant { key: format!("a.rs {key}"), file: "a.rs".into(), change };
        (mutant, Outcome { reached: true, caught: caught.to_vec() })
    }

    #[test]
    fn survivors_are_on_top_and_count_against_the_goal() {
        let rows = vec![row("f statement 1", &[1]), row("f statement 2", &[])];
        let group = Group { name: "all", goal: 50.0, not_viable: 1, equal: 0, rows };
        assert_eq!(
            group.line(),
            "all: 3 mutants, 0 change nothing, 2 viable, 1 caught, 50.0 % (goal 50 %)"
        );
        assert!(group.is_good());
        let text = page("c", 7, "nothing", &["x", "y"], &[group]);
        let listed = ("a.rs f statement 2".into(), "`a \\| b` dropped".into());
        assert_eq!(survivors(&text), BTreeSet::from([listed]));
        let (top, all) = text.split_once("## All").unwrap();
        assert!(top.contains("| f statement 2 | `a \\| b` dropped | SURVIVED |"), "{top}");
        assert!(
            !top.contains("statement 1")
                && all.contains("| f statement 1 | `a \\| b` dropped | y |")
        );
    }

    #[test]
    fn equal_mutants_have_reasons() {
        let found = equals("# key\nf 1\t`a` dropped\tit is dead\nf 2\t`b` dropped\t \nf 3\n");
        let rows: Vec<_> = found.into_iter().collect();
        assert_eq!(rows, [(("f 1", "`a` dropped"), "it is dead")]);
    }
}
