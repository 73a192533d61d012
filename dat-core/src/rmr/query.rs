//! dat_rmr_query(3).

use core::sync::atomic::Ordering;

use crate::Ia;
use crate::dat_return::Error;
use crate::flags::MemPriv;
use crate::handle::{Pz, Rmr};
use crate::provider::Provider;
use crate::shared::lmr::NO_CONTEXT;
use crate::triplet::LmrTriplet;

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
}

impl<P: Provider> Ia<'_, P> {
    /// What the RMR is, as of the newest bind posted.
    #[doc(alias = "dat_rmr_query")]
    pub fn rmr_query(&self, rmr: Rmr) -> Result<RmrParam, Error> {
        let pz = self.rmr(rmr)?.pz;
        let Some(shared) = self.shared.rmrs.get(rmr.0.index() as usize) else {
            return Ok(RmrParam {
                pz,
                bound: None,
                privileges: MemPriv::empty(),
                rmr_context: 0,
            });
        };
        let context = shared.lmr_context.load(Ordering::Acquire);
        let bound = (context != NO_CONTEXT).then(|| LmrTriplet {
            addr: shared.addr.load(Ordering::Relaxed),
            len: shared.len.load(Ordering::Relaxed),
            context,
        });
        Ok(RmrParam {
            pz,
            bound,
            privileges: MemPriv::from_bits_truncate(shared.privileges.load(Ordering::Relaxed)),
            rmr_context: shared.rkey.load(Ordering::Relaxed),
        })
    }
}
