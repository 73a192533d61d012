//! The machine as files: `/sys`, `/proc` and `/dev` below one root.
//!
//! Commands that do not open the device read the machine only through this module, so that they
//! also run against a copy of the tree in a folder. Paths are absolute, as on the machine.

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

/// Owner and permissions of a file.
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
    /// Makes a tree below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// Returns whether the tree is this machine's own.
    pub(crate) fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the library's view of it, for IOMMU groups.
    pub(crate) fn kernel(&self) -> Sysfs {
        Sysfs::at(&self.root)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns whether a file or folder, or a link to one, exists.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Returns the contents of a file, trimmed.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        sysfs::text(&self.at(path))
    }

    /// Reads a decimal number, or a hexadecimal one after `0x`.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// Returns the file name of a symbolic link's target.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        sysfs::link(&self.at(path))
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn target(&self, path: &str) -> Option<String> {
        fs::read_link(self.at(path)).ok()?.to_str().map(str::to_owned)
    }

    /// Returns the names in a folder, sorted; none if it does not exist.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        sysfs::names(&self.at(path))
    }

    /// Reads owner and permission bits.
    pub(crate) fn rights(&self, path: &str) -> Option<Rights> {
        let meta = fs::metadata(self.at(path)).ok()?;
        Some(Rights { mode: meta.mode(), uid: meta.uid(), gid: meta.gid() })
    }

    /// Writes to an existing file.
    pub(crate) fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).truncate(true).open(self.at(path))?;
        // A single write: a sysfs attribute needs its value in one piece.
        file.write_all(format!("{value}\n").as_bytes())
    }
}
