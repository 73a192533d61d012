//! dat_ep_get_status(3).

use super::EpState;
use crate::Ia;
use crate::dat_return::Error;
use crate::handle::Ep;
use crate::provider::{Direction, Provider};

/// State and idleness of an Endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpStatus {
    /// Its state.
    pub state: EpState,
    /// No receive is outstanding.
    pub recv_idle: bool,
    /// No request is outstanding.
    pub request_idle: bool,
}

impl<P: Provider> Ia<'_, P> {
    /// State, and whether anything is outstanding. Any state; asks neither a lock nor the device.
    ///
    /// A DTO is outstanding from its post until its completion is dequeued; a suppressed one until a later completion.
    #[doc(alias = "dat_ep_get_status")]
    pub fn ep_get_status(&self, ep: Ep) -> Result<EpStatus, Error> {
        let state = self.state_of(ep)?;
        let outstanding = |direction| {
            self.shared
                .ep(ep.0.index())
                .map_or(0, |shared| shared.outstanding(direction))
        };
        Ok(EpStatus {
            state,
            recv_idle: outstanding(Direction::Recv) == 0,
            request_idle: outstanding(Direction::Send) == 0,
        })
    }
}
