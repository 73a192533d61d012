//! dat_ep_common_connect (2.0).

use core::net::SocketAddr;
use core::time::Duration;

use crate::engine::Ia;
use crate::engine::establish::Ask;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::flags::ConnectFlag;
use crate::types::handle::Ep;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Starts to connect an UNCONNECTED Endpoint to the socket address of a Common Service Point,
    /// or of a PSP: in this transport the qualifier of one is the port of the other.
    ///
    /// The quality of service is that of the Endpoint's attributes. `INVALID_ADDRESS` also for
    /// port 0. Outcome and other errors as for [`Ia::ep_connect`].
    #[doc(alias = "dat_ep_common_connect")]
    pub fn ep_common_connect(
        &mut self,
        now: Instant,
        ep: Ep,
        remote: SocketAddr,
        timeout: Duration,
        private_data: &[u8],
    ) -> Result<(), Error> {
        let qos = self.objects.eps.live(ep)?.attr.qos;
        if remote.port() == 0 {
            return Err(Error::new(DatType::InvalidAddress, DatSubtype::AddressMalformed));
        }
        let ask = Ask {
            remote: remote.ip(),
            conn_qual: remote.port().into(),
            timeout,
            qos,
            flag: ConnectFlag::Default,
        };
        self.start(now, ep, &ask, private_data)
    }
}
