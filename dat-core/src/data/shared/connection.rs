//! Connection events on their way from the control half to a reaper.
//!
//! An event that ends a connection is never lost, so it needs a slot that nothing else can take.
//! Each Interface Adapter has a pool of slots. An Endpoint reserves the two that a connection can
//! need, for its beginning and its end, before the connection is asked for or accepted, and keeps
//! them until they are used. A slot that is used stays with its event until that has been dequeued,
//! whatever becomes of the Endpoint meanwhile.

use core::sync::atomic::Ordering;

use crate::data::shared::evd::EvdShared;
use crate::data::shared::stack::{Link, Stack};
use crate::types::atomic::{AtomicU32, AtomicU64};
use crate::types::ep_state::Signal;
use crate::types::event::Event;
use crate::types::handle::{Ep, Handle};

/// Slots for each Endpoint that the storage has room for: two for its connection, and two for
/// events of earlier ones that nobody has dequeued.
pub(crate) const PER_EP: usize = 4;

/// Bit of a name in a chain that tells a connection event from a queue to flush.
const EVENT: u32 = 1 << 30;

/// Bit of [`ConnectionEvent::signal`]: the Endpoint has been reset or freed since. What it had
/// outstanding is gone, so the event waits for nothing.
const PAST: u32 = 1 << 8;
/// [`ConnectionEvent::signal`] of a slot whose event has been delivered ahead of its place in a
/// chain.
const DELIVERED: u32 = u32::MAX;

/// One slot.
#[derive(Debug)]
pub(crate) struct ConnectionEvent {
    pub(crate) link: Link,
    /// [`Signal`], and [`PAST`].
    signal: AtomicU32,
    /// Slot of the Event Dispatcher that it goes to.
    evd: AtomicU32,
    /// Events put into the ring before it.
    pub(crate) behind: AtomicU32,
    /// The Endpoint, as a word.
    ep: AtomicU64,
    /// In the reaper's chain: where the completion queue has to be before the event is delivered.
    pub(crate) due_at: AtomicU64,
}

impl ConnectionEvent {
    pub(crate) const fn new() -> Self {
        Self {
            link: Link::new(),
            signal: AtomicU32::new(DELIVERED),
            evd: AtomicU32::new(u32::MAX),
            behind: AtomicU32::new(0),
            ep: AtomicU64::new(0),
            due_at: AtomicU64::new(0),
        }
    }

    /// The Endpoint that it is of.
    pub(crate) fn ep(&self) -> Ep {
        Ep(Handle::from_raw(self.ep.load(Ordering::Relaxed)))
    }

    /// Whether it is of that Endpoint, on its way to the Event Dispatcher in slot `evd`.
    pub(crate) fn is_of(&self, ep: Ep, evd: u32) -> bool {
        self.ep.load(Ordering::Relaxed) == ep.raw() && self.evd.load(Ordering::Relaxed) == evd
    }

    /// Whether it ends a connection.
    pub(crate) fn is_end(&self) -> bool {
        let word = self.signal.load(Ordering::Acquire);
        Signal::from_number(word & !PAST).is_some_and(Signal::is_end)
    }

    /// Whether it comes behind what its Endpoint has outstanding.
    pub(crate) fn follows_completions(&self) -> bool {
        self.is_end() && self.signal.load(Ordering::Acquire) & PAST == 0
    }

    /// What it tells, unless that has been delivered.
    pub(crate) fn event(&self) -> Option<Event> {
        let word = self.signal.load(Ordering::Acquire);
        Some(Signal::from_number(word & !PAST)?.event(self.ep()))
    }

    /// Takes the event out of the slot, which stays where it is in its chain.
    pub(crate) fn take(&self) -> Option<Event> {
        let event = self.event();
        self.signal.store(DELIVERED, Ordering::Relaxed);
        event
    }
}

/// The slots of one Interface Adapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionEvents<'s> {
    slots: &'s [ConnectionEvent],
    /// Those that reapers gave back.
    free: &'s Stack,
}

impl<'s> ConnectionEvents<'s> {
    /// The pool, full.
    pub(crate) fn new(slots: &'s [ConnectionEvent], free: &'s Stack) -> Self {
        let pool = Self { slots, free };
        for (slot, index) in slots.iter().zip(0..) {
            free.push(EVENT | index, &slot.link);
        }
        pool
    }

    /// The slot of that name in a chain, if the name is of one.
    pub(crate) fn get(&self, id: u32) -> Option<&'s ConnectionEvent> {
        if id & EVENT == 0 {
            return None;
        }
        self.slots.get((id & !EVENT) as usize)
    }

    /// All that were given back, as a chain.
    pub(crate) fn take_free(&self) -> u32 {
        self.free.take()
    }

    /// Fills a reserved slot and puts it onto the stack of the Event Dispatcher in slot `index`.
    /// The control half only.
    pub(crate) fn send(&self, id: u32, evd: &EvdShared, index: u32, ep: Ep, signal: Signal) {
        if let Some(slot) = self.get(id) {
            slot.ep.store(ep.raw(), Ordering::Relaxed);
            slot.evd.store(index, Ordering::Relaxed);
            let line = &evd.producer;
            slot.behind.store(line.tail.load(Ordering::Relaxed), Ordering::Relaxed);
            slot.signal.store(signal as u32, Ordering::Relaxed);
            slot.link.release();
            let put = line.connection_put.load(Ordering::Relaxed);
            line.connection_put.store(put.wrapping_add(1), Ordering::Relaxed);
            line.connection.push(id, &slot.link);
            evd.changed();
        }
    }

    /// The Endpoint has been reset or is being freed: an event of it that has not been delivered
    /// waits for nothing any more. The control half only, which is the one that gives slots
    /// out: so a slot that has another event by now is another Endpoint's.
    pub(crate) fn mark_past(&self, id: u32, ep: Ep) {
        if let Some(slot) = self.get(id) {
            if slot.ep.load(Ordering::Relaxed) == ep.raw() {
                // ORDER: what the reset took away precedes the mark that says so.
                slot.signal.fetch_or(PAST, Ordering::Release);
            }
        }
    }

    /// Gives a slot back whose event has been delivered, or that was reserved and not used.
    pub(crate) fn give_back(&self, id: u32) {
        if let Some(slot) = self.get(id) {
            slot.link.release();
            self.free.push(id, &slot.link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_of_its_endpoint_and_its_event_dispatcher() {
        let (slots, free) = ([const { ConnectionEvent::new() }; 2], Stack::new());
        let pool = ConnectionEvents::new(&slots, &free);
        let [ep, other] = [7, 8].map(|generation| Ep(Handle::new(3, generation)));
        let id = pool.take_free();
        let (slot, evd) = (pool.get(id).unwrap(), EvdShared::new());
        assert!(!slot.is_of(ep, 5) && slot.event().is_none());
        pool.send(id, &evd, 5, ep, Signal::Disconnected);
        assert_eq!(evd.producer.connection.top(), id);
        assert!(slot.is_of(ep, 5) && !slot.is_of(ep, 6) && !slot.is_of(other, 5));
        assert!(slot.is_end() && slot.follows_completions());
        // Of another Endpoint in the same slot, the mark is not for this one.
        pool.mark_past(id, other);
        assert!(slot.follows_completions());
        pool.mark_past(id, ep);
        assert!(slot.is_end() && !slot.follows_completions());
        assert_eq!(slot.event(), Some(Event::Disconnected(ep)));
        assert_eq!((slot.take(), slot.take()), (Some(Event::Disconnected(ep)), None));
    }
}
