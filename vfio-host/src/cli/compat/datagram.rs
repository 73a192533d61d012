//! Endpoints for datagrams, all on one Event Dispatcher, and the wait for what happens to them.
//!
//! Datagrams may be lost, and nobody repeats them: what has not come within the peer's patience is an error that says so.

use std::net::{IpAddr, SocketAddr};
use std::task::Poll;
use std::time::{Duration, Instant};

use dat_core::cm::Reason;
use dat_core::provider::{Destination, Provider};
use dat_core::{
    CompletionFlags, Cr, DtoStatus, Ep, Evd, EvdFlags, Event, GRH_LEN, IbDtoEvent, IbOperation,
    LmrTriplet, Psp, PspFlag, Pz, sender,
};

use super::super::failure::Failure;
use super::super::out::note;
use super::super::traffic::adapter::{self, SLICE, dat};
use super::super::traffic::memory::Memory;
use super::args::Patience;
use super::link::{Makings, interrupted, lost};
use crate::{Host, Nic};

/// No flags.
const PLAIN: CompletionFlags = CompletionFlags::empty();

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
    /// Their zone.
    pub(super) pz: Pz,
    evd: Evd,
    eps: Vec<Ep>,
    psp: Option<Psp>,
    qkey: u32,
    /// The program on the other side, for messages.
    program: &'static str,
    /// Who is on the other side, as far as is known.
    pub(super) peer: String,
    server: Option<SocketAddr>,
    timeout: Duration,
    spin: bool,
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
        let pz = nic.pz_create().map_err(|e| dat("dat_pz_create", e))?;
        let each = u32::from(makings.requests) + u32::from(makings.receives);
        let events = u32::try_from(makings.count)
            .unwrap_or(u32::MAX)
            .saturating_mul(each);
        let streams = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR;
        let evd = nic
            .evd_create(events, streams)
            .map_err(|e| dat("dat_evd_create", e))?;
        let mut attr = nic.ep_attr_default();
        attr.max_request_dtos = makings.requests;
        attr.max_recv_dtos = makings.receives;
        attr.max_message_size = nic.provider().limits().mtu.bytes();
        attr.max_request_iov = 1;
        let eps = (0..makings.count)
            .map(|_| {
                nic.ep_create_ud(pz, evd, evd, Some(evd), Some(&attr), qkey)
                    .map_err(|e| dat("making an Endpoint for datagrams", e))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            pz,
            evd,
            eps,
            psp: None,
            qkey,
            program,
            peer: "the peer".into(),
            server: None,
            timeout: patience.timeout,
            spin: patience.poll,
        })
    }

    fn ep(&self, link: usize) -> Result<Ep, Failure> {
        let ep = self.eps.get(link).copied();
        ep.ok_or_else(|| Failure::new(format!("there is no Endpoint {link}")))
    }

    fn link(&self, ep: Ep) -> Result<usize, Failure> {
        let link = self.eps.iter().position(|other| *other == ep);
        link.ok_or_else(|| Failure::new("the device told of an Endpoint that does not exist"))
    }

    /// The number of one's queue pair.
    pub(super) fn qpn<H: Host>(&self, nic: &Nic<'_, '_, H>, link: usize) -> Result<u32, Failure> {
        let param = nic
            .ep_query(self.ep(link)?)
            .map_err(|e| dat("dat_ep_query", e))?;
        let qp = param.qp.map(|qp| qp.number);
        qp.ok_or_else(|| Failure::new("an Endpoint has no queue pair"))
    }

    /// Posts a receive into `piece`, which has [`GRH_LEN`] bytes more than a datagram.
    pub(super) fn recv<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        piece: LmrTriplet,
        cookie: u64,
    ) -> Result<(), Failure> {
        nic.ep_post_recv(self.ep(link)?, &[piece], cookie, PLAIN)
            .map_err(|ret| dat("dat_ep_post_recv", ret))
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
        nic.ep_ud_address(self.ep(link)?)
            .map_err(|error| dat("the address that was found", error))
    }

    /// From now on peers can ask for `port`.
    pub(super) fn listen<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        port: u16,
    ) -> Result<(), Failure> {
        let psp = nic
            .psp_create(port.into(), self.evd, PspFlag::Consumer)
            .map_err(|e| dat("dat_psp_create", e))?;
        self.psp = Some(psp);
        let ip = nic.query().0.ia_address;
        note(&format!(
            "dat: {} listens on {ip} port {port} for {}; Ctrl-C ends it",
            nic.host().name(),
            self.program
        ));
        Ok(())
    }

    /// Tells who asks that it is to send to this Endpoint.
    pub(super) fn accept<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        cr: Cr,
        link: usize,
    ) -> Result<(), Failure> {
        let request = nic.cr_query(cr).map_err(|e| dat("dat_cr_query", e))?;
        self.peer = request.remote.to_string();
        nic.cr_accept(cr, Some(self.ep(link)?), &[])
            .map_err(|e| dat("dat_cr_accept", e))
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
                return Err(Failure::new(format!(
                    "{what} did not come within {} s",
                    limit.as_secs_f64()
                ))
                .remedy(format!(
                    "is {} there, and is it {}? a datagram that is lost is not repeated",
                    self.peer, self.program
                )));
            }
            let Some(event) = adapter::next(nic, self.evd, left.min(SLICE), self.spin)? else {
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
        let told = nic
            .evd_extension(self.evd)
            .map_err(|ret| dat("what came with a datagram", ret))?;
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
        Failure::new(format!(
            "a datagram to or from {} failed: {cause}",
            self.peer
        ))
        .remedy(remedy)
    }

    /// Why a service point was not found.
    fn unfound<H: Host>(&self, nic: &Nic<'_, '_, H>, ep: Ep) -> Failure {
        let Some(server) = self.server else {
            return Failure::new("an Endpoint was refused what it did not ask for");
        };
        match nic.ep_reject_reason(ep).ok().flatten() {
            None => lost(server.ip()),
            Some(Reason::INVALID_SERVICE_ID) => Failure::new(format!(
                "{} is there, but nothing listens on its port {}",
                server.ip(),
                server.port()
            ))
            .remedy(format!("start {} there", self.program)),
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
        let mut first = match self.psp {
            Some(psp) => nic.psp_free(psp).map_err(|e| dat("dat_psp_free", e)),
            None => Ok(()),
        };
        for ep in &self.eps {
            first = first.and(nic.ep_free(*ep).map_err(|e| dat("dat_ep_free", e)));
        }
        for memory in memory {
            first = first.and(memory.free(nic));
        }
        first = first.and(nic.evd_free(self.evd).map_err(|e| dat("dat_evd_free", e)));
        first.and(nic.pz_free(self.pz).map_err(|e| dat("dat_pz_free", e)))
    }
}
