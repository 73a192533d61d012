//! One posted request, as its slot says it.

use core::sync::atomic::Ordering;

use crate::types::atomic::{AtomicU32, AtomicU64};
use crate::types::event::{DtoOperation, IbOperation};

/// Its cookie, its length, and all else in one tag.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RequestSlot {
    cookie: AtomicU64,
    len: AtomicU32,
    tag: AtomicU32,
}

/// What a slot says.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) cookie: u64,
    /// Bytes, or the slot of the RMR or LMR that it is about.
    pub(crate) len: u32,
    pub(crate) tag: Tag,
}

impl RequestSlot {
    pub(crate) const fn new() -> Self {
        Self {
            cookie: AtomicU64::new(0),
            len: AtomicU32::new(0),
            tag: AtomicU32::new(Tag::EMPTY.0),
        }
    }

    /// Fills it. `order` is that of the tag, whose token a reaper on another thread compares,
    /// behind the rest.
    #[inline(always)]
    pub(crate) fn fill(&self, request: Request, order: Ordering) {
        self.cookie.store(request.cookie, Ordering::Relaxed);
        self.len.store(request.len, Ordering::Relaxed);
        self.tag.store(request.tag.0, order);
    }

    /// Its tag.
    #[inline(always)]
    pub(crate) fn tag(&self) -> Tag {
        // ORDER: pairs with the poster's store: a matching token makes cookie and length visible.
        Tag(self.tag.load(Ordering::Acquire))
    }

    /// Its cookie, once its tag has been seen.
    #[inline(always)]
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Relaxed)
    }

    /// Its length, once its tag has been seen.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    /// All that it says.
    pub(crate) fn read(&self) -> Request {
        let tag = self.tag();
        Request { cookie: self.cookie(), len: self.len(), tag }
    }

    /// Wipes it: a token completes once.
    #[inline(always)]
    pub(crate) fn wipe(&self) {
        self.tag.store(Tag::EMPTY.0, Ordering::Relaxed);
    }

    /// It stands behind suppressed DTOs. By the poster, before it is published.
    pub(crate) fn set_behind(&self, run: Run) {
        let tag = Tag(self.tag.load(Ordering::Relaxed)).behind(run);
        self.tag.store(tag.0, Ordering::Relaxed);
    }
}

/// What a request does. There is nothing more to the success of the first three than to tell of it;
/// they have the numbers that they have in [`DtoOperation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    Send,
    RdmaWrite,
    RdmaRead,
    /// Of the RMR whose slot stands for its length.
    Bind,
    FetchAdd,
    CmpSwap,
    WriteImmed,
    SendUd,
    /// Opens the key of the LMR whose slot stands for its length.
    Register,
    /// Closes it.
    Invalidate,
}

/// The event of a completion.
pub(crate) enum Completes {
    Dto(DtoOperation),
    Extended(IbOperation),
    Bind,
    Register,
    Invalidate,
}

impl Op {
    /// Returns which event its completion makes.
    pub(crate) const fn completes(self) -> Completes {
        match self {
            Self::Send => Completes::Dto(DtoOperation::Send),
            Self::RdmaWrite => Completes::Dto(DtoOperation::RdmaWrite),
            Self::RdmaRead => Completes::Dto(DtoOperation::RdmaRead),
            Self::FetchAdd => Completes::Extended(IbOperation::FetchAdd),
            Self::CmpSwap => Completes::Extended(IbOperation::CmpSwap),
            Self::WriteImmed => Completes::Extended(IbOperation::RdmaWriteImmed),
            Self::SendUd => Completes::Extended(IbOperation::SendUd),
            Self::Bind => Completes::Bind,
            Self::Register => Completes::Register,
            Self::Invalidate => Completes::Invalidate,
        }
    }
}

/// What becomes of the success of a request, in its place in [`Tag`].
mod success {
    const SHIFT: u32 = 4;
    pub(crate) const ALL: u32 = 3 << SHIFT;
    /// It is reported, and that is all.
    pub(crate) const PLAIN: u32 = 0;
    /// It is reported, and there is more to it.
    pub(crate) const SPECIAL: u32 = 1 << SHIFT;
    /// It is reported, and wakes nobody.
    pub(crate) const UNSIGNALLED: u32 = 2 << SHIFT;
    /// It is not reported.
    pub(crate) const SUPPRESSED: u32 = 3 << SHIFT;
}

/// A count of suppressed DTOs in a row, in its place in [`Tag`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run(u32);

impl Run {
    const SHIFT: u32 = 6;
    /// As many as there is room for.
    pub(crate) const MOST: u16 = 0x1ff;
    pub(crate) const NONE: Self = Self(0);

    /// So many; no more than [`Run::MOST`].
    #[inline]
    pub(crate) const fn of(count: u16) -> Self {
        Self(((count & Self::MOST) as u32) << Self::SHIFT)
    }

    /// So many more; no more than [`Run::MOST`] in all.
    #[inline]
    pub(crate) const fn and(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count << Self::SHIFT))
    }

    /// How many more this is than `other`, which is no longer.
    #[inline]
    pub(crate) const fn beyond(self, other: Self) -> usize {
        (self.0.wrapping_sub(other.0) >> Self::SHIFT) as usize
    }

    /// How many they are.
    pub(crate) const fn count(self) -> u32 {
        self.0 >> Self::SHIFT
    }

    /// One more; fewer than [`Run::MOST`] before.
    #[inline]
    pub(crate) const fn more(self) -> Self {
        Self(self.0.wrapping_add(1 << Self::SHIFT))
    }
}

/// Op (4), what becomes of its success (2), suppressed DTOs right before it (9), empty (1), token
/// (16, at the top).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u32);

impl Tag {
    const OP: u32 = 0xf;
    /// Nothing outstanding is in the slot: it matches no token.
    const EMPTY: Self = Self(1 << 15);
    const TOKEN: u32 = 16;

    #[inline(always)]
    pub(crate) const fn new(op: Op, suppressed: bool, token: u16) -> Self {
        let success = if suppressed {
            success::SUPPRESSED
        } else if op as u8 > Op::RdmaRead as u8 {
            success::SPECIAL
        } else {
            success::PLAIN
        };
        Self((token as u32) << Self::TOKEN | success | op as u32)
    }

    /// The same with the next token, that of the request after one of one block.
    #[inline(always)]
    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1 << Self::TOKEN))
    }

    /// The same, behind the suppressed DTOs counted so far.
    #[inline(always)]
    pub(crate) const fn behind(self, run: Run) -> Self {
        Self(self.0 | run.0)
    }

    /// The same, and its success wakes nobody, if it is reported at all.
    pub(crate) const fn unsignalled(self) -> Self {
        if self.is_suppressed() {
            self
        } else {
            Self(self.0 & !success::ALL | success::UNSIGNALLED)
        }
    }

    /// What is left without the token; more than 16 bits if it is another's.
    #[inline(always)]
    const fn without(self, token: u16) -> u32 {
        self.0.wrapping_sub((token as u32) << Self::TOKEN)
    }

    /// Whether it is the request of that token.
    #[inline]
    pub(crate) const fn is(self, token: u16) -> bool {
        self.without(token) < Self::EMPTY.0
    }

    /// Whether it is the request of that token, there is nothing more to its success than to tell
    /// of it, and it stands behind no suppressed ones.
    #[inline(always)]
    pub(crate) const fn is_plainly(self, token: u16) -> bool {
        self.without(token) <= Op::RdmaRead as u32
    }

    /// Whether it is the request of that token, and a bind whose success is reported as usual, behind
    /// no suppressed ones.
    #[inline(always)]
    pub(crate) const fn is_plain_bind(self, token: u16) -> bool {
        self.without(token) == success::SPECIAL | Op::Bind as u32
    }

    /// The token of what is in the slot.
    pub(crate) const fn token(self) -> u16 {
        (self.0 >> Self::TOKEN) as u16
    }

    /// How many requests of one block lie between it and the later one of that token, if that one
    /// is such a request too.
    #[inline]
    pub(crate) const fn distance(self, token: u16) -> u16 {
        token.wrapping_sub(self.token())
    }

    /// As [`Tag::is_plainly`], behind just so many suppressed ones.
    #[inline]
    pub(crate) const fn ends_run(self, token: u16, ahead: u16) -> bool {
        // More of them than there is room for are no run of any tag.
        let run = (ahead as u32) << Run::SHIFT;
        self.without(token).wrapping_sub(run) <= Op::RdmaRead as u32
    }

    /// What a plain one is to the consumer.
    #[inline(always)]
    pub(crate) const fn operation(self) -> DtoOperation {
        match self.0 & 3 {
            0 => DtoOperation::Send,
            1 => DtoOperation::RdmaWrite,
            2 => DtoOperation::RdmaRead,
            // No plain one has it; with it the bits are the operation.
            _ => DtoOperation::Receive,
        }
    }

    #[inline]
    pub(crate) const fn is_suppressed(self) -> bool {
        self.0 & success::ALL == success::SUPPRESSED
    }

    /// Whether its success wakes nobody.
    pub(crate) const fn is_unsignalled(self) -> bool {
        self.0 & success::ALL == success::UNSIGNALLED
    }

    #[inline]
    pub(crate) const fn op(self) -> Op {
        match self.0 & Self::OP {
            0 => Op::Send,
            1 => Op::RdmaWrite,
            2 => Op::RdmaRead,
            3 => Op::Bind,
            4 => Op::FetchAdd,
            5 => Op::CmpSwap,
            6 => Op::WriteImmed,
            7 => Op::SendUd,
            8 => Op::Register,
            9 => Op::Invalidate,
            _ => Op::Invalidate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [Op; 10] = [
        Op::RdmaWrite,
        Op::Send,
        Op::RdmaRead,
        Op::Bind,
        Op::FetchAdd,
        Op::CmpSwap,
        Op::WriteImmed,
        Op::SendUd,
        Op::Register,
        Op::Invalidate,
    ];

    #[test]
    fn every_field_of_a_tag_keeps_to_its_bits() {
        for op in OPS {
            for token in [0, 1, 0x7fff, 0x8000, u16::MAX] {
                for suppressed in [false, true] {
                    let tag = Tag::new(op, suppressed, token);
                    assert_eq!((tag.op(), tag.is_suppressed()), (op, suppressed));
                    assert_eq!(tag.next(), Tag::new(op, suppressed, token.wrapping_add(1)));
                    let plain =
                        !suppressed && matches!(op, Op::Send | Op::RdmaWrite | Op::RdmaRead);
                    assert_eq!(tag.is_plainly(token), plain);
                    assert_eq!(tag.distance(token.wrapping_add(3)), 3);
                    assert_eq!(tag.is_plain_bind(token), !suppressed && op == Op::Bind);
                    let last = tag.behind(Run::of(Run::MOST));
                    assert_eq!((last.op(), last.is_suppressed()), (op, suppressed));
                    assert_eq!(last.ends_run(token, Run::MOST), plain);
                    assert_eq!(tag.ends_run(token, 0), plain);
                    let any = (1..=u16::MAX).any(|ahead| tag.ends_run(token, ahead));
                    assert!(!any);
                    assert!(!last.ends_run(token, 0) && !last.ends_run(token, 2 * Run::MOST + 1));
                    let unsignalled = last.unsignalled();
                    assert_eq!(unsignalled.is_unsignalled(), !suppressed);
                    assert_eq!(unsignalled.is_suppressed(), suppressed);
                    for tag in [tag, last, unsignalled] {
                        assert!(tag.is(token));
                        let others = (0..=u16::MAX).filter(|other| *other != token);
                        for other in others.step_by(97) {
                            assert!(!tag.is(other) && !tag.is_plainly(other));
                            assert!(!tag.is_plain_bind(other));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn an_empty_slot_is_of_no_token() {
        let empty = RequestSlot::new();
        for token in 0..=u16::MAX {
            assert!(!empty.tag().is(token) && !empty.tag().is_plainly(token));
        }
    }
}
