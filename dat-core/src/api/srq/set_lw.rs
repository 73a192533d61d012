//! dat_srq_set_lw(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Srq;

impl<P: Provider> Ia<'_, P> {
    /// Sets the low watermark, and asks for one
    /// [`AsyncEvent::SrqLowWatermark`](crate::AsyncEvent::SrqLowWatermark) when fewer receives
    /// are left: at once, if that is so already. After the event it has to be set again. 0 asks
    /// for none.
    ///
    /// `INVALID_PARAMETER` above the queue's receives.
    #[doc(alias = "dat_srq_set_lw")]
    pub fn srq_set_lw(&mut self, srq: Srq, low_watermark: u16) -> Result<(), Error> {
        let control = self.objects.srqs.live(srq)?;
        if low_watermark > control.attr.max_recv_dtos {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg2));
        }
        let queue = control.queue;
        let left = self.srq_available(srq).unwrap_or(self.data.srq_outstanding(srq));
        let low = left < u32::from(low_watermark);
        // The device looks only when a receive is taken.
        let limit = if low { 0 } else { low_watermark };
        self.hca.shared_arm(queue, limit)?;
        let control = self.objects.srqs.live_mut(srq)?;
        control.attr.low_watermark = low_watermark;
        control.reported = low_watermark == 0;
        if low {
            self.srq_low(srq);
        }
        Ok(())
    }
}
