//! What gates and combiners are made of. With `--cfg loom` it is loom's, which tries all interleavings (`cargo
//! xtask loom`).

#[cfg(not(loom))]
pub(crate) use std::hint::spin_loop;
use std::sync::PoisonError;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell as Shared;
#[cfg(loom)]
pub(crate) use loom::thread::yield_now as spin_loop;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Locks, also after a thread has panicked.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits, likewise.
pub(crate) fn wait<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    bell.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// A value that threads access by turns.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Shared<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> Shared<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `with` on its address.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, with: impl FnOnce(*mut T) -> R) -> R {
        with(self.0.get())
    }
}

/// A full barrier in every running thread of the process.
#[cfg(not(loom))]
pub(crate) fn barrier() {
    use rustix::thread::{MembarrierCommand, membarrier};
    // Cannot fail: the process registered for it before any gate opened.
    let _ = membarrier(MembarrierCommand::PrivateExpedited);
}

/// Where a [`barrier`] of another thread takes effect in this one. It costs no instruction.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn barrier_of_others() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// loom's, with a swap for every store: loom lets a swap that has read one value of another thread
/// come behind a later store of that thread, which cannot be.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

#[cfg(loom)]
impl AtomicBool {
    pub(crate) fn new(value: bool) -> Self {
        Self(loom::sync::atomic::AtomicBool::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        self.0.swap(value, order);
    }

    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(value, order)
    }
}

// ORDER: loom has no barrier that one thread executes for all. A pair of full fences orders the
// same accesses.
#[cfg(loom)]
pub(crate) fn barrier() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(loom)]
pub(crate) use barrier as barrier_of_others;
