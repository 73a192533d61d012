//! `docs/dat-coverage.md`: every rule of DAT that the conformance suite has to check, and its case.
//!
//! Beside the cases, `tests/src/conformance` has tables of rules, `rules/<group>.txt`, and
//! `required.txt`: every call, transition, event and memory rule of DAT. `cargo xtask tidy`
//! compares them with each other, with the sources and with the page; `--bless` writes the page.

mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::record;
use pages::{Pages, Source};

/// The folder of cases and tables.
const SUITE: &str = "tests/src/conformance";
/// The generated page.
const PAGE: &str = "docs/dat-coverage.md";
/// Folders of the methods of calls; the first that has a method is named.
const SOURCES: &[&str] = &["dat-core/src/", "vfio-host/src/"];
/// Number of faults of the C implementation, each of which has a case.
const FAULTS: usize = 44;

/// The sources of the workspace by name.
type Texts = BTreeMap<String, String>;

/// One line of a table of rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    call: String,
    text: String,
    source: String,
    case: String,
}

/// The items that have to be covered.
#[derive(Debug, Default)]
struct Required {
    /// Name.
    calls: Vec<String>,
    /// Name and why.
    out: Vec<[String; 2]>,
    /// Section, key, text, test.
    points: Vec<(Section, [String; 3])>,
}

/// A section of points that tests outside the suite cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Transition,
    Event,
    Memory,
}

/// All tables.
#[derive(Debug, Default)]
struct Tables {
    rules: Vec<Rule>,
    required: Required,
    pages: Pages,
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn columns<const N: usize>(line: &str) -> Option<[String; N]> {
    let columns: Vec<String> = line.split('|').map(|part| part.trim().to_owned()).collect();
    columns.try_into().ok()
}

impl Tables {
    fn read(root: &Path, faults: &mut Vec<String>) -> Result<Self> {
        let mut tables = Self::default();
        let folder = root.join(SUITE).join("rules");
        let mut files: Vec<_> = fs::read_dir(&folder)
            .with_context(|| format!("{}", folder.display()))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let group = name.trim_end_matches(".txt").to_owned();
            tables.rules(&group, &fs::read_to_string(&file)?, faults);
        }
        tables.required(&fs::read_to_string(root.join(SUITE).join("required.txt"))?, faults);
        let sentences = root.join(SUITE).join(pages::TABLE);
        tables.pages.read(&fs::read_to_string(sentences)?, faults);
        Ok(tables)
    }

    fn rules(&mut self, group: &str, text: &str, faults: &mut Vec<String>) {
        for (number, line) in lines(text) {
            let at = format!("rules/{group}.txt:{number}");
            let Some([call, text, source, case]) = columns::<4>(line) else {
                faults.push(format!("{at}: not `call | rule | source | group::case`"));
                continue;
            };
            if [&call, &text, &source, &case].iter().any(|column| column.is_empty()) {
                faults.push(format!("{at}: an empty column"));
            }
            if case.split("::").next() != Some(group) {
                faults.push(format!("{at}: {case} is not of group {group}"));
            }
            self.rules.push(Rule { call, text, source, case });
        }
    }

    fn required(&mut self, text: &str, faults: &mut Vec<String>) {
        for (number, line) in lines(text) {
            let Some([kind, key, text, test]) = columns::<4>(line) else {
                faults.push(format!("required.txt:{number}: not four columns"));
                continue;
            };
            let section = match kind.as_str() {
                "call" => {
                    self.required.calls.push(key);
                    continue;
                }
                "out" => {
                    self.required.out.push([key, text]);
                    continue;
                }
                "transition" => Section::Transition,
                "event" => Section::Event,
                "memory" => Section::Memory,
                other => {
                    faults.push(format!("required.txt:{number}: what is a {other}?"));
                    continue;
                }
            };
            self.required.points.push((section, [key, text, test]));
        }
    }
}

/// The calls of DAT.
pub(crate) fn calls(root: &Path) -> Result<BTreeSet<String>> {
    let mut faults = Vec::new();
    let tables = Tables::read(root, &mut faults)?;
    let out = tables.required.out.into_iter().map(|[call, _]| call);
    Ok(tables.required.calls.into_iter().chain(out).collect())
}

/// Kinds and names of all that the conformance suite checks.
pub(crate) fn names(root: &Path) -> Result<Vec<(&'static str, String)>> {
    let mut faults = Vec::new();
    let tables = Tables::read(root, &mut faults)?;
    let mut names = Vec::new();
    for Rule { call, text, case, .. } in tables.rules {
        names.push((record::RULE, format!("{call}: {text}")));
        names.push((record::CASE, case));
    }
    let required = tables.required;
    names.extend(required.calls.into_iter().map(|call| ("DAT call", call)));
    names.extend(required.points.into_iter().map(|(section, [key, ..])| match section {
        Section::Transition => ("transition", key),
        Section::Event => ("event", key),
        Section::Memory => ("memory rule", key),
    }));
    Ok(names)
}

/// Returns the file of a group's case, if there is such a function.
fn case_file<'t>(texts: &'t Texts, case: &str) -> Option<&'t str> {
    let (group, name) = case.split_once("::")?;
    let (file, folder) = (format!("{SUITE}/{group}.rs"), format!("{SUITE}/{group}/"));
    let function = format!("pub fn {name}(");
    let mut of_group = texts.iter().filter(|(path, _)| **path == file || path.starts_with(&folder));
    of_group.find(|(_, text)| text.contains(&function)).map(|(path, _)| path.as_str())
}

/// Returns the cases that the groups' lists name.
fn listed(texts: &Texts) -> BTreeSet<String> {
    let mut listed = BTreeSet::new();
    for (_, text) in texts.iter().filter(|(path, _)| path.starts_with(SUITE)) {
        for list in text.split("$with! {").skip(1) {
            let list = list.split('}').next().unwrap_or_default();
            if let Some((group, names)) = list.split_once(':') {
                listed.extend(names.split_whitespace().map(|n| format!("{}::{n}", group.trim())));
            }
        }
    }
    listed
}

/// Returns the file that has the method of a call.
fn call_file<'t>(texts: &'t Texts, call: &str) -> Option<&'t str> {
    let alias = format!("doc(alias = \"{call}\")");
    SOURCES.iter().find_map(|source| {
        let mut files = texts.iter().filter(|(path, _)| path.starts_with(source));
        files.find(|(_, text)| text.contains(&alias)).map(|(path, _)| path.as_str())
    })
}

/// Returns the numbers of the faults that have a case.
fn fault_cases(listed: &BTreeSet<String>) -> BTreeMap<usize, Vec<&String>> {
    let mut found: BTreeMap<usize, Vec<&String>> = BTreeMap::new();
    for case in listed {
        let name = case.split("::").nth(1).unwrap_or_default();
        let number = name.strip_prefix("fault_").and_then(|rest| rest.get(..2));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            found.entry(number).or_default().push(case);
        }
    }
    found
}

/// Compares tables and sources. Returns the expected page.
fn check(tables: &Tables, texts: &Texts, faults: &mut Vec<String>) -> String {
    let listed = listed(texts);
    let mut missing: Vec<String> = Vec::new();
    let mut ruled = BTreeSet::new();
    let mut said = BTreeSet::new();
    let calls: BTreeSet<&String> = tables.required.calls.iter().collect();
    let out: BTreeSet<&String> = tables.required.out.iter().map(|[call, _]| call).collect();
    for rule in &tables.rules {
        if case_file(texts, &rule.case).is_none() || !listed.contains(&rule.case) {
            faults.push(format!("{}: there is no such case in its group's list", rule.case));
        }
        if !calls.contains(&rule.call) && !out.contains(&rule.call) {
            faults.push(format!("{}: {} is no call of DAT", rule.case, rule.call));
        }
        if !said.insert((&rule.call, rule.text.to_lowercase())) {
            faults.push(format!("{}: a rule that stands twice: {}", rule.call, rule.text));
        }
        ruled.insert(&rule.case);
    }
    for case in listed.iter().filter(|case| !ruled.contains(case)) {
        faults.push(format!("{case}: a case without a rule"));
    }
    for call in &tables.required.calls {
        let rules = tables.rules.iter().any(|rule| rule.call == *call);
        if call_file(texts, call).is_none() || !rules {
            missing.push(call.clone());
        }
    }
    for (_, [key, _, test]) in &tables.required.points {
        let found = if test.contains("::") {
            listed.contains(test)
        } else {
            !test.is_empty() && texts.values().any(|text| text.contains(&format!("fn {test}(")))
        };
        if !found {
            missing.push(key.clone());
        }
    }
    let by_fault = fault_cases(&listed);
    for number in 1..=FAULTS {
        if !by_fault.contains_key(&number) {
            missing.push(format!("fault_{number:02}"));
        }
    }
    faults.extend(missing.iter().map(|what| format!("DAT coverage: {what} is missing")));
    page(tables, texts, &listed)
}

fn page(tables: &Tables, texts: &Texts, listed: &BTreeSet<String>) -> String {
    let mut page = String::from(
        "# Coverage of DAT\n\n\
        Made by `cargo xtask tidy --bless` from the tables beside the conformance suite (`tests/src/conformance`). Each rule is a\n\
        sentence of a manual page or header that a consumer can rely on; its case fails where the rule is broken. Every case runs\n\
        on the loop provider and on the driver over the device model (`cargo test -p dat-suite conformance`), and in a guest\n\
        through `/dev/vfio` (`cargo xtask qemu-test conformance`).\n\n\
        Sources: M manual pages, H headers, E a numbered fault of the C implementation, X InfiniBand extension, K kDAPL. The page\n\
        of a rule is that of its call, unless it says otherwise; numbers are those of its sentences in `dat-seed-pages.md`.\n\n",
    );
    let points = |section| {
        let of = tables.required.points.iter().filter(move |(s, _)| *s == section);
        of.map(|(_, columns)| columns)
    };
    let by_fault = fault_cases(listed);
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "| | |\n|---|---|\n| calls | {} |\n| rules | {} |\n| cases | {} |\n| transitions | {} |\n| events | {} |\n\
        | rules of memory | {} |\n| faults of the C implementation with a case | {} of {FAULTS} |\n",
        tables.required.calls.len(),
        tables.rules.len(),
        listed.len(),
        points(Section::Transition).count(),
        points(Section::Event).count(),
        points(Section::Memory).count(),
        by_fault.len(),
    );
    page.push_str("\n## Calls\n");
    for call in &tables.required.calls {
        let file = call_file(texts, call).unwrap_or("not implemented");
        let _ = write!(page, "\n### {call}\n\n`{file}`\n");
        let mut rules = tables.rules.iter().filter(|rule| rule.call == *call).peekable();
        if rules.peek().is_some() {
            page.push_str("\n| rule | source | page | case |\n|---|---|---|---|\n");
        }
        for rule in rules {
            let (kind, from) =
                Source::parse(rule).map(|source| (source.kind, source.page())).unwrap_or_default();
            let Rule { text, case, .. } = rule;
            let _ = writeln!(page, "| {text} | {kind} | {from} | `{case}` |");
        }
    }
    page.push_str("\n## Calls that are left out\n\n| call | its code, and why |\n|---|---|\n");
    for [call, why] in &tables.required.out {
        let _ = writeln!(page, "| {call} | {why} |");
    }
    for (section, title) in [
        (Section::Transition, "Transitions of an Endpoint"),
        (Section::Event, "Events"),
        (Section::Memory, "Rules of memory"),
    ] {
        let _ = write!(page, "\n## {title}\n\n| | | test |\n|---|---|---|\n");
        for [key, text, test] in points(section) {
            let _ = writeln!(page, "| {key} | {text} | `{test}` |");
        }
    }
    page.push_str("\n## Faults of the C implementation\n\n| | case |\n|---|---|\n");
    for (number, cases) in by_fault {
        for case in cases {
            let _ = writeln!(page, "| {number} | `{case}` |");
        }
    }
    page.replace("``", "")
}

/// Checks the tables against the sources, and the page against both; writes the page if `bless`.
pub(crate) fn faults(root: &Path, texts: &Texts, bless: bool) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let tables = Tables::read(root, &mut faults)?;
    let made = [
        (PAGE, check(&tables, texts, &mut faults)),
        (pages::PAGE, tables.pages.check(&tables.rules, texts, &mut faults)),
    ];
    println!("  {} rules of {} DAT calls", tables.rules.len(), tables.required.calls.len(),);
    for (name, page) in made {
        let file = root.join(name);
        if bless {
            fs::write(&file, &page)?;
        }
        if fs::read_to_string(&file).unwrap_or_default() != page {
            faults.push(format!("{name} is not up to date: `cargo xtask tidy --bless` writes it"));
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite() -> (Tables, Texts) {
        let mut tables = Tables::default();
        let mut faults = Vec::new();
        tables.rules("evd", "dat_evd_free | it goes | M | evd::gone", &mut faults);
        tables.required(
            "call | dat_evd_free | |\nevent | 0x1 | DTO | evd::gone\nmemory | lmr.a | text | evd::gone",
            &mut faults,
        );
        let cases: Vec<String> = (1..=FAULTS).map(|n| format!("fault_{n:02}_works")).collect();
        for (n, case) in cases.iter().enumerate() {
            let rule = format!("dat_evd_free | works {n} | E1 | ep::{case}");
            tables.rules("ep", &rule, &mut faults);
        }
        assert!(faults.is_empty(), "{faults:?}");
        let made = cases.iter().map(|case| format!("pub fn {case}(\n"));
        let ep = made.collect::<String>() + "$with! { ep:\n " + &cases.join("\n ") + "\n}";
        let texts = [
            ("tests/src/conformance/evd.rs", "pub fn gone(\n$with! { evd:\n gone }"),
            ("tests/src/conformance/ep.rs", &ep),
            ("dat-core/src/api/evd/free.rs", "doc(alias = \"dat_evd_free\")"),
        ];
        let texts = texts.map(|(path, text)| (path.to_owned(), text.to_owned()));
        (tables, texts.into())
    }

    fn said(tables: &Tables, texts: &Texts) -> Vec<String> {
        let mut faults = Vec::new();
        check(tables, texts, &mut faults);
        faults
    }

    #[test]
    fn complete_tables_have_no_faults() {
        let (tables, texts) = suite();
        assert_eq!(said(&tables, &texts), Vec::<String>::new());
    }

    #[test]
    fn missing_entries_are_reported() {
        let (mut tables, texts) = suite();
        tables.required("memory | lmr.b | text |", &mut Vec::new());
        assert_eq!(said(&tables, &texts), ["DAT coverage: lmr.b is missing"]);
        let (tables, mut texts) = suite();
        let ep = texts.get_mut("tests/src/conformance/ep.rs").unwrap();
        *ep = ep.replace("fault_07_works", "works");
        // Its rule has no case, its case no rule, and the fault no case.
        assert_eq!(said(&tables, &texts).len(), 3);
    }

    #[test]
    fn cases_and_rules_belong_together() {
        let (mut tables, mut texts) = suite();
        let mut faults = Vec::new();
        tables.rules("evd", "dat_evd_free | it goes far | M | evd::nowhere", &mut faults);
        assert_eq!(said(&tables, &texts).len(), 1);
        tables.rules.pop();
        tables.rules("evd", "dat_evd_free | It goes | M | evd::gone", &mut faults);
        assert_eq!(said(&tables, &texts).len(), 1, "a rule twice");
        tables.rules.pop();
        let lonely = "pub fn gone(\npub fn lonely(\n$with! { evd:\n gone lonely }";
        texts.insert("tests/src/conformance/evd.rs".into(), lonely.into());
        assert_eq!(said(&tables, &texts).len(), 1, "a case without a rule");
        tables.rules("evd", "dat_evd_free | another | M | ep::gone", &mut faults);
        assert_eq!(faults.len(), 1, "of another group");
    }

    #[test]
    fn calls_without_a_method_are_missing() {
        let (tables, mut texts) = suite();
        texts.remove("dat-core/src/api/evd/free.rs");
        assert_eq!(said(&tables, &texts), ["DAT coverage: dat_evd_free is missing"]);
    }
}
