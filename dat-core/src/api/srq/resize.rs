//! dat_srq_resize(3).

use core::sync::atomic::Ordering;

use crate::engine::Ia;
use crate::engine::queue_pair::max_srq_dtos;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Srq;

impl<P: Provider> Ia<'_, P> {
    /// Changes how many receives the queue takes. Nothing posted is lost.
    ///
    /// `INVALID_PARAMETER` for 0, `INSUFFICIENT_RESOURCES` for more than the adapter has;
    /// `INVALID_STATE` for fewer than are outstanding (`SRQ_IN_USE`) or than the low watermark,
    /// and nothing has changed.
    #[doc(alias = "dat_srq_resize")]
    pub fn srq_resize(&mut self, srq: Srq, max_recv_dtos: u16) -> Result<(), Error> {
        let low_watermark = self.objects.srqs.live(srq)?.attr.low_watermark;
        if max_recv_dtos == 0 {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg2));
        }
        if max_recv_dtos > max_srq_dtos(self.hca.limits(), &self.data.shared) {
            return Err(Error::new(DatType::InsufficientResources, DatSubtype::ResourceSrq));
        }
        let refused = |subtype| Err(Error::new(DatType::InvalidState, subtype));
        if u32::from(max_recv_dtos) < self.data.srq_outstanding(srq) {
            return refused(DatSubtype::InvalidStateSrqInUse);
        }
        if max_recv_dtos < low_watermark {
            return refused(DatSubtype::InvalidStateSrqOperational);
        }
        if let Some(line) = self.data.shared.srqs.get(srq.0.index() as usize) {
            line.most.store(max_recv_dtos.into(), Ordering::Relaxed);
        }
        self.objects.srqs.live_mut(srq)?.attr.max_recv_dtos = max_recv_dtos;
        Ok(())
    }
}
