//! Establishment of connections, on both sides: what follows when a path is known, when the peer
//! has replied, and when it is ready.

use core::net::IpAddr;
use core::task::Poll;
use core::time::Duration;

use heapless::Vec;

use crate::cm::event::CmError;
use crate::cm::params::{AcceptParams, ConnId, ConnectParams, QpTerms, ack_timeout};
use crate::cm::wire::service::ServiceId;
use crate::engine::Ia;
use crate::engine::connections::Owner;
use crate::objects::asker::MAX_CONNECT_UD_PRIVATE;
use crate::objects::ep::{NOT_READY, Phase};
use crate::provider::{
    Class, LidHop, LinkType, Net, NextHop, Path, Provider, Qp, QpStep, SubnetPath, lid_of,
};
use crate::types::bounds::STEPS;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::ep_state::EpOp;
use crate::types::fault::{Fault, FaultKind};
use crate::types::flags::{ConnectFlag, Qos};
use crate::types::handle::Ep;
use crate::types::random::Random;
use crate::types::time::Instant;

/// Bytes of private data in `ep_connect`. The REQ has 92, of which the RDMA IP CM service takes 36
/// for its addresses; the manual page asks for 64, which no implementation that talks to rdma_cm
/// can give.
pub const MAX_CONNECT_PRIVATE: usize = 56;

/// RNR timer code 12: 0.64 ms. The other code in wide use, 0, means 655 ms.
pub(crate) const MIN_RNR_TIMER: u8 = 12;

/// What is asked for, but for the private data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) remote: IpAddr,
    pub(crate) conn_qual: u64,
    pub(crate) timeout: Duration,
    pub(crate) qos: Qos,
    pub(crate) flag: ConnectFlag,
}

/// Lifetime of a packet in the network, as a CM code; the connection manager's default.
const PACKET_LIFETIME: u8 = 16;

/// Transport and RNR retries of both queue pairs: as many as there are, and for ever.
const RETRIES: (u8, u8) = (7, 7);

impl<P: Provider> Ia<'_, P> {
    /// Starts to connect: all calls that do come here.
    pub(crate) fn start(
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
        check_remote(&self.net, self.hca.limits().link, remote)?;
        let bad = |subtype| Error::new(DatType::InvalidParameter, subtype);
        let port = port(ask.conn_qual).ok_or(bad(DatSubtype::InvalidArg3))?;
        if timeout.is_zero() {
            return Err(bad(DatSubtype::InvalidArg4));
        }
        if private_data.len() > most {
            return Err(bad(DatSubtype::InvalidArg5));
        }
        let class = match self.hca.limits().classes.of(ask.qos) {
            Some(class) if ask.flag == ConnectFlag::Default => class,
            Some(_) | None => {
                return Err(Error::new(DatType::ModelNotSupported, DatSubtype::None));
            }
        };
        let control = self.objects.eps.live(ep)?;
        let (Some(qp), Some(_)) = (control.qp, control.connect_evd) else {
            return Err(NOT_READY.into());
        };
        if datagrams {
            return self.ask(now, ep, ask, class, private_data);
        }
        self.objects.reserve_events(ep)?;
        let local_port = ephemeral_port(&mut self.random);
        let conn = self.prepare(now, (ep, qp, class), remote, [local_port, port], private_data)?;
        let control = self.objects.eps.live_mut(ep)?;
        control.conn = Some(conn);
        control.remote = Some(remote);
        control.remote_port = port;
        control.local_port = local_port;
        control.active = true;
        control.refusal = None;
        control.phase = Phase::Resolving;
        self.apply(ep, EpOp::Connect);
        self.objects.set_deadline(ep, now + timeout);
        self.objects.watch(ep);
        self.establish_step(now, ep);
        self.transmit(now);
        Ok(())
    }

    /// Takes an establishment on, if what it waits for is there.
    pub(crate) fn establish_step(&mut self, now: Instant, ep: Ep) {
        let Ok(control) = self.objects.eps.live(ep) else { return };
        let (phase, remote) = (control.phase, control.remote);
        let Some(remote) = remote else { return };
        if !phase.wants_path() {
            return;
        }
        let path = match self.hca.resolve(remote, now) {
            Poll::Pending => return,
            Poll::Ready(Ok(path)) => path,
            Poll::Ready(Err(fault)) => return no_path(self, now, ep, fault),
        };
        match phase {
            Phase::Resolving => send_request(self, now, ep, &path),
            Phase::Direct(terms) => self.finish_direct(now, ep, &path, &terms),
            Phase::Replied(_)
            | Phase::Accepting { .. }
            | Phase::None
            | Phase::Accepted(_)
            | Phase::Found(_) => {}
        }
    }

    /// Active: the REQ, which goes out when the way is known. `INSUFFICIENT_RESOURCES` while the
    /// connection manager has no slot.
    fn prepare(
        &mut self,
        now: Instant,
        (ep, qp, class): (Ep, Qp, Class),
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
            qpn: qp.number,
            responder_resources: control.attr.max_rdma_read_in,
            initiator_depth: control.attr.max_rdma_read_out,
            retry_count: RETRIES.0,
            rnr_retry: RETRIES.1,
            mtu: limits.path_mtu,
            ack_timeout: ack_timeout(limits.ack_delay, PACKET_LIFETIME),
            flow_label: 0,
            class,
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

    /// The way is known.
    fn finish_direct(&mut self, now: Instant, ep: Ep, path: &Path, terms: &QpTerms) {
        let Ok(control) = self.objects.eps.live_mut(ep) else { return };
        control.phase = Phase::None;
        let Some(qp) = control.qp else { return };
        self.objects.set_deadline(ep, Instant::NEVER);
        match ready(&mut self.hca, qp, path, terms) {
            Ok(()) => self.apply(ep, EpOp::Established),
            Err(fault) => not_made(self, now, ep, EpOp::NonPeerRejected, Some(fault)),
        }
    }

    /// Passive: peers are ready, by their RTU or by their first packet. All of those queue pairs go
    /// to ready-to-send at once, before the end of another connection is reported.
    pub(crate) fn accepted(&mut self, now: Instant) {
        if self.connections.ready.is_empty() {
            return;
        }
        let ready = core::mem::take(&mut self.connections.ready);
        let (mut eps, mut lasts) = (Vec::<_, STEPS>::new(), Vec::<_, STEPS>::new());
        for &ep in &ready {
            let Ok(control) = self.objects.eps.live_mut(ep) else { continue };
            let (Some(qp), Phase::Accepted(terms)) = (control.qp, control.phase) else { continue };
            control.phase = Phase::None;
            let _ = eps.push(ep);
            let _ = lasts.push((qp, terms.ready_to_send(), Ok(())));
        }
        self.hca.qp_modify_each(&mut lasts);
        for (&ep, (.., done)) in eps.iter().zip(&lasts) {
            match *done {
                Ok(()) => self.apply(ep, EpOp::Established),
                Err(fault) => not_made(self, now, ep, EpOp::NonPeerRejected, Some(fault)),
            }
        }
    }
}

/// The next steps of a queue pair towards its peer: to ready-to-receive, and on the active side to
/// ready-to-send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    ep: Ep,
    qp: Qp,
    first: QpStep,
    next: Next,
}

/// What follows the step to ready-to-receive.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Active: that step, then the RTU.
    Ready(QpStep),
    /// Passive: the REP, then the wait for the RTU or for the peer's first packet.
    Reply(QpTerms, AcceptParams),
}

/// The steps that an Endpoint's queue pair has to take now, if the consumer or the peer has
/// accepted and the way is known.
pub(super) fn steps<P: Provider>(ia: &mut Ia<'_, P>, now: Instant, ep: Ep) -> Option<Steps> {
    let control = ia.objects.eps.live(ep).ok()?;
    let (qp, remote, phase) = (control.qp?, control.remote?, control.phase);
    // Of a peer that is reached by its GID the connection manager knows that.
    let peer = control.conn.and_then(|conn| ia.connections.cm.peer_of(conn));
    let (remote, asker_lid) = match peer {
        Some((gid, Some(lid))) => (gid, Some(lid)),
        Some((_, None)) | None => (remote, None),
    };
    let path = match phase {
        Phase::Replied(_) => ia.hca.resolve(remote, now),
        Phase::Accepting { .. } => ia.hca.resolve_asker(remote, now),
        Phase::None
        | Phase::Resolving
        | Phase::Direct(_)
        | Phase::Accepted(_)
        | Phase::Found(_) => return None,
    };
    let path = match path {
        Poll::Pending => return None,
        Poll::Ready(Ok(path)) => path,
        Poll::Ready(Err(fault)) => {
            no_path(ia, now, ep, fault);
            return None;
        }
    };
    match phase {
        Phase::Replied(reply) => {
            let first = ready_to_receive(&path, &reply.terms);
            Some(Steps { ep, qp, first, next: Next::Ready(reply.terms.ready_to_send()) })
        }
        Phase::Accepting { terms, flow_label } => {
            let mut path = Path { flow_label, ..path };
            // The path of the REQ, from its other end, if a port can have that LID.
            if let (NextHop::Lid(hop), Some(lid)) = (&mut path.next_hop, asker_lid) {
                if LidHop::UNICAST.contains(&lid) {
                    hop.lid = lid;
                }
            }
            let steps = answer(ia, ep, qp, &path, terms);
            if steps.is_none() {
                not_made(ia, now, ep, EpOp::NonPeerRejected, None);
            }
            steps
        }
        Phase::None
        | Phase::Resolving
        | Phase::Direct(_)
        | Phase::Accepted(_)
        | Phase::Found(_) => None,
    }
}

/// Passive: the steps with which an Endpoint answers.
fn answer<P: Provider>(
    ia: &Ia<'_, P>,
    ep: Ep,
    qp: Qp,
    path: &Path,
    asked: QpTerms,
) -> Option<Steps> {
    let control = ia.objects.eps.live(ep).ok()?;
    let limits = ia.hca.limits();
    let terms = QpTerms {
        rq_psn: ia.connections.cm.starting_psn(control.conn?)?,
        mtu: asked.mtu.min(limits.mtu),
        responder_resources: asked.responder_resources.min(control.attr.max_rdma_read_in),
        initiator_depth: asked.initiator_depth.min(control.attr.max_rdma_read_out),
        ..asked
    };
    let params = AcceptParams {
        qpn: qp.number,
        responder_resources: terms.responder_resources,
        initiator_depth: terms.initiator_depth,
        target_ack_delay: limits.ack_delay,
        rnr_retry: RETRIES.1,
    };
    let first = ready_to_receive(path, &terms);
    Some(Steps { ep, qp, first, next: Next::Reply(terms, params) })
}

/// Lets queue pairs take their steps, all first ones at once, then all last ones; then their
/// connections are made or answered, or not.
pub(super) fn take_steps<P: Provider>(
    ia: &mut Ia<'_, P>,
    now: Instant,
    all: &mut Vec<Steps, STEPS>,
) {
    let mut firsts = Vec::<_, STEPS>::new();
    for steps in &*all {
        let _ = firsts.push((steps.qp, steps.first, Ok(())));
    }
    ia.hca.qp_modify_each(&mut firsts);
    let mut lasts = Vec::<_, STEPS>::new();
    for (steps, (.., done)) in all.iter().zip(&firsts) {
        if let (Next::Ready(last), Ok(())) = (steps.next, done) {
            let _ = lasts.push((steps.qp, last, Ok(())));
        }
    }
    ia.hca.qp_modify_each(&mut lasts);
    let mut lasts = lasts.iter();
    for (steps, (.., first)) in all.iter().zip(&firsts) {
        match &steps.next {
            Next::Ready(_) => {
                let done = first.and_then(|()| lasts.next().map_or(Ok(()), |(.., last)| *last));
                replied(ia, now, steps.ep, done);
            }
            Next::Reply(terms, params) => reply(ia, now, steps.ep, *terms, params, *first),
        }
    }
    all.clear();
}

/// Active: the queue pair of an Endpoint is ready to send, or failed.
fn replied<P: Provider>(ia: &mut Ia<'_, P>, now: Instant, ep: Ep, done: Result<(), Fault>) {
    let Ok(control) = ia.objects.eps.live_mut(ep) else { return };
    control.phase = Phase::None;
    let Some(conn) = control.conn else { return };
    if done.is_ok() && ia.connections.cm.ready(now, conn).is_ok() {
        ia.connections.keep_answer(&mut ia.objects, ep, Some(conn));
        ia.objects.set_deadline(ep, Instant::NEVER);
        ia.apply(ep, EpOp::Established);
    } else {
        not_made(ia, now, ep, EpOp::NonPeerRejected, done.err());
    }
    ia.objects.watch(ep);
}

/// Passive: the queue pair of an Endpoint is ready to receive, or failed; the REP goes out.
fn reply<P: Provider>(
    ia: &mut Ia<'_, P>,
    now: Instant,
    ep: Ep,
    terms: QpTerms,
    params: &AcceptParams,
    done: Result<(), Fault>,
) {
    let Ok(control) = ia.objects.eps.live_mut(ep) else { return };
    control.phase = Phase::Accepted(terms);
    let Some(conn) = control.conn else { return };
    if done.is_err() || ia.connections.cm.accept(now, conn, params).is_err() {
        not_made(ia, now, ep, EpOp::NonPeerRejected, done.err());
    }
    ia.objects.watch(ep);
}

/// Active: the way is known, and the REQ goes out.
fn send_request<P: Provider>(ia: &mut Ia<'_, P>, now: Instant, ep: Ep, path: &Path) {
    let Ok(control) = ia.objects.eps.live_mut(ep) else { return };
    let Some(conn) = control.conn else { return };
    control.phase = Phase::None;
    let cm = &mut ia.connections.cm;
    let Some(subnet) = ia.hca.subnet_path(path) else {
        return cm.send_prepared_request(now, conn, path);
    };
    let limits = ia.hca.limits();
    let timeout = ack_timeout(limits.ack_delay, subnet.lifetime);
    // What the port cannot do, the path cannot either.
    let mtu = subnet.mtu.min(limits.mtu);
    let subnet = SubnetPath { mtu, ..subnet };
    cm.send_request_in_subnet(now, conn, path, &subnet, timeout);
}

/// No way leads to the peer.
fn no_path<P: Provider>(ia: &mut Ia<'_, P>, now: Instant, ep: Ep, fault: Fault) {
    let op = if fault.kind == FaultKind::Unreachable {
        EpOp::Unreachable
    } else {
        EpOp::NonPeerRejected
    };
    not_made(ia, now, ep, op, Some(fault));
}

/// An attempt to connect ends here, for what the device said.
fn not_made<P: Provider>(ia: &mut Ia<'_, P>, now: Instant, ep: Ep, op: EpOp, cause: Option<Fault>) {
    ia.drop_connection(now, ep);
    if let Ok(control) = ia.objects.eps.live_mut(ep) {
        control.cause = cause;
    }
    ia.apply(ep, op);
}

/// Takes a queue pair from Init to ready-to-send.
fn ready<P: Provider>(hca: &mut P, qp: Qp, path: &Path, terms: &QpTerms) -> Result<(), Fault> {
    hca.qp_modify(qp, &ready_to_receive(path, terms))
        .and_then(|()| hca.qp_modify(qp, &terms.ready_to_send()))
}

fn ready_to_receive(path: &Path, terms: &QpTerms) -> QpStep {
    QpStep::Rtr {
        path: Path { class: terms.class, ..*path },
        remote_qpn: terms.remote_qpn,
        rq_psn: terms.rq_psn,
        mtu: terms.mtu,
        responder_resources: terms.responder_resources,
        min_rnr_timer: MIN_RNR_TIMER,
    }
}

/// Whether that can be a peer's address. On InfiniBand a GID of the usual prefix and what stands for
/// a LID are addresses, whatever the port's own is.
pub(crate) fn check_remote(net: &Net, link: LinkType, remote: IpAddr) -> Result<(), Error> {
    let wrong = |subtype| Err(Error::new(DatType::InvalidAddress, subtype));
    if remote.is_unspecified() || remote.is_multicast() {
        return wrong(DatSubtype::AddressMalformed);
    }
    let is_gid = matches!(remote, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let names_port = link == LinkType::InfiniBand && (is_gid || lid_of(remote).is_some());
    if remote.is_ipv4() != net.addr.is_ipv4() && !names_port {
        return wrong(DatSubtype::AddressUnsupported);
    }
    Ok(())
}

/// A port above the well-known ones for an active side.
pub(super) fn ephemeral_port(random: &mut Random) -> u16 {
    let low = random.next_u32() & 0x3fff;
    u16::try_from(0xc000 | low).unwrap_or(0xc000)
}

/// A connection qualifier as the port that the wire carries.
pub(crate) fn port(conn_qual: u64) -> Option<u16> {
    u16::try_from(conn_qual).ok().filter(|&port| port != 0)
}
