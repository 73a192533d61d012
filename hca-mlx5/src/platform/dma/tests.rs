//! The arena: what it hands out, what it takes back, what it keeps away from.

use super::*;
use crate::platform::RegisterByOffset;
use proptest::prelude::*;
use std::vec::Vec as List;

/// Page-aligned memory that lives as long as the test.
struct Memory(List<Page>);

#[derive(Clone, Copy)]
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "reached through the arena only")] [u8; 4096]);

impl Memory {
    fn new(pages: usize) -> Self {
        Self(std::vec![Page([0xa5; 4096]); pages])
    }

    fn arena<const HOLES: usize>(&mut self) -> RawArena<HOLES> {
        let len = self.0.len() * 4096;
        let base = NonNull::new(self.0.as_mut_ptr()).unwrap().cast();
        // SAFETY: the pages are aligned, outlive the arena in each test, and are reached only
        // through it.
        unsafe { RawArena::new(base, len) }
    }
}

#[test]
fn spans_are_zeroed_aligned_and_apart() {
    let mut memory = Memory::new(4);
    let arena = memory.arena::<16>();
    let a = arena.alloc(100, 1).unwrap();
    let b = arena.alloc(64, 4096).unwrap();
    let c = arena.alloc(1, 64).unwrap();
    assert_eq!((a.len, b.len, c.len), (100, 64, 1));
    assert_eq!(b.offset % 4096, 0);
    assert_eq!(c.offset % 64, 0);
    assert!(a.offset + 128 <= c.offset || c.offset + 64 <= a.offset);
    let mut bytes = [1; 100];
    arena.read_bytes(a.offset, &mut bytes);
    assert_eq!(bytes, [0; 100]);
}

#[test]
fn what_goes_back_is_whole_again() {
    let mut memory = Memory::new(2);
    let arena = memory.arena::<8>();
    let spans: List<_> = (0..6).map(|_| arena.alloc(700, 64).unwrap()).collect();
    for index in [1, 3, 5, 0, 2, 4] {
        arena.free(spans[index]);
    }
    assert_eq!(arena.available(), 8192);
    assert_eq!(arena.alloc(8192, 4096), Some(Span { offset: 0, len: 8192 }));
    assert_eq!(arena.alloc(1, 1), None);
}

#[test]
fn reclaiming_takes_everything_back() {
    let mut memory = Memory::new(2);
    let arena = memory.arena::<8>();
    for _ in 0..3 {
        let _ = arena.alloc(1000, 64).unwrap();
    }
    arena.reclaim();
    assert_eq!(arena.available(), 8192);
    assert_eq!(arena.alloc(8192, 4096).unwrap().offset, 0);
}

#[test]
fn a_span_given_back_twice_counts_once() {
    let mut memory = Memory::new(1);
    let arena = memory.arena::<8>();
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
    let mut memory = Memory::new(1);
    let arena = memory.arena::<8>();
    assert_eq!(arena.alloc(usize::MAX, 64), None);
    assert_eq!(arena.alloc(64, 96), None, "not a power of two");
    assert_eq!(arena.alloc(4097, 64), None);
}

#[test]
fn outside_reads_zero_and_drops_stores() {
    let mut memory = Memory::new(1);
    let arena = memory.arena::<8>();
    arena.store32(4096, 1);
    arena.store_words(4092, &[1]);
    arena.store_words(4088, &[1, 2]);
    arena.write_bytes(4094, &[1, 2, 3, 4]);
    assert_eq!(arena.load32(4096), 0);
    assert_eq!(arena.load32(usize::MAX - 3), 0);
    assert_eq!(arena.load_words::<2>(4088), [0, 0]);
    let mut tail = [9; 4];
    arena.read_bytes(4094, &mut tail);
    assert_eq!(tail, [1, 2, 0, 0]);
    arena.read_bytes(usize::MAX, &mut tail);
    assert_eq!(tail, [0; 4]);
    arena.write_bytes(usize::MAX, &tail);
}

#[test]
fn too_many_holes_lose_memory_and_nothing_else() {
    let mut memory = Memory::new(1);
    let arena = memory.arena::<2>();
    let spans: List<_> = (0..8).map(|_| arena.alloc(64, 64).unwrap()).collect();
    for span in spans.iter().step_by(2) {
        arena.free(*span);
    }
    assert_eq!(arena.available(), 4096 - 8 * 64 + 64);
    assert_eq!(arena.alloc(64, 64), Some(spans[0]));
}

#[test]
fn entries_agree_with_the_accessors() {
    use crate::platform::entries::tests::{SPAN, agree};
    let mut memory = Memory::new(1);
    let arena = memory.arena::<2>();
    arena.write_bytes(0, &[0; 4096]);
    agree(arena.entries::<64>(SPAN).unwrap(), |at| {
        let [word] = arena.load_words(at);
        word
    });
    let beyond = Span { offset: 4096 - 64, len: 128 };
    assert!(arena.entries::<64>(beyond).is_none());
}

#[test]
fn the_device_sees_what_is_left() {
    let mut memory = Memory::new(1);
    let arena = memory.arena::<2>();
    assert_eq!(arena.iova(1 << 40, 0), Some((1 << 40, 4096)));
    assert_eq!(arena.iova(1 << 40, 4095), Some(((1 << 40) + 4095, 1)));
    assert_eq!(arena.iova(1 << 40, 4096), None);
    assert_eq!(arena.iova(u64::MAX, 1), None, "beyond the last address");
}

/// A platform that is nothing but an arena.
struct OnlyArena<'a>(&'a RawArena<8>);

impl Platform for OnlyArena<'_> {
    const WRITE_COMBINING: bool = false;
    fn bar_len(&self) -> usize {
        0
    }
    fn read32(&self, _: usize) -> u32 {
        u32::MAX
    }
    fn write32(&self, _: usize, _: u32) {}
    fn write64(&self, _: usize, _: u64) {}
    fn write_block(&self, _: usize, _: &[u64; 8]) {}
    type Register<'p>
        = RegisterByOffset<'p, Self>
    where
        Self: 'p;

    fn register(&self, offset: usize, half: usize) -> Option<RegisterByOffset<'_, Self>> {
        RegisterByOffset::new(self, offset, half)
    }

    crate::forward_arena!(0);

    fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        self.0.iova(0, offset)
    }
    fn pages_take(&self, _: &mut [u64]) -> usize {
        0
    }
    fn pages_return(&self, _: &[u64]) -> usize {
        0
    }
    fn before_doorbell(&self) {}
    fn after_ownership(&self) {}
    fn after_mmio(&self) {}
    fn now(&self) -> u64 {
        0
    }
    fn relax(&self) {}
    fn entropy(&self) -> u64 {
        0
    }
}

#[test]
fn a_buffer_keeps_to_itself() {
    let mut memory = Memory::new(3);
    let arena = memory.arena::<8>();
    let platform = OnlyArena(&arena);
    let other = Buffer::zeroed(&platform, 4096).unwrap();
    let buffer = Buffer::zeroed(&platform, 10).unwrap();
    assert_eq!(buffer.addr() - platform.arena_addr(), 4096);
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
        let mut memory = Memory::new(1);
        let arena = memory.arena::<8>();
        arena.write_bytes(offset, &bytes);
        let mut back = std::vec![0; bytes.len()];
        arena.read_bytes(offset, &mut back);
        prop_assert_eq!(back, bytes);
        let mut around = [0; 1];
        if offset > 0 {
            arena.read_bytes(offset - 1, &mut around);
            prop_assert_eq!(around, [0xa5]);
        }
    }

    #[test]
    fn spans_never_overlap(steps in prop::collection::vec((1usize..3000, 0u32..8, any::<bool>()), 1..60)) {
        let mut memory = Memory::new(8);
        let arena = memory.arena::<32>();
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
