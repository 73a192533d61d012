//! Scapy, as an archive of files that a guest of stock Linux has besides its Python.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::archive::Archive;
use super::packages::{self, SCAPY};
use super::stock::below;

/// Where it stands in the tree.
const PLACE: &str = "usr/lib/python3/dist-packages/scapy";
/// What nothing in a guest imports.
const LEFT_OUT: [&str; 3] = ["contrib", "modules", "tools"];

/// The archive; the package is fetched first if it was not.
pub(crate) fn archive() -> Result<Vec<u8>> {
    let tree = packages::tree(&crate::folder()?, &SCAPY)?;
    let mut files = BTreeSet::new();
    below(tree.root(), Path::new(PLACE), &mut files)?;
    files.retain(|file| !LEFT_OUT.iter().any(|part| file.starts_with(Path::new(PLACE).join(part))));
    let mut archive = Archive::default();
    for file in &files {
        archive.file(&file.to_string_lossy(), &fs::read(tree.root().join(file))?)?;
    }
    archive.finish()
}
