//! The shared part of one Event Dispatcher: the ring of events that software makes, the stack of
//! connection events, and the stack of queues to flush.
//!
//! Completions do not pass through here; the reaper polls its completion queue for them. The
//! control half is the only producer of the ring and of connection events, and the reaper the only
//! consumer. A version counts whatever was put here, so that a dequeue finds by one load whether
//! completions are all there is to look at.

use core::sync::atomic::Ordering;

use crate::data::shared::stack::{Link, Stack};
use crate::types::atomic::{AtomicU32, AtomicU64};

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

/// Written by the control half; the version and the stack of queues also by posters.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ProducerLine {
    /// Counts what was put into the ring and onto the stacks.
    version: AtomicU32,
    /// Events put into the ring.
    pub(crate) tail: AtomicU32,
    /// Queues with something to flush.
    pub(crate) flush: Stack,
    /// Connection events, see
    /// [`ConnectionEvents`](crate::data::shared::connection::ConnectionEvents).
    pub(crate) connection: Stack,
    /// Connection events put onto that stack.
    pub(crate) connection_put: AtomicU32,
    /// Why events may not be taken by handle: [`DEAD`], [`WAITED`].
    pub(crate) barred: AtomicU32,
    /// Its place among those that got something to flush.
    pub(crate) arrival: Link,
}

/// Written by the reaper.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ConsumerLine {
    /// Events taken out of the ring.
    pub(crate) head: AtomicU32,
    /// Connection events delivered.
    pub(crate) connection_taken: AtomicU32,
    /// Entries of the completion queue that followers have or may take. The control half adds.
    followers: AtomicU32,
}

impl EvdShared {
    pub(crate) const fn new() -> Self {
        Self {
            producer: ProducerLine {
                version: AtomicU32::new(0),
                tail: AtomicU32::new(0),
                flush: Stack::new(),
                connection: Stack::new(),
                connection_put: AtomicU32::new(0),
                barred: AtomicU32::new(0),
                arrival: Link::new(),
            },
            consumer: ConsumerLine {
                head: AtomicU32::new(0),
                connection_taken: AtomicU32::new(0),
                followers: AtomicU32::new(0),
            },
        }
    }

    /// Empty, for another Event Dispatcher.
    pub(crate) fn clear(&self) {
        self.producer.version.store(0, Ordering::Relaxed);
        self.producer.tail.store(0, Ordering::Relaxed);
        self.producer.flush.clear();
        self.producer.connection.clear();
        self.producer.connection_put.store(0, Ordering::Relaxed);
        self.unbar(u32::MAX);
        self.consumer.head.store(0, Ordering::Relaxed);
        self.consumer.connection_taken.store(0, Ordering::Relaxed);
        self.consumer.followers.store(0, Ordering::Relaxed);
    }

    /// Entries of the completion queue that followers have or may take.
    pub(crate) fn followers(&self) -> u32 {
        self.consumer.followers.load(Ordering::Acquire)
    }

    /// A follower may take an entry.
    pub(crate) fn follower_posted(&self) {
        self.consumer.followers.fetch_add(1, Ordering::AcqRel);
    }

    /// So many entries are free again.
    pub(crate) fn followers_done(&self, count: u32) {
        let fewer = |followers: u32| Some(followers.saturating_sub(count));
        let _ = self.consumer.followers.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fewer);
    }

    /// Counts what was put here.
    #[inline(always)]
    pub(crate) fn version(&self) -> u32 {
        // ORDER: the version is read before the ring, the stacks and the completion queue, so that
        // whatever it counts is found.
        self.producer.version.load(Ordering::Acquire)
    }

    /// Something was put into the ring or onto a stack.
    pub(crate) fn changed(&self) {
        // ORDER: what was put here precedes the version that counts it.
        self.producer.version.fetch_add(1, Ordering::Release);
    }

    /// Why events may not be taken by handle; 0 if they may.
    #[inline(always)]
    pub(crate) fn barred(&self) -> u32 {
        self.producer.barred.load(Ordering::Relaxed)
    }

    /// They may not be taken any more, for that reason. The control half only, as with
    /// [`Self::unbar`].
    pub(crate) fn bar(&self, why: u32) {
        let barred = &self.producer.barred;
        barred.store(barred.load(Ordering::Relaxed) | why, Ordering::Relaxed);
    }

    /// That reason is gone.
    pub(crate) fn unbar(&self, why: u32) {
        let barred = &self.producer.barred;
        barred.store(barred.load(Ordering::Relaxed) & !why, Ordering::Relaxed);
    }

    /// Events in the ring, and connection events that wait beside it.
    pub(crate) fn queued(&self) -> u32 {
        let head = self.consumer.head.load(Ordering::Acquire);
        let tail = self.producer.tail.load(Ordering::Relaxed);
        let taken = self.consumer.connection_taken.load(Ordering::Acquire);
        let put = self.producer.connection_put.load(Ordering::Relaxed);
        tail.wrapping_sub(head).wrapping_add(put.wrapping_sub(taken))
    }
}

/// One event as three words; the encoding is [`crate::types::event`]'s.
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
