//! dat_ia_open(3).

use heapless::Deque;

use super::{Ia, Owner};
use crate::cm::{Cm, Config};
use crate::dat_return::Error;
use crate::flags::EvdFlags;
use crate::handle::{Evd, Handle};
use crate::provider::{Net, Provider};
use crate::random::Random;
use crate::shared::stack::END;
use crate::storage::{Parts, Storage};
use crate::table::Table;
use crate::time::Instant;

/// Events the async Event Dispatcher holds, if the storage has as many.
const ASYNC_QLEN: u32 = 16;

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
    >(
        mut provider: P,
        storage: &'s mut Storage<P, EPS, EVDS, LMRS, DTOS, EVENTS>,
        net: Net,
        now: Instant,
        entropy: u64,
    ) -> Result<Self, Error> {
        let mut random = Random::new(entropy);
        if let Err(fault) = provider.set_net(&net, now) {
            let _ = provider.close();
            return Err(fault.into());
        }
        let Parts {
            shared,
            posters,
            reapers,
            pzs,
            lmrs,
            rmrs,
            evds,
            eps,
            psps,
            crs,
            conns,
            owners,
        } = storage.split();
        owners.fill(Owner::Nobody);
        posters.fill_with(|| None);
        reapers.fill_with(|| None);
        let config = Config::new(provider.limits().node_guid);
        let seed = [random.next(), random.next()];
        let mut ia = Self {
            provider,
            net,
            shared,
            posters,
            reapers,
            pzs: Table::new(pzs, random.next_u32()),
            lmrs: Table::new(lmrs, random.next_u32()),
            rmrs: Table::new(rmrs, random.next_u32()),
            evds: Table::new(evds, random.next_u32()),
            eps: Table::new(eps, random.next_u32()),
            psps: Table::new(psps, random.next_u32()),
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
            lost: None,
        };
        let qlen = ASYNC_QLEN.min(1 << ia.shared.event_shift);
        match ia.evd_create(qlen, EvdFlags::ASYNC) {
            Ok(evd) => {
                ia.async_evd = evd;
                Ok(ia)
            }
            Err(error) => {
                let _ = ia.provider.close();
                Err(error)
            }
        }
    }
}
