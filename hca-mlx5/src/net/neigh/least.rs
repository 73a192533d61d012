//! The least of the keys of a table's entries, without a search: a tree whose leaves are the keys.
//!
//! Node 1 is the root, the children of n are 2n and 2n + 1, and the leaves are the nodes from `N`
//! on. Of equal keys the first is the least where `N` is a power of two.

#[cfg(test)]
std::thread_local! {
    /// Entries, and nodes of their trees, that were visited.
    pub(super) static VISITED: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Counts an entry or a node that is visited, in tests.
#[inline(always)]
pub(super) fn visit() {
    #[cfg(test)]
    VISITED.set(VISITED.get() + 1);
}

/// Keys of `N` entries.
#[derive(Debug)]
pub(super) struct Least<K, const N: usize> {
    inner: [K; N],
    leaves: [K; N],
    /// The greatest key: of an entry that is none.
    most: K,
}

impl<K: Copy + Ord, const N: usize> Least<K, N> {
    /// A tree in which all entries have the greatest key.
    pub(super) const fn new(most: K) -> Self {
        Self { inner: [most; N], leaves: [most; N], most }
    }

    /// The least key at or below a node.
    fn below(&self, node: usize) -> K {
        visit();
        let key = self.inner.get(node).or_else(|| self.leaves.get(node.wrapping_sub(N)));
        key.copied().unwrap_or(self.most)
    }

    /// The least key of all.
    pub(super) fn least(&self) -> K {
        self.below(1)
    }

    /// An entry with the least key.
    pub(super) fn first(&self) -> usize {
        let mut node = 1;
        while node < N {
            node = 2 * node + usize::from(self.below(2 * node + 1) < self.below(2 * node));
        }
        node.wrapping_sub(N)
    }

    /// Sets the key of an entry.
    pub(super) fn set(&mut self, at: usize, key: K) {
        let Some(leaf) = self.leaves.get_mut(at) else { return };
        if *leaf == key {
            return;
        }
        *leaf = key;
        let (mut node, mut least) = (at.wrapping_add(N), key);
        while node > 1 {
            least = least.min(self.below(node ^ 1));
            node /= 2;
            match self.inner.get_mut(node) {
                Some(inner) if *inner != least => *inner = least,
                Some(_) | None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const N: usize>() {
        let mut least = Least::<u64, N>::new(u64::MAX);
        let mut keys = [u64::MAX; N];
        let mut word = 7_u64;
        for _ in 0..500 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(N as u64);
            let (at, key) = ((word >> 33) as usize % (N + 1), word >> 58);
            let key = if key < 16 { u64::MAX } else { key };
            least.set(at, key);
            if let Some(old) = keys.get_mut(at) {
                *old = key;
            }
            let expected = keys.iter().zip(0..).min();
            assert_eq!(least.least(), expected.map_or(u64::MAX, |(key, _)| *key));
            let first = keys.get(least.first());
            assert_eq!(first, expected.map(|(key, _)| key));
            if N.is_power_of_two() {
                assert_eq!(Some(least.first()), expected.map(|(_, at)| at));
            }
        }
    }

    #[test]
    fn the_least_is_found_whatever_came_and_went() {
        check::<0>();
        check::<1>();
        check::<2>();
        check::<3>();
        check::<8>();
        check::<13>();
    }
}
