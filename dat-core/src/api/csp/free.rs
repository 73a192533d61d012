//! dat_csp_free (2.0).

use crate::engine::Ia;
use crate::objects::streams::Stream;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Csp;

impl<P: Provider> Ia<'_, P> {
    /// Stops listening. Requests that arrived already stay as they are; later ones find no
    /// listener.
    #[doc(alias = "dat_csp_free")]
    pub fn csp_free(&mut self, csp: Csp) -> Result<(), Error> {
        let evd = self.objects.csps.live(csp)?.evd;
        self.objects.csps.remove(csp.0);
        self.events.detach(&[(Some(evd), Stream::Connection)]);
        Ok(())
    }
}
