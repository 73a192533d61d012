//! The completion queue: reading what the device wrote, and asking for an event.
//!
//! PRM "Completion queues". An entry belongs to software when its owner bit is that of the current lap and its opcode is
//! not the invalid one; everything else of it may be read only after that. What it says is decoded here and trusted by
//! nobody: an entry of a kind that no queue pair of this driver can cause is skipped and counted.

use core::fmt;

use dat_core::provider::{Arrived, Completion, CompletionQueue, Direction, Extra, Polled, Status};

use super::ring::{FIRST, RECORD, Record, Ring, SECOND};
use crate::entries::Entries as _;
use crate::platform::Platform;
use crate::prm::cqe::{self, Cause, Index, Owner};

/// log2 of an entry's size.
const LOG_CQE: u32 = 6;
/// Offset in a UAR page of the register that arms a completion queue.
const UAR_ARM: usize = 0x20;
/// Arm word: only for solicited or failed completions.
const SOLICITED_ONLY: u32 = 1 << 24;
/// Indices towards the device have 24 bits.
const INDEX_MASK: u32 = 0xff_ffff;

/// Reaping end of a completion queue.
pub struct Cq<'p, P: Platform> {
    platform: &'p P,
    entries: P::Entries<'p, { cqe::CQE }>,
    record: P::Entries<'p, RECORD>,
    /// How many entries there are: also the bit of the index that tells laps apart.
    slots: u32,
    /// Consumer index, free running.
    tail: u32,
    /// Counts events asked for: each request after an event carries another number, or the device ignores it.
    arms: u32,
    /// Where the consumer index was at the last request, and whether that was for solicited completions only.
    armed: Option<(u32, bool)>,
    cqn: u32,
    /// BAR offset of the arm register.
    arm: usize,
    skipped: u32,
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

/// Marks every entry of a ring as empty. Must happen before the first completion can arrive: a zeroed entry looks like
/// a successful request of the first lap.
pub(crate) fn clear<P: Platform>(platform: &P, ring: &Ring) {
    for index in 0..ring.slots() {
        let owner = ring.slot(index, LOG_CQE).wrapping_add(cqe::OWNER_AT);
        platform.store32(owner, cqe::EMPTY.to_be());
    }
}

impl<'p, P: Platform> Cq<'p, P> {
    /// The end of a completion queue over `ring` that has no number yet, and whose doorbells are in the page at BAR offset
    /// `uar`. None if it is not in the arena.
    pub(crate) fn new(platform: &'p P, ring: Ring, record: Record, uar: usize) -> Option<Self> {
        let arm = uar.wrapping_add(UAR_ARM);
        Some(Self {
            platform,
            entries: platform.entries(ring.span(LOG_CQE))?,
            record: platform.entries(record.span())?,
            slots: ring.slots(),
            tail: 0,
            arms: 0,
            armed: None,
            cqn: 0,
            arm,
            skipped: 0,
        })
    }

    /// The number the device gave the queue.
    pub(crate) fn name(&mut self, cqn: u32) {
        self.cqn = cqn;
    }

    /// Entries that made no sense, so far.
    #[must_use]
    pub const fn skipped(&self) -> u32 {
        self.skipped
    }

    /// The number of the queue.
    pub(crate) const fn cqn(&self) -> u32 {
        self.cqn
    }

    /// The word of the current entry that says whose it is.
    #[inline(always)]
    fn look(&self) -> Owner {
        let owner = self.entries.load32::<{ cqe::OWNER_AT }>(self.tail);
        Owner::from_word(u32::from_be(owner))
    }

    /// The current lap's owner bit.
    #[inline(always)]
    const fn lap(&self) -> bool {
        self.tail & self.slots != 0
    }

    /// Gives the current entry back, which is the driver's by now. Returns its user index and the dword at `AT`.
    #[inline(always)]
    fn take<const AT: usize>(&mut self) -> (u32, u32) {
        // Before the fence, or all of it would be read again after it.
        let (entries, record, at) = (self.entries, self.record, self.tail);
        self.tail = at.wrapping_add(1);
        let next = (self.tail & INDEX_MASK).to_be();
        // ORDER: the load that saw the owner bit precedes the loads of the rest of the entry, and those of the data it
        // announces.
        self.platform.after_ownership();
        let index = entries.load32::<{ cqe::INDEX_AT }>(at);
        let index = Index::from_word(u32::from_be(index)).user_index();
        let dword = if AT == cqe::INDEX_AT {
            index
        } else {
            u32::from_be(entries.load32::<AT>(at))
        };
        // The index is only a licence to overwrite, and the ring has an entry for every request that can be outstanding:
        // no order against the loads above is needed.
        record.store32::<FIRST>(0, next);
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

    /// The work of the current entry failed.
    fn failed(&mut self, owner: Owner, direction: Direction) -> Completion {
        let (index, cause) = self.take::<{ cqe::CAUSE_AT }>();
        let cause = Cause::from_word(cause);
        Completion {
            index,
            len: 0,
            token: owner.wqe_counter(),
            direction,
            status: cqe::status(cause.syndrome()),
            syndrome: cause.syndrome(),
            vendor: cause.vendor_err_synd(),
            extra: Extra::default(),
        }
    }
}

impl<P: Platform> CompletionQueue for Cq<'_, P> {
    #[inline(always)]
    fn poll_plain(&mut self) -> Polled {
        let owner = self.look();
        // Opcode, format and owner in one compare each; the solicited bit says nothing here.
        let kind = owner.kind() ^ u8::from(self.lap());
        if kind == cqe::REQUESTER << 4 {
            self.requested(owner)
        } else if kind & 1 != 0 {
            Polled::Empty
        } else if kind == cqe::RESPONDER_SEND << 4 {
            self.received(owner)
        } else {
            Polled::Other
        }
    }

    #[inline(always)]
    fn poll_sent(&mut self, mut take: impl FnMut(u32, u16) -> bool) {
        // All in registers, which the fences in between would not leave it in otherwise.
        let (platform, entries, slots, begin) =
            (self.platform, self.entries, self.slots, self.tail);
        let mut tail = begin;
        loop {
            let owner = Owner::from_word(u32::from_be(entries.load32::<{ cqe::OWNER_AT }>(tail)));
            if owner.kind() ^ u8::from(tail & slots != 0) != cqe::REQUESTER << 4 {
                break;
            }
            // ORDER: as in `take`.
            platform.after_ownership();
            let index = entries.load32::<{ cqe::INDEX_AT }>(tail);
            let index = Index::from_word(u32::from_be(index)).user_index();
            if !take(index, owner.wqe_counter()) {
                break;
            }
            tail = tail.wrapping_add(1);
        }
        if tail != begin {
            self.tail = tail;
            // No order needed, as in `take`.
            self.record.store32::<FIRST>(0, (tail & INDEX_MASK).to_be());
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        // A device that writes nonsense faster than it can be read must not keep the caller here.
        for _ in 0..self.slots {
            let owner = self.look();
            if owner.owner() != self.lap() || owner.opcode() == cqe::INVALID {
                return None;
            }
            match owner.opcode() {
                cqe::REQUESTER_ERROR => return Some(self.failed(owner, Direction::Send)),
                cqe::RESPONDER_ERROR => return Some(self.failed(owner, Direction::Recv)),
                _ if owner.format() != 0 => {}
                cqe::REQUESTER => return success(self.requested(owner)),
                cqe::RESPONDER_WRITE_IMM..=cqe::RESPONDER_SEND_INVALIDATE => {
                    let polled = self.received(owner);
                    let extra = self.extra();
                    return success(polled).map(|whole| Completion { extra, ..whole });
                }
                _ => {}
            }
            // Of a kind that no queue pair of this driver causes.
            self.take::<{ cqe::INDEX_AT }>();
            self.skipped = self.skipped.saturating_add(1);
        }
        None
    }

    fn extra(&self) -> Extra {
        // The entry is the device's again, but there is one for every receive that can be outstanding, and to the caller this one
        // still is. What a device that overran it wrote is nonsense, not harm.
        let at = self.tail.wrapping_sub(1);
        let entries = self.entries;
        let owner = u32::from_be(entries.load32::<{ cqe::OWNER_AT }>(at));
        let sender = u32::from_be(entries.load32::<{ cqe::SENDER_AT }>(at));
        let immediate = u32::from_be(entries.load32::<{ cqe::IMMEDIATE_AT }>(at));
        let arrived = match Owner::from_word(owner).opcode() {
            cqe::RESPONDER_WRITE_IMM => Arrived::WriteImmediate,
            cqe::RESPONDER_SEND_IMM => Arrived::Immediate,
            _ => Arrived::Message,
        };
        Extra {
            arrived,
            immediate: if arrived == Arrived::Message {
                0
            } else {
                immediate
            },
            source_qpn: cqe::Sender::from_word(sender).rqpn(),
        }
    }

    fn arm(&mut self, solicited_only: bool) {
        let asked = Some((self.tail, solicited_only));
        let owner = self.look();
        let waits = owner.owner() == self.lap() && owner.opcode() != cqe::INVALID;
        if self.armed == asked && !waits {
            // Nothing has come since the same was asked for: it still stands.
            return;
        }
        self.armed = asked;
        self.arms = self.arms.wrapping_add(1);
        let command = if solicited_only { SOLICITED_ONLY } else { 0 };
        let word = (self.arms & 3) << 28 | command | (self.tail & INDEX_MASK);
        self.record.store32::<SECOND>(0, word.to_be());
        // ORDER: the arm word in the record precedes the register: the device compares the two.
        self.platform.before_doorbell();
        let register = u64::from(word) << 32 | u64::from(self.cqn);
        self.platform.write64(self.arm, register.to_be());
        if P::WRITE_COMBINING {
            // ORDER: the register's store leaves the CPU before the caller goes to sleep on its effect.
            self.platform.after_mmio();
        }
    }
}

/// A success in full.
fn success(polled: Polled) -> Option<Completion> {
    let (index, token, direction, len) = match polled {
        Polled::Sent(index, token) => (index, token, Direction::Send, 0),
        Polled::Received(index, token, len) => (index, token, Direction::Recv, len),
        Polled::Empty | Polled::Other => return None,
    };
    Some(Completion {
        index,
        len,
        token,
        direction,
        status: Status::Success,
        syndrome: 0,
        vendor: 0,
        extra: Extra::default(),
    })
}
