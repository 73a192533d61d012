//! What all programs do: connect, post, exchange, verify, part, on any number of Endpoints with one
//! Event Dispatcher. [`Protocol`] says the rest; [`greet`] is how they connect.

mod greet;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use dat_core::cm::Reason;
use dat_core::provider::{Destination, Provider};
use dat_core::{
    CloseFlag, CompletionFlags, Cr, DtoOperation, DtoStatus, Ep, EpAttr, Evd, EvdFlags, Event,
    GRH_LEN, IbDtoEvent, IbOperation, LmrParam, LmrTriplet, MemPriv, Psp, Pz,
};
use hca_mlx5::dma::Buffer;
use vfio_host::{Host, WaitError};

use super::Args;
use super::protocol::{Order, Protocol, Role};

/// An adapter with room for as many Endpoints as a program has connections.
pub(super) type Nic<'s, 'p, H> = vfio_host::Nic<'s, 'p, H, 1024, 64, 4096>;

/// Messages under way on one connection.
const WINDOW: u64 = 16;
/// Receives of an alternating program: one message is under way while one is looked at.
const RECVS: usize = 2;
/// The programs look at the first byte of every page, and take anything but zero for a fault.
const PAGE: usize = 4096;
/// A peer may take so long to notice that a connection has ended.
const PARTING: Duration = Duration::from_secs(2);
/// Pause before a server is asked again that had no room, or still holds a connection of an earlier
/// run of this device.
const PAUSE: Duration = Duration::from_millis(2);
/// No flags.
const PLAIN: CompletionFlags = CompletionFlags::empty();

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It has not been asked for or accepted.
    #[default]
    Idle,
    /// It has.
    Pending,
    Up,
    Over,
}

/// An Endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    ep: Ep,
    pub(super) state: State,
    /// Where its datagrams go.
    to: Option<Destination>,
    posted: u64,
    sent: u64,
    received: u64,
}

/// Registered memory.
struct Memory<'p, H: Host> {
    buffer: Buffer<'p, H>,
    lmr: LmrParam,
}

impl<H: Host> Memory<'_, H> {
    fn piece(&self, at: usize, len: usize) -> LmrTriplet {
        self.lmr.local(at as u64, len as u32)
    }
}

/// The Endpoints and their memory.
pub(super) struct Engine<'e, 's, 'p, H: Host> {
    pub(super) nic: &'e mut Nic<'s, 'p, H>,
    pub(super) args: &'e Args,
    protocol: Protocol,
    role: Role,
    pz: Pz,
    evd: Evd,
    psp: Option<Psp>,
    pub(super) links: Vec<Link>,
    /// Requests for connections that have not been answered.
    requests: VecDeque<Cr>,
    /// Messages come in here, into as many pieces for each Endpoint as it has receives at a time.
    inward: Memory<'p, H>,
    /// Messages go out from here, a piece for each Endpoint.
    outward: Memory<'p, H>,
    /// The contents of all messages; a server knows them from the first.
    wanted: Option<Vec<u8>>,
    /// This side may send.
    open: bool,
    /// Connections that have come up, and that have ended.
    pub(super) ups: usize,
    pub(super) overs: usize,
    /// When a connection came up, or this side began.
    progress: Instant,
}

impl<'e, 's, 'p, H: Host> Engine<'e, 's, 'p, H> {
    /// Makes the Endpoints.
    pub(super) fn new(nic: &'e mut Nic<'s, 'p, H>, args: &'e Args) -> Result<Self> {
        let protocol = args.program.protocol();
        let header = if protocol.qkey.is_some() { GRH_LEN } else { 0 };
        let mtu = nic.provider().limits().mtu.bytes();
        if header > 0 {
            ensure!(args.size <= mtu as usize, "a datagram has at most {mtu} bytes here");
        }
        let (pieces, receives) = match protocol.order {
            Order::Alternating => (RECVS, RECVS as u64),
            Order::AllOf(_) => (1, args.messages().max(1)),
        };
        let count = args.count.min(super::SIZES.eps as usize);
        let window = if args.messages() == 0 { 1 } else { WINDOW };
        let pz = nic.pz_create()?;
        let events = count as u64 * (window + receives);
        let streams = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR;
        let evd = nic.evd_create(events as u32, streams)?;
        let attr = EpAttr {
            max_request_dtos: window as u16,
            max_recv_dtos: receives as u16,
            ..nic.ep_attr_default()
        };
        let mut links = Vec::new();
        for _ in 0..count {
            let ep = if let Some(qkey) = protocol.qkey {
                let attr = EpAttr { max_message_size: mtu, max_request_iov: 1, ..attr };
                nic.ep_create_ud(pz, evd, evd, Some(evd), Some(&attr), qkey)?
            } else {
                nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), Some(&attr))?
            };
            let state = State::Idle;
            links.push(Link { ep, state, to: None, posted: 0, sent: 0, received: 0 });
        }
        let mut memory = |len: usize, rights: MemPriv| {
            let writes = rights.contains(MemPriv::LOCAL_WRITE);
            let buffer = if writes { nic.buffer(len) } else { nic.send_buffer(len) };
            let buffer = buffer.with_context(|| format!("no memory for {len} bytes"))?;
            let lmr = nic.lmr_create(pz, buffer.region(), rights)?;
            anyhow::Ok(Memory { buffer, lmr })
        };
        let both = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let inward = memory((args.size + header) * pieces * count + 1, both)?;
        let outward = memory(args.size * count + 1, MemPriv::LOCAL_READ)?;
        let role = if args.client.is_some() { Role::Client } else { Role::Server };
        let mut engine = Self {
            nic,
            args,
            protocol,
            role,
            pz,
            evd,
            psp: None,
            links,
            requests: VecDeque::new(),
            inward,
            outward,
            wanted: None,
            open: false,
            ups: 0,
            overs: 0,
            progress: Instant::now(),
        };
        if engine.verifies() && role == Role::Client {
            let bytes = (0..args.size).map(|at| if at % PAGE == 0 { 0 } else { (at % 251) as u8 });
            let bytes: Vec<u8> = bytes.collect();
            for link in 0..count {
                engine.outward.buffer.copy_in(link * args.size, &bytes);
            }
            engine.wanted = Some(bytes);
        }
        Ok(engine)
    }

    /// Whether contents are verified.
    pub(super) fn verifies(&self) -> bool {
        self.protocol.order == Order::Alternating
    }

    /// Where a receive's bytes begin, and how many there are.
    fn place(&self, link: usize, piece: usize) -> (usize, usize) {
        let header = if self.protocol.qkey.is_some() { GRH_LEN } else { 0 };
        let pieces = if self.verifies() { RECVS } else { 1 };
        let len = self.args.size + header;
        ((link * pieces + piece) * len, len)
    }

    fn post_recv(&mut self, link: usize, piece: usize) -> Result<()> {
        let (at, len) = self.place(link, piece);
        let segment = self.inward.piece(at, len);
        Ok(self.nic.ep_post_recv(self.links[link].ep, &[segment], piece as u64, PLAIN)?)
    }

    /// Posts the receives that a connection begins with. The peer may send as soon as it is there.
    fn post_recvs(&mut self, link: usize) -> Result<()> {
        if self.verifies() {
            return (0..RECVS).try_for_each(|piece| self.post_recv(link, piece));
        }
        (0..self.args.messages()).try_for_each(|_| self.post_recv(link, 0))
    }

    // Messages.

    /// Moves all messages.
    pub(super) fn exchange(&mut self) -> Result<()> {
        let (messages, role) = (self.args.messages(), self.role);
        match self.protocol.order {
            Order::Alternating => {
                self.send_all()?;
                self.until("the next message", |it| {
                    it.sum(|l| l.sent).min(it.sum(|l| l.received)) >= messages
                })
            }
            Order::AllOf(first) => {
                let have = |it: &Self| it.links.iter().all(|link| link.received == messages);
                // A peer that has all may end the connection before the last completion is seen.
                let gone = |it: &Self| {
                    it.links.iter().all(|link| link.sent == messages || link.state == State::Over)
                };
                if first == role {
                    self.send_all()?;
                    return self.until("the peer's messages", |it| have(it) && gone(it));
                }
                self.until("the peer's messages", have)?;
                self.send_all()?;
                self.until("the end of all sends", gone)
            }
        }
    }

    /// Starts to send.
    fn send_all(&mut self) -> Result<()> {
        self.open = true;
        (0..self.links.len()).try_for_each(|link| self.send(link))
    }

    fn sum(&self, of: impl Fn(&Link) -> u64) -> u64 {
        self.links.iter().map(of).sum()
    }

    /// Whether an Endpoint's next message may go out.
    fn may_send(&self, link: usize) -> bool {
        let it = &self.links[link];
        let due = match self.protocol.order {
            Order::AllOf(_) => it.posted < self.args.messages() && it.posted - it.sent < WINDOW,
            Order::Alternating => {
                // The server answers what it has, the client what it has had an answer to.
                let answers = it.posted + u64::from(self.role == Role::Server);
                let enough = self.sum(|link| link.sent) >= self.args.messages();
                !enough && it.sent == it.posted && it.received == answers
            }
        };
        self.open && it.state == State::Up && due
    }

    /// Sends what may go out.
    fn send(&mut self, link: usize) -> Result<()> {
        while self.may_send(link) {
            let Link { ep, to, .. } = self.links[link];
            let segment = self.outward.piece(link * self.args.size, self.args.size);
            if self.protocol.qkey.is_some() {
                let to = to.context("no datagram has said where to answer")?;
                // udaddy's datagrams carry the number of the sender's queue pair.
                let own = self.nic.ep_query(ep)?.qp.map(|qp| qp.number);
                let immediate = own.filter(|_| !self.verifies());
                self.nic.ep_post_send_ud(ep, &[segment], &to, immediate, 0, PLAIN)?;
            } else {
                self.nic.ep_post_send(ep, &[segment], 0, PLAIN)?;
            }
            self.links[link].posted += 1;
        }
        Ok(())
    }

    /// A message has come.
    fn received(&mut self, link: usize, piece: usize, len: usize) -> Result<()> {
        let size = self.args.size;
        ensure!(len == size, "the peer sent {len} bytes instead of {size}");
        self.links[link].received += 1;
        if !self.verifies() {
            return Ok(());
        }
        let (at, whole) = self.place(link, piece);
        let at = at + whole - size;
        let mut bytes = vec![0; size];
        self.inward.buffer.copy_out(at, &mut bytes);
        let wanted = self.wanted.get_or_insert_with(|| bytes.clone());
        let wrong = wanted.iter().zip(&bytes).position(|(a, b)| a != b);
        ensure!(wrong.is_none(), "a message is wrong from byte {} on", wrong.unwrap_or(0));
        if self.role == Role::Server {
            self.outward.buffer.copy_in(link * size, &bytes);
        }
        // What does not come must not be taken for what came last.
        self.inward.buffer.copy_in(at, &vec![!0; size]);
        self.post_recv(link, piece)
    }

    /// A datagram has come: it says where it came from.
    fn datagram(&mut self, link: usize, event: &IbDtoEvent) -> Result<()> {
        let extra = self.nic.evd_extension(self.evd)?;
        let len = (event.len as usize).saturating_sub(GRH_LEN);
        match self.links[link].to {
            Some(to) if self.verifies() => {
                let from = extra.source_qpn;
                ensure!(from == to.qpn, "a datagram came from queue pair {from:#x}");
            }
            Some(_) => {}
            None => {
                let with_number = event.operation == IbOperation::RecvMsgUdImmed;
                ensure!(with_number, "a datagram came without the number of its queue pair");
                let mut header = [0; GRH_LEN];
                self.inward.buffer.copy_out(self.place(link, 0).0, &mut header);
                let from =
                    extra.network.sender(&header).context("a datagram came without an address")?;
                self.links[link].to = Some(self.address(from, extra.immediate)?);
            }
        }
        self.received(link, event.cookie as usize, len)
    }

    // Ending.

    /// Ends the connections, or waits until the peer has.
    pub(super) fn part(&mut self) -> Result<()> {
        if self.protocol.ends == Some(self.role) {
            (0..self.links.len()).try_for_each(|link| self.disconnect(link))?;
            // A peer that is gone says nothing.
            let until = Instant::now() + PARTING;
            while self.overs < self.links.len() && Instant::now() < until {
                let event = self.event(until - Instant::now())?;
                event.map_or(Ok(()), |event| self.take(event))?;
            }
        } else if self.protocol.ends.is_some() {
            self.until("the end of the connections", |it| it.overs == it.links.len())?;
        }
        Ok(())
    }

    pub(super) fn disconnect(&mut self, link: usize) -> Result<()> {
        Ok(self.nic.ep_disconnect(self.links[link].ep, CloseFlag::Graceful)?)
    }

    /// Makes an Endpoint whose connection is over fit for another.
    pub(super) fn renew(&mut self, link: usize) -> Result<()> {
        let Link { ep, .. } = self.links[link];
        self.nic.ep_reset(ep)?;
        self.links[link] =
            Link { ep, state: State::Idle, to: None, posted: 0, sent: 0, received: 0 };
        Ok(())
    }

    /// Gives everything back.
    pub(super) fn free(mut self) -> Result<()> {
        self.stop_listening()?;
        for link in &self.links {
            self.nic.ep_free(link.ep)?;
        }
        for memory in [self.inward, self.outward] {
            self.nic.lmr_free(memory.lmr.lmr)?;
            memory.buffer.release();
        }
        self.nic.evd_free(self.evd)?;
        Ok(self.nic.pz_free(self.pz)?)
    }

    // Events.

    /// Waits until something holds; the peer may not be silent for too long meanwhile.
    pub(super) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<()> {
        while !holds(self) {
            self.turn(what, self.args.timeout())?;
        }
        Ok(())
    }

    /// Waits for one event, and takes it.
    pub(super) fn turn(&mut self, what: &str, limit: Duration) -> Result<()> {
        let event = self.event(limit)?;
        let late = || format!("{what} did not come within {} s", limit.as_secs_f64());
        self.take(event.with_context(late)?)
    }

    fn event(&mut self, limit: Duration) -> Result<Option<Event>> {
        match self.nic.evd_wait(self.evd, limit, 1) {
            Ok(event) => Ok(Some(event)),
            Err(WaitError::TIMEOUT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn link(&self, ep: Ep) -> Result<usize> {
        self.links.iter().position(|link| link.ep == ep).context("an Endpoint that does not exist")
    }

    fn take(&mut self, event: Event) -> Result<()> {
        match event {
            // The event that ends the connection says more, and follows.
            Event::Dto(dto) if dto.status == DtoStatus::ErrFlushed => Ok(()),
            Event::Dto(dto) => {
                let link = self.link(dto.ep)?;
                ensure!(dto.status == DtoStatus::Success, "{:?}: {:?}", dto.operation, dto.status);
                if dto.operation == DtoOperation::Receive {
                    self.received(link, dto.cookie as usize, dto.len as usize)?;
                } else {
                    self.links[link].sent += 1;
                }
                self.send(link)
            }
            Event::IbDto(dto) => {
                let link = self.link(dto.ep)?;
                ensure!(dto.status() == DtoStatus::Success, "a datagram: {:?}", dto.status());
                if matches!(dto.operation, IbOperation::RecvMsgUd | IbOperation::RecvMsgUdImmed) {
                    self.datagram(link, &dto)?;
                } else {
                    self.links[link].sent += 1;
                }
                self.send(link)
            }
            Event::ConnectionRequest { cr, .. } | Event::UdConnectionRequest { cr, .. } => {
                // Who wants the other kind is at the wrong program.
                let datagrams = matches!(event, Event::UdConnectionRequest { .. });
                if datagrams == self.protocol.qkey.is_some() {
                    self.requests.push_back(cr);
                    return Ok(());
                }
                Ok(self.nic.cr_reject(cr, &[])?)
            }
            Event::Established(ep) | Event::UdEstablished(ep, _) => {
                let link = self.link(ep)?;
                if self.protocol.qkey.is_some() {
                    self.links[link].to = Some(self.nic.ep_ud_address(ep)?);
                }
                self.links[link].state = State::Up;
                self.ups += 1;
                self.progress = Instant::now();
                self.send(link)
            }
            Event::Disconnected(ep) => {
                let link = self.link(ep)?;
                let (received, all) = (self.links[link].received, self.args.messages());
                let early = !self.verifies() && received < all;
                ensure!(!early, "connection {link} ended after {received} of {all} messages");
                self.links[link].state = State::Over;
                self.overs += 1;
                Ok(())
            }
            Event::PeerRejected(ep)
            | Event::NonPeerRejected(ep)
            | Event::AcceptCompletionError(ep)
            | Event::TimedOut(ep)
            | Event::Unreachable(ep)
            | Event::UdReject(ep, _)
            | Event::UdError(ep) => self.refused(ep, event),
            Event::Broken(ep) => {
                let cause = self.nic.ep_cause(ep)?.map(|fault| fault.to_string());
                bail!("a connection broke: {}", cause.unwrap_or_default())
            }
            _ => Ok(()),
        }
    }

    /// A connection did not come up. The peer may hold one of an earlier run of this device, or
    /// have no room at present: then the same again.
    fn refused(&mut self, ep: Ep, event: Event) -> Result<()> {
        let link = self.link(ep)?;
        let reason = self.nic.ep_reject_reason(ep)?;
        if let Some(Reason::STALE | Reason::NO_RESOURCES) = reason {
            let time = self.progress.elapsed();
            ensure!(time < self.args.timeout(), "the peer takes no more connections");
            self.renew(link)?;
            if let Some(server) = self.args.server()? {
                std::thread::sleep(PAUSE);
                self.connect(link, server)?;
            }
            return Ok(());
        }
        match reason {
            Some(Reason::INVALID_SERVICE_ID) => bail!("nothing listens on the server's port"),
            Some(reason) => bail!("the peer rejected the connection: {reason}"),
            None => Err(anyhow!("no connection: {event:?}")),
        }
    }
}
