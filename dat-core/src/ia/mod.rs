//! The Interface Adapter: dat_ia_*(3), and the drive that turns time and news of the device into
//! progress.

mod advance;
mod close;
mod connection;
mod ha_related;
mod open;
mod open_query;
mod query;

pub use advance::Next;
pub use open::AsyncEvd;
pub use open_query::IaQuery;
pub use query::{AttrValue, IaAttr, NamedAttr, ProviderAttr};

use core::fmt;

use heapless::Deque;

use crate::cm::{Cm, ConnId, Transmit};
use crate::cno::CnoControl;
use crate::counters::IaTally;
use crate::cr::CrControl;
use crate::csp::CspControl;
use crate::dat_return::{DatSubtype, DatType, Error};
use crate::ep::EpControl;
use crate::evd::{EvdControl, Reaper};
use crate::handle::{Cr, Ep, Evd};
use crate::lmr::LmrControl;
use crate::post::Poster;
use crate::provider::{Fault, Net, Provider};
use crate::psp::PspControl;
use crate::pz::PzControl;
use crate::random::Random;
use crate::rmr::RmrControl;
use crate::rsp::RspControl;
use crate::shared::Shared;
use crate::srq::{SrqControl, SrqEnd};
use crate::table::Table;
use crate::time::Instant;

/// Datagrams whose way is still being looked up. More wait in the connection manager.
const WAITING: usize = 4;

/// Whom a connection of the connection manager belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// Nobody any more: its end is of no interest.
    Nobody,
    /// An Endpoint.
    Ep(Ep),
    /// A request that has not been answered.
    Cr(Cr),
    /// A look-up of an Endpoint for datagrams.
    LookUp(Ep, ConnId),
}

/// An Interface Adapter: one HCA, its address, and everything made on it.
///
/// This is the control half. Calls take `&mut self` and handles; a stale or foreign handle is
/// `INVALID_HANDLE`. Posting and reaping halves can be taken out and used by other threads
/// ([`EpPoster`](crate::EpPoster), [`EvdReaper`](crate::EvdReaper)). Nothing here waits:
/// [`Ia::advance`] does what is due and says when to come again.
pub struct Ia<'s, P: Provider> {
    pub(crate) provider: P,
    pub(crate) net: Net,
    pub(crate) shared: Shared<'s>,
    pub(crate) posters: &'s mut [Option<Poster<P>>],
    pub(crate) srq_posters: &'s mut [Option<SrqEnd<P>>],
    pub(crate) reapers: &'s mut [Option<Reaper<P>>],
    pub(crate) pzs: Table<'s, PzControl>,
    pub(crate) lmrs: Table<'s, LmrControl>,
    pub(crate) rmrs: Table<'s, RmrControl>,
    pub(crate) evds: Table<'s, EvdControl<P>>,
    pub(crate) cnos: Table<'s, CnoControl>,
    pub(crate) eps: Table<'s, EpControl>,
    pub(crate) psps: Table<'s, PspControl>,
    pub(crate) rsps: Table<'s, RspControl>,
    pub(crate) csps: Table<'s, CspControl>,
    pub(crate) srqs: Table<'s, SrqControl>,
    pub(crate) crs: Table<'s, CrControl>,
    pub(crate) cm: Cm<'s>,
    /// By the index of a connection.
    pub(crate) owners: &'s mut [Owner],
    pub(crate) waiting: Deque<Transmit, WAITING>,
    /// Some of these found no room in the device.
    pub(crate) crowded: bool,
    pub(crate) random: Random,
    pub(crate) async_evd: Evd,
    /// First of the slots for connection events that no Endpoint has reserved, chained through
    /// them.
    pub(crate) free_events: u32,
    /// First of the Endpoints that wait for something, chained through them.
    pub(crate) active: u32,
    /// The time of the last [`Ia::advance`], for calls that are not told it.
    pub(crate) clock: Instant,
    /// Something happened that a consumer may be waiting for.
    pub(crate) worked: bool,
    /// Batches of notices heard; see [`EpControl::born`].
    pub(crate) turn: u32,
    /// Somebody may listen to Event Dispatchers: a CNO or upcalls were made.
    pub(crate) listened: bool,
    /// Why the device is lost, if it is.
    pub(crate) lost: Option<Fault>,
    pub(crate) tally: IaTally,
    /// [`Ia::close`] has succeeded, or done what it could.
    pub(crate) closed: bool,
    /// The async Event Dispatcher was made with the adapter.
    pub(crate) own_async: bool,
    /// The consumer's own word.
    pub(crate) context: u64,
}

impl<P: Provider> fmt::Debug for Ia<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ia")
            .field("net", &self.net)
            .field("eps", &self.eps.len())
            .field("evds", &self.evds.len())
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl<P: Provider> Ia<'_, P> {
    /// `INVALID_HANDLE` behind [`Ia::close`]: before whatever makes an object.
    pub(crate) fn alive(&self) -> Result<(), Error> {
        if self.closed {
            Err(Error::new(DatType::InvalidHandle, DatSubtype::InvalidHandleIa))
        } else {
            Ok(())
        }
    }

    /// `MODEL_NOT_SUPPORTED` for what the adapter does not have.
    pub(crate) const fn offered(part: bool) -> Result<(), Error> {
        if part { Ok(()) } else { Err(Error::new(DatType::ModelNotSupported, DatSubtype::None)) }
    }

    /// The Event Dispatcher of asynchronous errors. Stale, if the adapter was opened without one
    /// ([`AsyncEvd::Exists`]).
    #[must_use]
    pub fn async_evd(&self) -> Evd {
        self.async_evd
    }

    /// The HCA beneath, for what DAT does not know of.
    #[must_use]
    pub fn provider(&self) -> &P {
        &self.provider
    }

    /// The HCA beneath, to change what DAT does not know of.
    pub fn provider_mut(&mut self) -> &mut P {
        &mut self.provider
    }

    /// Why the device is lost, if it is.
    #[must_use]
    pub fn lost(&self) -> Option<&Fault> {
        self.lost.as_ref()
    }

    /// What went over the wire to set up and end connections.
    #[must_use]
    pub fn cm_counters(&self) -> crate::cm::Counters {
        self.cm.counters()
    }

    /// Connections whose end the peer has not confirmed yet: who closes the adapter before leaves
    /// some peers waiting, if what told them was lost.
    #[must_use]
    pub fn cm_ending(&self) -> usize {
        self.cm.ending()
    }

    pub(crate) fn own(&mut self, conn: ConnId, owner: Owner) {
        if let Some(place) = self.owners.get_mut(conn.index()) {
            *place = owner;
        }
    }

    pub(crate) fn owner(&self, conn: ConnId) -> Owner {
        let owner = self.owners.get(conn.index()).copied().unwrap_or(Owner::Nobody);
        let current = match owner {
            Owner::Nobody => None,
            Owner::Ep(ep) => self.eps.get(ep.0).and_then(|control| control.conn),
            Owner::Cr(cr) => self.crs.get(cr.0).and_then(|control| control.conn),
            Owner::LookUp(ep, of) => self.eps.get(ep.0).map(|_| of),
        };
        if current == Some(conn) { owner } else { Owner::Nobody }
    }
}
