//! Mappings of memory for the device and of its registers: pages, the arena over them, the BAR.
//!
//! All `unsafe` code of mapped memory is here. A mapping lasts as long as the value that made it.
//! All pointers into it are fields of the same value, in an order that drops the pointers first.
#![expect(unsafe_code, reason = "mappings are made and ended here")]

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use hca_mlx5::dma::Memory;
use hca_mlx5::mmio::MappedBar;
use hca_mlx5::platform::{RawArena, Reach, Span, arena_words};
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;

/// Bytes of a huge page.
pub(crate) const HUGE: usize = 2 << 20;
const RW: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Pages of the process that their owner keeps mapped unchanged while the device can access them.
#[derive(Clone, Debug)]
pub(crate) struct Promised {
    pages: Range<u64>,
}

impl Promised {
    /// Returns the pages that `len` bytes at `addr` touch; `None` if `len` is 0 or the range
    /// overflows.
    ///
    /// # Safety
    /// As for [`Host::lend`](crate::Host::lend).
    pub(crate) unsafe fn new(addr: u64, len: u64) -> Option<Self> {
        touched(addr, len).map(|pages| Self { pages })
    }

    /// Returns the pages of one of this crate's mappings, whose holder keeps it until it has been
    /// taken back.
    pub(crate) fn of(pages: &Pages) -> Option<Self> {
        touched(pages.addr(), pages.len() as u64).map(|pages| Self { pages })
    }

    /// Returns the address range.
    pub(crate) fn pages(&self) -> Range<u64> {
        self.pages.clone()
    }

    /// Stores bytes in it, as the device would. False for bytes that are not all in it.
    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        let end = addr.checked_add(bytes.len() as u64);
        let inside = self.pages.start <= addr && end.is_some_and(|end| end <= self.pages.end);
        let Some(start) = usize::try_from(addr).ok().filter(|_| inside) else {
            return false;
        };
        for (at, byte) in (start..).zip(bytes) {
            let place = std::ptr::with_exposed_provenance_mut::<u8>(at);
            // SAFETY: inside pages that their owner keeps mapped, and lets the device write.
            unsafe { place.write_volatile(*byte) }
        }
        true
    }

    /// Makes every page private that is still shared copy-on-write: kernels before Linux 6.2 would
    /// map the shared page for the device, which would miss later writes of the process. Errors are
    /// ignored: mapping the pages reports them.
    pub(crate) fn own(&self) {
        let [start, end] = [self.pages.start, self.pages.end].map(usize::try_from);
        let (Ok(start), Ok(end)) = (start, end) else {
            return;
        };
        let place = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: it populates pages of memory that its owner keeps, and changes none of them.
        let _ = unsafe { madvise(place, end - start, Advice::LinuxPopulateWrite) };
    }
}

/// Returns the pages that `len` bytes at `addr` touch; `None` if `len` is 0 or the range overflows.
pub(crate) fn touched(addr: u64, len: u64) -> Option<Range<u64>> {
    let page = page_size() as u64;
    let end = addr.checked_add(len).filter(|_| len > 0)?;
    Some(addr - addr % page..end.checked_next_multiple_of(page)?)
}

/// Creates a memory file of `len` zeros whose length is final: no process that has it can make it
/// shorter, so no access to it is a SIGBUS. Only this user's processes can open it anew.
pub(crate) fn memory_file(name: &str, len: u64) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, len)?;
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Zeroed pages that can be mapped for the device.
#[derive(Debug)]
pub(crate) struct Pages {
    base: NonNull<u8>,
    len: usize,
    huge: bool,
    /// The process that has them; a child has not.
    owner: u32,
    /// The file behind them, for another process to map.
    file: Option<OwnedFd>,
}

// SAFETY: the value is a mapping and its length; this module does not read or write through it.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps private memory, `len` bytes rounded up to huge pages; uses huge pages if the machine
    /// has free ones.
    pub(crate) fn private(len: usize) -> io::Result<Self> {
        let len = rounded(len)?;
        let huge = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        // SAFETY: a new mapping at an address that the kernel chooses.
        if let Ok(place) = unsafe { mmap_anonymous(null_mut(), len, RW, huge) } {
            return Self::over(place, len, true, None);
        }
        // Small pages on a boundary of huge ones, so that the kernel may join them.
        let wide = len.checked_add(HUGE).ok_or(io::Error::from(io::ErrorKind::OutOfMemory))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: as above.
        let place = unsafe { mmap_anonymous(null_mut(), wide, RW, flags) }?;
        let skip = place.addr().next_multiple_of(HUGE) - place.addr();
        let start = place.wrapping_byte_add(skip);
        for (part, len) in [(place, skip), (start.wrapping_byte_add(len), HUGE - skip)] {
            if len > 0 {
                // SAFETY: a part of the new mapping, to which no pointer exists yet.
                unsafe { munmap(part, len) }?;
            }
        }
        let pages = Self::over(start, len, false, None)?;
        // SAFETY: advice on our own mapping. If the machine cannot follow it, small pages stay.
        let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
        Ok(pages)
    }

    /// Maps memory backed by a memory file, `len` bytes rounded up to huge pages, which another
    /// process can map too. Its pages are small: whoever has the file can give huge pages back to
    /// the machine, and if it has no other, the next access here would be a SIGBUS.
    pub(crate) fn shared(len: usize) -> io::Result<Self> {
        let len = rounded(len)?;
        Self::of_file(memory_file("dat-arena", len as u64)?, len)
    }

    /// Maps the first `len` bytes, rounded up to pages, of a file that other processes map too. The
    /// file must be at least that long.
    pub(crate) fn of_file(file: OwnedFd, len: usize) -> io::Result<Self> {
        let len = len.checked_next_multiple_of(page_size()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping.
        let place = unsafe { mmap(null_mut(), len, RW, MapFlags::SHARED, &file, 0) }?;
        Self::over(place, len, false, Some(file))
    }

    fn over(place: *mut c_void, len: usize, huge: bool, file: Option<OwnedFd>) -> io::Result<Self> {
        let base = NonNull::new(place.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: advice on our own mapping. Without it a child after a fork could take over pages
        // that are mapped for the device. It fails only on a kernel without this advice.
        let _ = unsafe { madvise(place, len, Advice::LinuxDontFork) };
        Ok(Self { base, len, huge, owner: std::process::id(), file })
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether they were allocated as huge pages.
    pub(crate) fn huge(&self) -> bool {
        self.huge
    }

    /// Returns the address of the first byte.
    pub(crate) fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Returns the file that backs them, if any.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            return;
        }
        // SAFETY: our own mapping, and all pointers into it are dropped (module documentation).
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn rounded(len: usize) -> io::Result<usize> {
    len.max(1).checked_next_multiple_of(HUGE).ok_or(io::Error::from(io::ErrorKind::OutOfMemory))
}

/// The driver's arena: a part that is read-only for the device, followed by a part that it may
/// write.
#[derive(Debug)]
pub(crate) struct Arena {
    /// All of it, for loads and stores.
    memory: Memory,
    /// The two parts, for their allocators.
    read_only: RawArena<Box<[u64]>>,
    writable: RawArena<Box<[u64]>>,
    split: usize,
    // Last: the fields above point into it.
    pages: Pages,
}

/// The words in which an arena of that length keeps what is free.
fn words(len: usize) -> Box<[u64]> {
    vec![0; arena_words(len)].into_boxed_slice()
}

impl Arena {
    /// Makes an arena of `pages`. The first `split` bytes, a multiple of the page size, are
    /// read-only for the device.
    pub(crate) fn new(pages: Pages, split: usize) -> Self {
        let split = split.min(pages.len);
        // SAFETY: `split` is inside the mapping or at its end.
        let second = unsafe { pages.base.byte_add(split) };
        Self {
            // SAFETY: the mapping is page aligned, lasts as long as this value and no reference
            // points into it; all three use raw pointers and volatile accesses, and the two that
            // allocate spans cover disjoint parts.
            memory: unsafe { Memory::new(pages.base, pages.len) },
            // SAFETY: as above.
            read_only: RawArena::new(unsafe { Memory::new(pages.base, split) }, words(split)),
            // SAFETY: as above.
            writable: RawArena::new(
                unsafe { Memory::new(second, pages.len - split) },
                words(pages.len - split),
            ),
            split,
            pages,
        }
    }

    /// Returns the whole arena, for loads and stores.
    #[inline(always)]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the pages beneath.
    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Allocates memory; what the device only reads comes from the other part if its own is full.
    pub(crate) fn alloc(&self, len: usize, align: usize, reach: Reach) -> Option<Span> {
        if reach == Reach::Read {
            if let Some(span) = self.read_only.alloc(len, align) {
                return Some(span);
            }
        }
        let span = self.writable.alloc(len, align)?;
        Some(Span { offset: span.offset.checked_add(self.split)?, len: span.len })
    }

    /// Frees a span.
    pub(crate) fn free(&self, span: Span) {
        match span.offset.checked_sub(self.split) {
            Some(offset) => self.writable.free(Span { offset, len: span.len }),
            None => self.read_only.free(span),
        }
    }

    /// Frees all spans.
    pub(crate) fn reclaim(&self) {
        self.read_only.reclaim();
        self.writable.reclaim();
    }
}

/// A mapped BAR.
#[derive(Debug)]
pub(crate) struct Registers {
    registers: MappedBar,
    base: NonNull<c_void>,
    len: usize,
}

// SAFETY: the value is a mapping of registers; accesses go through `MappedBar`, which may be
// shared.
unsafe impl Send for Registers {}
// SAFETY: as above.
unsafe impl Sync for Registers {}

impl Registers {
    /// Maps `len` bytes of device registers that `device` offers at `offset`.
    pub(crate) fn map(device: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping. The IOMMU confines the DMA that register writes can start.
        let place = unsafe { mmap(null_mut(), len, RW, MapFlags::SHARED, device, offset) }?;
        let base = NonNull::new(place).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            // SAFETY: page aligned, mapped for as long as this value exists, and of registers.
            registers: unsafe { MappedBar::new(base.cast(), len) }.storing_whole(),
            base,
            len,
        })
    }

    /// Returns the registers.
    #[inline(always)]
    pub(crate) fn registers(&self) -> &MappedBar {
        &self.registers
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: our own mapping; `registers` is not used any more.
        let _ = unsafe { munmap(self.base.as_ptr(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_aligned_and_whole() {
        for pages in [Pages::private(5000).unwrap(), Pages::shared(5000).unwrap()] {
            assert_eq!(pages.len(), HUGE);
            assert!(pages.addr() % 4096 == 0);
            let arena = Arena::new(pages, 8192);
            assert_eq!(arena.memory().len(), HUGE);
            assert_eq!(arena.memory().load32(HUGE - 4), 0);
            arena.memory().store32(HUGE - 4, 7);
            assert_eq!(arena.memory().load32(HUGE - 4), 7);
        }
        assert!(Pages::private(usize::MAX).is_err());
    }

    #[test]
    fn private_pages_can_be_joined_to_huge_ones() {
        let pages = Pages::private(HUGE).unwrap();
        assert!(pages.addr() % (HUGE as u64) == 0);
    }

    #[test]
    fn queues_of_many_endpoints_go_in_any_order() {
        let arena = Arena::new(Pages::private(8 << 20).unwrap(), 8 << 20);
        let free = arena.read_only.available();
        let most = 1 << 14;
        let spans: Vec<Span> =
            (0..most).map(|_| arena.alloc(320, 256, Reach::Read).unwrap()).collect();
        for odd in [0, 1] {
            for span in spans.iter().skip(odd).step_by(2) {
                arena.free(*span);
            }
        }
        assert_eq!(arena.read_only.available(), free);
    }

    #[test]
    fn spans_of_the_two_parts_do_not_overlap() {
        let arena = Arena::new(Pages::private(HUGE).unwrap(), 8192);
        let read = arena.alloc(4096, 4096, Reach::Read).unwrap();
        let write = arena.alloc(4096, 4096, Reach::ReadWrite).unwrap();
        assert!(read.offset == 0 && write.offset >= 8192);
        let more = arena.alloc(4096, 4096, Reach::Read).unwrap();
        assert_eq!(more.offset, 4096);
        // The first part is full: spans come from the second.
        let other = arena.alloc(64, 64, Reach::Read).unwrap();
        assert!(other.offset >= 8192 && other.offset != write.offset);
        for span in [read, write, more, other] {
            arena.free(span);
        }
        assert_eq!(arena.alloc(8192, 4096, Reach::Read).unwrap().offset, 0);
        arena.reclaim();
        assert_eq!(arena.alloc(HUGE - 8192, 4096, Reach::ReadWrite).unwrap().offset, 8192);
    }
}
