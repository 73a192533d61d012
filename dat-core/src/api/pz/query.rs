//! dat_pz_query(3).

use crate::engine::Ia;
use crate::provider::{Pd, Provider};
use crate::types::dat_return::Error;
use crate::types::handle::Pz;

impl<P: Provider> Ia<'_, P> {
    /// The protection domain beneath a Protection Zone.
    #[doc(alias = "dat_pz_query")]
    pub fn pz_query(&self, pz: Pz) -> Result<Pd, Error> {
        Ok(self.objects.pzs.live(pz)?.pd)
    }
}
