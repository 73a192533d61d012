//! Free memory of the in-process host, against a search through all pieces.

use std::collections::BTreeMap;

use dat_tests::host::free::Free;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Bytes of the arena.
const SIZE: usize = 1 << 18;

/// The first piece between those in use that fits.
fn first_fit(used: &BTreeMap<usize, usize>, len: usize, align: usize) -> Option<usize> {
    let mut at: usize = 0;
    for (&start, &size) in used.iter().chain([(&SIZE, &0)]) {
        let begin = at.next_multiple_of(align);
        if begin + len <= start {
            return Some(begin);
        }
        at = start + size;
    }
    None
}

#[test]
fn the_first_piece_that_fits_is_taken() {
    let mut rng = SmallRng::seed_from_u64(7);
    let (mut free, mut used) = (Free::new(SIZE), BTreeMap::new());
    let mut refused = 0;
    for _ in 0..20_000 {
        if rng.random_bool(0.52) {
            let most = if rng.random_bool(0.1) { 400 } else { 40 };
            let len = 64 * rng.random_range(1..most);
            let align = [64, 256, 1024, 4096][rng.random_range(0..4)];
            let taken = free.take(len, align);
            assert_eq!(taken, first_fit(&used, len, align), "{len} bytes at {align}");
            match taken {
                Some(at) => drop(used.insert(at, len)),
                None => refused += 1,
            }
        } else if !used.is_empty() {
            let nth = rng.random_range(0..used.len());
            let at = *used.keys().nth(nth).unwrap();
            free.give(at, used.remove(&at).unwrap());
        }
        assert_eq!(free.bytes(), SIZE - used.values().sum::<usize>());
    }
    assert!(refused > 100, "{refused} did not fit");
}
