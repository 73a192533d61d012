//! dat_lmr_sync_rdma_read(3).

use crate::data::shared::lmr;
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::triplet::LmrTriplet;

impl<P: Provider> Ia<'_, P> {
    /// Makes what the CPU has written in those ranges visible to a peer that reads them from now
    /// on.
    ///
    /// Needed where `lmr_sync_req` says so; elsewhere it orders the CPU's stores before the read,
    /// no more. The ranges may lie in different LMRs and zones. `INVALID_PARAMETER` for an
    /// unknown context, or a range outside its LMR.
    #[doc(alias = "dat_lmr_sync_rdma_read")]
    pub fn lmr_sync_rdma_read(&self, segments: &[LmrTriplet]) -> Result<(), DatReturn> {
        self.sync(segments, true)
    }

    pub(crate) fn sync(&self, segments: &[LmrTriplet], read: bool) -> Result<(), DatReturn> {
        let known = |triplet: &LmrTriplet| {
            triplet.len == 0
                || lmr::find(self.data.shared.lmrs, triplet.context)
                    .is_some_and(|lmr| lmr.covers(triplet))
        };
        if !segments.iter().all(known) {
            let subtype = DatSubtype::InvalidArg2;
            return Err(DatReturn::new(DatType::InvalidParameter, subtype));
        }
        self.hca.sync(read);
        Ok(())
    }
}
