//! dat_ep_connect(3) of an Endpoint for datagrams: `DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED` of the
//! InfiniBand extension.
//!
//! Nothing is connected: the service point is asked which queue pair serves it and with which
//! Q_Key, and from then on datagrams can be sent there. The Endpoint stays CONNECTED all the time,
//! to everybody, and may ask for many service points at once. Each question has a slot of the
//! connection manager, in which its deadline runs and in which its answer is kept; the adapter's
//! table of owners has the way there.

use core::task::Poll;

use super::connect::Ask;
use super::{NOT_READY, Phase, port};
use crate::cm::{CmError, ConnId, Reason, ServiceId, SidrParams, SidrReply};
use crate::counters::IaCounter;
use crate::dat_return::{DatSubtype, DatType, Error};
use crate::event::Event;
use crate::handle::Ep;
use crate::ia::{Ia, Owner};
use crate::provider::{Destination, Provider};
use crate::time::Instant;

/// Bytes of private data in `ep_connect` of an Endpoint for datagrams: what the SIDR_REQ has
/// besides the addresses.
pub const MAX_CONNECT_UD_PRIVATE: usize = 180;

/// Names one question of an Endpoint for datagrams, in the event of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LookUp(pub(super) ConnId);

impl LookUp {
    /// As an event carries it, and whoever keeps it as a word.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0.comm_id() as u64
    }

    /// Of that word. One that no event carried names nothing.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(ConnId::of((raw & 0xffff_ffff) as u32))
    }
}

/// The answer to one question of an Endpoint for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdAnswer<'a> {
    /// Where datagrams can be sent to, or why the service point refused.
    pub address: Result<Destination, Reason>,
    /// What came with it: the message's whole field, padded with zeros.
    pub private_data: &'a [u8],
}

impl<P: Provider> Ia<'_, P> {
    /// The answer to one question: what `UdEstablished` or `UdReject` is about. It is kept until
    /// [`Ia::ud_cm_free`], a reset or a free of the Endpoint; when the connection manager has
    /// no other place left for a connection, an answer makes way. An address is valid for as
    /// long as that queue pair is there.
    ///
    /// `INVALID_STATE`/`EP_NOTREADY` if it is not there any more.
    pub fn ep_ud_answer(&self, ep: Ep, of: LookUp) -> Result<UdAnswer<'_>, Error> {
        self.objects.eps.live(ep)?;
        let kept = self.connections.cm.sidr_kept(of.0);
        let (Some(reply), Owner::LookUp(owner, _)) =
            (kept, self.connections.owner(&self.objects, of.0))
        else {
            return Err(NOT_READY.into());
        };
        if owner != ep {
            return Err(NOT_READY.into());
        }
        Ok(UdAnswer {
            address: self.connections.address(&reply),
            private_data: self.connections.cm.private_data(of.0),
        })
    }

    /// What an Endpoint for datagrams found last, for those that ask for one service point after
    /// another. Valid until the Endpoint connects again, is reset or freed.
    ///
    /// `INVALID_STATE`/`EP_NOTREADY` if it has found nothing.
    pub fn ep_ud_address(&self, ep: Ep) -> Result<Destination, Error> {
        match self.objects.eps.live(ep)?.phase {
            Phase::Found(destination) => Ok(destination),
            Phase::None
            | Phase::Resolving
            | Phase::Direct(_)
            | Phase::Replied(_)
            | Phase::Accepting { .. }
            | Phase::Accepted(_) => Err(NOT_READY.into()),
        }
    }

    /// Asks for a service point; all that was asked for has been checked.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        ep: Ep,
        ask: &Ask,
        private_data: &[u8],
    ) -> Result<(), Error> {
        const FULL: Error = Error::new(DatType::InsufficientResources, DatSubtype::ResourceTep);
        // Every Endpoint for connections still finds a slot for its own.
        if self.connections.questions() >= self.connections.owners.len() / 2 {
            return Err(FULL);
        }
        let remote_port = port(ask.conn_qual).unwrap_or(0);
        let local_port = self.ephemeral_port();
        let params = SidrParams {
            remote: ask.remote,
            local: self.net.addr,
            service: ServiceId::udp(remote_port),
            source_port: local_port,
            private_data,
        };
        let conn = match self.connections.cm.sidr_prepare(now, &params, now + ask.timeout) {
            Ok(conn) => conn,
            Err(
                CmError::NoSlot
                | CmError::Unknown(_)
                | CmError::State(..)
                | CmError::TooLong { .. }
                | CmError::Parameter(_),
            ) => return Err(FULL),
        };
        self.connections.own(conn, Owner::LookUp(ep, conn));
        self.keep_answer(ep, None);
        let control = self.objects.eps.live_mut(ep)?;
        control.refusal = None;
        control.phase = Phase::None;
        control.remote = Some(ask.remote);
        control.remote_port = remote_port;
        control.local_port = local_port;
        control.active = true;
        control.looks_up = true;
        self.objects.watch(ep);
        self.look_up_step(now, ep);
        self.transmit(now);
        Ok(())
    }

    /// Sends the questions of an Endpoint whose way has been found.
    pub(super) fn look_up_step(&mut self, now: Instant, ep: Ep) {
        if !self.objects.eps.live(ep).is_ok_and(|control| control.looks_up) {
            return;
        }
        let mut looks_up = false;
        for index in 0..self.connections.owners.len() {
            let Some(&Owner::LookUp(owner, conn)) = self.connections.owners.get(index) else {
                continue;
            };
            let Some(remote) = self.connections.cm.sidr_prepared(conn) else {
                continue;
            };
            if owner != ep {
                continue;
            }
            match self.hca.resolve(remote, now) {
                Poll::Pending => looks_up = true,
                Poll::Ready(Ok(path)) => {
                    self.connections.cm.sidr_way(conn, &path);
                    self.connections.cm.sidr_go(now, conn);
                }
                Poll::Ready(Err(_)) => {
                    self.connections.cm.sidr_end(conn);
                    self.unanswered(ep);
                }
            }
        }
        if let Ok(control) = self.objects.eps.live_mut(ep) {
            control.looks_up = looks_up;
        }
    }

    /// The peer answered a question.
    pub(crate) fn found(&mut self, reply: &SidrReply) {
        let conn = reply.conn;
        let Owner::LookUp(ep, _) = self.connections.owner(&self.objects, conn) else {
            return;
        };
        self.connections.cm.sidr_keep(reply);
        self.keep_answer(ep, Some(conn));
        let found = self.connections.address(reply);
        let Ok(control) = self.objects.eps.live_mut(ep) else { return };
        let event = match found {
            Ok(destination) => {
                control.phase = Phase::Found(destination);
                Event::UdEstablished(ep, LookUp(conn))
            }
            Err(reason) => {
                control.phase = Phase::None;
                control.refusal = Some(reason);
                Event::UdReject(ep, LookUp(conn))
            }
        };
        let evd = control.connect_evd;
        if found.is_ok() {
            self.counters.count(IaCounter::CmAhResolved);
        }
        self.events.notify(evd, event);
        self.events.worked = true;
    }

    /// A question has ended without an answer.
    pub(crate) fn unanswered(&mut self, ep: Ep) {
        let evd = self.objects.eps.live(ep).ok().and_then(|control| control.connect_evd);
        self.events.notify(evd, Event::UdError(ep));
    }
}
