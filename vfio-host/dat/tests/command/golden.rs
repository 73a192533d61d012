//! What `dat` says: its help texts, and every error message that a test of it sees.
//!
//! `help.txt` has the help of each command as it is. `messages.txt` has the messages, a line each,
//! with `#` for numbers and `DIR` for folders of tests: what a run of the command says has to stand
//! there ([`seen`], which both test programs of the command call for each run). Behind them stand
//! the messages of the sources that no test brings about, under headings that say why.
//!
//! `DAT_BLESS=1` with the tests writes what is missing to `messages.new`, and the test `messages`
//! takes it from there: so `cargo test -p dat --test command` comes last, and twice, as its tests run
//! side by side. A message without a reason comes under [`UNSEEN`], where no line may stay: it gets
//! a test, or a heading that says why it has none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use regex::Regex;

/// The heading of messages that no test sees, for no reason that is known. Those of the others
/// begin with it.
pub(crate) const UNSEEN: &str = "## Not seen by a test";
/// Folders of tests.
const FOLDERS: &str = r"(/[^ :,'=]*)?/(\.tmp[A-Za-z0-9]+|machine-[0-9]+-[0-9]+)(/[^ :,'=;)]*)?";

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find_map(at).unwrap()
}

/// The folder of this file below the root of the workspace.
fn at(root: &Path) -> Option<PathBuf> {
    let folder = root.join("vfio-host/dat/tests/command");
    folder.is_dir().then_some(folder)
}

pub(crate) fn blesses() -> bool {
    std::env::var_os("DAT_BLESS").is_some()
}

/// The messages of `messages.txt` that tests see, and those that none sees by their headings.
pub(crate) fn golden() -> (BTreeSet<String>, BTreeMap<String, BTreeSet<String>>) {
    let text = fs::read_to_string(folder().join("messages.txt")).unwrap_or_default();
    let (mut seen, mut unseen) = (BTreeSet::new(), BTreeMap::<_, BTreeSet<_>>::new());
    let mut heading = None;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        if line.starts_with(UNSEEN) {
            heading = Some(line);
        } else if let Some(heading) = heading {
            unseen.entry(heading.to_owned()).or_default().insert(line.to_owned());
        } else {
            seen.insert(line.to_owned());
        }
    }
    (seen, unseen)
}

/// Takes out of a text what differs from run to run.
pub(crate) fn plain(text: &str) -> String {
    static RULES: OnceLock<[Regex; 2]> = OnceLock::new();
    let [folders, numbers] =
        RULES.get_or_init(|| [FOLDERS, "0x[0-9a-f]+|[0-9]+"].map(|rule| Regex::new(rule).unwrap()));
    numbers.replace_all(&folders.replace_all(text, "DIR"), "#").into_owned()
}

/// The messages that the sources have as literals.
pub(crate) fn literals() -> BTreeSet<String> {
    let rule = r#"(?:Failure::(?:new|usage|fault)\(|\.remedy\(|\bbad\(|Err\()(?:&?format!\()?\s*"((?:[^"\\]|\\.)*)""#;
    let rule = Regex::new(rule).unwrap();
    let mut found = BTreeSet::new();
    let mut folders = vec![folder().join("../../src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let source = fs::read_to_string(path).unwrap();
                // Without its tests.
                let source = source.split("#[cfg(test)]").next().unwrap();
                let texts = rule.captures_iter(source).map(|found| found[1].to_owned());
                found.extend(texts.filter(|text| text.len() > 3));
            }
        }
    }
    found
}

/// Whether a line of the file can have come of a literal.
pub(crate) fn rule(literal: &str) -> Regex {
    let holes = Regex::new(r"\{[^{}]*\}").unwrap();
    let literal = literal.replace("\\\"", "\"");
    let parts: Vec<String> =
        holes.split(&literal).map(|part| regex::escape(&plain(part))).collect();
    Regex::new(&parts.join(".*")).unwrap()
}

/// Insists that the messages of a run are those of the file: errors with their help on standard
/// error; on standard output the remedies of `dat doctor` and `dat bind`, and why a test failed that
/// `dat listen` served.
#[track_caller]
pub(crate) fn seen(out: &str, err: &str) {
    for line in err.lines() {
        let said = line.strip_prefix("dat: ").unwrap_or(line).trim_start();
        if said.starts_with("error: ") || said.starts_with("help: ") {
            is_known(said);
        }
    }
    for line in out.lines() {
        if let Some(remedy) = line.trim_start().strip_prefix("-> ") {
            is_known(&format!("remedy: {remedy}"));
        } else if let Some((_, why)) = line.split_once(", FAILED: ") {
            is_known(&format!("FAILED: {why}"));
        }
    }
    let json = serde_json::from_str::<serde_json::Value>(out).unwrap_or_default();
    for check in json["checks"].as_array().into_iter().flatten() {
        for remedy in check["remedy"].as_array().into_iter().flatten() {
            is_known(&format!("remedy: {}", remedy.as_str().unwrap()));
        }
    }
}

/// Insists that a message is one of the file.
#[track_caller]
pub(crate) fn is_known(said: &str) {
    static KNOWN: OnceLock<BTreeSet<String>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| golden().0);
    let said = plain(said);
    // Which of several messages comes may be chance: of those whose words the sources have, the
    // test of the sources is enough.
    if known.contains(&said) || !blesses() && written(&said) {
        return;
    }
    assert!(
        blesses(),
        "{said:?} is not in messages.txt: DAT_BLESS=1 with the test writes it there"
    );
    // To the end, beside others that do the same; `messages` puts it in order.
    let file = folder().join("messages.new");
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(format!("{said}\n").as_bytes()).unwrap();
}

/// Whether a message is one whose words are in the sources.
fn written(said: &str) -> bool {
    static RULES: OnceLock<Vec<Regex>> = OnceLock::new();
    let rules = RULES.get_or_init(|| literals().iter().map(|literal| rule(literal)).collect());
    rules.iter().any(|rule| rule.is_match(said))
}
