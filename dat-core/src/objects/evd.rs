//! Event Dispatchers: dat_evd_*(3).
//!
//! One Event Dispatcher takes any mix of streams. Completions come straight from its completion
//! queue; all other events come through a ring that the control half fills. The rules of order are
//! the reaper's, see [`EvdReaper`](crate::EvdReaper).
//!
//! What wakes somebody (a wait, a CNO, an upcall) is found by looking, in `count` and `arrival`;
//! nothing of it is on the way of an event that is merely dequeued.

use crate::objects::streams::Streams;
use crate::objects::table::Kind;
use crate::provider::Cq;
use crate::types::flags::EvdFlags;
use crate::types::handle::Cno;
use crate::{DatReturn, DatSubtype, DatType, Evd, EvdCounter, UpcallPolicy};

/// What the control half knows of one Event Dispatcher.
#[derive(Debug)]
pub(crate) struct EvdControl {
    pub(crate) flags: EvdFlags,
    /// Events the consumer may count on.
    pub(crate) qlen: u32,
    /// Events the ring takes.
    pub(crate) ring: u32,
    pub(crate) cq: Option<Cq>,
    /// Streams attached: directions and connections of Endpoints, service points.
    pub(crate) streams: Streams,
    /// The device announced completions, and the consumer has not asked.
    pub(crate) notified: bool,
    /// The same, and no waiter has been notified.
    pub(crate) announced: bool,
    /// What the one who waits has asked the device to announce, if anything: only solicited
    /// completions, or all.
    pub(crate) asked: Option<bool>,
    pub(crate) cno: Option<Cno>,
    /// Arrivals trigger the CNO.
    pub(crate) enabled: bool,
    pub(crate) unwaitable: bool,
    /// Instead of a CNO and waits: kDAPL.
    pub(crate) upcalls: Option<Upcalls>,
    pub(crate) tally: EvdTally,
}

/// What the control half counts of an Event Dispatcher, and since when everything.
#[derive(Debug, Default)]
pub(crate) struct EvdTally {
    pub(crate) connections: u64,
    pub(crate) completions: u64,
    /// Waits, and those whose first look found that they have to sleep.
    pub(crate) waits: [u64; 2],
    pub(crate) base: [u64; EvdCounter::COUNT],
}

/// What the control half knows of the upcalls of one Event Dispatcher.
#[derive(Debug)]
pub(crate) struct Upcalls {
    pub(crate) policy: UpcallPolicy,
    /// Something has come that no upcall was made for.
    pub(crate) pending: bool,
    /// One is under way.
    pub(crate) inside: bool,
}

impl Kind for EvdControl {
    type Handle = Evd;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandle1);
}
