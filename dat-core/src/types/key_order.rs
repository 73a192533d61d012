//! The order in which the low byte of a memory key goes through its values.
//!
//! The upper 24 bits of a key are an index that the device chooses; the low byte is the driver's.
//! For each index the bytes follow each other in one cycle through all 256, so a key comes back
//! after 256 binds or registrations of its index and never before: 255 others lie between. Which
//! cycle it is follows from random tables and from the index; the next key follows from the present
//! one. A window keeps what follows from its index, so a bind costs four loads.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

type Table = [AtomicU8; 256];

/// The order of the keys of one adapter.
#[derive(Debug)]
pub struct KeyOrder {
    /// One cycle through all bytes.
    next: Table,
    /// A permutation and its inverse: the cycle is seen through it.
    through: Table,
    back: Table,
    /// Makes two bytes of an index, by which cycle and permutation are shifted.
    factor: AtomicU32,
}

impl Default for KeyOrder {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyOrder {
    /// An order that has to be filled before use.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            next: [const { AtomicU8::new(0) }; 256],
            through: [const { AtomicU8::new(0) }; 256],
            back: [const { AtomicU8::new(0) }; 256],
            factor: AtomicU32::new(0),
        }
    }

    /// Draws the tables.
    pub fn fill(&self, mut draw: impl FnMut() -> u8) {
        for table in [&self.next, &self.through] {
            for (to, value) in table.iter().zip(0..=u8::MAX) {
                to.store(value, Ordering::Relaxed);
            }
        }
        let mut below = |count: u16| {
            let drawn = u16::from_le_bytes([draw(), draw()]);
            let [_, _, low, _] = (u32::from(drawn) * u32::from(count)).to_le_bytes();
            low
        };
        for at in (1..=u8::MAX).rev() {
            // Swaps with one strictly below make a single cycle (Sattolo's algorithm).
            swap(&self.next, at, below(at.into()));
            swap(&self.through, at, below(u16::from(at) + 1));
        }
        for value in 0..=u8::MAX {
            cell(&self.back, cell(&self.through, value).load(Ordering::Relaxed))
                .store(value, Ordering::Relaxed);
        }
        let factor = u32::from_le_bytes(core::array::from_fn(|_| draw()));
        self.factor.store(factor | 1, Ordering::Relaxed);
    }

    /// Takes over the order of `other`.
    pub fn copy(&self, other: &Self) {
        let tables = [(&self.next, &other.next), (&self.through, &other.through)];
        for (to, from) in tables.into_iter().chain([(&self.back, &other.back)]) {
            for (to, from) in to.iter().zip(from) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        self.factor.store(other.factor.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The key that follows `key`: of the same index, with another low byte.
    #[inline(always)]
    #[must_use]
    pub fn after(&self, key: u32) -> u32 {
        self.step(key, self.shift(key))
    }

    /// By what cycle and permutation are shifted for the index of `key`.
    #[must_use]
    pub fn shift(&self, key: u32) -> u32 {
        (key >> 8).wrapping_mul(self.factor.load(Ordering::Relaxed)) >> 16
    }

    /// As [`Self::after`], for who keeps the shift.
    #[inline(always)]
    #[must_use]
    pub fn step(&self, key: u32, shift: u32) -> u32 {
        let [outer, inner, ..] = shift.to_le_bytes();
        let [byte, ..] = key.to_le_bytes();
        let byte = cell(&self.through, byte ^ outer).load(Ordering::Relaxed) ^ inner;
        let byte = cell(&self.next, byte).load(Ordering::Relaxed) ^ inner;
        let byte = cell(&self.back, byte).load(Ordering::Relaxed) ^ outer;
        key & !0xff | u32::from(byte)
    }
}

/// The cell of a byte. Every byte has one: the compiler sees that and leaves the test out.
#[inline(always)]
fn cell(table: &Table, byte: u8) -> &AtomicU8 {
    let [first, ..] = table;
    table.get(usize::from(byte)).unwrap_or(first)
}

fn swap(table: &Table, one: u8, other: u8) {
    let [one, other] = [one, other].map(|at| cell(table, at));
    let value = other.swap(one.load(Ordering::Relaxed), Ordering::Relaxed);
    one.store(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::random::tests::seeded;

    fn order(seed: u8) -> KeyOrder {
        let mut random = seeded(seed);
        let order = KeyOrder::new();
        order.fill(|| random.next_byte());
        order
    }

    #[test]
    fn a_key_returns_after_all_255_others_whatever_the_seed_and_the_index() {
        for seed in 1..20 {
            let order = order(seed);
            for index in [0, 1, 2, 0x1002, 0xff_ffff] {
                let first = index << 8 | 0x5a;
                let mut seen = [false; 256];
                let mut key = first;
                for turn in 0..256 {
                    assert!(!core::mem::replace(&mut seen[(key & 0xff) as usize], true), "{turn}");
                    key = order.after(key);
                    assert_eq!(key >> 8, index);
                }
                assert_eq!(key, first);
            }
        }
    }

    #[test]
    fn a_key_byte_never_repeats_its_predecessor() {
        let order = order(3);
        let mut key = 0x1234_5600;
        for _ in 0..10_000 {
            let next = order.after(key);
            assert_ne!(next, key);
            assert_eq!(next >> 8, key >> 8);
            key = next;
        }
    }

    /// A chi-square test at one in a million over 130,560 keys: what follows a key is any other byte
    /// of its index, as likely as each.
    #[test]
    fn steps_from_key_to_key_are_spread() {
        let mut steps = [0_u32; 256];
        for seed in 1..=u8::MAX {
            let order = order(seed);
            for first in [0x0010_0200, 0x0077_7700] {
                let mut key = first;
                for _ in 0..256 {
                    let next = order.after(key);
                    steps[(next.wrapping_sub(key) & 0xff) as usize] += 1;
                    key = next;
                }
            }
        }
        assert_eq!(steps[0], 0, "a key was followed by itself");
        let each = 130_560.0 / 255.0;
        let chi: f64 =
            steps[1..].iter().map(|&n| (f64::from(n) - each) * (f64::from(n) - each) / each).sum();
        assert!(chi < 380.0, "chi-square {chi} of 254 degrees of freedom");
    }

    #[test]
    fn each_index_has_an_order_of_its_own() {
        let order = order(5);
        let steps = |index: u32| {
            let mut steps = [0_u8; 256];
            for (byte, step) in (0..).zip(&mut steps) {
                [*step, ..] = order.after(index << 8 | byte).to_le_bytes();
            }
            steps
        };
        let mut alike = 0;
        for index in 0x1002..0x1102 {
            let (one, other) = (steps(index), steps(index + 1));
            alike += one.iter().zip(&other).filter(|(one, other)| one == other).count();
        }
        // By chance one of 255 steps is the same.
        assert!((150..400).contains(&alike), "{alike} of 65,536 steps");
    }

    #[test]
    fn a_copy_has_the_same_order_and_another_seed_another() {
        let (one, other, copy) = (order(1), order(2), KeyOrder::new());
        copy.copy(&one);
        let keys = || (0..256_u32).map(|byte| 0x1234_5600 | byte);
        assert!(keys().all(|key| copy.after(key) == one.after(key)));
        assert!(keys().filter(|&key| other.after(key) == one.after(key)).count() < 10);
    }
}
