//! Service points: who listens on a port.

use crate::cm::wire::reason::Reason;
use crate::objects::Objects;
use crate::objects::psp::Listener;
use crate::types::flags::PspFlag;
use crate::types::handle::{Csp, Psp, Rsp};

impl Objects<'_> {
    /// The service point, of whatever kind, that has `port`.
    pub(crate) fn listener(&self, port: u16) -> Option<Listener> {
        let psp = self.psps.find(|control| control.port == port);
        let rsp = || self.rsps.find(|control| control.port == port);
        let csp = || self.csps.find(|control| control.address.port() == port);
        psp.map(|psp| Listener::Psp(Psp(psp)))
            .or_else(|| rsp().map(|rsp| Listener::Rsp(Rsp(rsp))))
            .or_else(|| csp().map(|csp| Listener::Csp(Csp(csp))))
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
