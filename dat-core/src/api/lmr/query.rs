//! dat_lmr_query(3).

use core::sync::atomic::Ordering;

use crate::data::shared::lmr::OPEN;
use crate::engine::Ia;
use crate::objects::lmr::MemType;
use crate::provider::{Provider, Region};
use crate::types::dat_return::Error;
use crate::types::flags::{MemPriv, VaType};
use crate::types::handle::{Lmr, Pz};
use crate::types::triplet::{LmrTriplet, RmrTriplet};

/// `DAT_LMR_STATE`, of kDAPL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LmrState {
    /// It is for fast registrations.
    pub fmr_support: bool,
    /// And one has opened it, as of the newest request posted.
    pub bound: bool,
}

/// `DAT_LMR_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LmrParam {
    /// The LMR.
    pub lmr: Lmr,
    /// What kind of memory it is of.
    pub mem_type: MemType,
    /// Its Protection Zone.
    pub pz: Pz,
    /// What may be done through it.
    pub privileges: MemPriv,
    /// By what triplets name its first byte.
    pub va_type: VaType,
    /// What local triplets carry.
    pub lmr_context: u32,
    /// What a peer's triplets carry; 0 without a remote privilege.
    pub rmr_context: u32,
    /// The registered range; of pages, from the device address of the first on.
    pub region: Region,
    /// Of an LMR for fast registrations.
    pub state: LmrState,
}

impl LmrParam {
    /// What triplets name its first byte by.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.va_type.start(self.region.addr)
    }

    /// `len` bytes from `offset` on, as a segment of a local request. The post checks that they lie
    /// inside.
    #[must_use]
    pub const fn local(&self, offset: u64, len: u32) -> LmrTriplet {
        LmrTriplet { addr: self.base().saturating_add(offset), len, context: self.lmr_context }
    }

    /// The same for the requests of a peer, which needs a remote privilege.
    #[must_use]
    pub const fn remote(&self, offset: u64, len: u32) -> RmrTriplet {
        RmrTriplet { addr: self.base().saturating_add(offset), len, context: self.rmr_context }
    }
}

impl<P: Provider> Ia<'_, P> {
    /// What the LMR is.
    #[doc(alias = "dat_lmr_query")]
    pub fn lmr_query(&self, lmr: Lmr) -> Result<LmrParam, Error> {
        let control = self.objects.lmrs.live(lmr)?;
        let remote = control.privileges.intersects(MemPriv::REMOTE | MemPriv::REMOTE_ATOMIC);
        let bound = self.data.shared.lmrs.get(lmr.0.index() as usize);
        let bound = bound.map_or(0, |shared| shared.bound.load(Ordering::Acquire));
        Ok(LmrParam {
            lmr,
            mem_type: control.mem_type,
            pz: control.pz,
            privileges: control.privileges,
            va_type: control.va_type,
            lmr_context: control.context,
            rmr_context: if remote { control.rkey } else { 0 },
            region: control.region,
            state: LmrState { fmr_support: control.pages != 0, bound: bound & OPEN != 0 },
        })
    }
}
