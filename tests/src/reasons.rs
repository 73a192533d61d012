//! Lists of names that differ, each group with a reason: `KEY: reason`, and indented below it the
//! names.

use std::collections::{BTreeMap, BTreeSet};

/// The names of each key.
///
/// # Panics
/// If a key has no reason, or names have no key.
#[must_use]
pub fn names(list: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut names = BTreeMap::<String, BTreeSet<String>>::new();
    let mut at = None;
    for line in list.lines() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        if line.starts_with(' ') {
            let key: &String = at.as_ref().expect("names before a key");
            names.entry(key.clone()).or_default().extend(line.split_whitespace().map(String::from));
        } else {
            let (key, reason) = line.split_once(": ").expect(line);
            assert!(reason.len() > 10, "{key}: no reason given");
            at = Some(String::from(key));
        }
    }
    names
}
