//! Writes and compiles the instrumented copy of a workspace, and drops mutants that do not compile.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel, DiagnosticSpan};

use super::copy::{SWITCH, add_switch, files, sync};
use super::names::{LeftOut, Names, names};
use super::sites::{Change, Sites, sites};
use super::splice::{Mark, splice};

/// Largest number of builds until all remaining mutants compile.
const ROUNDS: usize = 60;

/// A crate whose sources are instrumented.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// Folder of its sources in the workspace, with a slash.
    pub(crate) folder: String,
    /// The path of the switch module in its code.
    pub(crate) switch: &'static str,
}

/// A workspace, the folder of its copy, and its instrumented crates.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
    pub(crate) target: PathBuf,
    /// The first one gets the switch module.
    pub(crate) sources: Vec<Source>,
    /// Arguments of `cargo test --no-run`.
    pub(crate) tests: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Mutant {
    /// File and key of the change.
    pub(crate) key: String,
    pub(crate) file: String,
    pub(crate) change: Change,
}

/// A test program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) target: String,
    pub(crate) path: PathBuf,
    pub(crate) folder: PathBuf,
    /// Whether it has the crate's unit tests.
    pub(crate) unit: bool,
    pub(crate) package: String,
}

#[derive(Debug)]
pub(crate) struct Built {
    /// The mutants; number `i + 1` is at index `i`.
    pub(crate) mutants: Vec<Mutant>,
    pub(crate) programs: Vec<Program>,
    /// Keys of mutants that do not compile.
    pub(crate) dropped: BTreeSet<String>,
    pub(crate) left_out: LeftOut,
    /// Hash of all files that tests may depend on, without mutants.
    pub(crate) stamp: u64,
}

/// Returns whether a file has tests or fixtures.
fn is_test(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    ["/tests/", "/testing/", "/scripted"].iter().any(|part| name.contains(part))
        || last.ends_with("tests.rs")
}

/// Chooses the mutants to compile in, among all that compile.
pub(crate) type Choose<'a> = &'a dyn Fn(&[Mutant]) -> Vec<Mutant>;

struct Copy<'a> {
    tree: &'a Tree,
    files: BTreeMap<String, Vec<u8>>,
    texts: BTreeMap<String, String>,
    names: Names,
    parsed: BTreeMap<String, Sites>,
    dropped: BTreeSet<String>,
    mutants: Vec<Mutant>,
    /// By file: mutants and functions in the instrumented text.
    marks: BTreeMap<String, (Vec<Mark>, Vec<Mark>)>,
}

/// Copies a workspace and compiles the chosen mutants in.
pub(crate) fn build(tree: &Tree, choose: Choose<'_>) -> Result<Built> {
    let files = files(&tree.from)?;
    let mut all = Vec::new();
    let mut texts = BTreeMap::new();
    for (name, bytes) in &files {
        if name.ends_with(".rs") {
            if let Ok(text) = std::str::from_utf8(bytes) {
                // Files that do not parse contribute no names.
                if syn::parse_file(text).is_ok() {
                    all.push(text);
                }
                if tree.sources.iter().any(|s| name.starts_with(&s.folder)) && !is_test(name) {
                    texts.insert(name.clone(), text.to_owned());
                }
            }
        }
    }
    let names = names(&all)?;
    let mut copy = Copy {
        tree,
        files: files.clone(),
        texts,
        names,
        parsed: BTreeMap::new(),
        dropped: BTreeSet::new(),
        mutants: Vec::new(),
        marks: BTreeMap::new(),
    };
    let programs = copy.compile(choose)?;
    let left_out =
        copy.parsed.values().fold(LeftOut::default(), |sum, sites| sum.and(sites.left_out));
    let mut hasher = DefaultHasher::new();
    let no_matter = ["xtask/", "tests/lab/", "docs/", "tests/data/mutants-equal.tsv"];
    let matters = |name: &str| !no_matter.iter().any(|start| name.starts_with(start));
    (files.iter().filter(|(name, _)| matters(name)))
        .for_each(|(name, bytes)| (name, bytes, SWITCH).hash(&mut hasher));
    Ok(Built {
        stamp: hasher.finish(),
        mutants: copy.mutants,
        programs,
        dropped: copy.dropped,
        left_out,
    })
}

impl Copy<'_> {
    fn compile(&mut self, choose: Choose<'_>) -> Result<Vec<Program>> {
        let mut dropped = 0;
        for round in 0..ROUNDS {
            self.write(choose)?;
            if round == 0 {
                println!("  {} mutants compiled in", self.mutants.len());
            }
            let (programs, errors) = self.cargo()?;
            if errors.is_empty() {
                return Ok(programs);
            }
            self.drop(&errors)?;
            println!(
                "  build {}: {} errors, {} mutants dropped",
                round + 1,
                errors.len(),
                self.dropped.len() - dropped
            );
            dropped = self.dropped.len();
        }
        bail!("the copy does not build after {ROUNDS} rounds")
    }

    /// Chooses mutants and writes the copy.
    fn write(&mut self, choose: Choose<'_>) -> Result<()> {
        let mut all = Vec::new();
        for (file, text) in &self.texts {
            let found = sites(text, &self.names).with_context(|| file.clone())?;
            for change in found.sites.iter().flat_map(|site| &site.changes) {
                let key = format!("{file} {}", change.key);
                if !self.dropped.contains(&key) {
                    all.push(Mutant { key, file: file.clone(), change: change.clone() });
                }
            }
            self.parsed.insert(file.clone(), found);
        }
        self.mutants = choose(&all);
        let ids: BTreeMap<(&str, &str), u32> = (1..)
            .zip(&self.mutants)
            .map(|(id, m)| ((m.file.as_str(), m.change.key.as_str()), id))
            .collect();
        let mut wanted = self.files.clone();
        self.marks.clear();
        for (file, text) in &self.texts {
            let Some(source) = self.tree.sources.iter().find(|s| file.starts_with(&s.folder))
            else {
                continue;
            };
            let id = |change: &Change| ids.get(&(file.as_str(), change.key.as_str())).copied();
            let spliced = splice(text, &self.parsed[file], source.switch, &id);
            wanted.insert(file.clone(), spliced.text.into_bytes());
            self.marks.insert(file.clone(), (spliced.marks, spliced.functions));
        }
        let folder = &self.tree.sources.first().context("no source")?.folder;
        add_switch(&mut wanted, folder)?;
        sync(&self.tree.to, &wanted)
    }

    /// Compiles the tests. Returns the programs, or the errors caused by mutants.
    fn cargo(&self) -> Result<(Vec<Program>, Vec<Diagnostic>)> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args(["test", "--no-run", "--no-fail-fast", "--message-format=json"])
            .args(&self.tree.tests)
            .current_dir(&self.tree.to)
            .env("CARGO_TARGET_DIR", &self.tree.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // Mutants may cause lint warnings.
            .env("RUSTFLAGS", "--cap-lints=allow")
            .stdin(Stdio::null());
        let out = command.output()?;
        let mut programs = Vec::new();
        let mut errors = Vec::new();
        for message in Message::parse_stream(out.stdout.as_slice()) {
            match message? {
                Message::CompilerMessage(m) if m.message.level == DiagnosticLevel::Error => {
                    errors.push(m.message);
                }
                Message::CompilerArtifact(artifact) if artifact.profile.test => {
                    let folder = artifact.manifest_path.parent().context("no folder")?;
                    programs.extend(artifact.executable.map(|path| Program {
                        package: folder.file_name().unwrap_or_default().to_owned(),
                        unit: !artifact.target.is_test(),
                        target: artifact.target.name.clone(),
                        path: path.into(),
                        folder: folder.into(),
                    }));
                }
                Message::CompilerArtifact(_)
                | Message::CompilerMessage(_)
                | Message::BuildScriptExecuted(_)
                | Message::BuildFinished(_)
                | Message::TextLine(_)
                | _ => {}
            }
        }
        errors.retain(|e| !e.spans.is_empty());
        ensure!(
            out.status.success() || !errors.is_empty(),
            "cargo failed: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        Ok((programs, errors))
    }

    /// Drops the mutants that caused these errors.
    fn drop(&mut self, errors: &[Diagnostic]) -> Result<()> {
        let (before, kept) = (self.dropped.len(), self.names.constant.len());
        for error in errors {
            if error.code.as_ref().is_some_and(|code| code.code == "E0015") {
                // A constant calls the function whose `const` was removed.
                self.names.constant.extend(called(&error.message));
                continue;
            }
            let (primary, other): (Vec<_>, Vec<_>) = error.spans.iter().partition(|s| s.is_primary);
            let inner = error.children.iter().flat_map(|child| &child.spans);
            let other: Vec<_> = other.into_iter().chain(inner).collect();
            let late = error.code.as_ref().is_some_and(|code| code.code == "E0381");
            let order = if late { [&other, &primary] } else { [&primary, &other] };
            let blamed = order
                .iter()
                .map(|spans| self.at(spans, false))
                .chain([self.at(&primary, true), self.at(&other, true)])
                .find(|ids| !ids.is_empty());
            let Some(blamed) = blamed else {
                bail!(
                    "no mutant explains this: {}",
                    error.rendered.as_deref().unwrap_or(&error.message)
                );
            };
            let keys = blamed.iter().filter_map(|id| self.mutants.get(*id as usize - 1));
            self.dropped.extend(keys.map(|m| m.key.clone()));
        }
        ensure!(
            self.dropped.len() > before || self.names.constant.len() > kept,
            "errors without an end"
        );
        Ok(())
    }

    /// Returns the mutants of the innermost sites around these spans, or of the functions around.
    fn at(&self, spans: &[&DiagnosticSpan], functions: bool) -> Vec<u32> {
        let mut ids = Vec::new();
        for span in spans {
            let Some((marks, around)) = self.marks.get(&span.file_name) else {
                continue;
            };
            let (start, end) = (span.byte_start as usize, span.byte_end as usize);
            let marks = if functions { around } else { marks };
            let inner = marks
                .iter()
                .filter(|mark| mark.range.start <= start && end <= mark.range.end)
                .min_by_key(|mark| mark.range.len());
            ids.extend(inner.into_iter().flat_map(|mark| &mark.ids));
        }
        ids
    }
}

/// Returns the function named in the compiler's message about a non-const call.
fn called(message: &str) -> Option<String> {
    let path = message.split('`').nth(1)?;
    let name = path.rsplit("::").find(|part| !part.starts_with('<'))?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_of_a_const_error_is_found() {
        let text =
            "cannot call non-const associated function `shared::ep::Span::place` in constants";
        assert_eq!(called(text).as_deref(), Some("place"));
        assert_eq!(
            called("cannot call non-const method `f::<u8>` in statics").as_deref(),
            Some("f")
        );
    }

    #[test]
    fn tests_are_distinguished_from_sources() {
        for (name, test) in [
            ("dat-core/src/types/ep_state/tests.rs", true),
            ("dat-core/src/testing/hca.rs", true),
            ("hca-mlx5/src/platform/dma/tests.rs", true),
            ("dat-core/src/api/ep/reset.rs", false),
        ] {
            assert_eq!(is_test(name), test, "{name}");
        }
    }
}
