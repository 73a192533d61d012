//! The arena: what it hands out, what it takes back, what it keeps away from.

use super::*;
use crate::platform::{Bar, Blocks, Clock, Dma, Fence, RawArena, arena_words};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::vec::Vec as List;

/// Page-aligned memory of a test.
#[derive(Debug)]
pub(crate) struct Pages {
    memory: Memory,
    _pages: List<Page>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "reached through the memory only")] [u8; 4096]);

impl Pages {
    pub(crate) fn new(len: usize, byte: u8) -> Self {
        let mut pages = std::vec![Page([byte; 4096]); len.div_ceil(4096)];
        let base = NonNull::new(pages.as_mut_ptr()).unwrap().cast();
        // SAFETY: the pages are aligned, live as long as the value, and are reached only through
        // it and what it hands out.
        Self { memory: unsafe { Memory::new(base, len) }, _pages: pages }
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The same memory, probed, for one who keeps the pages beside it.
    pub(crate) fn probed<T: Probe>(&self, addr: u64, probe: T) -> Memory<T> {
        // SAFETY: as above; whoever has the value drops both together.
        unsafe { Memory::probed(self.memory.base, self.memory.len, addr, probe) }
    }

    fn arena(&self) -> RawArena<List<u64>> {
        let words = std::vec![0; arena_words(self.memory.len())];
        RawArena::new(self.probed(self.memory.addr(), ()), words)
    }
}

#[test]
fn spans_are_zeroed_aligned_and_apart() {
    let pages = Pages::new(4 * 4096, 0xa5);
    let arena = pages.arena();
    let a = arena.alloc(100, 1).unwrap();
    let b = arena.alloc(64, 4096).unwrap();
    let c = arena.alloc(1, 64).unwrap();
    assert_eq!((a.len, b.len, c.len), (100, 64, 1));
    assert_eq!(b.offset % 4096, 0);
    assert_eq!(c.offset % 64, 0);
    assert!(a.offset + 128 <= c.offset || c.offset + 64 <= a.offset);
    let mut bytes = [1; 100];
    arena.memory().read_bytes(a.offset, &mut bytes);
    assert_eq!(bytes, [0; 100]);
}

#[test]
fn what_goes_back_is_whole_again() {
    let pages = Pages::new(2 * 4096, 0xa5);
    let arena = pages.arena();
    let spans: List<_> = (0..6).map(|_| arena.alloc(700, 64).unwrap()).collect();
    for index in [1, 3, 5, 0, 2, 4] {
        arena.free(spans[index]);
    }
    assert_eq!(arena.available(), 8192);
    assert_eq!(arena.alloc(8192, 4096), Some(Span { offset: 0, len: 8192 }));
    assert_eq!(arena.alloc(1, 1), None);
}

/// The runs of free bytes, by what is out.
fn runs(out: &BTreeMap<usize, usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let mut end = 0;
    let out = out.iter().map(|(&offset, &size)| (offset, size));
    out.chain([(len, 0)]).map(move |(offset, size)| {
        let run = end..offset;
        end = offset + size;
        run
    })
}

/// The longest of them.
fn longest(out: &BTreeMap<usize, usize>, len: usize) -> usize {
    runs(out, len).map(|run| run.len()).max().unwrap_or(0)
}

/// Whatever comes and goes, spans do not overlap, nothing is lost, and what fits is found.
#[test]
fn an_arena_is_an_interval_map() {
    // Not a power of two, and not of whole pages.
    const LEN: usize = 37 * 4096 + 192;
    let pages = Pages::new(LEN, 0);
    let arena = pages.arena();
    let mut out = BTreeMap::new();
    let mut word = 9_u64;
    let mut next = |below: usize| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (word >> 33) as usize % below
    };
    let (mut refused, mut largest) = (0, 0);
    for _ in 0..40_000 {
        if next(100) < 52 {
            let len = [64, 1 + next(500), 4096, 1 + next(20_000)][next(4)];
            let align = 64 << (next(8) * next(2));
            let size = len.next_multiple_of(64);
            match arena.alloc(len, align) {
                Some(span) => {
                    assert_eq!((span.len, span.offset % align), (len, 0));
                    let before = out.range(..span.offset + size).next_back();
                    assert!(before.is_none_or(|(at, len)| at + len <= span.offset));
                    assert!(span.offset + size <= LEN);
                    out.insert(span.offset, size);
                }
                None => {
                    let fits =
                        |run: Range<usize>| run.start.next_multiple_of(align) + size <= run.end;
                    assert!(!runs(&out, LEN).any(fits), "{size} by {align}");
                    refused += 1;
                    largest = largest.max(longest(&out, LEN));
                }
            }
        } else if !out.is_empty() {
            let at = *out.keys().nth(next(out.len())).unwrap();
            let size = out.remove(&at).unwrap();
            arena.free(Span { offset: at, len: size });
        }
        assert_eq!(arena.available(), LEN - out.values().sum::<usize>());
    }
    assert!(refused > 100 && largest > 0);
    for (offset, len) in core::mem::take(&mut out) {
        arena.free(Span { offset, len });
    }
    assert_eq!(arena.alloc(LEN, 64), Some(Span { offset: 0, len: LEN }));
}

/// An arena of which every second cache line is free is not searched for two by each allocation,
/// whatever is given back that makes no room for them; and is, once there is room.
#[test]
fn what_is_not_there_is_not_searched_for_again() {
    const LEN: usize = 16 << 20;
    let pages = Pages::new(LEN, 0);
    let arena = pages.arena();
    let out: List<_> = (0..LEN / 64).map(|_| arena.alloc(64, 64).unwrap()).collect();
    out.iter().step_by(2).for_each(|span| arena.free(*span));
    // A search is over 131,072 blocks: so many searches take minutes.
    for _ in 0..100_000 {
        assert_eq!(arena.alloc(128, 64), None);
        assert_eq!(arena.alloc(4096, 4096), None);
        let one = arena.alloc(64, 64).unwrap();
        arena.free(one);
    }
    arena.free(out[77_777]);
    assert_eq!(arena.alloc(128, 64).unwrap().offset, 77_776 * 64);
}

/// A million spans of mixed sizes come and go in a quarter of the arena: none is refused, and half
/// of what is free stays in one piece.
#[test]
fn churn_leaves_long_runs() {
    const LEN: usize = 16 << 20;
    let pages = Pages::new(LEN, 0);
    let arena = pages.arena();
    let mut out: List<Span> = List::new();
    let mut taken = 0;
    let mut word = 3_u64;
    let mut next = |below: usize| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (word >> 33) as usize % below
    };
    let mut made = 0;
    while made < 1_000_000 {
        if taken < LEN / 4 && (out.is_empty() || next(2) == 0) {
            // Keys' lists and records, queues, a queue now and then that is long.
            let len = [64, 128, 320, 4096, 8192, 24 << 10][next(6)] << (next(3) * next(2));
            let span = arena.alloc(len, if len < 4096 { 64 } else { 4096 }).unwrap();
            taken += len;
            out.push(span);
            made += 1;
        } else {
            let span = out.swap_remove(next(out.len()));
            taken -= span.len;
            arena.free(span);
        }
    }
    let spans = out.iter().map(|span| (span.offset, span.len.next_multiple_of(64))).collect();
    assert!(longest(&spans, LEN) >= arena.available() / 2, "{}", longest(&spans, LEN));
}

#[test]
fn reclaiming_takes_everything_back() {
    let pages = Pages::new(2 * 4096, 0xa5);
    let arena = pages.arena();
    for _ in 0..3 {
        let _ = arena.alloc(1000, 64).unwrap();
    }
    arena.reclaim();
    assert_eq!(arena.available(), 8192);
    assert_eq!(arena.alloc(8192, 4096).unwrap().offset, 0);
}

#[test]
fn an_arena_is_as_long_as_its_words_suffice() {
    let pages = Pages::new(8 * 4096, 0xa5);
    for words in [0, 1, 2, 5, 17, 18, 100] {
        let memory = pages.probed(0, ());
        let arena = RawArena::new(memory, std::vec![u64::MAX; words]);
        let len = arena.available();
        assert!(arena_words(len) <= words && (arena_words(len + 64) > words || len == 8 * 4096));
        assert_eq!(arena.alloc(len.max(1), 64).is_some(), len != 0, "{words}");
        assert_eq!(arena.alloc(1, 1), None);
    }
}

#[test]
fn a_span_given_back_twice_counts_once() {
    let pages = Pages::new(4096, 0xa5);
    let arena = pages.arena();
    let a = arena.alloc(64, 64).unwrap();
    let b = arena.alloc(64, 64).unwrap();
    arena.free(a);
    arena.free(a);
    assert_eq!(arena.available(), 4096 - 64);
    arena.free(b);
    arena.free(Span { offset: 0, len: 4096 });
    arena.free(Span { offset: 8192, len: 64 });
    arena.free(Span { offset: 64, len: usize::MAX });
    assert_eq!(arena.available(), 4096);
}

#[test]
fn nonsense_is_refused() {
    let pages = Pages::new(4096, 0xa5);
    let arena = pages.arena();
    assert_eq!(arena.alloc(usize::MAX, 64), None);
    assert_eq!(arena.alloc(64, 96), None, "not a power of two");
    assert_eq!(arena.alloc(4097, 64), None);
}

#[test]
fn outside_reads_zero_and_drops_stores() {
    let pages = Pages::new(4096, 0xa5);
    let arena = pages.arena();
    arena.memory().store32(4096, 1);
    arena.memory().store_words(4092, &[1]);
    arena.memory().store_words(4088, &[1, 2]);
    arena.memory().write_bytes(4094, &[1, 2, 3, 4]);
    assert_eq!(arena.memory().load32(4096), 0);
    assert_eq!(arena.memory().load32(usize::MAX - 3), 0);
    assert_eq!(arena.memory().load_words::<2>(4088), [0, 0]);
    let mut tail = [9; 4];
    arena.memory().read_bytes(4094, &mut tail);
    assert_eq!(tail, [1, 2, 0, 0]);
    arena.memory().read_bytes(usize::MAX, &mut tail);
    assert_eq!(tail, [0; 4]);
    arena.memory().write_bytes(usize::MAX, &tail);
    arena.memory().store_words(4096 - 56, &[1; 8]);
    assert_eq!(arena.memory().load_words::<8>(4096 - 56), [0; 8]);
    arena.memory().store_words(4096 - 64, &[3; 8]);
    assert_eq!(arena.memory().load_words(4096 - 64), [3; 8], "the last block is inside");
}

/// Also in memory that ends inside a page, and inside a word.
#[test]
fn a_block_that_ends_one_byte_outside_is_outside() {
    let pages = Pages::new(4096 + 7, 0xa5);
    assert_eq!(pages.memory().load_words::<8>(4096 - 56), [0; 8]);
    assert_ne!(pages.memory().load_words::<8>(4096 - 64), [0; 8]);
}

const SPAN: Span = Span { offset: 128, len: 256 };

#[test]
fn entries_agree_with_the_accessors() {
    let pages = Pages::new(4096, 0);
    let memory = pages.memory();
    let load = |at| {
        let [word] = memory.load_words(at);
        word
    };
    let entries = memory.entries::<64>(SPAN).unwrap();
    // An index is cut to the ring, whatever lap it is of.
    entries.store_words::<2, 16>(5, &[0x1122, 0x3344]);
    assert_eq!((load(128 + 64 + 16), load(128 + 64 + 24)), (0x1122, 0x3344));
    assert_eq!(entries.load_words::<2, 16>(1), [0x1122, 0x3344]);
    entries.store32::<60>(u32::MAX, 0xdead_beef);
    assert_eq!(entries.load32::<60>(3), 0xdead_beef);
    assert_ne!(load(128 + 3 * 64 + 56), 0);
    // The same without the memory.
    let mut cursor = entries.cursor();
    cursor.head = 7;
    cursor.of(memory).store_words::<1, 0>(cursor.head, &[7]);
    assert_eq!(load(128 + 3 * 64), 7);
    entries.first().of(memory).store_words::<1, 0>(1, &[8]);
    assert_eq!(load(128), 8);
    // Nothing outside.
    assert_eq!((load(120), load(384)), (0, 0));
}

#[test]
fn spans_that_are_no_ring_are_refused() {
    let whole = |offset, len| mask::<64>(Span { offset, len }, 4096);
    assert_eq!(whole(0, 64), Some(0));
    assert_eq!(whole(4096 - 256, 256), Some(3));
    assert_eq!(whole(4096 - 192, 256), None, "beyond the end");
    assert_eq!(whole(4096, 64), None);
    assert_eq!(whole(usize::MAX - 63, 64), None);
    assert_eq!(whole(32, 64), None, "not on a multiple");
    assert_eq!(whole(0, 192), None, "no power of two");
    assert_eq!(whole(0, 96), None);
    assert_eq!(whole(0, 0), None);
}

/// Notes every access: kind, offset and length.
#[derive(Default)]
struct Notes(RefCell<List<(char, usize, usize)>>);

impl Probe for Rc<Notes> {
    fn load32(&self, offset: usize, value: u32) -> u32 {
        self.0.borrow_mut().push(('w', offset, 4));
        value + 1
    }
    fn load(&self, offset: usize, len: usize) {
        self.0.borrow_mut().push(('l', offset, len));
    }
    fn store(&self, offset: usize, bytes: &[u8]) {
        self.0.borrow_mut().push(('s', offset, bytes.len()));
    }
}

#[test]
fn a_probe_sees_every_access_where_it_is() {
    let (pages, notes) = (Pages::new(4096, 0), Rc::new(Notes::default()));
    let memory = pages.probed(1 << 40, notes.clone());
    assert_eq!(memory.addr(), 1 << 40);
    let seen = |expected: &[(char, usize, usize)]| assert_eq!(notes.0.take(), expected);
    memory.store32(8, 7);
    assert_eq!(memory.load32(8), 8, "as the probe says");
    memory.store_words(16, &[1, 2]);
    assert_eq!(memory.load_words(16), [1, 2]);
    memory.write_bytes(33, &[1, 2, 3]);
    memory.read_bytes(33, &mut [0; 3]);
    seen(&[('s', 8, 4), ('w', 8, 4), ('s', 16, 16), ('l', 16, 16), ('s', 33, 3), ('l', 33, 3)]);
    let entries = memory.entries::<64>(SPAN).unwrap();
    entries.store32::<60>(5, 7);
    assert_eq!(entries.load32::<60>(1), 8);
    entries.store_words::<2, 16>(0, &[1, 2]);
    assert_eq!(entries.load_words::<2, 16>(0), [1, 2]);
    assert_eq!(memory.word_at((1 << 40) + 320), Some(0));
    seen(&[('s', 252, 4), ('w', 252, 4), ('s', 144, 16), ('l', 144, 16), ('l', 320, 8)]);
    // What does not take place is not seen.
    memory.store32(4096, 7);
    assert_eq!((memory.load32(4096), memory.load_words(4096)), (0, [0]));
    assert_eq!(memory.word_at((1 << 40) + 4096), None);
    seen(&[]);
}

#[test]
fn words_and_blocks_are_found_by_address() {
    let pages = Pages::new(4096, 0);
    let (memory, start) = (pages.probed(1 << 40, ()), 1 << 40);
    memory.store_words(8, &[7]);
    memory.store_words(4088, &[8]);
    assert_eq!([8, 4088].map(|at| memory.word_at(start + at)), [Some(7), Some(8)]);
    let wrong = [start + 9, start + 4092, start + 4096, start - 8, 0, u64::MAX, u64::MAX - 7];
    assert_eq!(wrong.map(|addr| memory.word_at(addr)), [None; 7]);
    let blocks = [start, start + 33, start + 4032].map(|addr| memory.block_at(addr));
    assert_eq!(blocks, [Some(0), Some(33), Some(4032)]);
    assert_eq!([start - 1, start + 4033, u64::MAX].map(|addr| memory.block_at(addr)), [None; 3]);
    // None of the words of less than one.
    let short = Pages::new(4, 0);
    assert_eq!(short.probed(start, ()).word_at(start), None);
}

#[test]
fn the_device_sees_what_is_left() {
    let pages = Pages::new(4096, 0xa5);
    let arena = pages.arena();
    assert_eq!(arena.memory().iova(1 << 40, 0), Some((1 << 40, 4096)));
    assert_eq!(arena.memory().iova(1 << 40, 4095), Some(((1 << 40) + 4095, 1)));
    assert_eq!(arena.memory().iova(1 << 40, 4096), None);
    assert_eq!(arena.memory().iova(u64::MAX, 1), None, "beyond the last address");
}

/// A platform that is nothing but an arena.
struct OnlyArena<'a>(&'a RawArena<List<u64>>);

impl Bar for OnlyArena<'_> {
    fn bar_len(&self) -> usize {
        0
    }
    fn read32(&self, _: usize) -> u32 {
        u32::MAX
    }
    fn write32(&self, _: usize, _: u32) {}
    fn write64(&self, _: usize, _: u64) {}
    fn write_block(&self, _: usize, _: &[u64; 8], _: Blocks) {}
}

impl Dma for OnlyArena<'_> {
    type Probe = ();
    fn memory(&self) -> &Memory {
        self.0.memory()
    }
    fn alloc(&self, len: usize, align: usize, _: Reach) -> Option<Span> {
        self.0.alloc(len, align)
    }
    fn free(&self, span: Span) {
        self.0.free(span);
    }
    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        self.0.memory().iova(0, offset)
    }
    fn fence(&self, _: Fence) {}
    fn pages_take(&self, _: &mut [u64]) -> usize {
        0
    }
    fn pages_return(&self, _: &[u64]) -> usize {
        0
    }
}

impl Clock for OnlyArena<'_> {
    fn now(&self) -> u64 {
        0
    }
    fn relax(&self) {}
}

#[test]
fn a_buffer_keeps_to_itself() {
    let pages = Pages::new(3 * 4096, 0xa5);
    let arena = pages.arena();
    let platform = OnlyArena(&arena);
    let other = Buffer::zeroed(&platform, 4096).unwrap();
    let buffer = Buffer::zeroed(&platform, 10).unwrap();
    assert_eq!([other.addr(), buffer.addr()].map(|addr| addr - arena.memory().addr()), [0, 4096]);
    assert_eq!(buffer.region(), Region { addr: buffer.addr(), len: 10 });
    assert_eq!(buffer.copy_in(8, b"abcd"), 2);
    assert_eq!(buffer.copy_in(11, b"abcd"), 0);
    assert_eq!(buffer.copy_in(usize::MAX, b"abcd"), 0);
    let mut out = [0; 16];
    assert_eq!(buffer.copy_out(7, &mut out), 3);
    assert_eq!(&out[..4], b"\0ab\0");
    let mut all = [1; 4096];
    assert_eq!(other.copy_out(0, &mut all), 4096);
    assert_eq!(all, [0; 4096]);
    buffer.release();
    other.release();
    assert_eq!(arena.available(), 3 * 4096);
}

proptest! {
    #[test]
    fn bytes_come_back_as_they_went_in(offset in 0usize..200, bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let pages = Pages::new(4096, 0xa5);
        let arena = pages.arena();
        arena.memory().write_bytes(offset, &bytes);
        let mut back = std::vec![0; bytes.len()];
        arena.memory().read_bytes(offset, &mut back);
        prop_assert_eq!(back, bytes);
        let mut around = [0; 1];
        if offset > 0 {
            arena.memory().read_bytes(offset - 1, &mut around);
            prop_assert_eq!(around, [0xa5]);
        }
    }

    #[test]
    fn spans_never_overlap(steps in prop::collection::vec((1usize..3000, 0u32..8, any::<bool>()), 1..60)) {
        let pages = Pages::new(8 * 4096, 0xa5);
        let arena = pages.arena();
        let mut live: List<Span> = List::new();
        for (len, shift, free_one) in steps {
            if free_one && !live.is_empty() {
                arena.free(live.remove(len % live.len()));
            } else if let Some(span) = arena.alloc(len, 64 << shift) {
                prop_assert_eq!(span.offset % (64 << shift), 0);
                for other in &live {
                    prop_assert!(span.offset + span.len <= other.offset || other.offset + other.len <= span.offset);
                }
                live.push(span);
            }
        }
        for span in live {
            arena.free(span);
        }
        prop_assert_eq!(arena.available(), 8 * 4096);
    }
}
