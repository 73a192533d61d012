//! What the three halves share: atomics in the caller's storage, nothing else.
//!
//! The control half ([`Ia`](crate::Ia)) writes identity and state, the posting half of an Endpoint
//! produces, the reaping half of an Event Dispatcher consumes. Each word has one writer; what two
//! threads write lies on two cache lines. The exceptions are the intrusive stacks ([`stack`]),
//! which several threads push to and one empties.
//!
//! All arrays of one kind lie in one slice; an Endpoint's part starts at its index shifted left. So
//! the reaper finds the slot of a completion by two shifts and a mask, whatever Endpoint it belongs
//! to.

pub(crate) mod connection;
pub(crate) mod ep;
pub(crate) mod evd;
#[cfg(all(test, loom))]
mod interleavings;
pub(crate) mod keys;
pub(crate) mod lmr;
pub(crate) mod request;
pub(crate) mod srq;
pub(crate) mod stack;
pub(crate) mod window;

use core::cell::Cell;

use crate::data::shared::connection::ConnectionEvents;
use crate::data::shared::ep::{EpShared, QueueLine};
use crate::data::shared::evd::{EvdShared, EventSlot};
use crate::data::shared::keys::Keys;
use crate::data::shared::lmr::{LmrShared, Range, RmrShared};
use crate::data::shared::request::RequestSlot;
use crate::data::shared::srq::{SrqShared, SrqSlot};
use crate::data::shared::stack::Stack;
use crate::types::atomic::{AtomicU32, AtomicU64};
use crate::types::flags::MemPriv;
use crate::types::key_order::KeyOrder;

/// The shared part of one Interface Adapter, as every half holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'s> {
    pub(crate) eps: &'s [EpShared],
    /// An Endpoint that nothing names.
    pub(crate) no_ep: &'s EpShared,
    pub(crate) requests: &'s [RequestSlot],
    pub(crate) receives: &'s [AtomicU64],
    /// A bit for each receive slot: its receive wakes nobody.
    pub(crate) silent: &'s [AtomicU32],
    pub(crate) lmrs: &'s [LmrShared],
    /// An LMR that nothing names.
    pub(crate) no_lmr: &'s LmrShared,
    pub(crate) rmrs: &'s [RmrShared],
    pub(crate) keys: Keys<'s>,
    /// How keys follow each other.
    pub(crate) order: &'s KeyOrder,
    pub(crate) srqs: &'s [SrqShared],
    pub(crate) srq_slots: &'s [SrqSlot],
    pub(crate) evds: &'s [EvdShared],
    pub(crate) connection: ConnectionEvents<'s>,
    pub(crate) events: &'s [EventSlot],
    /// Endpoints the control half has to look at.
    pub(crate) work: &'s Stack,
    /// Event Dispatchers that got something to flush.
    pub(crate) arrivals: &'s Stack,
    /// log2 of the DTOs of one Endpoint, and of the receives of one Shared Receive Queue.
    pub(crate) dto_shift: u32,
    /// log2 of the events of one Event Dispatcher.
    pub(crate) event_shift: u32,
    /// The bits of a completion index that are the Endpoint's slot.
    pub(crate) ep_mask: u32,
}

impl<'s> Shared<'s> {
    /// First request and receive slot of an Endpoint.
    pub(crate) fn first_slot(&self, ep: u32) -> u32 {
        ep << self.dto_shift
    }

    pub(crate) fn ep(&self, index: u32) -> Option<&'s EpShared> {
        self.eps.get(index as usize)
    }

    pub(crate) fn evd(&self, index: u32) -> Option<&'s EvdShared> {
        self.evds.get(index as usize)
    }

    /// The slot of the request of that sequence, of the queue that `line` is of.
    #[inline(always)]
    pub(crate) fn request(&self, line: &QueueLine, seq: u32) -> Option<&'s RequestSlot> {
        self.requests.get(line.place(seq))
    }

    /// The same of a receive.
    #[inline(always)]
    pub(crate) fn receive(&self, line: &QueueLine, seq: u32) -> Option<&'s AtomicU64> {
        self.receives.get(line.place(seq))
    }

    /// The slot of the ring of an Event Dispatcher at that count.
    pub(crate) fn event(&self, evd: u32, count: u32) -> Option<&'s EventSlot> {
        let mask = (1_u32 << self.event_shift) - 1;
        self.events.get((evd << self.event_shift | count & mask) as usize)
    }

    /// What a poster of the Endpoint in slot `ep` looks at.
    #[inline]
    pub(crate) fn near(&self, ep: u32) -> Option<Near<'s>> {
        let last = Cell::new(self.no_lmr);
        let first = self.first_slot(ep) as usize;
        Some(Near { ep: self.ep(ep)?, requests: self.requests.get(first..)?, last })
    }

    /// The receive slots of an Endpoint, and those behind them.
    #[inline]
    pub(crate) fn receives_from(&self, ep: u32) -> &'s [AtomicU64] {
        self.receives.get(self.first_slot(ep) as usize..).unwrap_or_default()
    }
}

/// The shared part as the poster of one Endpoint sees it: its own line and slots, so that a post
/// looks up nothing but the LMR. Half a line, of which [`EpPoster`](crate::EpPoster) makes use.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Near<'s> {
    pub(crate) ep: &'s EpShared,
    /// From its first request slot on.
    pub(crate) requests: &'s [RequestSlot],
    /// The LMR of the newest request of one segment: mostly it is that of the next as well.
    pub(crate) last: Cell<&'s LmrShared>,
}

impl<'s> Near<'s> {
    /// What an LMR covers, if it is of `zone` and grants `need`.
    #[inline(always)]
    pub(crate) fn range(
        &self,
        shared: &Shared<'s>,
        context: u32,
        zone: u64,
        need: MemPriv,
    ) -> Option<Range> {
        self.last.get().range(context, zone, need).or_else(|| {
            let lmr = lmr::find(shared.lmrs, context)?;
            self.last.set(lmr);
            lmr.range(context, zone, need)
        })
    }
}
