//! The shared part of one Endpoint.
//!
//! Length: lines, slots and words of one layout, each with what reads and writes it.

use core::sync::atomic::Ordering;

use crate::data::shared::Shared;
use crate::data::shared::stack::{END, Link};
use crate::fault;
use crate::types::atomic::{AtomicU32, AtomicU64};
use crate::types::completion::{Completion, Direction, Status};
use crate::types::counters::EpCounter;
use crate::types::ep_state::EpState;
use crate::types::fault::Fault;
use crate::types::handle::{Ep, Handle};

/// Bit of the state word: DISCONNECTED already, but the queue pair is still on its way to Reset.
/// Nothing is flushed by software yet, because the device may still complete what it has begun.
pub(crate) const CLOSING: u32 = 0x400;

/// A completion index that no queue pair has.
pub(crate) const NO_INDEX: u32 = u32::MAX;

/// Bit of the completion index of a queue for datagrams, which no completion has: so the straight
/// way never takes its receives.
pub(crate) const DATAGRAM: u32 = 1 << 31;

/// Bit of the completion index of a queue whose receives come from a Shared Receive Queue,
/// likewise.
pub(crate) const SHARED: u32 = 1 << 30;

/// The bits of a completion index that say what kind of queue it is of.
pub(crate) const KIND: u32 = DATAGRAM | SHARED;

/// What posting, reaping and control share of one Endpoint, besides its slots. A post of a send, a
/// write or a receive touches the first line; its completion touches that of its queue.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct EpShared {
    pub(crate) poster: PosterLine,
    pub(crate) request: QueueLine,
    pub(crate) receive: QueueLine,
    pub(crate) slow: SlowLine,
    /// The counters that no fast path writes: a line of those that the poster writes, and one of
    /// the reaper's and the control half's.
    counters: [AtomicU64; 16],
}

/// The counters of [`EpCounter`] by their numbers. Each is written by one thread.
impl EpShared {
    /// The word of a counter: those of a fast path lie in the line that the path writes anyway.
    #[inline(always)]
    fn counter(&self, number: usize) -> Option<&AtomicU64> {
        const SEND: usize = EpCounter::PostSend as usize;
        const SEND_END: usize = SEND + 1;
        const RECV_OR_WRITE: usize = EpCounter::PostRecv as usize;
        const RECV_OR_WRITE_END: usize = EpCounter::PostWriteData as usize;
        const ARRIVED: usize = EpCounter::Recv as usize;
        const ARRIVED_END: usize = ARRIVED + 1;
        const UD: usize = EpCounter::PostSendUd as usize;
        const UD_END: usize = UD + 1;
        const RARE: usize = EpCounter::PostWriteImm as usize;
        const RARE_END: usize = EpCounter::PostFetchAdd as usize;
        const CONTROL_END: usize = EpCounter::Disconnect as usize;
        match number {
            SEND..=SEND_END => self.poster.counters.get(number - SEND),
            RECV_OR_WRITE..=RECV_OR_WRITE_END => {
                self.poster.counters.get(number - RECV_OR_WRITE + 2)
            }
            ARRIVED..=ARRIVED_END => self.receive.counters.get(number - ARRIVED),
            UD..=UD_END => self.counters.get(number - UD),
            RARE..=RARE_END => self.counters.get(number - RARE + 2),
            0..=CONTROL_END => self.counters.get(number + 8),
            _ => self.counters.get(number.wrapping_sub(ARRIVED_END + 1) + 10),
        }
    }

    /// One DTO more, of so many bytes. Only the one thread that writes this counter may.
    #[inline(always)]
    pub(crate) fn count(&self, dtos: EpCounter, len: u32) {
        self.count_all(dtos, 1, len.into());
    }

    /// So many DTOs more, of so many bytes together.
    #[inline(always)]
    pub(crate) fn count_all(&self, dtos: EpCounter, count: u64, bytes: u64) {
        self.add(dtos as usize, count);
        self.add(dtos as usize + 1, bytes);
    }

    /// One more of what has no bytes. Only the one thread that writes this counter may.
    pub(crate) fn count_one(&self, counter: EpCounter) {
        self.add(counter as usize, 1);
    }

    #[inline(always)]
    fn add(&self, number: usize, more: u64) {
        if let Some(word) = self.counter(number) {
            let sum = word.load(Ordering::Relaxed).wrapping_add(more);
            word.store(sum, Ordering::Relaxed);
        }
    }

    /// What a counter has come to; with `reset` it starts again.
    pub(crate) fn read_counter(&self, counter: EpCounter, reset: bool) -> u64 {
        self.counter(counter as usize).map_or(0, |word| {
            if reset { word.swap(0, Ordering::Relaxed) } else { word.load(Ordering::Relaxed) }
        })
    }

    /// All from 0 again, while nobody counts.
    pub(crate) fn clear_counters(&self) {
        for counter in EpCounter::ALL {
            let _ = self.read_counter(counter, true);
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
    /// Sends, receives and writes, each with its bytes.
    counters: [AtomicU64; 6],
}

/// What no fast path touches, but for the request that follows suppressed ones.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct SlowLine {
    /// The request of dat-core's own that follows suppressed ones.
    pub(crate) follower: Follower,
    /// In the reaper's chain, of both queues: where the completion queue has to be before the queue
    /// is flushed.
    flush_at: [AtomicU64; 2],
    /// In the reaper's chain: what was posted when the reaper found the queue on the stack. What
    /// is posted later waits its turn.
    flush_to: [AtomicU32; 2],
    /// Place on the control half's work stack.
    pub(crate) work: Link,
    /// The connection event of this Endpoint that waits for its completions, or [`END`]; written
    /// by the reaper.
    pub(crate) ending: AtomicU32,
    /// Windows that belong to the queue pair. Posters write it.
    pub(crate) windows: AtomicU32,
    /// Slot of the Shared Receive Queue that its receives come from, with [`SHARED`] in its index.
    pub(crate) srq: AtomicU32,
}

/// A request of dat-core's own, which takes no slot of the consumer's: the device does not say when
/// a suppressed request completes, so this one is posted behind it, and its completion says so.
#[derive(Debug)]
pub(crate) struct Follower {
    /// [`VALID`], [`COMPLETED`], its token, and the sequence behind the newest request that it
    /// follows; 0 if none is outstanding.
    word: AtomicU64,
    /// Earlier ones: they have completed, and their completions have not been dequeued.
    earlier: AtomicU32,
}

/// Bit of [`Follower::word`].
const VALID: u64 = 1 << 63;
/// Bit of [`Follower::word`]: its completion has been seen.
const COMPLETED: u64 = 1 << 62;

impl Follower {
    const fn new() -> Self {
        Self { word: AtomicU64::new(0), earlier: AtomicU32::new(0) }
    }

    fn clear(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.earlier.store(0, Ordering::Relaxed);
    }

    /// The sequence behind the newest request that the one of that token follows, if it is
    /// outstanding.
    pub(crate) fn follows(&self, token: u16) -> Option<u32> {
        let word = self.word.load(Ordering::Acquire);
        Self::is_of(word, token).then_some(sequence_of(word))
    }

    /// Whether it is outstanding, and not known to have completed.
    pub(crate) fn is_under_way(&self) -> bool {
        self.word.load(Ordering::Acquire) & (VALID | COMPLETED) == VALID
    }

    /// Completions of it and of earlier ones that lie in the completion queue or may come.
    pub(crate) fn count(&self) -> u32 {
        let newest = self.word.load(Ordering::Acquire) != 0;
        self.earlier.load(Ordering::Acquire).saturating_add(u32::from(newest))
    }

    /// The one of that token has completed, if it is outstanding: the sequence behind the newest
    /// request that it follows.
    pub(crate) fn completed(&self, token: u16) -> Option<u32> {
        let to = self.follows(token)?;
        let word = VALID | u64::from(token) << 32 | u64::from(to);
        let new = word | COMPLETED;
        // It may have been dequeued just now, or seen before.
        let _ = self.word.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed);
        Some(to)
    }

    /// The completion of the one of that token has been dequeued. Meanwhile it may have become an
    /// earlier one.
    pub(crate) fn done(&self, token: u16) {
        let own = |word| Self::is_of(word, token).then_some(0);
        if self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, own).is_err() {
            self.earlier_done();
        }
    }

    const fn is_of(word: u64, token: u16) -> bool {
        (word & !COMPLETED) >> 32 == VALID >> 32 | token as u64
    }

    /// An earlier one's completion has been dequeued, if there is any.
    pub(crate) fn earlier_done(&self) -> bool {
        let one_less = |earlier: u32| earlier.checked_sub(1);
        self.earlier.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less).is_ok()
    }

    /// Makes it the one of that token, behind all requests below `to`. Not while another is under
    /// way. The control half only.
    pub(crate) fn start(&self, token: u16, to: u32) {
        let old = self.word.load(Ordering::Acquire);
        let new = VALID | u64::from(token) << 32 | u64::from(to);
        if old != 0 {
            // ORDER: the count precedes the word: a reaper that does not find the old one there
            // finds it counted.
            self.earlier.fetch_add(1, Ordering::AcqRel);
            let swapped = self.word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
            if swapped.is_ok() {
                return;
            }
            // It has just been dequeued.
            self.earlier.fetch_sub(1, Ordering::AcqRel);
        }
        self.word.store(new, Ordering::Release);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half of the word")]
const fn sequence_of(word: u64) -> u32 {
    word as u32
}

/// What names one queue of the Endpoint in slot `ep`, on a chain to flush.
pub(crate) const fn queue_id(ep: u32, direction: Direction) -> u32 {
    ep << 1 | matches!(direction, Direction::Recv) as u32
}

/// The slot of the Endpoint and the direction of the queue of that name.
pub(crate) const fn queue_of(id: u32) -> (u32, Direction) {
    let direction = if id & 1 == 0 { Direction::Send } else { Direction::Recv };
    (id >> 1, direction)
}

/// Written by the reaper of one direction, except the identity (control).
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct QueueLine {
    /// Requests or receives that are done with.
    pub(crate) consumed: AtomicU32,
    /// Completion index of the queue pair's present generation.
    pub(crate) index: AtomicU32,
    /// The handle of the Endpoint, as a word.
    pub(crate) handle: AtomicU64,
    /// Slot of the Event Dispatcher it completes to.
    pub(crate) evd: AtomicU32,
    /// Slots in use, less one.
    pub(crate) mask: AtomicU32,
    /// Where its slots begin among those of all Endpoints.
    pub(crate) first: AtomicU32,
    /// Bytes of the longest receive posted: what is longer fits none of them.
    pub(crate) max_len: AtomicU32,
    /// 1: only what the peer marks as solicited notifies.
    pub(crate) solicited: AtomicU32,
    /// Place on its Event Dispatcher's flush stack.
    pub(crate) flush: Link,
    /// Receives from a Shared Receive Queue that the control half had seen complete and that have
    /// been dequeued since.
    pub(crate) taken: AtomicU32,
    /// Receives that arrived, with their bytes.
    counters: [AtomicU64; 2],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<PosterLine>() == 64 && size_of::<QueueLine>() == 64);
    assert!(size_of::<SlowLine>() == 64 && size_of::<EpShared>() == 384);
};

/// Where the slots of a queue are, among those of all Endpoints.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    first: u32,
    mask: u32,
}

impl Span {
    /// The slot of that sequence.
    #[inline(always)]
    pub(crate) const fn place(self, seq: u32) -> usize {
        (self.first | seq & self.mask) as usize
    }
}

/// What broke a connection, as the reaper tells the control half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trouble(u32);

impl Trouble {
    pub(crate) const NONSENSE: Self = Self(0x8000_0000);
    /// A bind did not complete whose RMR has been freed.
    pub(crate) const BIND: Self = Self(0x2000_0000);

    pub(crate) fn of(completion: &Completion) -> Self {
        let Completion { status, direction, syndrome, vendor, .. } = *completion;
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

    /// Whether it is a request or a receive that was flushed: it follows from something else.
    pub(crate) const fn is_flush(self) -> bool {
        !self.is_nonsense() && self.0 >> 16 & 0xff == Status::Flushed as u32
    }

    /// Whether it is a request or a receive that failed by itself.
    pub(crate) const fn is_a_cause(self) -> bool {
        !self.is_nonsense() && !self.is_flush()
    }

    /// The same as the failure of a queue pair: how the request ended, and the two syndromes of the
    /// device.
    #[expect(clippy::cast_possible_truncation, reason = "fields of a word")]
    pub(crate) fn fault(self, qp: u32) -> Fault {
        let (status, syndrome) = ((self.0 >> 16) as u8, self.0 & 0xffff);
        let fault = if self.is_nonsense() {
            fault!(Nonsense, "completion", "the device completed what was never posted")
        } else if self.0 == Self::BIND.0 {
            fault!(
                Timeout,
                "a bind",
                "it did not complete, and its RMR has been freed",
                "free an RMR when its binds have completed; ep_reset makes the EP usable again",
            )
        } else {
            let recv = self.0 & 1 << 24 != 0;
            let operation = if recv { "a receive" } else { "a request" };
            fault!(
                BadState,
                operation,
                ending(status),
                "the status of its completion event names the reason; ep_reset makes the EP usable again",
            )
        };
        fault.with_answer(status, syndrome).of("QP", qp)
    }
}

/// Returns how a request or a receive ended, by the number of its [`Status`].
fn ending(status: u8) -> &'static str {
    const TEXTS: [&str; 15] = [
        "success",
        "flushed",
        "it does not fit its segments",
        "malformed",
        "no right to the memory of its segments",
        "the bind was refused",
        "the peer's answer makes no sense",
        "no right to memory of this side",
        "the peer found it invalid",
        "the peer refused access to its memory",
        "the peer could not carry it out",
        "no answer from the peer",
        "no receive posted at the peer",
        "given up by the peer",
        "for a reason unknown here",
    ];
    TEXTS.get(usize::from(status)).copied().unwrap_or_default()
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
            taken: AtomicU32::new(0),
            counters: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// Where the slot of that sequence is, among those of all Endpoints.
    #[inline(always)]
    pub(crate) fn place(&self, seq: u32) -> usize {
        self.span().place(seq)
    }

    /// Where its slots are.
    #[inline(always)]
    pub(crate) fn span(&self) -> Span {
        Span { first: self.first.load(Ordering::Relaxed), mask: self.mask.load(Ordering::Relaxed) }
    }

    /// The handle of the Endpoint.
    #[inline(always)]
    pub(crate) fn handle(&self) -> Ep {
        Ep(Handle::from_raw(self.handle.load(Ordering::Relaxed)))
    }
}

impl EpShared {
    /// The Endpoint's state.
    pub(crate) fn state(&self) -> EpState {
        EpState::from_word(self.poster.state.load(Ordering::Acquire))
    }

    pub(crate) const fn new() -> Self {
        Self {
            poster: PosterLine {
                state: AtomicU32::new(EpState::Unconnected as u32),
                requests: AtomicU32::new(0),
                receives: AtomicU32::new(0),
                trouble: AtomicU32::new(0),
                counters: [const { AtomicU64::new(0) }; 6],
            },
            request: QueueLine::new(),
            receive: QueueLine::new(),
            slow: SlowLine {
                follower: Follower::new(),
                flush_at: [const { AtomicU64::new(0) }; 2],
                flush_to: [const { AtomicU32::new(0) }; 2],
                work: Link::new(),
                ending: AtomicU32::new(END),
                windows: AtomicU32::new(0),
                srq: AtomicU32::new(u32::MAX),
            },
            counters: [const { AtomicU64::new(0) }; 16],
        }
    }

    pub(crate) fn line(&self, direction: Direction) -> &QueueLine {
        match direction {
            Direction::Send => &self.request,
            Direction::Recv => &self.receive,
        }
    }

    /// In the reaper's chain: where the completion queue has to be before a queue is flushed.
    pub(crate) fn flush_at(&self, direction: Direction) -> &AtomicU64 {
        let [request, receive] = &self.slow.flush_at;
        if direction == Direction::Send { request } else { receive }
    }

    /// In the reaper's chain: up to which request or receive.
    pub(crate) fn flush_to(&self, direction: Direction) -> &AtomicU32 {
        let [request, receive] = &self.slow.flush_to;
        if direction == Direction::Send { request } else { receive }
    }

    /// Whether a completion is of the queue pair's present generation.
    pub(crate) fn is_named(&self, completion: &Completion) -> bool {
        let name = self.line(completion.direction).index.load(Ordering::Relaxed);
        name & !KIND == completion.index
    }

    /// Whether it is one for datagrams.
    pub(crate) fn is_datagram(&self) -> bool {
        self.is_of(DATAGRAM)
    }

    /// Slot of the Shared Receive Queue that its receives come from, if they do.
    pub(crate) fn srq(&self) -> Option<u32> {
        self.is_of(SHARED).then(|| self.slow.srq.load(Ordering::Relaxed))
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

    /// Empties both directions, for a new generation of the queue pair.
    pub(crate) fn rewind(&self) {
        self.poster.requests.store(0, Ordering::Relaxed);
        self.poster.receives.store(0, Ordering::Relaxed);
        self.poster.trouble.store(0, Ordering::Relaxed);
        self.slow.follower.clear();
        self.request.consumed.store(0, Ordering::Release);
        self.receive.consumed.store(0, Ordering::Release);
    }
}

impl Shared<'_> {
    /// The bit of the receive slot of that sequence, and the word that it is in, which may have
    /// bits of other Endpoints.
    fn silent(&self, ep: &EpShared, seq: u32) -> Option<(&AtomicU32, u32)> {
        const BITS: usize = u32::BITS as usize;
        let place = ep.receive.place(seq);
        Some((self.silent.get(place / BITS)?, 1 << (place % BITS)))
    }

    /// Notes that the success of the receive of that sequence wakes nobody. Before it is published.
    pub(crate) fn silence_receive(&self, ep: &EpShared, seq: u32) {
        if let Some((word, bit)) = self.silent(ep, seq) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Forgets that of so many slots, from that of sequence `from` on. They hold no receive.
    pub(crate) fn forget_silent(&self, ep: &EpShared, from: u32, slots: u32) {
        for ahead in 0..slots {
            if let Some((word, bit)) = self.silent(ep, from.wrapping_add(ahead)) {
                if word.load(Ordering::Relaxed) & bit != 0 {
                    word.fetch_and(!bit, Ordering::Relaxed);
                }
            }
        }
    }

    /// Whether an outstanding receive that succeeded wakes nobody.
    #[expect(clippy::cast_possible_truncation, reason = "sequences are compared in 16 bits")]
    pub(crate) fn receive_is_silent(&self, ep: &EpShared, completion: &Completion) -> bool {
        let solicited = completion.extra.solicited;
        if !solicited && ep.receive.solicited.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let consumed = ep.receive.consumed.load(Ordering::Acquire);
        let ahead = u32::from(completion.token.wrapping_sub(consumed as u16));
        // ORDER: the mark precedes the count that makes the receive outstanding, which is read here
        // first.
        ahead < ep.posted(Direction::Recv).wrapping_sub(consumed)
            && self
                .silent(ep, consumed.wrapping_add(ahead))
                .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_a_word_of_its_own() {
        let ep = EpShared::new();
        for (counter, count) in EpCounter::ALL.into_iter().zip(1..) {
            ep.add(counter as usize, count);
        }
        for (counter, count) in EpCounter::ALL.into_iter().zip(1..) {
            assert_eq!(ep.read_counter(counter, true), count, "{counter:?}");
            assert_eq!(ep.read_counter(counter, false), 0);
        }
    }
}
