//! Exchanges pages of the process for pages of a file that the server can map, and back.
//!
//! Private memory of a process has no file, and a server can only map files. So each lent page is
//! replaced by a page of a memory file with the same contents, which both processes map.
//!
//! Exchange: piece by piece, the contents are copied to the file and the file is mapped over them.
//! A store between copy and mapping would be lost, so storing threads have to wait: `userfaultfd`
//! write-protects the piece and resumes waiting threads when its descriptor is closed. It works for
//! memory without a file (stacks, heaps); otherwise, and where a container forbids the call, there
//! is no protection. It runs with signals blocked and uses no memory but its stack, because the
//! pages may be the allocator's own data. If they may be the caller's stack, a separate thread does
//! it.
//!
//! Return: the contents are copied to anonymous pages, which are moved over the file's, under the
//! same protection; then the file's pages are freed. The process has memory again as it was: it may
//! extend it (`mremap`, which `realloc` uses) and discard it (`madvise`). Nothing is cached, since
//! on pages of a file either would fail: beyond the file's end is no memory, and discarded pages of
//! a file keep their contents, where allocators expect zeros. No mechanism tells this module of
//! such a call before it has happened.
//!
//! Without the protection, and for the stack of the caller, the file is mapped over itself as a
//! private mapping. That is one step, the contents stay, and no store is lost. Then the kernel
//! copies the contents to private pages, so that the server cannot reach them by the file that it
//! has. Such memory cannot be extended.
//!
//! Fork: a child gets private copies, as of all private memory. Its fork handler makes them in the
//! same way before the fork returns, and the parent's waits for it. Pages that the forking thread
//! runs on are too late then: the child has written to them before. They are private for the time
//! of the fork, so that the kernel copies them. Then the parent's go back: bytes that the process has
//! changed meanwhile into the file, where the device may have changed others.
//!
//! Users of each page are counted, because lent ranges of one device or of several may overlap.
//!
//! Length: exchange, return and fork keep the same rules about what they may touch, in one file with
//! all of its `unsafe`.
#![expect(unsafe_code, reason = "memory of the process is mapped over here")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::io::{Errno, pread, pwrite};
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, UserfaultfdFlags, madvise, mmap,
    mmap_anonymous, mprotect, mremap_fixed, munmap, userfaultfd,
};
use rustix::param::page_size;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::futex;

use crate::error::{Error, Kind};
use crate::host::Reach;
use crate::map::{Promised, memory_file, touched};
use crate::memory::Piece;
use crate::vmas::{self, Vma};
use crate::wakeups::timespec;

use self::runs::{Part, Run, cut, done_of, gaps, parts};

mod runs;

/// Bytes that are exchanged at once; other threads may have to wait for so many.
const CHUNK: usize = 1 << 20;
const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// All exchanged pages, by the start address of each run.
#[derive(Debug)]
pub(super) struct Swapped(Mutex<BTreeMap<u64, Run>>);

/// The exchanged pages of the process, for all devices: two devices may be lent the same page.
pub(super) static SWAPPED: Swapped = Swapped(Mutex::new(BTreeMap::new()));

impl Swapped {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Run>> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exchanges the pages that have not been exchanged yet, and counts one more user of all.
    pub(super) fn hold(&self, memory: &Promised, reach: Reach) -> Result<Vec<Piece>, Error> {
        let pages = memory.pages();
        let len = pages.end - pages.start;
        let object = || format!("process memory at {:#x}, {len:#x} bytes", pages.start);
        let failed = |error: &io::Error| {
            let cause = format!("its pages could not be exchanged for shared ones: {error}");
            let remedy = "free some memory, or lend less; see ulimit -n and vm.max_map_count";
            Error::new(Kind::Memory, object(), cause, remedy).because_of(error)
        };
        let mut runs = self.lock();
        cut(&mut runs, pages.start);
        cut(&mut runs, pages.end);
        let gaps = gaps(&runs, &pages);
        let vmas = if gaps.is_empty() { Ok(Vec::new()) } else { vmas::of(&pages) };
        let vmas = vmas.map_err(|error| failed(&error))?;
        let parts = parts(&gaps, &vmas, reach).map_err(|cause| {
            let remedy = "lend memory of the heap, a stack or a data segment";
            Error::new(Kind::Unsupported, object(), cause, remedy)
        })?;
        let (own, common): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| part.file.is_none());
        if !own.is_empty() {
            watch_forks().map_err(|error| failed(&error))?;
            let file = Arc::new(memory_file("dat-process", len).map_err(|error| failed(&error))?);
            let what = || exchange(&own, file.as_fd(), pages.start);
            let (done, result) = if own.iter().any(|part| is_written_here(&part.range)) {
                in_own_thread(what)
            } else {
                match Signals::off() {
                    Ok(_signals) => what(),
                    Err(error) => (0, Err(error)),
                }
            };
            for part in done_of(&own, done) {
                let run = Run {
                    end: part.end,
                    count: 0,
                    file: Arc::clone(&file),
                    offset: part.start - pages.start,
                    exchanged: true,
                };
                runs.insert(part.start, run);
            }
            if let Err(error) = result {
                give_back(&mut runs, &pages);
                return Err(failed(&error));
            }
        }
        for part in common {
            if let Some((file, offset)) = part.file {
                let run = Run { end: part.range.end, count: 0, file, offset, exchanged: false };
                runs.insert(part.range.start, run);
            }
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for (start, run) in runs.range_mut(pages) {
            run.count += 1;
            let len = run.end - start;
            if let Some(Piece { len: before, file: Some((file, at)) }) = pieces.last_mut() {
                if Arc::ptr_eq(file, &run.file) && *at + *before == run.offset {
                    *before += len;
                    continue;
                }
            }
            let file = Some((Arc::clone(&run.file), run.offset));
            pieces.push(Piece { len, file });
        }
        Ok(pieces)
    }

    /// Undoes one [`Swapped::hold`].
    pub(super) fn let_go(&self, pages: &Range<u64>) {
        let mut runs = self.lock();
        cut(&mut runs, pages.start);
        cut(&mut runs, pages.end);
        for run in runs.range_mut(pages.clone()).map(|(_, run)| run) {
            run.count = run.count.saturating_sub(1);
        }
        give_back(&mut runs, pages);
    }
}

/// Runs `what` in a separate thread while the caller sleeps with signals blocked, because `what`
/// may exchange the caller's stack.
fn in_own_thread(what: impl FnOnce() -> (u64, io::Result<()>) + Send) -> (u64, io::Result<()>) {
    let signals = match Signals::off() {
        Ok(signals) => signals,
        Err(error) => return (0, Err(error)),
    };
    let (over, other) = (AtomicU32::new(0), AtomicU32::new(0));
    let done = std::thread::scope(|scope| {
        let asleep = || {
            // The kernel moves the sleeping caller to another futex word. The caller does not touch
            // its stack before it is woken.
            let flags = futex::Flags::PRIVATE;
            while futex::cmp_requeue(&over, flags, 0, 1, &other, 0) == Ok(0) {
                std::thread::yield_now();
            }
            let awake = Awake(&over, &other);
            let done = what();
            drop(awake);
            done
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, asleep)?;
        while over.load(Ordering::Acquire) == 0 {
            let _ = futex::wait(&over, futex::Flags::PRIVATE, 0, None);
        }
        let panicked = |_| io::Error::other("the thread for it failed");
        thread.join().map_err(panicked)
    });
    drop(signals);
    done.unwrap_or_else(|error| (0, Err(error)))
}

/// Wakes the sleepers on both words when dropped, also after a panic.
struct Awake<'a>(&'a AtomicU32, &'a AtomicU32);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Release);
        for word in [self.0, self.1] {
            let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
        }
    }
}

/// Blocks all signals of this thread and of threads that it starts, until dropped.
struct Signals(libc::sigset_t);

impl Signals {
    fn off() -> io::Result<Self> {
        // SAFETY: all-zero bytes are a valid signal set.
        let [mut all, mut before] = [unsafe { std::mem::zeroed::<libc::sigset_t>() }; 2];
        // SAFETY: the set is ours.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: both sets are ours.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) } {
            0 => Ok(Self(before)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the set is ours, and was the thread's before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}

fn place(addr: u64) -> *mut c_void {
    with_exposed_provenance_mut(usize::try_from(addr).unwrap_or(0))
}

/// Replaces the pages of the parts by pages of `file`, in which offset 0 belongs to address
/// `start`. Returns the number of exchanged bytes.
///
/// Must not allocate: the pages may be the allocator's own.
fn exchange(parts: &[Part], file: BorrowedFd<'_>, start: u64) -> (u64, io::Result<()>) {
    let mut done = 0;
    for part in parts {
        if part.grows {
            // A stack keeps growing only if a page of its mapping is left below. Reading below it
            // makes it grow by a page.
            let below = part.range.start - 1;
            // Where only this part is written to, behind this: `copy` skips pages of zeros.
            let own = i64::try_from(part.range.start - start).unwrap_or(i64::MAX);
            // SAFETY: the kernel reads the byte, or returns an error if it is not mapped.
            unsafe { libc::pwrite(file.as_raw_fd(), place(below), 1, own) };
            let _ = pwrite(file, &[0], part.range.start - start);
        }
        let mut at = part.range.start;
        while at < part.range.end {
            let len = (part.range.end - at).min(CHUNK as u64);
            if let Err(error) = one(at, len, part.rights, file, at - start) {
                return (done, Err(error));
            }
            at += len;
            done += len;
        }
    }
    (done, Ok(()))
}

fn one(at: u64, len: u64, rights: ProtFlags, file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
    let size = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let protection = Protection::of(at, len);
    copy(at, size, file, offset)?;
    // SAFETY: the owner keeps the memory mapped (`Promised`); the new pages have the same contents
    // and access rights.
    unsafe { mmap(place(at), size, rights, MapFlags::SHARED | MapFlags::FIXED, file, offset) }?;
    drop(protection);
    Ok(())
}

/// Bytes on both sides of an address on this thread's stack, and of its descriptor, in which it may
/// write during an exchange: frames, `errno`, what the kernel keeps for a thread.
const NEAR: u64 = 128 << 10;

/// Returns whether this thread may write to those pages during an exchange: it would wait for its
/// own protection to end.
fn is_written_here(pages: &Range<u64>) -> bool {
    let frame = 0_u8;
    // SAFETY: the address of a variable of this thread, which exists as long as it.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: returns the thread's descriptor; on Linux it is an address.
    let descriptor = unsafe { libc::pthread_self() } as u64;
    let own = [(&raw const frame).addr() as u64, errno.addr() as u64, descriptor];
    own.iter()
        .any(|at| pages.start < at.saturating_add(NEAR) && at.saturating_sub(NEAR) < pages.end)
}

/// Copies memory to the file, except pages of zeros, which a new file has already.
fn copy(addr: u64, len: usize, file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
    let page = page_size();
    let is_zero = |at: usize| {
        let words = place(addr).wrapping_byte_add(at).cast::<u64>();
        (0..page / size_of::<u64>()).all(|n| {
            // SAFETY: a page that is mapped and may be read (`parts`). Others may write to it,
            // hence volatile.
            unsafe { words.wrapping_add(n).read_volatile() == 0 }
        })
    };
    let mut done = 0;
    while done < len {
        if is_zero(done) {
            done += page;
            continue;
        }
        // The pages up to the next of zeros are written at once.
        let mut end = done + page;
        while end < len && !is_zero(end) {
            end += page;
        }
        while done < end {
            let to = i64::try_from(offset + done as u64).unwrap_or(i64::MAX);
            let from = place(addr).wrapping_byte_add(done);
            // SAFETY: as above; the kernel reads.
            let written = unsafe { libc::pwrite(file.as_raw_fd(), from, end - done, to) };
            match usize::try_from(written) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
    }
    Ok(())
}

/// Write protection of a piece of memory until dropped: threads that write to it sleep.
struct Protection {
    /// The userfaultfd. Writing threads sleep until it is closed.
    _fd: OwnedFd,
}

impl Protection {
    /// Protects a piece of private memory; `None` if the kernel does not support it.
    fn of(at: u64, len: u64) -> Option<Self> {
        let size = usize::try_from(len).ok()?;
        // A page that was never touched cannot be protected; one that was read can.
        // SAFETY: it populates pages, and changes none.
        let _ = unsafe { madvise(place(at), size, Advice::LinuxPopulateRead) };
        Self::with(0, at, len)
    }

    /// Protects a piece of shared memory; `None` if the kernel does not support it.
    fn of_shared(at: u64, len: u64) -> Option<Self> {
        Self::with(SHARED, at, len)
    }

    fn with(features: u64, at: u64, len: u64) -> Option<Self> {
        // Writes by the kernel on behalf of a thread wait too, if we have the privilege.
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        // SAFETY: a new descriptor without effect on memory yet.
        let whole = unsafe { userfaultfd(flags) };
        let fd = whole.or_else(|_| {
            // SAFETY: as above.
            unsafe { userfaultfd(flags | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY)) }
        });
        let fd = fd.ok()?;
        control(&fd, API, &mut [0xaa, features, 0]).ok()?;
        control(&fd, REGISTER, &mut [at, len, REGISTER_WRITES, 0]).ok()?;
        control(&fd, PROTECT, &mut [at, len, 1]).ok()?;
        Some(Self { _fd: fd })
    }
}

/// Returns the number of an ioctl of `linux/userfaultfd.h`: group 0xaa, read and write, and a size.
const fn call(number: u64, words: u64) -> u64 {
    3 << 30 | (words * 8) << 16 | 0xaa << 8 | number
}
const API: u64 = call(0x3f, 3);
const REGISTER: u64 = call(0, 4);
const PROTECT: u64 = call(6, 3);
const REGISTER_WRITES: u64 = 2;
const USER_MODE_ONLY: u32 = 1;
/// The feature of write-protecting pages of a memory file (Linux 5.19).
const SHARED: u64 = 1 << 12;

fn control<const N: usize>(fd: &OwnedFd, request: u64, words: &mut [u64; N]) -> io::Result<()> {
    // SAFETY: the words are the structure of the request, whole.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request, words.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the pages private again that have no user.
fn give_back(runs: &mut BTreeMap<u64, Run>, pages: &Range<u64>) {
    let free: Vec<u64> = runs
        .range(pages.clone())
        .filter(|(_, run)| run.count == 0)
        .map(|(start, _)| *start)
        .collect();
    for start in free {
        if let Some(run) = runs.remove(&start).filter(|run| run.exchanged) {
            restore(start, &run);
        }
    }
}

/// Makes pages of a file private, as far as they still are mappings of that file.
fn restore(start: u64, run: &Run) {
    let vmas = vmas::of(&(start..run.end)).unwrap_or_default();
    for shared in shared(start, run, &vmas) {
        shared.make_private(true, true);
    }
}

/// Exchanged pages that the process still has as mappings of their file.
struct Shared {
    range: Range<u64>,
    rights: ProtFlags,
    file: Arc<OwnedFd>,
    offset: u64,
}

/// Returns those of a run. Pages that the owner has unmapped or mapped over meanwhile, against the
/// contract, are skipped.
fn shared<'v>(start: u64, run: &'v Run, vmas: &'v [Vma]) -> impl Iterator<Item = Shared> + 'v {
    let inode = fstat(&run.file).map_or(0, |stat| stat.st_ino);
    let own = move |vma: &&Vma| vma.shared && vma.inode == inode && inode != 0;
    vmas.iter().filter(own).filter_map(move |vma| {
        let range = start.max(vma.range.start)..run.end.min(vma.range.end);
        let offset = run.offset + range.start.checked_sub(start)?;
        let file = Arc::clone(&run.file);
        (!range.is_empty()).then_some(Shared { range, rights: vma.rights, file, offset })
    })
}

impl Shared {
    /// Replaces them by private pages with the same contents; returns whether that was possible. If
    /// `free`, frees the file's pages. If `others`, other threads may write to them meanwhile.
    ///
    /// Must not allocate. If memory is short, or before Linux 5.14, pages are copied when they are
    /// written to.
    fn make_private(&self, free: bool, others: bool) -> bool {
        let len = self.range.end - self.range.start;
        let done = if is_written_here(&self.range) { 0 } else { self.replace(free, others) };
        done == len || self.cover(done, free)
    }

    /// Moves anonymous pages with the same contents over them; returns for how many bytes.
    fn replace(&self, free: bool, others: bool) -> u64 {
        let (start, len) = (self.range.start, self.range.end - self.range.start);
        let (Ok(size), Ok(_signals)) = (usize::try_from(len), Signals::off()) else {
            return 0;
        };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let Ok(new) = (unsafe { mmap_anonymous(null_mut(), size, READ_WRITE, flags) }) else {
            return 0;
        };
        let mut done = 0;
        while done < size {
            let chunk = (size - done).min(CHUNK);
            if self.move_over(start, done, chunk, new, others).is_none() {
                break;
            }
            if free {
                self.free(done as u64, chunk as u64);
            }
            done += chunk;
        }
        if done < size {
            // SAFETY: the part of the new mapping that was not moved, to which nothing points.
            let _ = unsafe { munmap(new.wrapping_byte_add(done), size - done) };
        }
        done as u64
    }

    /// Fills a chunk of `new` with the contents at the same offset, and moves it there.
    fn move_over(
        &self,
        start: u64,
        done: usize,
        chunk: usize,
        new: *mut c_void,
        others: bool,
    ) -> Option<()> {
        let at = start + done as u64;
        let from = new.wrapping_byte_add(done);
        // Outside of the protection, since it takes longest.
        // SAFETY: a part of the new mapping.
        let _ = unsafe { madvise(from, chunk, Advice::LinuxPopulateWrite) };
        let protection = match others {
            true => Some(Protection::of_shared(at, chunk as u64)?),
            false => None,
        };
        let offset = i64::try_from(self.offset + done as u64).ok()?;
        // SAFETY: the kernel writes to a part of the new mapping.
        let read = unsafe { libc::pread(self.file.as_raw_fd(), from, chunk, offset) };
        if usize::try_from(read) != Ok(chunk) {
            return None;
        }
        if self.rights != READ_WRITE {
            let rights = MprotectFlags::from_bits_truncate(self.rights.bits());
            // SAFETY: as above; it is to have the rights of what it replaces.
            unsafe { mprotect(from, chunk, rights) }.ok()?;
        }
        // SAFETY: pages of our file, which only this module maps, are replaced by private pages
        // with the same contents and rights. If it fails, `cover` maps the file there.
        unsafe { mremap_fixed(from, chunk, chunk, MremapFlags::MAYMOVE, place(at)) }.ok()?;
        drop(protection);
        Some(())
    }

    /// Maps the file over itself privately, behind the first `done` bytes.
    fn cover(&self, done: u64, free: bool) -> bool {
        let (start, len) = (self.range.start, self.range.end - self.range.start);
        let size = usize::try_from(len - done).unwrap_or(0);
        let (at, offset) = (place(start + done), self.offset + done);
        let rights = self.rights | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: pages of our file, which only this module maps, are replaced by private pages
        // with the same contents. They keep the access rights; see below.
        let made = unsafe { mmap(at, size, rights, flags, &self.file, offset) };
        let mut done = done;
        while made.is_ok() && done < len {
            let chunk = (len - done).min(CHUNK as u64);
            let size = usize::try_from(chunk).unwrap_or(0);
            // SAFETY: a private page with the same contents replaces each of these.
            let copied = unsafe { madvise(place(start + done), size, Advice::LinuxPopulateWrite) };
            if copied.is_err() {
                break;
            }
            if free {
                self.free(done, chunk);
            }
            done += chunk;
        }
        if !self.rights.contains(ProtFlags::WRITE) {
            // Only a writable page can be copied: it is writable up to here.
            let rights = MprotectFlags::from_bits_truncate(self.rights.bits());
            // SAFETY: the pages get the rights that they had before.
            let _ = unsafe { mprotect(at, size, rights) };
        }
        made.is_ok()
    }

    /// Frees pages of the file.
    fn free(&self, done: u64, len: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&self.file, flags, self.offset + done, len);
    }
}

/// What both sides of a fork have to do. Made before it: neither side writes to memory that is
/// still shared with the other.
struct Fork {
    parts: Vec<Shared>,
    /// Pages that the forking thread runs on.
    stack: Vec<Aside>,
    /// A pipe. The child closes its writing end when it has copied the pages, or dies.
    pipe: Option<[RawFd; 2]>,
    runs: MutexGuard<'static, BTreeMap<u64, Run>>,
    /// A handler of the child's would write to pages that it still shares.
    _signals: Option<Signals>,
}

/// Pages that are private for the time of a fork.
struct Aside {
    pages: Shared,
    /// Their contents when they became private. `None` if they could not: then a child gets none,
    /// and dies of its first access.
    before: Option<Vec<u8>>,
}

impl Aside {
    /// Makes the pages private. Other threads that write to them wait, if the kernel supports it.
    fn begin(&mut self) -> io::Result<()> {
        let Shared { range, file, offset, .. } = &self.pages;
        let size = usize::try_from(range.end - range.start).unwrap_or(0);
        let mut before = vec![0; size];
        // SAFETY: a new mapping at an address that the kernel chooses.
        let new = unsafe { mmap_anonymous(null_mut(), size, READ_WRITE, MapFlags::PRIVATE) }?;
        let protection = Protection::of_shared(range.start, range.end - range.start);
        let mut moved = pread(file, before.as_mut_slice(), *offset).map_err(io::Error::from);
        if matches!(moved, Ok(some) if some < size) {
            moved = Err(io::ErrorKind::UnexpectedEof.into());
        }
        let moved = moved.and_then(|_| {
            // SAFETY: both have that length, and nothing points to the new mapping.
            unsafe { new.cast::<u8>().copy_from_nonoverlapping(before.as_ptr(), size) };
            // SAFETY: pages of our file, which only this module maps, are replaced by private pages
            // with the same contents.
            unsafe { mremap_fixed(new, size, size, MremapFlags::MAYMOVE, place(range.start)) }?;
            Ok(())
        });
        drop(protection);
        if moved.is_err() {
            // SAFETY: the new mapping, to which nothing points.
            let _ = unsafe { munmap(new, size) };
        }
        self.before = moved.is_ok().then_some(before);
        moved
    }

    /// Maps the file again. It has what the device has stored since, and gets what the process has.
    fn end(&self) -> io::Result<()> {
        let Some(before) = &self.before else {
            advise(&self.pages.range, Advice::LinuxDoFork);
            return Ok(());
        };
        let Shared { range, rights, file, offset } = &self.pages;
        let (own, size) = (place(range.start), before.len());
        // SAFETY: a new mapping at an address that the kernel chooses.
        let new = unsafe { mmap(null_mut(), size, READ_WRITE, MapFlags::SHARED, file, *offset) }?;
        let protection = Protection::of(range.start, range.end - range.start);
        for (at, before) in before.iter().enumerate() {
            // SAFETY: inside the pages. Others may write to them, hence volatile.
            let now = unsafe { own.cast::<u8>().wrapping_add(at).read_volatile() };
            if now != *before {
                // SAFETY: inside the new mapping.
                unsafe { new.cast::<u8>().wrapping_add(at).write_volatile(now) };
            }
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the file's pages have the contents of the private ones that they replace, but for
        // what the device has stored.
        let mapped = unsafe { mmap(own, size, *rights, flags, file, *offset) };
        drop(protection);
        // SAFETY: the new mapping, to which nothing points any more.
        let _ = unsafe { munmap(new, size) };
        Ok(mapped.map(drop)?)
    }
}

fn end_all(stack: &mut Vec<Aside>) -> io::Result<()> {
    while let Some(aside) = stack.last() {
        aside.end()?;
        stack.pop();
    }
    Ok(())
}

/// Takes out of `parts` what lies in `pages`.
fn take(parts: &mut Vec<Shared>, pages: &Range<u64>) -> Vec<Shared> {
    let (mut rest, mut taken) = (Vec::new(), Vec::new());
    for part in parts.drain(..) {
        let Range { start, end } = part.range;
        let piece = |range: Range<u64>, to: &mut Vec<Shared>| {
            if !range.is_empty() {
                let (file, offset) = (Arc::clone(&part.file), part.offset + (range.start - start));
                to.push(Shared { range, rights: part.rights, file, offset });
            }
        };
        piece(start..end.min(pages.start), &mut rest);
        piece(start.max(pages.start)..end.min(pages.end), &mut taken);
        piece(start.max(pages.end)..end, &mut rest);
    }
    *parts = rest;
    taken
}

/// The fork in progress, if pages are exchanged.
static FORK: AtomicPtr<Fork> = AtomicPtr::new(null_mut());
/// Longest wait of a parent for its child's copying.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes below the frame of a fork handler in which a child may write before its own has copied
/// the pages: frames of this one and of other handlers. Stacks of other threads are farther away.
const BELOW: u64 = 8 << 10;

/// Has every fork of the process prepared.
fn watch_forks() -> io::Result<()> {
    static WATCHED: OnceLock<i32> = OnceLock::new();
    let (before, parent, child) = (before_fork, after_fork, in_child);
    // SAFETY: three functions for this purpose.
    let watch = || unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
    match *WATCHED.get_or_init(watch) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

extern "C" fn before_fork() {
    let runs = SWAPPED.lock();
    let exchanged = || runs.iter().filter(|(_, run)| run.exchanged);
    let (Some((start, _)), Some((_, last))) = (exchanged().next(), exchanged().next_back()) else {
        return;
    };
    let vmas = vmas::of(&(*start..last.end)).unwrap_or_default();
    let mut parts: Vec<_> =
        exchanged().flat_map(|(start, run)| shared(*start, run, &vmas)).collect();
    let page = page_size() as u64;
    let here = std::ptr::from_ref(&runs).addr() as u64;
    // SAFETY: returns the thread's descriptor; on Linux it is an address.
    let descriptor = unsafe { libc::pthread_self() } as u64;
    // The frames of the fork itself are less than a page above. The kernel writes the number of the
    // child to the descriptor, and the C library to what lies around it.
    let own = [(here, BELOW), (descriptor, page)];
    let own = own.map(|(at, below)| touched(at.saturating_sub(below), below + 2 * page));
    let pages = own.into_iter().flatten().flat_map(|pages| take(&mut parts, &pages));
    let mut stack: Vec<_> = pages.map(|pages| Aside { pages, before: None }).collect();
    if !stack.is_empty() {
        let _ = in_own_thread(|| (0, stack.iter_mut().try_for_each(Aside::begin)));
    }
    for aside in stack.iter().filter(|aside| aside.before.is_none()) {
        advise(&aside.pages.range, Advice::LinuxDontFork);
    }
    let pipe = pipe_with(PipeFlags::CLOEXEC).ok();
    let pipe = pipe.map(|(read, write)| [read.into_raw_fd(), write.into_raw_fd()]);
    let _signals = Signals::off().ok();
    let fork = Fork { parts, stack, pipe, runs, _signals };
    FORK.store(Box::into_raw(Box::new(fork)), Ordering::Release);
}

extern "C" fn after_fork() {
    let fork = FORK.load(Ordering::Acquire);
    // SAFETY: made before this fork; freed below.
    let Some(this) = (unsafe { fork.as_mut() }) else {
        return;
    };
    let start = Instant::now();
    if let Some([read, write]) = this.pipe {
        // SAFETY: ours, and closed nowhere else.
        let read = unsafe { OwnedFd::from_raw_fd(read) };
        // SAFETY: as above.
        drop(unsafe { OwnedFd::from_raw_fd(write) });
        let wait = || {
            let left = PATIENCE.saturating_sub(start.elapsed());
            poll(&mut [PollFd::new(&read, PollFlags::IN)], Some(&timespec(left)))
        };
        while wait() == Err(Errno::INTR) {}
    }
    // Only then, because a new thread takes memory, which the child may be copying.
    let stack = &mut this.stack;
    while !stack.is_empty() {
        let _ = in_own_thread(|| (0, end_all(stack)));
        if !stack.is_empty() {
            if start.elapsed() > 2 * PATIENCE {
                // The process would not see what the device writes there, nor the other way round.
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(free_fork(fork));
}

extern "C" fn in_child() {
    let fork = FORK.load(Ordering::Acquire);
    // SAFETY: as in the parent.
    let Some(this) = (unsafe { fork.as_ref() }) else {
        return;
    };
    if !this.parts.iter().all(|part| part.make_private(false, false)) {
        // It would write to its parent's memory.
        std::process::abort();
    }
    let pipe = this.pipe;
    let mut runs = free_fork(fork);
    runs.clear();
    drop(runs);
    for end in pipe.into_iter().flatten() {
        // SAFETY: the child's copies, which it has not closed.
        drop(unsafe { OwnedFd::from_raw_fd(end) });
    }
}

/// Ends the fork of this side, and returns what it has locked.
fn free_fork(fork: *mut Fork) -> MutexGuard<'static, BTreeMap<u64, Run>> {
    FORK.store(null_mut(), Ordering::Release);
    // SAFETY: the fork in progress, which is no longer one.
    unsafe { Box::from_raw(fork) }.runs
}

fn advise(pages: &Range<u64>, advice: Advice) {
    let len = usize::try_from(pages.end - pages.start).unwrap_or(0);
    // SAFETY: it is about children only.
    let _ = unsafe { madvise(place(pages.start), len, advice) };
}

#[cfg(test)]
mod tests;
