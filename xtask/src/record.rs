//! `cargo xtask record`: the names of what the tests check, in `docs/generated/record.txt`.
//!
//! A change may add names. One that removes or renames a name shows it in the diff of the file, and
//! `--against` names every entry of an earlier revision that is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dat_lab::run;

use crate::coverage;

/// The file: a kind, a tab and a name in each line.
const FILE: &str = "docs/generated/record.txt";
const HEAD: &str = "# Made by `cargo xtask record --bless`: kind, name.\n";
/// The bugs that can be planted in the model, and the referees that catch each.
const SEEDS: &str = "tests/data/seeds.txt";
/// Kinds of names that are first arguments of calls: kind, file, calls.
const NAMED: [(&str, &str, &[&str]); 4] = [
    ("demo act", "tests/src/demo/acts.rs", &["act("]),
    ("DAT corner", "tests/dapl/probe.c", &["EXPECT(", "EXPECT_SUB(", "CHECK("]),
    ("DAT list check", "tests/dapl/lists.c", &["EXPECT(", "EXPECT_SUB(", "CHECK("]),
    ("DAT thread check", "tests/dapl/threads.c", &["EXPECT(", "EXPECT_SUB(", "CHECK("]),
];
/// The program of guests, whose subcommands are the variants of `Part`.
const GUEST: &str = "tests/src/guest/mod.rs";
/// The programs that run against the laws; tables on their front pages name the rules.
const LAWS: [&str; 2] = ["liveness", "safety"];

pub(crate) const RULE: &str = "conformance rule";
pub(crate) const CASE: &str = "conformance case";
pub(crate) const SEED: &str = "seeded bug";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write docs/generated/record.txt
    #[arg(long)]
    bless: bool,
    /// Fail if an entry of the file at this git revision is missing
    #[arg(long, value_name = "REV")]
    against: Option<String>,
}

/// Kinds and names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(BTreeSet<(String, String)>);

impl Record {
    /// Reads the sources.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut record = Self::default();
        record.add_all(coverage::names(root)?);
        record.add_all(dat_lab::names()?);
        let read =
            |file: &str| fs::read_to_string(root.join(file)).with_context(|| file.to_owned());
        record.add_all(seeded(&read(SEEDS)?));
        for (kind, file, calls) in NAMED {
            let text = read(file)?;
            record.add_all(first_arguments(&text, calls).map(|name| (kind, name.to_owned())));
        }
        record.add_all(guest_runs(&read(GUEST)?)?);
        for law in LAWS {
            let folder = root.join("tests/src/laws").join(law);
            let mut rules = BTreeSet::new();
            for entry in fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))? {
                rules.extend(law_rules(&fs::read_to_string(entry?.path())?));
            }
            record.add_all(rules.into_iter().map(|rule| ("law rule", format!("{law}: {rule}"))));
        }
        Ok(record)
    }

    fn add_all(&mut self, names: impl IntoIterator<Item = (&'static str, String)>) {
        self.0.extend(names.into_iter().map(|(kind, name)| (kind.to_owned(), name)));
    }

    fn parse(text: &str) -> Self {
        let rows = text.lines().filter_map(|line| line.split_once('\t'));
        Self(rows.map(|(kind, name)| (kind.to_owned(), name.to_owned())).collect())
    }

    fn text(&self) -> String {
        let rows = self.0.iter().map(|(kind, name)| format!("{kind}\t{name}\n"));
        std::iter::once(HEAD.to_owned()).chain(rows).collect()
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.0.iter().filter(|(of, _)| of == kind).count()
    }

    /// Returns the entries of `old` that are missing here.
    fn missing<'o>(&'o self, old: &'o Self) -> Vec<&'o (String, String)> {
        old.0.difference(&self.0).collect()
    }
}

/// Checks or writes the file, or compares it with an earlier one.
pub(crate) fn record(options: &Options) -> Result<()> {
    let root = run::root();
    let record = Record::read(&root)?;
    if options.bless {
        fs::write(root.join(FILE), record.text()).with_context(|| FILE.to_owned())?;
    }
    let mut faults = faults(&root)?;
    if let Some(revision) = &options.against {
        let mut show = Command::new("git");
        show.current_dir(&root).args(["show", &format!("{revision}:{FILE}")]);
        let old = Record::parse(&run::capture(show)?);
        let missing = record.missing(&old);
        faults.extend(missing.iter().map(|(kind, name)| format!("missing {kind}: {name}")));
    }
    println!("  {} names in {FILE}", record.0.len());
    for fault in &faults {
        eprintln!("record: {fault}");
    }
    ensure!(faults.is_empty(), "{} faults", faults.len());
    Ok(())
}

/// Returns the differences between the file and the sources.
pub(crate) fn faults(root: &Path) -> Result<Vec<String>> {
    let record = Record::read(root)?;
    let text = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    let is_current = text == record.text();
    let fault = format!("{FILE} is not up to date: `cargo xtask record --bless` writes it");
    Ok(if is_current { Vec::new() } else { vec![fault] })
}

/// Parses the bugs: an entry for each, and one for each referee that catches it.
fn seeded(text: &str) -> Vec<(&'static str, String)> {
    let bugs = text.lines().filter(|line| !line.starts_with('#'));
    let bugs = bugs.filter_map(|line| {
        let (bug, referees) = line.split_once(": ")?;
        Some((bug.split_once(' ')?.1, referees))
    });
    let mut names = Vec::new();
    for (bug, referees) in bugs {
        names.push((SEED, bug.to_owned()));
        let caught = referees.split(' ').map(|by| ("seeded bug caught", format!("{bug}, by {by}")));
        names.extend(caught);
    }
    names
}

/// Returns the rules in the first column of tables on a front page, and those named by violations.
fn law_rules(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let listed = cells.flat_map(|cell| cell.split(", ")).map(|rule| rule.trim_matches('`'));
    listed.chain(first_arguments(text, &["violation("])).map(str::to_owned).collect()
}

/// Returns the string literals that are first arguments of these calls.
fn first_arguments<'t>(text: &'t str, calls: &[&str]) -> impl Iterator<Item = &'t str> {
    let behind = calls.iter().flat_map(|call| text.split(*call).skip(1));
    behind.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}

/// Returns the subcommands of the program that guests run.
fn guest_runs(text: &str) -> Result<Vec<(&'static str, String)>> {
    let syntax = syn::parse_file(text).with_context(|| GUEST.to_owned())?;
    let mut runs = Vec::new();
    for item in &syntax.items {
        if let syn::Item::Enum(item) = item {
            if item.ident == "Part" {
                runs.extend(item.variants.iter().map(|part| ("guest run", part.ident.to_string())));
            }
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_gone_is_missing() {
        let old = Record::parse("matrix cell\tping\nmatrix cell\tiperf\n");
        let new = Record::parse("matrix cell\tping\nscenario\tiperf\n");
        assert_eq!(new.missing(&old), [&("matrix cell".to_owned(), "iperf".to_owned())]);
        assert_eq!(Record::parse(&new.text()), new);
        assert_eq!(new.count("matrix cell"), 1);
    }

    #[test]
    fn bugs_have_a_name_for_each_referee() {
        let names = seeded("# text\n1 cqe.byte_cnt: driver linux\n");
        assert_eq!(names.len(), 3);
        assert_eq!(names[2], ("seeded bug caught", "cqe.byte_cnt, by linux".to_owned()));
    }

    #[test]
    fn rules_come_from_tables_and_from_code() {
        let page = "//! | `a`, `b` | text |\nreturn violation(\n    \"c\",\n";
        assert_eq!(law_rules(page), ["a", "b", "c"].map(str::to_owned).into());
    }
}
