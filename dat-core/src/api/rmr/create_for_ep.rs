//! dat_rmr_create_for_ep.

use crate::data::shared::lmr::GENERAL_SLOT;
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::{Pz, Rmr};

impl<P: Provider> Ia<'_, P> {
    /// Makes an RMR that belongs to the Endpoint it is bound on, bound to nothing; see
    /// [`crate::objects::rmr`].
    ///
    /// Errors as for [`Ia::rmr_create`].
    #[doc(alias = "dat_rmr_create_for_ep")]
    pub fn rmr_create_for_ep(&mut self, pz: Pz) -> Result<Rmr, Error> {
        self.rmr_enter(pz, GENERAL_SLOT, P::mw_create_for_qp)
    }
}
