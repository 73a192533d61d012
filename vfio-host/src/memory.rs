//! The device's memory on a machine with an IOMMU: the arena, the firmware's pages, lent memory,
//! and the ledger of mappings.
//!
//! The arena is mapped when the host opens, in two pieces: read-only and read-write for the device.
//! The firmware's pages are a separate window that is mapped piece by piece on demand. Each piece
//! is as long as all before it, so a few IOMMU entries suffice and little more memory is locked
//! than is used. When the firmware has returned its last page, the window is unmapped. Memory of
//! the process is mapped when it is lent (`lent.rs`).
//!
//! Length: one value of which every part hands out pieces of the same device addresses.

use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_core::provider::Region;

use crate::error::{Error, Kind};
use crate::host::{Mapping, Options, Reach};
use crate::iova::Space;
use crate::map::{Arena, HUGE, Pages, Promised, touched};
use crate::vmas;

use self::lent::Lent;
pub(crate) use self::lent::Piece;
use self::named::Named;

mod lent;
mod named;

const PAGE: usize = 4096;
/// Purposes of mappings.
const ARENA: &str = "arena";
const FIRMWARE: &str = "firmware";
/// Length of the first piece of the firmware's window.
const FIRST: usize = 4 << 20;

/// Memory to be mapped for the device.
#[derive(Debug)]
pub(crate) struct Area<'a> {
    /// Device address, length, access rights and purpose.
    pub(crate) mapping: Mapping,
    /// CPU address of its first byte.
    pub(crate) addr: u64,
    /// The file that backs it and the offset there, if there is one.
    pub(crate) file: Option<(BorrowedFd<'a>, u64)>,
}

impl<'a> Area<'a> {
    /// Makes the area of `pages` that begins at `offset`.
    fn of(mapping: Mapping, pages: &'a Pages, offset: usize) -> Self {
        let offset = offset as u64;
        Self {
            mapping,
            addr: pages.addr().saturating_add(offset),
            file: pages.file().map(|file| (file, offset)),
        }
    }
}

/// Maps memory for the device.
pub(crate) trait Iommu {
    /// Maps an area.
    fn map(&self, area: &Area<'_>) -> Result<(), Error>;
    /// Ends a mapping.
    fn unmap(&self, mapping: &Mapping) -> Result<(), Error>;
    /// Returns how many more mappings fit, if that is known.
    fn entries_left(&self) -> Option<u32>;
    /// Prepares memory of the process for mapping. Returns its pieces in address order.
    fn hold(&self, memory: &Promised, reach: Reach) -> Result<Vec<Piece>, Error>;
    /// Undoes one [`Iommu::hold`], after the mappings have ended.
    fn let_go(&self, memory: &Promised);
}

/// All memory of one device.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Boxed because its list of holes is long.
    arena: Box<Arena>,
    iova: u64,
    firmware: Mutex<Firmware>,
    lent: Mutex<Lent>,
    /// Named shared memory, the latest last.
    names: Mutex<Vec<Name>>,
    /// All current mappings.
    ledger: Mutex<Vec<Mapping>>,
}

/// Lent memory that has a name.
#[derive(Debug)]
struct Name {
    name: [u8; 40],
    region: Region,
    /// Our own mapping of it and its number of users; `None` if the program maps it itself.
    own: Option<(Named, usize)>,
}

/// The firmware's pages.
#[derive(Debug)]
struct Firmware {
    pages: Pages,
    iova: u64,
    /// Number of mapped bytes, from the start.
    mapped: usize,
    /// Numbers of the pages that are mapped and free.
    free: Vec<usize>,
    /// Whether the firmware holds the page, by number.
    given: Vec<bool>,
    /// Why the last request got too few pages.
    shortage: Option<Error>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Makes and maps the arena, in `ranges` of device addresses. `pages` allocates pages.
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
                    format!("cannot allocate memory: {error}"),
                    "ask for less, or free some memory",
                )
                .because(error)
            })
        };
        let arena = pages(options.arena.max(HUGE), "arena")?;
        let firmware = pages(options.firmware, "firmware's reserve")?;
        let lens = [arena.len() as u64, firmware.len() as u64];
        let mut space = Space::new(ranges);
        let [at, firmware_at] = lens.map(|len| space.take(len));
        let (Some(at), Some(firmware_at)) = (at, firmware_at) else {
            return Err(Error::new(
                Kind::Iova,
                "device addresses",
                format!("no space for {lens:?} bytes in the IOMMU's ranges {ranges:x?}"),
                "ask for less memory",
            ));
        };
        // The device needs some memory that it may write.
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
            lent: Mutex::new(Lent::new(space)),
            names: Mutex::new(Vec::new()),
            ledger: Mutex::new(Vec::new()),
        };
        let parts =
            [(0..split, Reach::Read), (split..memory.arena.pages().len(), Reach::ReadWrite)];
        for (part, reach) in parts {
            if !part.is_empty() {
                let pages = memory.arena.pages();
                let mapping = Mapping {
                    iova: at.saturating_add(part.start as u64),
                    len: part.len() as u64,
                    reach,
                    purpose: ARENA,
                    huge: pages.huge(),
                };
                let area = Area::of(mapping, pages, part.start);
                if let Err(error) = map(&memory.ledger, iommu, &area) {
                    let _ = memory.unmap(iommu);
                    return Err(error);
                }
            }
        }
        Ok(memory)
    }

    /// Returns the arena.
    #[inline(always)]
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// `Dma::iova`.
    pub(crate) fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        self.arena.memory().iova(self.iova, offset)
    }

    /// `Dma::pages_take`.
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

    /// `Dma::pages_return`. Unmaps all of the firmware's pages once it holds none.
    pub(crate) fn pages_return(&self, iommu: &impl Iommu, pages: &[u64]) -> usize {
        let mut firmware = lock(&self.firmware);
        let known = pages.iter().filter(|page| firmware.give_back(**page)).count();
        if known > 0 && firmware.free.len() == firmware.mapped / PAGE {
            firmware.shrink(&self.ledger, iommu);
        }
        known
    }

    /// Returns the error for which the firmware last got fewer pages than it asked for.
    pub(crate) fn shortage(&self) -> Option<Error> {
        lock(&self.firmware).shortage.clone()
    }

    /// [`crate::Host::lend`].
    pub(crate) fn lend(
        &self,
        iommu: &impl Iommu,
        memory: Option<Promised>,
        reach: Reach,
    ) -> Result<(), Error> {
        let memory = memory.ok_or(Error::new(
            Kind::Address,
            "memory of the process",
            "the range is empty or exceeds the address space",
            "lend a valid range",
        ))?;
        if self.is_arena(&memory) {
            return Ok(());
        }
        lock(&self.lent).lend(iommu, &self.ledger, memory, reach)
    }

    /// [`crate::Host::take_back`].
    pub(crate) fn take_back(&self, iommu: &impl Iommu, region: Region) {
        let mut names = lock(&self.names);
        let same = |name: &Name| name.own.is_none() && name.region == region;
        if let Some(at) = names.iter().rposition(same) {
            names.remove(at);
        }
        drop(names);
        self.end_of(iommu, region);
    }

    fn end_of(&self, iommu: &impl Iommu, region: Region) {
        if let Some(pages) = touched(region.addr, region.len) {
            lock(&self.lent).take_back(iommu, &self.ledger, &pages);
        }
    }

    /// [`crate::Host::lend_shared`].
    pub(crate) fn lend_shared(
        &self,
        iommu: &impl Iommu,
        name: &[u8; 40],
        region: Region,
        memory: Option<Promised>,
    ) -> Result<(), Error> {
        if let Some(memory) = &memory {
            vmas::shared(&memory.pages())?;
        }
        self.lend(iommu, memory, Reach::ReadWrite)?;
        lock(&self.names).push(Name { name: *name, region, own: None });
        Ok(())
    }

    /// [`crate::Host::share`].
    pub(crate) fn share(
        &self,
        iommu: &impl Iommu,
        name: &[u8; 40],
        len: u64,
    ) -> Result<Region, Error> {
        let mut names = lock(&self.names);
        let known = names.iter_mut().find(|known| known.name == *name);
        if let Some(known) = known {
            if let Some((_, count)) = &mut known.own {
                if len <= known.region.len {
                    *count += 1;
                    return Ok(known.region);
                }
            }
        }
        let named = Named::open(name, len)?;
        let region = Region { addr: named.pages().addr(), len };
        self.lend(iommu, Promised::of(named.pages()), Reach::ReadWrite)?;
        names.push(Name { name: *name, region, own: Some((named, 1)) });
        Ok(region)
    }

    /// [`crate::Host::unshare`].
    pub(crate) fn unshare(&self, iommu: &impl Iommu, region: Region) {
        let mut names = lock(&self.names);
        let same = |name: &Name| name.own.is_some() && name.region == region;
        let Some(at) = names.iter().position(same) else {
            return;
        };
        if let Some((_, count)) = names.get_mut(at).and_then(|name| name.own.as_mut()) {
            if *count > 1 {
                *count -= 1;
                return;
            }
        }
        let name = names.remove(at);
        // The mapping is dropped only after the device cannot reach it any more.
        self.end_of(iommu, region);
        drop(name);
    }

    /// `Lend::shared`.
    pub(crate) fn shared(&self, name: &[u8; 40]) -> Option<Region> {
        let names = lock(&self.names);
        let latest = names.iter().rfind(|known| known.name == *name);
        latest.map(|known| known.region)
    }

    /// Takes back all lent memory.
    fn take_all_back(&self, iommu: &impl Iommu) {
        lock(&self.lent).take_all_back(iommu, &self.ledger);
        lock(&self.names).clear();
    }

    /// `Lend::lent`.
    pub(crate) fn lent(&self, region: Region) -> Option<u64> {
        lock(&self.lent).find(region)
    }

    /// `Lend::write`.
    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        lock(&self.lent).write(addr, bytes)
    }

    /// Returns whether the memory lies in the arena, which is always mapped.
    fn is_arena(&self, memory: &Promised) -> bool {
        let (pages, arena) = (memory.pages(), self.arena.pages());
        let end = arena.addr().saturating_add(arena.len() as u64);
        arena.addr() <= pages.start && pages.end <= end
    }

    /// Frees all allocations. No driver may exist, and the device must have been reset. Mappings
    /// stay, except those of lent memory.
    pub(crate) fn reclaim(&self, iommu: &impl Iommu) {
        self.take_all_back(iommu);
        self.arena.reclaim();
        lock(&self.firmware).reclaim();
    }

    /// Returns the current mappings.
    pub(crate) fn maps(&self) -> Vec<Mapping> {
        lock(&self.ledger).clone()
    }

    /// Ends all mappings, the newest first. Returns the first error.
    pub(crate) fn unmap(&self, iommu: &impl Iommu) -> Result<(), Error> {
        self.take_all_back(iommu);
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
        // With one IOMMU entry left, that mapping takes all the rest.
        let len = match iommu.entries_left() {
            Some(..=1) => left,
            Some(_) | None => self.mapped.max(FIRST).min(left),
        };
        let mapped = self.map(len, ledger, iommu);
        // If a long piece cannot be locked, a short one may be.
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
        let mapping = Mapping {
            iova: self.iova.saturating_add(self.mapped as u64),
            len: len as u64,
            reach: Reach::ReadWrite,
            purpose: FIRMWARE,
            huge: self.pages.huge(),
        };
        let area = Area::of(mapping, &self.pages, self.mapped);
        map(ledger, iommu, &area)?;
        let first = self.mapped / PAGE;
        // The lowest page is taken first.
        self.free.splice(0..0, (first..first + len / PAGE).rev());
        self.mapped += len;
        Ok(())
    }

    /// Ends the mappings, the last piece first. The firmware must hold none of the pages.
    fn shrink(&mut self, ledger: &Mutex<Vec<Mapping>>, iommu: &impl Iommu) {
        let mut ledger = lock(ledger);
        // The pieces were mapped in ascending order.
        while let Some(at) = ledger.iter().rposition(|one| one.purpose == FIRMWARE) {
            let Some((last, Ok(len))) = ledger.get(at).map(|m| (m, usize::try_from(m.len))) else {
                return;
            };
            // A piece that cannot be unmapped stays in the ledger and in use.
            if iommu.unmap(last).is_err() {
                return;
            }
            ledger.remove(at);
            self.mapped = self.mapped.saturating_sub(len);
            let first = self.mapped / PAGE;
            self.free.retain(|number| *number < first);
        }
    }

    /// Frees a page. Returns whether the firmware held it.
    fn give_back(&mut self, page: u64) -> bool {
        let number = page
            .checked_sub(self.iova)
            .filter(|offset| offset % (PAGE as u64) == 0)
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

/// Defines the methods that are the same over any [`Memory`]: the arena, the firmware's pages, the
/// fences of ordinary memory, lent memory, time. Expects fields `memory`, `machine`, `wakeups` and
/// `iommu`.
macro_rules! platform_over_memory {
    ($host:ty) => {
        impl hca_mlx5::platform::Dma for $host {
            type Probe = ();
            #[inline(always)]
            fn memory(&self) -> &hca_mlx5::dma::Memory {
                self.memory.arena().memory()
            }
            fn alloc(
                &self,
                len: usize,
                align: usize,
                reach: Reach,
            ) -> Option<hca_mlx5::platform::Span> {
                self.memory.arena().alloc(len, align, reach)
            }
            fn free(&self, span: hca_mlx5::platform::Span) {
                self.memory.arena().free(span);
            }
            fn iova(&self, offset: usize) -> Option<(u64, usize)> {
                self.memory.iova(offset)
            }
            #[inline(always)]
            fn fence(&self, fence: hca_mlx5::platform::Fence) {
                hca_mlx5::mmio::fence(fence);
            }
            fn pages_take(&self, to: &mut [u64]) -> usize {
                self.memory.pages_take(&self.iommu, to)
            }
            fn pages_return(&self, pages: &[u64]) -> usize {
                self.memory.pages_return(&self.iommu, pages)
            }
        }

        impl hca_mlx5::platform::Lend for $host {
            fn lent(&self, region: Region) -> Option<u64> {
                self.memory.lent(region)
            }
            fn write(&self, addr: u64, bytes: &[u8]) -> bool {
                self.memory.write(addr, bytes)
            }
            fn shared(&self, name: &[u8; 40]) -> Option<Region> {
                self.memory.shared(name)
            }
        }

        impl hca_mlx5::platform::Clock for $host {
            fn now(&self) -> u64 {
                self.machine.now()
            }
            fn relax(&self) {
                self.machine.relax(&self.wakeups);
            }
            fn pause(&self) {
                std::hint::spin_loop();
            }
        }
    };
}
pub(crate) use platform_over_memory;

/// Defines the methods of `Host` that are the same over any [`Memory`]. Expects fields `memory`,
/// `wakeups`, `severed` and `name`, and a method `enable` that makes the device usable after reset.
macro_rules! host_over_memory {
    () => {
        fn name(&self) -> &str {
            &self.name
        }
        fn entropy(&self) -> Result<[u8; 32], Error> {
            self.machine.entropy()
        }
        fn vectors(&self) -> u16 {
            u16::try_from(self.wakeups.vectors().len()).unwrap_or(1)
        }
        fn wakeups(&self) -> &Wakeups {
            &self.wakeups
        }
        fn renew(&mut self) -> Result<(), Error> {
            self.reset()?;
            self.memory.reclaim(&self.iommu);
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
        #[expect(unsafe_code, reason = "what the trait asks for is passed on")]
        unsafe fn lend(&self, addr: u64, len: u64, reach: Reach) -> Result<(), Error> {
            // SAFETY: the caller has promised it to this host.
            let memory = unsafe { Promised::new(addr, len) };
            self.memory.lend(&self.iommu, memory, reach)
        }
        fn take_back(&self, addr: u64, len: u64) {
            self.memory.take_back(&self.iommu, Region { addr, len });
        }
        #[expect(unsafe_code, reason = "what the trait asks for is passed on")]
        unsafe fn lend_shared(&self, name: &[u8; 40], addr: u64, len: u64) -> Result<(), Error> {
            // SAFETY: the caller has promised it to this host.
            let memory = unsafe { Promised::new(addr, len) };
            let region = Region { addr, len };
            self.memory.lend_shared(&self.iommu, name, region, memory)
        }
        fn share(&self, name: &[u8; 40], len: u64) -> Result<Region, Error> {
            self.memory.share(&self.iommu, name, len)
        }
        fn unshare(&self, region: Region) {
            self.memory.unshare(&self.iommu, region);
        }
    };
}
pub(crate) use host_over_memory;

#[cfg(test)]
mod tests;
