//! dat_ep_connect(3).

use core::net::IpAddr;
use core::task::Poll;
use core::time::Duration;

use super::{EpOp, EpState, MAX_CONNECT_UD_PRIVATE, NOT_READY, Phase};
use crate::cm::{CmError, ConnId, ConnectParams, Reply, ServiceId, ack_timeout};
use crate::dat_return::{DatSubtype, DatType, Error};
use crate::flags::{ConnectFlag, Qos};
use crate::handle::Ep;
use crate::ia::{Ia, Owner};
use crate::provider::{FaultKind, Path, Provider};
use crate::time::Instant;

/// Bytes of private data in `ep_connect`. The REQ has 92, of which the RDMA IP CM service takes 36
/// for its addresses; the manual page asks for 64, which no implementation that talks to rdma_cm
/// can give.
pub const MAX_CONNECT_PRIVATE: usize = 56;

/// Transport and RNR retries of both queue pairs: as many as there are, and for ever.
const RETRIES: (u8, u8) = (7, 7);
/// Life time of a packet in the network, as a CM code; the connection manager's default.
const PACKET_LIFE: u8 = 16;

/// What is asked for, but for the private data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(super) remote: IpAddr,
    pub(super) conn_qual: u64,
    pub(super) timeout: Duration,
    pub(super) qos: Qos,
    pub(super) flag: ConnectFlag,
}

impl<P: Provider> Ia<'_, P> {
    /// Starts to connect an UNCONNECTED Endpoint to the service point `conn_qual` (a TCP-style
    /// port) of `remote`.
    ///
    /// The outcome is an event: `Established`, `PeerRejected`, `NonPeerRejected`, `Unreachable` or
    /// `TimedOut`. Errors: `INVALID_STATE` (also `EP_NOTREADY` without a connect Event
    /// Dispatcher), `INVALID_ADDRESS`, `INVALID_PARAMETER` (qualifier 0 or above 65535, timeout
    /// 0, more than [`MAX_CONNECT_PRIVATE`] bytes), `MODEL_NOT_SUPPORTED` (quality of service),
    /// `INSUFFICIENT_RESOURCES` (connections, requests and look-ups have all slots, two
    /// for each Endpoint).
    ///
    /// A CONNECTED Endpoint for datagrams asks the service point which queue pair takes datagrams
    /// for it: the outcome is `UdEstablished`, with the address at [`Ia::ep_ud_answer`],
    /// `UdReject` or `UdError`. It carries [`MAX_CONNECT_UD_PRIVATE`] bytes, and may ask for
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

    /// Starts to connect: all calls that do come here.
    pub(super) fn start(
        &mut self,
        now: Instant,
        ep: Ep,
        ask: &Ask,
        private_data: &[u8],
    ) -> Result<(), Error> {
        let Ask { remote, timeout, .. } = *ask;
        let datagrams = self.objects.eps.live(ep)?.is_for_datagrams();
        let most = if datagrams {
            self.objects.admit_look_up(ep)?;
            MAX_CONNECT_UD_PRIVATE
        } else {
            self.objects.admit(ep, EpOp::Connect)?;
            MAX_CONNECT_PRIVATE
        };
        self.check_remote(remote)?;
        let bad = |subtype| Error::new(DatType::InvalidParameter, subtype);
        let port = port(ask.conn_qual).ok_or(bad(DatSubtype::InvalidArg3))?;
        if timeout.is_zero() {
            return Err(bad(DatSubtype::InvalidArg4));
        }
        if private_data.len() > most {
            return Err(bad(DatSubtype::InvalidArg5));
        }
        if ask.qos != Qos::BestEffort || ask.flag != ConnectFlag::Default {
            return Err(Error::new(DatType::ModelNotSupported, DatSubtype::None));
        }
        let control = self.objects.eps.live(ep)?;
        if control.qp.is_none() || control.connect_evd.is_none() {
            return Err(NOT_READY.into());
        }
        if datagrams {
            return self.ask(now, ep, ask, private_data);
        }
        self.objects.reserve_events(ep)?;
        let local_port = self.ephemeral_port();
        let conn = self.prepare(now, ep, remote, [local_port, port], private_data)?;
        let control = self.objects.eps.live_mut(ep)?;
        control.conn = Some(conn);
        control.remote = Some(remote);
        control.remote_port = port;
        control.local_port = local_port;
        control.active = true;
        control.deadline = now + timeout;
        control.refusal = None;
        control.phase = Phase::Resolving;
        self.apply(ep, EpOp::Connect);
        self.objects.watch(ep);
        self.establish_step(now, ep);
        self.transmit(now);
        Ok(())
    }

    /// Whether that can be a peer's address.
    pub(super) fn check_remote(&self, remote: IpAddr) -> Result<(), Error> {
        let wrong = |subtype| Err(Error::new(DatType::InvalidAddress, subtype));
        if remote.is_unspecified() || remote.is_multicast() {
            return wrong(DatSubtype::AddressMalformed);
        }
        if remote.is_ipv4() != self.net.addr.is_ipv4() {
            return wrong(DatSubtype::AddressUnsupported);
        }
        Ok(())
    }

    /// A port above the well-known ones for an active side.
    pub(super) fn ephemeral_port(&mut self) -> u16 {
        let low = self.random.next_u32() & 0x3fff;
        u16::try_from(0xc000 | low).unwrap_or(0xc000)
    }

    /// Takes an establishment on, if what it waits for is there.
    pub(crate) fn establish_step(&mut self, now: Instant, ep: Ep) {
        let Ok(control) = self.objects.eps.live(ep) else { return };
        if control.is_for_datagrams() {
            self.look_up_step(now, ep);
            return;
        }
        let (phase, remote) = (control.phase, control.remote);
        let Some(remote) = remote else { return };
        if matches!(phase, Phase::None | Phase::Accepted(_) | Phase::Found(_)) {
            return;
        }
        let path = match self.hca.resolve(remote, now) {
            Poll::Pending => return,
            Poll::Ready(Ok(path)) => path,
            Poll::Ready(Err(fault)) => {
                let op = if fault.kind() == FaultKind::Unreachable {
                    EpOp::Unreachable
                } else {
                    EpOp::NonPeerRejected
                };
                self.drop_connection(now, ep);
                self.apply(ep, op);
                return;
            }
        };
        match phase {
            Phase::Resolving => {
                if let Ok(control) = self.objects.eps.live_mut(ep)
                    && let Some(conn) = control.conn
                {
                    control.phase = Phase::None;
                    self.connections.cm.go(now, conn, &path);
                }
            }
            Phase::Direct(terms) => self.finish_direct(now, ep, &path, &terms),
            Phase::Replied(reply) => self.finish_active(now, ep, &path, &reply),
            Phase::Accepting { terms, flow_label, traffic_class } => {
                let path = Path { flow_label, traffic_class, ..path };
                self.finish_accept(now, ep, path, terms);
            }
            Phase::None | Phase::Accepted(_) | Phase::Found(_) => {}
        }
    }

    /// Active: the REQ, which goes out when the way is known. `INSUFFICIENT_RESOURCES` while the
    /// connection manager has no slot.
    fn prepare(
        &mut self,
        now: Instant,
        ep: Ep,
        remote: IpAddr,
        [local_port, remote_port]: [u16; 2],
        private_data: &[u8],
    ) -> Result<ConnId, Error> {
        let limits = *self.hca.limits();
        let control = self.objects.eps.live(ep)?;
        let params = ConnectParams {
            remote,
            local: self.net.addr,
            service: ServiceId::tcp(remote_port),
            source_port: local_port,
            qpn: control.qp.ok_or(NOT_READY)?.number,
            responder_resources: control.attr.max_rdma_read_in,
            initiator_depth: control.attr.max_rdma_read_out,
            retry_count: RETRIES.0,
            rnr_retry: RETRIES.1,
            mtu: limits.mtu,
            ack_timeout: ack_timeout(limits.ack_delay, PACKET_LIFE),
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 0,
            private_data,
        };
        let conn = self.connections.cm.prepare(now, &params).map_err(|error| match error {
            // Those that are over give way: what has them all are connections, requests and
            // look-ups.
            CmError::NoSlot => Error::new(DatType::InsufficientResources, DatSubtype::ResourceTep),
            CmError::Unknown(_)
            | CmError::State(..)
            | CmError::TooLong { .. }
            | CmError::Parameter(_) => Error::new(DatType::InternalError, DatSubtype::None),
        })?;
        self.connections.own(conn, Owner::Ep(ep));
        Ok(conn)
    }

    /// Active: the peer accepted and the way is known.
    fn finish_active(&mut self, now: Instant, ep: Ep, path: &Path, reply: &Reply) {
        let terms = reply.terms;
        let Ok(control) = self.objects.eps.live_mut(ep) else { return };
        control.phase = Phase::None;
        let (Some(qp), Some(conn)) = (control.qp, control.conn) else {
            return;
        };
        if self.ready(qp, path, &terms) && self.connections.cm.ready(now, conn).is_ok() {
            self.keep_answer(ep, Some(conn));
            if let Ok(control) = self.objects.eps.live_mut(ep) {
                control.deadline = Instant::NEVER;
            }
            self.apply(ep, EpOp::Established);
        } else {
            self.drop_connection(now, ep);
            self.apply(ep, EpOp::NonPeerRejected);
        }
    }

    /// The peer replied. The Endpoint is watched from the start, and goes on when [`Ia::advance`]
    /// comes to it.
    pub(crate) fn replied(&mut self, ep: Ep, reply: Reply) {
        if self.objects.state_of(ep).ok() == Some(EpState::ActiveConnectionPending)
            && let Ok(control) = self.objects.eps.live_mut(ep)
        {
            control.phase = Phase::Replied(reply);
        }
    }
}

/// RNR timer code 12: 0.64 ms. The other code in wide use, 0, means 655 ms.
pub(crate) const MIN_RNR_TIMER: u8 = 12;

/// A connection qualifier as the port that the wire carries.
pub(crate) fn port(conn_qual: u64) -> Option<u16> {
    u16::try_from(conn_qual).ok().filter(|&port| port != 0)
}
