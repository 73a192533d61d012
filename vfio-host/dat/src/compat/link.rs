//! Endpoints that connect to another program, and the wait for what happens to them.
//!
//! Every wait has an end: silence of the peer, the connection's end, trouble of the device, Ctrl-C.
//! What a peer sends before this side knows the connection to be there is held back until it does.
//!
//! Length: one wait knows every event, and each program's verbs are made of it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use dat_core::cm::{QpTerms, Reason};
use dat_core::provider::Atomic;
use dat_core::{
    CloseFlag, Cr, DatReturn, DtoEvent, DtoOperation, DtoStatus, Ep, EpAttr, Event, IbOperation,
    LmrTriplet, RmrTriplet,
};
use tracing::{debug, info};
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::super::traffic::adapter::{self, SLICE, broken, dat};
use super::super::traffic::memory::Memory;
use super::args::Patience;
use super::ends::{Ends, Makings, PLAIN, interrupted, late, lost, unserved};

/// Attempts to connect that the peer may take for ghosts of an earlier connection.
const ATTEMPTS: usize = 4;
/// The peer may take so long to notice the end.
const PARTING: Duration = Duration::from_secs(2);
/// What happened, and to which Endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkEvent {
    /// An operation succeeded.
    Done(usize, DtoEvent),
    /// The connection is there.
    Up,
    /// The connection has ended in good order.
    Over,
    /// Somebody asks for a connection.
    Asked(Cr),
}

/// The Endpoints and what belongs to them.
#[derive(Debug)]
pub(super) struct Links {
    ends: Ends,
    /// Connected at present.
    up: Vec<bool>,
    /// What came before its connection was there.
    early: VecDeque<(usize, DtoEvent)>,
    /// A Ctrl-C waits until the peer has done what it is asked for, or is silent for too long.
    through: bool,
}

impl Deref for Links {
    type Target = Ends;

    fn deref(&self) -> &Ends {
        &self.ends
    }
}

impl DerefMut for Links {
    fn deref_mut(&mut self) -> &mut Ends {
        &mut self.ends
    }
}

impl Links {
    /// Makes them.
    pub(super) fn new<H: Host>(
        nic: &mut Nic<'_, '_, H>,
        makings: Makings,
        patience: &Patience,
        program: &'static str,
    ) -> Result<Self, Failure> {
        let ends = Ends::new(nic, makings, patience, program, |nic, pz, evd, attr| {
            let evds = Some(evd);
            let attr = EpAttr { max_rdma_read_in: 1, max_rdma_read_out: 1, ..attr };
            nic.ep_create(Some(pz), evds, evds, evds, Some(&attr))
        })?;
        Ok(Self { up: vec![false; ends.eps.len()], ends, early: VecDeque::new(), through: false })
    }

    /// From now on a Ctrl-C is the caller's to heed, between one thing and the next.
    pub(super) fn see_through(&mut self) {
        self.through = true;
    }

    /// Posts receives into these pieces, with their places as cookies.
    pub(super) fn recvs<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        pieces: &[LmrTriplet],
    ) -> Result<(), Failure> {
        (0..).zip(pieces).try_for_each(|(cookie, piece)| self.recv(nic, link, *piece, cookie))
    }

    /// Sends `piece`.
    pub(super) fn send<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        piece: LmrTriplet,
        cookie: u64,
    ) -> Result<(), Failure> {
        nic.ep_post_send(self.ep(link)?, &[piece], cookie, PLAIN)
            .map_err(|ret| dat("dat_ep_post_send", ret))
    }

    /// Reads `far` into `piece`.
    pub(super) fn read<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        piece: LmrTriplet,
        far: &RmrTriplet,
    ) -> Result<(), Failure> {
        nic.ep_post_rdma_read(self.ep(link)?, &[piece], 0, far, PLAIN)
            .map_err(|ret| dat("dat_ep_post_rdma_read", ret))
    }

    /// Writes `piece` to `far`.
    pub(super) fn write<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        piece: LmrTriplet,
        far: &RmrTriplet,
    ) -> Result<(), Failure> {
        nic.ep_post_rdma_write(self.ep(link)?, &[piece], 0, far, PLAIN)
            .map_err(|ret| dat("dat_ep_post_rdma_write", ret))
    }

    /// Does an atomic on the 8 bytes of `far`; `piece` gets what was there before. Its end is seen
    /// as that of a read.
    pub(super) fn atomic<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        piece: LmrTriplet,
        far: &RmrTriplet,
        atomic: Atomic,
    ) -> Result<(), Failure> {
        let ep = self.ep(link)?;
        match atomic {
            Atomic::FetchAdd(add) => nic
                .ep_post_fetch_add(ep, add, &piece, 0, far, PLAIN)
                .map_err(|ret| dat("dat_ib_post_fetch_and_add", ret)),
            Atomic::CmpSwap { compare, swap } => nic
                .ep_post_cmp_swap(ep, compare, swap, &piece, 0, far, PLAIN)
                .map_err(|ret| dat("dat_ib_post_cmp_and_swap", ret)),
        }
    }

    /// Connects one that has these receives, and waits until it is.
    pub(super) fn connect<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        peer: SocketAddr,
        recvs: &[LmrTriplet],
    ) -> Result<(), Failure> {
        let ep = self.ep(link)?;
        let until = Instant::now() + self.timeout;
        let mut attempt = 1;
        loop {
            self.recvs(nic, link, recvs)?;
            info!("connecting to {peer}");
            let left = until.saturating_duration_since(Instant::now());
            self.peer = peer.to_string();
            nic.ep_connect(ep, peer, left.max(SLICE), &[])
                .map_err(|error| dat("dat_ep_connect", error))?;
            let event = loop {
                interrupted("the connection")?;
                let event = self.event(nic, SLICE)?;
                if let Some(Event::Dto(dto)) = event {
                    self.early.push_back((self.link(dto.ep)?, dto));
                } else if let Some(event) = event {
                    break event;
                }
            };
            debug!("attempt {attempt}: {event:?}");
            if event == Event::Established(ep) {
                self.rise(link);
                return Ok(());
            }
            // The peer may hold a connection from before this device was reset. Now it knows.
            let ghost = nic.ep_reject_reason(ep) == Ok(Some(Reason::STALE));
            if !ghost || attempt == ATTEMPTS || Instant::now() >= until {
                return Err(unconnected(nic, peer, ep, event, self.program, self.timeout));
            }
            nic.ep_reset(ep).map_err(|e| dat("dat_ep_reset", e))?;
            attempt += 1;
        }
    }

    /// Connects one to a queue pair that was given by other means, and waits until this side is
    /// ready.
    pub(super) fn connect_direct<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        remote: IpAddr,
        terms: &QpTerms,
    ) -> Result<(), Failure> {
        let ep = self.ep(link)?;
        nic.ep_connect_direct(ep, remote, terms, self.timeout)
            .map_err(|error| dat("connecting the queue pair", error))?;
        loop {
            interrupted("the way to the peer")?;
            match self.event(nic, SLICE)? {
                // A message of the peer may come before the event that this side is ready.
                Some(Event::Dto(dto)) => self.early.push_back((self.link(dto.ep)?, dto)),
                Some(event) if event == Event::Established(ep) => {
                    self.rise(link);
                    return Ok(());
                }
                Some(Event::Unreachable(_) | Event::TimedOut(_)) => return Err(lost(remote)),
                Some(_) => return Err(broken(nic, ep, &self.peer)),
                None => {}
            }
        }
    }

    /// Waits until somebody asks for a connection, and who.
    pub(super) fn asked<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        wait: Duration,
    ) -> Result<(Cr, IpAddr), Failure> {
        let what = format!("a {} client", self.program);
        match self.next(nic, wait, &what)? {
            LinkEvent::Asked(cr) => {
                let request = nic.cr_query(cr).map_err(|e| dat("dat_cr_query", e))?;
                Ok((cr, request.remote))
            }
            LinkEvent::Done(..) | LinkEvent::Up | LinkEvent::Over => {
                Err(Failure::new("something happened before there was a client"))
            }
        }
    }

    /// Turns a request away.
    pub(super) fn refuse<H: Host>(nic: &mut Nic<'_, '_, H>, cr: Cr) {
        // The peer may have gone meanwhile.
        if let Err(error) = nic.cr_reject(cr, &[]) {
            debug!("dat_cr_reject: {error}");
        }
    }

    /// What happens next, within the peer's patience; `what` is waited for.
    pub(super) fn next_event<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        what: &str,
    ) -> Result<LinkEvent, Failure> {
        self.next(nic, self.timeout, what)
    }

    /// What happens next, within `limit`.
    pub(super) fn next<H: Host>(
        &mut self,
        nic: &mut Nic<'_, '_, H>,
        limit: Duration,
        what: &str,
    ) -> Result<LinkEvent, Failure> {
        let until = Instant::now() + limit;
        let up = &self.up;
        let is_up = |link: usize| up.get(link).copied().unwrap_or(false);
        if let Some(at) = self.early.iter().position(|(link, _)| is_up(*link)) {
            if let Some((link, dto)) = self.early.remove(at) {
                return self.done(nic, link, dto);
            }
        }
        loop {
            if !self.through {
                interrupted(what)?;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late(what, limit).remedy(self.silence()));
            }
            let Some(event) = self.event(nic, left)? else {
                continue;
            };
            match plain(event) {
                // The event that ends the connection says more, and comes behind.
                Event::Dto(dto) if dto.status == DtoStatus::ErrFlushed => {}
                Event::Dto(dto) => {
                    let link = self.link(dto.ep)?;
                    if self.up.get(link) == Some(&true) {
                        return self.done(nic, link, dto);
                    }
                    self.early.push_back((link, dto));
                }
                Event::ConnectionRequest { cr, .. }
                | Event::ReservedRequest { cr, .. }
                | Event::CommonRequest { cr, .. } => return Ok(LinkEvent::Asked(cr)),
                Event::Established(ep) => {
                    let link = self.link(ep)?;
                    self.rise(link);
                    return Ok(LinkEvent::Up);
                }
                Event::Disconnected(ep) => {
                    let link = self.link(ep)?;
                    if let Some(up) = self.up.get_mut(link) {
                        *up = false;
                    }
                    return Ok(LinkEvent::Over);
                }
                Event::Broken(ep)
                | Event::PeerRejected(ep)
                | Event::NonPeerRejected(ep)
                | Event::AcceptCompletionError(ep)
                | Event::TimedOut(ep)
                | Event::Unreachable(ep) => return Err(broken(nic, ep, &self.peer)),
                // Who wants to send datagrams is at the wrong program.
                Event::UdConnectionRequest { cr, .. } => Self::refuse(nic, cr),
                Event::RmrBind { .. }
                | Event::IbDto(_)
                | Event::UdEstablished(..)
                | Event::UdAccepted(_)
                | Event::UdReject(..)
                | Event::UdError(_)
                | Event::Async(_)
                | Event::Software(_) => {}
            }
        }
    }

    /// Looks, without waiting, whether a connection has ended or an operation has failed. What else
    /// has happened is kept.
    pub(super) fn watch<H: Host>(&mut self, nic: &mut Nic<'_, '_, H>) -> Result<(), Failure> {
        loop {
            let event = match nic.evd_dequeue(self.evd) {
                Ok(event) => plain(event),
                Err(DatReturn::QUEUE_EMPTY) => return Ok(()),
                Err(ret) => return Err(dat("dat_evd_dequeue", ret)),
            };
            if let Event::Dto(dto) = event {
                let link = self.link(dto.ep)?;
                if dto.status == DtoStatus::Success {
                    self.early.push_back((link, dto));
                } else if dto.status != DtoStatus::ErrFlushed {
                    self.done(nic, link, dto)?;
                }
            } else if let Event::Broken(ep) = event {
                let failure = broken(nic, ep, &self.peer);
                if !failure.remedy.is_empty() {
                    return Err(failure);
                }
                return Err(failure.remedy(format!(
                    "is it {} with the same options as here? its output may say more",
                    self.program
                )));
            }
        }
    }

    fn silence(&self) -> String {
        format!(
            "is {} still there, and is it {}? --timeout and --wait give it more time",
            self.peer, self.program
        )
    }

    fn rise(&mut self, link: usize) {
        if let Some(up) = self.up.get_mut(link) {
            *up = true;
        }
    }

    fn done<H: Host>(
        &self,
        nic: &mut Nic<'_, '_, H>,
        link: usize,
        dto: DtoEvent,
    ) -> Result<LinkEvent, Failure> {
        if dto.status == DtoStatus::Success {
            return Ok(LinkEvent::Done(link, dto));
        }
        Err(failed(nic, &dto, &self.peer))
    }

    /// Parts from everybody in good order: what was posted finishes first, and the peers learn of
    /// it.
    pub(super) fn part<H: Host>(&mut self, nic: &mut Nic<'_, '_, H>) -> Result<(), Failure> {
        for (ep, _) in self.eps.iter().zip(&self.up).filter(|(_, up)| **up) {
            nic.ep_disconnect(*ep, CloseFlag::Graceful)
                .map_err(|error| dat("dat_ep_disconnect", error))?;
        }
        let until = Instant::now() + PARTING;
        while self.up.contains(&true) {
            let left = until.saturating_duration_since(Instant::now());
            match self.event(nic, left)? {
                Some(Event::Dto(_)) => {}
                Some(event) if event.is_terminal() => {
                    if let Event::Disconnected(ep) | Event::Broken(ep) = event {
                        let link = self.link(ep)?;
                        if let Some(up) = self.up.get_mut(link) {
                            *up = false;
                        }
                    }
                }
                Some(_) => {}
                None if left.is_zero() => break,
                None => {}
            }
        }
        Ok(())
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

/// The same event, but the end of an atomic as the end of a read, which it is to the connection.
fn plain(event: Event) -> Event {
    let Event::IbDto(done) = event else {
        return event;
    };
    if !matches!(done.operation, IbOperation::FetchAdd | IbOperation::CmpSwap) {
        return event;
    }
    Event::Dto(DtoEvent {
        ep: done.ep,
        cookie: done.cookie,
        status: done.status(),
        len: done.len,
        operation: DtoOperation::RdmaRead,
    })
}

/// Why an attempt to connect to `program` at `peer`, which had so much time, ended otherwise.
pub(super) fn unconnected<H: Host>(
    nic: &mut Nic<'_, '_, H>,
    peer: SocketAddr,
    ep: Ep,
    event: Event,
    program: &str,
    timeout: Duration,
) -> Failure {
    let mtu = adapter::path_mtu(nic);
    let reason = nic.ep_reject_reason(ep).ok().flatten();
    match (event, reason) {
        (_, Some(Reason::INVALID_SERVICE_ID)) => unserved(peer, program),
        (_, Some(Reason::INVALID_MTU)) => Failure::new(format!(
            "{peer} cannot take packets of {mtu} bytes: it has a smaller MTU"
        ))
        .remedy("give a smaller --mtu here, or raise the MTU there"),
        (_, Some(Reason::CONSUMER)) => Failure::new(format!("{peer} refused the connection"))
            .remedy(format!(
                "its output says why; if its port cannot take packets of {mtu} bytes, give a smaller --mtu"
            )),
        (_, Some(reason)) => Failure::new(format!("{peer} rejected the connection: {reason}"))
            .remedy("the peer's output and its kernel log may say more"),
        (Event::Unreachable(_), None) => lost(peer.ip()),
        (Event::TimedOut(_), None) => Failure::new(format!(
            "no connection to {peer} within {} s",
            timeout.as_secs_f64()
        ))
        .remedy(format!(
            "is it up, in the same network and VLAN, and does {program} run there? --timeout gives it more time"
        )),
        (_, None) => broken(nic, ep, &peer.to_string()),
    }
}

/// Why an operation with `peer` failed.
pub(super) fn failed<H: Host>(nic: &mut Nic<'_, '_, H>, dto: &DtoEvent, peer: &str) -> Failure {
    nic.advance();
    if let Some(trouble) = adapter::trouble(nic) {
        return trouble;
    }
    let (cause, remedy) = adapter::status(dto.status);
    let what = match dto.operation {
        DtoOperation::Send => "a send to",
        DtoOperation::RdmaWrite => "a write to",
        DtoOperation::RdmaRead => "a read from",
        DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate => "a receive from",
        DtoOperation::BindMw | DtoOperation::LmrFmr | DtoOperation::LmrInvalidate => {
            "a change of a key for"
        }
    };
    Failure::new(format!("{what} {peer} failed: {cause}")).remedy(remedy)
}
