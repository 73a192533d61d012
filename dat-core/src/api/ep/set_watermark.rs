//! dat_ep_set_watermark(3).

use crate::engine::Ia;
use crate::objects::ep::INFINITE;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Ep;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Sets both high watermarks of the receives that the Endpoint holds ([`Ia::ep_recv_query`]);
    /// `None` is `DAT_WATERMARK_INFINITE`. Any state.
    ///
    /// More than the soft one raise
    /// [`AsyncEvent::EpSoftHighWatermark`](crate::AsyncEvent::EpSoftHighWatermark), once per
    /// setting; more than the hard one break the connection. Both are looked at now and by
    /// [`Ia::advance`].
    #[doc(alias = "dat_ep_set_watermark")]
    pub fn ep_set_watermark(
        &mut self,
        now: Instant,
        ep: Ep,
        soft: Option<u32>,
        hard: Option<u32>,
    ) -> Result<(), Error> {
        let control = self.objects.eps.live_mut(ep)?;
        control.soft = soft.unwrap_or(INFINITE);
        control.hard = hard.unwrap_or(INFINITE);
        self.watermark_step(now, ep);
        self.objects.watch(ep);
        self.transmit(now);
        Ok(())
    }
}
