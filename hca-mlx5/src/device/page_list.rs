//! Page lists: a span of the arena, or memory that the host lent, as the fewest equal pages of
//! device memory.
//!
//! PRM "Physical addresses list" (queues) and "MTT" (memory keys). Both describe a span by pages of
//! one size, a power of two from 4 KiB on, and the place in the first page where the span starts.
//! The larger the page the shorter the list, and the fewer entries the device must cache: a
//! contiguous span of any size is one page.
//!
//! A list is its geometry; the addresses are looked up while they are written into a command, so
//! that a region of any size needs no memory here. A span so scattered that its list does not fit
//! is refused with advice rather than described in part.

use dat_core::fault;
use dat_core::provider::Fault;

use crate::platform::{Platform, Span};

/// Most pages of a queue's list: 2 KiB of message.
pub const MAX_PAGES: usize = 256;

/// log2 of the smallest page.
const LOG_SMALLEST: u8 = 12;
/// log2 of the largest page: 2 GiB, as `log_page_size` of a memory key has five bits. Linux takes
/// the sixth for larger pages only where the device says so (`umr_log_entity_size_5`).
const LOG_LARGEST: u8 = 31;

/// The span is not the device's.
const OUTSIDE: Fault = fault!(
    BadParameter,
    "page list",
    "the memory is outside the arena",
    "register only memory that the platform handed out"
);

/// No page of 4 KiB or more fits.
const MISFIT: Fault = fault!(
    BadParameter,
    "page list",
    "host and device see the memory at different places in a page",
    "map the arena in whole, aligned pages"
);

/// The list does not fit.
const SCATTERED: Fault = fault!(
    Resources,
    "page list",
    "the memory is too scattered",
    "back the arena with larger contiguous pages, or register less at a time"
);

/// Device address of the page of the arena at `offset`, if it is one for the device too.
#[inline(never)]
pub(crate) fn page<P: Platform>(platform: &P, offset: usize) -> Option<u64> {
    let (iova, len) = platform.iova(offset)?;
    let page = 1 << LOG_SMALLEST;
    (len >= page && iova % (page as u64) == 0).then_some(iova)
}

/// Where memory is for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the arena, wherever the platform says each byte of that is.
    Arena(Span),
    /// Lent, in one piece.
    Lent {
        /// Device address of the first byte.
        iova: u64,
        /// Bytes.
        len: usize,
    },
}

impl From<Span> for Place {
    fn from(span: Span) -> Self {
        Self::Arena(span)
    }
}

impl Place {
    const fn len(&self) -> usize {
        match self {
            Self::Arena(span) => span.len,
            Self::Lent { len, .. } => *len,
        }
    }

    /// Device address of the byte `at` bytes from its start, and how many from there are contiguous
    /// for the device.
    fn run<P: Platform>(&self, platform: &P, at: usize) -> Option<(u64, usize)> {
        match self {
            Self::Arena(span) => platform.iova(span.offset.checked_add(at)?),
            Self::Lent { iova, len } => {
                let left = len.checked_sub(at)?;
                Some((iova.checked_add(u64::try_from(at).ok()?)?, left))
            }
        }
    }

    /// `len` bytes of it from `at` on, which are inside.
    #[must_use]
    pub(crate) fn piece(&self, at: u64, len: u64) -> Self {
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        match self {
            Self::Arena(span) => {
                Self::Arena(Span { offset: span.offset.wrapping_add(bytes(at)), len: bytes(len) })
            }
            Self::Lent { iova, .. } => Self::Lent { iova: iova.wrapping_add(at), len: bytes(len) },
        }
    }
}

/// Memory in pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageList {
    /// log2 of the page size.
    pub log_page: u8,
    /// Where the span starts in its first page.
    pub start: u64,
    /// How many pages.
    pub count: usize,
    place: Place,
}

impl PageList {
    /// The list for memory that begins at the address `base` in the space the device translates
    /// from. At most `most` pages long.
    pub fn new<P: Platform>(
        platform: &P,
        place: impl Into<Place>,
        base: u64,
        most: usize,
    ) -> Result<Self, Fault> {
        let place = place.into();
        let logs = survey(platform, place, base)?;
        if !logs.fits() {
            return Err(MISFIT);
        }
        Self::of(place, base, logs.at_base, most)
    }

    /// The list for a queue. It has no address but the device's own, and states its place in the
    /// first page in 64ths of a page, which bounds the page from above.
    pub fn queue<P: Platform>(platform: &P, span: Span) -> Result<Self, Fault> {
        let (base, _) = platform.iova(span.offset).ok_or(OUTSIDE)?;
        let place = Place::Arena(span);
        let logs = survey(platform, place, base)?;
        if !logs.fits() {
            return Err(MISFIT);
        }
        let mut log_page = logs.at_base;
        let coarse = |log_page: u8| base & ((1 << (log_page - 6)) - 1) != 0;
        while log_page > LOG_SMALLEST && (count(base, place, log_page - 1) == 1 || coarse(log_page))
        {
            log_page -= 1;
        }
        Self::of(place, base, log_page, MAX_PAGES)
    }

    /// The list with pages of a size that [`survey`] has found for the memory, or for memory that
    /// this is a piece of; of a smaller one if one page is enough.
    pub(crate) fn of(
        place: Place,
        base: u64,
        mut log_page: u8,
        most: usize,
    ) -> Result<Self, Fault> {
        while log_page > LOG_SMALLEST && count(base, place, log_page - 1) == 1 {
            log_page -= 1;
        }
        let start = base & ((1_u64 << log_page) - 1);
        match usize::try_from(count(base, place, log_page)) {
            Ok(count) if count <= most => Ok(Self { log_page, start, count, place }),
            Ok(_) | Err(_) => Err(SCATTERED),
        }
    }

    /// Device address of a page.
    #[cfg(test)]
    pub(crate) fn page<P: Platform>(&self, platform: &P, index: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        self.write(platform, index, &mut bytes);
        (index < self.count).then(|| u64::from_be_bytes(bytes))
    }

    /// Writes the pages from number `first` on into `to`, as many as there are and as it holds. The
    /// memory was looked through when the list was made, so every page of it has an address.
    pub fn write<P: Platform>(&self, platform: &P, first: usize, to: &mut [u8]) {
        let size = 1_u64 << self.log_page;
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        // Where the memory in the page begins.
        let mut at = first.saturating_mul(bytes(size)).saturating_sub(bytes(self.start));
        let mut skipped = if first == 0 { self.start } else { 0 };
        // The page, and how many from there on follow each other for the device.
        let (mut page, mut left) = (0, 0_u64);
        let entries = to.chunks_exact_mut(8).filter_map(<[_]>::first_chunk_mut::<8>);
        for entry in entries.take(self.count.saturating_sub(first)) {
            if left == 0 {
                let (iova, run) = self.place.run(platform, at).unwrap_or_default();
                page = iova & !(size - 1);
                // A run ends with a page, but for the last.
                let run = u64::try_from(run).unwrap_or(u64::MAX);
                left = ((iova & (size - 1)).saturating_add(run).saturating_add(size - 1)
                    >> self.log_page)
                    .max(1);
            }
            *entry = page.to_be_bytes();
            page = page.wrapping_add(size);
            left -= 1;
            at = at.saturating_add(bytes(size - skipped));
            skipped = 0;
        }
    }

    /// The `page_offset` of a queue context, and its `log_page_size`.
    #[must_use]
    pub fn queue_geometry(&self) -> (u8, u8) {
        let unit = self.log_page.saturating_sub(6);
        let offset = u8::try_from((self.start >> unit) & 0x3f).unwrap_or(0);
        (offset, self.log_page.saturating_sub(LOG_SMALLEST))
    }
}

/// log2 of the largest pages that memory can be described by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logs {
    /// Where its first byte is named by a given address; below 12 if it cannot be.
    pub(crate) at_base: u8,
    /// Where its first byte is named by its device address, which is as good as any address.
    pub(crate) at_iova: u8,
    /// That device address.
    pub(crate) iova: u64,
}

impl Logs {
    /// Whether there is a list at all where the first byte is named by the given address.
    pub(crate) const fn fits(&self) -> bool {
        self.at_base >= LOG_SMALLEST
    }
}

/// Looks through memory: every contiguous run must sit in its pages as it sits in the space that the
/// device translates from, and each but the first must begin a page.
pub(crate) fn survey<P: Platform>(platform: &P, place: Place, base: u64) -> Result<Logs, Fault> {
    let (first, _) = place.run(platform, 0).ok_or(OUTSIDE)?;
    if place.len() == 0 {
        return Err(OUTSIDE);
    }
    let (mut misfit, mut misfit_at_iova) = (0, 0);
    let mut next = None;
    let mut at = 0;
    while at < place.len() {
        let (iova, run) = place.run(platform, at).filter(|&(_, run)| run != 0).ok_or(OUTSIDE)?;
        if next != Some(iova) {
            let ahead = u64::try_from(at).unwrap_or(u64::MAX);
            for (misfit, base) in [(&mut misfit, base), (&mut misfit_at_iova, first)] {
                let address = base.wrapping_add(ahead);
                *misfit |= address ^ iova;
                *misfit |= if at == 0 { 0 } else { address };
            }
        }
        next = u64::try_from(run).ok().map(|run| iova.wrapping_add(run));
        at = at.saturating_add(run);
    }
    let log =
        |misfit: u64| u8::try_from(misfit.trailing_zeros()).unwrap_or(u8::MAX).min(LOG_LARGEST);
    let [at_base, at_iova] = [log(misfit), log(misfit_at_iova)];
    if at_iova < LOG_SMALLEST {
        return Err(MISFIT);
    }
    Ok(Logs { at_base, at_iova, iova: first })
}

/// Pages of `2^log_page` bytes that the memory touches, starting at `base`.
fn count(base: u64, place: Place, log_page: u8) -> u64 {
    let mask = (1_u64 << log_page) - 1;
    let len = u64::try_from(place.len()).unwrap_or(u64::MAX);
    (base & mask).saturating_add(len).saturating_add(mask) >> log_page
}

#[cfg(test)]
mod tests;
