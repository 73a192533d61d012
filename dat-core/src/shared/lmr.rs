//! The shared part of memory: what a post looks up.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::flags::MemPriv;
use crate::triplet::LmrTriplet;

/// Bits of an `lmr_context` that count the owners of its slot; the rest is the slot.
pub(crate) const CONTEXT_BITS: u32 = 12;

/// Names no LMR: its slot is beyond the largest table.
pub(crate) const NO_CONTEXT: u32 = u32::MAX;

/// What a post needs of one LMR. Half a cache line.
#[derive(Debug)]
#[repr(C, align(32))]
pub(crate) struct LmrShared {
    /// `lmr_context` of the LMR that lives here, or [`NO_CONTEXT`].
    pub(crate) context: AtomicU32,
    pub(crate) lkey: AtomicU32,
    pub(crate) start: AtomicU64,
    pub(crate) len: AtomicU64,
    /// Slot of the Protection Zone in the upper 24 bits, [`MemPriv`] in the low byte.
    pub(crate) rights: AtomicU32,
    /// RMRs bound to it.
    pub(crate) bound: AtomicU32,
}

/// Why a segment was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Context,
    Zone,
    Privilege,
    Range,
}

impl LmrShared {
    pub(crate) const fn new() -> Self {
        Self {
            context: AtomicU32::new(NO_CONTEXT),
            lkey: AtomicU32::new(0),
            start: AtomicU64::new(0),
            len: AtomicU64::new(0),
            rights: AtomicU32::new(0),
            bound: AtomicU32::new(0),
        }
    }

    /// The lkey, if `triplet` lies in this LMR, which belongs to `zone` and grants `need`. No branch of it is ever taken
    /// by a post that is right, so branches cost less than gathering the answers would.
    #[inline]
    pub(crate) fn lkey_for(&self, triplet: &LmrTriplet, zone: u32, need: MemPriv) -> Option<u32> {
        if !self.is(triplet.context) || !self.grants(zone, need) {
            return None;
        }
        self.lkey_within(triplet)
    }

    /// Whether the LMR of that context lives here. To be asked first.
    #[inline]
    pub(crate) fn is(&self, context: u32) -> bool {
        self.context.load(Ordering::Acquire) == context
    }

    /// Whether it belongs to `zone` and grants `need`; which stays so as long as it has the same context.
    #[inline]
    pub(crate) fn grants(&self, zone: u32, need: MemPriv) -> bool {
        // Zone and rights in one: all bits of the one, the needed bits of the other.
        let rights = self.rights.load(Ordering::Relaxed);
        rights & (!0xff | need.bits()) == zone | need.bits()
    }

    /// The lkey, if `triplet` lies in this LMR.
    #[inline]
    pub(crate) fn lkey_within(&self, triplet: &LmrTriplet) -> Option<u32> {
        let start = self.start.load(Ordering::Relaxed);
        let offset = triplet.addr.checked_sub(start)?;
        let room = self.len.load(Ordering::Relaxed).checked_sub(offset)?;
        (room >= u64::from(triplet.len)).then(|| self.lkey.load(Ordering::Relaxed))
    }

    /// Why [`Self::lkey_for`] said no.
    pub(crate) fn refusal(&self, triplet: &LmrTriplet, zone: u32, need: MemPriv) -> Refusal {
        let rights = self.rights.load(Ordering::Relaxed);
        if self.context.load(Ordering::Acquire) != triplet.context {
            Refusal::Context
        } else if rights & !0xff != zone {
            Refusal::Zone
        } else if need.bits() & !rights != 0 {
            Refusal::Privilege
        } else {
            Refusal::Range
        }
    }
}

/// A Protection Zone's slot as it stands in [`LmrShared::rights`].
pub(crate) const fn zone(slot: u32) -> u32 {
    slot << 8
}

/// The slot that an `lmr_context` names.
#[inline]
pub(crate) fn find(lmrs: &[LmrShared], context: u32) -> Option<&LmrShared> {
    lmrs.get((context >> CONTEXT_BITS) as usize)
}

/// No RMR lives in the slot.
pub(crate) const RMR_NONE: u32 = 0;
/// An RMR lives in the slot.
pub(crate) const RMR_LIVE: u32 = 1;
/// It was freed with a bind under way, and goes when that has completed.
pub(crate) const RMR_RETIRING: u32 = 2;

/// What bind and completion share of one RMR.
#[derive(Debug)]
pub(crate) struct RmrShared {
    /// Generation of the handle.
    pub(crate) generation: AtomicU32,
    /// [`RMR_NONE`], [`RMR_LIVE`] or [`RMR_RETIRING`].
    pub(crate) live: AtomicU32,
    /// Slot of the Protection Zone.
    pub(crate) pz: AtomicU32,
    /// The newest key.
    pub(crate) rkey: AtomicU32,
    /// Context of the LMR beneath, or [`NO_CONTEXT`].
    pub(crate) lmr_context: AtomicU32,
    pub(crate) addr: AtomicU64,
    pub(crate) len: AtomicU32,
    pub(crate) privileges: AtomicU32,
    /// Binds that have not completed.
    pub(crate) binds: AtomicU32,
}

impl RmrShared {
    pub(crate) const fn new() -> Self {
        Self {
            generation: AtomicU32::new(0),
            live: AtomicU32::new(0),
            pz: AtomicU32::new(0),
            rkey: AtomicU32::new(0),
            lmr_context: AtomicU32::new(NO_CONTEXT),
            addr: AtomicU64::new(0),
            len: AtomicU32::new(0),
            privileges: AtomicU32::new(0),
            binds: AtomicU32::new(0),
        }
    }
}
