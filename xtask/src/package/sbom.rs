//! The bill of materials: the crates that the programs are linked with, as CycloneDX 1.5.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;
use dat_lab::run;
use serde::Deserialize;
use serde_json::{Value, json};

/// The packages whose programs stand in the package.
const ROOTS: [&str; 3] = ["dat-mlx5", "mlx5-model", "dapldat"];

/// The part of `Cargo.lock` that is wanted.
#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Returns the bill of the workspace in `root`.
pub(super) fn of(root: &Path) -> Result<String> {
    let mut metadata = MetadataCommand::new();
    let metadata = metadata.current_dir(root).other_options(vec!["--locked".into()]).exec()?;
    let licenses: BTreeMap<(String, String), Option<String>> = metadata
        .packages
        .iter()
        .map(|one| ((one.name.to_string(), one.version.to_string()), one.license.clone()))
        .collect();
    let lock: Lock = toml::from_str(&std::fs::read_to_string(root.join("Cargo.lock"))?)?;
    let sums: BTreeMap<_, _> =
        lock.package.into_iter().map(|one| ((one.name, one.version), one.checksum)).collect();
    let mut components = Vec::new();
    for (name, version) in linked(root)? {
        let key = (name, version);
        let license = licenses.get(&key).with_context(|| key.0.clone())?;
        components.push(component(&key, license.as_deref(), sums.get(&key).cloned().flatten()));
    }
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application", "name": super::deb::NAME, "version": env!("CARGO_PKG_VERSION"),
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        } },
        "components": components,
    });
    Ok(format!("{bill:#}\n"))
}

fn component(key: &(String, String), license: Option<&str>, sum: Option<String>) -> Value {
    let (name, version) = key;
    let mut entry = json!({
        "type": "library", "name": name, "version": version,
        "purl": format!("pkg:cargo/{name}@{version}"),
    });
    if let Some(license) = license {
        // An older notation of "or".
        entry["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    if let Some(sum) = sum {
        entry["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    entry
}

/// Names and versions of what is linked, sorted, each once.
fn linked(root: &Path) -> Result<Vec<(String, String)>> {
    let mut tree = run::cargo();
    tree.current_dir(root);
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    tree.args(["--features", "mlx5-model/vfio-user"]);
    tree.args(ROOTS.iter().flat_map(|name| ["-p", name]));
    let text = run::silent(tree)?;
    let mut all: Vec<_> = text.lines().filter_map(parsed).collect();
    all.sort();
    all.dedup();
    Ok(all)
}

/// `NAME vVERSION`, and what follows, of a line of `cargo tree`.
fn parsed(line: &str) -> Option<(String, String)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    Some((name.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{component, parsed};

    #[test]
    fn lines_of_cargo_tree_become_components() {
        let line = "dat v0.1.0 (/here/vfio-host/dat)";
        assert_eq!(parsed(line), Some(("dat".into(), "0.1.0".into())));
        assert_eq!(parsed(""), None);
        let entry = component(&("a".into(), "1.2.3".into()), Some("MIT/Apache-2.0"), None);
        assert_eq!(entry["purl"], "pkg:cargo/a@1.2.3");
        assert_eq!(entry["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
