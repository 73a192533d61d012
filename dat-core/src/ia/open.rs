//! dat_ia_open(3).

use heapless::Deque;

use super::{Ia, Owner};
use crate::cm::{Cm, Config};
use crate::counters::IaTally;
use crate::dat_return::{DatSubtype, Error};
use crate::flags::EvdFlags;
use crate::handle::{Evd, Handle};
use crate::provider::{Net, Provider};
use crate::random::Random;
use crate::shared::stack::END;
use crate::storage::Parts;
use crate::table::Table;
use crate::time::Instant;

/// Events the async Event Dispatcher holds, if the storage has as many.
const ASYNC_QLEN: u32 = 16;

/// Where asynchronous errors of an adapter go: the `async_evd_handle` that dat_ia_open(3) is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvd {
    /// `DAT_HANDLE_NULL`: to an Event Dispatcher of at least that length, which is made with the
    /// adapter and goes with it.
    New(u32),
    /// `DAT_EVD_ASYNC_EXISTS`: somebody else in the program hears of the device's errors; this
    /// adapter reports none.
    Exists,
}

impl<'s, P: Provider> Ia<'s, P> {
    /// Opens an adapter on `provider`, with all its state in `parts`: those of a
    /// [`Storage`](crate::Storage), or of memory that a host [supplies](Parts::supplied).
    ///
    /// `net` is the address it answers to. `entropy` seeds PSNs, communication IDs and key bytes:
    /// take it from the platform's source of random numbers. On an error the provider is
    /// closed.
    #[doc(alias = "dat_ia_open")]
    pub fn open(
        provider: P,
        parts: Parts<'s, P>,
        net: Net,
        now: Instant,
        entropy: u64,
    ) -> Result<Self, Error> {
        let async_evd = AsyncEvd::New(ASYNC_QLEN.min(1 << parts.shared.event_shift));
        Self::open_with(provider, parts, net, now, entropy, async_evd)
    }

    /// As [`Ia::open`], with another Event Dispatcher of asynchronous errors. `INVALID_PARAMETER`
    /// for a length of 0, `INSUFFICIENT_RESOURCES` beyond the storage's events. (One that takes
    /// other streams as well is given afterwards: [`Ia::set_async_evd`].)
    #[doc(alias = "dat_ia_open")]
    pub fn open_with(
        mut provider: P,
        parts: Parts<'s, P>,
        net: Net,
        now: Instant,
        entropy: u64,
        async_evd: AsyncEvd,
    ) -> Result<Self, Error> {
        let random = Random::new(entropy);
        if let Err(fault) = provider.set_net(&net, now) {
            let _ = provider.close();
            return Err(fault.into());
        }
        let mut ia = Self::new(provider, parts, net, now, random);
        let AsyncEvd::New(qlen) = async_evd else {
            return Ok(ia);
        };
        match ia.evd_create(qlen, EvdFlags::ASYNC) {
            Ok(evd) => {
                ia.async_evd = evd;
                ia.own_async = true;
                Ok(ia)
            }
            Err(error) => {
                let _ = ia.provider.close();
                Err(error)
            }
        }
    }

    /// An adapter with nothing in it, of which the device has not been told.
    pub(super) fn new(
        provider: P,
        parts: Parts<'s, P>,
        net: Net,
        now: Instant,
        mut random: Random,
    ) -> Self {
        let Parts {
            shared,
            posters,
            srq_posters,
            reapers,
            pzs,
            lmrs,
            rmrs,
            evds,
            cnos,
            eps,
            psps,
            rsps,
            csps,
            srqs,
            crs,
            conns,
            owners,
        } = parts;
        owners.fill(Owner::Nobody);
        posters.fill_with(|| None);
        srq_posters.fill_with(|| None);
        reapers.fill_with(|| None);
        let config = Config::new(provider.limits().node_guid);
        let seed = [random.next(), random.next()];
        // Where the handles of a kind begin: far from those of the others, so that none is taken
        // for another's.
        let first = random.next_u32();
        let first_of = |kind: u32| first.wrapping_add(kind << 28);
        Self {
            provider,
            net,
            shared,
            posters,
            srq_posters,
            reapers,
            pzs: Table::new(pzs, first_of(1)),
            lmrs: Table::new(lmrs, first_of(2)),
            rmrs: Table::new(rmrs, first_of(3)),
            evds: Table::new(evds, first_of(4)),
            cnos: Table::new(cnos, first_of(5)),
            eps: Table::new(eps, first_of(6)),
            psps: Table::new(psps, first_of(7)),
            rsps: Table::new(rsps, first_of(8)),
            csps: Table::new(csps, first_of(9)),
            srqs: Table::new(srqs, first_of(10)),
            crs: Table::new(crs, first_of(11)),
            cm: Cm::new(conns, config, seed),
            owners,
            waiting: Deque::new(),
            crowded: false,
            random,
            async_evd: Evd(Handle::new(u32::MAX, 0)),
            free_events: END,
            active: END,
            clock: now,
            worked: false,
            turn: 0,
            listened: false,
            lost: None,
            tally: IaTally::new(),
            closed: false,
            own_async: false,
            context: 0,
        }
    }

    /// Sends asynchronous errors to an Event Dispatcher of the consumer's, instead of the one they
    /// went to. The one that was made with the adapter is freed; one of the consumer's stays.
    ///
    /// `INVALID_HANDLE`/`EVD_ASYNC` of one that does not take that stream; `INVALID_STATE` if the
    /// reaper of the one that would be freed is out.
    #[doc(alias = "dat_ia_open")]
    pub fn set_async_evd(&mut self, evd: Evd) -> Result<(), Error> {
        self.evd_for(evd, EvdFlags::ASYNC, DatSubtype::InvalidHandleEvdAsync)?;
        let own = self.async_evd;
        if evd == own {
            return Ok(());
        }
        if self.own_async && self.evds.get(own.0).is_some() {
            self.reaper(own)?;
            self.evd_remove(own)?;
        }
        self.own_async = false;
        self.async_evd = evd;
        Ok(())
    }
}
