//! dat_ia_ha_related(3): high availability, which nothing here has.

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatReturn, DatType};

impl<P: Provider> Ia<'_, P> {
    /// Whether the adapter of that name stands in for this one: `MODEL_NOT_SUPPORTED`, as there is
    /// one path to a peer.
    #[doc(alias = "dat_ia_ha_related")]
    pub const fn ha_related(&self, _other: &str) -> Result<bool, DatReturn> {
        Err(DatReturn::of(DatType::ModelNotSupported))
    }
}
