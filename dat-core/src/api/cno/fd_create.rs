//! dat_cno_fd_create(3), as far as it needs no descriptor.

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Cno;

impl<P: Provider> Ia<'_, P> {
    /// Makes a CNO whose triggers a host announces by a descriptor of its own. Whoever finds the
    /// descriptor readable asks [`Ia::cno_trigger`].
    ///
    /// `INSUFFICIENT_RESOURCES` as for [`Ia::cno_create`].
    #[doc(alias = "dat_cno_fd_create")]
    pub fn cno_fd_create(&mut self) -> Result<Cno, Error> {
        self.cno_make(None, true)
    }
}
