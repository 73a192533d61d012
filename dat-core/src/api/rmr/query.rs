//! dat_rmr_query(3).

use core::sync::atomic::Ordering;

use crate::data::shared::lmr::ZERO_BASED;
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::flags::{MemPriv, VaType};
use crate::types::handle::{Ep, Handle, Pz, Rmr};
use crate::types::triplet::LmrTriplet;

/// `DAT_RMR_SCOPE`: to whose peers an RMR opens its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RmrScope {
    /// That of the Endpoint it was bound on.
    Ep = 0,
    /// Those of all Endpoints of its zone.
    Pz = 1,
}

/// `DAT_RMR_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmrParam {
    /// Its Protection Zone.
    pub pz: Pz,
    /// The range it was last bound to, if it is.
    pub bound: Option<LmrTriplet>,
    /// What peers may do through it.
    pub privileges: MemPriv,
    /// What a peer's triplets carry.
    pub rmr_context: u32,
    /// To whose peers it opens its range.
    pub scope: RmrScope,
    /// By what those name the first byte of the range.
    pub va_type: VaType,
}

impl<P: Provider> Ia<'_, P> {
    /// The Endpoint of the newest bind, while completions of binds have not been dequeued:
    /// [`Ia::rmr_free`] can look through its completion queue only while the reaping half is
    /// not out. `INVALID_HANDLE`.
    pub fn rmr_binder(&self, rmr: Rmr) -> Result<Option<Ep>, Error> {
        self.objects.rmrs.live(rmr)?;
        let window = self.data.shared.rmrs.get(rmr.0.index() as usize);
        let window = window.filter(|window| window.binds.load(Ordering::SeqCst) != 0);
        let binder =
            window.map(|window| Ep(Handle::from_raw(window.binder.load(Ordering::Relaxed))));
        Ok(binder.filter(|&ep| self.objects.eps.live(ep).is_ok()))
    }

    /// What the RMR is, as of the newest bind posted.
    #[doc(alias = "dat_rmr_query")]
    pub fn rmr_query(&self, rmr: Rmr) -> Result<RmrParam, Error> {
        let pz = self.objects.rmrs.live(rmr)?.pz;
        let mut param = RmrParam {
            pz,
            bound: None,
            privileges: MemPriv::empty(),
            rmr_context: 0,
            scope: RmrScope::Pz,
            va_type: VaType::Va,
        };
        if let Some(shared) = self.data.shared.rmrs.get(rmr.0.index() as usize) {
            let privileges = shared.privileges.load(Ordering::Relaxed);
            param.bound = shared.bound();
            param.privileges = MemPriv::from_bits_truncate(privileges);
            param.rmr_context = shared.rkey.load(Ordering::Relaxed);
            if shared.is_for_ep() {
                param.scope = RmrScope::Ep;
            }
            if privileges & ZERO_BASED != 0 {
                param.va_type = VaType::Zb;
            }
        }
        Ok(param)
    }
}
