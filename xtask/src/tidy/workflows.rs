//! Files for GitHub: they parse, and each verb that they call is there.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use yaml_rust2::{Yaml, YamlLoader};

/// Folders of YAML files.
const FOLDERS: [&str; 2] = [".github/workflows", ".github/ISSUE_TEMPLATE"];

pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())? {
            let path = entry?.path();
            let name = path.strip_prefix(root)?.display().to_string();
            of_text(&name, &fs::read_to_string(&path)?, &mut faults);
        }
    }
    Ok(faults)
}

fn of_text(name: &str, text: &str, faults: &mut Vec<String>) {
    match YamlLoader::load_from_str(text) {
        Ok(parts) => {
            parts.iter().for_each(|part| strings(part, &mut |line| verbs(name, line, faults)))
        }
        Err(error) => faults.push(format!("{name}: no YAML: {error}")),
    }
}

/// Every string below a node.
fn strings(node: &Yaml, see: &mut impl FnMut(&str)) {
    if let Some(text) = node.as_str() {
        see(text);
    } else if let Some(list) = node.as_vec() {
        list.iter().for_each(|one| strings(one, see));
    } else if let Some(map) = node.as_hash() {
        map.values().for_each(|one| strings(one, see));
    }
}

/// The verbs that a command line calls, with their options.
fn verbs(name: &str, text: &str, faults: &mut Vec<String>) {
    for call in text.split("cargo xtask ").skip(1) {
        let line = call.lines().next().unwrap_or_default();
        let words = std::iter::once("xtask").chain(line.split_whitespace());
        if let Err(error) = crate::Cli::command().try_get_matches_from(words) {
            let error = error.to_string();
            faults.push(format!(
                "{name}: `cargo xtask {line}`: {}",
                error.lines().next().unwrap_or("")
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::of_text;

    fn faults(text: &str) -> usize {
        let mut faults = Vec::new();
        of_text("a.yml", text, &mut faults);
        faults.len()
    }

    #[test]
    fn broken_files_and_unknown_verbs_are_found() {
        assert_eq!(faults("a:\n  - run: cargo xtask tidy --figures\n"), 0);
        assert_eq!(faults("a:\n  - run: cargo xtask tidyy\n"), 1);
        assert_eq!(faults("a:\n  - run: cargo xtask tidy --no-such-option\n"), 1);
        assert_eq!(faults("a: [\n"), 1);
    }
}
