//! The shared part of memory: what a post looks up.

use core::sync::atomic::Ordering;

use crate::provider::{Mw, Region};
use crate::types::atomic::{AtomicU32, AtomicU64};
use crate::types::flags::MemPriv;
use crate::types::handle::{Handle, Rmr};
use crate::types::key_order::KeyOrder;
use crate::types::triplet::{LmrTriplet, RmrTriplet};

/// Bits of an `lmr_context` that count the owners of its slot; the rest is the slot.
pub(crate) const CONTEXT_BITS: u32 = 12;

/// Names no LMR: its slot is beyond the largest table.
pub(crate) const NO_CONTEXT: u32 = u32::MAX;

/// Bit beside the zone of an LMR, or of an RMR, that no straight way of posting takes, as no
/// Endpoint has such a zone: an LMR whose addresses are not the host's, an RMR that belongs to an
/// Endpoint.
pub(crate) const GENERAL: u64 = zone(GENERAL_SLOT);
/// [`GENERAL`] in the slot of a zone.
pub(crate) const GENERAL_SLOT: u32 = 1 << 23;

/// What a post needs of one LMR. Half a cache line.
#[derive(Debug)]
#[repr(C, align(32))]
pub(crate) struct LmrShared {
    /// `lmr_context` of the LMR in this slot, or [`NO_CONTEXT`]; below it the slot of the
    /// Protection Zone (24 bits) and what it does not grant of [`MemPriv`] (8 bits). One word,
    /// so that a post asks for all three at once.
    identity: AtomicU64,
    start: AtomicU64,
    len: AtomicU64,
    lkey: AtomicU32,
    /// RMRs bound to it, below [`OPEN`] and the count of its edits ([`EDIT`]).
    pub(crate) bound: AtomicU32,
}

/// Bit of [`LmrShared::bound`]: the key was opened by a fast registration, and has not been closed
/// since as far as is known.
pub(crate) const OPEN: u32 = 1 << 23;
/// One queued edit of the key that has not completed, in [`LmrShared::bound`].
pub(crate) const EDIT: u32 = 1 << 24;

/// Why a segment was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Context,
    Zone,
    Privilege,
    Range,
}

/// What an LMR covers.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) context: u32,
    start: u64,
    len: u64,
    pub(crate) lkey: u32,
}

impl Range {
    /// The lkey, if `triplet`, which has a byte or more, lies in it.
    #[inline(always)]
    pub(crate) fn lkey_for(self, triplet: &LmrTriplet) -> Option<u32> {
        // As the range does not wrap, an address below its start becomes an offset of its length or
        // more.
        let offset = triplet.addr.wrapping_sub(self.start);
        let last = self.len.checked_sub(triplet.len.into())?;
        (offset <= last).then_some(self.lkey)
    }
}

/// The identity of an LMR: its context, its zone as [`zone`] makes it, its rights.
const fn identity(context: u32, zone: u64, rights: MemPriv) -> u64 {
    name(context, zone) | RIGHTS & !(rights.bits() as u64)
}

/// The same without the rights.
#[inline(always)]
const fn name(context: u32, zone: u64) -> u64 {
    (context as u64) << 32 | zone
}

/// The place of the rights in an identity.
const RIGHTS: u64 = 0xff;
/// The identity of none.
const NONE: u64 = identity(NO_CONTEXT, 0, MemPriv::empty());

impl LmrShared {
    pub(crate) const fn new() -> Self {
        Self {
            identity: AtomicU64::new(NONE),
            lkey: AtomicU32::new(0),
            start: AtomicU64::new(0),
            len: AtomicU64::new(0),
            bound: AtomicU32::new(0),
        }
    }

    /// Counts an RMR that is being bound. False, and not counted, if the LMR of that context is
    /// not here any more.
    pub(crate) fn hold(&self, context: u32) -> bool {
        // ORDER: `lmr_free` vacates and then reads the count; this counts and then reads the
        // identity. So the one or the other sees that both want the LMR. The count is taken back by
        // the same amount, whatever is here by then.
        self.bound.fetch_add(1, Ordering::SeqCst);
        let is_here = (self.identity.load(Ordering::SeqCst) >> 32) as u32 == context;
        if !is_here {
            self.bound.fetch_sub(1, Ordering::SeqCst);
        }
        is_here
    }

    /// An LMR comes into this slot, or the one in it changes. Its range does not wrap.
    pub(crate) fn occupy(
        &self,
        context: u32,
        zone: u64,
        rights: MemPriv,
        region: Region,
        lkey: u32,
    ) {
        self.lkey.store(lkey, Ordering::Relaxed);
        self.start.store(region.addr, Ordering::Relaxed);
        self.len.store(region.len, Ordering::Relaxed);
        // ORDER: everything a post looks at precedes the context by which it finds it.
        self.identity.store(identity(context, zone, rights), Ordering::Release);
    }

    /// The LMR in this slot is found no more. What its identity was, for [`LmrShared::restore`].
    pub(crate) fn vacate(&self) -> u64 {
        self.identity.swap(NONE, Ordering::SeqCst)
    }

    /// Takes [`LmrShared::vacate`] back.
    pub(crate) fn restore(&self, identity: u64) {
        self.identity.store(identity, Ordering::SeqCst);
    }

    /// The lkey, if `triplet`, which has a byte or more, lies in this LMR, which belongs to `zone`
    /// and grants `need`. No branch of it is ever taken by a post that is right, so branches
    /// cost less than gathering the answers would.
    #[inline(always)]
    pub(crate) fn lkey_for(&self, triplet: &LmrTriplet, zone: u64, need: MemPriv) -> Option<u32> {
        self.range(triplet.context, zone, need)?.lkey_for(triplet)
    }

    /// What it covers, if the LMR of that context is here, belongs to `zone` and grants `need`.
    #[inline(always)]
    pub(crate) fn range(&self, context: u32, zone: u64, need: MemPriv) -> Option<Range> {
        self.is(context, zone, need).then(|| Range {
            context,
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            lkey: self.lkey.load(Ordering::Relaxed),
        })
    }

    /// Whether the LMR of that context is here, belongs to `zone` and grants `need`.
    #[inline(always)]
    fn is(&self, context: u32, zone: u64, need: MemPriv) -> bool {
        // All bits of context and zone, the needed bits of the rights: whatever is left of them is
        // missing.
        let asked = !RIGHTS | u64::from(need.bits());
        (name(context, zone) ^ self.identity.load(Ordering::Acquire)) & asked == 0
    }

    /// The lkey as [`Self::lkey_for`] finds it, of an LMR of any kind, and whether its addresses
    /// are the host's.
    #[inline(never)]
    pub(crate) fn any(
        &self,
        triplet: &LmrTriplet,
        zone: u64,
        need: MemPriv,
    ) -> Result<(u32, bool), Refusal> {
        let own = self.lkey_for(triplet, zone, need).map(|lkey| (lkey, true));
        let foreign = || Some((self.lkey_for(triplet, zone | GENERAL, need)?, false));
        own.or_else(foreign).ok_or_else(|| self.refusal(triplet, zone, need))
    }

    /// It is of all memory.
    pub(crate) fn is_everything(&self) -> bool {
        self.len.load(Ordering::Relaxed) == u64::MAX
    }

    /// Whether the LMR of that context is here and `triplet` lies in it, whatever its zone and
    /// rights.
    pub(crate) fn covers(&self, triplet: &LmrTriplet) -> bool {
        let range = Range {
            context: triplet.context,
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            lkey: 0,
        };
        self.context() == triplet.context && range.lkey_for(triplet).is_some()
    }

    fn context(&self) -> u32 {
        (self.identity.load(Ordering::Acquire) >> 32) as u32
    }

    /// Why [`Self::any`] says no.
    fn refusal(&self, triplet: &LmrTriplet, zone: u64, need: MemPriv) -> Refusal {
        let zone = zone | self.identity.load(Ordering::Acquire) & GENERAL;
        if self.context() != triplet.context {
            Refusal::Context
        } else if !self.is(triplet.context, zone, MemPriv::empty()) {
            Refusal::Zone
        } else if !self.is(triplet.context, zone, need) {
            Refusal::Privilege
        } else {
            Refusal::Range
        }
    }
}

/// A Protection Zone's slot as it stands in the identity of an LMR.
pub(crate) const fn zone(slot: u32) -> u64 {
    (slot as u64) << RIGHTS.count_ones()
}

/// The slot that an `lmr_context` names.
#[inline]
pub(crate) fn find(lmrs: &[LmrShared], context: u32) -> Option<&LmrShared> {
    lmrs.get((context >> CONTEXT_BITS) as usize)
}

/// No RMR occupies the slot. No handle's word is this one.
const NOBODY: u64 = 0;
/// Bit of the handle of an RMR that has been freed, while completions of its binds have not been
/// dequeued. No index has it.
const FREED: u64 = 1 << 31;

/// What bind and completion share of one RMR.
#[derive(Debug)]
pub(crate) struct RmrShared {
    /// The handle of the RMR in this slot, perhaps with [`FREED`], or [`NOBODY`].
    owner: AtomicU64,
    /// Slot of the Protection Zone; with [`GENERAL_SLOT`] the RMR is for one Endpoint at a time.
    pub(crate) pz: AtomicU32,
    /// The newest key.
    pub(crate) rkey: AtomicU32,
    /// That of the keys of its index, see [`KeyOrder::shift`].
    shift: AtomicU32,
    /// Context of the LMR beneath, or [`NO_CONTEXT`].
    pub(crate) lmr_context: AtomicU32,
    pub(crate) addr: AtomicU64,
    pub(crate) len: AtomicU32,
    /// [`MemPriv`], and [`ZERO_BASED`].
    pub(crate) privileges: AtomicU32,
    /// Binds whose completions have not been dequeued.
    pub(crate) binds: AtomicU32,
    /// The Endpoint that the newest bind was posted on, as a word.
    pub(crate) binder: AtomicU64,
    /// The next of those in its chain, see [`Keys`](crate::data::shared::keys::Keys).
    pub(crate) next: AtomicU32,
    /// The Endpoint whose queue pair the window belongs to since its last bind, as a word; 0 if to
    /// none.
    ep: AtomicU64,
}

/// Bit of [`RmrShared::privileges`]: peers name its first byte by 0.
pub(crate) const ZERO_BASED: u32 = 1 << 31;

impl RmrShared {
    /// The Endpoint whose queue pair the window belongs to, as a word; 0 if to none.
    pub(crate) fn holder(&self) -> u64 {
        self.ep.load(Ordering::Relaxed)
    }

    /// Another Endpoint, or none (0), is the holder. Returns who was.
    pub(super) fn set_holder(&self, ep: u64) -> u64 {
        self.ep.swap(ep, Ordering::Relaxed)
    }

    pub(crate) const fn new() -> Self {
        Self {
            owner: AtomicU64::new(NOBODY),
            pz: AtomicU32::new(0),
            rkey: AtomicU32::new(0),
            shift: AtomicU32::new(0),
            lmr_context: AtomicU32::new(NO_CONTEXT),
            addr: AtomicU64::new(0),
            len: AtomicU32::new(0),
            privileges: AtomicU32::new(0),
            binds: AtomicU32::new(0),
            binder: AtomicU64::new(0),
            next: AtomicU32::new(0),
            ep: AtomicU64::new(0),
        }
    }

    /// Its window is another one, with that key.
    pub(crate) fn set_window(&self, mw: Mw, order: &KeyOrder) {
        self.rkey.store(mw.rkey, Ordering::Relaxed);
        self.shift.store(order.shift(mw.rkey), Ordering::Relaxed);
    }

    /// Its present key and its next.
    #[inline(always)]
    pub(crate) fn keys(&self, order: &KeyOrder) -> (u32, u32) {
        let old = self.rkey.load(Ordering::Relaxed);
        (old, order.step(old, self.shift.load(Ordering::Relaxed)))
    }

    /// Its window, by the newest key.
    pub(crate) fn newest(&self) -> Mw {
        Mw { rkey: self.rkey.load(Ordering::Relaxed) }
    }

    /// The range it is bound to, if it is.
    pub(crate) fn bound(&self) -> Option<LmrTriplet> {
        let context = self.lmr_context.load(Ordering::Acquire);
        (context != NO_CONTEXT).then(|| LmrTriplet {
            addr: self.addr.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            context,
        })
    }

    /// The part of the LMR beneath that a peer's triplet would name, if it may write there: for
    /// what this side itself puts into it.
    pub(crate) fn beneath(&self, triplet: &RmrTriplet) -> Result<LmrTriplet, Refusal> {
        let bound = self.bound().ok_or(Refusal::Context)?;
        let how = self.privileges.load(Ordering::Relaxed);
        if how & MemPriv::REMOTE_WRITE.bits() == 0 {
            return Err(Refusal::Privilege);
        }
        let start = if how & ZERO_BASED == 0 { bound.addr } else { 0 };
        let offset = triplet.addr.checked_sub(start).ok_or(Refusal::Range)?;
        let room = bound.len.checked_sub(triplet.len).ok_or(Refusal::Range)?;
        if offset > u64::from(room) {
            return Err(Refusal::Range);
        }
        Ok(LmrTriplet {
            addr: bound.addr.wrapping_add(offset),
            len: triplet.len,
            context: bound.context,
        })
    }

    /// It is for one Endpoint at a time.
    pub(crate) fn is_for_ep(&self) -> bool {
        self.pz.load(Ordering::Relaxed) & GENERAL_SLOT != 0
    }

    /// An RMR comes into this slot, or it could not be freed after all.
    pub(crate) fn occupy(&self, rmr: Rmr) {
        // ORDER: everything a bind looks at precedes the handle by which it knows that it may.
        self.owner.store(rmr.raw(), Ordering::SeqCst);
    }

    /// The RMR is being freed: nobody can bind it any more. Completions of its binds still name it.
    pub(crate) fn retire(&self, rmr: Rmr) {
        self.owner.store(rmr.raw() | FREED, Ordering::SeqCst);
    }

    /// The RMR is gone.
    pub(crate) fn vacate(&self) {
        self.owner.store(NOBODY, Ordering::SeqCst);
    }

    /// That RMR is here.
    #[inline(always)]
    pub(crate) fn is(&self, rmr: Rmr) -> bool {
        self.owner.load(Ordering::Acquire) == rmr.raw()
    }

    /// The RMR in this slot.
    #[inline(always)]
    pub(crate) fn owner(&self) -> Option<Rmr> {
        self.named().and_then(|(rmr, freed)| (!freed).then_some(rmr))
    }

    /// The RMR that completions of binds name, and whether it has been freed.
    #[inline(always)]
    pub(crate) fn named(&self) -> Option<(Rmr, bool)> {
        let word = self.owner.load(Ordering::Acquire);
        let rmr = Rmr(Handle::from_raw(word & !FREED));
        (word != NOBODY).then_some((rmr, word & FREED != 0))
    }

    /// A bind on the Endpoint of that handle, as a word, is posted.
    #[inline(always)]
    pub(crate) fn add_bind(&self, ep: u64) {
        self.binder.store(ep, Ordering::Relaxed);
        self.binds.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bind finds the LMR; before it counts its hold, the LMR is freed and another comes to the
    /// slot.
    #[test]
    fn a_hold_on_a_freed_lmr_is_no_hold_on_the_next() {
        let slot = LmrShared::new();
        let region = Region { addr: 0, len: 64 };
        let (old, new) = (5 << CONTEXT_BITS | 1, 5 << CONTEXT_BITS | 2);
        slot.occupy(old, 0, MemPriv::ALL, region, 7);
        assert!(slot.hold(old));
        slot.bound.fetch_sub(1, Ordering::SeqCst);
        slot.vacate();
        assert!(!slot.hold(old));
        slot.occupy(new, 0, MemPriv::ALL, region, 8);
        assert!(!slot.hold(old));
        assert_eq!(slot.bound.load(Ordering::SeqCst), 0);
        assert!(slot.hold(new));
        assert_eq!(slot.bound.load(Ordering::SeqCst), 1);
    }
}
