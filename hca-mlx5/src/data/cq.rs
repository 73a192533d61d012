//! The completion queue: reading what the device wrote, and asking for an event.
//!
//! PRM "Completion queues". An entry belongs to software when its owner bit is that of the current
//! lap and its opcode is not the invalid one; everything else of it may be read only after that.
//! What it says is decoded here and trusted by nobody: an entry of a kind that no queue pair of
//! this driver can cause is skipped and counted.
//!
//! Length: every way to read the ring stands beside the others, as they share what an entry means.

use core::fmt;
use core::sync::atomic::Ordering;

use dat_core::provider::{
    Arrived, Completion, CompletionQueue, Direction, Extra, NetworkHeader, Polled, Status,
};

use super::inline::{Copying, Landing};
use super::ring::{self, FIRST, RECORD, Record, Ring, SECOND};
use super::work;
use crate::platform::dma::Entries;
use crate::platform::{Fence, Platform};
use crate::prm::cqe::{self, Cause, Index, Owner};

/// log2 of an entry's size.
const LOG_CQE: u32 = 6;
/// Offset in a UAR page of the register that arms a completion queue.
const UAR_ARM: usize = 0x20;
/// The bits of the number of a request for an event.
const NUMBER: u32 = 3;
/// Place behind the doorbell record of the count of the queue's events that have been read, and of
/// the word of [`Copying`]: not here, as the reaping end may be in another thread than who reads events.
const EVENTS: u32 = 1;
/// Arm word: only for solicited or failed completions.
const SOLICITED_ONLY: u32 = 1 << 24;
/// [`Owner::kind`] of a request that succeeded, on a lap of even number.
const SENT: u8 = cqe::REQUESTER << 4;
/// The same of a message that was received.
const RECEIVED: u8 = cqe::RESPONDER_SEND << 4;
/// The bits of [`Index::user_index`], in the order of the device's bytes.
const USER_INDEX: u32 = 0x00ff_ffff_u32.to_be();
/// From one token to the next, in [`Owner`].
const NEXT_TOKEN: u32 = 1 << 16;
/// Indices towards the device have 24 bits.
const INDEX_MASK: u32 = 0xff_ffff;

/// Reaping end of a completion queue.
pub struct Cq<'p, P: Platform> {
    pub(super) platform: &'p P,
    pub(super) entries: Entries<'p, { cqe::CQE }, P::Probe>,
    record: Entries<'p, RECORD, P::Probe>,
    /// How many entries there are: also the bit of the index that tells laps apart.
    pub(super) slots: u32,
    /// Consumer index, free running; what it counts is never seen to wrap.
    tail: u64,
    /// Entries that ended a ring: no completions.
    ends: u64,
    /// The last request for an event: where the consumer index was, whether it was for solicited
    /// completions only, and how many events had been read.
    armed: Option<(u32, bool, u32)>,
    cqn: u32,
    /// The device may write sessions of compressed entries.
    pub(super) compressed: bool,
    /// BAR offset of the arm register.
    arm: usize,
    skipped: u32,
    /// Where payload goes that comes in completions.
    pub(super) landing: Option<Landing<'p, P>>,
}

/// How a datagram came on InfiniBand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// LID of the sender.
    pub(crate) slid: u16,
    /// The datagram has a global header, in the bytes before it.
    pub(crate) grh: bool,
    /// QPN of the sender.
    pub(crate) source_qpn: u32,
}

impl<P: Platform> fmt::Debug for Cq<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq")
            .field("cqn", &self.cqn)
            .field("slots", &self.slots)
            .field("tail", &self.tail)
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}

/// Counts an event that has been read, of the queue with that doorbell record: its next request has
/// another number. To be called before the event queue's consumer index says so to the device, or
/// the device would ignore a request in between.
pub(crate) fn event_read<P: Platform>(platform: &P, record: Record) {
    if let Some(record) = platform.memory().entries::<RECORD>(record.completion_span()) {
        record.shared::<FIRST>(EVENTS).fetch_add(1, Ordering::Release);
    }
}

/// Says whether the reaping end of the queue with that doorbell record is copying payload.
pub(crate) fn copying<T, P: Platform>(
    platform: &P,
    record: Record,
    look: impl FnOnce(Copying<'_>) -> T,
) -> Option<T> {
    let record = platform.memory().entries::<RECORD>(record.completion_span())?;
    Some(look(Copying(record.shared::<SECOND>(EVENTS))))
}

/// Marks every entry of a ring as empty. Must happen before the first completion can arrive: a
/// zeroed entry looks like a successful request of the first lap.
pub(crate) fn clear<P: Platform>(platform: &P, ring: &Ring) {
    for index in 0..ring.slots() {
        let owner = ring.slot(index, LOG_CQE).wrapping_add(cqe::OWNER_AT);
        platform.memory().store32(owner, cqe::EMPTY.to_be());
    }
}

impl<'p, P: Platform> Cq<'p, P> {
    /// The end of a completion queue over `ring` that has no number yet, and whose doorbells are in
    /// the page at BAR offset `uar`. None if it is not in the arena.
    pub(crate) fn new(platform: &'p P, ring: Ring, record: Record, uar: usize) -> Option<Self> {
        let arm = uar.wrapping_add(UAR_ARM);
        Some(Self {
            platform,
            entries: platform.memory().entries(ring.span(LOG_CQE))?,
            record: platform.memory().entries(record.completion_span())?,
            slots: ring.slots(),
            tail: 0,
            ends: 0,
            armed: None,
            cqn: 0,
            compressed: false,
            arm,
            skipped: 0,
            landing: None,
        })
    }

    /// Goes on at that consumer index, as after so many completions.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, index: u64) {
        self.tail = index;
    }

    /// The number the device gave the queue.
    pub(crate) fn set_cqn(&mut self, cqn: u32) {
        self.cqn = cqn;
    }

    /// The device may write sessions of compressed entries from now on.
    pub(crate) fn set_compressed(&mut self) {
        self.compressed = true;
    }

    /// Completions may hold payload from now on.
    pub(crate) fn set_landing(&mut self, landing: Landing<'p, P>) {
        self.landing = Some(landing);
    }

    /// Says whether this end is copying payload.
    pub(super) fn copying(&self) -> Copying<'_> {
        Copying(self.record.shared::<SECOND>(EVENTS))
    }

    /// Entries that made no sense, so far.
    #[must_use]
    pub const fn skipped(&self) -> u32 {
        self.skipped
    }

    /// How many entries there are.
    pub(crate) const fn slots(&self) -> u32 {
        self.slots
    }

    /// How many the device has written that were not taken. The device writes one entry behind the
    /// other, so a look goes twice as far as the one before until it finds an open entry, and then
    /// each rules out half of what is left; but for compressed entries, whose slots say nothing of
    /// their own until the session is written out.
    pub(crate) fn waiting(&self) -> u32 {
        if self.compressed {
            let written = |ahead: &u32| self.owner_at(self.at().wrapping_add(*ahead)).is_none();
            return (0..self.slots).find(written).unwrap_or(self.slots);
        }
        let is_written = |ahead: u32| self.owner_at(self.at().wrapping_add(ahead)).is_some();
        let (mut written, mut open) = (0, 0);
        while open < self.slots && is_written(open) {
            written = open + 1;
            open += written;
        }
        open = open.min(self.slots);
        while written < open {
            let middle = written + (open - written) / 2;
            if is_written(middle) {
                written = middle + 1;
            } else {
                open = middle;
            }
        }
        written
    }

    /// Takes all that the device has written, unread.
    pub(crate) fn discard(&mut self) {
        self.tail = self.tail.wrapping_add(self.waiting().into());
        // No order needed, as in `take`.
        self.give_back();
    }

    /// The word of the entry of that index that says what it is, if the device has written it. All
    /// before it have been looked at so: an entry of a compressed session is known by its title.
    fn owner_at(&self, index: u32) -> Option<Owner> {
        let owner = u32::from_be(self.entries.load32::<{ cqe::OWNER_AT }>(index));
        let owner = Owner::from_word(owner);
        let new = owner.owner() == (index & self.slots != 0) && owner.opcode() != cqe::INVALID;
        // ORDER: the load that saw the owner bit precedes those of the rest of the entry.
        new.then(|| self.platform.fence(Fence::AfterOwnership))?;
        Some(if self.compressed { self.unfold(index, owner) } else { owner })
    }

    /// Marks every entry of another ring as empty, which the queue is to go on in: from its next
    /// index on, as there the entry that ends this ring is counted.
    pub(crate) fn clear_ahead(&self, ring: &Ring) {
        let first = self.at().wrapping_add(1);
        for index in (0..ring.slots()).map(|ahead| first.wrapping_add(ahead)) {
            let word = Owner::from_word(cqe::EMPTY).on_lap(!ring.lap(index));
            let owner = ring.slot(index, LOG_CQE).wrapping_add(cqe::OWNER_AT);
            self.platform.memory().store32(owner, word.to_be());
        }
    }

    /// Goes on in another ring, where the device is already. What waits here is carried over, each
    /// entry one place ahead, up to the one that says that the ring has ended. False if there
    /// is none.
    pub(crate) fn move_to(&mut self, ring: &Ring) -> bool {
        let Some(entries) = self.platform.memory().entries(ring.span(LOG_CQE)) else {
            return false;
        };
        let mut found = false;
        for index in (0..self.slots).map(|ahead| self.at().wrapping_add(ahead)) {
            let Some(owner) = self.owner_at(index) else {
                break;
            };
            if owner.opcode() == cqe::RESIZED {
                found = true;
                break;
            }
            let to = index.wrapping_add(1);
            let bytes = self.entries.load_words::<8, 0>(index);
            entries.store_words::<8, 0>(to, &bytes);
            let word = owner.on_lap(ring.lap(to));
            entries.store32::<{ cqe::OWNER_AT }>(to, word.to_be());
        }
        // ORDER: what was carried over precedes the index that says the old ring is done with.
        self.platform.fence(Fence::BeforeDoorbell);
        self.entries = entries;
        self.slots = ring.slots();
        self.tail = self.tail.wrapping_add(1);
        self.ends = self.ends.wrapping_add(1);
        self.give_back();
        found
    }

    /// The number of the queue.
    pub(crate) const fn cqn(&self) -> u32 {
        self.cqn
    }

    /// The consumer index as rings take it.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "rings and the device count in fewer bits")]
    pub(super) const fn at(&self) -> u32 {
        self.tail as u32
    }

    /// Tells the device which entries are its own again.
    #[inline(always)]
    fn give_back(&self) {
        ring::write::<FIRST, _>(&self.record, self.at() & INDEX_MASK);
    }

    /// The word of the current entry that says whose it is.
    #[inline(always)]
    fn look(&self) -> Owner {
        let owner = self.entries.load32::<{ cqe::OWNER_AT }>(self.at());
        Owner::from_word(u32::from_be(owner))
    }

    /// The current lap's owner bit.
    #[inline(always)]
    const fn lap(&self) -> bool {
        self.at() & self.slots != 0
    }

    /// Gives the current entry back, which is the driver's by now. Returns its user index and the
    /// dword at `AT`.
    #[inline(always)]
    fn take<const AT: usize>(&mut self) -> (u32, u32) {
        // Before the fence, or all of it would be read again after it.
        let (entries, record, at) = (self.entries, self.record, self.at());
        self.tail = self.tail.wrapping_add(1);
        let next = self.at() & INDEX_MASK;
        // ORDER: the load that saw the owner bit precedes the loads of the rest of the entry, and
        // those of the data it announces.
        self.platform.fence(Fence::AfterOwnership);
        let index = entries.load32::<{ cqe::INDEX_AT }>(at);
        let index = Index::from_word(u32::from_be(index)).user_index();
        let dword =
            if AT == cqe::INDEX_AT { index } else { u32::from_be(entries.load32::<AT>(at)) };
        // The index is only a licence to overwrite, and the ring has an entry for every request
        // that can be outstanding: no order against the loads above is needed.
        ring::write::<FIRST, _>(&record, next);
        (index, dword)
    }

    /// The request of the current entry succeeded.
    #[inline(always)]
    fn requested(&mut self, owner: Owner) -> Polled {
        let (index, _) = self.take::<{ cqe::INDEX_AT }>();
        Polled::Sent(index, owner.wqe_counter())
    }

    /// The receive of the current entry succeeded.
    #[inline(always)]
    fn received(&mut self, owner: Owner) -> Polled {
        let (index, len) = self.take::<{ cqe::BYTE_CNT_AT }>();
        Polled::Received(index, owner.wqe_counter(), len)
    }

    /// Entries from `begin` to the end of the lap that may be of that user index: none if it has more
    /// bits than one.
    // Not an early return, behind which the compiler makes five instructions more of each compare.
    #[inline(always)]
    const fn lap_left(&self, begin: u32, index: u32) -> usize {
        if index > INDEX_MASK { 0 } else { (self.slots - (begin & (self.slots - 1))) as usize }
    }

    /// The entries from `begin` to `end` have been taken.
    #[inline(always)]
    fn took(&mut self, begin: u32, end: u32) {
        if end != begin {
            self.tail = self.tail.wrapping_add(end.wrapping_sub(begin).into());
            // No order needed, as in `take`.
            ring::write::<FIRST, _>(&self.record, end & INDEX_MASK);
        }
    }

    /// Returns the extension of a successful receive's entry.
    fn extra(&self, at: u32, owner: Owner) -> Extra {
        let entries = self.entries;
        let sender = u32::from_be(entries.load32::<{ cqe::SENDER_AT }>(at));
        let sender = cqe::Sender::from_word(sender);
        let immediate = u32::from_be(entries.load32::<{ cqe::IMMEDIATE_AT }>(at));
        let arrived = match owner.opcode() {
            cqe::RESPONDER_WRITE_IMM => Arrived::WriteImmediate,
            cqe::RESPONDER_SEND_IMM => Arrived::Immediate,
            cqe::RESPONDER_SEND_INVALIDATE => Arrived::Invalidation,
            _ => Arrived::Message,
        };
        Extra {
            arrived,
            immediate: if arrived == Arrived::Message { 0 } else { immediate },
            source_qpn: sender.rqpn(),
            solicited: owner.solicited(),
            network: match (sender.l3_type(), self.slid(at)) {
                (1, _) => NetworkHeader::V6,
                (2, _) => NetworkHeader::V4,
                (0, lid @ 1..) => NetworkHeader::Lid(lid),
                _ => NetworkHeader::Unsaid,
            },
        }
    }

    /// Returns the local route header of the datagram whose completion was taken last; only right
    /// after it was taken, and on InfiniBand.
    pub(crate) fn last_route(&self) -> Route {
        let at = self.at().wrapping_sub(1);
        let sender = u32::from_be(self.entries.load32::<{ cqe::SENDER_AT }>(at));
        Route {
            slid: self.slid(at),
            grh: cqe::Sender::from_word(sender).grh() != 0,
            source_qpn: cqe::Sender::from_word(sender).rqpn(),
        }
    }

    /// LID of the sender, on InfiniBand.
    fn slid(&self, at: u32) -> u16 {
        let [_, _, high, low] = self.entries.load32::<{ cqe::SLID_AT }>(at).to_ne_bytes();
        u16::from_be_bytes([high, low])
    }

    /// Decodes an entry that the device has written, without taking it. Nothing if it makes no
    /// sense.
    // Always inline, for `poll`.
    #[inline(always)]
    fn read(&self, at: u32, owner: Owner) -> Option<Completion> {
        let word = |word: u32| u32::from_be(word);
        let index = word(self.entries.load32::<{ cqe::INDEX_AT }>(at));
        let (direction, failed) = match owner.opcode() {
            cqe::REQUESTER_ERROR => (Direction::Send, true),
            cqe::RESPONDER_ERROR => (Direction::Recv, true),
            _ if owner.format() != 0 && !self.has_payload(owner) => return None,
            cqe::REQUESTER => (Direction::Send, false),
            cqe::RESPONDER_WRITE_IMM..=cqe::RESPONDER_SEND_INVALIDATE => (Direction::Recv, false),
            _ => return None,
        };
        let mut completion = Completion {
            index: Index::from_word(index).user_index(),
            len: 0,
            token: owner.wqe_counter(),
            direction,
            status: Status::Success,
            syndrome: 0,
            vendor: 0,
            extra: Extra::default(),
        };
        if failed {
            let cause = Cause::from_word(word(self.entries.load32::<{ cqe::CAUSE_AT }>(at)));
            completion.status = cqe::status(cause.syndrome());
            (completion.syndrome, completion.vendor) = (cause.syndrome(), cause.vendor_err_synd());
        } else if direction == Direction::Recv {
            completion.len = word(self.entries.load32::<{ cqe::BYTE_CNT_AT }>(at));
            if owner.format() != 0 && completion.len > cqe::PAYLOAD {
                return None;
            }
            completion.extra = self.extra(at, owner);
        }
        Some(completion)
    }
}

impl<P: Platform> CompletionQueue for Cq<'_, P> {
    #[inline(always)]
    fn poll_plain(&mut self) -> Polled {
        let owner = self.look();
        // Opcode, format and owner in one compare each; the solicited bit says nothing here.
        let kind = owner.kind() ^ u8::from(self.lap());
        if kind == SENT {
            self.requested(owner)
        } else if kind & 1 != 0 {
            Polled::Empty
        } else if kind == RECEIVED {
            self.received(owner)
        } else {
            Polled::Other
        }
    }

    #[inline(always)]
    fn poll_sent<S>(
        &mut self,
        index: u32,
        slots: &[S],
        mut take: impl FnMut(&S, u16) -> bool,
    ) -> u32 {
        // All in registers, which the fences in between would not leave it in otherwise.
        let (platform, entries, begin) = (self.platform, self.entries, self.at());
        // Up to the end of the lap, on which the owner bit is the same.
        let slots = slots.get(..self.lap_left(begin, index)).unwrap_or(slots);
        let (kind, name) = (SENT | u8::from(self.lap()), index.to_be());
        let mut tail = begin;
        for slot in slots {
            let owner = Owner::from_word(u32::from_be(entries.load32::<{ cqe::OWNER_AT }>(tail)));
            if owner.kind() != kind {
                break;
            }
            // ORDER: as in `take`.
            platform.fence(Fence::AfterOwnership);
            let found = entries.load32::<{ cqe::INDEX_AT }>(tail);
            if (found ^ name) & USER_INDEX != 0 || !take(slot, owner.wqe_counter()) {
                break;
            }
            tail = tail.wrapping_add(1);
        }
        self.took(begin, tail);
        tail.wrapping_sub(begin)
    }

    #[inline(always)]
    fn poll_received(
        &mut self,
        index: u32,
        token: u16,
        most: usize,
        mut take: impl FnMut(u32) -> bool,
    ) {
        let (platform, entries, begin) = (self.platform, self.entries, self.at());
        // Up to the end of the lap, so that each entry differs from the one before by its token.
        let left = most.min(self.lap_left(begin, index));
        let name = index.to_be();
        let end = begin.wrapping_add(u32::try_from(left).unwrap_or(0));
        let mut wanted = Owner::plain(RECEIVED, token).on_lap(self.lap());
        let mut tail = begin;
        while tail != end {
            let owner = u32::from_be(entries.load32::<{ cqe::OWNER_AT }>(tail));
            if !Owner::from_word(owner).says(wanted) {
                break;
            }
            // ORDER: as in `take`.
            platform.fence(Fence::AfterOwnership);
            let found = entries.load32::<{ cqe::INDEX_AT }>(tail);
            let len = u32::from_be(entries.load32::<{ cqe::BYTE_CNT_AT }>(tail));
            if (found ^ name) & USER_INDEX != 0 || !take(len) {
                break;
            }
            tail = tail.wrapping_add(1);
            wanted = wanted.wrapping_add(NEXT_TOKEN);
        }
        self.took(begin, tail);
    }

    // Always inline, or each frame that arrives costs 60 instructions more: the completion would
    // go through memory.
    #[inline(always)]
    fn poll(&mut self) -> Option<Completion> {
        // A device that writes nonsense faster than it can be read must not keep the caller here.
        for _ in 0..work::NONSENSE {
            let owner = self.owner_at(self.at())?;
            let mut completion = self.read(self.at(), owner);
            if owner.format() != 0 {
                if let Some(Completion { index, token, len, status, .. }) = &mut completion {
                    if self.has_payload(owner) && !self.land(self.at(), *index, *token, *len) {
                        // As it would have failed at the device.
                        *status = Status::LocalProtection;
                    }
                }
            }
            self.tail = self.tail.wrapping_add(1);
            // No order needed, as in `take`.
            self.give_back();
            if completion.is_some() {
                return completion;
            }
            // Of a kind that no queue pair of this driver causes.
            self.skipped = self.skipped.saturating_add(1);
        }
        None
    }

    fn survey(&self, from: u64, mut see: impl FnMut(Completion)) -> u64 {
        let seen = from.saturating_sub(self.taken());
        let mut ahead = u32::try_from(seen).unwrap_or(u32::MAX).min(self.slots);
        while ahead < self.slots {
            let index = self.at().wrapping_add(ahead);
            let Some(owner) = self.owner_at(index) else {
                break;
            };
            if let Some(completion) = self.read(index, owner) {
                see(completion);
            }
            ahead += 1;
        }
        self.taken().wrapping_add(ahead.into())
    }

    fn written(&self) -> u64 {
        self.taken().wrapping_add(self.waiting().into())
    }

    fn last(&self) -> Option<Completion> {
        // The entry is the device's again, but there is one for every request that can be
        // outstanding, and to the caller this one still is. What a device that overran it
        // wrote is nonsense, not harm.
        let at = self.at().wrapping_sub(1);
        let owner = u32::from_be(self.entries.load32::<{ cqe::OWNER_AT }>(at));
        self.read(at, Owner::from_word(owner))
    }

    fn taken(&self) -> u64 {
        self.tail.wrapping_sub(self.ends)
    }

    fn arm(&mut self, solicited_only: bool) {
        let (at, owner) = (self.at(), self.look());
        let waits = owner.owner() == self.lap() && owner.opcode() != cqe::INVALID;
        let asked =
            (at, solicited_only, self.record.shared::<FIRST>(EVENTS).load(Ordering::Acquire));
        if self.armed == Some(asked) && !waits {
            // Nothing has come since the same was asked for: it still stands, or its event is on
            // its way.
            return;
        }
        self.armed = Some(asked);
        // The device has at most one event of a queue on its way: it ignores a request that carries
        // the number of its last event (Linux `mlx5_cq_arm`, `arm_sn`).
        let command = if solicited_only { SOLICITED_ONLY } else { 0 };
        let word = (asked.2 & NUMBER) << 28 | command | (at & INDEX_MASK);
        ring::write::<SECOND, _>(&self.record, word);
        // ORDER: the arm word in the record precedes the register: the device compares the two.
        self.platform.fence(Fence::BeforeDoorbell);
        let register = u64::from(word) << 32 | u64::from(self.cqn);
        self.platform.write64(self.arm, register.to_be());
        // ORDER: the register's store leaves the CPU before the caller goes to sleep on its effect.
        self.platform.fence(Fence::AfterDoorbell);
    }

    fn sweep(&mut self, index: u32, mut gone: impl FnMut(Direction, u16)) {
        let end = self.at().wrapping_add(self.waiting());
        // From the newest to the oldest: what stays moves up into the places of what goes.
        let (mut at, mut removed) = (end, 0_u32);
        while at != self.at() {
            at = at.wrapping_sub(1);
            match self.subject(at) {
                Some((found, direction, token)) if found == index => {
                    gone(direction, token);
                    removed = removed.wrapping_add(1);
                }
                Some(_) | None if removed != 0 => self.shift(at, at.wrapping_add(removed)),
                Some(_) | None => {}
            }
        }
        if removed != 0 {
            self.tail = self.tail.wrapping_add(removed.into());
            // ORDER: what was moved is in its place before the device may overwrite where it was.
            self.platform.fence(Fence::BeforeRecord);
            self.give_back();
        }
    }
}

impl<P: Platform> Cq<'_, P> {
    /// Moves an entry; the owner bit is that of its new place.
    fn shift(&self, from: u32, to: u32) {
        let mut words = self.entries.load_words::<8, 0>(from);
        let lap = u64::from(to & self.slots != 0);
        let [.., last] = &mut words;
        *last = (u64::from_be(*last) & !1 | lap).to_be();
        self.entries.store_words::<8, 0>(to, &words);
    }

    /// Returns the queue pair's index, the queue and the request of an entry; none if the entry is
    /// of no queue pair.
    fn subject(&self, at: u32) -> Option<(u32, Direction, u16)> {
        let owner = u32::from_be(self.entries.load32::<{ cqe::OWNER_AT }>(at));
        let owner = Owner::from_word(owner);
        let direction = match owner.opcode() {
            cqe::REQUESTER | cqe::REQUESTER_ERROR => Direction::Send,
            cqe::RESPONDER_WRITE_IMM..=cqe::RESPONDER_SEND_INVALIDATE | cqe::RESPONDER_ERROR => {
                Direction::Recv
            }
            _ => return None,
        };
        let index = u32::from_be(self.entries.load32::<{ cqe::INDEX_AT }>(at));
        let index = Index::from_word(index).user_index();
        Some((index, direction, owner.wqe_counter()))
    }
}
