//! The memory of an Interface Adapter, placed by the caller.

pub(crate) mod marks;

use core::sync::atomic::AtomicU32;

use crate::data::DataPath;
use crate::data::poster::Poster;
use crate::data::reaper::Reaper;
use crate::data::shared::Shared;
use crate::data::shared::connection::{ConnectionEvent, ConnectionEvents, PER_EP};
use crate::data::shared::ep::EpShared;
use crate::data::shared::evd::{EvdShared, EventSlot};
use crate::data::shared::keys::Keys;
use crate::data::shared::lmr::{CONTEXT_BITS, LmrShared, RmrShared};
use crate::data::shared::request::RequestSlot;
use crate::data::shared::srq::{SrqShared, SrqSlot};
use crate::data::shared::stack::Stack;
use crate::data::srq_poster::SrqEnd;
use crate::engine::connections::Owner;
use crate::engine::storage::marks::{Dtos, Marks};
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
use crate::objects::table::Slot;
use crate::objects::{EventSlots, ObjectSlots};
use crate::provider::Provider;
use crate::types::atomic::AtomicU64;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::{Upcall, cm};

/// All the state of an adapter, in one value: put it into a `static`, on a stack, or into a box of
/// your own.
///
/// * `EPS`: Endpoints, and as many Protection Zones, PSPs and waiting CRs; twice as many
///   connections, because those in timewait still hold a place.
/// * `EVDS`: Event Dispatchers, the async one included, and as many CNOs.
/// * `LMRS`: LMRs, and as many RMRs.
/// * `DTOS`: DTOs outstanding of one direction of an Endpoint; a power of two up to 32,768.
/// * `EVENTS`: events other than completions that one Event Dispatcher holds; a power of two.
/// * `SRQS`: Shared Receive Queues, of `DTOS` slots each.
pub struct Storage<
    P: Provider,
    const EPS: usize,
    const EVDS: usize,
    const LMRS: usize,
    const DTOS: usize,
    const EVENTS: usize = 64,
    const SRQS: usize = 4,
> where
    Dtos<DTOS>: Marks,
{
    eps: [EpShared; EPS],
    requests: [[RequestSlot; DTOS]; EPS],
    receives: [[AtomicU64; DTOS]; EPS],
    quiet: [<Dtos<DTOS> as Marks>::Words; EPS],
    evds: [EvdShared; EVDS],
    events: [[EventSlot; EVENTS]; EVDS],
    lmrs: [LmrShared; LMRS],
    rmrs: [RmrShared; LMRS],
    keys: [AtomicU32; LMRS],
    srqs: [SrqShared; SRQS],
    srq_slots: [[SrqSlot; DTOS]; SRQS],
    work: Stack,
    connection_events: [[ConnectionEvent; PER_EP]; EPS],
    free_events: Stack,
    posters: [Option<Poster<P>>; EPS],
    srq_posters: [Option<SrqEnd<P>>; SRQS],
    reapers: [Option<Reaper<P>>; EVDS],
    pz_controls: [Slot<PzControl>; EPS],
    lmr_controls: [Slot<LmrControl>; LMRS],
    rmr_controls: [Slot<RmrControl>; LMRS],
    evd_controls: [Slot<EvdControl>; EVDS],
    cno_controls: [Slot<CnoControl>; EVDS],
    ep_controls: [Slot<EpControl>; EPS],
    psp_controls: [Slot<PspControl>; EPS],
    rsp_controls: [Slot<RspControl>; EPS],
    csp_controls: [Slot<CspControl>; EPS],
    srq_controls: [Slot<SrqControl>; SRQS],
    cr_controls: [Slot<CrControl>; EPS],
    conns: [[cm::Slot; 2]; EPS],
    owners: [[Owner; 2]; EPS],
    upcalls: [Option<Upcall<P>>; EVDS],
}

/// The sizes of an adapter that gets its memory from a [`Supply`]; what they count, [`Storage`]
/// says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Endpoints.
    pub eps: u16,
    /// Event Dispatchers.
    pub evds: u16,
    /// LMRs.
    pub lmrs: u32,
    /// DTOs outstanding of one direction of an Endpoint.
    pub dtos: u16,
    /// Events other than completions that one Event Dispatcher holds.
    pub events: u32,
    /// Shared Receive Queues.
    pub srqs: u16,
}

/// What does not fit together in the sizes of an adapter, in their order here: so that places and
/// handles fit into words.
const fn misfit([eps, evds, lmrs, dtos, events, srqs]: [usize; 6]) -> Result<(), &'static str> {
    if eps == 0 || eps > 1 << 15 {
        Err("EPS: 1 to 32,768")
    } else if evds == 0 {
        Err("EVDS: at least the async one")
    } else if lmrs >= 1 << (32 - CONTEXT_BITS) {
        Err("LMRS: below 1,048,576")
    } else if !dtos.is_power_of_two() || dtos > 1 << 15 {
        Err("DTOS: a power of two to 32,768")
    } else if !events.is_power_of_two() || events > 1 << 30 {
        Err("EVENTS: a power of two to 2^30")
    } else if srqs >= 1 << 15 {
        Err("SRQS: below 32,768")
    } else {
        Ok(())
    }
}

/// Where the memory of an adapter comes from whose sizes are known when the program runs: a host
/// with a heap.
pub trait Supply<'s> {
    /// `len` values, each as `new` makes it, for as long as the adapter lives.
    fn slice<T>(&mut self, len: usize, new: fn() -> T) -> &'s mut [T];

    /// The same of the greatest tables, whose values are words that are all 0 at first: memory that
    /// is 0 already will do, and need not be touched.
    fn words<T>(&mut self, len: usize, new: fn() -> T) -> &'s mut [T] {
        self.slice(len, new)
    }
}

/// The memory of an adapter in the pieces that it works with, all empty: no sizes in its type.
/// Those of a [`Storage::parts`], or of memory that is [supplied](Parts::supplied).
pub struct Parts<'s, P: Provider> {
    pub(crate) data: DataPath<'s, P>,
    pub(crate) objects: ObjectSlots<'s>,
    pub(crate) events: EventSlots<'s>,
    pub(crate) conns: &'s mut [cm::Slot],
    pub(crate) owners: &'s mut [Owner],
    pub(crate) upcalls: &'s mut [Option<Upcall<P>>],
}

impl<P: Provider> core::fmt::Debug for Parts<'_, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl<'s, P: Provider> Parts<'s, P> {
    /// The pieces, of memory that is supplied. `INVALID_PARAMETER` for sizes that do not fit
    /// together.
    pub fn supplied(supply: &mut impl Supply<'s>, sizes: &Sizes) -> Result<Self, Error> {
        const REFUSED: Error = Error::new(DatType::InvalidParameter, DatSubtype::None);
        let [eps, evds, dtos, srqs] =
            [sizes.eps, sizes.evds, sizes.dtos, sizes.srqs].map(usize::from);
        let [lmrs, events] = [sizes.lmrs, sizes.events].map(|size| size as usize);
        misfit([eps, evds, lmrs, dtos, events, srqs]).map_err(|_| REFUSED)?;
        let [work, free_events] = supply.slice(2, Stack::new) else {
            return Err(REFUSED);
        };
        let times = |a: usize, b: usize| a.checked_mul(b).ok_or(REFUSED);
        let rmrs: &[RmrShared] = supply.slice(lmrs, RmrShared::new);
        let heads = supply.slice(lmrs, || AtomicU32::new(0));
        Ok(Self {
            data: DataPath {
                shared: Shared {
                    eps: supply.slice(eps, EpShared::new),
                    requests: supply.words(times(eps, dtos)?, RequestSlot::new),
                    receives: supply.words(times(eps, dtos)?, || AtomicU64::new(0)),
                    quiet: supply.words(marks::words(times(eps, dtos)?), || AtomicU32::new(0)),
                    lmrs: supply.slice(lmrs, LmrShared::new),
                    rmrs,
                    keys: Keys::new(heads, rmrs),
                    srqs: supply.slice(srqs, SrqShared::new),
                    srq_slots: supply.slice(times(srqs, dtos)?, SrqSlot::new),
                    evds: supply.slice(evds, EvdShared::new),
                    events: supply.words(times(evds, events)?, EventSlot::new),
                    connection: ConnectionEvents::new(
                        supply.slice(times(eps, PER_EP)?, ConnectionEvent::new),
                        free_events,
                    ),
                    work,
                    dto_shift: dtos.trailing_zeros(),
                    event_shift: events.trailing_zeros(),
                    ep_mask: ep_mask(eps),
                },
                posters: supply.slice(eps, || None),
                srq_posters: supply.slice(srqs, || None),
                reapers: supply.slice(evds, || None),
            },
            objects: ObjectSlots {
                pzs: supply.slice(eps, Slot::new),
                lmrs: supply.slice(lmrs, Slot::new),
                rmrs: supply.slice(lmrs, Slot::new),
                eps: supply.slice(eps, Slot::new),
                psps: supply.slice(eps, Slot::new),
                rsps: supply.slice(eps, Slot::new),
                csps: supply.slice(eps, Slot::new),
                srqs: supply.slice(srqs, Slot::new),
                crs: supply.slice(eps, Slot::new),
            },
            events: EventSlots {
                evds: supply.slice(evds, Slot::new),
                cnos: supply.slice(evds, Slot::new),
            },
            conns: supply.slice(times(eps, 2)?, cm::Slot::new),
            owners: supply.slice(times(eps, 2)?, || Owner::Nobody),
            upcalls: supply.slice(evds, || None),
        })
    }
}

/// The bits of a completion index that are the slot of one of so many Endpoints; 32,768 at most.
fn ep_mask(eps: usize) -> u32 {
    u32::try_from(eps).unwrap_or(1 << 15).next_power_of_two() - 1
}

impl<
    P: Provider,
    const EPS: usize,
    const EVDS: usize,
    const LMRS: usize,
    const DTOS: usize,
    const EVENTS: usize,
    const SRQS: usize,
> Storage<P, EPS, EVDS, LMRS, DTOS, EVENTS, SRQS>
where
    Dtos<DTOS>: Marks,
{
    /// Bytes of state of one Endpoint and its connection. (Zones, service points and waiting
    /// requests come on top, and a second connection's place, for those in timewait.)
    pub const ENDPOINT_BYTES: usize = size_of::<EpShared>()
        + size_of::<[RequestSlot; DTOS]>()
        + size_of::<[AtomicU64; DTOS]>()
        + size_of::<<Dtos<DTOS> as Marks>::Words>()
        + size_of::<[ConnectionEvent; PER_EP]>()
        + size_of::<Option<Poster<P>>>()
        + size_of::<Slot<EpControl>>()
        + size_of::<cm::Slot>()
        + size_of::<Owner>();

    /// Empty storage. Sizes that do not fit together are refused when the program is compiled.
    #[must_use]
    pub const fn new() -> Self {
        const {
            if let Err(why) = misfit([EPS, EVDS, LMRS, DTOS, EVENTS, SRQS]) {
                panic!("{}", why);
            }
        }
        Self {
            eps: [const { EpShared::new() }; EPS],
            requests: [const { [const { RequestSlot::new() }; DTOS] }; EPS],
            receives: [const { [const { AtomicU64::new(0) }; DTOS] }; EPS],
            quiet: [const { <Dtos<DTOS> as Marks>::NONE }; EPS],
            evds: [const { EvdShared::new() }; EVDS],
            events: [const { [const { EventSlot::new() }; EVENTS] }; EVDS],
            lmrs: [const { LmrShared::new() }; LMRS],
            rmrs: [const { RmrShared::new() }; LMRS],
            keys: [const { AtomicU32::new(0) }; LMRS],
            srqs: [const { SrqShared::new() }; SRQS],
            srq_slots: [const { [const { SrqSlot::new() }; DTOS] }; SRQS],
            work: Stack::new(),
            connection_events: [const { [const { ConnectionEvent::new() }; PER_EP] }; EPS],
            free_events: Stack::new(),
            posters: [const { None }; EPS],
            srq_posters: [const { None }; SRQS],
            reapers: [const { None }; EVDS],
            pz_controls: [const { Slot::new() }; EPS],
            lmr_controls: [const { Slot::new() }; LMRS],
            rmr_controls: [const { Slot::new() }; LMRS],
            evd_controls: [const { Slot::new() }; EVDS],
            cno_controls: [const { Slot::new() }; EVDS],
            ep_controls: [const { Slot::new() }; EPS],
            psp_controls: [const { Slot::new() }; EPS],
            rsp_controls: [const { Slot::new() }; EPS],
            csp_controls: [const { Slot::new() }; EPS],
            srq_controls: [const { Slot::new() }; SRQS],
            cr_controls: [const { Slot::new() }; EPS],
            conns: [const { [const { cm::Slot::new() }; 2] }; EPS],
            owners: [const { [const { Owner::Nobody }; 2] }; EPS],
            upcalls: [const { None }; EVDS],
        }
    }

    /// Its pieces, to open an adapter on. What an earlier one left in them is wiped.
    pub fn parts(&mut self) -> Parts<'_, P> {
        self.eps.fill_with(EpShared::new);
        self.evds.fill_with(EvdShared::new);
        self.lmrs.fill_with(LmrShared::new);
        self.rmrs.fill_with(RmrShared::new);
        self.srqs.fill_with(SrqShared::new);
        self.srq_slots.as_flattened_mut().fill_with(SrqSlot::new);
        self.work.clear();
        self.connection_events.as_flattened_mut().fill_with(ConnectionEvent::new);
        self.free_events.clear();
        Parts {
            data: DataPath {
                shared: Shared {
                    eps: &self.eps,
                    requests: self.requests.as_flattened(),
                    receives: self.receives.as_flattened(),
                    quiet: Dtos::<DTOS>::flat(&self.quiet),
                    lmrs: &self.lmrs,
                    rmrs: &self.rmrs,
                    keys: Keys::new(&self.keys, &self.rmrs),
                    srqs: &self.srqs,
                    srq_slots: self.srq_slots.as_flattened(),
                    evds: &self.evds,
                    events: self.events.as_flattened(),
                    connection: ConnectionEvents::new(
                        self.connection_events.as_flattened(),
                        &self.free_events,
                    ),
                    work: &self.work,
                    dto_shift: DTOS.trailing_zeros(),
                    event_shift: EVENTS.trailing_zeros(),
                    ep_mask: ep_mask(EPS),
                },
                posters: &mut self.posters,
                srq_posters: &mut self.srq_posters,
                reapers: &mut self.reapers,
            },
            objects: ObjectSlots {
                pzs: &mut self.pz_controls,
                lmrs: &mut self.lmr_controls,
                rmrs: &mut self.rmr_controls,
                eps: &mut self.ep_controls,
                psps: &mut self.psp_controls,
                rsps: &mut self.rsp_controls,
                csps: &mut self.csp_controls,
                srqs: &mut self.srq_controls,
                crs: &mut self.cr_controls,
            },
            events: EventSlots { evds: &mut self.evd_controls, cnos: &mut self.cno_controls },
            conns: self.conns.as_flattened_mut(),
            owners: self.owners.as_flattened_mut(),
            upcalls: &mut self.upcalls,
        }
    }
}

impl<
    P: Provider,
    const EPS: usize,
    const EVDS: usize,
    const LMRS: usize,
    const DTOS: usize,
    const EVENTS: usize,
    const SRQS: usize,
> Default for Storage<P, EPS, EVDS, LMRS, DTOS, EVENTS, SRQS>
where
    Dtos<DTOS>: Marks,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<
    P: Provider,
    const EPS: usize,
    const EVDS: usize,
    const LMRS: usize,
    const DTOS: usize,
    const EVENTS: usize,
    const SRQS: usize,
> core::fmt::Debug for Storage<P, EPS, EVDS, LMRS, DTOS, EVENTS, SRQS>
where
    Dtos<DTOS>: Marks,
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Storage").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hca::LoopHca;

    #[test]
    fn an_endpoint_of_128_dtos_each_way_and_an_evd_of_128_events_keep_to_their_budget() {
        let slots = size_of::<[RequestSlot; 128]>()
            + size_of::<[AtomicU64; 128]>()
            + size_of::<<Dtos<128> as Marks>::Words>();
        assert!(size_of::<EpShared>() + slots <= 4608, "{}", size_of::<EpShared>() + slots);
        let evd = size_of::<EvdShared>()
            + size_of::<[EventSlot; 128]>()
            + size_of::<Slot<EvdControl>>()
            + size_of::<Slot<CnoControl>>()
            + size_of::<Option<Reaper<LoopHca<'_>>>>();
        assert!(evd <= 6144, "{evd}");
    }

    #[test]
    fn what_two_threads_write_lies_on_different_lines() {
        use core::mem::offset_of;
        let lines = [
            offset_of!(EpShared, poster),
            offset_of!(EpShared, request),
            offset_of!(EpShared, receive),
            // Two lines of the poster, and the third of the reaper.
            offset_of!(EpShared, tally),
        ];
        assert!(lines.iter().all(|at| at % 64 == 0) && size_of::<EpShared>() == 384);
        assert_eq!(crate::types::counters::EpCounter::Recv as usize * 8 % 64, 0);
        assert_eq!(size_of::<EvdShared>(), 128);
        assert_eq!((size_of::<LmrShared>(), size_of::<RequestSlot>()), (32, 16));
    }
}
