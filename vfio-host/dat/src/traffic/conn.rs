//! One connection and its memory, on either side.

use dat_core::{
    CompletionFlags, DtoEvent, Ep, Evd, EvdFlags, Event, LmrTriplet, MemPriv, Pz, RmrTriplet,
};
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::adapter::dat;
use super::ends::Ends;
use super::hello::{Hello, Layout, MESSAGE_LEN, Message};
use super::memory::Memory;

/// No completion: the peer's answer says that the request is done, and a completion of its own would
/// wake this side once more.
const SILENT: CompletionFlags = CompletionFlags::SUPPRESS;
/// The doorbell rings with a later request, or with [`Conn::ring`].
const DEFERRED: CompletionFlags = CompletionFlags::DEFER;
/// Requests outstanding besides those of the test's depth: messages about the test.
const EXTRA: u16 = 8;

/// All memory of a connection.
#[derive(Debug)]
struct Parts<'p, H: Host> {
    /// Written by the device.
    inward: Memory<'p, H>,
    /// Only read by the device.
    outward: Memory<'p, H>,
    /// Accessible to the peer, if any.
    far: Option<Memory<'p, H>>,
}

impl<'p, H: Host> Parts<'p, H> {
    fn new(
        nic: &mut Nic<'_, 'p, H>,
        pz: Pz,
        layout: &Layout,
        rights: MemPriv,
    ) -> Result<Self, Failure> {
        let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let inward = Memory::new(nic, pz, layout.inward(), local)?;
        let outward = match Memory::new(nic, pz, layout.outward(), MemPriv::LOCAL_READ) {
            Ok(outward) => outward,
            Err(failure) => {
                // The first failure is returned, here and below.
                let _ = inward.free(nic);
                return Err(failure);
            }
        };
        let far = match layout.reachable() {
            0 => Ok(None),
            len => Memory::new(nic, pz, len, local | rights).map(Some),
        };
        match far {
            Ok(far) => Ok(Self { inward, outward, far }),
            Err(failure) => {
                let _ = inward.free(nic);
                let _ = outward.free(nic);
                Err(failure)
            }
        }
    }

    fn free(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let mut first = self.inward.free(nic);
        first = first.and(self.outward.free(nic));
        match self.far {
            Some(far) => first.and(far.free(nic)),
            None => first,
        }
    }
}

/// An Endpoint with its dispatcher, its zone and its memory.
#[derive(Debug)]
pub(super) struct Conn<'p, H: Host> {
    pz: Pz,
    /// The dispatcher of all its events.
    pub(super) evd: Evd,
    /// The Endpoint.
    pub(super) ep: Ep,
    /// The request for the test.
    pub(super) hello: Hello,
    /// The layout of its memory.
    pub(super) layout: Layout,
    parts: Parts<'p, H>,
    /// Number of messages about the test sent so far.
    said: u64,
    scratch: Vec<u8>,
}

impl<'p, H: Host> Conn<'p, H> {
    /// Makes an unconnected Endpoint with its memory. The peer gets `rights` to its part.
    pub(super) fn new(
        nic: &mut Nic<'_, 'p, H>,
        hello: Hello,
        layout: Layout,
        rights: MemPriv,
    ) -> Result<Self, Failure> {
        let pz = nic.pz_create().map_err(|e| dat("dat_pz_create", e))?;
        let made = Parts::new(nic, pz, &layout, rights).and_then(|parts| {
            match endpoint(nic, pz, &hello, &layout) {
                Ok((evd, ep)) => Ok((parts, evd, ep)),
                Err(failure) => {
                    let _ = parts.free(nic);
                    Err(failure)
                }
            }
        });
        match made {
            Ok((parts, evd, ep)) => Ok(Self {
                pz,
                evd,
                ep,
                hello,
                layout,
                parts,
                said: 0,
                scratch: vec![0; hello.bytes_of_one()],
            }),
            Err(failure) => {
                let _ = nic.pz_free(pz);
                Err(failure)
            }
        }
    }

    /// Returns the memory that the peer may access, if any.
    pub(super) fn far(&self) -> Option<&Memory<'p, H>> {
        self.parts.far.as_ref()
    }

    /// Returns its zone.
    pub(super) fn pz(&self) -> Pz {
        self.pz
    }

    /// Posts every receive.
    pub(super) fn post_recvs(&self, ends: &mut impl Ends) -> Result<(), Failure> {
        (0..self.layout.recv.count).try_for_each(|n| self.post_recv(ends, n as u64))
    }

    /// Posts the receive of piece `number`.
    pub(super) fn post_recv(&self, ends: &mut impl Ends, number: u64) -> Result<(), Failure> {
        let pieces = self.layout.recv;
        let piece = self.parts.inward.local(pieces.of(number), pieces.stride);
        ends.post_recv(self.ep, &[piece], number).map_err(|ret| dat("dat_ep_post_recv", ret))
    }

    /// Decodes the message of `len` bytes that arrived in piece `number`.
    pub(super) fn message(&self, number: u64, len: u32) -> Option<Message> {
        if len as usize != MESSAGE_LEN {
            return None;
        }
        let mut bytes = [0; MESSAGE_LEN];
        self.parts.inward.load(self.layout.recv.of(number), &mut bytes);
        Message::read(&bytes)
    }

    /// Compares the data received in piece `piece` with message `number`. Returns the offset of the
    /// first wrong byte.
    pub(super) fn received_wrong(&mut self, piece: u64, number: u64) -> Option<usize> {
        let at = self.layout.recv.of(piece);
        let inward = &self.parts.inward;
        inward.differs(&self.hello, number, at, &mut self.scratch)
    }

    /// Compares the data read into piece `piece` likewise.
    pub(super) fn read_wrong(&mut self, piece: u64, number: u64) -> Option<usize> {
        let at = self.layout.landing.of(piece);
        let inward = &self.parts.inward;
        inward.differs(&self.hello, number, at, &mut self.scratch)
    }

    /// Compares the memory that the peer may access likewise.
    pub(super) fn far_wrong(&mut self, piece: u64, number: u64) -> Option<usize> {
        let at = self.layout.far.of(piece);
        let far = self.parts.far.as_ref()?;
        far.differs(&self.hello, number, at, &mut self.scratch)
    }

    /// Fills every piece of the memory that the peer may access with the contents of its number.
    pub(super) fn fill_far(&mut self) {
        if let Some(far) = &self.parts.far {
            for n in 0..self.layout.far.count as u64 {
                far.fill(&self.hello, n, self.layout.far.of(n), &mut self.scratch);
            }
        }
    }

    /// Writes the contents of message `number` into data piece `piece`.
    pub(super) fn fill(&mut self, piece: u64, number: u64) {
        let at = self.layout.data.of(piece);
        let outward = &self.parts.outward;
        outward.fill(&self.hello, number, at, &mut self.scratch);
    }

    fn data(&self, piece: u64) -> [LmrTriplet; 1] {
        let at = self.layout.data.of(piece);
        [self.parts.outward.local(at, self.hello.bytes_of_one())]
    }

    /// Sends data piece `piece` of a ping, without a completion.
    pub(super) fn ping(&self, ends: &mut impl Ends, piece: u64) -> Result<(), Failure> {
        ends.post_send(self.ep, &self.data(piece), piece, SILENT)
            .map_err(|ret| dat("dat_ep_post_send", ret))
    }

    /// Sends data piece `piece`, once the doorbell rings.
    pub(super) fn send(
        &self,
        ends: &mut impl Ends,
        piece: u64,
        cookie: u64,
    ) -> Result<(), Failure> {
        ends.post_send(self.ep, &self.data(piece), cookie, DEFERRED)
            .map_err(|ret| dat("dat_ep_post_send", ret))
    }

    /// Rings the doorbell for everything posted since it last rang.
    pub(super) fn ring(&self, ends: &mut impl Ends) -> Result<(), Failure> {
        ends.ring(self.ep).map_err(|ret| dat("dat_ep_ring", ret))
    }

    /// Writes data piece `piece` to the peer, once the doorbell rings.
    pub(super) fn write(
        &self,
        ends: &mut impl Ends,
        piece: u64,
        to: RmrTriplet,
        cookie: u64,
    ) -> Result<(), Failure> {
        ends.post_rdma_write(self.ep, &self.data(piece), cookie, &to, DEFERRED)
            .map_err(|ret| dat("dat_ep_post_rdma_write", ret))
    }

    /// Reads from the peer into piece `piece`, once the doorbell rings.
    pub(super) fn read(
        &self,
        ends: &mut impl Ends,
        piece: u64,
        from: RmrTriplet,
        cookie: u64,
    ) -> Result<(), Failure> {
        let at = self.layout.landing.of(piece);
        let to = self.parts.inward.local(at, self.hello.bytes_of_one());
        ends.post_rdma_read(self.ep, &[to], cookie, &from, DEFERRED)
            .map_err(|ret| dat("dat_ep_post_rdma_read", ret))
    }

    /// Sends a message about the test, without a completion. Rings the doorbell.
    pub(super) fn say(&mut self, ends: &mut impl Ends, message: &Message) -> Result<(), Failure> {
        let at = self.layout.notes.of(self.said);
        self.said += 1;
        self.parts.outward.store(at, &message.bytes());
        let piece = self.parts.outward.local(at, MESSAGE_LEN);
        ends.post_send(self.ep, &[piece], self.said, SILENT)
            .map_err(|ret| dat("dat_ep_post_send", ret))
    }

    /// Returns the event, if it is a completion of this connection.
    pub(super) fn dto(&self, event: &Event) -> Option<DtoEvent> {
        if let Event::Dto(dto) = event {
            if dto.ep == self.ep {
                return Some(*dto);
            }
        }
        None
    }

    /// Frees everything. Returns the first failure after trying all.
    pub(super) fn free(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let mut first = nic.ep_free(self.ep).map_err(|e| dat("dat_ep_free", e));
        first = first.and(self.parts.free(nic));
        first = first.and(nic.evd_free(self.evd).map_err(|e| dat("dat_evd_free", e)));
        first.and(nic.pz_free(self.pz).map_err(|e| dat("dat_pz_free", e)))
    }
}

fn endpoint<H: Host>(
    nic: &mut Nic<'_, '_, H>,
    pz: Pz,
    hello: &Hello,
    layout: &Layout,
) -> Result<(Evd, Ep), Failure> {
    let mut attr = nic.ep_attr_default();
    attr.max_request_dtos = hello.depth + EXTRA;
    attr.max_recv_dtos = u16::try_from(layout.recv.count).unwrap_or(u16::MAX);
    let events = u32::from(attr.max_request_dtos) + u32::from(attr.max_recv_dtos);
    let streams = EvdFlags::DTO | EvdFlags::RMR_BIND | EvdFlags::CONNECTION;
    let evd = nic.evd_create(events, streams).map_err(|e| dat("dat_evd_create", e))?;
    match nic.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), Some(&attr)) {
        Ok(ep) => Ok((evd, ep)),
        Err(error) => {
            let _ = nic.evd_free(evd);
            Err(dat("dat_ep_create", error))
        }
    }
}
