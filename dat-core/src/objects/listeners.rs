//! Service points: who listens on a port.

use crate::cm::wire::reason::Reason;
use crate::cm::wire::service::ServiceId;
use crate::objects::psp::Listener;
use crate::objects::{Events, Objects};
use crate::provider::Mtu;
use crate::types::flags::PspFlag;
use crate::types::handle::{Csp, Evd, Psp, Rsp};

impl Objects<'_> {
    /// The service point, of whatever kind, that has `port`.
    pub(crate) fn listener(&self, port: u16) -> Option<Listener> {
        let number = u32::from(port);
        let psp = self.psps.numbered(number, |_| true);
        let rsp = || self.rsps.numbered(number, |_| true);
        let csp = || self.csps.numbered(number, |_| true);
        psp.map(|psp| Listener::Psp(Psp(psp)))
            .or_else(|| rsp().map(|rsp| Listener::Rsp(Rsp(rsp))))
            .or_else(|| csp().map(|csp| Listener::Csp(Csp(csp))))
    }

    /// The service point of a service.
    pub(crate) fn listener_of(&self, service: ServiceId) -> Result<Listener, Reason> {
        let listener = service.port().and_then(|port| self.listener(port));
        listener.ok_or(Reason::INVALID_SERVICE_ID)
    }

    /// Where requests to a service point go, if it still listens.
    pub(crate) fn requests_of(&self, listener: Listener) -> Result<Evd, Reason> {
        let evd = match listener {
            Listener::Psp(psp) => self.psps.live(psp).map(|psp| psp.evd),
            Listener::Rsp(_) if self.is_spent(listener) => return Err(Reason::INVALID_SERVICE_ID),
            Listener::Rsp(rsp) => self.rsps.live(rsp).map(|rsp| rsp.evd),
            Listener::Csp(csp) => self.csps.live(csp).map(|csp| csp.evd),
        };
        evd.map_err(|_| Reason::INVALID_SERVICE_ID)
    }

    /// The service point of a service, if a connection can be asked for there now: else why not.
    /// `longest` is the largest MTU of this side.
    pub(crate) fn admits(
        &self,
        events: &Events<'_>,
        longest: Mtu,
        service: ServiceId,
        mtu: Mtu,
    ) -> Result<(), Reason> {
        let listener = self.listener_of(service)?;
        // The peer would send packets of that size: a smaller MTU on this side alone refuses its
        // first long message.
        if mtu > longest {
            return Err(Reason::INVALID_MTU);
        }
        if !events.has_room(self.requests_of(listener)?) || self.crs.is_full() {
            return Err(Reason::NO_RESOURCES);
        }
        Ok(())
    }

    /// Whether it listens no more.
    pub(crate) fn is_spent(&self, listener: Listener) -> bool {
        match listener {
            Listener::Rsp(rsp) => self.rsps.live(rsp).is_ok_and(|control| control.used),
            Listener::Psp(_) | Listener::Csp(_) => false,
        }
    }

    /// The PSP that look-ups may come to. Reserved and common service points are for connections,
    /// and so are the Endpoints that the provider makes.
    pub(crate) fn for_look_ups(&self, listener: Listener) -> Result<Psp, Reason> {
        let Listener::Psp(psp) = listener else {
            return Err(Reason::INVALID_SERVICE_ID);
        };
        let control = self.psps.live(psp).map_err(|_| Reason::INVALID_SERVICE_ID)?;
        if control.flag == PspFlag::Provider {
            return Err(Reason::NO_QP);
        }
        Ok(psp)
    }
}
