//! dat_ep_connect(3).

use core::net::IpAddr;
use core::time::Duration;

use crate::engine::Ia;
use crate::engine::establish::Ask;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::flags::{ConnectFlag, Qos};
use crate::types::handle::Ep;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Starts to connect an UNCONNECTED Endpoint to the service point `conn_qual` (a TCP-style
    /// port) of `remote`.
    ///
    /// The outcome is an event: `Established`, `PeerRejected`, `NonPeerRejected`, `Unreachable` or
    /// `TimedOut`. Errors: `INVALID_STATE` (also `EP_NOTREADY` without a connect Event
    /// Dispatcher), `INVALID_ADDRESS`, `INVALID_PARAMETER` (qualifier 0 or above 65535, timeout
    /// 0, more than [`MAX_CONNECT_PRIVATE`](crate::MAX_CONNECT_PRIVATE) bytes),
    /// `MODEL_NOT_SUPPORTED` (quality of service), `INSUFFICIENT_RESOURCES` (connections,
    /// requests and look-ups have all slots, two for each Endpoint).
    ///
    /// A peer whose old connection had the same queue pair, before a reset of this adapter or in a
    /// process that was killed, refuses the request as stale and ends the old connection. The
    /// request is repeated 0.5 s later, 15 times at most and within `timeout`; only what remains is
    /// reported, by `NonPeerRejected` and [`Ia::ep_reject_reason`]. If it is the peer that was
    /// reset, its acceptance may name a queue pair that is connected here: that is reported at
    /// once, since the peer's consumer has seen the request. The old connection ends, and the next
    /// attempt passes.
    ///
    /// A CONNECTED Endpoint for datagrams asks the service point which queue pair takes datagrams
    /// for it: the outcome is `UdEstablished`, with the address at [`Ia::ep_ud_answer`],
    /// `UdReject` or `UdError`. It carries
    /// [`MAX_CONNECT_UD_PRIVATE`](crate::MAX_CONNECT_UD_PRIVATE) bytes, and may ask for
    /// many service points at a time: each question has a time and an event of its own
    /// (`INSUFFICIENT_RESOURCES` if there are too many).
    #[doc(alias = "dat_ep_connect")]
    #[expect(clippy::too_many_arguments, reason = "the arguments of the manual page, and the time")]
    pub fn ep_connect(
        &mut self,
        now: Instant,
        ep: Ep,
        remote: IpAddr,
        conn_qual: u64,
        timeout: Duration,
        private_data: &[u8],
        qos: Qos,
    ) -> Result<(), Error> {
        let flag = ConnectFlag::Default;
        self.ep_connect_flag(now, ep, remote, conn_qual, timeout, private_data, qos, flag)
    }

    /// As [`Ia::ep_connect`], with `DAT_CONNECT_FLAGS`: several paths are `MODEL_NOT_SUPPORTED`.
    #[doc(alias = "dat_ep_connect")]
    #[expect(clippy::too_many_arguments, reason = "the arguments of the manual page, and the time")]
    pub fn ep_connect_flag(
        &mut self,
        now: Instant,
        ep: Ep,
        remote: IpAddr,
        conn_qual: u64,
        timeout: Duration,
        private_data: &[u8],
        qos: Qos,
        flag: ConnectFlag,
    ) -> Result<(), Error> {
        let ask = Ask { remote, conn_qual, timeout, qos, flag };
        self.start(now, ep, &ask, private_data)
    }
}
