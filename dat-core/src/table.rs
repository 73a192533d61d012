//! A table of objects over caller-supplied slots.

use crate::handle::Handle;

const NONE: u32 = u32::MAX;

/// Room for one object.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    generation: u32,
    next: u32,
    /// The consumer's own word.
    context: u64,
    value: Option<T>,
}

impl<T> Slot<T> {
    pub(crate) const fn new() -> Self {
        Self {
            generation: 0,
            next: NONE,
            context: 0,
            value: None,
        }
    }
}

/// Objects of one kind, found by handle without search; free slots are a stack.
#[derive(Debug)]
pub(crate) struct Table<'s, T> {
    slots: &'s mut [Slot<T>],
    free: u32,
    /// Slots from here on were never used.
    fresh: u32,
    len: u32,
    /// Objects that were ever put in.
    made: u64,
    seed: u32,
}

impl<'s, T> Table<'s, T> {
    /// An empty table whose generations start at `seed`.
    pub(crate) fn new(slots: &'s mut [Slot<T>], seed: u32) -> Self {
        for slot in slots.iter_mut() {
            *slot = Slot::new();
        }
        Self {
            slots,
            free: NONE,
            fresh: 0,
            len: 0,
            made: 0,
            seed,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Objects that were ever put in.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(NONE)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.capacity()
    }

    /// The handle that the next [`Self::insert`] returns.
    #[inline(never)]
    pub(crate) fn vacant(&self) -> Option<Handle> {
        if self.free != NONE {
            let generation = self.slots.get(self.free as usize)?.generation;
            return Some(Handle::new(self.free, generation));
        }
        (self.fresh < self.capacity()).then_some(Handle::new(self.fresh, self.seed))
    }

    pub(crate) fn insert(&mut self, value: T) -> Option<Handle> {
        let handle = self.vacant()?;
        let slot = self.slots.get_mut(handle.index() as usize)?;
        if self.free == NONE {
            slot.generation = self.seed;
            self.fresh += 1;
        } else {
            self.free = slot.next;
        }
        slot.context = 0;
        slot.value = Some(value);
        self.len += 1;
        self.made = self.made.wrapping_add(1);
        Some(handle)
    }

    // A look-up is many instructions and happens everywhere on the control path: once in the program for each kind.
    #[inline(never)]
    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.index() as usize)?;
        if slot.generation == handle.generation() {
            slot.value.as_ref()
        } else {
            None
        }
    }

    #[inline(never)]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.index() as usize)?;
        if slot.generation == handle.generation() {
            slot.value.as_mut()
        } else {
            None
        }
    }

    /// The consumer's word about an object.
    #[inline(never)]
    pub(crate) fn context(&mut self, handle: Handle) -> Option<&mut u64> {
        let slot = self.slots.get_mut(handle.index() as usize)?;
        let lives = slot.generation == handle.generation() && slot.value.is_some();
        lives.then_some(&mut slot.context)
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        let slot = self.slots.get_mut(handle.index() as usize)?;
        if slot.generation != handle.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = self.free;
        self.free = handle.index();
        self.len -= 1;
        Some(value)
    }

    /// Whatever lives at `index` now, with its handle.
    #[inline(never)]
    fn at(&self, index: u32) -> Option<(Handle, &T)> {
        let slot = self.slots.get(index as usize)?;
        let value = slot.value.as_ref()?;
        Some((Handle::new(index, slot.generation), value))
    }

    /// The handle of whatever lives at `index` now.
    pub(crate) fn handle_at(&self, index: u32) -> Option<Handle> {
        self.at(index).map(|(handle, _)| handle)
    }

    /// Every object with its handle.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        (0..self.fresh).filter_map(|index| self.at(index))
    }

    /// The first object there is.
    #[inline(never)]
    pub(crate) fn first(&self) -> Option<Handle> {
        self.find(|_| true)
    }

    /// The first object that satisfies `test`.
    pub(crate) fn find(&self, test: impl Fn(&T) -> bool) -> Option<Handle> {
        self.iter()
            .find(|(_, value)| test(value))
            .map(|(handle, _)| handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_is_reused_under_another_handle() {
        let mut slots = [const { Slot::new() }; 2];
        let mut table = Table::new(&mut slots, 7);
        let a = table.insert('a').unwrap();
        let b = table.insert('b').unwrap();
        assert_eq!(table.insert('c'), None);
        assert!(table.is_full());
        assert_eq!(table.remove(a), Some('a'));
        assert_eq!(table.remove(a), None);
        let c = table.insert('c').unwrap();
        assert_eq!(c.index(), a.index());
        assert_eq!(
            (table.get(a), table.get(b), table.get(c)),
            (None, Some(&'b'), Some(&'c'))
        );
        assert_eq!(table.iter().count(), 2);
    }

    #[test]
    fn handles_of_another_table_are_strangers() {
        let (mut one, mut two) = ([const { Slot::new() }; 1], [const { Slot::new() }; 1]);
        let (mut one, two) = (Table::new(&mut one, 1), Table::<'_, u8>::new(&mut two, 2));
        let a = one.insert(1_u8).unwrap();
        assert_eq!(two.get(a), None);
        assert_eq!(two.vacant().map(|h| h.generation()), Some(2));
    }
}
