//! dat_evd_modify_cno(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::{Cno, Evd};

impl<P: Provider> Ia<'_, P> {
    /// Attaches the Event Dispatcher to another CNO, or to none. What arrived before the call
    /// triggers the old one, what arrives afterwards the new one. The last Event Dispatcher of
    /// a CNO releases its waiters.
    ///
    /// `INVALID_HANDLE` with the subtype of the handle that is stale; `MODEL_NOT_SUPPORTED` for one
    /// that makes upcalls.
    #[doc(alias = "dat_evd_modify_cno")]
    pub fn evd_modify_cno(&mut self, evd: Evd, cno: Option<Cno>) -> Result<(), Error> {
        let control = self.events.evds.live_mut(evd)?;
        let (old, upcalls) = (control.cno, control.upcalls.is_some());
        if let Some(cno) = cno {
            self.events.cnos.live(cno)?;
            if upcalls {
                return Err(crate::api::evd::modify_upcall::NOT_BOTH);
            }
        }
        if old == cno {
            return Ok(());
        }
        self.look_in(evd);
        self.events.evds.live_mut(evd)?.cno = cno;
        self.events.cno_attach(cno);
        self.events.cno_detach(old);
        if old.is_none() {
            self.overlook(evd);
        }
        Ok(())
    }
}
