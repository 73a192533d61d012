//! dat_ep_recv_query(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::Ep;

/// What an Endpoint has of receives. `None` is `DAT_VALUE_UNKNOWN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpRecvInfo {
    /// Receives allocated to it that have not completed. With a Shared Receive Queue none: the
    /// device takes a receive from there and completes it in one step, as far as software can
    /// see.
    pub nbufs_allocated: Option<u32>,
    /// How many receives can complete with what is allocated: as messages arrive in order, as
    /// many.
    pub bufs_alloc_span: Option<u32>,
}

impl<P: Provider> Ia<'_, P> {
    /// How many receives the Endpoint has. Any state. It is unknown while the reaping half is out.
    #[doc(alias = "dat_ep_recv_query")]
    pub fn ep_recv_query(&mut self, ep: Ep) -> Result<EpRecvInfo, Error> {
        let held = match self.objects.eps.live(ep)?.srq {
            Some(_) => Some(0),
            None => self.held(ep),
        };
        Ok(EpRecvInfo { nbufs_allocated: held, bufs_alloc_span: held })
    }
}
