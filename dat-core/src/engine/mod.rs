//! The Interface Adapter, its storage, and the progress engine that processes device events and
//! timers.

pub(crate) mod absorb;
pub(crate) mod advance;
pub(crate) mod arrivals;
pub(crate) mod close;
pub(crate) mod cm_counters;
pub(crate) mod cm_events;
pub(crate) mod connections;
pub(crate) mod control;
pub(crate) mod counters;
pub(crate) mod datagram;
pub(crate) mod drain;
pub(crate) mod establish;
pub(crate) mod follow;
pub(crate) mod halves;
pub(crate) mod open;
pub(crate) mod queue_pair;
pub(crate) mod receives;
pub(crate) mod storage;
pub(crate) mod waiting;
pub(crate) mod windows;

use core::fmt;

use crate::cm::event::Counters;
use crate::data::DataPath;
use crate::engine::connections::Connections;
use crate::engine::counters::IaTally;
use crate::objects::{Events, Objects};
use crate::provider::{Net, Provider};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::event::Event;
use crate::types::fault::Fault;
use crate::types::handle::Evd;
use crate::types::random::Random;
use crate::types::time::Instant;

/// An Interface Adapter: one HCA, its address, and everything made on it.
///
/// This is the control half. Calls take `&mut self` and handles; a stale or foreign handle is
/// `INVALID_HANDLE`. Posting and reaping halves can be taken out and used by other threads
/// ([`EpPoster`](crate::EpPoster), [`EvdReaper`](crate::EvdReaper)). Nothing here waits:
/// [`Ia::advance`] does what is due and says when to come again.
pub struct Ia<'s, P: Provider> {
    pub(crate) hca: P,
    pub(crate) net: Net,
    pub(crate) random: Random,
    pub(crate) counters: IaTally,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) data: DataPath<'s, P>,
    pub(crate) objects: Objects<'s>,
    pub(crate) events: Events<'s>,
    pub(crate) connections: Connections<'s>,
    /// Whom an Event Dispatcher calls, by its index.
    pub(crate) upcalls: &'s mut [Option<Upcall<P>>],
}

/// Whether the adapter is open, and what is known of its time and its device.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    /// The time of the last [`Ia::advance`], for calls that do not pass it.
    pub(crate) clock: Instant,
    /// Why the device is lost, if it is.
    pub(crate) lost: Option<Fault>,
    /// The latest trouble that it reported and survived.
    pub(crate) warning: Option<Fault>,
    /// [`Ia::close`] has succeeded, or done what it could.
    pub(crate) closed: bool,
    /// The consumer's own word.
    pub(crate) context: u64,
}

impl<P: Provider> fmt::Debug for Ia<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ia")
            .field("net", &self.net)
            .field("eps", &self.objects.eps.len())
            .field("evds", &self.events.evds.len())
            .field("lost", &self.lifecycle.lost)
            .finish_non_exhaustive()
    }
}

impl<P: Provider> Ia<'_, P> {
    /// `INVALID_HANDLE` behind [`Ia::close`]: before whatever makes an object.
    pub(crate) fn alive(&self) -> Result<(), Error> {
        if self.lifecycle.closed {
            Err(Error::new(DatType::InvalidHandle, DatSubtype::InvalidHandleIa))
        } else {
            Ok(())
        }
    }

    /// The Event Dispatcher of asynchronous errors. Stale, if the adapter was opened without one
    /// ([`AsyncEvd::Exists`](crate::AsyncEvd::Exists)).
    #[must_use]
    pub fn async_evd(&self) -> Evd {
        self.events.async_evd
    }

    /// The HCA beneath, for what DAT does not know of.
    #[must_use]
    pub fn provider(&self) -> &P {
        &self.hca
    }

    /// The HCA beneath, to change what DAT does not know of.
    pub fn provider_mut(&mut self) -> &mut P {
        &mut self.hca
    }

    /// The latest trouble that the device reported and survived, if any: for a log.
    #[must_use]
    pub fn warning(&self) -> Option<&Fault> {
        self.lifecycle.warning.as_ref()
    }

    /// Why the device is lost, if it is.
    #[must_use]
    pub fn lost(&self) -> Option<&Fault> {
        self.lifecycle.lost.as_ref()
    }

    /// What went over the wire to set up and end connections.
    #[must_use]
    pub fn cm_counters(&self) -> Counters {
        *self.connections.cm.counters()
    }

    /// Connections whose end the peer has not confirmed yet: who closes the adapter before leaves
    /// some peers waiting, if the message to them was lost. See [`Ia::disconnect_all`].
    #[must_use]
    pub fn cm_ending(&self) -> usize {
        self.connections.cm.ending()
    }
}

/// `DAT_UPCALL_OBJECT`: whom an Event Dispatcher calls with each of its events.
pub struct Upcall<P: Provider> {
    /// What the consumer wants to have back.
    pub instance: u64,
    /// What is called, from [`Ia::advance`]: with the adapter, the instance, the event, and
    /// whether there are more.
    pub function: for<'a> fn(&mut Ia<'a, P>, instance: u64, event: Event, more: bool),
}

impl<P: Provider> Clone for Upcall<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Provider> Copy for Upcall<P> {}

impl<P: Provider> fmt::Debug for Upcall<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upcall({:#x})", self.instance)
    }
}
