//! The device's memory on a machine with an IOMMU: the arena, the firmware's pages, and the ledger of what is mapped.
//!
//! The arena is mapped when the host opens, in two pieces: what the device only reads, and what it may also write. The firmware's
//! pages are a window of their own that is mapped piece by piece as the firmware asks, each piece as long as all before it,
//! so that a few entries of the IOMMU do for any amount and no more memory is locked than is used. When the firmware has given
//! its last page back, the window is unmapped.

use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Kind};
use crate::host::{Mapping, Options, Reach};
use crate::iova;
use crate::map::{Arena, HUGE, Pages};

const PAGE: usize = 4096;
/// What mappings are for.
const ARENA: &str = "arena";
const FIRMWARE: &str = "firmware";
/// First piece of the firmware's window.
const FIRST: usize = 4 << 20;

/// Memory to be mapped for the device.
#[derive(Debug)]
pub(crate) struct Area<'a> {
    /// Where, how long, what for.
    pub(crate) mapping: Mapping,
    /// The pages it is in.
    pub(crate) pages: &'a Pages,
    /// Where in the pages it starts.
    pub(crate) offset: usize,
}

impl Area<'_> {
    /// CPU address of its first byte.
    pub(crate) fn addr(&self) -> u64 {
        self.pages.addr().saturating_add(self.offset as u64)
    }
}

/// Who maps memory for the device.
pub(crate) trait Iommu {
    /// Maps it.
    fn map(&self, area: &Area<'_>) -> Result<(), Error>;
    /// Ends a mapping.
    fn unmap(&self, mapping: &Mapping) -> Result<(), Error>;
    /// Mappings that can still be made, if that is known.
    fn entries_left(&self) -> Option<u32>;
}

/// All memory of one device.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Boxed: its list of holes is long.
    arena: Box<Arena>,
    iova: u64,
    firmware: Mutex<Firmware>,
    /// What is mapped.
    ledger: Mutex<Vec<Mapping>>,
}

/// The firmware's pages.
#[derive(Debug)]
struct Firmware {
    pages: Pages,
    iova: u64,
    /// Bytes that are mapped, from the start.
    mapped: usize,
    /// Numbers of the pages that are mapped and not given out.
    free: Vec<usize>,
    /// By number: given out.
    given: Vec<bool>,
    /// Why there were too few.
    shortage: Option<Error>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Makes and maps the arena, in `ranges` of device addresses. `pages` makes pages.
    pub(crate) fn new(
        options: &Options,
        ranges: &[RangeInclusive<u64>],
        pages: impl Fn(usize) -> std::io::Result<Pages>,
        iommu: &impl Iommu,
    ) -> Result<Self, Error> {
        let pages = |len: usize, purpose: &'static str| {
            pages(len).map_err(|error| {
                Error::new(
                    Kind::Memory,
                    format!("{purpose} of {len} bytes"),
                    format!("no memory for it: {error}"),
                    "ask for less, or free some memory",
                )
            })
        };
        let arena = pages(options.arena.max(HUGE), "arena")?;
        let firmware = pages(options.firmware, "firmware's reserve")?;
        let lens = [arena.len() as u64, firmware.len() as u64];
        let places = iova::place(ranges, &lens).unwrap_or_default();
        let [at, firmware_at] = *places else {
            return Err(Error::new(
                Kind::Iova,
                "device addresses",
                format!("no room for {lens:?} bytes in the IOMMU's ranges {ranges:x?}"),
                "ask for less memory",
            ));
        };
        // The device has to have something to write to.
        let most = arena.len().saturating_sub(HUGE);
        let split = options.read_only.checked_next_multiple_of(HUGE);
        let split = split.map_or(most, |split| split.min(most));
        let memory = Self {
            arena: Box::new(Arena::new(arena, split)),
            iova: at,
            firmware: Mutex::new(Firmware {
                given: vec![false; firmware.len() / PAGE],
                pages: firmware,
                iova: firmware_at,
                mapped: 0,
                free: Vec::new(),
                shortage: None,
            }),
            ledger: Mutex::new(Vec::new()),
        };
        let parts = [
            (0..split, Reach::Read),
            (split..memory.arena.pages().len(), Reach::ReadWrite),
        ];
        for (part, reach) in parts {
            if !part.is_empty() {
                let area = Area {
                    mapping: Mapping {
                        iova: at.saturating_add(part.start as u64),
                        len: part.len() as u64,
                        reach,
                        purpose: ARENA,
                        huge: memory.arena.pages().huge(),
                    },
                    pages: memory.arena.pages(),
                    offset: part.start,
                };
                if let Err(error) = map(&memory.ledger, iommu, &area) {
                    let _ = memory.unmap(iommu);
                    return Err(error);
                }
            }
        }
        Ok(memory)
    }

    /// The arena.
    #[inline(always)]
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// `Platform::iova`.
    pub(crate) fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        self.arena.raw().iova(self.iova, offset)
    }

    /// `Platform::pages_take`.
    pub(crate) fn pages_take(&self, iommu: &impl Iommu, to: &mut [u64]) -> usize {
        let mut firmware = lock(&self.firmware);
        while firmware.free.len() < to.len() {
            if let Err(error) = firmware.grow(&self.ledger, iommu) {
                firmware.shortage = Some(error);
                break;
            }
        }
        let mut taken = 0;
        for place in to {
            let Some(number) = firmware.free.pop() else {
                break;
            };
            if let Some(given) = firmware.given.get_mut(number) {
                *given = true;
            }
            *place = firmware.iova.saturating_add((number * PAGE) as u64);
            taken += 1;
        }
        taken
    }

    /// `Platform::pages_return`. When the firmware has none left, it cannot reach any of them either.
    pub(crate) fn pages_return(&self, iommu: &impl Iommu, pages: &[u64]) -> usize {
        let mut firmware = lock(&self.firmware);
        let known = pages
            .iter()
            .filter(|page| firmware.give_back(**page))
            .count();
        if known > 0 && firmware.free.len() == firmware.mapped / PAGE {
            firmware.shrink(&self.ledger, iommu);
        }
        known
    }

    /// Why the firmware last got fewer pages than it asked for.
    pub(crate) fn shortage(&self) -> Option<Error> {
        lock(&self.firmware).shortage.clone()
    }

    /// Takes everything back, when no driver lives and the device has been reset. What is mapped stays mapped.
    pub(crate) fn reclaim(&self) {
        self.arena.reclaim();
        lock(&self.firmware).reclaim();
    }

    /// What is mapped.
    pub(crate) fn maps(&self) -> Vec<Mapping> {
        lock(&self.ledger).clone()
    }

    /// Ends all mappings, the newest first; the first error, if there was one.
    pub(crate) fn unmap(&self, iommu: &impl Iommu) -> Result<(), Error> {
        let mut first = Ok(());
        while let Some(mapping) = lock(&self.ledger).pop() {
            first = first.and(iommu.unmap(&mapping));
        }
        first
    }
}

impl Firmware {
    /// Maps the next piece.
    fn grow(&mut self, ledger: &Mutex<Vec<Mapping>>, iommu: &impl Iommu) -> Result<(), Error> {
        let left = self.pages.len().saturating_sub(self.mapped);
        if left == 0 {
            return Err(Error::new(
                Kind::Memory,
                "firmware's reserve",
                format!("all of its {} bytes are in use", self.pages.len()),
                "give the firmware more (Options::firmware), or tell it to expect fewer queues (Config::log_max_qp)",
            ));
        }
        // The last entry of the IOMMU has to do for all.
        let len = match iommu.entries_left() {
            Some(..=1) => left,
            Some(_) | None => self.mapped.max(FIRST).min(left),
        };
        let mapped = self.map(len, ledger, iommu);
        // Where there is no memory for a long piece there may be for a short one.
        let short = FIRST.min(left);
        match mapped {
            Err(error) if len > short => self.map(short, ledger, iommu).map_err(|_| error),
            mapped => mapped,
        }
    }

    fn map(
        &mut self,
        len: usize,
        ledger: &Mutex<Vec<Mapping>>,
        iommu: &impl Iommu,
    ) -> Result<(), Error> {
        let area = Area {
            mapping: Mapping {
                iova: self.iova.saturating_add(self.mapped as u64),
                len: len as u64,
                reach: Reach::ReadWrite,
                purpose: FIRMWARE,
                huge: self.pages.huge(),
            },
            pages: &self.pages,
            offset: self.mapped,
        };
        map(ledger, iommu, &area)?;
        let first = self.mapped / PAGE;
        // The lowest on top.
        self.free.splice(0..0, (first..first + len / PAGE).rev());
        self.mapped += len;
        Ok(())
    }

    /// Ends the mappings, the last piece first; none of their pages is given out.
    fn shrink(&mut self, ledger: &Mutex<Vec<Mapping>>, iommu: &impl Iommu) {
        let mut ledger = lock(ledger);
        // The pieces were mapped one behind the other, after the arena.
        while let Some(last) = ledger.last().filter(|last| last.purpose == FIRMWARE) {
            let Ok(len) = usize::try_from(last.len) else {
                return;
            };
            // What the kernel keeps stays in the ledger, and in use.
            if iommu.unmap(last).is_err() {
                return;
            }
            ledger.pop();
            self.mapped = self.mapped.saturating_sub(len);
            let first = self.mapped / PAGE;
            self.free.retain(|number| *number < first);
        }
    }

    /// Whether the page was given out.
    fn give_back(&mut self, page: u64) -> bool {
        let number = page
            .checked_sub(self.iova)
            .filter(|offset| offset.is_multiple_of(PAGE as u64))
            .and_then(|offset| usize::try_from(offset / PAGE as u64).ok());
        let Some(number) = number else { return false };
        match self.given.get_mut(number) {
            Some(given) if *given => {
                *given = false;
                self.free.push(number);
                true
            }
            Some(_) | None => false,
        }
    }

    fn reclaim(&mut self) {
        self.given.fill(false);
        self.free = (0..self.mapped / PAGE).rev().collect();
        self.shortage = None;
    }
}

fn map(ledger: &Mutex<Vec<Mapping>>, iommu: &impl Iommu, area: &Area<'_>) -> Result<(), Error> {
    iommu.map(area)?;
    lock(ledger).push(area.mapping);
    Ok(())
}

/// The methods of `Platform` that are the same over any [`Memory`]: the arena, the firmware's pages, the fences of ordinary
/// memory, time and chance. Expects fields `memory`, `machine`, `wakeups` and `iommu`.
macro_rules! platform_over_memory {
    () => {
        hca_mlx5::forward_arena!(except alloc, free: memory.arena().raw());
        hca_mlx5::forward_order!();

        fn alloc(&self, len: usize, align: usize) -> Option<Span> {
            self.memory.arena().alloc(len, align)
        }
        fn alloc_read_only(&self, len: usize, align: usize) -> Option<Span> {
            self.memory.arena().alloc_read_only(len, align)
        }
        fn free(&self, span: Span) {
            self.memory.arena().free(span);
        }
        fn iova(&self, offset: usize) -> Option<(u64, usize)> {
            self.memory.iova(offset)
        }
        fn pages_take(&self, to: &mut [u64]) -> usize {
            self.memory.pages_take(&self.iommu, to)
        }
        fn pages_return(&self, pages: &[u64]) -> usize {
            self.memory.pages_return(&self.iommu, pages)
        }
        fn now(&self) -> u64 {
            self.machine.now()
        }
        fn relax(&self) {
            self.machine.relax(&self.wakeups);
        }
        fn entropy(&self) -> u64 {
            self.machine.entropy()
        }
    };
}
pub(crate) use platform_over_memory;

/// The methods of `Host` that are the same over any [`Memory`]. Expects fields `memory`, `wakeups`, `severed` and `name`, and
/// a method `enable` that makes the device usable after its reset.
macro_rules! host_over_memory {
    () => {
        fn name(&self) -> &str {
            &self.name
        }
        fn vectors(&self) -> u16 {
            u16::try_from(self.wakeups.vectors().len()).unwrap_or(1)
        }
        fn wakeups(&self) -> &Wakeups {
            &self.wakeups
        }
        fn renew(&mut self) -> Result<(), Error> {
            self.reset()?;
            self.memory.reclaim();
            self.wakeups.clear();
            self.enable()?;
            self.severed.store(false, Ordering::Release);
            Ok(())
        }
        fn shortage(&self) -> Option<Error> {
            self.memory.shortage()
        }
        fn maps(&self) -> Vec<Mapping> {
            self.memory.maps()
        }
    };
}
pub(crate) use host_over_memory;

#[cfg(test)]
mod tests;
