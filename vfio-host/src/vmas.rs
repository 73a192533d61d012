//! The memory mappings of the process, from `/proc/self/maps`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::mm::ProtFlags;

use crate::error::{Error, Kind};
use crate::host::Reach;

/// One mapping of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vma {
    pub(crate) range: Range<u64>,
    pub(crate) rights: ProtFlags,
    /// Other processes may share it.
    pub(crate) shared: bool,
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// The inode number of the file that backs it; 0 if there is none.
    pub(crate) inode: u64,
    /// The kernel's name for it.
    pub(crate) name: String,
}

impl Vma {
    /// Parses a line; `None` if it is malformed.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let mut rights = words.next()?.chars();
        let mut right = |letter, right| match rights.next() {
            Some(found) if found == letter => right,
            Some(_) | None => ProtFlags::empty(),
        };
        let granted = right('r', ProtFlags::READ)
            | right('w', ProtFlags::WRITE)
            | right('x', ProtFlags::EXEC);
        let shared = rights.next()? == 's';
        let offset = number(words.next()?)?;
        let inode = words.nth(1)?;
        Some(Self {
            range: number(start)?..number(end)?,
            rights: granted,
            shared,
            offset,
            inode: inode.parse().ok()?,
            name: words.next().unwrap_or_default().trim().into(),
        })
    }

    /// Returns why its pages cannot be lent to the device, if they cannot.
    pub(crate) fn refusal(&self, reach: Reach) -> Option<&'static str> {
        let lacks = |right| !self.rights.contains(right);
        if lacks(ProtFlags::READ) {
            Some("the process itself may not read it")
        } else if !lacks(ProtFlags::EXEC) && lacks(ProtFlags::WRITE) {
            // Writable memory counts as data even if executable: under valgrind, all of a heap is.
            Some("it is code")
        } else if reach == Reach::ReadWrite && lacks(ProtFlags::WRITE) {
            Some("the process itself may not write to it")
        } else if self.name.starts_with("[v") {
            Some("it is the kernel's")
        } else {
            None
        }
    }

    /// Returns whether it is the main stack, which grows downwards by itself.
    pub(crate) fn grows(&self) -> bool {
        self.name == "[stack]"
    }

    /// Opens the file that backs it: by its path, by a descriptor of the process, or by the
    /// kernel's link, which only privileged processes can open.
    pub(crate) fn file(&self) -> Option<File> {
        let Range { start, end } = self.range;
        let own = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
        let own = own.flatten().map(|entry| entry.path());
        // Only descriptors of that name are inspected.
        let own = own.filter(|path| {
            let target = std::fs::read_link(path);
            target.is_ok_and(|target| target == Path::new(&self.name))
        });
        let link = PathBuf::from(format!("/proc/self/map_files/{start:x}-{end:x}"));
        let mut places = std::iter::once(PathBuf::from(&self.name))
            .filter(|path| path.is_absolute())
            .chain(own)
            .chain([link]);
        places.find_map(|path| {
            let there = std::fs::metadata(&path).ok()?;
            // Only a regular file is opened: opening a device may have side effects.
            if there.ino() != self.inode || !there.is_file() {
                return None;
            }
            let file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
            (file.metadata().ok()?.ino() == self.inode).then_some(file)
        })
    }
}

/// Returns the mappings that `pages` touch, in ascending order.
pub(crate) fn of(pages: &Range<u64>) -> io::Result<Vec<Vma>> {
    // Room for many lines: the kernel looks them up anew at each read.
    let mut text = String::with_capacity(1 << 14);
    File::open("/proc/self/maps")?.read_to_string(&mut text)?;
    let all = text.lines().filter_map(Vma::parse);
    let near = all.filter(|vma| vma.range.start < pages.end && pages.start < vma.range.end);
    Ok(near.collect())
}

/// Checks that all pages are shared with other processes.
pub(crate) fn shared(pages: &Range<u64>) -> Result<(), Error> {
    let vmas = of(pages).unwrap_or_default();
    let mut at = pages.start;
    for vma in vmas.iter().filter(|vma| vma.shared) {
        if vma.range.start <= at {
            at = at.max(vma.range.end);
        }
    }
    if at >= pages.end {
        return Ok(());
    }
    Err(Error::new(
        Kind::Unsupported,
        format!("shared memory at {:#x}, {:#x} bytes", pages.start, pages.end - pages.start),
        format!("what is at {at:#x} is the process's alone"),
        "map it shared (mmap with MAP_SHARED, shmat) before it is registered so",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let text = "7ffc1000-7ffc4000 rw-p 00000000 00:00 0                          [stack]";
        let stack = Vma::parse(text).unwrap();
        assert_eq!(stack.range, 0x7ffc_1000..0x7ffc_4000);
        assert!(stack.grows() && !stack.shared && stack.inode == 0);
        assert_eq!(stack.refusal(Reach::ReadWrite), None);
        let text = "00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/a b (deleted)";
        let code = Vma::parse(text).unwrap();
        assert_eq!((code.inode, &*code.name), (173_521, "/usr/bin/a b (deleted)"));
        assert_eq!(code.refusal(Reach::Read), Some("it is code"));
        let text = "7f00-8f00 rw-s 00003000 00:01 12";
        let common = Vma::parse(text).unwrap();
        assert_eq!((common.offset, common.inode), (0x3000, 12));
        assert!(common.shared && common.refusal(Reach::ReadWrite).is_none());
        let text = "7f00-8f00 r--p 00000000 00:00 0 ";
        let constant = Vma::parse(text).unwrap();
        assert_eq!(constant.refusal(Reach::Read), None);
        assert!(constant.refusal(Reach::ReadWrite).is_some());
        for nonsense in ["", "7f00", "x-y rw-p 0 0:0 0", "7f00-8f00 rw", "7f00-8f00 rw-p 0 0:0"] {
            assert_eq!(Vma::parse(nonsense), None);
        }
    }

    #[test]
    fn the_mappings_found_touch_the_pages_asked_for() {
        let value = Box::new(7u64);
        let addr = std::ptr::from_ref(&*value).addr() as u64;
        let found = of(&(addr..addr + 8)).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].refusal(Reach::ReadWrite), None);
    }
}
