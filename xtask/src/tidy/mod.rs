//! `cargo xtask tidy`: the rules of this workspace that a compiler does not check.

mod api;
mod chains;
mod figures;
mod graph;
mod lines;
mod modules;
mod others;
mod words;
mod workflows;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;
use dat_lab::run;

use crate::{book, coverage, fields, pictures, record};

/// The sources of the workspace by name.
type Texts = BTreeMap<String, String>;

/// Options of the verb.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Write docs/dat-coverage.md, docs/dat-seed-pages.md and docs/generated/api.txt, and lower the
    /// limits of measures
    #[arg(long)]
    bless: bool,
    /// Instead, print the measures of the design with their goals
    #[arg(long)]
    figures: bool,
    /// With --figures, also print the imports behind circles and upward imports
    #[arg(long, requires = "figures")]
    verbose: bool,
}

/// Which of our crates may depend on which.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("dat-core", &[]),
    ("hca-mlx5", &["dat-core"]),
    ("vfio-host", &["dat-core", "hca-mlx5"]),
    ("dat-mlx5", &["dat-core", "hca-mlx5", "vfio-host"]),
    ("dapldat", &["dat-core", "hca-mlx5", "vfio-host"]),
    ("mlx5-model", &[]),
    ("dat-tests", &["dat-core", "hca-mlx5", "vfio-host", "dat-mlx5", "mlx5-model"]),
    (
        "dat-suite",
        &["dat-core", "hca-mlx5", "vfio-host", "dat-mlx5", "dapldat", "mlx5-model", "dat-tests"],
    ),
    (
        "dat-fuzz",
        &["dat-core", "hca-mlx5", "vfio-host", "dat-mlx5", "dapldat", "mlx5-model", "dat-tests"],
    ),
    ("dat-book", &["dat-core", "hca-mlx5", "vfio-host", "mlx5-model"]),
    ("dat-sim", &["dat-core", "hca-mlx5", "mlx5-model", "dat-tests"]),
    ("dat-unikernel", &["dat-core", "hca-mlx5"]),
    ("dat-lab", &[]),
    ("dat-pages", &["dat-mlx5", "mlx5-model"]),
    ("xtask", &["dat-lab"]),
];
/// The only files of the two inner crates and the host that may say `unsafe`.
const UNSAFE: &[&str] = &[
    "hca-mlx5/src/platform/mmio.rs",
    "hca-mlx5/src/platform/dma.rs",
    "vfio-host/src/map.rs",
    "vfio-host/src/host.rs",
    "vfio-host/src/memory.rs",
    "vfio-host/src/memory/tests.rs",
    "vfio-host/src/user/swap.rs",
    "vfio-host/src/vfio/ioctl.rs",
    "vfio-host/src/aio.rs",
    "vfio-host/dapl/src/abi/pointer.rs",
    "vfio-host/dapl/src/abi/va_list.rs",
    "vfio-host/dapl/src/adapter/hold.rs",
    "vfio-host/dapl/src/adapter/lent.rs",
    "vfio-host/dapl/src/gate.rs",
    "vfio-host/dapl/src/heap.rs",
    "vfio-host/dapl/src/object.rs",
    "vfio-host/dapl/src/progress.rs",
    "vfio-host/dapl/src/registry.rs",
    "vfio-host/dapl/src/sleep.rs",
];
/// File names that say nothing.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "manager", "misc"];
/// Lines of a file at the most, and lines above which its front page gives a reason.
const MOST_LINES: usize = 1000;
const MANY_LINES: usize = 600;
/// Required entries at the top level of the repository.
const TOP: &[&str] = &["Cargo.toml", "dat-core", "hca-mlx5", "vfio-host", "tests", "xtask"];

pub(crate) fn tidy(options: &Options) -> Result<()> {
    let root = run::root();
    let mut texts = Texts::new();
    for file in files(&root, ".rs")? {
        let name = file.strip_prefix(&root)?.to_string_lossy().into_owned();
        texts.insert(name, fs::read_to_string(&file)?);
    }
    let product = figures::product(&texts)?;
    let measured = figures::Figures::measure(&root, &texts, &product)?;
    let mut limits = figures::limits(&root)?;
    if options.figures {
        measured.print(&limits, options.verbose);
        return Ok(());
    }
    println!("$ tidy");
    let mut faults = Vec::new();
    dependencies(&mut faults)?;
    for (name, text) in &texts {
        one_file(name, text, &mut faults);
    }
    median(&texts);
    man_pages(&root, &texts, &mut faults)?;
    faults.extend(fields::faults(&root));
    faults.extend(coverage::faults(&root, &texts, options.bless)?);
    if options.bless {
        measured.bless(&root, &mut limits)?;
    }
    faults.extend(api::faults(&root, &product, options.bless)?);
    faults.extend(measured.faults(&limits));
    faults.extend(record::faults(&root)?);
    faults.extend(pictures::faults(&root)?);
    faults.extend(others::faults(&root)?);
    faults.extend(others::unnamed(&texts));
    faults.extend(book::faults(&root)?);
    faults.extend(workflows::faults(&root)?);
    for place in TOP {
        if !root.join(place).exists() {
            faults.push(format!("{place} is missing at the top level"));
        }
    }
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    ensure!(faults.is_empty(), "{} faults", faults.len());
    Ok(())
}

fn dependencies(faults: &mut Vec<String>) -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(run::root()).no_deps().exec()?;
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some((_, may)) = MAY_KNOW.iter().find(|(known, _)| *known == name) else {
            faults.push(format!("package {name} has no row in the dependency rule"));
            continue;
        };
        for dependency in &package.dependencies {
            let other = dependency.name.as_str();
            let ours = MAY_KNOW.iter().any(|(ours, _)| *ours == other);
            if ours && other != name && !may.contains(&other) {
                faults.push(format!("{name} must not know {other}"));
            }
        }
    }
    Ok(())
}

/// Returns the files of the workspace whose names end with `ending`.
fn files(root: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    folders.push(path);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn one_file(name: &str, text: &str, faults: &mut Vec<String>) {
    let mut say = |what: String| faults.push(format!("{name}: {what}"));
    for line in chains::lines(text) {
        say(format!("{line}: `let` in a chain of conditions takes Rust 1.88; nest it"));
    }
    let lines = text.lines().count();
    if lines > MOST_LINES {
        say(format!("{lines} lines; the most is {MOST_LINES}"));
    } else if lines > MANY_LINES && !text.lines().take(40).any(|l| l.starts_with("//! Length:")) {
        say(format!("{lines} lines without a `//! Length:` reason on its front page"));
    }
    if !text.starts_with("//!") && !name.ends_with("/tests.rs") {
        say("has no front page (`//!`)".into());
    }
    let stem = name.rsplit('/').next().unwrap_or(name).trim_end_matches(".rs");
    if EMPTY_NAMES.contains(&stem) {
        say("the file's name says nothing".into());
    }
    // Modules that exist for tests only.
    let test = name.contains("/tests") || name.ends_with("tests.rs") || name.contains("/scripted");
    let inner = name.starts_with("dat-core/src") || name.starts_with("hca-mlx5/src");
    let host = name.starts_with("vfio-host/") && name.contains("/src/");
    if (inner || host) && !UNSAFE.contains(&name) && name != "hca-mlx5/src/platform/dma/tests.rs" {
        for (number, line) in code(text) {
            let said = inner && has_word(line, "unsafe") && !line.contains("unsafe_code");
            let done = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
            if said || done.iter().any(|words| line.contains(words)) {
                say(format!("line {number}: unsafe outside {}", UNSAFE.join(", ")));
            }
        }
    }
    if inner && !test {
        let body = text.split("#[cfg(test)]").next().unwrap_or(text);
        for (number, line) in code(body) {
            if line.contains("std::") && !line.contains("dat_std") {
                say(format!("line {number}: std in a no_std crate"));
            }
        }
        if name.starts_with("hca-mlx5/src") {
            fences(body, &mut say);
        }
    }
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("#[ignore") {
            say(format!("line {}: an ignored test", number + 1));
        }
        let packed = line.contains("repr(packed") || line.contains("repr(packed)");
        if packed && !line.trim_start().starts_with("//") && !name.starts_with("xtask") {
            say(format!("line {}: repr(packed) without C", number + 1));
        }
    }
}

/// Checks that each fence has a comment that names the ordered accesses.
fn fences(body: &str, say: &mut impl FnMut(String)) {
    let lines: Vec<&str> = body.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        if !line.contains(".fence(") || line.trim_start().starts_with("//") {
            continue;
        }
        let said = lines[number.saturating_sub(6)..=number].iter().any(|l| l.contains("ORDER:"));
        if !said {
            say(format!("line {}: a fence without `// ORDER:`", number + 1));
        }
    }
}

/// Returns the lines that are not comments, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(i, line)| (i + 1, line))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
}

fn median(texts: &BTreeMap<String, String>) {
    let mut sizes: Vec<usize> = texts.values().map(|text| text.lines().count()).collect();
    sizes.sort_unstable();
    if let Some(median) = sizes.get(sizes.len() / 2) {
        println!("  {} files, {} lines, median {median}", sizes.len(), sizes.iter().sum::<usize>());
    }
}

/// Checks that every call of the table `docs/man-pages.tsv` has its file, its alias and its tests.
fn man_pages(
    root: &Path,
    texts: &BTreeMap<String, String>,
    faults: &mut Vec<String>,
) -> Result<()> {
    let table = root.join("docs/man-pages.tsv");
    let rows = fs::read_to_string(&table).with_context(|| format!("{}", table.display()))?;
    // Calls that the conformance suite has rules for need no row.
    let required = coverage::calls(root)?;
    let mut calls = 0;
    for row in rows.lines().filter(|row| !row.starts_with('#') && !row.trim().is_empty()) {
        let mut columns = row.split('\t');
        let (Some(call), Some(file), Some(tests)) =
            (columns.next(), columns.next(), columns.next())
        else {
            faults.push(format!("man-pages.tsv: `{row}` is not call, file, tests"));
            continue;
        };
        calls += 1;
        match texts.get(file) {
            None => faults.push(format!("{call}: {file} does not exist")),
            Some(text) if !text.contains(&format!("\"{call}\"")) => {
                faults.push(format!("{call}: {file} has no doc alias of that name"));
            }
            Some(_) => {}
        }
        for test in tests.split(',').map(str::trim) {
            let line = format!("fn {test}(");
            if test.is_empty() || !texts.values().any(|text| text.contains(&line)) {
                faults.push(format!("{call}: there is no test `{test}`"));
            }
        }
    }
    for (file, text) in texts.iter().filter(|(file, _)| file.starts_with("dat-core/src")) {
        for part in text.split("doc(alias = \"").skip(1) {
            let alias = part.split('"').next().unwrap_or_default();
            if alias.starts_with("dat_")
                && !required.contains(alias)
                && !rows.lines().any(|row| row.starts_with(&format!("{alias}\t")))
            {
                faults.push(format!("{file}: {alias} has no row in docs/man-pages.tsv"));
            }
        }
    }
    println!("  {calls} DAT calls with file and tests");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(name: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        one_file(name, text, &mut faults);
        faults
    }

    #[test]
    fn unsafe_outside_the_allowed_files_is_found() {
        let text = "//! x\nfn f() { unsafe { g() } }\n// unsafe in words\n";
        assert_eq!(faults_of("hca-mlx5/src/device/eq.rs", text).len(), 1);
        assert_eq!(faults_of("hca-mlx5/src/platform/dma.rs", text).len(), 0);
    }

    #[test]
    fn a_fence_needs_its_reason() {
        let bare = "//! x\nfn f() { p.fence(Fence::BeforeDoorbell); }\n";
        let said =
            "//! x\n// ORDER: WQE before record\nfn f() { p.fence(Fence::BeforeDoorbell); }\n";
        assert_eq!(faults_of("hca-mlx5/src/data/q.rs", bare).len(), 1);
        assert_eq!(faults_of("hca-mlx5/src/data/q.rs", said).len(), 0);
    }

    #[test]
    fn long_files_and_empty_names_are_found() {
        let long = format!("//! x\n{}", "\n".repeat(1000));
        assert_eq!(faults_of("tests/src/a.rs", &long).len(), 1);
        assert_eq!(faults_of("tests/src/util.rs", "//! x\n").len(), 1);
        assert_eq!(faults_of("tests/src/b.rs", "fn f() {}\n").len(), 1);
    }
}
