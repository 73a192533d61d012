//! dat_rsp_free(3).

use crate::engine::Ia;
use crate::objects::ep::PROVIDER_CONTROL;
use crate::objects::streams::Stream;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::ep_state::EpOp;
use crate::types::handle::Rsp;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Ends a Reserved Service Point. If its request has not come, its Endpoint is UNCONNECTED
    /// again, or goes if it was made with the service point; a request that has come stays as
    /// it is. `INVALID_STATE` while a half of such an Endpoint is out, as for
    /// [`Ia::ep_free`](Self::ep_free).
    #[doc(alias = "dat_rsp_free")]
    pub fn rsp_free(&mut self, now: Instant, rsp: Rsp) -> Result<(), Error> {
        let control = self.objects.rsps.live(rsp)?;
        let (evd, ep, used) = (control.evd, control.ep, control.used);
        let goes = control.provided && !used;
        if goes && (self.objects.poster_is_out(&self.data, ep) || !self.reapers_idle(ep.0.index()))
        {
            return Err(PROVIDER_CONTROL.into());
        }
        if !used {
            self.apply(ep, EpOp::RspFree);
        }
        self.objects.rsps.remove(rsp.0);
        self.events.detach(&[(Some(evd), Stream::Connection)]);
        if goes && self.objects.eps.live(ep).is_ok() {
            self.ep_remove(now, ep)?;
        }
        Ok(())
    }
}
