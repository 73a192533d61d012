//! Tests of the bookkeeping: which pages are in which run. `tests/vfio_user` tests the exchange.

use std::sync::atomic::{AtomicU8, Ordering};

use proptest::prelude::*;

use super::*;

fn run(file: &Arc<OwnedFd>, range: Range<u64>, offset: u64) -> (u64, Run) {
    let run = Run { end: range.end, count: 1, file: Arc::clone(file), offset, exchanged: true };
    (range.start, run)
}

#[test]
fn a_run_is_split_with_its_file_offset() {
    let file = Arc::new(memory_file("test", 1).unwrap());
    let mut runs = BTreeMap::from([run(&file, 100..200, 1000)]);
    for at in [100, 200, 250, 50] {
        cut(&mut runs, at);
        assert_eq!(runs.len(), 1, "{at}");
    }
    cut(&mut runs, 130);
    let seen: Vec<_> = runs.iter().map(|(at, run)| (*at, run.end, run.offset)).collect();
    assert_eq!(seen, [(100, 130, 1000), (130, 200, 1030)]);
    assert!(gaps(&runs, &(50..100)).iter().eq([&(50..100)]));
    assert_eq!(gaps(&runs, &(100..200)), []);
    let more = run(&file, 210..220, 0);
    runs.insert(more.0, more.1);
    assert_eq!(gaps(&runs, &(100..300)), [200..210, 220..300]);
}

fn vma(range: Range<u64>, name: &str) -> Vma {
    Vma {
        range,
        rights: ProtFlags::READ | ProtFlags::WRITE,
        shared: false,
        offset: 0,
        inode: 0,
        name: name.into(),
    }
}

/// The byte below a stack that is read so that the stack may grow is stored nowhere.
#[test]
fn a_stack_that_grows_leaves_no_byte_of_the_page_below() {
    let page = page_size();
    // Leaked, since the pages stay those of the file.
    let memory: Vec<AtomicU8> = (0..4 * page).map(|_| AtomicU8::new(0)).collect();
    let memory: &[AtomicU8] = memory.leak();
    let skipped = memory.as_ptr().align_offset(page);
    let memory = &memory[skipped..][..3 * page];
    let start = memory.as_ptr().expose_provenance() as u64;
    let put = |nth: usize, value: u8| memory[nth].store(value, Ordering::Relaxed);
    put(0, 1);
    put(page - 1, 2);
    put(2 * page, 3);
    let file = memory_file("test", 3 * page as u64).unwrap();
    let end = |nth: usize| start + (nth * page) as u64;
    let part =
        |from, to, grows| Part { range: end(from)..end(to), rights: READ_WRITE, grows, file: None };
    let (done, result) = exchange(&[part(0, 1, false), part(1, 3, true)], file.as_fd(), start);
    assert_eq!((done, result.is_ok()), (3 * page as u64, true));
    let get = |nth: usize| memory[nth].load(Ordering::Relaxed);
    assert_eq!([0, page - 1, page, 2 * page].map(get), [1, 2, 0, 3]);
}

#[test]
fn gaps_are_split_by_mapping() {
    let vmas = [vma(0..100, ""), vma(100..200, "[heap]"), vma(300..400, "[stack]")];
    let seen = |gap: Range<u64>| {
        let parts = parts(&[gap], &vmas, Reach::ReadWrite)?;
        let each = |part: Part| (part.range, part.grows);
        Ok::<_, String>(parts.into_iter().map(each).collect::<Vec<_>>())
    };
    assert_eq!(seen(50..150).unwrap(), [(50..100, false), (100..150, false)]);
    assert_eq!(seen(300..310).unwrap(), [(300..310, true)]);
    assert_eq!(seen(310..400).unwrap(), [(310..400, false)]);
    assert!(seen(150..310).unwrap_err().contains("no memory at 0xc8"));
    assert!(seen(390..401).unwrap_err().contains("no memory at 0x190"));
    assert!(seen(250..260).is_err());
    let shared = Vma { shared: true, ..vma(0..100, "/dev/shm/x") };
    let refused = parts(std::slice::from_ref(&(10..20)), &[shared], Reach::Read).unwrap_err();
    assert!(refused.contains("/dev/shm/x"), "{refused}");
}

#[test]
fn the_ranges_of_the_done_bytes_are_returned() {
    let vmas = [vma(0..100, ""), vma(100..200, "")];
    let parts = parts(&[50..70, 90..150], &vmas, Reach::Read).unwrap();
    assert_eq!(done_of(&parts, 0), []);
    assert_eq!(done_of(&parts, 25), [50..70, 90..95]);
    assert_eq!(done_of(&parts, 80), [50..70, 90..100, 100..150]);
}

proptest! {
    #[test]
    fn runs_and_gaps_cover_the_pages(
        ends in proptest::collection::btree_set(0u64..1000, 0..20),
        cuts in proptest::collection::vec(0u64..1000, 0..10),
        from in 0u64..900,
        len in 1u64..100,
    ) {
        let file = Arc::new(memory_file("test", 1).unwrap());
        let ends: Vec<_> = ends.into_iter().collect();
        let all = ends.chunks_exact(2).map(|pair| run(&file, pair[0]..pair[1], pair[0] + 7));
        let mut runs: BTreeMap<_, _> = all.collect();
        let pages = from..from + len;
        let bytes = |runs: &BTreeMap<u64, Run>| runs.iter().map(|(at, run)| run.end - at).sum::<u64>();
        let before = bytes(&runs);
        for at in cuts.into_iter().chain([pages.start, pages.end]) {
            cut(&mut runs, at);
        }
        prop_assert_eq!(bytes(&runs), before);
        prop_assert!(runs.iter().all(|(at, run)| run.offset == at + 7 && *at < run.end));
        let inside: u64 = runs.range(pages.clone()).map(|(at, run)| run.end - at).sum();
        let gaps: u64 = gaps(&runs, &pages).iter().map(|gap| gap.end - gap.start).sum();
        prop_assert_eq!(inside + gaps, len);
    }
}

#[test]
fn pages_are_taken_out_of_the_parts_that_have_them() {
    let file = Arc::new(memory_file("test", 1).unwrap());
    let part = |range: Range<u64>, offset| Shared {
        range,
        rights: READ_WRITE,
        file: Arc::clone(&file),
        offset,
    };
    let seen = |parts: &[Shared]| -> Vec<_> {
        parts.iter().map(|part| (part.range.clone(), part.offset)).collect()
    };
    let all = || vec![part(10..20, 1000), part(30..40, 5)];
    for (pages, taken, rest) in [
        (0..10, vec![], vec![(10..20, 1000), (30..40, 5)]),
        (20..30, vec![], vec![(10..20, 1000), (30..40, 5)]),
        (0..50, vec![(10..20, 1000), (30..40, 5)], vec![]),
        (12..15, vec![(12..15, 1002)], vec![(10..12, 1000), (15..20, 1005), (30..40, 5)]),
        (15..32, vec![(15..20, 1005), (30..32, 5)], vec![(10..15, 1000), (32..40, 7)]),
    ] {
        let mut parts = all();
        assert_eq!(seen(&take(&mut parts, &pages)), taken, "{pages:?}");
        assert_eq!(seen(&parts), rest, "{pages:?}");
    }
}
