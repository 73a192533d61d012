//! dat_ep_get_status(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::completion::Direction;
use crate::types::dat_return::Error;
use crate::types::ep_state::EpState;
use crate::types::handle::Ep;

/// State and idleness of an Endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpStatus {
    /// Its state.
    pub state: EpState,
    /// Every receive that was posted has completed.
    pub recv_idle: bool,
    /// Every request that was posted has completed.
    pub request_idle: bool,
}

impl<P: Provider> Ia<'_, P> {
    /// State, and whether anything is outstanding. Any state; asks neither a lock nor the device.
    ///
    /// A DTO or bind is outstanding until it has completed, whether its completion has been
    /// dequeued or not; while the reaping half is out, until it has been dequeued. The device
    /// does not say when a suppressed request completes. So if the newest one is suppressed
    /// this call posts an empty request behind it, and a later call sees that one completed. (Not
    /// while the posting half is out, nor where each request since the newest that completes by
    /// itself is suppressed and of the most segments.)
    #[doc(alias = "dat_ep_get_status")]
    pub fn ep_get_status(&mut self, ep: Ep) -> Result<EpStatus, Error> {
        self.objects.state_of(ep)?;
        let requests = self.objects.unfinished(&mut self.data, ep, Direction::Send);
        if requests != 0 {
            if let Some(evd) = self.objects.eps.live(ep)?.request_evd {
                self.drop_silent(evd);
            }
            self.follow_suppressed(ep, requests);
        }
        let recv_idle = self.objects.unfinished(&mut self.data, ep, Direction::Recv) == 0;
        let request_idle = self.objects.unfinished(&mut self.data, ep, Direction::Send) == 0;
        // What was seen in between may have ended the connection: then all is idle because it was
        // flushed, and the state has to say so.
        Ok(EpStatus { state: self.objects.state_of(ep)?, recv_idle, request_idle })
    }
}
