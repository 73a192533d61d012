//! `cargo xtask book`: builds docs/book with mdBook. `cargo xtask tidy` checks that what the book
//! shows are the programs that the tests run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use dat_lab::run;

/// Folder of the pages.
const PAGES: &str = "docs/book/src";
/// Folder of the programs, and the test that runs them.
const PROGRAMS: &str = "tests/book/examples";
const TEST: &str = "tests/book/tests/listings.rs";
/// The mdBook that is installed where there is none.
const VERSION: &str = "0.5.4";

/// Builds the book into `target/book`.
pub(crate) fn book() -> Result<()> {
    let root = run::root();
    let mut command = Command::new(mdbook(&root)?);
    command.arg("build").arg(root.join("docs/book"));
    command.arg("--dest-dir").arg(root.join("target/book"));
    run::plain(command, "the book cannot be built")?;
    println!("target/book/index.html");
    Ok(())
}

/// Returns the path of mdBook: the machine's own, or one below `target`, which is installed first.
fn mdbook(root: &Path) -> Result<PathBuf> {
    if Command::new("mdbook").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return Ok("mdbook".into());
    }
    let tools = root.join("target/tools");
    let path = tools.join("bin/mdbook");
    if !path.exists() {
        let mut install = run::cargo();
        install.args(["install", "mdbook", "--locked", "--no-default-features"]);
        install.args(["--version", VERSION, "--root"]).arg(&tools);
        run::plain(install, "mdBook cannot be installed")?;
    }
    Ok(path)
}

/// Returns where the book and its programs do not agree.
pub(crate) fn faults(root: &Path) -> Result<Vec<String>> {
    let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| name.to_owned());
    let names = |folder: &str| -> Result<BTreeSet<String>> {
        let entries = fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    let summary = read(&format!("{PAGES}/SUMMARY.md"))?;
    let mut faults = Vec::new();
    let mut shown = BTreeSet::new();
    for page in names(PAGES)?.iter().filter(|name| *name != "SUMMARY.md") {
        if !summary.contains(&format!("({page})")) {
            faults.push(format!("{PAGES}/SUMMARY.md does not list {page}"));
        }
        let look_up = |path: &str| fs::read_to_string(root.join(PAGES).join(path)).ok();
        let (wrong, paths) = check(&read(&format!("{PAGES}/{page}"))?, look_up);
        faults.extend(wrong.into_iter().map(|what| format!("{PAGES}/{page}: {what}")));
        shown.extend(paths);
    }
    // The front page shows one of them.
    let readme = read("README.md")?;
    let echo = read(&format!("{PROGRAMS}/echo.rs"))?;
    let block = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    if !block.is_some_and(|block| !block.is_empty() && echo.contains(block)) {
        faults.push(format!("README.md: the listing is no part of {PROGRAMS}/echo.rs"));
    }
    let test = read(TEST)?;
    for program in names(PROGRAMS)? {
        if !shown.iter().any(|path| path.ends_with(&format!("{PROGRAMS}/{program}"))) {
            faults.push(format!("{PROGRAMS}/{program} stands in no chapter"));
        }
        if !test.contains(&format!("examples/{program}\"")) {
            faults.push(format!("{TEST} does not run {program}"));
        }
    }
    Ok(faults)
}

/// Checks the blocks of Rust of a page: each is one part of a program. Returns what is wrong, and
/// the programs that the page shows. `look_up` reads a file.
fn check(page: &str, look_up: impl Fn(&str) -> Option<String>) -> (Vec<String>, BTreeSet<String>) {
    let (mut faults, mut shown) = (Vec::new(), BTreeSet::new());
    for block in page.split("```rust").skip(1) {
        let block = block.split("```").next().unwrap_or_default().trim();
        let include = block.strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
        let Some((path, anchor)) = include.and_then(|include| include.split_once(':')) else {
            faults.push(format!("a listing is no part of a program: {}", first_line(block)));
            continue;
        };
        let Some(text) = look_up(path) else {
            faults.push(format!("there is no {path}"));
            continue;
        };
        let mark = |word: &str| format!("// {word}: {anchor}");
        if !["ANCHOR", "ANCHOR_END"]
            .iter()
            .all(|word| text.lines().filter(|line| line.trim() == mark(word)).count() == 1)
        {
            faults.push(format!("{path} has no part {anchor}"));
        }
        shown.insert(path.to_owned());
    }
    (faults, shown)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_listing_that_is_no_part_of_a_program_is_found() {
        let look_up = |path: &str| {
            (path == "a.rs").then(|| "// ANCHOR: x\nlet x;\n    // ANCHOR_END: x\n".to_owned())
        };
        let page = |line: &str| format!("text\n\n```rust\n{line}\n```\n\n```text\nlet y;\n```\n");
        let (faults, shown) = check(&page("{{#include a.rs:x}}"), look_up);
        assert!(faults.is_empty() && shown.contains("a.rs"), "{faults:?}");
        for (line, fault) in [
            ("let y;", "a listing is no part of a program: let y;"),
            ("{{#include a.rs}}", "a listing is no part of a program: {{#include a.rs}}"),
            ("{{#include b.rs:x}}", "there is no b.rs"),
            ("{{#include a.rs:y}}", "a.rs has no part y"),
        ] {
            assert_eq!(check(&page(line), look_up).0, [fault]);
        }
    }
}
