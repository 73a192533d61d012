//! How bytes reach shared memory.

use super::*;
use std::sync::atomic::AtomicBool;

fn mapped(pages: u64) -> (Maps, File) {
    let fd = rustix::fs::memfd_create("maps", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(fd);
    file.set_len(pages * PAGE).unwrap();
    let maps = Maps::default();
    let again = file.try_clone().unwrap();
    maps.map(3, 0, 0x1000, pages * PAGE, Some(again)).unwrap();
    (maps, file)
}

#[test]
fn the_last_store_is_as_large_as_the_place_allows() {
    for (end, length, size) in [
        (0x1040, 64, 8),
        (0x1008, 8, 8),
        (0x1008, 7, 4),
        (0x1004, 64, 4),
        (0x1006, 2, 2),
        (0x1040, 1, 1),
        (0x1041, 64, 1),
        (0x1000, 0, 0),
    ] {
        assert_eq!(last_store(end, length), size, "{length} up to {end:#x}");
    }
}

#[test]
fn every_length_at_every_place_arrives_and_touches_nothing_else() {
    let (mut maps, _file) = mapped(2);
    for place in 0..17u64 {
        // Across the page's end, too: pages are neighbours here.
        let iova = 0x2000 - 8 + place;
        for length in 0..70usize {
            maps.write(0x1f00, &[0xee; 512]).unwrap();
            let sent: Vec<u8> = (1..=length as u8).collect();
            maps.write(iova, &sent).unwrap();
            let mut back = vec![0; length];
            maps.read(iova, &mut back).unwrap();
            assert_eq!(back, sent);
            let mut around = [0; 512];
            maps.read(0x1f00, &mut around).unwrap();
            let touched = around.iter().filter(|byte| **byte != 0xee).count();
            assert_eq!(touched, length, "{length} at {iova:#x}");
        }
    }
}

#[test]
fn a_reader_of_the_end_of_an_entry_sees_all_of_it() {
    let (mut maps, file) = mapped(1);
    let region: MmapRegion = MmapRegion::from_file(FileOffset::new(file, 0), 4096).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..50_000u64 {
                let entry: Vec<u8> = n.to_ne_bytes().repeat(8);
                maps.write(0x1040, &entry).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let slice = region.get_slice(0x40, 64).unwrap();
        while !done.load(Ordering::Acquire) {
            let last: u64 = slice.load(56, Ordering::Acquire).unwrap();
            for at in (0..56).step_by(8) {
                let word: u64 = slice.load(at, Ordering::Acquire).unwrap();
                assert!(word >= last, "byte {at} holds {word}, the end {last}");
            }
        }
    });
}

#[test]
fn the_same_memory_by_another_descriptor_is_mapped_once() {
    let (maps, file) = mapped(4);
    let region = |maps: &Maps| maps.lock().files.values().next().map(Weak::strong_count);
    assert_eq!(region(&maps), Some(1));
    for k in 0..4 {
        let again = Some(file.try_clone().unwrap());
        maps.map(1, k * PAGE, 0x10_0000 + k * PAGE, PAGE, again).unwrap();
    }
    assert_eq!(region(&maps), Some(5));
    maps.unmap(0, 0, 1 << 40).unwrap();
    assert_eq!(region(&maps), None);
}
