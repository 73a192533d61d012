//! The memory of a connection of a transaction test.
//!
//! What the other side reads and what it writes are registered apart from everything else and from
//! each other, each with the one right that it needs. The tool rounds a segment up to 256 bytes; a
//! piece that is named to the other side begins where its first segment does and has no gaps to it,
//! so segments of other lengths are one beside the other there.

use dat_core::{LmrTriplet, MemPriv, RmrTriplet};

use super::super::super::failure::Failure;
use super::super::super::traffic::memory::Memory;
use super::hub::Hub;
use super::wire::{FAR, FARS, Far, Op, Order, SYNC, Transfer};
use crate::Host;

/// Where a segment may begin.
const ALIGN: usize = 256;

/// What is not an operation's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// Where the memory of this side is.
    FarOut,
    /// Where that of the other is.
    FarIn,
    /// That this side is ready.
    ReadyOut,
    /// That the other is.
    ReadyIn,
    /// That this side is done.
    DoneOut,
    /// That the other is.
    DoneIn,
}

impl Note {
    fn at(self) -> usize {
        let far = FARS.next_multiple_of(ALIGN);
        let sync = SYNC.next_multiple_of(ALIGN);
        match self {
            Self::FarOut => 0,
            Self::FarIn => far,
            Self::ReadyOut => far * 2,
            Self::ReadyIn => far * 2 + sync,
            Self::DoneOut => far * 2 + sync * 2,
            Self::DoneIn => far * 2 + sync * 3,
        }
    }

    /// Bytes of it.
    pub(super) fn len(self) -> usize {
        match self {
            Self::FarOut | Self::FarIn => FARS,
            Self::ReadyOut | Self::ReadyIn | Self::DoneOut | Self::DoneIn => SYNC,
        }
    }

    /// By which its end is known.
    pub(super) fn cookie(self) -> u64 {
        self.at() as u64
    }
}

/// Bytes of all of them.
fn notes() -> usize {
    Note::DoneIn.at() + ALIGN
}

/// Who reaches an operation's piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// This side's device.
    Own,
    /// The other side, to read.
    Read,
    /// The other side, to write.
    Write,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    op: Op,
    reach: Reach,
    at: usize,
}

impl Place {
    fn stride(op: &Op) -> usize {
        (op.size as usize).next_multiple_of(ALIGN)
    }

    fn span(op: &Op) -> usize {
        Self::stride(op) * op.segments as usize
    }

    /// Where its pieces lie.
    fn pieces(&self) -> impl Iterator<Item = (usize, usize)> {
        let (at, len, stride) = (self.at, self.op.size as usize, Self::stride(&self.op));
        let apart = self.reach == Reach::Own;
        let step = if apart { stride } else { len };
        (0..self.op.segments as usize).map(move |nth| (at + nth * step, len))
    }
}

/// The memory.
#[derive(Debug)]
pub(super) struct Buffers<'p, H: Host> {
    own: Memory<'p, H>,
    readable: Option<Memory<'p, H>>,
    writable: Option<Memory<'p, H>>,
    places: Vec<Place>,
}

impl<'p, H: Host> Buffers<'p, H> {
    /// For these operations, seen from a server or from a client.
    pub(super) fn new(hub: &Hub<'_, '_, 'p, H>, ops: &[Op], server: bool) -> Result<Self, Failure> {
        let (mut own, mut readable, mut writable) = (notes(), 0, 0);
        let place = |op: &Op| {
            let ours = op.by_server == server;
            let reach = match op.transfer {
                Transfer::Read if !ours => Reach::Read,
                Transfer::Write if !ours => Reach::Write,
                Transfer::Read | Transfer::Write | Transfer::Send => Reach::Own,
            };
            let end = match reach {
                Reach::Own => &mut own,
                Reach::Read => &mut readable,
                Reach::Write => &mut writable,
            };
            let at = *end;
            *end += Place::span(op);
            Place { op: *op, reach, at }
        };
        let places = ops.iter().map(place).collect();
        let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let more =
            |len: usize, rights: MemPriv| (len > 0).then(|| hub.memory(len, rights)).transpose();
        let own = hub.memory(own, local)?;
        let readable = more(readable, MemPriv::LOCAL_READ | MemPriv::REMOTE_READ);
        let writable = more(writable, local | MemPriv::REMOTE_WRITE);
        match (readable, writable) {
            (Ok(readable), Ok(writable)) => Ok(Self { own, readable, writable, places }),
            (readable, writable) => {
                let failure = readable.as_ref().err().or(writable.as_ref().err()).cloned();
                hub.nic(|nic| {
                    let rest = [readable, writable].into_iter().filter_map(|it| it.ok().flatten());
                    for memory in rest.chain([own]) {
                        // That there is too little of it has been said.
                        let _ = memory.free(nic);
                    }
                });
                Err(failure.unwrap_or_else(|| Failure::new("there is no memory")))
            }
        }
    }

    /// Gives it back.
    pub(super) fn free(self, hub: &Hub<'_, '_, 'p, H>) -> Result<(), Failure> {
        let all = [Some(self.own), self.readable, self.writable];
        hub.nic(|nic| {
            let freed = all.into_iter().flatten().map(|memory| memory.free(nic));
            freed.fold(Ok(()), Result::and)
        })
    }

    fn memory(&self, reach: Reach) -> &Memory<'p, H> {
        match reach {
            Reach::Own => Some(&self.own),
            Reach::Read => self.readable.as_ref(),
            Reach::Write => self.writable.as_ref(),
        }
        .unwrap_or(&self.own)
    }

    /// A segment of a message that is no operation's.
    pub(super) fn note(&self, note: Note) -> LmrTriplet {
        self.own.local(note.at(), note.len())
    }

    /// The segments of an operation.
    pub(super) fn segments(&self, op: usize) -> Vec<LmrTriplet> {
        let place = self.places.get(op);
        let pieces = place.into_iter().flat_map(Place::pieces);
        pieces.map(|(at, len)| self.own.local(at, len)).collect()
    }

    /// Writes where the other side finds its operations' memory, as it reads numbers.
    pub(super) fn tell(&self, order: Order) {
        let mut bytes = [0; FARS];
        for (place, to) in self.places.iter().zip(bytes.chunks_exact_mut(FAR)) {
            let far = match place.reach {
                Reach::Own => Far::default(),
                reach @ (Reach::Read | Reach::Write) => {
                    let (addr, _, key) = self.memory(reach).far();
                    Far { key, addr: addr + place.at as u64 }
                }
            };
            to.copy_from_slice(&far.bytes(order));
        }
        self.own.store(Note::FarOut.at(), &bytes);
    }

    /// What the other side has said of its own.
    pub(super) fn told(&self) -> Vec<RmrTriplet> {
        let mut bytes = [0; FARS];
        self.own.load(Note::FarIn.at(), &mut bytes);
        let fars = bytes.as_chunks::<FAR>().0.iter();
        let told = self.places.iter().zip(fars).map(|(place, bytes)| {
            // Whoever tells of memory turns it round for who reads.
            let far = Far::read(*bytes, Order::Little);
            RmrTriplet {
                addr: far.addr,
                len: place.op.size.saturating_mul(place.op.segments),
                context: far.key,
            }
        });
        told.collect()
    }

    /// Writes what an operation will move.
    pub(super) fn fill(&self, op: usize, byte: u8) {
        if let Some(place) = self.places.get(op) {
            let bytes = vec![byte; Place::span(&place.op)];
            self.memory(place.reach).store(place.at, &bytes);
        }
    }

    /// The first byte that an operation has moved and that is not that one: which one it is, and
    /// what.
    pub(super) fn differs(&self, op: usize, byte: u8) -> Option<(usize, u8)> {
        let place = self.places.get(op)?;
        let memory = self.memory(place.reach);
        let mut bytes = vec![0; place.op.size as usize];
        let mut before = 0;
        for (at, len) in place.pieces() {
            memory.load(at, &mut bytes);
            if let Some(wrong) = bytes.iter().position(|found| *found != byte) {
                return Some((before + wrong, bytes.get(wrong).copied().unwrap_or(0)));
            }
            before += len;
        }
        None
    }
}
