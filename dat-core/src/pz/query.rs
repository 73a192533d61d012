//! dat_pz_query(3).

use crate::dat_return::Error;
use crate::handle::Pz;
use crate::ia::Ia;
use crate::provider::{Pd, Provider};

impl<P: Provider> Ia<'_, P> {
    /// The protection domain beneath a Protection Zone.
    #[doc(alias = "dat_pz_query")]
    pub fn pz_query(&self, pz: Pz) -> Result<Pd, Error> {
        Ok(self.objects.pzs.live(pz)?.pd)
    }
}
