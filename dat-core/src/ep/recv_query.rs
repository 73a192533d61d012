//! dat_ep_recv_query(3).

use crate::Ia;
use crate::dat_return::Error;
use crate::handle::Ep;
use crate::provider::Provider;

/// What an Endpoint has of receives. `None` is `DAT_VALUE_UNKNOWN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpRecvInfo {
    /// Receives allocated to it whose completions have not been dequeued: of its own queue those posted, of a Shared Receive
    /// Queue those that it took.
    pub nbufs_allocated: Option<u32>,
    /// How many receives can complete with what is allocated: as messages arrive in order, as many.
    pub bufs_alloc_span: Option<u32>,
}

impl<P: Provider> Ia<'_, P> {
    /// How many receives the Endpoint has. Any state. With a Shared Receive Queue it is unknown while the completions are in the
    /// hands of another thread, or more than can be looked through at once.
    #[doc(alias = "dat_ep_recv_query")]
    pub fn ep_recv_query(&mut self, ep: Ep) -> Result<EpRecvInfo, Error> {
        self.ep(ep)?;
        let held = self.held(ep);
        Ok(EpRecvInfo {
            nbufs_allocated: held,
            bufs_alloc_span: held,
        })
    }
}
