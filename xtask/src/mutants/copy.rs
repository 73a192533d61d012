//! A copy of a workspace, with a switch in it that turns code on and off at run time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The module that is added to a crate.
pub(crate) const SWITCH: &str = include_str!("switch.rs");

/// Returns all files of a workspace by name, except build results.
pub(crate) fn files(root: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && name != ".git" {
                    folders.push(path);
                }
            } else {
                let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
                found.insert(name, fs::read(&path)?);
            }
        }
    }
    Ok(found)
}

/// Makes the folder contain exactly these files. Unchanged files keep their modification time.
pub(crate) fn sync(to: &Path, wanted: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    fs::create_dir_all(to)?;
    let have = files(to)?;
    for name in have.keys().filter(|name| !wanted.contains_key(*name)) {
        fs::remove_file(to.join(name))?;
    }
    for (name, bytes) in wanted {
        if have.get(name) != Some(bytes) {
            let path = to.join(name);
            fs::create_dir_all(path.parent().context("a file without a folder")?)?;
            fs::write(path, bytes)?;
        }
    }
    Ok(())
}

/// Adds the switch to the crate whose sources are in this folder, as its module `mutants`.
pub(crate) fn add_switch(files: &mut BTreeMap<String, Vec<u8>>, folder: &str) -> Result<()> {
    files.insert(format!("{folder}mutants.rs"), SWITCH.into());
    let front = files.get_mut(&format!("{folder}lib.rs")).context("no lib.rs")?;
    front.extend_from_slice(b"\n#[doc(hidden)]\npub mod mutants;\n");
    Ok(())
}
