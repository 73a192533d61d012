//! dat_ep_post_rdma_read_to_rmr (2.0).

use crate::data::poster::EpPoster;
use crate::data::shared::Shared;
use crate::data::shared::lmr::Refusal;
use crate::data::validate::PARAMETER;
use crate::engine::Ia;
use crate::provider::{Provider, WorkRequest};
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::flags::CompletionFlags;
use crate::types::handle::Ep;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

/// The memory behind a range of an own RMR, as a segment of its LMR: what a window opens is local
/// memory, and the HCA scatters into it by the key of the region.
fn behind(shared: &Shared<'_>, local: &RmrTriplet) -> Result<LmrTriplet, DatReturn> {
    let privilege = DatReturn::new(DatType::PrivilegesViolation, DatSubtype::PrivilegesRdmaRead);
    let window = shared.keys.find(local.context).ok_or(privilege)?;
    window.beneath(local).map_err(|refusal| match refusal {
        Refusal::Range => DatReturn::new(PARAMETER, DatSubtype::InvalidArg2),
        Refusal::Context | Refusal::Privilege | Refusal::Zone => privilege,
    })
}

impl<P: Provider> EpPoster<'_, P> {
    /// Posts an RDMA read of `remote` into a range of an own RMR that is bound and grants remote
    /// write: what iWARP needs, and other transports take.
    ///
    /// Endpoint and errors as for [`EpPoster::post_rdma_read`]; `PRIVILEGES_VIOLATION` for a
    /// context that opens nothing or grants no write, `INVALID_PARAMETER` for a range outside
    /// it.
    #[doc(alias = "dat_ep_post_rdma_read_to_rmr")]
    pub fn post_rdma_read_to_rmr(
        &mut self,
        local: &RmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        let segment = behind(&self.shared, local)?;
        let (work, list) = (WorkRequest::Read(remote), core::slice::from_ref(&segment));
        self.poster.post_slow(&self.shared, work, list, cookie, flags)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// As [`EpPoster::post_rdma_read_to_rmr`], by handle.
    #[doc(alias = "dat_ep_post_rdma_read_to_rmr")]
    pub fn ep_post_rdma_read_to_rmr(
        &mut self,
        ep: Ep,
        local: &RmrTriplet,
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<(), DatReturn> {
        self.posting(ep)?;
        let segment = behind(&self.data.shared, local)?;
        let list = core::slice::from_ref(&segment);
        self.ep_post_rdma_read(ep, list, cookie, remote, flags)
    }
}
