//! Ordered tables whose size a driver decides.
//!
//! Lookups and changes take a time that grows with the logarithm of the size. A caller that walks through
//! a table pays for every entry, so nothing on the path of a step, a doorbell, a frame or a command
//! may walk through one that is long: tests count the entries looked at (`visits`).

use crate::host::Nanos;
use std::collections::{BTreeMap, btree_map};
use std::ops::RangeBounds;

#[cfg(test)]
thread_local! {
    static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Entries of tables that this thread has looked at.
#[cfg(test)]
pub(crate) fn visits() -> u64 {
    VISITS.get()
}

/// Counts a look at an entry.
#[inline]
fn visit() {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
}

/// Values by key.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, V>(BTreeMap<K, V>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy, V> Table<K, V> {
    /// One entry.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        visit();
        self.0.get(key)
    }

    /// One entry, to be changed.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        visit();
        self.0.get_mut(key)
    }

    /// One entry, which is made if there is none.
    pub(crate) fn entry(&mut self, key: K) -> btree_map::Entry<'_, K, V> {
        visit();
        self.0.entry(key)
    }

    /// Whether there is an entry.
    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Puts an entry in; returns the one that it replaces.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        visit();
        self.0.insert(key, value)
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        visit();
        self.0.remove(key)
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries of a range of keys, in order.
    pub(crate) fn range(
        &self,
        keys: impl RangeBounds<K>,
    ) -> impl DoubleEndedIterator<Item = (K, &V)> {
        self.0.range(keys).map(|(key, value)| {
            visit();
            (*key, value)
        })
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Table<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

/// Keys, in order.
#[derive(Clone, Debug)]
pub(crate) struct Set<K>(Table<K, ()>);

impl<K> Default for Set<K> {
    fn default() -> Self {
        Self(Table::default())
    }
}

impl<K: Ord + Copy> Set<K> {
    /// Puts a key in; false if it was in already.
    pub(crate) fn insert(&mut self, key: K) -> bool {
        self.0.insert(key, ()).is_none()
    }

    /// Takes a key out; false if it was not in.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        self.0.remove(key).is_some()
    }

    /// How many keys are in.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest key.
    pub(crate) fn first(&self) -> Option<K> {
        self.range(..).next()
    }

    /// The keys of a range, in order.
    pub(crate) fn range(&self, keys: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = K> {
        self.0.range(keys).map(|(key, ())| key)
    }
}

/// Keys, each as often as it was added.
#[derive(Clone, Debug)]
pub(crate) struct Counts<K>(Table<K, u32>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(Table::default())
    }
}

impl<K: Ord + Copy> Counts<K> {
    /// Once more.
    pub(crate) fn add(&mut self, key: K) {
        *self.0.entry(key).or_default() += 1;
    }

    /// Once less.
    pub(crate) fn remove(&mut self, key: K) {
        if let Some(count) = self.0.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Whether a key is in at least once.
    pub(crate) fn has(&self, key: K) -> bool {
        self.0.contains_key(&key)
    }
}

/// Times at which something is due, one for each number at most.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    line: Set<(Nanos, u32)>,
    times: Table<u32, Nanos>,
}

impl Deadlines {
    /// Sets when a number is due, or that it is not.
    pub(crate) fn set(&mut self, number: u32, due: Option<Nanos>) {
        let was = match due {
            Some(due) => self.times.insert(number, due),
            None if self.times.is_empty() => None,
            None => self.times.remove(&number),
        };
        if was != due {
            was.map(|was| self.line.remove(&(was, number)));
            due.map(|due| self.line.insert((due, number)));
        }
    }

    /// The numbers due at a time, the first first.
    pub(crate) fn due(&self, now: Nanos) -> impl Iterator<Item = u32> {
        self.line.range(..=(now, u32::MAX)).map(|(_, number)| number)
    }

    /// How many numbers are due at some time.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.line.len().max(self.times.len())
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.line.first().map(|(due, _)| due)
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Deadlines};

    #[test]
    fn a_deadline_replaces_the_one_before_and_leaves_nothing() {
        let mut deadlines = Deadlines::default();
        deadlines.set(3, Some(20));
        deadlines.set(4, Some(10));
        deadlines.set(3, Some(5));
        assert_eq!(deadlines.next(), Some(5));
        assert_eq!(deadlines.due(10).collect::<Vec<_>>(), [3, 4]);
        deadlines.set(3, None);
        deadlines.set(4, None);
        deadlines.set(4, None);
        assert_eq!((deadlines.next(), deadlines.len()), (None, 0));
    }

    #[test]
    fn a_key_is_in_as_long_as_it_was_added_more_often_than_removed() {
        let mut counts = Counts::default();
        counts.add(7);
        counts.add(7);
        counts.remove(7);
        counts.remove(8);
        assert!(counts.has(7));
        counts.remove(7);
        assert!(!counts.has(7));
    }
}
