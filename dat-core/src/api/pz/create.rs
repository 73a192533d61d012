//! dat_pz_create(3).

use crate::engine::Ia;
use crate::objects::pz::PzControl;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Pz;

impl<P: Provider> Ia<'_, P> {
    /// Makes a Protection Zone. `INSUFFICIENT_RESOURCES` if the table or the device is full.
    #[doc(alias = "dat_pz_create")]
    pub fn pz_create(&mut self) -> Result<Pz, Error> {
        self.alive()?;
        let full = Error::new(DatType::InsufficientResources, DatSubtype::ResourceProtectionDomain);
        if self.objects.pzs.is_full() {
            return Err(full);
        }
        let pd = self.hca.pd_create()?;
        self.objects.pzs.insert(PzControl { pd, users: 0 }).map(Pz).ok_or(full)
    }
}
