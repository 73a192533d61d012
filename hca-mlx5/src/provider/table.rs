//! The objects of one kind that this driver has made, by the number the device gave each, and how
//! many others use each: found without search, however many there are.

use heapless::Vec;

/// An object, and its place in the index.
#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    number: u32,
    /// The next in its list of the index, counted from 1; 0 behind the last.
    next: u32,
    /// Objects that use it.
    users: u32,
    object: T,
}

/// Up to `N` objects.
#[derive(Debug)]
pub(crate) struct Table<T, const N: usize> {
    entries: Vec<Entry<T>, N>,
    /// The first entry of each list of the index, counted from 1; 0 if the list is empty.
    lists: [u32; N],
}

impl<T: Copy, const N: usize> Table<T, N> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), lists: [0; N] }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.is_full()
    }

    /// The list of a number. A device gives out numbers that follow each other; they get lists far
    /// from each other.
    fn list(number: u32) -> usize {
        let hash = u64::from(number.wrapping_mul(0x9e37_79b1));
        usize::try_from((hash * N as u64) >> 32).unwrap_or(0)
    }

    #[inline(never)]
    fn place(&self, number: u32) -> Option<usize> {
        let mut link = *self.lists.get(Self::list(number))?;
        loop {
            let place = usize::try_from(link.checked_sub(1)?).ok()?;
            let entry = self.entries.get(place)?;
            if entry.number == number {
                return Some(place);
            }
            link = entry.next;
        }
    }

    /// Sets what leads to the entry that is at `place` by its link: the head of its list, or the
    /// entry before.
    fn redirect(&mut self, number: u32, from: u32, to: u32) {
        let Some(head) = self.lists.get_mut(Self::list(number)) else { return };
        if *head == from {
            *head = to;
            return;
        }
        let mut link = *head;
        while let Some(entry) = link
            .checked_sub(1)
            .and_then(|place| self.entries.get_mut(usize::try_from(place).unwrap_or(usize::MAX)))
        {
            link = entry.next;
            if link == from {
                entry.next = to;
                return;
            }
        }
    }

    /// How many more there is room for.
    pub(crate) fn room(&self) -> usize {
        N - self.entries.len()
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.place(number).is_some()
    }

    fn entry(&mut self, number: u32) -> Option<&mut Entry<T>> {
        let place = self.place(number)?;
        self.entries.get_mut(place)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(self.place(number)?).map(|entry| &entry.object)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entry(number).map(|entry| &mut entry.object)
    }

    /// Enters one for which there is room. False if there is one of that number.
    #[must_use]
    pub(crate) fn insert(&mut self, number: u32, object: T) -> bool {
        let own = u32::try_from(self.entries.len() + 1).unwrap_or(u32::MAX);
        if self.has(number) {
            return false;
        }
        let Some(head) = self.lists.get_mut(Self::list(number)) else { return false };
        let entered = self.entries.push(Entry { number, next: *head, users: 0, object }).is_ok();
        if entered {
            *head = own;
        }
        entered
    }

    pub(crate) fn remove(&mut self, number: u32) {
        let Some(place) = self.place(number) else { return };
        let link = |place: usize| u32::try_from(place + 1).unwrap_or(u32::MAX);
        let next = self.entries.get(place).map_or(0, |entry| entry.next);
        self.redirect(number, link(place), next);
        // The last one moves to its place: as `swap_remove`, without the panic that it has.
        let Some(last) = self.entries.pop() else { return };
        let from = link(self.entries.len());
        if let Some(entry) = self.entries.get_mut(place) {
            *entry = last;
            self.redirect(last.number, from, link(place));
        }
    }

    /// Another object uses it.
    pub(crate) fn hold(&mut self, number: u32) {
        if let Some(entry) = self.entry(number) {
            entry.users = entry.users.saturating_add(1);
        }
    }

    /// An object that used it is gone.
    pub(crate) fn release(&mut self, number: u32) {
        if let Some(entry) = self.entry(number) {
            entry.users = entry.users.saturating_sub(1);
        }
    }

    /// Whether other objects use it.
    pub(crate) fn in_use(&self, number: u32) -> bool {
        let entry = self.place(number).and_then(|place| self.entries.get(place));
        entry.is_some_and(|entry| entry.users != 0)
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.lists.fill(0);
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.object)
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|entry| entry.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn objects_are_found_by_number_and_entered_once() {
        let mut table = Table::<_, 2>::new();
        assert!(table.insert(7, 'a'));
        assert!(!table.insert(7, 'b'));
        assert!(table.insert(9, 'c'));
        assert!(table.is_full());
        assert!(!table.insert(8, 'd'));
        assert_eq!((table.get(7), table.get(8)), (Some(&'a'), None));
        table.hold(9);
        table.remove(7);
        assert!(!table.has(7) && table.values().eq(['c'].iter()) && table.in_use(9));
        table.release(9);
        assert!(!table.in_use(9));
        table.clear();
        assert_eq!((table.get(9), table.room()), (None, 2));
    }

    /// The same as a map of the standard library, whatever comes and goes.
    #[test]
    fn it_is_a_map() {
        let mut table = Table::<u32, 32>::new();
        let mut map = BTreeMap::new();
        let mut word = 1_u64;
        for n in 0..20_000_u32 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Few numbers, many of them in one list.
            let number = (word >> 40) as u32 % 48 * 0x100;
            if word >> 63 == 0 {
                let expected = map.len() < 32 && !map.contains_key(&number);
                assert_eq!(table.insert(number, n), expected);
                if expected {
                    map.insert(number, n);
                }
            } else {
                table.remove(number);
                map.remove(&number);
            }
            assert!((0..48).map(|n| n * 0x100).all(|n| table.get(n) == map.get(&n)));
        }
    }
}
