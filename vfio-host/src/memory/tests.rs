use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// An IOMMU that takes so many entries and so many bytes.
struct Fake {
    entries: RefCell<u32>,
    bytes: RefCell<u64>,
    tells: bool,
}

impl Fake {
    fn new(entries: u32, bytes: u64) -> Self {
        Self {
            entries: RefCell::new(entries),
            bytes: RefCell::new(bytes),
            tells: true,
        }
    }
}

impl Iommu for Fake {
    fn map(&self, area: &Area<'_>) -> Result<(), Error> {
        let full = |kind| Error::new(kind, "fake", "full", "");
        let (mut entries, mut bytes) = (self.entries.borrow_mut(), self.bytes.borrow_mut());
        assert!(area.addr().is_multiple_of(4096) && area.mapping.iova.is_multiple_of(4096));
        *entries = entries.checked_sub(1).ok_or(full(Kind::DmaEntries))?;
        *bytes = bytes
            .checked_sub(area.mapping.len)
            .ok_or(full(Kind::Memlock))?;
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
}

fn memory(iommu: &Fake) -> Result<Memory, Error> {
    Memory::new(&Options::default(), &[iova::UNTOLD], Pages::private, iommu)
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
    assert!(
        memory
            .shortage()
            .unwrap()
            .to_string()
            .contains("Options::firmware")
    );

    memory.unmap(&iommu).unwrap();
    assert!(memory.maps().is_empty());
    assert_eq!(*iommu.entries.borrow(), 65_535);
}

#[test]
fn what_the_firmware_gave_back_it_cannot_reach() {
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
fn any_limit_of_entries_that_can_do_does() {
    for (limit, tells) in [(3, true), (4, true), (8, true), (8, false)] {
        let mut iommu = Fake::new(limit, 1 << 40);
        iommu.tells = tells;
        let memory = memory(&iommu).unwrap();
        assert_eq!(take(&memory, &iommu, ALL).len(), ALL, "{limit} entries");
    }
    assert_eq!(
        memory(&Fake::new(1, 1 << 40)).unwrap_err().kind(),
        Kind::DmaEntries
    );
}

#[test]
fn little_memory_is_used_to_the_last_piece_and_then_explained() {
    // The arena, and three first pieces: too little for the doubled one.
    let iommu = Fake::new(65_535, (16 << 20) + (12 << 20));
    let memory = memory(&iommu).unwrap();
    assert_eq!(take(&memory, &iommu, ALL).len(), (12 << 20) / PAGE);
    assert_eq!(memory.shortage().unwrap().kind(), Kind::Memlock);
    memory.reclaim();
    assert_eq!(memory.shortage(), None);
    assert_eq!(memory_error(0).kind(), Kind::Memlock);
}

fn memory_error(bytes: u64) -> Error {
    let iommu = Fake::new(65_535, bytes);
    let error = memory(&iommu).unwrap_err();
    // What was mapped before the error is given back.
    assert_eq!(*iommu.entries.borrow() + 1, 65_535);
    error
}

#[test]
fn no_room_for_addresses_is_an_error() {
    let ranges = [0..=(8 << 20) - 1];
    let iommu = Fake::new(8, 1 << 40);
    let error = Memory::new(&Options::default(), &ranges, Pages::private, &iommu).unwrap_err();
    assert_eq!(error.kind(), Kind::Iova);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn pages_are_nobody_elses_and_come_back_once(
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
