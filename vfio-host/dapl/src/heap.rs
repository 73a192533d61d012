//! The heap of this library, apart from that of the process.
//!
//! Consumers with a cache of registrations, as MPI libraries are, replace `malloc` and `free`, and
//! free LMRs from the replacement. If this library called it with a lock of its own held, that call
//! would wait for the lock forever. So it takes memory from the kernel by system calls of its own.
//!
//! Blocks up to [`LARGEST`] are of sizes that are powers of two, from pieces that are never
//! returned; freed blocks of each size are in a list. Longer blocks are mappings. In a child after
//! a fork the heap is usable: a fork waits for the lock.
#![expect(unsafe_code, reason = "hands out memory")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Smallest block, for the link of a list and for the alignment of most types.
const SMALLEST: usize = 16;
/// Largest block that is not a mapping.
const LARGEST: usize = 1 << 15;
const SIZES: usize = (LARGEST / SMALLEST).ilog2() as usize + 1;
/// Bytes that are taken from the kernel at a time.
const PIECE: usize = 1 << 20;
const PAGE: usize = 1 << 12;
/// Polls of the lock before the thread yields.
const SPINS: u32 = 64;

/// The heap.
pub(crate) struct Heap {
    locked: AtomicBool,
    /// Forks wait for the lock.
    watched: AtomicBool,
    blocks: UnsafeCell<Blocks>,
}

struct Blocks {
    /// The first free block of each size. A free block begins with the address of the next.
    free: [*mut u8; SIZES],
    /// The rest of the latest piece.
    rest: *mut u8,
    left: usize,
}

// SAFETY: the blocks are accessed with the lock held.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap {
    locked: AtomicBool::new(false),
    watched: AtomicBool::new(false),
    blocks: UnsafeCell::new(Blocks { free: [null_mut(); SIZES], rest: null_mut(), left: 0 }),
};

impl Heap {
    fn lock(&self) {
        let mut spins = 0;
        while self.locked.swap(true, Ordering::Acquire) {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn unlock(&self) {
        // ORDER: the changes of the lists precede the store that lets the next thread in.
        self.locked.store(false, Ordering::Release);
    }

    fn with<R>(&self, what: impl FnOnce(&mut Blocks) -> R) -> R {
        // The first call is made while the library is loaded. Handlers that are added first wait
        // last, so other handlers of this library may allocate.
        if !self.watched.load(Ordering::Relaxed) && !self.watched.swap(true, Ordering::Relaxed) {
            // SAFETY: two functions for this purpose.
            unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
        }
        self.lock();
        // SAFETY: the lock is held, and nothing below takes it again.
        let result = what(unsafe { &mut *self.blocks.get() });
        self.unlock();
        result
    }
}

extern "C" fn before_fork() {
    HEAP.lock();
}

extern "C" fn after_fork() {
    HEAP.unlock();
}

impl Blocks {
    /// Takes a block of a size from the list, or cuts one from the latest piece.
    fn take(&mut self, class: usize, size: usize) -> *mut u8 {
        let Some(first) = self.free.get_mut(class) else {
            return null_mut();
        };
        let block = *first;
        if !block.is_null() {
            // SAFETY: a free block begins with the address of the next.
            *first = unsafe { block.cast::<*mut u8>().read() };
            return block;
        }
        let skip = self.rest.align_offset(size);
        if self.left < skip.saturating_add(size) {
            let piece = map(PIECE);
            if piece.is_null() {
                return piece;
            }
            (self.rest, self.left) = (piece, PIECE);
        }
        let skip = self.rest.align_offset(size);
        let Some(left) = self.left.checked_sub(skip.saturating_add(size)) else {
            return null_mut();
        };
        let block = self.rest.wrapping_add(skip);
        (self.rest, self.left) = (block.wrapping_add(size), left);
        block
    }

    fn give(&mut self, class: usize, block: *mut u8) {
        if let Some(first) = self.free.get_mut(class) {
            // SAFETY: nobody uses the block, which is aligned for an address and long enough.
            unsafe { block.cast::<*mut u8>().write(*first) };
            *first = block;
        }
    }
}

/// Maps zeroed pages; null if there are none.
fn map(len: usize) -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let place = unsafe { mmap_anonymous(null_mut(), len, rights, MapFlags::PRIVATE) };
    place.map_or(null_mut(), <*mut _>::cast)
}

/// Returns the size of the block for a layout and its number; `None` for a mapping.
fn class(layout: Layout) -> Option<(usize, usize)> {
    let size = layout.size().max(layout.align()).max(SMALLEST).checked_next_power_of_two()?;
    let class = size.ilog2().checked_sub(SMALLEST.ilog2())?;
    (size <= LARGEST).then_some((usize::try_from(class).ok()?, size))
}

// SAFETY: each block is of one caller at a time, of at least the layout's size, and aligned to its
// own size or to a page.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            Some((class, size)) => self.with(|blocks| blocks.take(class, size)),
            None if layout.align() <= PAGE => map(layout.size()),
            None => null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class(layout) {
            Some((class, _)) => self.with(|blocks| blocks.give(class, block)),
            // SAFETY: a mapping of `alloc` of that length, which nobody uses any more.
            None => drop(unsafe { munmap(block.cast(), layout.size()) }),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller has promised.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() && class(layout).is_some() {
            // SAFETY: a new block of that size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }
}
