//! dat_ep_connect(3) of an Endpoint for datagrams: `DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED` of the InfiniBand extension.
//!
//! Nothing is connected: the service point is asked which queue pair serves it and with which Q_Key, and from then on datagrams
//! can be sent there. The Endpoint stays CONNECTED all the time, to everybody; it asks for one service point at a time.

use core::task::Poll;

use super::{EpControl, EpState, NOT_READY, Phase, PrivateData};
use crate::Ia;
use crate::cm::{CmError, ServiceId, SidrParams, SidrReply, SidrStatus};
use crate::dat_return::{DatReturn, DatType, Error};
use crate::event::Event;
use crate::handle::Ep;
use crate::ia::Owner;
use crate::provider::{Destination, Path, Provider, Service};
use crate::time::Instant;

/// Bytes of private data in `ep_connect` of an Endpoint for datagrams: what the SIDR_REQ has besides the addresses.
pub const MAX_CONNECT_UD_PRIVATE: usize = 180;

impl EpControl {
    /// It is an Endpoint for datagrams, and asks for a service point at present.
    pub(crate) const fn looks_up(&self) -> bool {
        matches!(self.service, Service::Datagram { .. })
            && matches!(self.phase, Phase::Resolving | Phase::LookingUp(_))
    }
}

impl<P: Provider> Ia<'_, P> {
    /// What the last `ep_connect` of an Endpoint for datagrams found, to send to: the address handle that comes with
    /// `DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED`. Valid until the Endpoint connects again, is reset or freed, and as an address
    /// for as long as that queue pair is there.
    ///
    /// `INVALID_STATE`/`EP_NOTREADY` if it has found nothing.
    pub fn ep_ud_address(&self, ep: Ep) -> Result<Destination, Error> {
        match self.ep(ep)?.phase {
            Phase::Found(destination) => Ok(destination),
            Phase::None
            | Phase::Resolving
            | Phase::Direct(_)
            | Phase::Replied(_)
            | Phase::Accepting { .. }
            | Phase::Accepted(_)
            | Phase::LookingUp(_) => Err(NOT_READY.into()),
        }
    }

    /// Whether an Endpoint for datagrams may ask for a service point.
    pub(super) fn admit_look_up(&self, ep: Ep) -> Result<(), Error> {
        let mut state = self.state_of(ep)?;
        if state == EpState::Connected && self.ep(ep)?.looks_up() {
            state = EpState::ActiveConnectionPending;
        }
        if state == EpState::Connected {
            return Ok(());
        }
        Err(DatReturn::new(DatType::InvalidState, state.subtype()).into())
    }

    /// Takes a look-up on, if what it waits for is there.
    pub(super) fn look_up_step(&mut self, now: Instant, ep: Ep) {
        let state = self.state_of(ep);
        let Ok(control) = self.ep_mut(ep) else { return };
        if !control.looks_up() {
            return;
        }
        // A graceful disconnect is under way: its event is the answer.
        if state != Ok(EpState::Connected) {
            control.phase = Phase::None;
            return self.drop_connection(now, ep);
        }
        if control.deadline <= now {
            self.drop_connection(now, ep);
            return self.look_up_ends(ep, Phase::None, Event::UdError(ep));
        }
        let (Phase::Resolving, Some(remote)) = (control.phase, control.remote) else {
            return;
        };
        match self.provider.resolve(remote, now) {
            Poll::Pending => {}
            Poll::Ready(Ok(path)) => self.look_up(now, ep, path),
            Poll::Ready(Err(_)) => self.look_up_ends(ep, Phase::None, Event::UdError(ep)),
        }
    }

    /// The way is known; the SIDR_REQ goes out.
    fn look_up(&mut self, now: Instant, ep: Ep, path: Path) {
        let local = self.net.addr;
        let Some(control) = self.eps.get_mut(ep.0) else {
            return;
        };
        let params = SidrParams {
            remote: path.remote,
            local,
            service: ServiceId::udp(control.remote_port),
            source_port: control.local_port,
            private_data: &control.private,
        };
        match self.cm.sidr_request(now, &params) {
            Ok(conn) => {
                control.conn = Some(conn);
                control.phase = Phase::LookingUp(path);
                self.own(conn, Owner::Ep(ep));
            }
            // As for a connection: the consumer's timeout bounds the wait for a slot.
            Err(CmError::NoSlot) => {}
            Err(
                CmError::Unknown(_)
                | CmError::State(..)
                | CmError::TooLong { .. }
                | CmError::Parameter(_),
            ) => self.look_up_ends(ep, Phase::None, Event::UdError(ep)),
        }
    }

    /// The peer answered a look-up.
    pub(crate) fn found(&mut self, ep: Ep, reply: &SidrReply) {
        let private = PrivateData::from_slice(self.cm.private_data(reply.conn)).unwrap_or_default();
        let Ok(control) = self.ep_mut(ep) else { return };
        control.private = private;
        let (next, event) = if let Phase::LookingUp(path) = control.phase
            && reply.status == SidrStatus::VALID
        {
            let (qpn, qkey) = (reply.qpn, reply.q_key);
            let found = Destination { path, qpn, qkey };
            (Phase::Found(found), Event::UdEstablished(ep))
        } else {
            control.refusal = Some(reply.status.reason());
            (Phase::None, Event::UdReject(ep))
        };
        self.look_up_ends(ep, next, event);
    }

    /// A look-up is over.
    pub(crate) fn look_up_ends(&mut self, ep: Ep, next: Phase, event: Event) {
        let Ok(control) = self.ep_mut(ep) else { return };
        control.conn = None;
        control.deadline = Instant::NEVER;
        control.phase = next;
        let evd = control.connect_evd;
        self.notify(evd, event);
        self.worked = true;
    }
}
