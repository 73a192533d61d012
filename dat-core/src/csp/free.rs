//! dat_csp_free (2.0).

use crate::dat_return::Error;
use crate::handle::Csp;
use crate::ia::Ia;
use crate::provider::Provider;

impl<P: Provider> Ia<'_, P> {
    /// Stops listening. Requests that arrived already stay as they are; later ones find no
    /// listener.
    #[doc(alias = "dat_csp_free")]
    pub fn csp_free(&mut self, csp: Csp) -> Result<(), Error> {
        let evd = self.objects.csps.live(csp)?.evd;
        self.objects.csps.remove(csp.0);
        self.events.detach(Some(evd));
        Ok(())
    }
}
