//! dat_ep_set_watermark(3).

use super::{EpOp, EpState};
use crate::dat_return::Error;
use crate::event::AsyncEvent;
use crate::handle::Ep;
use crate::ia::Ia;
use crate::provider::Provider;
use crate::time::Instant;

/// `DAT_WATERMARK_INFINITE`: more than any Endpoint holds.
pub(super) const INFINITE: u32 = u32::MAX;

impl<P: Provider> Ia<'_, P> {
    /// Sets both high watermarks of the receives that the Endpoint holds ([`Ia::ep_recv_query`]);
    /// `None` is `DAT_WATERMARK_INFINITE`. Any state.
    ///
    /// More than the soft one raise [`AsyncEvent::EpSoftHighWatermark`], once per setting; more
    /// than the hard one break the connection. Both are looked at now and by [`Ia::advance`].
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

    /// Holds the receives of an Endpoint against its watermarks; whether it has any left to watch.
    pub(crate) fn watermark_step(&mut self, now: Instant, ep: Ep) -> bool {
        let Ok(control) = self.objects.eps.live(ep) else {
            return false;
        };
        let (mut soft, hard) = (control.soft, control.hard);
        if (soft, hard) == (INFINITE, INFINITE) {
            return false;
        }
        let Some(held) = self.held(ep) else {
            return true;
        };
        if held > soft {
            soft = INFINITE;
            if let Ok(control) = self.objects.eps.live_mut(ep) {
                control.soft = soft;
            }
            let event = AsyncEvent::EpSoftHighWatermark(ep);
            self.events.report(event);
        }
        let open = matches!(
            self.objects.state_of(ep),
            Ok(EpState::Connected | EpState::DisconnectPending)
        );
        if open && held > hard {
            self.drop_connection(now, ep);
            self.apply(ep, EpOp::Broken);
        }
        (soft, hard) != (INFINITE, INFINITE)
    }
}
