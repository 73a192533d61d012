//! Low bytes of keys whose index the firmware gives out again.
//!
//! CREATE_MKEY carries the low byte and answers with the index, so the byte is chosen before the
//! index is known. The newest keys of the last [`KEPT`] freed indexes are kept: a new key of one of
//! them must be the one that follows in the adapter's order. The byte is guessed from the order in
//! which this firmware reuses indexes; after a wrong guess the key is destroyed, unused, and made
//! anew. An index freed before those has rested while [`KEPT`] others were freed.

use dat_core::provider::KeyOrder;
use heapless::Deque;

use crate::prm::mkey::Mkey;

/// Freed indexes that are remembered.
pub(crate) const KEPT: usize = 256;

/// Which index the firmware takes next, as far as was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reuse {
    /// One that was never used.
    #[default]
    Never,
    FreedFirst,
    FreedLast,
}

/// The low byte for a key, if there is a reason to choose one, and the order that it was chosen by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guess {
    pub(crate) byte: Option<u8>,
    by: Reuse,
}

/// The freed keys of one device.
#[derive(Debug, Default)]
pub(crate) struct KeyRest {
    pub(crate) order: KeyOrder,
    /// The newest key of each, in the order in which they were freed.
    freed: Deque<Mkey, KEPT>,
    reuse: Reuse,
}

impl KeyRest {
    /// The low byte for the next key behind `ahead` others that are being made, if its index is
    /// likely to be a freed one.
    pub(crate) fn guess(&self, ahead: usize) -> Guess {
        let key = match self.reuse {
            Reuse::Never => None,
            Reuse::FreedFirst => self.freed.iter().nth(ahead),
            Reuse::FreedLast => self.freed.iter().nth_back(ahead),
        };
        let byte = key.map(|key| self.order.after(key.0).to_le_bytes()[0]);
        Guess { byte, by: self.reuse }
    }

    /// Whether `key`, just made after that guess, may be used: it follows the newest of its index,
    /// or has none before it, or is the `last` try. If not, it has to be destroyed again.
    pub(crate) fn admits(&mut self, key: Mkey, guess: Guess, last: bool) -> bool {
        let place = self.freed.iter().position(|freed| freed.index() == key.index());
        let Some(place) = place else { return true };
        let newest = self.take(place);
        if last || newest.is_none_or(|newest| self.order.after(newest.0) == key.0) {
            return true;
        }
        // One of several that were guessed at the same time has shown it already.
        if self.reuse == guess.by {
            self.learn(place);
        }
        newest.into_iter().for_each(|newest| self.free(newest));
        false
    }

    /// Takes note of which of the freed keys the firmware took, when it was not the one expected.
    fn learn(&mut self, place: usize) {
        self.reuse = if place == 0 && !self.freed.is_empty() && self.reuse != Reuse::FreedFirst {
            Reuse::FreedFirst
        } else {
            Reuse::FreedLast
        };
    }

    /// Takes note of a destroyed key, the newest of its index.
    pub(crate) fn free(&mut self, key: Mkey) {
        if self.freed.is_full() {
            let _ = self.freed.pop_front();
        }
        let _ = self.freed.push_back(key);
    }

    fn take(&mut self, place: usize) -> Option<Mkey> {
        let mut found = None;
        for at in 0..self.freed.len() {
            match self.freed.pop_front() {
                key if at == place => found = key,
                Some(key) => self.free(key),
                None => break,
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};
    use std::vec::Vec;

    use super::*;
    use dat_core::provider::Random;

    /// How a firmware chooses among its free indexes.
    type Choice = fn(&mut VecDeque<u32>) -> u32;

    const INDEXES: u32 = 8;

    /// Registers and frees under a firmware with [`INDEXES`] indexes; returns the keys of each in
    /// order, and how many were made in vain.
    fn run(choose: Choice, held: usize) -> (BTreeMap<u32, Vec<u32>>, u32) {
        let mut rest = KeyRest::default();
        let mut random = Random::new([7; 32]);
        rest.order.fill(|| random.next_byte());
        let mut free: VecDeque<u32> = (1..=INDEXES).collect();
        let (mut live, mut keys, mut vain) = (VecDeque::new(), BTreeMap::new(), 0);
        for _ in 0..8000 {
            let key = loop {
                let guess = rest.guess(0);
                let byte = guess.byte.unwrap_or_else(|| random.next_byte());
                let key = Mkey::new(choose(&mut free), byte);
                if rest.admits(key, guess, false) {
                    break key;
                }
                vain += 1;
                free.push_back(key.index());
            };
            keys.entry(key.index()).or_insert_with(Vec::new).push(key.0);
            // Binds go on from here.
            let newest = Mkey(rest.order.after(key.0));
            keys.entry(key.index()).or_default().push(newest.0);
            live.push_back(newest);
            if live.len() > held {
                let key = live.pop_front().unwrap();
                rest.free(key);
                free.push_back(key.index());
            }
        }
        (keys, vain)
    }

    #[test]
    fn no_key_returns_within_255_registrations_of_its_index_however_indexes_are_reused() {
        let lowest: Choice = |free| {
            let lowest = free.iter().copied().min().unwrap();
            free.retain(|&index| index != lowest);
            lowest
        };
        let cases: [(&str, Choice); 3] = [
            ("the last freed", |free| free.pop_back().unwrap()),
            ("the first freed", |free| free.pop_front().unwrap()),
            ("the lowest", lowest),
        ];
        for (what, choose) in cases {
            for held in [0, 3] {
                let (keys, vain) = run(choose, held);
                for keys in keys.values() {
                    for run in keys.windows(256) {
                        let mut run = run.to_vec();
                        run.sort_unstable();
                        run.dedup();
                        assert_eq!(run.len(), 256, "{what}, {held} held");
                    }
                }
                assert!(vain <= if what == "the lowest" { 8000 } else { 16 }, "{what}: {vain}");
            }
        }
    }

    #[test]
    fn an_index_never_seen_gets_any_byte() {
        let mut rest = KeyRest::default();
        let mut random = Random::new([7; 32]);
        rest.order.fill(|| random.next_byte());
        assert_eq!(rest.guess(0).byte, None);
        for index in 0..1000 {
            let key = Mkey::new(index, 9);
            assert!(rest.admits(key, rest.guess(0), false));
            rest.free(key);
        }
        assert_eq!(rest.freed.len(), KEPT);
    }
}
