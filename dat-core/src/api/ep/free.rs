//! dat_ep_free(3).

use crate::engine::Ia;
use crate::engine::control::{Job, control_one};
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Ep;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Frees an Endpoint. A connection ends abruptly, an attempt at one is aborted; completions not
    /// yet dequeued are lost.
    ///
    /// `INVALID_STATE` in RESERVED, PASSIVE and TENTATIVE_CONNECTION_PENDING, while the posting
    /// half is out, and while a reaping half is out that still has completions of it.
    #[doc(alias = "dat_ep_free")]
    pub fn ep_free(&mut self, now: Instant, ep: Ep) -> Result<(), Error> {
        control_one(self, now, Job::EpFree(ep)).map(drop)
    }

    /// Frees an Endpoint in whatever state.
    pub(crate) fn ep_remove(&mut self, now: Instant, ep: Ep) -> Result<(), Error> {
        control_one(self, now, Job::EpRemove(ep)).map(drop)
    }
}
