//! An MPI library that speaks uDAPL, as the Python package index has it, and headers to compile a
//! program for it, from the distribution. Both are fetched below the target folder, never kept here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::packages::{Apt, alone, codename, unpack};
use crate::{folder, run};

/// The package: binaries under Intel's licence (ISSL).
pub(crate) const PACKAGE: &str = "impi==2018.0.3";
/// Its folder in the wheel, which is `intel64` of an installation.
const DATA: &str = "impi-2018.0.3.data/data";
/// A package with the header of the common interface of MPICH and Intel MPI.
const HEADERS: &str = "libmpich-dev";
const INCLUDE: &str = "usr/include/x86_64-linux-gnu/mpich";

/// Where they are.
#[derive(Debug, Clone)]
pub(crate) struct Intel {
    /// `I_MPI_ROOT`.
    pub(crate) root: PathBuf,
    /// The folder of `mpi.h`.
    pub(crate) include: PathBuf,
}

impl Intel {
    fn at(parent: &Path) -> Self {
        Self { root: parent.join("root"), include: parent.join("headers").join(INCLUDE) }
    }

    fn parent() -> Result<PathBuf> {
        Ok(folder()?.join("mpi"))
    }

    /// Those that were fetched before.
    pub(crate) fn there() -> Result<Option<Self>> {
        let intel = Self::at(&Self::parent()?);
        let there = intel.root.exists() && intel.include.exists();
        Ok(there.then_some(intel))
    }

    /// Fetches what is not there yet.
    pub(crate) fn fetch() -> Result<Self> {
        let _alone = alone();
        let parent = Self::parent()?;
        let intel = Self::at(&parent);
        fs::create_dir_all(&parent)?;
        if !intel.root.exists() {
            wheel(&parent, &intel.root).with_context(|| format!("{PACKAGE} cannot be had"))?;
        }
        if !intel.include.exists() {
            let apt = Apt::new(&parent, &[&codename()?])?;
            apt.update()?;
            unpack(&[apt.one(HEADERS)?], &parent.join("headers"))?;
            apt.remove()?;
        }
        Ok(intel)
    }
}

fn wheel(parent: &Path, root: &Path) -> Result<()> {
    let fresh = parent.join("new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    fs::create_dir_all(&fresh)?;
    let python = |args: &[&str]| {
        let mut python = Command::new("python3");
        python.args(args).current_dir(&fresh);
        run::capture(python)
    };
    python(&["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", PACKAGE])?;
    let files = fs::read_dir(&fresh)?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = files.into_iter().find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.context("pip has downloaded no wheel")?;
    python(&["-m", "zipfile", "-e", wheel.to_str().context("no text")?, "."])?;
    fs::remove_file(wheel)?;
    // An archive of that kind does not say what is a program.
    for file in fs::read_dir(fresh.join(DATA).join("bin"))? {
        executable(&file?.path())?;
    }
    fs::rename(fresh.join(DATA), fresh.join("intel64"))?;
    Ok(fs::rename(fresh, root)?)
}

fn executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}
