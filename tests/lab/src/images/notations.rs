//! The device's interface in notations of others: Linux's headers and mstflint's register
//! tables, from the newest packages of the distribution. Fetched anew for every comparison.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::folder;
use crate::images::packages::{Apt, alone, unpack};

/// The suite that is newest.
const SUITE: &str = "sid";
const HEADERS: &str = "include/linux/mlx5";
const REGISTERS: &str = "usr/share/mstflint/prm_dbs/hca/ext/register_access_table.adb";

/// Where they are, and the versions of the packages that they are of.
#[derive(Debug)]
pub struct Notations {
    /// Folder of `mlx5_ifc.h`, `device.h` and `qp.h`.
    pub headers: PathBuf,
    /// `register_access_table.adb`.
    pub registers: PathBuf,
    /// For people.
    pub versions: String,
}

/// Fetches both.
pub fn fetch() -> Result<Notations> {
    let folder = folder()?;
    fs::create_dir_all(&folder)?;
    let _alone = alone();
    let apt = Apt::new(&folder, &[SUITE])?;
    apt.update()?;
    // The headers of the newest kernel: those of all its kinds.
    let headers = apt.dependency("linux-headers-amd64", "linux-headers-")?;
    let headers = headers.replace("-amd64", "-common");
    apt.one(&headers)?;
    apt.one("mstflint")?;
    let root = folder.join("notations");
    let debs = apt.downloaded()?;
    unpack(&debs, &root)?;
    let names = debs.iter().filter_map(|deb| deb.file_stem()?.to_str());
    let versions = names.collect::<Vec<_>>().join(", ");
    let headers = existing(&root.join("usr/src").join(&headers).join(HEADERS))?;
    Ok(Notations { headers, registers: existing(&root.join(REGISTERS))?, versions })
}

fn existing(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("the package has no {}", path.display()))
}
