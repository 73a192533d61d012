//! dat_ep_query(3).

use core::net::IpAddr;

use crate::engine::Ia;
use crate::provider::{Provider, Qp};
use crate::types::dat_return::Error;
use crate::types::ep_attr::EpAttr;
use crate::types::ep_state::EpState;
use crate::types::handle::{Ep, Evd, Pz, Srq};

/// `DAT_EP_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpParam {
    /// Its state.
    pub state: EpState,
    /// Own address.
    pub local: IpAddr,
    /// Own port; means something from PASSIVE and ACTIVE_CONNECTION_PENDING to CONNECTED.
    pub local_port: u16,
    /// The peer, in the same states.
    pub remote: Option<IpAddr>,
    /// The peer's port: of its service point on the active side, its own choice on the passive
    /// side.
    pub remote_port: u16,
    /// The Protection Zone.
    pub pz: Option<Pz>,
    /// Where receives complete.
    pub recv_evd: Option<Evd>,
    /// Where requests complete.
    pub request_evd: Option<Evd>,
    /// Where connection events go.
    pub connect_evd: Option<Evd>,
    /// Where its receives come from, if not from its own queue.
    pub srq: Option<Srq>,
    /// Everything else.
    pub attr: EpAttr,
    /// It is for datagrams.
    pub datagrams: bool,
    /// The queue pair beneath, for diagnosis.
    pub qp: Option<Qp>,
}

impl<P: Provider> Ia<'_, P> {
    /// What the Endpoint is. Any state.
    #[doc(alias = "dat_ep_query")]
    pub fn ep_query(&self, ep: Ep) -> Result<EpParam, Error> {
        let control = self.objects.eps.live(ep)?;
        Ok(EpParam {
            state: self.objects.state_of(ep)?,
            local: self.net.addr,
            local_port: control.local_port,
            remote: control.remote,
            remote_port: control.remote_port,
            pz: control.pz,
            recv_evd: control.recv_evd,
            request_evd: control.request_evd,
            connect_evd: control.connect_evd,
            srq: control.srq,
            attr: control.attr,
            datagrams: control.is_for_datagrams(),
            qp: control.qp,
        })
    }
}
