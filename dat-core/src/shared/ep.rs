//! The shared part of one Endpoint.

use core::sync::atomic::{AtomicU32, Ordering};

use super::stack::Link;
use crate::atomic::AtomicU64;
use crate::counters::EpCounter;
use crate::ep::table::EpState;
use crate::event::DtoOperation;
use crate::handle::{Ep, Handle};
use crate::provider::fault::{PLAIN, QP};
use crate::provider::{Completion, Direction, Fault, FaultKind, Words};

/// Bit of the state word: requests go to the queue pair.
pub(crate) const REQUEST_OPEN: u32 = 0x100;
/// Bit of the state word: receives go to the queue pair.
pub(crate) const RECV_OPEN: u32 = 0x200;

/// Bit of the state word: DISCONNECTED already, but the queue pair is still on its way to Reset. Nothing is flushed by
/// software yet, because the device may still complete what it has begun.
pub(crate) const CLOSING: u32 = 0x400;

/// A completion index that no queue pair has.
pub(crate) const NO_INDEX: u32 = u32::MAX;

/// Bit of the completion index of a queue for datagrams, which no completion has: so the straight way never takes its receives.
pub(crate) const DATAGRAM: u32 = 1 << 31;

/// Bit of the completion index of a queue whose receives come from a Shared Receive Queue, likewise.
pub(crate) const SHARED: u32 = 1 << 30;

/// The bits of a completion index that say what kind of queue it is of.
pub(crate) const KIND: u32 = DATAGRAM | SHARED;

/// What posting, reaping and control share of one Endpoint, besides its slots.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct EpShared {
    pub(crate) poster: PosterLine,
    pub(crate) request: QueueLine,
    pub(crate) receive: QueueLine,
    pub(crate) tally: EpTally,
}

/// The counters of [`EpCounter`], in its order: two lines that the poster writes, and one of the reaper of receives.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct EpTally(pub(crate) [AtomicU64; EpCounter::COUNT]);

impl EpTally {
    /// One DTO more, of so many bytes. Only the one thread that writes this counter may.
    #[inline(always)]
    pub(crate) fn count(&self, dtos: EpCounter, len: u32) {
        self.add(dtos as usize, 1);
        self.add(dtos as usize + 1, len.into());
    }

    /// From 0 again, while nobody counts.
    pub(crate) fn clear(&self) {
        for word in &self.0 {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// One more of what has no bytes. Only the one thread that writes this counter may.
    pub(crate) fn count_one(&self, counter: EpCounter) {
        self.add(counter as usize, 1);
    }

    /// So many more.
    #[inline(always)]
    pub(crate) fn add(&self, at: usize, more: u64) {
        if let Some(word) = self.0.get(at) {
            let sum = word.load(Ordering::Relaxed).wrapping_add(more);
            word.store(sum, Ordering::Relaxed);
        }
    }
}

/// Written by the poster, except the state word (control) and the trouble (whoever finds it).
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct PosterLine {
    /// [`EpState`] in the low byte, and what it opens.
    pub(crate) state: AtomicU32,
    /// Requests posted since the last reset.
    pub(crate) requests: AtomicU32,
    /// Receives posted since the last reset.
    pub(crate) receives: AtomicU32,
    /// 0, or what broke the connection: [`Trouble`].
    pub(crate) trouble: AtomicU32,
    /// Place on the control half's work stack.
    pub(crate) work: Link,
    /// The receives posted last with UNSIGNALLED: sequence, marked; by the low bits of it.
    pub(crate) unsignalled: [AtomicU32; UNSIGNALLED],
}

/// Outstanding receives of which it is remembered that their success wakes nobody. Of more the older ones do wake.
pub(crate) const UNSIGNALLED: usize = 8;
/// Bit of a remembered sequence.
const MARKED: u32 = 1 << 16;

/// Written by the reaper of one direction, except the identity (control).
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct QueueLine {
    /// Requests or receives that are done with.
    pub(crate) consumed: AtomicU32,
    /// Completion index of the queue pair's present life.
    pub(crate) index: AtomicU32,
    /// The handle of the Endpoint, as a word.
    pub(crate) handle: AtomicU64,
    /// Slot of the Event Dispatcher it completes to.
    pub(crate) evd: AtomicU32,
    /// Slots in use, less one.
    pub(crate) mask: AtomicU32,
    /// Where its slots begin among those of all Endpoints.
    pub(crate) first: AtomicU32,
    /// Bytes of the longest message.
    pub(crate) max_len: AtomicU32,
    /// 1: only what the peer marks as solicited notifies.
    pub(crate) solicited: AtomicU32,
    /// Place on its Event Dispatcher's flush stack.
    pub(crate) flush: Link,
    /// Slot of the Shared Receive Queue that its receives come from, with [`SHARED`] in its index.
    pub(crate) srq: AtomicU32,
    /// Receives of it that had been absorbed and have been dequeued since.
    pub(crate) taken: AtomicU32,
}

/// What to do about a request or a receive that failed.
macro_rules! see_status {
    () => {
        "the status of its completion event names the reason; ep_reset makes the EP usable again"
    };
}

/// What broke a connection, as the reaper tells the control half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trouble(u32);

impl Trouble {
    pub(crate) const NONSENSE: Self = Self(0x8000_0000);

    pub(crate) fn of(completion: &Completion) -> Self {
        let Completion {
            status,
            direction,
            syndrome,
            vendor,
            ..
        } = *completion;
        Self(
            0x4000_0000
                | (u32::from(direction == Direction::Recv)) << 24
                | (status as u32) << 16
                | u32::from(vendor) << 8
                | u32::from(syndrome),
        )
    }

    pub(crate) const fn word(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_word(word: u32) -> Option<Self> {
        if word == 0 { None } else { Some(Self(word)) }
    }

    pub(crate) const fn is_nonsense(self) -> bool {
        self.0 & Self::NONSENSE.0 != 0
    }

    /// The same as the failure of a queue pair.
    #[expect(clippy::cast_possible_truncation, reason = "fields of a word")]
    pub(crate) const fn fault(self, qp: u32) -> Fault {
        static NONSENSE: Words = Words::new(
            FaultKind::Nonsense,
            "completion\0the device completed what was never posted\0",
            &PLAIN,
        )
        .said(QP, 0);
        static REQUEST: Words = Words::new(
            FaultKind::BadState,
            concat!("completion\0a request failed\0", see_status!()),
            &PLAIN,
        )
        .said(QP, 0);
        static RECEIVE: Words = Words::new(
            FaultKind::BadState,
            concat!("completion\0a receive failed\0", see_status!()),
            &PLAIN,
        )
        .said(QP, 0);
        let (syndrome, vendor) = (self.0 as u8, (self.0 >> 8) as u8);
        let words = if self.is_nonsense() {
            &NONSENSE
        } else if self.0 & 1 << 24 == 0 {
            &REQUEST
        } else {
            &RECEIVE
        };
        Fault::new(words).said(syndrome, vendor as u32).of(QP, qp)
    }
}

impl QueueLine {
    const fn new() -> Self {
        Self {
            consumed: AtomicU32::new(0),
            index: AtomicU32::new(NO_INDEX),
            handle: AtomicU64::new(0),
            evd: AtomicU32::new(u32::MAX),
            mask: AtomicU32::new(0),
            first: AtomicU32::new(0),
            max_len: AtomicU32::new(0),
            solicited: AtomicU32::new(0),
            flush: Link::new(),
            srq: AtomicU32::new(u32::MAX),
            taken: AtomicU32::new(0),
        }
    }

    /// The handle of the Endpoint.
    #[inline(always)]
    pub(crate) fn handle(&self) -> Ep {
        Ep(Handle::from_raw(self.handle.load(Ordering::Relaxed)))
    }
}

impl EpShared {
    pub(crate) const fn new() -> Self {
        Self {
            poster: PosterLine {
                state: AtomicU32::new(EpState::Unconnected as u32),
                requests: AtomicU32::new(0),
                receives: AtomicU32::new(0),
                trouble: AtomicU32::new(0),
                work: Link::new(),
                unsignalled: [const { AtomicU32::new(0) }; UNSIGNALLED],
            },
            request: QueueLine::new(),
            receive: QueueLine::new(),
            tally: EpTally([const { AtomicU64::new(0) }; EpCounter::COUNT]),
        }
    }

    pub(crate) fn line(&self, direction: Direction) -> &QueueLine {
        match direction {
            Direction::Send => &self.request,
            Direction::Recv => &self.receive,
        }
    }

    /// Whether a completion is of the queue pair's present life.
    pub(crate) fn is_named(&self, completion: &Completion) -> bool {
        let name = self
            .line(completion.direction)
            .index
            .load(Ordering::Relaxed);
        name & !KIND == completion.index
    }

    /// Notes that the success of the receive of that token wakes nobody. Before it is published.
    pub(crate) fn mark_unsignalled(&self, token: u16) {
        if let Some(place) = self
            .poster
            .unsignalled
            .get(usize::from(token) % UNSIGNALLED)
        {
            place.store(MARKED | u32::from(token), Ordering::Relaxed);
        }
    }

    /// Whether a receive that succeeded wakes nobody.
    pub(crate) fn receive_is_quiet(&self, completion: &Completion) -> bool {
        let token = completion.token;
        let marked = self
            .poster
            .unsignalled
            .get(usize::from(token) % UNSIGNALLED);
        let unsolicited =
            !completion.extra.solicited && self.receive.solicited.load(Ordering::Relaxed) != 0;
        unsolicited
            || marked.is_some_and(|at| at.load(Ordering::Relaxed) == MARKED | u32::from(token))
    }

    /// Whether it is one for datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        self.is_of(DATAGRAM)
    }

    /// Slot of the Shared Receive Queue that its receives come from, if they do.
    pub(crate) fn srq(&self) -> Option<u32> {
        self.is_of(SHARED)
            .then(|| self.receive.srq.load(Ordering::Relaxed))
    }

    fn is_of(&self, kind: u32) -> bool {
        let index = self.receive.index.load(Ordering::Relaxed);
        index & kind != 0 && index != NO_INDEX
    }

    pub(crate) fn posted(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Send => self.poster.requests.load(Ordering::Acquire),
            Direction::Recv => self.poster.receives.load(Ordering::Acquire),
        }
    }

    /// Whether the reaper may complete what is outstanding as flushed.
    pub(crate) fn is_flushable(&self) -> bool {
        let word = self.poster.state.load(Ordering::Acquire);
        EpState::from_word(word).is_disconnected() && word & CLOSING == 0
    }

    /// Posted and not yet done with.
    pub(crate) fn outstanding(&self, direction: Direction) -> u32 {
        let consumed = self.line(direction).consumed.load(Ordering::Acquire);
        self.posted(direction).wrapping_sub(consumed)
    }

    /// Empties both directions, for a new life of the queue pair.
    pub(crate) fn rewind(&self) {
        self.poster.requests.store(0, Ordering::Relaxed);
        self.poster.receives.store(0, Ordering::Relaxed);
        self.poster.trouble.store(0, Ordering::Relaxed);
        for place in &self.poster.unsignalled {
            place.store(0, Ordering::Relaxed);
        }
        self.request.consumed.store(0, Ordering::Release);
        self.receive.consumed.store(0, Ordering::Release);
    }
}

/// One posted request: its cookie, and length, kind and token in one word.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RequestSlot {
    pub(crate) cookie: AtomicU64,
    pub(crate) info: AtomicU64,
}

impl RequestSlot {
    pub(crate) const fn new() -> Self {
        Self {
            cookie: AtomicU64::new(0),
            info: AtomicU64::new(Info::EMPTY.0),
        }
    }
}

/// A count of suppressed DTOs in a row, in its place in [`Info`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run(u64);

impl Run {
    const SHIFT: u32 = 36;
    /// As many as there is room for.
    pub(crate) const MOST: u16 = 0x3ff;
    const ALL: u64 = (Self::MOST as u64) << Self::SHIFT;

    /// So many; no more than [`Run::MOST`].
    #[inline]
    pub(crate) const fn of(count: u16) -> Self {
        Self(((count & Self::MOST) as u64) << Self::SHIFT)
    }

    /// One more; fewer than [`Run::MOST`] before.
    #[inline]
    pub(crate) const fn more(self) -> Self {
        Self(self.0.wrapping_add(1 << Self::SHIFT))
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    Send,
    RdmaWrite,
    RdmaRead,
    Bind,
    /// dat-core's own, at the end of a graceful disconnect; what has a length is an [`Edit`] of an LMR.
    Drain,
    FetchAdd,
    CmpSwap,
    WriteImmed,
}

/// What a queued request does to the key of an LMR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Opens it.
    Register,
    /// Closes it.
    Invalidate,
}

impl Edit {
    /// Told from the length of a drain by this bit.
    const MARK: u32 = 1 << 30;
    const INVALIDATE: u32 = 1 << 29;

    /// The length in the slot of its request, on the LMR in slot `lmr`.
    pub(crate) const fn word(self, lmr: u32) -> u32 {
        match self {
            Self::Register => Self::MARK | lmr,
            Self::Invalidate => Self::MARK | Self::INVALIDATE | lmr,
        }
    }
}

/// The second word of a [`RequestSlot`]: length (31), unsignalled (1), op (3), suppressed (1), suppressed DTOs right before it (10), special (1),
/// taken (1), token (16, at the top).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Info(u64);

impl Info {
    const SUPPRESSED: u64 = 1 << 35;
    /// The top bit of the length, which no message needs. Only with `SPECIAL`.
    const UNSIGNALLED: u32 = 1 << 31;
    /// There is more to its success than to tell of it: a suppressed request, a bind, a drain.
    const SPECIAL: u64 = 1 << 46;
    const TAKEN: u64 = 1 << 47;
    /// A slot that nothing outstanding is in: matches no token.
    pub(crate) const EMPTY: Self = Self(0);

    #[inline]
    pub(crate) const fn new(op: Op, len: u32, suppressed: bool, token: u16) -> Self {
        let mut word = (token as u64) << 48 | Self::TAKEN | (op as u64) << 32 | len as u64;
        if suppressed {
            word |= Self::SUPPRESSED;
        }
        if suppressed || op as u8 > Op::RdmaRead as u8 {
            word |= Self::SPECIAL;
        }
        Self(word)
    }

    /// The same, and special.
    #[inline]
    pub(crate) const fn special(self) -> Self {
        Self(self.0 | Self::SPECIAL)
    }

    /// The same, with so many bytes; it had none.
    #[inline]
    pub(crate) const fn of(self, len: u32) -> Self {
        Self(self.0 | len as u64)
    }

    /// The same with the next token, that of the request after one of one block.
    #[inline]
    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1 << 48))
    }

    /// The same, behind the suppressed DTOs counted so far.
    #[inline]
    pub(crate) const fn behind(self, run: Run) -> Self {
        Self(self.0 | run.0)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// How many requests of one block lie between it and the later one of that token, if that one is such a request too.
    #[inline]
    pub(crate) const fn distance(self, token: u16) -> u16 {
        token.wrapping_sub((self.0 >> 48) as u16)
    }

    /// Whether it is the request of that token, a DTO, and there are just so many suppressed DTOs right before it.
    #[inline]
    pub(crate) const fn ends_run(self, token: u16, ahead: u16) -> bool {
        let dto = !matches!(self.op(), Op::Bind | Op::Drain);
        dto && self.is(token) && self.0 & Run::ALL == Run::of(ahead).0
    }

    /// Whether it is the request of that token.
    #[inline]
    pub(crate) const fn is(self, token: u16) -> bool {
        self.0 >> 47 == (token as u64) << 1 | 1
    }

    /// Whether it is the request of that token, and there is nothing more to its success than to tell of it.
    #[inline]
    pub(crate) const fn is_plainly(self, token: u16) -> bool {
        self.0 >> 46 == (token as u64) << 2 | 2
    }

    /// Whether it is the request of that token, and a bind whose success has an event.
    #[inline]
    pub(crate) const fn is_loud_bind(self, token: u16) -> bool {
        self.is(token) && self.0 >> 32 & 0xf == Op::Bind as u64
    }

    /// What it is to the consumer, if it is neither bind nor drain.
    #[inline]
    pub(crate) const fn operation(self) -> DtoOperation {
        match self.0 >> 32 & 3 {
            0 => DtoOperation::Send,
            1 => DtoOperation::RdmaWrite,
            _ => DtoOperation::RdmaRead,
        }
    }

    #[inline]
    pub(crate) const fn is_suppressed(self) -> bool {
        self.0 & Self::SUPPRESSED != 0
    }

    /// Bytes, or for a bind the slot of the RMR.
    #[inline]
    pub(crate) const fn len(self) -> u32 {
        self.plain_len() & !Self::UNSIGNALLED
    }

    /// The same of a request that is not special.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
    pub(crate) const fn plain_len(self) -> u32 {
        self.0 as u32
    }

    /// The same, and its success wakes nobody.
    #[inline]
    pub(crate) const fn unsignalled(self) -> Self {
        Self(self.0 | Self::SPECIAL | Self::UNSIGNALLED as u64)
    }

    /// Whether its success wakes nobody.
    #[inline]
    pub(crate) const fn is_unsignalled(self) -> bool {
        self.plain_len() & Self::UNSIGNALLED != 0
    }

    /// What it does to the LMR in which slot, if it is an edit.
    pub(crate) const fn edit(self) -> Option<(Edit, u32)> {
        let word = self.plain_len();
        if !matches!(self.op(), Op::Drain) || word & Edit::MARK == 0 {
            return None;
        }
        let lmr = word & !(Edit::MARK | Edit::INVALIDATE);
        Some(if word & Edit::INVALIDATE == 0 {
            (Edit::Register, lmr)
        } else {
            (Edit::Invalidate, lmr)
        })
    }

    #[inline]
    pub(crate) const fn op(self) -> Op {
        match self.0 >> 32 & 7 {
            0 => Op::Send,
            1 => Op::RdmaWrite,
            2 => Op::RdmaRead,
            3 => Op::Bind,
            5 => Op::FetchAdd,
            6 => Op::CmpSwap,
            7 => Op::WriteImmed,
            _ => Op::Drain,
        }
    }
}
