//! dat_evd_kcreate(3), of kDAPL: an Event Dispatcher that makes upcalls instead of being waited
//! for.

use core::fmt;

use crate::Ia;
use crate::dat_return::Error;
use crate::event::Event;
use crate::flags::EvdFlags;
use crate::handle::Evd;
use crate::provider::Provider;

/// `DAT_UPCALL_POLICY`: when upcalls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum UpcallPolicy {
    /// Never: events are queued.
    Disable = 0,
    /// One at a time.
    SingleInstance = 1,
    /// Several at a time, as far as there are threads. An adapter belongs to one thread, so it is
    /// one at a time.
    Many = 100,
    /// No more, and what is under way has returned.
    Teardown = -1,
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

/// What the control half knows of the upcalls of one Event Dispatcher.
#[derive(Debug)]
pub(crate) struct Upcalls<P: Provider> {
    pub(crate) policy: UpcallPolicy,
    pub(crate) upcall: Option<Upcall<P>>,
    /// Something has come that no upcall was made for.
    pub(crate) news: bool,
    /// One is under way.
    pub(crate) inside: bool,
}

impl<P: Provider> Ia<'_, P> {
    /// Makes an Event Dispatcher that calls `upcall` with each of its events; without one, when one
    /// has been given by [`Ia::evd_modify_upcall`]. It can be dequeued from as any other.
    /// Errors as for [`Ia::evd_create`].
    #[doc(alias = "dat_evd_kcreate")]
    pub fn evd_kcreate(
        &mut self,
        min_qlen: u32,
        policy: UpcallPolicy,
        upcall: Option<Upcall<P>>,
        flags: EvdFlags,
    ) -> Result<Evd, Error> {
        let upcalls = Upcalls { policy, upcall, news: false, inside: false };
        self.events.listened = true;
        self.evd_make(min_qlen, flags, Some(upcalls))
    }
}
