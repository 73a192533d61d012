//! dat_srq_create(3).

use core::sync::atomic::Ordering;

use crate::data::srq_poster::SrqEnd;
use crate::engine::Ia;
use crate::engine::queue_pair::{max_iov, max_srq_dtos};
use crate::objects::srq::{SrqAttr, SrqControl};
use crate::provider::{Provider, SharedRqInit};
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::{Pz, Srq};

impl<P: Provider> Ia<'_, P> {
    /// Makes a Shared Receive Queue, empty and without Endpoints.
    ///
    /// `INVALID_HANDLE`; `INVALID_PARAMETER` for no receives or no segments, for more than the
    /// adapter has, and for a low watermark above the receives; `MODEL_NOT_SUPPORTED` where the
    /// adapter has no such queues; `INSUFFICIENT_RESOURCES`.
    #[doc(alias = "dat_srq_create")]
    pub fn srq_create(&mut self, pz: Pz, attr: &SrqAttr) -> Result<Srq, Error> {
        let pd = self.objects.pzs.live(pz)?.pd;
        if self.hca.limits().max_shared == 0 {
            return Err(Error::new(DatType::ModelNotSupported, DatSubtype::None));
        }
        let most = max_srq_dtos(self.hca.limits(), &self.data.shared);
        let legal = attr.max_recv_dtos != 0
            && attr.max_recv_iov != 0
            && attr.max_recv_dtos <= most
            && attr.max_recv_iov <= max_iov(self.hca.limits())
            && attr.low_watermark <= attr.max_recv_dtos;
        if !legal {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg3));
        }
        let full = Error::new(DatType::InsufficientResources, DatSubtype::ResourceSrq);
        let handle = self.objects.srqs.vacant().ok_or(full)?;
        // As long as it may ever become: a resize then moves nothing.
        let (queue, rq) = self.hca.shared_create(&SharedRqInit {
            pd,
            receives: most,
            segments: attr.max_recv_iov,
        })?;
        if let Some(shared) = self.data.shared.srqs.get(handle.index() as usize) {
            shared.posted.store(0, Ordering::Relaxed);
            shared.done.store(0, Ordering::Relaxed);
            shared.most.store(attr.max_recv_dtos.into(), Ordering::Relaxed);
            shared.free.clear();
            let first = (handle.index() as usize) << self.data.shared.dto_shift;
            let slots = self.data.shared.srq_slots.get(first..).unwrap_or_default();
            for slot in slots.iter().take(1 << self.data.shared.dto_shift) {
                slot.link.hold();
            }
        }
        let control =
            SrqControl { pz, queue, attr: *attr, reported: true, failed: false, users: 0 };
        let srq = self.objects.srqs.insert(control).map(Srq).ok_or(full)?;
        self.objects.srqs.file(srq.0, Some(queue.0));
        if let Some(place) = self.data.srq_posters.get_mut(handle.index() as usize) {
            let longest = self.hca.limits().max_message;
            let end = SrqEnd::new(handle.index(), rq, pz, attr.max_recv_iov, longest);
            *place = Some(end);
        }
        self.objects.pzs.hold(Some(pz));
        if attr.low_watermark != 0 {
            if let Err(error) = self.srq_set_lw(srq, attr.low_watermark) {
                // The first failure is the one to tell.
                let _ = self.srq_free(srq);
                return Err(error);
            }
        }
        Ok(srq)
    }
}
