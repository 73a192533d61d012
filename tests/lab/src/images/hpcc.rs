//! The source of HPCC, and the library of linear algebra that it takes, as the distribution has them.
//! Both are fetched below the target folder, never kept here.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::packages::{Apt, LIBRARIES, alone, codename, unpack};
use super::sources::{Wanted, sources};
use crate::folder;

const WANTED: Wanted = ("hpcc", "bookworm");
const ALGEBRA: &str = "libblas-dev";

/// Where they are.
#[derive(Debug)]
pub(crate) struct Hpcc {
    /// The folder of the source.
    pub(crate) source: PathBuf,
    /// The folder of the library's headers.
    pub(crate) include: PathBuf,
    /// The library.
    pub(crate) algebra: PathBuf,
}

impl Hpcc {
    /// Fetches what is not there yet.
    pub(crate) fn fetch() -> Result<Self> {
        let parent = folder()?.join("hpcc");
        fs::create_dir_all(&parent)?;
        let source = sources(&parent, &[WANTED])?.pop().context("no source")?.root;
        let _alone = alone();
        let root = parent.join("algebra");
        let algebra = root.join(LIBRARIES).join("blas/libblas.a");
        if !algebra.exists() {
            let apt = Apt::new(&parent, &[&codename()?])?;
            apt.update()?;
            unpack(&[apt.one(ALGEBRA)?], &root)?;
            apt.remove()?;
        }
        Ok(Self { source, include: root.join("usr/include/x86_64-linux-gnu"), algebra })
    }
}
