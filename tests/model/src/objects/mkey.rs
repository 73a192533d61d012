//! The translation and protection table: which key may access which bus address, for which queue
//! pair.
//!
//! A key is looked up by its index (upper 24 bits) and compared in all 32 bits, so a stale key
//! never reaches memory. Order of the checks: allocated, free bit, key byte, PD, QPN, rights,
//! range, page list; an indirect key (KLM, KSM) re-checks the key below it with *local* rights,
//! at most `MAX_INDIRECTION` deep. PRM: CREATE_MKEY, memory key context.
//!
//! Not here: what a UMR work request changes (`umr.rs`), and the command frames (`mkey_cmd.rs`).

use super::umem::Uses;
use crate::table::Table;

/// How deep indirect keys may nest, as the capability `max_indirection` says.
pub(crate) const MAX_INDIRECTION: u32 = 4;
/// How many entries of indirect keys one access may visit: keys that name each other would
/// otherwise keep the model busy for ever.
const ENTRY_BUDGET: u32 = 1 << 20;
/// Bytes of an entry of a KLM key: libmlx5 (`set_bind_wr`) refuses to bind more, because no such
/// entry holds it.
const LONGEST_ENTRY: u64 = 1 << 31;
/// "Any queue pair" in a key's QPN field.
pub(crate) const ANY_QPN: u32 = 0xff_ffff;

/// No number of a protection domain: the queue is the kernel's own for key edits, which has none.
pub(crate) const ANY_PD: u32 = u32::MAX;

/// Local read.
pub(crate) const LR: u8 = 1;
/// Local write.
pub(crate) const LW: u8 = 2;
/// Remote read.
pub(crate) const RR: u8 = 4;
/// Remote write.
pub(crate) const RW: u8 = 8;
/// Remote atomic.
pub(crate) const ATOMIC: u8 = 16;

/// How a key turns an address into bus addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The virtual address is the bus address.
    Physical,
    /// A list of pages.
    Mtt,
    /// A list of {byte count, key, address}.
    Klm,
    /// A list of {key, address} of one fixed size.
    Ksm,
}

impl Mode {
    /// From `{access_mode_4_2, access_mode_1_0}`; the other modes are not offered.
    pub(crate) const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            0 => Some(Self::Physical),
            1 => Some(Self::Mtt),
            2 => Some(Self::Klm),
            3 => Some(Self::Ksm),
            _ => None,
        }
    }

    /// The PRM's number.
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::Physical => 0,
            Self::Mtt => 1,
            Self::Klm => 2,
            Self::Ksm => 3,
        }
    }
}

/// One memory key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mkey {
    /// Free: no access, waits for a UMR to fill it.
    pub(crate) free: bool,
    /// Translation mode; fixed at creation.
    pub(crate) mode: Mode,
    /// Sum of `LR`, `LW`, `RR`, `RW`, `ATOMIC`.
    pub(crate) rights: u8,
    /// A UMR may change it.
    pub(crate) umr_en: bool,
    /// The only queue pair that may use it, or `ANY_QPN`.
    pub(crate) qpn: u32,
    /// Low byte of the key.
    pub(crate) variant: u8,
    /// No range: the whole address space.
    pub(crate) length64: bool,
    /// A peer may invalidate it with SEND with invalidate.
    pub(crate) en_rinval: bool,
    /// Writes of payload are relaxed: others may overtake them.
    pub(crate) relaxed_write: bool,
    /// Reads are relaxed, which memory does not show.
    pub(crate) relaxed_read: bool,
    /// Protection domain.
    pub(crate) pd: u32,
    /// Protection domain named at creation, which the key keeps alive whatever a UMR makes of it.
    pub(crate) created_in: u32,
    /// The umem that its pages are of.
    pub(crate) uses: Uses,
    /// First address.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// log2 of the page (MTT) or entry (KSM) size.
    pub(crate) log_page_size: u32,
    /// Entries of the page list say in bits 0 and 1 whether they may be read and written.
    pub(crate) entry_bits: bool,
    /// Room for translations, in 16-byte units.
    pub(crate) octwords: u32,
    /// The translations, two 64-bit words to the unit; shorter than the room when not yet written.
    pub(crate) translation: Vec<u64>,
}

/// An access to memory, and its origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// Key, all 32 bits.
    pub(crate) key: u32,
    /// First address.
    pub(crate) va: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Rights needed, all of them.
    pub(crate) rights: u8,
    /// Protection domain of the queue.
    pub(crate) pd: u32,
    /// Number of the queue pair.
    pub(crate) qpn: u32,
}

/// A run of bus addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// First bus address.
    pub(crate) iova: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Written with relaxed ordering: a key on the way to it says so.
    pub(crate) relaxed: bool,
}

/// Why the table refuses an access, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// No key of that index.
    #[error("no such key")]
    NoKey,
    /// The key is free.
    #[error("the key is free")]
    Free,
    /// Index known, low byte another.
    #[error("the key's low byte is another")]
    Variant,
    /// The key belongs to another protection domain.
    #[error("the key belongs to another protection domain")]
    Pd,
    /// The key is bound to another queue pair.
    #[error("the key is bound to another queue pair")]
    Qpn,
    /// A right is missing.
    #[error("the key lacks the right")]
    Rights,
    /// Outside the key's range.
    #[error("outside the key's range")]
    Range,
    /// The translation list ends before the range does.
    #[error("the translation list ends early")]
    Translation,
    /// Indirect keys nested too deep.
    #[error("indirect keys nest too deep")]
    Depth,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tpt {
    keys: Table<u32, Mkey>,
}

impl Tpt {
    /// Puts a key under `index`.
    pub(crate) fn insert(&mut self, index: u32, key: Mkey) {
        self.keys.insert(index, key);
    }

    /// Takes a key away.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Mkey> {
        self.keys.remove(&index)
    }

    /// The key of an index.
    pub(crate) fn get(&self, index: u32) -> Option<&Mkey> {
        self.keys.get(&index)
    }

    /// The key of an index, to change.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Mkey> {
        self.keys.get_mut(&index)
    }

    /// All checks for a range that is not touched yet: what a responder does at the first packet.
    pub(crate) fn check(&self, access: &Access) -> Result<(), Denied> {
        self.resolve(access).map(|_| ())
    }

    /// The bus addresses of an access, in order.
    pub(crate) fn resolve(&self, access: &Access) -> Result<Vec<Run>, Denied> {
        let mut runs = Vec::new();
        self.walk(access, (0, false), &mut { ENTRY_BUDGET }, &mut runs)?;
        Ok(runs)
    }

    /// `depth` and `relaxed`: how many keys lie above this one, and whether one is relaxed.
    fn walk(
        &self,
        access: &Access,
        (depth, relaxed): (u32, bool),
        budget: &mut u32,
        runs: &mut Vec<Run>,
    ) -> Result<(), Denied> {
        let key = self.keys.get(&(access.key >> 8)).ok_or(Denied::NoKey)?;
        if key.free {
            return Err(Denied::Free);
        }
        if u32::from(key.variant) != access.key & 0xff {
            return Err(Denied::Variant);
        }
        if access.pd != ANY_PD && key.pd != access.pd {
            return Err(Denied::Pd);
        }
        if key.qpn != ANY_QPN && key.qpn != access.qpn {
            return Err(Denied::Qpn);
        }
        if key.rights & access.rights != access.rights {
            return Err(Denied::Rights);
        }
        let end = access.va.checked_add(access.len).ok_or(Denied::Range)?;
        if !key.length64 {
            let limit = key.start.checked_add(key.len).ok_or(Denied::Range)?;
            if access.va < key.start || end > limit {
                return Err(Denied::Range);
            }
        }
        if access.len == 0 {
            return Ok(());
        }
        let relaxed = relaxed || key.relaxed_write;
        match key.mode {
            Mode::Physical => {
                push(runs, Run { iova: access.va, len: access.len, relaxed });
                Ok(())
            }
            Mode::Mtt => key.walk_pages(access, relaxed, runs),
            Mode::Klm | Mode::Ksm => self.walk_keys(key, access, (depth, relaxed), budget, runs),
        }
    }

    fn walk_keys(
        &self,
        key: &Mkey,
        access: &Access,
        (depth, relaxed): (u32, bool),
        budget: &mut u32,
        runs: &mut Vec<Run>,
    ) -> Result<(), Denied> {
        if depth >= MAX_INDIRECTION {
            return Err(Denied::Depth);
        }
        // Below a window the rights are local ones: reading needs LR, changing needs LW.
        let mut rights = 0;
        if access.rights & (LR | RR | ATOMIC) != 0 {
            rights |= LR;
        }
        if access.rights & (LW | RW | ATOMIC) != 0 {
            rights |= LW;
        }
        let mut skip = access.va.wrapping_sub(key.start);
        let mut left = access.len;
        let mut first = 0u64;
        if key.mode == Mode::Ksm {
            let log = key.log_page_size.min(63);
            first = skip >> log;
            skip &= (1u64 << log) - 1;
        }
        let mut entry = usize::try_from(first).map_err(|_| Denied::Translation)?;
        while left > 0 {
            *budget = budget.checked_sub(1).ok_or(Denied::Depth)?;
            let (size, below, va) = key.entry(entry).ok_or(Denied::Translation)?;
            entry += 1;
            if skip >= size {
                skip -= size;
                continue;
            }
            let n = (size - skip).min(left);
            let inner = Access {
                key: below,
                va: va.checked_add(skip).ok_or(Denied::Range)?,
                len: n,
                rights,
                pd: access.pd,
                qpn: access.qpn,
            };
            self.walk(&inner, (depth + 1, relaxed), budget, runs)?;
            skip = 0;
            left -= n;
        }
        Ok(())
    }
}

impl Mkey {
    /// Entry `i` of an indirect key: size, key, address.
    fn entry(&self, i: usize) -> Option<(u64, u32, u64)> {
        let head = *self.translation.get(i.checked_mul(2)?)?;
        let va = *self.translation.get(i.checked_mul(2)?.checked_add(1)?)?;
        let below = u32::try_from(head & 0xffff_ffff).ok()?;
        let size = match self.mode {
            Mode::Ksm => 1u64.checked_shl(self.log_page_size)?,
            Mode::Physical | Mode::Mtt | Mode::Klm => {
                Some(head >> 32).filter(|size| *size <= LONGEST_ENTRY)?
            }
        };
        Some((size, below, va))
    }

    fn walk_pages(
        &self,
        access: &Access,
        relaxed: bool,
        runs: &mut Vec<Run>,
    ) -> Result<(), Denied> {
        let log = self.log_page_size;
        if !(12..64).contains(&log) {
            return Err(Denied::Translation);
        }
        let size = 1u64 << log;
        let origin = self.start & !(size - 1);
        let (mut va, mut left) = (access.va, access.len);
        while left > 0 {
            let index = usize::try_from(va.wrapping_sub(origin) >> log);
            let page =
                index.ok().and_then(|i| self.translation.get(i)).ok_or(Denied::Translation)?;
            let (reads, writes) = (LR | RR | ATOMIC, LW | RW | ATOMIC);
            let lacks = |rights, bit| access.rights & rights != 0 && page & bit == 0;
            if self.entry_bits && (lacks(reads, 1) || lacks(writes, 2)) {
                return Err(Denied::Translation);
            }
            let inside = va & (size - 1);
            let n = (size - inside).min(left);
            let iova = (page & !0xfff).checked_add(inside).ok_or(Denied::Translation)?;
            // A large page may be put across the end of addresses.
            iova.checked_add(n - 1).ok_or(Denied::Translation)?;
            push(runs, Run { iova, len: n, relaxed });
            va = va.wrapping_add(n);
            left -= n;
        }
        Ok(())
    }
}

fn push(runs: &mut Vec<Run>, run: Run) {
    if let Some(last) = runs.last_mut() {
        if last.iova.checked_add(last.len) == Some(run.iova) && last.relaxed == run.relaxed {
            last.len += run.len;
            return;
        }
    }
    runs.push(run);
}
