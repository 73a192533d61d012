//! The objects of one kind that this driver has made, by the number the device gave each.
//!
//! Searched from front to back: what looks here is a command or an interrupt, next to which that is
//! nothing, and a hash table costs more code than all the callers together.

use heapless::Vec;

/// Up to `N` objects.
#[derive(Debug)]
pub(crate) struct Table<T, const N: usize>(Vec<(u32, T), N>);

impl<T: Copy, const N: usize> Table<T, N> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.is_full()
    }

    #[inline(never)]
    fn place(&self, number: u32) -> Option<usize> {
        self.0.iter().position(|(known, _)| *known == number)
    }

    /// How many more there is room for.
    pub(crate) fn room(&self) -> usize {
        N - self.0.len()
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.place(number).is_some()
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (_, object) = self.0.get(self.place(number)?)?;
        Some(object)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = self.place(number)?;
        self.0.get_mut(place).map(|(_, object)| object)
    }

    /// Enters one for which there is room. False if there is one of that number.
    #[must_use]
    pub(crate) fn insert(&mut self, number: u32, object: T) -> bool {
        !self.has(number) && self.0.push((number, object)).is_ok()
    }

    pub(crate) fn remove(&mut self, number: u32) {
        // The last one moves to its place: as `swap_remove`, without the panic that it has.
        if let Some(place) = self.place(number)
            && let Some(last) = self.0.pop()
            && let Some(slot) = self.0.get_mut(place)
        {
            *slot = last;
        }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, object)| object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_number_and_entered_once() {
        let mut table = Table::<_, 2>::new();
        assert!(table.insert(7, 'a'));
        assert!(!table.insert(7, 'b'));
        assert!(table.insert(9, 'c'));
        assert!(table.is_full());
        assert!(!table.insert(8, 'd'));
        assert_eq!((table.get(7), table.get(8)), (Some(&'a'), None));
        table.remove(7);
        assert!(!table.has(7) && table.values().eq(['c'].iter()));
        table.clear();
        assert_eq!((table.get(9), table.room()), (None, 2));
    }
}
