use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, Ordering};

use proptest::prelude::*;

use super::*;

/// An IOMMU with limits of entries and bytes.
struct Fake {
    entries: RefCell<u32>,
    bytes: RefCell<u64>,
    tells: bool,
    held: RefCell<u32>,
}

impl Fake {
    fn new(entries: u32, bytes: u64) -> Self {
        Self {
            entries: RefCell::new(entries),
            bytes: RefCell::new(bytes),
            tells: true,
            held: RefCell::new(0),
        }
    }
}

impl Iommu for Fake {
    fn map(&self, area: &Area<'_>) -> Result<(), Error> {
        let full = |kind| Error::new(kind, "fake", "full", "");
        let (mut entries, mut bytes) = (self.entries.borrow_mut(), self.bytes.borrow_mut());
        assert!(area.addr % 4096 == 0 && area.mapping.iova % 4096 == 0);
        *entries = entries.checked_sub(1).ok_or(full(Kind::DmaEntries))?;
        *bytes = bytes.checked_sub(area.mapping.len).ok_or(full(Kind::Memlock))?;
        Ok(())
    }
    fn unmap(&self, mapping: &Mapping) -> Result<(), Error> {
        *self.entries.borrow_mut() += 1;
        *self.bytes.borrow_mut() += mapping.len;
        Ok(())
    }
    fn entries_left(&self) -> Option<u32> {
        self.tells.then(|| *self.entries.borrow())
    }
    fn hold(&self, memory: &Promised, _: Reach) -> Result<Vec<Piece>, Error> {
        *self.held.borrow_mut() += 1;
        let pages = memory.pages();
        let len = pages.end - pages.start;
        Ok(vec![Piece { len, file: None }])
    }
    fn let_go(&self, _: &Promised) {
        *self.held.borrow_mut() -= 1;
    }
}

fn memory(iommu: &Fake) -> Result<Memory, Error> {
    Memory::new(&Options::default(), &[crate::iova::DEFAULT_APERTURE], Pages::private, iommu)
}

fn take(memory: &Memory, iommu: &Fake, count: usize) -> Vec<u64> {
    let mut pages = vec![0; count];
    let taken = memory.pages_take(iommu, &mut pages);
    pages.truncate(taken);
    pages
}

const ALL: usize = (128 << 20) / PAGE;

#[test]
fn the_arena_is_two_mappings_and_the_firmware_grows() {
    let iommu = Fake::new(65_535, 1 << 40);
    let memory = memory(&iommu).unwrap();
    let maps = memory.maps();
    assert_eq!(
        maps.iter().map(|m| (m.len, m.reach)).collect::<Vec<_>>(),
        [(4 << 20, Reach::Read), (12 << 20, Reach::ReadWrite)]
    );
    assert_eq!(memory.iova(5), Some((maps[0].iova + 5, (16 << 20) - 5)));
    assert_eq!(memory.iova(16 << 20), None);

    let first = take(&memory, &iommu, 3);
    assert_eq!(memory.maps().len(), 3);
    assert_eq!(first[1], first[0] + 4096);
    let all = take(&memory, &iommu, ALL);
    assert_eq!(first.len() + all.len(), ALL);
    let different: BTreeSet<_> = first.iter().chain(&all).collect();
    assert_eq!(different.len(), ALL);
    // 4, 4, 8, 16, 32 and 64 MiB, and the arena's two.
    assert_eq!(memory.maps().len(), 8);
    assert!(memory.shortage().unwrap().to_string().contains("Options::firmware"));

    memory.unmap(&iommu).unwrap();
    assert!(memory.maps().is_empty());
    assert_eq!(*iommu.entries.borrow(), 65_535);
}

#[test]
fn returned_firmware_pages_are_unmapped() {
    let iommu = Fake::new(65_535, 1 << 40);
    let memory = memory(&iommu).unwrap();
    for _ in 0..3 {
        let pages = take(&memory, &iommu, 5000);
        assert_eq!(memory.maps().len(), 6);
        let (last, others) = pages.split_last().unwrap();
        assert_eq!(memory.pages_return(&iommu, others), others.len());
        assert_eq!(memory.maps().len(), 6);
        assert_eq!(memory.pages_return(&iommu, &[*last]), 1);
        assert_eq!(memory.maps().len(), 2);
        assert_eq!(*iommu.entries.borrow(), 65_533);
    }
}

#[test]
fn any_sufficient_limit_of_entries_works() {
    for (limit, tells) in [(3, true), (4, true), (8, true), (8, false)] {
        let mut iommu = Fake::new(limit, 1 << 40);
        iommu.tells = tells;
        let memory = memory(&iommu).unwrap();
        assert_eq!(take(&memory, &iommu, ALL).len(), ALL, "{limit} entries");
    }
    assert_eq!(memory(&Fake::new(1, 1 << 40)).unwrap_err().kind(), Kind::DmaEntries);
}

#[test]
fn scarce_memory_is_used_up_before_an_error() {
    // The arena, and three first pieces: too little for the doubled one.
    let iommu = Fake::new(65_535, (16 << 20) + (12 << 20));
    let memory = memory(&iommu).unwrap();
    assert_eq!(take(&memory, &iommu, ALL).len(), (12 << 20) / PAGE);
    assert_eq!(memory.shortage().unwrap().kind(), Kind::Memlock);
    memory.reclaim(&iommu);
    assert_eq!(memory.shortage(), None);
    assert_eq!(memory_error(0).kind(), Kind::Memlock);
}

fn memory_error(bytes: u64) -> Error {
    let iommu = Fake::new(65_535, bytes);
    let error = memory(&iommu).unwrap_err();
    // Mappings made before the error are ended.
    assert_eq!(*iommu.entries.borrow() + 1, 65_535);
    error
}

#[test]
fn no_space_for_addresses_is_an_error() {
    let ranges = [0..=(8 << 20) - 1];
    let iommu = Fake::new(8, 1 << 40);
    let error = Memory::new(&Options::default(), &ranges, Pages::private, &iommu).unwrap_err();
    assert_eq!(error.kind(), Kind::Iova);
}

fn lent(from: u64, len: u64) -> Option<Promised> {
    // SAFETY: this IOMMU does nothing to memory.
    #[expect(unsafe_code, reason = "the contract is trivial for this IOMMU")]
    unsafe {
        Promised::new(from, len)
    }
}

fn region(addr: u64, len: u64) -> Region {
    Region { addr, len }
}

#[test]
fn what_is_lent_to_be_written_can_be_stored_to() {
    let iommu = Fake::new(65_535, 1 << 40);
    let memory = memory(&iommu).unwrap();
    let bytes: Vec<_> = (0..4 * PAGE).map(|_| AtomicU8::new(0)).collect();
    let start = bytes.as_ptr().expose_provenance();
    let first = start.next_multiple_of(PAGE) - start;
    let base = (start + first) as u64;
    let at = |offset: usize| bytes[first + offset].load(Ordering::Relaxed);
    assert!(!memory.write(base, b"x"), "nothing is lent");
    memory.lend(&iommu, lent(base, 1), Reach::Read).unwrap();
    assert!(!memory.write(base, b"x"), "lent to be read");
    memory.lend(&iommu, lent(base, 2 * PAGE as u64), Reach::ReadWrite).unwrap();
    assert!(memory.write(base + 3, b"message"));
    assert_eq!([3, 9, 10].map(at), *b"me\0");
    let end = base + 2 * PAGE as u64;
    assert!(memory.write(end - 1, b"x") && !memory.write(end - 1, b"xy"));
    assert!(!memory.write(base - 1, b"xy") && !memory.write(u64::MAX, b"xy"));
    memory.take_back(&iommu, region(base, 2 * PAGE as u64));
    assert!(!memory.write(base, b"x"));
}

#[test]
fn lent_memory_is_mapped_once_for_all_ranges_inside_and_is_counted() {
    let iommu = Fake::new(65_535, 1 << 40);
    let memory = memory(&iommu).unwrap();
    let lend = |from, len| memory.lend(&iommu, lent(from, len), Reach::ReadWrite);
    let back = |from, len| memory.take_back(&iommu, region(from, len));
    let entries = || memory.maps().len() - 2;
    let base = 0x7fff_1234_5000;
    assert_eq!(memory.lent(region(base, 1)), None);
    lend(base + 5, 0x1000).unwrap();
    let map = memory.maps()[2];
    assert_eq!((map.len, map.purpose), (0x2000, "process"));
    assert_eq!(map.iova % HUGE as u64, base % HUGE as u64);
    assert_eq!(memory.lent(region(base + 7, 9)), Some(map.iova + 7));
    assert_eq!(memory.lent(region(base + 7, 0x2000)), None);
    // The same pages, a superset and a subset.
    lend(base, 0x2000).unwrap();
    assert_eq!((entries(), *iommu.held.borrow()), (1, 1));
    lend(base - 0x3000, 0x9000).unwrap();
    lend(base + 0x1000, 1).unwrap();
    assert_eq!((entries(), *iommu.held.borrow()), (2, 3));
    assert_eq!(memory.lent(region(base + 7, 9)), Some(map.iova + 7));
    let inner = memory.lent(region(base + 0x1001, 9)).unwrap();
    assert_eq!(inner, map.iova + 0x1001, "the mapping around it");
    assert_eq!(memory.lent(region(base + 0xfff, 2)), Some(map.iova + 0xfff));
    back(base, 0x2000);
    assert_eq!((entries(), *iommu.held.borrow()), (2, 3));
    back(base, 0x1fff);
    assert_eq!((entries(), *iommu.held.borrow()), (2, 2), "the page inside is still lent");
    assert_eq!(memory.lent(region(base + 0x1001, 9)), Some(inner));
    assert!(memory.lent(region(base + 7, 9)).is_some(), "by the longer range");
    back(base + 0x1000, 1);
    assert_eq!((entries(), *iommu.held.borrow()), (1, 1));
    lend(base + 0x1000, 1).unwrap();
    assert_eq!((entries(), *iommu.held.borrow()), (1, 2));
    back(base - 0x3000, 0x9000);
    assert_eq!((entries(), *iommu.held.borrow()), (1, 1));
    // What is mapped for the page inside was taken back, and may be other memory now.
    lend(base, 1).unwrap();
    assert_eq!((entries(), *iommu.held.borrow()), (2, 2));
    back(base + 0x1000, 1);
    assert_eq!((entries(), *iommu.held.borrow()), (1, 1));
    // Firmware pages are unmapped in between.
    let pages = take(&memory, &iommu, 3);
    lend(0x1000, 1).unwrap();
    assert_eq!(memory.pages_return(&iommu, &pages), 3);
    assert_eq!(entries(), 2);
    memory.reclaim(&iommu);
    assert_eq!((entries(), *iommu.held.borrow()), (0, 0));
    lend(0x1000, 1).unwrap();
    memory.unmap(&iommu).unwrap();
    assert_eq!((memory.maps().len(), *iommu.held.borrow()), (0, 0));
    assert_eq!(*iommu.entries.borrow(), 65_535);
}

#[test]
fn a_failed_lend_changes_nothing() {
    let iommu = Fake::new(3, (16 << 20) + 0x2000);
    let memory = memory(&iommu).unwrap();
    let lend = |from, len| {
        let done = memory.lend(&iommu, lent(from, len), Reach::Read);
        done.map_err(|error| error.kind())
    };
    assert_eq!(lend(0x1000, 0x3000), Err(Kind::Memlock));
    assert_eq!((memory.maps().len(), *iommu.held.borrow()), (2, 0));
    *iommu.entries.borrow_mut() = 1;
    assert_eq!(lend(0x1000, 0x1000), Ok(()));
    assert_eq!(lend(0x5000, 0x1000), Err(Kind::DmaEntries));
    assert_eq!(lend(0x1000, 1 << 40), Err(Kind::Iova));
    assert_eq!(lend(0x1000, 0), Err(Kind::Address));
    assert_eq!(lend(u64::MAX, 1), Err(Kind::Address));
    let arena = memory.arena().pages().addr();
    assert_eq!(lend(arena + 5000, 100), Ok(()), "already mapped");
    assert_eq!((memory.maps().len(), *iommu.held.borrow()), (3, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn pages_are_allocated_once_and_freed_once(
        steps in proptest::collection::vec((any::<bool>(), 0usize..3000), 1..20),
        stray: u64,
    ) {
        let iommu = Fake::new(65_535, 1 << 40);
        let memory = memory(&iommu).unwrap();
        let mut held = BTreeSet::new();
        for (take_some, count) in steps {
            if take_some {
                for page in take(&memory, &iommu, count) {
                    prop_assert!(held.insert(page));
                }
            } else {
                let some: Vec<_> = held.iter().copied().take(count).collect();
                prop_assert_eq!(memory.pages_return(&iommu, &some), some.len());
                prop_assert_eq!(memory.pages_return(&iommu, &some), 0);
                some.iter().for_each(|page| assert!(held.remove(page)));
            }
            prop_assert!(held.contains(&stray) || memory.pages_return(&iommu, &[stray, u64::MAX, 1]) == 0);
        }
    }
}
