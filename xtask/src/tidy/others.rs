//! Tests of others that are stated here as cases of DAT (`tests/data/rdma-unit-test.tsv`), and
//! codes of DAT that no test names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::coverage;
use crate::record::CASE;

const FILE: &str = "tests/data/rdma-unit-test.tsv";
/// Tests of each of their files.
const SUITES: [(&str, usize); 4] = [("mw", 38), ("rc", 82), ("access", 15), ("qp", 42)];

/// Returns rows that name no case that there is, or neither a case nor a reason; and suites that
/// are not whole.
pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(FILE)).with_context(|| FILE.to_owned())?;
    let names = coverage::names(root)?;
    let cases = names.into_iter().filter(|(kind, _)| *kind == CASE).map(|(_, name)| name);
    Ok(check(&text, &cases.collect()))
}

/// Returns the codes that dat-core gives and no test names. `texts` are all sources by name.
pub(super) fn unnamed(texts: &BTreeMap<String, String>) -> Vec<String> {
    let is_test = |name: &str| {
        ["dat-core/tests/", "tests/src/conformance/", "tests/tests/"]
            .iter()
            .any(|folder| name.starts_with(folder))
    };
    // Where codes are made and named, and the loop provider.
    let no_use = ["types/dat_return.rs", "types/strerror.rs", "src/testing/"];
    let mut named = BTreeSet::new();
    for text in texts.iter().filter(|(name, _)| is_test(name)).map(|(_, text)| text) {
        named.extend(text.split(|c: char| !c.is_alphanumeric()));
    }
    let mut faults = BTreeSet::new();
    for (name, text) in texts.iter().filter(|(name, _)| name.starts_with("dat-core/src/")) {
        if no_use.iter().any(|part| name.contains(part)) {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or(text);
        for of in ["DatType::", "DatSubtype::"] {
            for rest in code.split(of).skip(1) {
                let word = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                // Constants and methods begin otherwise, or have an underscore.
                let variant = word.chars().nth(1).is_some_and(char::is_lowercase);
                if variant && word.starts_with(char::is_uppercase) && !named.contains(word) {
                    faults.insert(format!("{name}: no test names {of}{word}"));
                }
            }
        }
    }
    faults.into_iter().collect()
}

fn check(text: &str, cases: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut cells = line.split('\t');
        let [suite, test, ours] = [(); 3].map(|()| cells.next().unwrap_or_default());
        let why = cells.next().unwrap_or_default();
        if !seen.insert((suite, test)) {
            faults.push(format!("{FILE}: {test} stands there twice"));
        }
        if ours == "-" && why.is_empty() {
            faults.push(format!("{FILE}: {test} has neither a case nor a reason"));
        }
        let unknown = ours.split(' ').filter(|case| *case != "-" && !cases.contains(*case));
        faults.extend(unknown.map(|case| format!("{FILE}: {test}: there is no case {case}")));
    }
    for (suite, count) in SUITES {
        let there = seen.iter().filter(|(of, _)| *of == suite).count();
        if there != count {
            faults.push(format!("{FILE}: {there} rows of {suite}, which has {count} tests"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_no_test_names_is_found() {
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let texts = BTreeMap::from([
            file(
                "dat-core/src/api/x.rs",
                "DatType::Abort DatSubtype::NoSubtype DatType::of DatType::MASK",
            ),
            file("dat-core/tests/api/x.rs", "assert_eq!(T::Abort, NoSubtypes)"),
        ]);
        let faults = unnamed(&texts);
        assert_eq!(faults, ["dat-core/src/api/x.rs: no test names DatSubtype::NoSubtype"]);
    }

    #[test]
    fn a_row_without_a_case_or_a_reason_is_found() {
        let cases = BTreeSet::from(["rmr::there".to_owned()]);
        let text = "# head\nmw\tA.B\trmr::there\nmw\tA.C\trmr::gone\nrc\tA.D\t-\nrc\tA.E\t-\twhy\n";
        let faults = check(text, &cases);
        assert!(faults[0].contains("no case rmr::gone") && faults[1].contains("A.D has neither"));
        assert_eq!(faults.len(), 2 + SUITES.len(), "{faults:?}");
        let twice = check("mw\tA.B\trmr::there\nmw\tA.B\trmr::there\n", &cases);
        assert!(twice[0].contains("twice"), "{twice:?}");
    }
}
