//! The files of `tests/sim/planted`: what each bug is, and how it is put into the sources.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The word that a bug's text has where it asks whether the bug is on.
const WORD: &str = "PLANTED";

/// A crate that bugs are planted in.
struct Source {
    /// Folder of its sources in the workspace, with a slash.
    folder: &'static str,
    /// How its code asks whether a bug is on.
    ask: &'static str,
    /// It gets the switch module; another crate uses that of a crate that it depends on.
    has_switch: bool,
}

/// The model is a referee: it has a switch of its own, and still knows nothing of the driver.
static SOURCES: [Source; 3] = [
    Source { folder: "dat-core/src/", ask: "crate::mutants::on", has_switch: true },
    Source { folder: "hca-mlx5/src/", ask: "::dat_core::mutants::on", has_switch: false },
    Source { folder: "tests/model/src/", ask: "crate::mutants::on", has_switch: true },
];

/// A bug.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bug {
    /// Name of its file.
    #[serde(skip)]
    pub(super) name: String,
    /// Who had it: project, and commit or issue.
    pub(super) source: String,
    /// What a consumer or a peer sees of it.
    pub(super) effect: String,
    edit: Vec<Edit>,
}

/// A change of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: String,
    find: String,
    put: String,
}

/// Where an edit goes, its text, and the name of its bug.
type Placed<'a> = (Range<usize>, String, &'a str);

/// Reads all bugs, in the order of their names. The number of a bug is its place in this list,
/// from 1.
pub(super) fn read(folder: &Path) -> Result<Vec<Bug>> {
    let mut bugs = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "toml") {
            let text = fs::read_to_string(&path)?;
            let mut bug: Bug =
                toml::from_str(&text).with_context(|| format!("{}", path.display()))?;
            bug.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            ensure!(!bug.source.trim().is_empty(), "{}: no source", bug.name);
            ensure!(!bug.effect.trim().is_empty(), "{}: no effect", bug.name);
            bugs.push(bug);
        }
    }
    bugs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(bugs)
}

fn source_of(file: &str) -> Result<&'static Source> {
    let found = SOURCES.iter().find(|source| file.starts_with(source.folder));
    found.with_context(|| format!("{file} is neither of the driver nor of the model"))
}

/// The folders of the crates that get a switch.
pub(super) fn switches() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().filter(|source| source.has_switch).map(|source| source.folder)
}

/// Puts all bugs into the files, each behind its number.
pub(super) fn splice(bugs: &[Bug], files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let mut edits: BTreeMap<&str, Vec<Placed<'_>>> = BTreeMap::new();
    for (number, bug) in (1..).zip(bugs) {
        for edit in &bug.edit {
            let place = place(bug, edit, files)?;
            let ask = format!("{}({number})", source_of(&edit.file)?.ask);
            let text = edit.put.replace(WORD, &ask);
            edits.entry(&edit.file).or_default().push((place, text, &bug.name));
        }
    }
    for (file, mut edits) in edits {
        edits.sort_by_key(|(range, ..)| range.start);
        for pair in edits.windows(2) {
            if let [(first, _, one), (second, _, other)] = pair {
                ensure!(first.end <= second.start, "{file}: {one} and {other} overlap");
            }
        }
        let bytes = files.get_mut(file).context("a file that was there")?;
        let mut text = String::from_utf8(std::mem::take(bytes))?;
        for (range, put, _) in edits.into_iter().rev() {
            text.replace_range(range, &put);
        }
        *bytes = text.into_bytes();
    }
    Ok(())
}

/// Where an edit's text stands in its file: there, and nowhere else.
fn place(bug: &Bug, edit: &Edit, files: &BTreeMap<String, Vec<u8>>) -> Result<Range<usize>> {
    let about = || format!("{}: {}", bug.name, edit.file);
    ensure!(edit.put.contains(WORD), "{}: nothing asks for {WORD}", about());
    let bytes = files.get(&edit.file).with_context(about)?;
    let text = std::str::from_utf8(bytes).with_context(about)?;
    let mut found = text.match_indices(&edit.find);
    match (found.next(), found.next()) {
        (Some((at, found)), None) => Ok(at..at + found.len()),
        (None, _) => bail!("{}: the text is not there: {}", about(), edit.find),
        (Some(_), Some(_)) => bail!("{}: the text is there twice: {}", about(), edit.find),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::copy;
    use dat_lab::run;

    fn bug(name: &str, find: &str, put: &str) -> Bug {
        let (file, find, put) = ("dat-core/src/a.rs".into(), find.into(), put.into());
        let edit = vec![Edit { file, find, put }];
        Bug { name: name.into(), source: "a".into(), effect: "b".into(), edit }
    }

    fn spliced(bugs: &[Bug]) -> Result<String> {
        let text = b"fn f() { one(); two(); two(); }".to_vec();
        let mut files = BTreeMap::from([("dat-core/src/a.rs".to_owned(), text)]);
        splice(bugs, &mut files)?;
        Ok(String::from_utf8(files.remove("dat-core/src/a.rs").unwrap_or_default())?)
    }

    #[test]
    fn each_bug_asks_for_its_number() {
        let bugs =
            [bug("a", "f()", "f(_: u8)/*PLANTED*/"), bug("b", "one();", "if !PLANTED { one(); }")];
        let text = "fn f(_: u8)/*crate::mutants::on(1)*/ { if !crate::mutants::on(2) { one(); } two(); two(); }";
        assert_eq!(spliced(&bugs).unwrap(), text);
    }

    #[test]
    fn an_edit_without_its_text_is_refused() {
        for (find, put) in [("three", "PLANTED"), ("two();", "PLANTED"), ("one", "no question")] {
            assert!(spliced(&[bug("a", find, put)]).is_err(), "{find}");
        }
        let both = [bug("a", "one();", "PLANTED"), bug("b", "e(); t", "PLANTED")];
        assert!(spliced(&both).is_err());
    }

    #[test]
    fn every_planted_bug_has_a_source_and_fits_the_code() {
        let root = run::root();
        let bugs = read(&root.join(super::super::FOLDER)).unwrap();
        let mut files = copy::files(&root).unwrap();
        splice(&bugs, &mut files).unwrap();
        for bug in &bugs {
            let words = bug.source.split_whitespace().count();
            assert!(words > 4, "{}: who had it, where is that written, and what was it?", bug.name);
        }
    }
}
