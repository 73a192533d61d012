//! Queue pairs for small datagrams: QP1, the general services interface, for connection management
//! datagrams; and on InfiniBand that of IP over InfiniBand, and QP0.
//!
//! PRM "Special QPs"; IBTA "General Services Interface". A datagram is a MAD of 256 bytes, sent
//! from our QP1 to the peer's QP1 with the Q_Key every QP1 has. Sending copies the MAD into one of
//! a few buffers in turn; receiving reads it out of the buffer it arrived in, behind the 40 bytes
//! in which the device leaves the packet's network header, and gives the buffer back at once. On
//! RoCEv2 that header says who sent it: an IPv4 header in the last 20 bytes, the first 20
//! undefined, or an IPv6 header; the completion says which. What is not exactly a MAD behind one of
//! these two is dropped and counted. On InfiniBand the completion has the sender's LID, and the
//! header is there only if the packet had one. Anybody can send more: a receive that is too short for a packet may fail the queue
//! pair, so behind each buffer stands memory that all receives share and nobody reads.
//!
//! When QP1 fails, it is reset and started anew at a later service; datagrams lost by that are the
//! connection manager's to repeat. It knows nothing of what is inside a MAD.

use core::fmt;

use dat_core::fault;
use dat_core::provider::{
    Access, Completion, CompletionQueue as _, Fault, MadIn, NetworkHeader, NextHop, Path,
    PostFlags, RecvQueue as _, Region, Segment, Status,
};
use dat_core::{GRH_LEN, Instant};

use crate::data::send::Doorbell;
use crate::data::{Cq, Route, Rq, Sq, address_vector, work};
use crate::device::{Device, note};
use crate::platform::{Platform, Reach, Span};
use crate::prm::mad::GSI_QKEY;
use crate::prm::mkey::Mkey;
use crate::prm::qp::INDEX_IS_QPN;
use crate::prm::wqe::Av;
use crate::verbs::cq::{self, CqObject};
use crate::verbs::mkey;
use crate::verbs::qp::{self, QpObject, QpSpec, Service};

/// Bytes of a MAD.
const MAD: usize = 256;
/// The same, as segments carry it.
const MAD_LEN: u32 = 256;
/// Receives posted: what peers that make and end many connections send before the host looks. A
/// datagram that finds none is lost, and its sender waits for seconds before it asks again. A power
/// of two: a receive's buffer is its token modulo this.
const RECEIVES: u16 = 512;
/// The same of the others.
const FEW_RECEIVES: u16 = 64;
/// Sends in flight at most. A power of two likewise.
const SENDS: u16 = 64;
/// Byte count that a good receive completion must report.
const RECEIVED: u32 = 40 + 256;
const _: () =
    assert!(GRH_LEN + MAD == RECEIVED as usize && MAD == MAD_LEN as usize, "lengths differ");
/// Spacing of receive buffers: header and MAD, up to a whole number of cache lines.
const RECEIVE_STRIDE: usize = 320;
/// Its bytes: no packet has a longer payload than 4,096 bytes.
const OVERFLOW: u32 = 4096 - MAD_LEN;
/// The ECN field of a traffic class, and what says there that a switch may mark the packet instead
/// of dropping it: Linux sends CM datagrams so (`MLX5_ECN_ENABLED`).
const ECN: u8 = 3;
const ECT_0: u8 = 2;
/// QP1 of the peer.
const QP1: u32 = 1;

/// What a queue pair for small datagrams serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// QP1.
    General,
    /// IP over InfiniBand, with the Q_Key of its broadcast group.
    Ip(u32),
    /// QP0.
    Subnet,
}

impl Kind {
    /// Receives posted, a power of two.
    const fn receives(self) -> u16 {
        match self {
            Self::General => RECEIVES,
            Self::Ip(_) | Self::Subnet => FEW_RECEIVES,
        }
    }

    /// Where the send buffers start.
    const fn send_at(self) -> usize {
        RECEIVE_STRIDE * self.receives() as usize
    }

    /// Where the memory starts that takes the rest of a packet that is too long.
    const fn overflow_at(self) -> usize {
        self.send_at() + MAD * SENDS as usize
    }

    /// Bytes of all buffers.
    const fn buffers(self) -> usize {
        self.overflow_at() + OVERFLOW as usize
    }

    const fn service(self) -> Service {
        match self {
            Self::General => Service::Gsi,
            Self::Ip(_) => Service::Datagram { index: INDEX_IS_QPN },
            Self::Subnet => Service::Smi,
        }
    }
}

/// A datagram that came on InfiniBand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) route: Route,
    /// GID of the sender, if the packet had a global header.
    pub(crate) gid: Option<u128>,
    /// Bytes behind the header area.
    pub(crate) len: usize,
    pub(crate) bytes: [u8; MAD],
}

/// Objects of the device, in the order of making.
#[derive(Debug, Default)]
struct Parts {
    pd: Option<u32>,
    buffers: Option<Span>,
    key: Option<Mkey>,
    send_cq: Option<CqObject>,
    recv_cq: Option<CqObject>,
    qp: Option<QpObject>,
}

impl Parts {
    /// Undoes all that was made, last first, as far as the device lets it.
    fn undo<P: Platform>(&self, device: &mut Device<'_, P>) -> Result<(), Fault> {
        let mut first = Ok(());
        if let Some(qp) = &self.qp {
            first = qp::end(device, qp);
        }
        for object in [&self.recv_cq, &self.send_cq].into_iter().flatten() {
            note(&mut first, cq::end(device, object));
        }
        let closed = self.key.map_or(Ok(()), |key| mkey::destroy(device, key));
        note(&mut first, closed);
        if let Some(span) = self.buffers {
            match closed {
                Ok(()) => device.platform().free(span),
                // The device may still write through a key that it did not let go of.
                Err(_) => device.disown(span),
            }
        }
        if let Some(pd) = self.pd {
            note(&mut first, device.dealloc_pd(pd));
        }
        first
    }
}

/// Posting and polling ends.
struct Ends<'p, P: Platform> {
    send_cq: Cq<'p, P>,
    recv_cq: Cq<'p, P>,
    sq: Sq<'p, P>,
    rq: Rq<'p, P>,
}

/// A queue pair for small datagrams.
pub(crate) struct Gsi<'p, P: Platform> {
    platform: &'p P,
    kind: Kind,
    parts: Parts,
    ends: Ends<'p, P>,
    /// Offset of the buffers in the arena.
    buffers: usize,
    lkey: u32,
    /// Sends posted and reaped, modulo 2^16.
    posted: u16,
    reaped: u16,
    /// Token of the receive that completes next.
    expected: u16,
    /// Why it must be started anew.
    fault: Option<Fault>,
    /// When that may be tried.
    restart: Instant,
    /// Receive completions taken when the present service has done its share.
    until: u64,
    /// The last completion event is consumed: ask for another when the queue is empty.
    fired: bool,
    malformed: u32,
}

impl<P: Platform> fmt::Debug for Gsi<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gsi")
            .field("parts", &self.parts)
            .field("fault", &self.fault)
            .field("malformed", &self.malformed)
            .finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Gsi<'p, P> {
    /// Makes QP1 and starts it. On failure all that was made is gone again.
    pub(crate) fn create(device: &mut Device<'p, P>) -> Result<Self, Fault> {
        Self::create_of(device, Kind::General)
    }

    /// The same of another kind.
    pub(crate) fn create_of(device: &mut Device<'p, P>, kind: Kind) -> Result<Self, Fault> {
        let mut parts = Parts::default();
        match Self::build(device, kind, &mut parts) {
            Ok((ends, buffers, lkey)) => {
                let mut gsi = Self {
                    platform: device.platform(),
                    kind,
                    parts,
                    ends,
                    buffers,
                    lkey,
                    posted: 0,
                    reaped: 0,
                    expected: 0,
                    fault: None,
                    restart: Instant::ZERO,
                    until: work::DATAGRAMS.into(),
                    fired: false,
                    malformed: 0,
                };
                if let Err(fault) = gsi.start(device) {
                    let _ = gsi.parts.undo(device);
                    return Err(fault);
                }
                Ok(gsi)
            }
            Err(fault) => {
                // The first failure is the one to tell.
                let _ = parts.undo(device);
                Err(fault)
            }
        }
    }

    fn build(
        device: &mut Device<'p, P>,
        kind: Kind,
        parts: &mut Parts,
    ) -> Result<(Ends<'p, P>, usize, u32), Fault> {
        let platform = device.platform();
        let pd = device.alloc_pd()?;
        parts.pd = Some(pd);
        let buffers = platform.alloc(kind.buffers(), 64, Reach::ReadWrite).ok_or(fault!(
            Resources,
            "QP1",
            "no room in the arena",
            "make the arena larger"
        ))?;
        parts.buffers = Some(buffers);
        let start = address(buffers.offset);
        let addr = platform.memory().addr().wrapping_add(start);
        let region = Region { addr, len: kind.buffers() as u64 };
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let key = mkey::create(device, pd, region, start, access)?;
        parts.key = Some(key);
        let (send_object, send_cq) = cq::create(device, SENDS.into(), false)?;
        parts.send_cq = Some(send_object);
        let (recv_object, recv_cq) = cq::create(device, kind.receives().into(), false)?;
        parts.recv_cq = Some(recv_object);
        let uar = device.uar();
        let spec = QpSpec {
            service: kind.service(),
            pd,
            send_cq: send_object.cqn,
            recv_cq: recv_object.cqn,
            requests: SENDS,
            receives: kind.receives(),
            request_segments: 1,
            receive_segments: 2,
            binds: false,
            uar,
            doorbell: Doorbell::shared(uar.offset, device.config.blocks),
            shared: None,
            inline: false,
        };
        let (object, sq, rq) = qp::create(device, &spec)?;
        parts.qp = Some(object);
        Ok((Ends { send_cq, recv_cq, sq, rq }, buffers.offset, key.0))
    }

    /// Reset to ready-to-send, with all receives posted and an event asked for.
    fn start(&mut self, device: &mut Device<'p, P>) -> Result<(), Fault> {
        let qpn = self.parts.qp.map(|qp| qp.qpn).ok_or(fault!(
            BadState,
            "QP1",
            "it was never made",
            "close the device and open it anew"
        ))?;
        match self.kind {
            Kind::General => qp::start_gsi(device, qpn)?,
            Kind::Ip(qkey) => qp::start_ud(device, qpn, qkey)?,
            Kind::Subnet => qp::start_smi(device, qpn)?,
        }
        for slot in 0..self.kind.receives() {
            self.post(slot);
        }
        self.ends.recv_cq.arm(false);
        Ok(())
    }

    /// Destroys QP1 and all that belongs to it.
    pub(crate) fn destroy(self, device: &mut Device<'p, P>) -> Result<(), Fault> {
        self.parts.undo(device)
    }

    /// The number of the queue pair.
    pub(crate) fn qpn(&self) -> u32 {
        self.parts.qp.map_or(0, |qp| qp.qpn.0)
    }

    /// The number of QP1 as the device knows it.
    pub(crate) fn owns_qp(&self, qpn: u32) -> bool {
        self.parts.qp.is_some_and(|qp| qp.qpn.0 == qpn)
    }

    /// Its completion queue of that number.
    pub(crate) fn cq(&self, cqn: u32) -> Option<&CqObject> {
        let own = [&self.parts.send_cq, &self.parts.recv_cq];
        own.into_iter().flatten().find(|cq| cq.cqn.0 == cqn)
    }

    /// Takes note of a completion event of its queues.
    pub(crate) fn event(&mut self) {
        self.fired = true;
    }

    /// Takes note of a failure of its queues: the next [`Gsi::service`] starts it anew.
    pub(crate) fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// Memory of its receive completions.
    pub(crate) fn ring(&self) -> Option<Span> {
        self.parts.recv_cq.map(|cq| cq.memory())
    }

    /// Where the device leaves network headers: an area before each receive buffer's MAD.
    pub(crate) fn headers(&self) -> impl Iterator<Item = Span> + '_ {
        let area = |slot| Span { offset: self.receive_buffer(slot), len: GRH_LEN };
        (0..self.kind.receives()).map(area)
    }

    /// Datagrams dropped because they were not what QP1 can receive.
    pub(crate) fn malformed(&self) -> u32 {
        self.malformed
    }

    /// Starts QP1 anew if it failed, and lets [`Gsi::recv`] take more datagrams.
    pub(crate) fn service(
        &mut self,
        device: &mut Device<'p, P>,
        now: Instant,
    ) -> Result<(), Fault> {
        self.until = self.ends.recv_cq.taken().saturating_add(work::DATAGRAMS.into());
        self.reap();
        if self.fault.is_none() || now < self.restart {
            return Ok(());
        }
        self.restart = now + work::RESTART;
        if let Some(qp) = self.parts.qp {
            qp::reset(device, qp.qpn)?;
        }
        // Nothing completes any more; earlier completions belong to the queue pair before the
        // reset.
        self.ends.send_cq.discard();
        self.ends.recv_cq.discard();
        self.ends.sq.restart();
        self.ends.rq.restart();
        (self.posted, self.reaped, self.expected) = (0, 0, 0);
        self.start(device)?;
        self.fault = None;
        Ok(())
    }

    /// When [`Gsi::service`] has something to do even if no event comes.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        match self.fault {
            Some(_) => Some(self.restart),
            None => (self.ends.recv_cq.taken() >= self.until).then_some(Instant::ZERO),
        }
    }

    /// Sends one MAD along `path`.
    pub(crate) fn send(&mut self, path: &Path, mad: &[u8; MAD]) -> Result<(), Fault> {
        let mut av = address_vector::address(path, QP1, QP1, GSI_QKEY);
        // In a subnet nothing marks packets so.
        if matches!(path.next_hop, NextHop::Mac(_)) && av.tclass & ECN == 0 {
            av.tclass |= ECT_0;
        }
        self.send_to(&av, mad)
    }

    /// Sends up to [`MAD`] bytes to where the address vector says.
    pub(crate) fn send_to(&mut self, av: &Av, bytes: &[u8]) -> Result<(), Fault> {
        self.reap();
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.posted.wrapping_sub(self.reaped) >= SENDS {
            return Err(fault!(
                Resources,
                "send a datagram",
                "too many are on their way",
                "send it again later"
            ));
        }
        let slot = usize::from(self.posted & (SENDS - 1));
        let offset = self.buffers.wrapping_add(self.kind.send_at() + MAD * slot);
        let bytes = bytes.get(..MAD).unwrap_or(bytes);
        self.platform.memory().write_bytes(offset, bytes);
        let len = u32::try_from(bytes.len()).unwrap_or(MAD_LEN);
        let segment = Segment { addr: address(offset), len, lkey: self.lkey };
        self.ends.sq.datagram(segment, av, PostFlags::SIGNALED);
        self.posted = self.posted.wrapping_add(1);
        Ok(())
    }

    /// The next MAD that arrived on Ethernet; call until `None`. Takes [`work::DATAGRAMS`]
    /// completions at most between two services.
    pub(crate) fn recv(&mut self) -> Option<MadIn> {
        self.take(|this, slot, completion| {
            this.read(slot, completion.len, completion.extra.network)
        })
    }

    /// The next datagram that arrived on InfiniBand, likewise.
    pub(crate) fn arrival(&mut self) -> Option<Arrival> {
        self.take(|this, slot, completion| {
            let route = this.ends.recv_cq.last_route();
            this.read_arrival(slot, completion.len, route)
        })
    }

    fn take<T>(&mut self, read: impl Fn(&Self, u16, &Completion) -> Option<T>) -> Option<T> {
        while let Some(completion) = poll(&mut self.ends.recv_cq, self.until) {
            if !self.in_turn(&completion) {
                break;
            }
            let slot = completion.token & (self.kind.receives() - 1);
            let mad = read(self, slot, &completion);
            self.post(slot);
            if mad.is_some() {
                return mad;
            }
            self.malformed = self.malformed.wrapping_add(1);
        }
        // If entries are left, the event comes at once.
        if core::mem::take(&mut self.fired) {
            self.ends.recv_cq.arm(false);
        }
        None
    }

    /// The completion is the one that must come next, and a good one.
    fn in_turn(&mut self, completion: &Completion) -> bool {
        let good = completion.status == Status::Success && completion.token == self.expected;
        self.expected = self.expected.wrapping_add(1);
        if !good {
            self.fail(failure(completion));
        }
        good
    }

    /// The MAD in a receive buffer into which the device wrote `len` bytes.
    fn read(&self, slot: u16, len: u32, network: NetworkHeader) -> Option<MadIn> {
        if len != RECEIVED {
            return None;
        }
        let offset = self.receive_buffer(slot);
        let mut grh = [0; GRH_LEN];
        self.platform.memory().read_bytes(offset, &mut grh);
        let from = network.sender(&grh)?;
        let mut mad = [0; MAD];
        self.platform.memory().read_bytes(offset.wrapping_add(GRH_LEN), &mut mad);
        Some(MadIn { from, unnamed: false, mad })
    }

    /// What came by `route` into a receive buffer into which the device wrote `len` bytes. On QP0
    /// and QP1 it is a MAD.
    fn read_arrival(&self, slot: u16, len: u32, route: Route) -> Option<Arrival> {
        let whole = len == RECEIVED;
        let len = usize::try_from(len).ok()?.checked_sub(GRH_LEN).filter(|len| *len <= MAD)?;
        if !whole && !matches!(self.kind, Kind::Ip(_)) {
            return None;
        }
        let offset = self.receive_buffer(slot);
        let mut grh = [0; GRH_LEN];
        self.platform.memory().read_bytes(offset, &mut grh);
        let source = grh.get(8..).and_then(<[u8]>::first_chunk::<16>);
        let gid = source.filter(|_| route.grh).map(|gid| u128::from_be_bytes(*gid));
        let mut bytes = [0; MAD];
        let content = bytes.get_mut(..len)?;
        self.platform.memory().read_bytes(offset.wrapping_add(GRH_LEN), content);
        Some(Arrival { route, gid, len, bytes })
    }

    /// Gives a receive buffer to the device.
    fn post(&mut self, slot: u16) {
        let addr = address(self.receive_buffer(slot));
        let rest = address(self.buffers.wrapping_add(self.kind.overflow_at()));
        let list = [(addr, RECEIVED), (rest, OVERFLOW)];
        self.ends.rq.recv(&list.map(|(addr, len)| Segment { addr, len, lkey: self.lkey }));
    }

    fn receive_buffer(&self, slot: u16) -> usize {
        self.buffers.wrapping_add(RECEIVE_STRIDE * usize::from(slot))
    }

    /// Takes note of sends that finished.
    fn reap(&mut self) {
        let until = self.ends.send_cq.taken().saturating_add(SENDS.into());
        while let Some(completion) = poll(&mut self.ends.send_cq, until) {
            if self.posted != self.reaped {
                self.reaped = self.reaped.wrapping_add(1);
            }
            if completion.status != Status::Success {
                self.fail(failure(&completion));
            }
        }
    }
}

/// The next completion, unless `until` entries have been taken.
fn poll<P: Platform>(cq: &mut Cq<'_, P>, until: u64) -> Option<Completion> {
    if cq.taken() < until { cq.poll() } else { None }
}

/// What the key calls a place in the arena: its offset, so that the device sees no address of the
/// host.
const fn address(offset: usize) -> u64 {
    offset as u64
}

/// Returns the fault of a bad completion.
fn failure(completion: &Completion) -> Fault {
    fault!(BadState, "QP1", "a datagram completed in error")
        .with_answer(completion.syndrome, completion.vendor.into())
}

#[cfg(test)]
mod tests;
