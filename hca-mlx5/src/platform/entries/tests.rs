//! Both kinds of entries against the by-offset accessors, and spans that are refused.

use super::{Entries, mask};
use crate::data::scripted::{ARENA_LEN, Scripted};
use crate::platform::{ByOffset, Platform, Span};

pub(crate) const SPAN: Span = Span { offset: 128, len: 256 };

/// Four entries of 64 bytes in `SPAN`, seen through `load` by offset.
pub(crate) fn agree(entries: impl Entries, load: impl Fn(usize) -> u64) {
    // An index is cut to the ring, whatever lap it is of.
    entries.store_words::<2, 16>(5, &[0x1122, 0x3344]);
    assert_eq!((load(128 + 64 + 16), load(128 + 64 + 24)), (0x1122, 0x3344));
    assert_eq!(entries.load_words::<2, 16>(1), [0x1122, 0x3344]);
    entries.store32::<60>(u32::MAX, 0xdead_beef);
    assert_eq!(entries.load32::<60>(3), 0xdead_beef);
    assert_ne!(load(128 + 3 * 64 + 56), 0);
    // A word is not.
    entries.store_words::<1, 0>(3, &[7]);
    assert_eq!(entries.word(3), Some(7));
    assert_eq!([4, 1 << 32, u64::MAX].map(|at| entries.word(at)), [None; 3]);
    // Nothing outside.
    assert_eq!((load(120), load(384)), (0, 0));
}

#[test]
fn entries_by_offset_agree_with_the_accessors() {
    let p = Scripted::<false>::new();
    agree(ByOffset::<_, 64>::new(&p, SPAN).unwrap(), |at| {
        let [word] = p.load_words(at);
        word
    });
}

#[test]
fn spans_that_are_no_ring_are_refused() {
    let whole = |offset, len| mask::<64>(Span { offset, len }, ARENA_LEN);
    assert_eq!(whole(0, 64), Some(0));
    assert_eq!(whole(ARENA_LEN - 256, 256), Some(3));
    assert_eq!(whole(ARENA_LEN - 192, 256), None, "beyond the end");
    assert_eq!(whole(ARENA_LEN, 64), None);
    assert_eq!(whole(usize::MAX - 63, 64), None);
    assert_eq!(whole(32, 64), None, "not on a multiple");
    assert_eq!(whole(0, 192), None, "no power of two");
    assert_eq!(whole(0, 96), None);
    assert_eq!(whole(0, 0), None);
}
