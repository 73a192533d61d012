//! dat_psp_free(3).

use crate::engine::Ia;
use crate::objects::streams::Stream;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Psp;

impl<P: Provider> Ia<'_, P> {
    /// Stops listening. Requests that arrived already stay as they are; later ones find no
    /// listener.
    #[doc(alias = "dat_psp_free")]
    pub fn psp_free(&mut self, psp: Psp) -> Result<(), Error> {
        let evd = self.objects.psps.live(psp)?.evd;
        self.objects.psps.remove(psp.0);
        self.events.detach(&[(Some(evd), Stream::Connection)]);
        Ok(())
    }
}
