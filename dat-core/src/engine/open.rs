//! dat_ia_open(3).

use heapless::Vec;

use crate::cm::Cm;
use crate::cm::params::Config;
use crate::engine::connections::{Connections, Owner};
use crate::engine::counters::IaTally;
use crate::engine::storage::Parts;
use crate::engine::waiting::Waiting;
use crate::engine::{Ia, Lifecycle};
use crate::fault;
use crate::objects::{Events, Objects};
use crate::provider::{Fault, Net, Provider};
use crate::types::activity::Activity;
use crate::types::dat_return::{DatSubtype, Error};
use crate::types::flags::EvdFlags;
use crate::types::handle::Evd;
use crate::types::random::Random;
use crate::types::time::Instant;

/// Events the async Event Dispatcher holds, if the storage has as many.
const ASYNC_QLEN: u32 = 16;

const NO_ENTROPY: Fault = fault!(
    BadParameter,
    "open",
    "the entropy is all zeros, so peers could guess keys and IDs",
    "take 32 bytes from the platform's source of random numbers",
);

/// Where asynchronous errors of an adapter go: the `async_evd_handle` that dat_ia_open(3) is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvd {
    /// `DAT_HANDLE_NULL`: to an Event Dispatcher of at least that length, which is made with the
    /// adapter and goes with it.
    New(u32),
    /// `DAT_EVD_ASYNC_EXISTS`: another part of the program receives the device's errors; this
    /// adapter reports none.
    Exists,
}

impl<'s, P: Provider> Ia<'s, P> {
    /// Opens an adapter on `provider`, with all its state in `parts`: those of a
    /// [`Storage`](crate::Storage), or of memory that a host [supplies](Parts::supplied).
    ///
    /// `net` is the address it answers to. `entropy` seeds PSNs, communication IDs and key bytes:
    /// 32 bytes of the platform's source of random numbers; a host that has none opens no
    /// adapter, so zeros are an error. On an error the provider is closed.
    #[doc(alias = "dat_ia_open")]
    pub fn open(
        provider: P,
        parts: Parts<'s, P>,
        net: Net,
        now: Instant,
        entropy: [u8; 32],
    ) -> Result<Self, Error> {
        let async_evd = AsyncEvd::New(ASYNC_QLEN.min(1 << parts.data.shared.event_shift));
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
        entropy: [u8; 32],
        async_evd: AsyncEvd,
    ) -> Result<Self, Error> {
        let set = if entropy == [0; 32] { Err(NO_ENTROPY) } else { provider.set_net(&net, now) };
        if let Err(fault) = set {
            let _ = provider.close();
            return Err(fault.into());
        }
        provider.report(|| Activity::Opened(net.addr));
        let mut ia = Self::new(provider, parts, net, now, Random::new(entropy));
        let AsyncEvd::New(qlen) = async_evd else {
            return Ok(ia);
        };
        match ia.evd_create(qlen, EvdFlags::ASYNC) {
            Ok(evd) => {
                ia.events.async_evd = evd;
                ia.events.own_async = true;
                Ok(ia)
            }
            Err(error) => {
                let _ = ia.hca.close();
                Err(error)
            }
        }
    }

    /// An adapter with nothing in it, which the device does not know of.
    pub(crate) fn new(
        mut provider: P,
        parts: Parts<'s, P>,
        net: Net,
        now: Instant,
        mut random: Random,
    ) -> Self {
        let Parts { mut data, objects, events, conns, owners, upcalls } = parts;
        data.clear();
        owners.fill(Owner::Nobody);
        upcalls.fill(None);
        let limits = provider.limits();
        let config = Config { link: limits.link, ..Config::new(limits.node_guid) };
        let cm = Cm::new(conns, config, random.fork());
        let first = random.next_u32();
        let first_of = |kind: u32| first.wrapping_add(kind << 28);
        let mut bytes = random.fork();
        data.shared.order.fill(|| bytes.next_byte());
        provider.set_key_order(data.shared.order);
        Self {
            hca: provider,
            net,
            random,
            counters: IaTally::new(),
            lifecycle: Lifecycle {
                clock: now,
                lost: None,
                warning: None,
                closed: false,
                context: 0,
            },
            objects: Objects::new(data.shared, objects, first_of),
            events: Events::new(data.shared, events, first_of),
            data,
            upcalls,
            connections: Connections {
                cm,
                local: net.addr,
                owners,
                ready: Vec::new(),
                waiting: Waiting::new(),
                stalled: None,
            },
        }
    }

    /// Sends asynchronous errors to an Event Dispatcher of the consumer's, instead of the one they
    /// went to. The one that was made with the adapter is freed; one of the consumer's stays.
    ///
    /// `INVALID_HANDLE`/`EVD_ASYNC` of one that does not take that stream; `INVALID_STATE` if the
    /// reaper of the one that would be freed is out.
    #[doc(alias = "dat_ia_open")]
    pub fn set_async_evd(&mut self, evd: Evd) -> Result<(), Error> {
        self.events.evd_for(evd, EvdFlags::ASYNC, DatSubtype::InvalidHandleEvdAsync)?;
        let own = self.events.async_evd;
        if evd == own {
            return Ok(());
        }
        if self.events.own_async && self.events.evds.get(own.0).is_some() {
            self.reaper(own)?;
            self.evd_remove(own)?;
        }
        self.events.own_async = false;
        self.events.async_evd = evd;
        Ok(())
    }
}
