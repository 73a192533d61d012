//! User-mode memory registration: a work request that edits a memory key.
//!
//! The control segment says what must hold of the key (free, not free, bound to this QP), the mask
//! says which fields of the mkey segment to take over, and the translation comes inline or through
//! one data pointer. Everything is checked before anything changes: a refused edit leaves the key
//! as it was, ends with a memory window bind error and takes the queue to error, as on silicon.
//!
//! Only the index of the target key counts; its low byte may be stale. PRM: UMR WQE.

use super::mkey::{ATOMIC, LR, LW, Mkey, Mode, RR, RW, Tpt};
use crate::ifc::Field;
use crate::ifc::mkey::{mkc, mkey_mask as mask, umr_ctrl};

const FLAG_INLINE: u32 = 0x80;
const FLAG_CHECK_NOT_FREE: u32 = 0x40;
const FLAG_CHECK_FREE: u32 = 0x20;
const FLAG_OFFSET: u32 = 0x10;
const FLAG_CHECK_QPN: u32 = 0x08;

/// 16-byte units of a granule of translation memory: 64 bytes.
const GRANULE: u64 = 4;

/// The queue a UMR was posted on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poster {
    /// Its number.
    pub(crate) qpn: u32,
    /// Its protection domain.
    pub(crate) pd: u32,
    /// Whether it is a kernel's own UMR queue, which alone may edit keys of other domains.
    pub(crate) privileged: bool,
    /// What the card forbids and asks for.
    pub(crate) rules: Rules,
}

/// What a card forbids and asks for in every UMR.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    /// The page size of a key cannot be changed.
    pub(crate) entity_size_fixed: bool,
    /// The atomic right of a key cannot be changed.
    pub(crate) atomic_fixed: bool,
    /// A key of keys cannot be edited.
    pub(crate) no_indirect: bool,
    /// Relaxed ordering of writes cannot be changed.
    pub(crate) relaxed_write_fixed: bool,
    /// Relaxed ordering of reads cannot be changed.
    pub(crate) relaxed_read_fixed: bool,
    /// An entry of a page list says in bits 0 and 1 whether it may be read and written.
    pub(crate) entry_bits: bool,
}

/// Where the translation of a UMR lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// There is none.
    None,
    /// In the work request.
    Inline(Vec<u8>),
    /// Behind a data pointer: count, key, address.
    Pointer(u32, u32, u64),
}

/// A UMR taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Umr {
    flags: u32,
    octwords: u32,
    offset: u64,
    /// Which fields of the context count: a `mkey_mask`.
    mask: [u8; 8],
    context: Vec<u8>,
    /// Where the translation lies.
    pub(crate) source: Source,
}

/// Why a UMR is refused, for the complaint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The segments are too short for what the control segment says.
    #[error("the work request is shorter than its control segment says")]
    Short,
    /// The target index names no key.
    #[error("the target index names no key")]
    NoKey,
    /// The key was created without `umr_en`.
    #[error("the key was created without umr_en")]
    NotEnabled,
    /// The key belongs to another protection domain.
    #[error("the key belongs to another protection domain")]
    Pd,
    /// Must be free, is not.
    #[error("the key must be free and is not")]
    NotFree,
    /// Must not be free, is.
    #[error("the key must not be free and is")]
    Free,
    /// Must be bound to this queue pair, is not.
    #[error("the key is not bound to this queue pair")]
    Qpn,
    /// The mask names a field that no UMR may change here.
    #[error("the mask names a field that cannot be changed")]
    Mask,
    /// Keys of keys are not edited here.
    #[error("the card edits no key of keys")]
    Indirect,
    /// The QPN given is neither this queue pair nor "any".
    #[error("the key would be bound to a foreign queue pair")]
    ForeignQpn,
    /// The translation does not fit the key.
    #[error("the translation does not fit the key")]
    TooSmall,
    /// A window binds to a key that does not exist or belongs to another domain.
    #[error("an entry of the translation names no key of this protection domain")]
    Underlying,
    /// The range has no end.
    #[error("the range exceeds the address space")]
    Range,
}

impl Umr {
    /// Takes the segments behind the control segment apart.
    pub(crate) fn parse(segments: &[u8]) -> Result<Self, Refused> {
        let control = segments.get(..umr_ctrl::BYTES).ok_or(Refused::Short)?;
        let context = segments
            .get(umr_ctrl::BYTES..umr_ctrl::BYTES + mkc::BYTES)
            .ok_or(Refused::Short)?
            .to_vec();
        let behind = &segments[umr_ctrl::BYTES + mkc::BYTES..];
        let flags = umr_ctrl::flags.get(control);
        let octwords = umr_ctrl::translation_octwords.get(control);
        let offset = if flags & FLAG_OFFSET != 0 {
            (umr_ctrl::translation_offset_47_16.get64(control) << 16)
                | umr_ctrl::translation_offset_15_0.get64(control)
        } else {
            0
        };
        let bytes = octwords as usize * 16;
        let source = if octwords == 0 {
            Source::None
        } else if flags & FLAG_INLINE != 0 {
            Source::Inline(behind.get(..bytes).ok_or(Refused::Short)?.to_vec())
        } else {
            let pointer: &[u8; 16] = behind.first_chunk().ok_or(Refused::Short)?;
            let word = |at: usize| {
                u32::from_be_bytes([pointer[at], pointer[at + 1], pointer[at + 2], pointer[at + 3]])
            };
            let va = (u64::from(word(8)) << 32) | u64::from(word(12));
            if (word(0) as usize) < bytes {
                return Err(Refused::Short);
            }
            Source::Pointer(octwords * 16, word(4), va)
        };
        let mut mask = [0; mask::BYTES];
        mask.copy_from_slice(umr_ctrl::mkey_mask.bytes(control));
        Ok(Self { flags, octwords, offset, mask, context, source })
    }

    /// Carries the edit out on the key of `index`; `translation` is what `source` led to.
    pub(crate) fn apply(
        &self,
        tpt: &mut Tpt,
        index: u32,
        poster: Poster,
        translation: &[u8],
    ) -> Result<(), Refused> {
        let key = tpt.get(index).ok_or(Refused::NoKey)?;
        self.check(key, poster)?;
        let mut edited = key.clone();
        self.merge(&mut edited);
        if self.octwords != 0 {
            self.translate(&mut edited, translation)?;
            edited.entry_bits |= poster.rules.entry_bits && edited.mode == Mode::Mtt;
            if !edited.free && matches!(edited.mode, Mode::Klm | Mode::Ksm) {
                check_underlying(tpt, &edited)?;
            }
        }
        if !edited.free && !edited.length64 && edited.start.checked_add(edited.len).is_none() {
            return Err(Refused::Range);
        }
        tpt.insert(index, edited);
        Ok(())
    }

    fn check(&self, key: &Mkey, poster: Poster) -> Result<(), Refused> {
        if !key.umr_en {
            return Err(Refused::NotEnabled);
        }
        if key.pd != poster.pd && !poster.privileged {
            return Err(Refused::Pd);
        }
        if self.flags & FLAG_CHECK_FREE != 0 && !key.free {
            return Err(Refused::NotFree);
        }
        if self.flags & FLAG_CHECK_NOT_FREE != 0 && key.free {
            return Err(Refused::Free);
        }
        if self.flags & FLAG_CHECK_QPN != 0 && key.qpn != poster.qpn {
            return Err(Refused::Qpn);
        }
        // A key may be moved between domains only by the kernel's own queue; a driver's queue may
        // name its own domain again, as a fast registration does.
        let own = poster.privileged || mkc::pd.get(&self.context) == poster.pd;
        let rules = poster.rules;
        let fixed = (rules.entity_size_fixed && self.on(mask::page_size))
            || (rules.atomic_fixed && self.on(mask::a))
            || (rules.relaxed_write_fixed && self.on(mask::relaxed_ordering_write))
            || (rules.relaxed_read_fixed && self.on(mask::relaxed_ordering_read));
        if rules.no_indirect && matches!(key.mode, Mode::Klm | Mode::Ksm) {
            return Err(Refused::Indirect);
        }
        if fixed || self.unknown() || (self.on(mask::pd) && !own) {
            return Err(Refused::Mask);
        }
        if self.on(mask::qpn) {
            let qpn = mkc::qpn.get(&self.context);
            if qpn != super::mkey::ANY_QPN && qpn != poster.qpn && !poster.privileged {
                return Err(Refused::ForeignQpn);
            }
        }
        Ok(())
    }

    /// Whether the mask names a field.
    fn on(&self, field: Field) -> bool {
        field.is_set(&self.mask)
    }

    /// Whether the mask names more than this model lets a UMR change.
    fn unknown(&self) -> bool {
        let mut rest = self.mask;
        for (_, field) in mask::LAYOUT.leaves() {
            field.set(&mut rest, 0);
        }
        rest != [0; mask::BYTES]
    }

    /// Takes over the fields the mask names.
    fn merge(&self, key: &mut Mkey) {
        let context = &self.context;
        let on = |field| self.on(field);
        if on(mask::len) {
            key.len = mkc::len.get64(context);
            key.length64 = mkc::length64.is_set(context);
        }
        if on(mask::page_size) {
            let six = if on(mask::page_size_5) { 0x3f } else { 0x1f };
            key.log_page_size = mkc::log_page_size.get(context) & six;
        }
        if on(mask::start_addr) {
            key.start = mkc::start_addr.get64(context);
        }
        if on(mask::pd) {
            key.pd = mkc::pd.get(context);
        }
        if on(mask::en_rinval) {
            key.en_rinval = mkc::en_rinval.is_set(context);
        }
        if on(mask::relaxed_ordering_write) {
            key.relaxed_write = mkc::relaxed_ordering_write.is_set(context);
        }
        if on(mask::relaxed_ordering_read) {
            key.relaxed_read = mkc::relaxed_ordering_read.is_set(context);
        }
        if on(mask::key) {
            key.variant = mkc::mkey_7_0.get(context) as u8;
        }
        if on(mask::qpn) {
            key.qpn = mkc::qpn.get(context);
        }
        for (bit, field, right) in [
            (mask::lr, mkc::lr, LR),
            (mask::lw, mkc::lw, LW),
            (mask::rr, mkc::rr, RR),
            (mask::rw, mkc::rw, RW),
            (mask::a, mkc::a, ATOMIC),
        ] {
            if on(bit) {
                key.rights &= !right;
                if field.is_set(context) {
                    key.rights |= right;
                }
            }
        }
        if on(mask::free) {
            key.free = mkc::free.is_set(context);
        }
    }

    /// Stores the translation at its offset.
    fn translate(&self, key: &mut Mkey, bytes: &[u8]) -> Result<(), Refused> {
        let end = self.offset.checked_add(u64::from(self.octwords)).ok_or(Refused::TooSmall)?;
        // Room is kept in whole granules, and drivers fill the last one up with zeros.
        let room = u64::from(key.octwords).next_multiple_of(GRANULE);
        if key.mode == Mode::Physical || end > room {
            return Err(Refused::TooSmall);
        }
        let first = usize::try_from(self.offset * 2).map_err(|_| Refused::TooSmall)?;
        let words =
            bytes.chunks_exact(8).map(|c| c.iter().fold(0u64, |acc, &b| (acc << 8) | u64::from(b)));
        let need = first + bytes.len() / 8;
        if key.translation.len() < need {
            key.translation.resize(need, 0);
        }
        for (to, word) in key.translation.iter_mut().skip(first).zip(words) {
            *to = word;
        }
        Ok(())
    }
}

/// Every entry of an indirect key in use must name a live key of the same domain.
fn check_underlying(tpt: &Tpt, key: &Mkey) -> Result<(), Refused> {
    for pair in key.translation.chunks_exact(2) {
        let head = pair.first().copied().unwrap_or(0);
        let padding = pair.iter().all(|&word| word == 0);
        if padding || (key.mode == Mode::Klm && head >> 32 == 0) {
            continue;
        }
        let below = (head & 0xffff_ffff) as u32;
        let known = tpt
            .get(below >> 8)
            .is_some_and(|k| !k.free && u32::from(k.variant) == below & 0xff && k.pd == key.pd);
        if !known {
            return Err(Refused::Underlying);
        }
    }
    Ok(())
}
