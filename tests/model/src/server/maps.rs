//! A client's mappings, and DMA through them.
//!
//! The table goes from bus address to a piece of a file; a file is mapped whole, once, for as long
//! as a mapping refers to it, and one descriptor of it kept. A vIOMMU maps page by page, each time
//! with another descriptor of the same memory: those are closed at once, and a page costs an entry
//! here and nothing else.
//!
//! Another CPU may look at any moment. Every piece of a write therefore ends with one store of the
//! largest aligned size up to eight bytes, after everything before it; a read of such a size is one
//! load.

use crate::host::{DmaError, HostMemory};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

/// Protocol flag: the device may read.
const READ: u32 = 1;
/// Protocol flag: the device may write.
const WRITE: u32 = 2;
/// Protocol flag of an unmap: report dirty pages.
const GET_DIRTY: u32 = 2;
/// Protocol flag of an unmap: everything goes.
const UNMAP_ALL: u32 = 4;
/// The IOMMU's page.
const PAGE: u64 = 4096;

/// One mapping, as the client asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// First bus address.
    pub iova: u64,
    /// Length in bytes.
    pub size: u64,
    /// The device may read it.
    pub read: bool,
    /// The device may write it.
    pub write: bool,
    /// There is memory behind it; without, every access is refused.
    pub memory: bool,
}

impl core::fmt::Display for Map {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let rights = match (self.read, self.write) {
            (true, true) => "rw",
            (true, false) => "r",
            (false, true) => "w",
            (false, false) => "-",
        };
        write!(f, "{:#x} {:#x} {rights}", self.iova, self.size)
    }
}

#[derive(Debug)]
struct Entry {
    size: u64,
    rights: u32,
    memory: Option<Place>,
}

/// A place in a file.
#[derive(Debug)]
struct Place {
    region: Arc<MmapRegion>,
    at: usize,
    file: FileKey,
}

/// Device and inode of a file.
type FileKey = (u64, u64);

#[derive(Debug, Default)]
struct Table {
    entries: BTreeMap<u64, Entry>,
    files: HashMap<FileKey, Weak<MmapRegion>>,
    limit: Option<u64>,
    refused: u64,
}

/// The mappings of one function; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Maps(Arc<Mutex<Table>>);

impl Maps {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses more mappings than this.
    pub(super) fn set_limit(&self, most: u64) {
        self.lock().limit = Some(most);
    }

    /// Maps `size` bytes at `offset` of a file; without one the range is taken, and cannot be
    /// reached.
    pub(super) fn map(
        &self,
        flags: u32,
        offset: u64,
        iova: u64,
        size: u64,
        file: Option<File>,
    ) -> Result<(), Errno> {
        let last = last(iova, size)?;
        let ragged = (iova | size | offset) % PAGE != 0;
        if ragged || flags & (READ | WRITE) == 0 {
            return Err(Errno::INVAL);
        }
        let mut table = self.lock();
        if table.overlaps(iova, last) {
            return Err(Errno::EXIST);
        }
        if table.limit.is_some_and(|n| table.entries.len() as u64 >= n) {
            return Err(Errno::NOSPC);
        }
        let memory = match file {
            Some(file) => Some(table.memory(file, offset, size)?),
            None => None,
        };
        let rights = flags & (READ | WRITE);
        let entry = Entry { size, rights, memory };
        table.entries.insert(iova, entry);
        Ok(())
    }

    /// Removes the mappings in a range, of which there may be none; a mapping cannot be cut.
    pub(super) fn unmap(&self, flags: u32, iova: u64, size: u64) -> Result<(), Errno> {
        if flags & GET_DIRTY != 0 {
            return Err(Errno::NOTSUP);
        }
        let mut table = self.lock();
        if flags & UNMAP_ALL != 0 {
            table.clear();
            return Ok(());
        }
        let last = last(iova, size)?;
        let cut = |at: u64| {
            let below = at.checked_sub(1)?;
            let (start, entry) = table.entries.range(..=below).next_back()?;
            (start + (entry.size - 1) >= at).then_some(())
        };
        if cut(iova).is_some() || last.checked_add(1).and_then(cut).is_some() {
            return Err(Errno::INVAL);
        }
        let gone: Vec<u64> = table.entries.range(iova..=last).map(|(at, _)| *at).collect();
        // A sweep that hits nothing costs nothing.
        if gone.is_empty() {
            return Ok(());
        }
        for at in gone {
            let memory = table.entries.remove(&at).and_then(|entry| entry.memory);
            if let Some(Place { region, file, .. }) = memory {
                drop(region);
                if table.files.get(&file).is_some_and(|region| region.strong_count() == 0) {
                    table.files.remove(&file);
                }
            }
        }
        Ok(())
    }

    /// Forgets every mapping.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// All mappings, by address.
    pub(super) fn list(&self) -> Vec<Map> {
        let one = |(iova, entry): (&u64, &Entry)| Map {
            iova: *iova,
            size: entry.size,
            read: entry.rights & READ != 0,
            write: entry.rights & WRITE != 0,
            memory: entry.memory.is_some(),
        };
        self.lock().entries.iter().map(one).collect()
    }

    /// Accesses refused so far.
    pub(super) fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// Whether a write of so many bytes would be let through as a whole.
    pub(super) fn check_write(&self, iova: u64, length: usize) -> Result<(), DmaError> {
        self.lock().pieces(iova, length, WRITE, |_, _| ())
    }
}

/// Last address of a range.
fn last(iova: u64, size: u64) -> Result<u64, Errno> {
    let less = size.checked_sub(1).ok_or(Errno::INVAL)?;
    iova.checked_add(less).ok_or(Errno::INVAL)
}

impl Table {
    fn clear(&mut self) {
        self.entries.clear();
        self.files.clear();
    }

    fn overlaps(&self, iova: u64, last: u64) -> bool {
        let below = self.entries.range(..=last).next_back();
        below.is_some_and(|(start, entry)| start + (entry.size - 1) >= iova)
    }

    /// A file's memory, mapped whole unless it is already, and the checked place in it.
    fn memory(&mut self, file: File, offset: u64, size: u64) -> Result<Place, Errno> {
        let stat = file.metadata().map_err(|_| Errno::BADF)?;
        let end = offset.checked_add(size).ok_or(Errno::INVAL)?;
        if end > stat.len() {
            return Err(Errno::INVAL);
        }
        let at = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        let key = (stat.dev(), stat.ino());
        let known = self.files.get(&key).and_then(Weak::upgrade);
        // A file that has grown is mapped anew; earlier mappings stay as they were.
        if let Some(region) = known.filter(|region| region.size() as u64 >= end) {
            return Ok(Place { region, at, file: key });
        }
        let whole = usize::try_from(stat.len()).map_err(|_| Errno::INVAL)?;
        let region = MmapRegion::from_file(FileOffset::new(file, 0), whole)
            .map_err(|_| Errno::ACCESS)
            .map(Arc::new)?;
        self.files.insert(key, Arc::downgrade(&region));
        Ok(Place { region, at, file: key })
    }

    /// Calls `each` with the memory of every piece of an access, in ascending order, and where the
    /// piece begins in the access; stops at the first that has no mapping with that right.
    fn pieces(
        &mut self,
        iova: u64,
        length: usize,
        right: u32,
        mut each: impl FnMut(usize, &VolatileSlice<'_>),
    ) -> Result<(), DmaError> {
        let mut done = 0;
        while done < length {
            let at = iova.wrapping_add(done as u64);
            let found = self.entries.range(..=at).next_back();
            let piece = found.and_then(|(start, entry)| {
                let within = at - start;
                let room = entry.size.checked_sub(within).filter(|room| *room != 0)?;
                let place = entry.memory.as_ref()?;
                let n = (length - done).min(usize::try_from(room).unwrap_or(usize::MAX));
                let at = place.at + usize::try_from(within).ok()?;
                let slice = place.region.get_slice(at, n).ok()?;
                (entry.rights & right != 0).then_some(slice)
            });
            let Some(slice) = piece else {
                self.refused += 1;
                return Err(DmaError::Refused(at));
            };
            each(done, &slice);
            done += slice.len();
        }
        Ok(())
    }
}

/// One store of a size that CPUs make whole, if the place is aligned for it; by the checks of the
/// caller it is.
fn store(slice: &VolatileSlice<'_>, at: usize, bytes: &[u8]) {
    let stored = match *bytes {
        [a] => slice.store(a, at, Ordering::Relaxed),
        [a, b] => slice.store(u16::from_ne_bytes([a, b]), at, Ordering::Relaxed),
        [a, b, c, d] => slice.store(u32::from_ne_bytes([a, b, c, d]), at, Ordering::Relaxed),
        [a, b, c, d, e, f, g, h] => {
            let word = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
            slice.store(word, at, Ordering::Relaxed)
        }
        _ => slice.write_slice(bytes, at),
    };
    debug_assert!(stored.is_ok(), "{stored:?}");
}

/// The largest power of two up to eight that divides `end` and is not above `length`.
fn last_store(end: usize, length: usize) -> usize {
    [8, 4, 2, 1].into_iter().find(|size| end % (*size) == 0 && *size <= length).unwrap_or(0)
}

fn write(slice: &VolatileSlice<'_>, bytes: &[u8]) {
    let base = slice.ptr_guard_mut().as_ptr().addr();
    let tail = last_store(base.wrapping_add(bytes.len()), bytes.len());
    let (body, tail) = bytes.split_at(bytes.len() - tail);
    if !body.is_empty() {
        store_all(slice, body);
    }
    // ORDER: everything this device wrote before precedes the piece that a CPU may be waiting for.
    fence(Ordering::Release);
    store(slice, body.len(), tail);
}

fn store_all(slice: &VolatileSlice<'_>, bytes: &[u8]) {
    let stored = slice.write_slice(bytes, 0);
    debug_assert!(stored.is_ok(), "{stored:?}");
}

fn read(slice: &VolatileSlice<'_>, bytes: &mut [u8]) {
    let aligned = slice.ptr_guard().as_ptr().addr() % bytes.len().max(1) == 0;
    let loaded = match bytes.len() {
        4 if aligned => slice
            .load(0, Ordering::Relaxed)
            .map(|word: u32| bytes.copy_from_slice(&word.to_ne_bytes())),
        8 if aligned => slice
            .load(0, Ordering::Relaxed)
            .map(|word: u64| bytes.copy_from_slice(&word.to_ne_bytes())),
        _ => slice.read_slice(bytes, 0),
    };
    debug_assert!(loaded.is_ok(), "{loaded:?}");
    // ORDER: a doorbell record or an index read here precedes the reads of what it announces.
    fence(Ordering::Acquire);
}

impl HostMemory for Maps {
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        let length = buf.len();
        self.lock().pieces(iova, length, READ, |at, slice| {
            if let Some(part) = buf.get_mut(at..at + slice.len()) {
                read(slice, part);
            }
        })
    }

    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        self.lock().pieces(iova, buf.len(), WRITE, |at, slice| {
            if let Some(part) = buf.get(at..at + slice.len()) {
                write(slice, part);
            }
        })
    }
}

#[cfg(test)]
mod tests;
