//! Memory that processes share by a name: the 40 bytes of a `DAT_LMR_COOKIE`.
//!
//! The name determines a memory file; all processes that open it share the same bytes. Each holds a
//! shared lock on the file. The last one, which can take the lock exclusively, removes the file.
//! The file of a killed process is reused by the next process that uses the name.

use std::fmt::Write;
use std::fs::{File, OpenOptions, remove_file};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::param::page_size;

use crate::error::{Error, Kind};
use crate::map::Pages;

/// The directory of such files, if the machine has it; otherwise they are temporary files.
const SHM: &str = "/dev/shm";
/// Longest wait for another process that creates or removes the file.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two attempts.
const LOOK: Duration = Duration::from_millis(1);

/// The mapped file of a name.
#[derive(Debug)]
pub(super) struct Named {
    pages: Pages,
    path: PathBuf,
}

impl Named {
    /// Opens the file, or creates it with a length of `len` bytes.
    pub(super) fn open(name: &[u8; 40], len: u64) -> Result<Self, Error> {
        let path = path(name);
        let object = || format!("shared memory {}", path.display());
        let failed = |error: io::Error| {
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            let kind = if denied { Kind::Permission } else { Kind::Memory };
            let remedy = "share it between processes of one user, with a length that the machine has memory for";
            Error::new(kind, object(), format!("cannot be opened: {error}"), remedy).because(error)
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(file) = taken(&path, len).map_err(failed)? {
                let there = file.metadata().map_err(failed)?.len();
                if there < len {
                    return Err(Error::new(
                        Kind::Memory,
                        object(),
                        format!("it has {there} bytes, and {len} are asked for"),
                        "agree on a length; the first process sets it",
                    ));
                }
                let bytes = usize::try_from(len).unwrap_or(usize::MAX);
                let pages = Pages::of_file(file.into(), bytes).map_err(failed)?;
                return Ok(Self { pages, path });
            }
            if Instant::now() > deadline {
                return Err(Error::new(
                    Kind::Busy,
                    object(),
                    "another process holds it locked exclusively",
                    "end the process that has it open (`fuser`), or remove the file",
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the mapping.
    pub(super) fn pages(&self) -> &Pages {
        &self.pages
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(file) = self.pages.file() {
            if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
                && is_at(&self.path, file)
            {
                // The last user. A process that opened the file meanwhile opens it again, because its
                // path no longer leads to the same file.
                let _ = remove_file(&self.path);
            }
        }
    }
}

fn path(name: &[u8; 40]) -> PathBuf {
    let shm = Path::new(SHM);
    let temp = std::env::temp_dir();
    let mut file = String::from("dat-");
    for byte in name {
        let _ = write!(file, "{byte:02x}");
    }
    if shm.is_dir() { shm } else { &temp }.join(file)
}

/// Opens the file, takes the shared lock and sets the length, in whole pages. Returns `None` if
/// another process is creating or removing it.
fn taken(path: &Path, len: u64) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(0_i32.wrapping_add_unsigned(OFlags::NOFOLLOW.bits()))
        .open(path)?;
    let lock = |operation| match flock(&file, operation) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(io::Error::from(errno)),
    };
    // No other process has it open, so its length can change.
    if lock(FlockOperation::NonBlockingLockExclusive)? && file.metadata()?.len() == 0 {
        file.set_len(len.next_multiple_of(page_size() as u64))?;
    }
    let ready = lock(FlockOperation::NonBlockingLockShared)?
        && is_at(path, file.as_fd())
        && file.metadata()?.len() > 0;
    Ok(ready.then_some(file))
}

/// Returns whether the path still leads to that file.
fn is_at(path: &Path, file: std::os::fd::BorrowedFd<'_>) -> bool {
    let there = std::fs::symlink_metadata(path);
    let here = rustix::fs::fstat(file);
    matches!((there, here), (Ok(there), Ok(here)) if there.ino() == here.st_ino && there.dev() == here.st_dev)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: u8) -> [u8; 40] {
        let mut name = [n; 40];
        name[..4].copy_from_slice(&std::process::id().to_ne_bytes());
        name
    }

    #[test]
    fn users_share_the_bytes_and_the_last_removes_the_file() {
        let name = name(1);
        let one = Named::open(&name, 100).unwrap();
        let two = Named::open(&name, 100).unwrap();
        assert_ne!(one.pages().addr(), two.pages().addr());
        for named in [&one, &two] {
            assert!(is_at(&path(&name), named.pages().file().unwrap()));
        }
        let error = Named::open(&name, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("it has 4096 bytes"), "{error}");
        drop(one);
        assert!(path(&name).exists());
        drop(two);
        assert!(!path(&name).exists());
    }

    #[test]
    fn the_file_of_a_killed_process_is_reused() {
        let name = name(2);
        std::fs::write(path(&name), [7; 4096]).unwrap();
        let named = Named::open(&name, 4096).unwrap();
        assert_eq!(named.pages().len(), 4096);
        drop(named);
        assert!(!path(&name).exists());
    }

    #[test]
    fn many_users_open_and_close_at_once() {
        let name = name(3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let named = Named::open(&name, 4096).unwrap();
                        assert_eq!(named.pages().len(), 4096);
                    }
                });
            }
        });
        assert!(!path(&name).exists());
    }

    #[test]
    fn a_wait_for_an_exclusive_lock_times_out() {
        let name = name(4);
        let file = File::create(path(&name)).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let error = Named::open(&name, 4096).unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
        remove_file(path(&name)).unwrap();
    }
}
