//! An intrusive stack of small numbers: many push, one empties it.
//!
//! It never overflows, because an element carries its own link and is on at most one stack at a
//! time. There is no pop of a single element, hence no ABA.

use core::sync::atomic::Ordering;

use crate::types::atomic::{AtomicBool, AtomicU32};

/// The end of a chain.
pub(crate) const END: u32 = u32::MAX;

/// The top of a stack.
#[derive(Debug)]
pub(crate) struct Stack(AtomicU32);

/// An element's place on a stack.
#[derive(Debug)]
pub(crate) struct Link {
    next: AtomicU32,
    on: AtomicBool,
}

impl Link {
    pub(crate) const fn new() -> Self {
        Self { next: AtomicU32::new(END), on: AtomicBool::new(false) }
    }

    /// One that no stack takes until it is released.
    pub(crate) const fn held() -> Self {
        Self { next: AtomicU32::new(END), on: AtomicBool::new(true) }
    }

    /// Keeps it off every stack until it is released.
    pub(crate) fn hold(&self) {
        self.on.store(true, Ordering::Release);
    }

    /// The element below; read before [`Self::release`].
    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    pub(crate) fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// Whether it is on a stack, or on a chain taken from one.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Says that the element may be pushed again. What a pusher did before a push that it left out
    /// is visible afterwards.
    pub(crate) fn release(&self) {
        // ORDER: the swap takes part in the order of all swaps of `on`: a producer whose `push` saw
        // `true` did its stores before this swap, so the loads that follow here see them.
        self.on.swap(false, Ordering::AcqRel);
    }
}

impl Stack {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(END))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) == END
    }

    /// Pushes `id`, unless it is on the stack already; whether it did.
    #[inline(never)]
    pub(crate) fn push(&self, id: u32, link: &Link) -> bool {
        if link.on.swap(true, Ordering::AcqRel) {
            return false;
        }
        // ORDER: Release: the link, and all that the pusher wrote before, precede the new top.
        let pushed = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, |top| {
            link.next.store(top, Ordering::Relaxed);
            Some(id)
        });
        pushed.is_ok()
    }

    /// The first element of the chain, which stays; or [`END`]. Its links stand still until
    /// somebody takes it.
    pub(crate) fn top(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Takes the whole chain; its first element, or [`END`].
    pub(crate) fn take(&self) -> u32 {
        self.0.swap(END, Ordering::Acquire)
    }

    pub(crate) fn clear(&self) {
        self.0.store(END, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_on_it_once_and_comes_back_after_release() {
        let stack = Stack::new();
        let links = [const { Link::new() }; 3];
        for id in [0, 2, 0] {
            stack.push(id, &links[id as usize]);
        }
        let first = stack.take();
        assert_eq!((first, links[2].next(), links[0].next()), (2, 0, END));
        assert!(stack.is_empty());
        links[0].release();
        stack.push(0, &links[0]);
        stack.push(2, &links[2]);
        assert_eq!(stack.take(), 0);
    }
}
