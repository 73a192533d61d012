//! dat_ia_open(3).

use heapless::Deque;

use super::late::Late;
use super::{Ia, Owner};
use crate::cm::{Cm, Config};
use crate::counters::IaTally;
use crate::dat_return::{DatSubtype, DatType, Error};
use crate::flags::EvdFlags;
use crate::handle::{Evd, Handle};
use crate::provider::{Net, Provider};
use crate::random::Random;
use crate::shared::stack::END;
use crate::storage::{Parts, Sizes, Storage, Supply};
use crate::table::Table;
use crate::time::Instant;

/// Events the async Event Dispatcher holds, if the storage has as many.
const ASYNC_QLEN: u32 = 16;

/// Where asynchronous errors of an adapter go: the `async_evd_handle` that dat_ia_open(3) is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvd {
    /// `DAT_HANDLE_NULL`: to an Event Dispatcher of at least that length, which is made with the adapter and goes with it.
    New(u32),
    /// `DAT_EVD_ASYNC_EXISTS`: somebody else in the program hears of the device's errors; this adapter reports none.
    Exists,
}

impl<'s, P: Provider> Ia<'s, P> {
    /// Opens an adapter on `provider`, with all its state in `storage`.
    ///
    /// `net` is the address it answers to. `entropy` seeds PSNs, communication IDs and key bytes: take it from the
    /// platform's source of random numbers. On an error the provider is closed.
    #[doc(alias = "dat_ia_open")]
    pub fn open<
        const EPS: usize,
        const EVDS: usize,
        const LMRS: usize,
        const DTOS: usize,
        const EVENTS: usize,
        const SRQS: usize,
    >(
        provider: P,
        storage: &'s mut Storage<P, EPS, EVDS, LMRS, DTOS, EVENTS, SRQS>,
        net: Net,
        now: Instant,
        entropy: u64,
    ) -> Result<Self, Error> {
        let qlen = u32::try_from(EVENTS).unwrap_or(ASYNC_QLEN);
        let async_evd = AsyncEvd::New(ASYNC_QLEN.min(qlen));
        Self::open_with(provider, storage, net, now, entropy, async_evd)
    }

    /// As [`Ia::open`], with another Event Dispatcher of asynchronous errors. `INVALID_PARAMETER` for a length of 0,
    /// `INSUFFICIENT_RESOURCES` beyond the storage's events. (One that takes other streams as well is given afterwards:
    /// [`Ia::set_async_evd`].)
    #[doc(alias = "dat_ia_open")]
    pub fn open_with<
        const EPS: usize,
        const EVDS: usize,
        const LMRS: usize,
        const DTOS: usize,
        const EVENTS: usize,
        const SRQS: usize,
    >(
        provider: P,
        storage: &'s mut Storage<P, EPS, EVDS, LMRS, DTOS, EVENTS, SRQS>,
        net: Net,
        now: Instant,
        entropy: u64,
        async_evd: AsyncEvd,
    ) -> Result<Self, Error> {
        Self::open_parts(provider, storage.split(), net, now, entropy, async_evd)
    }

    /// As [`Ia::open`], of sizes that are known when the program runs, in memory that the host supplies. `INVALID_PARAMETER` also
    /// for sizes that do not fit together.
    #[doc(alias = "dat_ia_open")]
    pub fn open_supplied(
        mut provider: P,
        supply: &mut impl Supply<'s>,
        sizes: &Sizes,
        net: Net,
        now: Instant,
        entropy: u64,
    ) -> Result<Self, Error> {
        let Some(parts) = Parts::supplied(supply, sizes) else {
            let _ = provider.close();
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::None));
        };
        let async_evd = AsyncEvd::New(ASYNC_QLEN.min(sizes.events));
        Self::open_parts(provider, parts, net, now, entropy, async_evd)
    }

    fn open_parts(
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
        let mut ia = Self::new(provider, parts, net, random);
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
    pub(super) fn new(provider: P, parts: Parts<'s, P>, net: Net, mut random: Random) -> Self {
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
        Self {
            provider,
            net,
            shared,
            posters,
            srq_posters,
            reapers,
            pzs: Table::new(pzs, random.next_u32()),
            lmrs: Table::new(lmrs, random.next_u32()),
            rmrs: Table::new(rmrs, random.next_u32()),
            evds: Table::new(evds, random.next_u32()),
            cnos: Table::new(cnos, random.next_u32()),
            eps: Table::new(eps, random.next_u32()),
            psps: Table::new(psps, random.next_u32()),
            rsps: Table::new(rsps, random.next_u32()),
            csps: Table::new(csps, random.next_u32()),
            srqs: Table::new(srqs, random.next_u32()),
            crs: Table::new(crs, random.next_u32()),
            cm: Cm::new(conns, config, seed),
            owners,
            waiting: Deque::new(),
            crowded: false,
            random,
            async_evd: Evd(Handle::new(u32::MAX, 0)),
            active: END,
            retiring: 0,
            worked: false,
            turn: 0,
            listeners: 0,
            late: Late::new(),
            lost: None,
            tally: IaTally::new(),
            closed: false,
            own_async: false,
            context: 0,
        }
    }

    /// Sends asynchronous errors to an Event Dispatcher of the consumer's, instead of the one they went to. The one that was
    /// made with the adapter is freed; one of the consumer's stays.
    ///
    /// `INVALID_HANDLE`/`EVD_ASYNC` of one that does not take that stream; `INVALID_STATE` if the reaper of the one that would be
    /// freed is out.
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
