//! dat_ia_reserved_lmr, of kDAPL.

use crate::api::lmr::query::LmrParam;
use crate::engine::Ia;
use crate::engine::control::lmr::Wanted;
use crate::objects::lmr::{LmrControl, MemType};
use crate::objects::table::Table;
use crate::provider::{Provider, Region};
use crate::types::dat_return::Error;
use crate::types::flags::{MemPriv, VaType};
use crate::types::handle::{Lmr, Pz};

impl<P: Provider> Ia<'_, P> {
    /// The reserved LMR of a zone: all memory that the device reaches, by its device address, for
    /// local buffers of the zone's Endpoints. No RMR is bound to it, no peer is given it, and
    /// it goes with the zone.
    ///
    /// kDAPL has one for all zones. Here each zone has its own, made when it is first asked for: a
    /// key that every queue pair may use would be one that a queue pair of another zone uses by
    /// mistake. `INVALID_HANDLE`, `INSUFFICIENT_RESOURCES`.
    #[doc(alias = "dat_ia_reserved_lmr")]
    pub fn ia_reserved_lmr(&mut self, pz: Pz) -> Result<LmrParam, Error> {
        self.objects.pzs.live(pz)?;
        if let Some(lmr) = self.objects.lmrs.reserved(pz) {
            return self.lmr_query(lmr);
        }
        let wanted = Wanted {
            pz,
            mem_type: MemType::Ia,
            va_type: VaType::Va,
            region: Region { addr: 0, len: u64::MAX },
            privileges: MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE,
            pages: 0,
        };
        let made = self.lmr_enter(&wanted, P::mr_reserved)?;
        self.objects.lmrs.file(made.lmr.0, Some(pz.0.index()));
        // It does not keep its zone.
        self.objects.pzs.release(Some(pz));
        Ok(made)
    }
}

impl Table<'_, LmrControl> {
    /// The reserved LMR of a zone, if it has been asked for.
    pub(crate) fn reserved(&self, pz: Pz) -> Option<Lmr> {
        let is = |control: &LmrControl| control.mem_type == MemType::Ia && control.pz == pz;
        self.numbered(pz.0.index(), is).map(Lmr)
    }
}
