//! Endpoints as somebody sees them who watches the program: an extension, without a manual page.

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::completion::Direction;
use crate::types::dat_return::Error;
use crate::types::handle::{Ep, Psp};

/// What an Endpoint has posted that has not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpOutstanding {
    /// Requests. While the reaping half of their Event Dispatcher is out, those that it has not
    /// dequeued.
    pub requests: u32,
    /// Receives of its own; `None` while the reaping half is out.
    pub receives: Option<u32>,
}

impl<P: Provider> Ia<'_, P> {
    /// Every Endpoint there is, in no particular order.
    pub fn eps(&self) -> impl Iterator<Item = Ep> {
        self.objects.eps.iter().map(|(handle, _)| Ep(handle))
    }

    /// Every Public Service Point there is.
    pub fn psps(&self) -> impl Iterator<Item = Psp> {
        self.objects.psps.iter().map(|(handle, _)| Psp(handle))
    }

    /// What an Endpoint has outstanding. Any state. Completions stay where they are, and nothing is
    /// posted, as [`Ia::ep_get_status`] may do.
    pub fn ep_outstanding(&mut self, ep: Ep) -> Result<EpOutstanding, Error> {
        let receives = self.ep_recv_query(ep)?.nbufs_allocated;
        let requests = self.objects.unfinished(&mut self.data, ep, Direction::Send);
        Ok(EpOutstanding { requests, receives })
    }
}
