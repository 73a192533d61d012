//! The memory of an Interface Adapter, placed by the caller.

pub(crate) mod marks;

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
use crate::types::atomic::{AtomicU32, AtomicU64};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::deadlines::Timer;
use crate::types::key_order::KeyOrder;
use crate::{Upcall, cm};

/// What one row of `storage!` means, by its dimensions: `[]` is one value, `[A]` an array,
/// `[A * B]` an array of arrays, `[A * B / 32]` a bit for each in words.
macro_rules! row {
    (@array $t:ty, []) => { $t };
    (@array $t:ty, [$a:ident]) => { [$t; $a] };
    (@array $t:ty, [$a:ident * $b:tt]) => { [[$t; $b]; $a] };
    (@array $t:ty, [$a:ident * $b:ident / 32]) => { [<Dtos<$b> as Marks>::Words; $a] };

    (@new $new:expr, []) => { $new };
    (@new $new:expr, [$a:ident]) => { [const { $new }; $a] };
    (@new $new:expr, [$a:ident * $b:tt]) => { [const { [const { $new }; $b] }; $a] };
    (@new $new:expr, [$a:ident * $b:ident / 32]) => { [const { <Dtos<$b> as Marks>::NONE }; $a] };

    (@piece $lt:lifetime $t:ty, []) => { &$lt mut $t };
    (@piece $lt:lifetime $t:ty, $dimensions:tt) => { &$lt mut [$t] };

    (@flat $array:expr, []) => { &mut $array };
    (@flat $array:expr, [$a:ident]) => { &mut $array[..] };
    (@flat $array:expr, [$a:ident * $b:tt]) => { $array.as_flattened_mut() };
    (@flat $array:expr, [$a:ident * $b:ident / 32]) => { Dtos::<$b>::flat(&mut $array) };

    // What is supplied as words is written before it is read.
    (@wipe $piece:expr, words, $new:expr, $dimensions:tt) => {};
    (@wipe $piece:expr, slice, $new:expr, []) => { *$piece = $new };
    (@wipe $piece:expr, slice, $new:expr, $dimensions:tt) => { $piece.fill_with(|| $new) };

    (@supply $supply:expr, $method:ident, $new:expr, []) => {
        $supply.$method(1, || $new).first_mut().ok_or(REFUSED)?
    };
    (@supply $supply:expr, $method:ident, $new:expr, [$a:ident]) => { $supply.$method($a, || $new) };
    (@supply $supply:expr, $method:ident, $new:expr, [$a:ident * $b:tt]) => {
        $supply.$method($a.checked_mul($b).ok_or(REFUSED)?, || $new)
    };
    (@supply $supply:expr, $method:ident, $new:expr, [$a:ident * $b:ident / 32]) => {
        $supply.$method(marks::words($a.checked_mul($b).ok_or(REFUSED)?), || $new)
    };
}

/// Makes [`Storage`], the [`Pieces`] of it and those that are supplied, from a row for each field:
/// its type, dimensions and first value, and the method of [`Supply`] that it comes from.
macro_rules! storage {
    (
        $(#[$doc:meta])*
        sizes $($size:ident)*;
        $($field:ident: $t:ty, $dimensions:tt = $new:expr, $method:ident;)*
    ) => {
        $(#[$doc])*
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
            $($field: row!(@array $t, $dimensions),)*
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
            /// Empty storage. Sizes that do not fit together are refused when the program is
            /// compiled.
            #[must_use]
            pub const fn new() -> Self {
                const {
                    if let Err(why) = misfit([EPS, EVDS, LMRS, DTOS, EVENTS, SRQS]) {
                        panic!("{}", why);
                    }
                }
                Self { $($field: row!(@new $new, $dimensions),)* }
            }

            /// Its pieces, to open an adapter on. What an earlier one left in them is wiped.
            pub fn parts(&mut self) -> Parts<'_, P> {
                let pieces: Pieces<'_, P> =
                    Pieces { $($field: row!(@flat self.$field, $dimensions),)* };
                $(row!(@wipe pieces.$field, $method, $new, $dimensions);)*
                pieces.parts(DTOS, EVENTS, EPS)
            }
        }

        /// The fields of [`Storage`] in slices, which have no sizes in their types.
        struct Pieces<'s, P: Provider> {
            $($field: row!(@piece 's $t, $dimensions),)*
        }

        impl<'s, P: Provider> Pieces<'s, P> {
            #[expect(non_snake_case, reason = "the rows name sizes as the parameters of Storage")]
            fn supplied(
                supply: &mut impl Supply<'s>,
                [$($size),*]: [usize; 6],
            ) -> Result<Self, Error> {
                Ok(Self { $($field: row!(@supply supply, $method, $new, $dimensions),)* })
            }
        }
    };
}

storage! {
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
    sizes EPS EVDS LMRS DTOS EVENTS SRQS;
    eps: EpShared, [EPS] = EpShared::new(), slice;
    no_ep: EpShared, [] = EpShared::new(), slice;
    requests: RequestSlot, [EPS * DTOS] = RequestSlot::new(), words;
    receives: AtomicU64, [EPS * DTOS] = AtomicU64::new(0), words;
    silent: AtomicU32, [EPS * DTOS / 32] = AtomicU32::new(0), words;
    evds: EvdShared, [EVDS] = EvdShared::new(), slice;
    events: EventSlot, [EVDS * EVENTS] = EventSlot::new(), words;
    lmrs: LmrShared, [LMRS] = LmrShared::new(), slice;
    no_lmr: LmrShared, [] = LmrShared::new(), slice;
    rmrs: RmrShared, [LMRS] = RmrShared::new(), slice;
    keys: AtomicU32, [LMRS] = AtomicU32::new(0), slice;
    order: KeyOrder, [] = KeyOrder::new(), slice;
    srqs: SrqShared, [SRQS] = SrqShared::new(), slice;
    srq_slots: SrqSlot, [SRQS * DTOS] = SrqSlot::new(), slice;
    work: Stack, [] = Stack::new(), slice;
    arrivals: Stack, [] = Stack::new(), slice;
    connection_events: ConnectionEvent, [EPS * PER_EP] = ConnectionEvent::new(), slice;
    free_events: Stack, [] = Stack::new(), slice;
    posters: Option<Poster<P>>, [EPS] = None, slice;
    srq_posters: Option<SrqEnd<P>>, [SRQS] = None, slice;
    reapers: Option<Reaper<P>>, [EVDS] = None, slice;
    pz_controls: Slot<PzControl>, [EPS] = Slot::new(), slice;
    lmr_controls: Slot<LmrControl>, [LMRS] = Slot::new(), slice;
    rmr_controls: Slot<RmrControl>, [LMRS] = Slot::new(), slice;
    evd_controls: Slot<EvdControl>, [EVDS] = Slot::new(), slice;
    cno_controls: Slot<CnoControl>, [EVDS] = Slot::new(), slice;
    ep_controls: Slot<EpControl>, [EPS] = Slot::new(), slice;
    psp_controls: Slot<PspControl>, [EPS] = Slot::new(), slice;
    rsp_controls: Slot<RspControl>, [EPS] = Slot::new(), slice;
    csp_controls: Slot<CspControl>, [EPS] = Slot::new(), slice;
    srq_controls: Slot<SrqControl>, [SRQS] = Slot::new(), slice;
    cr_controls: Slot<CrControl>, [EPS] = Slot::new(), slice;
    ep_timers: Timer, [EPS] = Timer::NEVER, slice;
    conns: cm::Slot, [EPS * 2] = cm::Slot::new(), slice;
    owners: Owner, [EPS * 2] = Owner::Nobody, slice;
    upcalls: Option<Upcall<P>>, [EVDS] = None, slice;
}

/// The sizes of an adapter that gets its memory from a [`Supply`]; what they count, [`Storage`]
/// says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Endpoints.
    pub eps: u32,
    /// Event Dispatchers.
    pub evds: u32,
    /// LMRs.
    pub lmrs: u32,
    /// DTOs outstanding of one direction of an Endpoint.
    pub dtos: u32,
    /// Events other than completions that one Event Dispatcher holds.
    pub events: u32,
    /// Shared Receive Queues.
    pub srqs: u32,
}

impl Sizes {
    /// What does not fit together in them, in words.
    pub const fn misfit(&self) -> Result<(), &'static str> {
        misfit(self.numbers())
    }

    const fn numbers(&self) -> [usize; 6] {
        let Self { eps, evds, lmrs, dtos, events, srqs } = *self;
        [eps as usize, evds as usize, lmrs as usize, dtos as usize, events as usize, srqs as usize]
    }
}

const REFUSED: Error = Error::new(DatType::InvalidParameter, DatSubtype::None);

/// What does not fit together in the sizes of an adapter, in their order here: so that places and
/// handles fit into words.
const fn misfit([eps, evds, lmrs, dtos, events, srqs]: [usize; 6]) -> Result<(), &'static str> {
    if eps == 0 || eps > 1 << 17 {
        Err("EPS: 1 to 131,072")
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
    } else if (eps as u64) * (dtos as u64) > 1 << 32 {
        Err("EPS times DTOS: 2^32 at most")
    } else if (evds as u64) * (events as u64) > 1 << 32 {
        Err("EVDS times EVENTS: 2^32 at most")
    } else {
        Ok(())
    }
}

/// Where the memory of an adapter comes from whose sizes are known when the program runs: a host
/// with a heap.
pub trait Supply<'s> {
    /// `len` values, each as `new` makes it, for as long as the adapter exists.
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
        let numbers = sizes.numbers();
        let [eps, _, _, dtos, events, _] = numbers;
        misfit(numbers).map_err(|_| REFUSED)?;
        Ok(Pieces::supplied(supply, numbers)?.parts(dtos, events, eps))
    }
}

impl<'s, P: Provider> Pieces<'s, P> {
    /// Groups the pieces by the part of the adapter that works with them.
    fn parts(self, dtos: usize, events: usize, eps: usize) -> Parts<'s, P> {
        let rmrs: &[RmrShared] = self.rmrs;
        let (no_ep, no_lmr): (&EpShared, &LmrShared) = (self.no_ep, self.no_lmr);
        Parts {
            data: DataPath {
                shared: Shared {
                    eps: self.eps,
                    no_ep,
                    requests: self.requests,
                    receives: self.receives,
                    silent: self.silent,
                    lmrs: self.lmrs,
                    no_lmr,
                    rmrs,
                    keys: Keys::new(self.keys, rmrs),
                    order: self.order,
                    srqs: self.srqs,
                    srq_slots: self.srq_slots,
                    evds: self.evds,
                    events: self.events,
                    connection: ConnectionEvents::new(self.connection_events, self.free_events),
                    work: self.work,
                    arrivals: self.arrivals,
                    dto_shift: dtos.trailing_zeros(),
                    event_shift: events.trailing_zeros(),
                    ep_mask: ep_mask(eps),
                },
                posters: self.posters,
                srq_posters: self.srq_posters,
                reapers: self.reapers,
                last_ep: no_ep,
                last_lmr: no_lmr,
            },
            objects: ObjectSlots {
                pzs: self.pz_controls,
                lmrs: self.lmr_controls,
                rmrs: self.rmr_controls,
                eps: self.ep_controls,
                psps: self.psp_controls,
                rsps: self.rsp_controls,
                csps: self.csp_controls,
                srqs: self.srq_controls,
                crs: self.cr_controls,
                timers: self.ep_timers,
            },
            events: EventSlots { evds: self.evd_controls, cnos: self.cno_controls },
            conns: self.conns,
            owners: self.owners,
            upcalls: self.upcalls,
        }
    }
}

/// The bits of a completion index that are the slot of one of so many Endpoints; 131,072 at most.
fn ep_mask(eps: usize) -> u32 {
    u32::try_from(eps).unwrap_or_default().next_power_of_two() - 1
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
        + size_of::<Timer>()
        + size_of::<cm::Slot>()
        + size_of::<Owner>();
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
            offset_of!(EpShared, slow),
        ];
        assert!(lines.iter().all(|at| at % 64 == 0) && size_of::<EpShared>() == 384);
        assert_eq!(size_of::<EvdShared>(), 128);
        assert_eq!((size_of::<LmrShared>(), size_of::<RequestSlot>()), (32, 16));
    }
}
