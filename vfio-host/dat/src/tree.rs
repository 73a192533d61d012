//! The machine as files: `/sys`, `/proc` and `/dev` below one root.
//!
//! All that the commands which open no device know of the machine goes through here, so that they
//! run against a tree in a folder as well as against the machine. Paths are given as on the
//! machine, from `/`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use vfio_host::sysfs::{self, Sysfs};

/// The tree.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

/// Who may do what to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    /// Permission bits.
    pub(crate) mode: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
}

impl Tree {
    /// The tree below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// The tree is this machine's own.
    pub(crate) fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// What the library reads of it: IOMMU groups.
    pub(crate) fn kernel(&self) -> Sysfs {
        Sysfs::at(&self.root)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// There is such a file or folder, or a link to one.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Contents of a file, without white space around it.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        sysfs::text(&self.at(path))
    }

    /// A decimal number, or a hexadecimal one after `0x`.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// Name of what a symbolic link points at.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        sysfs::link(&self.at(path))
    }

    /// Names in a folder, sorted; none if it is not there.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        sysfs::names(&self.at(path))
    }

    /// Owner and permission bits.
    pub(crate) fn rights(&self, path: &str) -> Option<Rights> {
        let meta = fs::metadata(self.at(path)).ok()?;
        Some(Rights { mode: meta.mode(), uid: meta.uid(), gid: meta.gid() })
    }

    /// Writes to a file that is there.
    pub(crate) fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).truncate(true).open(self.at(path))?;
        // One write: an attribute takes its value in one piece.
        file.write_all(format!("{value}\n").as_bytes())
    }
}
