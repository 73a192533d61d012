//! The objects of an Interface Adapter, as the consumer made them: a table for each kind.

pub(crate) mod asker;
pub(crate) mod cno;
pub(crate) mod cr;
pub(crate) mod csp;
pub(crate) mod endpoints;
pub(crate) mod ep;
pub(crate) mod evd;
pub(crate) mod feeds;
mod listeners;
pub(crate) mod lmr;
pub(crate) mod notify;
pub(crate) mod psp;
pub(crate) mod pz;
pub(crate) mod retire;
pub(crate) mod rmr;
pub(crate) mod rsp;
pub(crate) mod srq;
pub(crate) mod streams;
pub(crate) mod table;
pub(crate) mod trigger;

use crate::data::shared::Shared;
use crate::data::shared::stack::END;
use crate::objects::cno::CnoControl;
use crate::objects::cr::CrControl;
use crate::objects::csp::CspControl;
use crate::objects::ep::EpControl;
use crate::objects::evd::EvdControl;
use crate::objects::lmr::LmrControl;
use crate::objects::psp::PspControl;
use crate::objects::pz::PzControl;
use crate::objects::rmr::RmrControl;
use crate::objects::rsp::RspControl;
use crate::objects::srq::SrqControl;
use crate::objects::table::{Slot, Table};
use crate::types::deadlines::Timer;
use crate::types::handle::{Evd, Handle};

/// Everything but Event Dispatchers and CNOs.
#[derive(Debug)]
pub(crate) struct Objects<'s> {
    /// What the halves share of them.
    pub(crate) shared: Shared<'s>,
    pub(crate) pzs: Table<'s, PzControl>,
    pub(crate) lmrs: Table<'s, LmrControl>,
    pub(crate) rmrs: Table<'s, RmrControl>,
    pub(crate) eps: Table<'s, EpControl>,
    pub(crate) psps: Table<'s, PspControl>,
    pub(crate) rsps: Table<'s, RspControl>,
    pub(crate) csps: Table<'s, CspControl>,
    pub(crate) srqs: Table<'s, SrqControl>,
    pub(crate) crs: Table<'s, CrControl>,
    /// When an Endpoint has to be visited, by its slot: the consumer's own deadline of `ep_connect`,
    /// or the next look at a graceful disconnect.
    pub(crate) timers: &'s mut [Timer],
    /// Batches of device events processed; see [`EpControl::born`].
    pub(crate) turn: u32,
    /// First of the slots for connection events that no Endpoint has reserved, chained through
    /// them.
    pub(crate) free_events: u32,
}

/// Slots for the tables of [`Objects`].
#[derive(Debug)]
pub(crate) struct ObjectSlots<'s> {
    pub(crate) pzs: &'s mut [Slot<PzControl>],
    pub(crate) lmrs: &'s mut [Slot<LmrControl>],
    pub(crate) rmrs: &'s mut [Slot<RmrControl>],
    pub(crate) eps: &'s mut [Slot<EpControl>],
    pub(crate) psps: &'s mut [Slot<PspControl>],
    pub(crate) rsps: &'s mut [Slot<RspControl>],
    pub(crate) csps: &'s mut [Slot<CspControl>],
    pub(crate) srqs: &'s mut [Slot<SrqControl>],
    pub(crate) crs: &'s mut [Slot<CrControl>],
    pub(crate) timers: &'s mut [Timer],
}

impl<'s> Objects<'s> {
    /// Empty tables. The handles of each kind begin far from those of the others, so that none is
    /// taken for another's: `first_of` says where.
    pub(crate) fn new(
        shared: Shared<'s>,
        slots: ObjectSlots<'s>,
        first_of: impl Fn(u32) -> u32,
    ) -> Self {
        Self {
            shared,
            pzs: Table::new(slots.pzs, first_of(1)),
            lmrs: Table::resting(slots.lmrs, first_of(2)),
            rmrs: Table::resting(slots.rmrs, first_of(3)),
            eps: Table::new(slots.eps, first_of(6)),
            psps: Table::new(slots.psps, first_of(7)),
            rsps: Table::new(slots.rsps, first_of(8)),
            csps: Table::new(slots.csps, first_of(9)),
            srqs: Table::new(slots.srqs, first_of(10)),
            crs: Table::new(slots.crs, first_of(11)),
            timers: slots.timers,
            turn: 0,
            free_events: END,
        }
    }
}

/// Event Dispatchers and CNOs, and whom an event concerns.
#[derive(Debug)]
pub(crate) struct Events<'s> {
    /// What the halves share of them.
    pub(crate) shared: Shared<'s>,
    pub(crate) evds: Table<'s, EvdControl>,
    pub(crate) cnos: Table<'s, CnoControl>,
    /// The Event Dispatcher of asynchronous errors.
    pub(crate) async_evd: Evd,
    /// It was made with the adapter.
    pub(crate) own_async: bool,
    /// Something happened that a consumer may be waiting for.
    pub(crate) worked: bool,
}

/// Slots for the tables of [`Events`].
#[derive(Debug)]
pub(crate) struct EventSlots<'s> {
    pub(crate) evds: &'s mut [Slot<EvdControl>],
    pub(crate) cnos: &'s mut [Slot<CnoControl>],
}

impl<'s> Events<'s> {
    /// Empty tables, whose handles begin where `first_of` says, and no Event Dispatcher of
    /// asynchronous errors.
    pub(crate) fn new(
        shared: Shared<'s>,
        slots: EventSlots<'s>,
        first_of: impl Fn(u32) -> u32,
    ) -> Self {
        Self {
            shared,
            evds: Table::new(slots.evds, first_of(4)),
            cnos: Table::new(slots.cnos, first_of(5)),
            async_evd: Evd(Handle::new(u32::MAX, 0)),
            own_async: false,
            worked: false,
        }
    }
}
