//! Ways to what only some programs have.
//!
//! The drive of an adapter concerns objects of every kind: an Endpoint may take from a shared
//! queue, an Event Dispatcher may trigger a CNO. If it called what serves them, every image would
//! carry all of that, used or not. So whatever makes an object of such a kind leaves the ways to
//! its part here, and the drive goes by them. A program that never makes one does not refer to that
//! part, and the linker leaves it out. Nothing of this is on the data path.

use core::fmt;

use crate::Ia;
use crate::cm::SidrReply;
use crate::dat_return::Error;
use crate::ep::Ask;
use crate::handle::{Cno, Cr, Ep, Evd, Srq};
use crate::provider::{Provider, SharedRq};
use crate::time::Instant;

/// What has been left. `None`: no object of that kind was ever made here.
pub(crate) struct Late<P: Provider> {
    pub(crate) listening: Option<Listening<P>>,
    pub(crate) look_ups: Option<LookUps<P>>,
    pub(crate) shared_queues: Option<SharedQueues<P>>,
    pub(crate) windows: Option<Windows<P>>,
    pub(crate) watermarks: Option<Watermarks<P>>,
    pub(crate) drains: Option<Drains<P>>,
}

impl<P: Provider> Late<P> {
    pub(crate) const fn new() -> Self {
        Self {
            listening: None,
            look_ups: None,
            shared_queues: None,
            windows: None,
            watermarks: None,
            drains: None,
        }
    }

    pub(crate) fn look_ups(&self) -> Option<LookUps<P>> {
        self.look_ups.filter(|_| P::USES.datagrams)
    }

    pub(crate) fn shared_queues(&self) -> Option<SharedQueues<P>> {
        self.shared_queues.filter(|_| P::USES.shared_receives)
    }
}

impl<P: Provider> fmt::Debug for Late<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late").finish_non_exhaustive()
    }
}

/// Who listens to Event Dispatchers: CNOs and upcalls.
pub(crate) struct Listening<P: Provider> {
    /// Looks for arrivals, and tells who listens.
    pub(crate) look: fn(&mut Ia<'_, P>),
    /// An event has come.
    pub(crate) arrived: fn(&mut Ia<'_, P>, Evd),
    /// An Event Dispatcher is gone, and leaves its CNO.
    pub(crate) gone: fn(&mut Ia<'_, P>, Evd, Option<Cno>),
    /// The adapter closes.
    pub(crate) over: fn(&mut Ia<'_, P>),
}

/// Endpoints for datagrams and what they look up.
pub(crate) struct LookUps<P: Provider> {
    /// Asks for a service point.
    pub(crate) ask: Question<P>,
    /// Takes those on whose way is being found.
    pub(crate) step: fn(&mut Ia<'_, P>, Instant, Ep),
    /// An answer has come.
    pub(crate) found: fn(&mut Ia<'_, P>, &SidrReply),
    /// Nobody has answered.
    pub(crate) unanswered: fn(&mut Ia<'_, P>, Ep),
    /// Ends those of an Endpoint; the answers too, if it is said.
    pub(crate) end: fn(&mut Ia<'_, P>, Ep, bool),
    pub(crate) accept: Accept<P>,
}

/// Looks a service point up: `ep_connect`.
type Question<P> = fn(&mut Ia<'_, P>, Instant, Ep, &Ask, &[u8]) -> Result<(), Error>;

/// Answers a look-up of a peer: `cr_accept`.
type Accept<P> = fn(&mut Ia<'_, P>, Instant, Cr, Option<Ep>, &[u8]) -> Result<(), Error>;

/// Shared Receive Queues.
pub(crate) struct SharedQueues<P: Provider> {
    /// The device says that one runs low.
    pub(crate) low: fn(&mut Ia<'_, P>, SharedRq),
    /// The device gave one up.
    pub(crate) failed: fn(&mut Ia<'_, P>, SharedRq),
    pub(crate) free: fn(&mut Ia<'_, P>, Srq) -> Result<(), Error>,
}

/// Memory windows.
pub(crate) struct Windows<P: Provider> {
    /// Unbinds those of an Endpoint.
    pub(crate) renew: fn(&mut Ia<'_, P>, Ep) -> Result<(), Error>,
    /// Destroys those whose last bind has completed.
    pub(crate) retire: fn(&mut Ia<'_, P>),
    /// Destroys all.
    pub(crate) over: fn(&mut Ia<'_, P>) -> Result<(), Error>,
}

/// Watermarks of Endpoints.
pub(crate) struct Watermarks<P: Provider> {
    /// Looks at those of one; whether it has to be visited again.
    pub(crate) step: fn(&mut Ia<'_, P>, Instant, Ep) -> bool,
}

/// Graceful disconnects.
pub(crate) struct Drains<P: Provider> {
    /// Looks whether the last request of one has completed.
    pub(crate) step: fn(&mut Ia<'_, P>, Instant, Ep),
}

macro_rules! copies {
    ($($name:ident)*) => {$(
        impl<P: Provider> Clone for $name<P> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<P: Provider> Copy for $name<P> {}
    )*};
}
copies!(Listening LookUps SharedQueues Windows Watermarks Drains);
