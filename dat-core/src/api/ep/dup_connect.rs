//! dat_ep_dup_connect(3).

use core::time::Duration;

use crate::engine::Ia;
use crate::engine::establish::Ask;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_state::EpState;
use crate::types::flags::{ConnectFlag, Qos};
use crate::types::handle::Ep;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Starts to connect an UNCONNECTED Endpoint to where `dup` is connected to: the same service
    /// point of the same peer.
    ///
    /// `dup` must be CONNECTED (`INVALID_STATE` with its state), and have asked for its connection
    /// itself: who was asked knows of no service point of the peer (`INVALID_PARAMETER`).
    /// Outcome and other errors as for [`Ia::ep_connect`].
    #[doc(alias = "dat_ep_dup_connect")]
    pub fn ep_dup_connect(
        &mut self,
        now: Instant,
        ep: Ep,
        dup: Ep,
        timeout: Duration,
        private_data: &[u8],
        qos: Qos,
    ) -> Result<(), Error> {
        self.objects.eps.live(ep)?;
        let state = self.objects.state_of(dup)?;
        if !matches!(
            state,
            EpState::Connected | EpState::ConnectedSinglePath | EpState::ConnectedMultiPath
        ) {
            return Err(state.refusal().into());
        }
        let control = self.objects.eps.live(dup)?;
        let Some(remote) = control.remote.filter(|_| control.active) else {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg2));
        };
        let ask = Ask {
            remote,
            conn_qual: control.remote_port.into(),
            timeout,
            qos,
            flag: ConnectFlag::Default,
        };
        self.start(now, ep, &ask, private_data)
    }
}
