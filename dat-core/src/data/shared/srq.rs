//! The shared part of one Shared Receive Queue.
//!
//! Its poster fills slots, any number of reapers give them back: each of the Endpoints that take
//! receives from it may complete to an Event Dispatcher in another thread. A slot is named by the
//! token of its receive. While nothing is posted in it, its link is held or on the stack of those
//! that came back: so a token completes once, whatever the device says.

use core::sync::atomic::Ordering;

use crate::data::shared::Shared;
use crate::data::shared::stack::{Link, Stack};
use crate::types::atomic::{AtomicU32, AtomicU64};

/// Counts and the stack of one Shared Receive Queue.
#[derive(Debug)]
pub(crate) struct SrqShared {
    /// Receives posted. Written by the poster.
    pub(crate) posted: AtomicU32,
    /// Receives that came back. Written by reapers.
    pub(crate) done: AtomicU32,
    /// Most receives outstanding. Written by the control half.
    pub(crate) most: AtomicU32,
    /// Slots that came back and the poster has not seen yet.
    pub(crate) free: Stack,
}

/// One slot.
#[derive(Debug)]
pub(crate) struct SrqSlot {
    pub(crate) cookie: AtomicU64,
    /// Bytes of the longest message that it takes.
    pub(crate) len: AtomicU32,
    pub(crate) link: Link,
}

impl SrqShared {
    pub(crate) const fn new() -> Self {
        Self {
            posted: AtomicU32::new(0),
            done: AtomicU32::new(0),
            most: AtomicU32::new(0),
            free: Stack::new(),
        }
    }

    /// Posted and not yet done with.
    pub(crate) fn outstanding(&self) -> u32 {
        let done = self.done.load(Ordering::Acquire);
        self.posted.load(Ordering::Acquire).wrapping_sub(done)
    }
}

impl SrqSlot {
    pub(crate) const fn new() -> Self {
        Self { cookie: AtomicU64::new(0), len: AtomicU32::new(0), link: Link::held() }
    }
}

impl<'s> Shared<'s> {
    /// The slot of that token.
    pub(crate) fn srq_slot(&self, srq: u32, token: u16) -> Option<&'s SrqSlot> {
        if u32::from(token) >> self.dto_shift != 0 {
            return None;
        }
        let place = srq << self.dto_shift | u32::from(token);
        self.srq_slots.get(place as usize)
    }

    /// A receive is done with, with that many bytes in it; its cookie. None if nothing is posted in
    /// that slot, or not so much.
    pub(crate) fn srq_take(&self, srq: u32, token: u16, len: u32) -> Option<u64> {
        let (slot, queue) = (self.srq_slot(srq, token)?, self.srqs.get(srq as usize)?);
        if len > slot.len.load(Ordering::Relaxed) {
            return None;
        }
        // Read before the slot goes back: the poster may fill it at once.
        let cookie = slot.cookie.load(Ordering::Relaxed);
        if !queue.free.push(token.into(), &slot.link) {
            return None;
        }
        queue.done.fetch_add(1, Ordering::AcqRel);
        Some(cookie)
    }
}
