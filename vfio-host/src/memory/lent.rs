//! Memory of the process that is lent to the device.
//!
//! Whole pages are lent: those that a consumer's bytes touch. Each range of pages is mapped once,
//! at a device address that agrees with the memory's own modulo as much of 1 GiB as the length is
//! worth (`iova.rs`), so that its registration needs few, large pages. Lending the same range again
//! increases its count. A range inside one that is lent shares its mapping, which ends with the last
//! range that uses it; other ranges that overlap have mappings of their own. A registration uses the
//! smallest range that contains it.
//!
//! No range shares the mapping of one that was taken back, although it may be mapped still: the
//! process may have mapped other memory there.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use dat_core::provider::Region;

use super::{Area, Iommu, lock, map};
use crate::error::{Error, Kind};
use crate::host::{Mapping, Reach};
use crate::iova::Space;
use crate::map::Promised;

/// The purpose of its mappings.
const PROCESS: &str = "process";

/// A part of a lent range that can be mapped at once.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Length in bytes.
    pub(crate) len: u64,
    /// The file that backs it and the offset there, if there is one.
    pub(crate) file: Option<(Arc<OwnedFd>, u64)>,
}

/// One lent range.
#[derive(Debug)]
struct Held {
    memory: Promised,
    /// How often it is lent.
    count: usize,
    /// Its mappings: one, or a second one with more access rights. The address is that of its own
    /// first byte.
    maps: Vec<(Reach, u64)>,
}

/// One mapping.
#[derive(Debug)]
struct Mapped {
    iova: u64,
    len: u64,
    /// Number of lent ranges that use it.
    users: usize,
}

impl Mapped {
    fn contains(&self, iova: u64) -> bool {
        iova.checked_sub(self.iova).is_some_and(|within| within < self.len)
    }
}

impl Held {
    /// Returns the device address of its first byte in the mapping with the most access rights.
    fn iova(&self) -> Option<u64> {
        self.iova_for(Reach::ReadWrite).or(self.iova_for(Reach::Read))
    }

    /// Returns the device address of its first byte in a mapping with at least those rights.
    fn iova_for(&self, reach: Reach) -> Option<u64> {
        let enough = |(has, _): &&(Reach, u64)| *has == reach || *has == Reach::ReadWrite;
        self.maps.iter().find(enough).map(|(_, iova)| *iova)
    }
}

/// All lent ranges.
#[derive(Debug)]
pub(crate) struct Lent {
    space: Space,
    held: Vec<Held>,
    mapped: Vec<Mapped>,
}

fn object(pages: &Range<u64>) -> String {
    let len = pages.end - pages.start;
    format!("{PROCESS} memory at {:#x}, {len:#x} bytes", pages.start)
}

impl Lent {
    /// Makes an empty list. `space` has the device addresses that are free for lent memory.
    pub(crate) fn new(space: Space) -> Self {
        Self { space, held: Vec::new(), mapped: Vec::new() }
    }

    fn position(&self, pages: &Range<u64>) -> Option<usize> {
        let same = |held: &Held| held.memory.pages() == *pages;
        self.held.iter().position(same)
    }

    /// Lends a range and records its mappings in the ledger.
    pub(crate) fn lend(
        &mut self,
        iommu: &impl Iommu,
        ledger: &Mutex<Vec<Mapping>>,
        memory: Promised,
        reach: Reach,
    ) -> Result<(), Error> {
        let pages = memory.pages();
        let known = self.position(&pages);
        if let Some(held) = known.and_then(|at| self.held.get_mut(at)) {
            if held.iova_for(reach).is_some() {
                held.count += 1;
                return Ok(());
            }
        }
        let iova = match self.mapped_already(&pages, reach) {
            Some(iova) => {
                iommu.hold(&memory, reach)?;
                let shared = self.mapped.iter_mut().find(|mapped| mapped.contains(iova));
                shared.into_iter().for_each(|mapped| mapped.users += 1);
                iova
            }
            None => self.map(iommu, ledger, &memory, reach)?,
        };
        match known.and_then(|at| self.held.get_mut(at)) {
            Some(held) => {
                held.count += 1;
                held.maps.push((reach, iova));
            }
            None => self.held.push(Held { memory, count: 1, maps: vec![(reach, iova)] }),
        }
        Ok(())
    }

    /// Returns the device address of pages in a lent range with at least those rights.
    fn mapped_already(&self, pages: &Range<u64>, reach: Reach) -> Option<u64> {
        self.held.iter().find_map(|held| {
            let all = held.memory.pages();
            let within = pages.start.checked_sub(all.start).filter(|_| pages.end <= all.end)?;
            held.iova_for(reach)?.checked_add(within)
        })
    }

    /// Maps pages. Returns their device address.
    fn map(
        &mut self,
        iommu: &impl Iommu,
        ledger: &Mutex<Vec<Mapping>>,
        memory: &Promised,
        reach: Reach,
    ) -> Result<u64, Error> {
        let pages = memory.pages();
        let len = pages.end - pages.start;
        let iova = self.space.take_agreeing(len, pages.start).ok_or(Error::new(
            Kind::Iova,
            object(&pages),
            "the IOMMU's ranges have no space for it",
            "take other memory back first, or lend it piece by piece",
        ))?;
        if let Err(error) = mapped(iommu, ledger, memory, reach, iova) {
            self.space.give(iova, len);
            return Err(error);
        }
        self.mapped.push(Mapped { iova, len, users: 1 });
        Ok(iova)
    }

    /// Takes a range back once; after the last time the device can no longer reach it.
    pub(crate) fn take_back(
        &mut self,
        iommu: &impl Iommu,
        ledger: &Mutex<Vec<Mapping>>,
        pages: &Range<u64>,
    ) {
        let Some(at) = self.position(pages) else {
            return;
        };
        if let Some(held) = self.held.get_mut(at).filter(|held| held.count > 1) {
            held.count -= 1;
            return;
        }
        let held = self.held.swap_remove(at);
        self.end(iommu, ledger, &held);
    }

    /// Takes all ranges back.
    pub(crate) fn take_all_back(&mut self, iommu: &impl Iommu, ledger: &Mutex<Vec<Mapping>>) {
        while let Some(held) = self.held.pop() {
            self.end(iommu, ledger, &held);
        }
    }

    fn end(&mut self, iommu: &impl Iommu, ledger: &Mutex<Vec<Mapping>>, held: &Held) {
        for (_, iova) in &held.maps {
            let at = self.mapped.iter().position(|mapped| mapped.contains(*iova));
            if let Some(at) = at {
                if let Some(mapped) = self.mapped.get_mut(at) {
                    mapped.users = mapped.users.saturating_sub(1);
                    let (iova, len) = (mapped.iova, mapped.len);
                    if mapped.users == 0 {
                        self.mapped.swap_remove(at);
                        // An address that may still be mapped must not be allocated again.
                        if unmapped(iommu, ledger, iova, len) {
                            self.space.give(iova, len);
                        }
                    }
                }
            }
            iommu.let_go(&held.memory);
        }
    }

    /// `Lend::write`.
    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        let writable = |held: &&Held| held.maps.iter().any(|(reach, _)| *reach == Reach::ReadWrite);
        self.held.iter().filter(writable).any(|held| held.memory.write(addr, bytes))
    }

    /// `Lend::lent`.
    pub(crate) fn find(&self, region: Region) -> Option<u64> {
        let end = region.addr.checked_add(region.len)?;
        let inside = |held: &&Held| {
            let pages = held.memory.pages();
            pages.start <= region.addr && end <= pages.end
        };
        let all = self.held.iter().filter(inside);
        let held = all.min_by_key(|held| {
            let pages = held.memory.pages();
            pages.end - pages.start
        })?;
        let within = region.addr.checked_sub(held.memory.pages().start)?;
        held.iova()?.checked_add(within)
    }
}

/// Maps the pages at `iova`, in as many mappings as they have pieces.
fn mapped(
    iommu: &impl Iommu,
    ledger: &Mutex<Vec<Mapping>>,
    memory: &Promised,
    reach: Reach,
    iova: u64,
) -> Result<(), Error> {
    let pages = memory.pages();
    let mut at = 0;
    for piece in iommu.hold(memory, reach)? {
        let area = Area {
            mapping: Mapping {
                iova: iova.saturating_add(at),
                len: piece.len,
                reach,
                purpose: PROCESS,
                huge: false,
            },
            addr: pages.start.saturating_add(at),
            file: piece.file.as_ref().map(|(file, at)| (file.as_fd(), *at)),
        };
        if let Err(error) = map(ledger, iommu, &area) {
            unmapped(iommu, ledger, iova, at);
            iommu.let_go(memory);
            return Err(error);
        }
        at = at.saturating_add(piece.len);
    }
    Ok(())
}

/// Ends the mappings in a range. Returns false if one could not be ended, which stays in the
/// ledger.
fn unmapped(iommu: &impl Iommu, ledger: &Mutex<Vec<Mapping>>, iova: u64, len: u64) -> bool {
    let range = iova..iova.saturating_add(len);
    let mut all = true;
    lock(ledger).retain(|mapping| {
        let stays = !range.contains(&mapping.iova) || iommu.unmap(mapping).is_err();
        all &= !stays || !range.contains(&mapping.iova);
        stays
    });
    all
}
