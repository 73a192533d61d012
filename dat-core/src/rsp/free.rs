//! dat_rsp_free(3).

use crate::Ia;
use crate::dat_return::Error;
use crate::ep::EpOp;
use crate::handle::Rsp;
use crate::provider::Provider;
use crate::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Ends a Reserved Service Point. If its request has not come, its Endpoint is UNCONNECTED again, or goes if it was made with
    /// the service point; a request that has come stays as it is.
    #[doc(alias = "dat_rsp_free")]
    pub fn rsp_free(&mut self, now: Instant, rsp: Rsp) -> Result<(), Error> {
        let control = self.rsp(rsp)?;
        let (evd, ep) = (control.evd, control.ep);
        let goes = control.provided && !control.used;
        if !control.used {
            self.apply(ep, EpOp::RspFree);
        }
        self.rsps.remove(rsp.0);
        self.detach(Some(evd));
        if goes && self.ep(ep).is_ok() {
            self.ep_remove(now, ep)?;
        }
        Ok(())
    }
}
