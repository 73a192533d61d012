//! The shared part of one Event Dispatcher: the ring of events that software makes, and the stack of queues to flush.
//!
//! Completions do not pass through here; the reaper polls its completion queue for them. The control half is the only
//! producer of the ring and the reaper its only consumer.

use core::sync::atomic::{AtomicU32, Ordering};

use super::stack::Stack;
use crate::atomic::AtomicU64;

/// The async Event Dispatcher overflowed: it gives nothing any more.
pub(crate) const DEAD: u32 = 1;
/// Somebody waits for it, and nobody else may take events.
pub(crate) const WAITED: u32 = 2;

/// Indices and stack of one Event Dispatcher.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct EvdShared {
    pub(crate) producer: ProducerLine,
    pub(crate) consumer: ConsumerLine,
}

/// Written by the control half; the stack also by posters.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ProducerLine {
    /// Events put into the ring.
    pub(crate) tail: AtomicU32,
    /// Queues with something to flush.
    pub(crate) flush: Stack,
    /// Why events may not be taken by handle: [`DEAD`], [`WAITED`].
    pub(crate) barred: AtomicU32,
}

/// Written by the reaper.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ConsumerLine {
    /// Events taken out of the ring.
    pub(crate) head: AtomicU32,
}

impl EvdShared {
    pub(crate) const fn new() -> Self {
        Self {
            producer: ProducerLine {
                tail: AtomicU32::new(0),
                flush: Stack::new(),
                barred: AtomicU32::new(0),
            },
            consumer: ConsumerLine {
                head: AtomicU32::new(0),
            },
        }
    }

    /// Why events may not be taken by handle; 0 if they may.
    #[inline(always)]
    pub(crate) fn barred(&self) -> u32 {
        self.producer.barred.load(Ordering::Relaxed)
    }

    /// They may not be taken any more, for that reason. The control half only, as with [`Self::unbar`].
    pub(crate) fn bar(&self, why: u32) {
        let barred = &self.producer.barred;
        barred.store(barred.load(Ordering::Relaxed) | why, Ordering::Relaxed);
    }

    /// That reason is gone.
    pub(crate) fn unbar(&self, why: u32) {
        let barred = &self.producer.barred;
        barred.store(barred.load(Ordering::Relaxed) & !why, Ordering::Relaxed);
    }

    /// Events in the ring.
    pub(crate) fn queued(&self) -> u32 {
        let head = self.consumer.head.load(Ordering::Acquire);
        self.producer
            .tail
            .load(Ordering::Relaxed)
            .wrapping_sub(head)
    }
}

/// One event as three words; the encoding is [`crate::event`]'s.
#[derive(Debug)]
pub(crate) struct EventSlot(pub(crate) [AtomicU64; 3]);

impl EventSlot {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 3])
    }

    pub(crate) fn store(&self, words: [u64; 3]) {
        for (slot, word) in self.0.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    pub(crate) fn load(&self) -> [u64; 3] {
        let [a, b, c] = &self.0;
        [a, b, c].map(|word| word.load(Ordering::Relaxed))
    }
}
