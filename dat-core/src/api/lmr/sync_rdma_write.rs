//! dat_lmr_sync_rdma_write(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::DatReturn;
use crate::types::triplet::LmrTriplet;

impl<P: Provider> Ia<'_, P> {
    /// Makes what a peer has written in those ranges visible to the CPU from now on.
    ///
    /// As [`Ia::lmr_sync_rdma_read`], the other way.
    #[doc(alias = "dat_lmr_sync_rdma_write")]
    pub fn lmr_sync_rdma_write(&self, segments: &[LmrTriplet]) -> Result<(), DatReturn> {
        self.sync(segments, false)
    }
}
