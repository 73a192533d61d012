//! What consumers know of their Endpoints, and what must come of it: every byte, every completion
//! once and in order, every connection event once.

use std::collections::VecDeque;

use dat_core::{Ep, Evd, Lmr, LmrParam, Rmr};
pub use dat_tests::laws::{Check, Violation, violation};
use mlx5_model::host::Nanos;

/// State of an Endpoint as its consumer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is none.
    None,
    /// Without a connection.
    Idle,
    /// Asked for one.
    Connecting,
    /// Accepted one.
    Accepting,
    /// Has one.
    Up,
    /// Its consumer ended it; the event has not come.
    Ending,
    /// The event has come.
    Down,
}

impl Phase {
    /// Whether an event that ends the connection is due, or may come.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Connecting | Self::Accepting | Self::Up | Self::Ending)
    }
}

/// Kind of something posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A send.
    Send,
    /// An RDMA write with immediate.
    Immediate,
    /// An RDMA write.
    Write,
    /// An RDMA read.
    Read,
    /// A fetch and add.
    Add,
    /// A compare and swap.
    Swap,
    /// A bind of the window of a grant.
    Bind(usize),
    /// A receive.
    Receive,
}

/// Something posted whose completion has not come.
#[derive(Clone, Debug)]
pub struct Posted {
    /// What its completion carries.
    pub cookie: u64,
    /// What it is.
    pub kind: Kind,
    /// Its piece of memory, if it has one.
    pub slot: Option<usize>,
    /// Bytes.
    pub len: usize,
    /// No event if it succeeds.
    pub suppressed: bool,
    /// It cannot succeed.
    pub doomed: bool,
    /// Posted after the connection had ended.
    pub late: bool,
    /// Where a read begins in the peer's memory.
    pub at: usize,
    /// The grant that it goes through.
    pub grant: Option<usize>,
    /// What a read or an atomic brings.
    pub brings: Vec<u8>,
}

/// A change of memory by the peer.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Of which request.
    pub cookie: u64,
    /// Where in the memory that the peer reaches.
    pub at: usize,
    /// What is there afterwards.
    pub bytes: Vec<u8>,
    /// By which grant.
    pub grant: Option<usize>,
    /// It starts only after all reads before it.
    pub fenced: bool,
}

/// Memory that the peer reaches: what is in it for sure, and what may be.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Without the requests under way.
    pub certain: Vec<u8>,
    /// With all of them.
    pub after: Vec<u8>,
    /// Requests under way, in order.
    pub flight: VecDeque<Effect>,
    /// Requests of connections that ended: each byte of them may be there or not.
    pub maybe: Vec<Effect>,
}

impl Target {
    /// Memory of so many zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { certain: vec![0; len], after: vec![0; len], ..Self::default() }
    }

    /// A request that will change it was posted.
    pub fn posted(&mut self, effect: Effect) {
        self.after[effect.at..effect.at + effect.bytes.len()].copy_from_slice(&effect.bytes);
        self.flight.push_back(effect);
    }

    /// The request with that cookie has succeeded, and with it all before it.
    pub fn done(&mut self, cookie: u64) {
        while self.flight.front().is_some_and(|effect| effect.cookie <= cookie) {
            let Some(effect) = self.flight.pop_front() else { break };
            let to = effect.at..effect.at + effect.bytes.len();
            self.certain[to].copy_from_slice(&effect.bytes);
        }
    }

    /// Whether a read of an earlier request may bring this byte.
    ///
    /// A response that was lost is read again, and later requests that do not wait for reads may
    /// have been carried out by then.
    #[must_use]
    pub fn overtakes(&self, cookie: u64, at: usize, byte: u8) -> bool {
        let later = self.flight.iter().filter(|effect| effect.cookie > cookie);
        later.take_while(|effect| !effect.fenced).any(|effect| {
            at.checked_sub(effect.at).and_then(|n| effect.bytes.get(n)) == Some(&byte)
        })
    }

    /// The connection has ended: what was under way may have been carried out.
    pub fn broken(&mut self) {
        self.maybe.extend(self.flight.drain(..));
        self.after.copy_from_slice(&self.certain);
    }

    /// Whether that may be the memory; where it is not.
    #[must_use]
    pub fn wrong(&self, actual: &[u8]) -> Option<usize> {
        if actual == self.certain {
            return None;
        }
        let under_way = || self.maybe.iter().chain(&self.flight);
        (0..actual.len()).find(|&at| {
            let byte = actual[at];
            let by = |effect: &Effect| {
                at.checked_sub(effect.at).and_then(|n| effect.bytes.get(n)) == Some(&byte)
            };
            byte != self.certain[at] && !under_way().any(by)
        })
    }

    /// Takes the memory for what it is: nothing is under way any more.
    pub fn adopt(&mut self, actual: &[u8]) {
        self.maybe.clear();
        self.flight.clear();
        self.certain.copy_from_slice(actual);
        self.after.copy_from_slice(actual);
    }
}

/// What an end lets its peer reach.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The key.
    pub context: u32,
    /// A registration of its own,
    pub lmr: Option<Lmr>,
    /// or a window.
    pub rmr: Option<Rmr>,
    /// of the bind of the window.
    pub cookie: u64,
    /// First byte.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// What the window was bound to before, which is open until this bind completes.
    pub before: Option<Stale>,
    /// The bind has completed, if it needs one.
    pub ready: bool,
    /// The peer has had a message that was sent behind the bind: it may use the grant at once.
    pub shown: bool,
}

/// A key that opens nothing any more, and the range that it opened: first byte and length.
pub type Stale = (u32, usize, usize);

impl Grant {
    /// The grant as it will be remembered.
    #[must_use]
    pub const fn stale(&self) -> Stale {
        (self.context, self.at, self.len)
    }
}

/// Which pieces of memory are free: a bit for each.
#[derive(Clone, Copy, Debug)]
pub struct Pieces(u128);

impl Pieces {
    /// So many, all free.
    #[must_use]
    pub const fn new(count: usize) -> Self {
        Self(u128::MAX >> (128 - count))
    }

    /// Takes the first free one.
    pub fn take(&mut self) -> Option<usize> {
        let first = self.0.trailing_zeros();
        (first < u128::BITS).then(|| {
            self.0 &= self.0 - 1;
            first as usize
        })
    }

    /// Gives one back.
    pub fn give(&mut self, piece: usize) {
        self.0 |= 1 << piece;
    }
}

/// One end of a link.
#[derive(Debug)]
pub struct End {
    /// Its host.
    pub host: usize,
    /// Where its memory begins in that of the host: sources, receives, sinks, target.
    pub base: [usize; 4],
    /// Bytes from one piece to the next.
    pub stride: usize,
    /// The Endpoint.
    pub ep: Option<Ep>,
    /// Receives, requests and connection events.
    pub evds: Option<[Evd; 3]>,
    /// Registration of all that the peer reaches.
    pub whole: Option<LmrParam>,
    /// Its state.
    pub phase: Phase,
    /// The connection it is about, or was.
    pub conn: Option<usize>,
    /// Requests, in order.
    pub requests: VecDeque<Posted>,
    /// Receives, in order.
    pub receives: VecDeque<Posted>,
    /// Free pieces for requests.
    pub sources: Pieces,
    /// Free pieces for receives.
    pub buffers: Pieces,
    /// What the peer reaches.
    pub target: Target,
    /// What it was given besides.
    pub grants: Vec<Option<Grant>>,
    /// Keys that were taken back, the newest first.
    pub stale: VecDeque<Stale>,
    /// Windows of an Endpoint that was reset, which unbound them.
    pub unbound: Vec<Rmr>,
    /// Events that its Event Dispatchers were made for.
    pub lengths: [u32; 3],
    /// Endpoints that were freed after their connections had ended: the event is still to come.
    pub freed: Vec<Ep>,
    /// The latest Endpoints that were freed: that their connections had begun may still be to come.
    pub gone: VecDeque<Ep>,
}

impl End {
    /// A key opens nothing any more.
    pub fn closed(&mut self, key: Stale) {
        self.stale.push_front(key);
        self.stale.truncate(4);
    }

    /// Whether a request of the end goes through that grant of its peer.
    #[must_use]
    pub fn uses(&self, slot: usize) -> bool {
        self.requests.iter().any(|item| item.grant == Some(slot))
    }

    /// Whether the peer of some end may reach memory by a key.
    #[must_use]
    pub fn opens(&self, key: u32) -> bool {
        let mut grants = self.grants.iter().flatten();
        self.whole.is_some_and(|whole| whole.rmr_context == key)
            || grants.any(|grant| {
                grant.context == key || grant.before.is_some_and(|(before, ..)| before == key)
            })
    }
}

/// A message under way.
#[derive(Clone, Debug)]
pub struct Message {
    /// Cookie of the request.
    pub cookie: u64,
    /// Its bytes; of a write with immediate, none.
    pub bytes: Vec<u8>,
    /// Of a write with immediate: the immediate and the length.
    pub immediate: Option<(u32, usize)>,
    /// The sender has its completion.
    pub acknowledged: bool,
    /// The receive cannot hold it.
    pub too_long: bool,
}

/// One connection of a link.
#[derive(Debug, Default)]
pub struct Conn {
    /// Why it may break or not come about.
    pub excuse: Option<&'static str>,
    /// When each end began to leave gracefully: its requests still complete.
    pub leaving: [Option<Nanos>; 2],
    /// Messages that each end has sent and the other has not received.
    pub messages: [VecDeque<Message>; 2],
    /// The peer has seen the request.
    pub requested: bool,
    /// When each end had the event that it began.
    pub begun: [Option<Nanos>; 2],
    /// A request that must fail was posted: it will end.
    pub doomed: bool,
    /// A request or a receive of a side has failed, and with it the connection.
    pub failed: [bool; 2],
    /// The peer rejected it.
    pub rejected: bool,
    /// The end that asked for it ends it as soon as it is there, after so many requests.
    pub hasty: Option<(usize, usize)>,
}

/// A pair of Endpoints.
#[derive(Debug)]
pub struct Link {
    /// Its ends.
    pub ends: [End; 2],
    /// Its connections so far.
    pub conns: Vec<Conn>,
}

/// A datagram that was sent.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Its first eight bytes.
    pub id: u64,
    /// Who sent it.
    pub from: usize,
    /// To whom.
    pub to: usize,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its immediate.
    pub immediate: Option<u32>,
    /// How often it arrived.
    pub arrived: u32,
}

/// A request that is not answered at once.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// When it is.
    pub due: Nanos,
    /// The request.
    pub cr: dat_core::Cr,
    /// The link.
    pub link: usize,
    /// And its connection.
    pub conn: usize,
    /// It is accepted, if that can be.
    pub accepts: bool,
}
