//! Endpoints for datagrams, and the wait for what happens to them.
//!
//! Datagrams may be lost, and nobody repeats them: what has not come within the peer's patience is
//! an error that says so.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::task::Poll;
use std::time::{Duration, Instant};

use dat_core::cm::Reason;
use dat_core::provider::{Destination, Provider};
use dat_core::{
    Cr, DtoStatus, Ep, EpAttr, Event, GRH_LEN, IbDtoEvent, IbOperation, LmrTriplet, sender,
};
use vfio_host::Host;

use super::super::failure::Failure;
use super::super::traffic::adapter::{self, dat};
use super::super::traffic::memory::Memory;
use super::args::Patience;
use super::ends::{Ends, Makings, PLAIN, interrupted, late, lost, unserved};
use crate::Nic;

/// What happened, and to which Endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heard {
    /// A datagram has left.
    Sent(usize),
    /// A datagram has come.
    Came(usize, Came),
    /// Somebody asks where to send.
    Asked(Cr),
    /// The service point that was asked for is found.
    Found(usize),
}

/// A datagram that has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    /// What its receive was posted with.
    pub(super) cookie: u64,
    /// Its bytes, without what stands in front of them.
    pub(super) len: u32,
    /// The immediate that came with it.
    pub(super) immediate: Option<u32>,
    /// The sender's queue pair.
    pub(super) qpn: u32,
}

/// The Endpoints and what belongs to them.
#[derive(Debug)]
pub(super) struct Datagrams {
    ends: Ends,
    qkey: u32,
}

impl Deref for Datagrams {
    type Target = Ends;

    fn deref(&self) -> &Ends {
        &self.ends
    }
}

impl DerefMut for Datagrams {
    fn deref_mut(&mut self) -> &mut Ends {
        &mut self.ends
    }
}

impl Datagrams {
    /// Makes them; all take datagrams with `qkey`.
    pub(super) fn new<H: Host>(
        nic: &mut Nic<'_, '_, H>,
        makings: Makings,
        qkey: u32,
        patience: &Patience,
        program: &'static str,
    ) -> Result<Self, Failure> {
        let ends = Ends::new(nic, makings, patience, program, |nic, pz, evd, attr| {
            let attr = EpAttr {
                max_message_size: nic.provider().limits().mtu.bytes(),
                max_request_iov: 1,
                ..attr
            };
            nic.ep_create_ud(pz, evd, evd, Some(evd), Some(&attr), qkey)
        })?;
        Ok(Self { ends, qkey })
    }

    /// Sends `piece` to `to`.
    pub(super) fn send<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        piece: LmrTriplet,
        to: &Destination,
        immediate: Option<u32>,
    ) -> Result<(), Failure> {
        nic.ep_post_send_ud(self.ep(link)?, &[piece], to, immediate, 0, PLAIN)
            .map_err(|ret| dat("dat_ib_post_send_ud", ret))
    }

    /// The address handle of a queue pair that was told by other means.
    pub(super) fn address<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        remote: IpAddr,
        qpn: u32,
    ) -> Result<Destination, Failure> {
        let until = Instant::now() + self.timeout;
        loop {
            let now = nic.now();
            match nic.ud_address(now, remote, qpn, self.qkey) {
                Poll::Ready(Ok(to)) => return Ok(to),
                Poll::Ready(Err(_)) => return Err(lost(remote)),
                Poll::Pending if Instant::now() >= until => return Err(lost(remote)),
                Poll::Pending => {
                    interrupted("the way to the peer")?;
                    nic.advance();
                    adapter::trouble(nic).map_or(Ok(()), Err)?;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// The address handle of who sent the datagram behind these bytes, with that queue pair.
    pub(super) fn back<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        header: &[u8; GRH_LEN],
        qpn: u32,
    ) -> Result<Destination, Failure> {
        let from = sender(header)
            .ok_or_else(|| Failure::new("a datagram came without its sender's address"))?;
        self.peer = from.to_string();
        self.address(nic, from, qpn)
    }

    /// Starts to ask `server` for the queue pair of its service point. News of it come later.
    pub(super) fn ask<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        server: SocketAddr,
    ) -> Result<(), Failure> {
        self.peer = server.to_string();
        self.server = Some(server);
        nic.ep_connect(self.ep(link)?, server, self.timeout, &[])
            .map_err(|error| dat("dat_ep_connect", error))
    }

    /// What was found.
    pub(super) fn found<H: Host>(
        &self,
        nic: &Nic<'_, '_, H>,
        link: usize,
    ) -> Result<Destination, Failure> {
        nic.ep_ud_address(self.ep(link)?).map_err(|error| dat("the address that was found", error))
    }

    /// What happens next, within `limit` or the peer's patience; `what` is waited for.
    pub(super) fn heard<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        limit: Option<Duration>,
        what: &str,
    ) -> Result<Heard, Failure> {
        let limit = limit.unwrap_or(self.timeout);
        let until = Instant::now() + limit;
        loop {
            interrupted(what)?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late(what, limit).remedy(format!(
                    "is {} there, and is it {}? a datagram that is lost is not repeated",
                    self.peer, self.program
                )));
            }
            let Some(event) = self.event(nic, left)? else {
                continue;
            };
            match event {
                Event::IbDto(dto) => return self.done(nic, &dto),
                Event::UdConnectionRequest { cr, .. } => return Ok(Heard::Asked(cr)),
                Event::UdEstablished(ep, _) => return Ok(Heard::Found(self.link(ep)?)),
                Event::UdReject(ep, _) | Event::UdError(ep) => return Err(self.unfound(nic, ep)),
                // Who wants a connection is at the wrong program.
                Event::ConnectionRequest { cr, .. } => {
                    nic.cr_reject(cr, &[])
                        .map_err(|e| dat("dat_cr_reject", e))?;
                }
                Event::Broken(ep) => return Err(adapter::broken(nic, ep, &self.peer)),
                Event::Dto(dto) => {
                    if dto.status != DtoStatus::Success {
                        return Err(self.failed(dto.status));
                    }
                }
                Event::Established(_)
                | Event::UdAccepted(_)
                | Event::PeerRejected(_)
                | Event::NonPeerRejected(_)
                | Event::AcceptCompletionError(_)
                | Event::Disconnected(_)
                | Event::TimedOut(_)
                | Event::Unreachable(_)
                // Nothing of theirs is made here.
                | Event::ReservedRequest { .. }
                | Event::CommonRequest { .. }
                | Event::RmrBind { .. }
                | Event::Async(_)
                | Event::Software(_) => {}
            }
        }
    }

    fn done<H: Host>(&self, nic: &mut Nic<'_, '_, H>, dto: &IbDtoEvent) -> Result<Heard, Failure> {
        let link = self.link(dto.ep)?;
        if dto.status() != DtoStatus::Success {
            return Err(self.failed(dto.status()));
        }
        let immediate = match dto.operation {
            IbOperation::RecvMsgUd => false,
            IbOperation::RecvMsgUdImmed => true,
            IbOperation::SendUd
            | IbOperation::RdmaWriteImmed
            | IbOperation::RecvRdmaWriteImmed
            | IbOperation::FetchAdd
            | IbOperation::CmpSwap
            | IbOperation::RecvMsgImmed => return Ok(Heard::Sent(link)),
        };
        let told =
            nic.evd_extension(self.evd).map_err(|ret| dat("what came with a datagram", ret))?;
        let header = u32::try_from(GRH_LEN).unwrap_or(0);
        Ok(Heard::Came(
            link,
            Came {
                cookie: dto.cookie,
                len: dto.len.saturating_sub(header),
                immediate: immediate.then_some(told.immediate),
                qpn: told.source_qpn,
            },
        ))
    }

    fn failed(&self, status: DtoStatus) -> Failure {
        let (cause, remedy) = adapter::status(status);
        Failure::new(format!("a datagram to or from {} failed: {cause}", self.peer)).remedy(remedy)
    }

    /// Why a service point was not found.
    fn unfound<H: Host>(&self, nic: &Nic<'_, '_, H>, ep: Ep) -> Failure {
        let Some(server) = self.server else {
            return Failure::new("an Endpoint was refused what it did not ask for");
        };
        match nic.ep_reject_reason(ep).ok().flatten() {
            None => lost(server.ip()),
            Some(Reason::INVALID_SERVICE_ID) => unserved(server, self.program),
            Some(reason) => Failure::new(format!("{server} refused: {reason}"))
                .remedy("its output says why; -c has to be the same on both sides"),
        }
    }

    /// Gives everything back, and the memory that was used with it.
    pub(super) fn free<'p, H: Host>(
        self,
        nic: &mut Nic<'_, 'p, H>,
        memory: impl IntoIterator<Item = Memory<'p, H>>,
    ) -> Result<(), Failure> {
        self.ends.free(nic, memory)
    }
}
