//! A table of objects over caller-supplied slots.

use heapless::Vec;

use crate::types::dat_return::DatReturn;
use crate::types::few::few;
use crate::types::handle::Handle;

/// A kind of object: the consumer's handle of it, and how a stale one is refused.
pub(crate) trait Kind {
    /// What the consumer names it by.
    type Handle: Into<Handle>;
    /// The refusal of a handle of no object.
    const STALE: DatReturn;

    /// False of an object that the consumer has freed and that is still in the table.
    fn is_live(&self) -> bool {
        true
    }
}

/// Room for one object.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    head: Head,
    value: Option<T>,
}

/// What a slot has besides its object.
#[derive(Debug)]
struct Head {
    /// Of the object here, or of the next one.
    generation: u32,
    /// The next free one, as [`Count::free`] says it; of an object, the next in its list of the
    /// index.
    next: u32,
    /// The list of the index that begins here: its first, counted from 1; 0 if it is empty.
    bucket: u32,
    /// What [`Table::numbered`] finds the object by.
    number: Option<u32>,
    /// The next in the queue, counted from 1; [`LAST`] of the last one; 0 outside the queue.
    queued: u32,
    /// The consumer's own word.
    context: u64,
}

impl Head {
    /// Of a free slot whose first object will be of that generation.
    const fn new(generation: u32) -> Self {
        Self { generation, next: 0, bucket: 0, number: None, queued: 0, context: 0 }
    }
}

/// Says in [`Head::queued`] that none follows.
const LAST: u32 = u32::MAX;

impl<T> Slot<T> {
    pub(crate) const fn new() -> Self {
        Self::of(0)
    }

    /// A free one whose first object will be of that generation.
    const fn of(generation: u32) -> Self {
        Self { head: Head::new(generation), value: None }
    }
}

/// Objects of one kind, found by handle, or by a number that they are filed under, without search;
/// free slots are a queue, so that one rests while others are free. Objects that want attention are
/// another queue.
#[derive(Debug)]
pub(crate) struct Table<'s, T> {
    slots: &'s mut [Slot<T>],
    count: Count,
    queue: Queue,
    /// No object is in a slot before.
    lowest: u32,
}

/// The slots in the queue, counted from 1; nothing if there are none.
#[derive(Debug, Default)]
struct Queue {
    first: u32,
    last: u32,
    len: u32,
}

/// Which slots are taken: none at first.
#[derive(Debug, Default)]
struct Count {
    /// The first of those that were given back, counted from 1; 0 if there is none.
    free: u32,
    /// The last of them, if there is one.
    last: u32,
    /// Slots that are taken for the first time before others are taken again.
    resting: u32,
    /// Slots from here on were never used.
    fresh: u32,
    len: u32,
    /// Objects that were ever put in.
    made: u64,
}

impl Count {
    /// The slot that comes next.
    fn next(&self) -> u32 {
        self.free.checked_sub(1).filter(|_| !self.takes_fresh()).unwrap_or(self.fresh)
    }

    /// The next slot is one that was never used.
    fn takes_fresh(&self) -> bool {
        self.free == 0 || self.fresh < self.resting
    }

    /// It is taken.
    #[inline(never)]
    fn take(&mut self, head: &mut Head) {
        if self.takes_fresh() {
            self.fresh += 1;
        } else {
            self.free = head.next;
        }
        head.next = 0;
        head.context = 0;
        self.len += 1;
        self.made = self.made.wrapping_add(1);
    }

    /// The slot at `index` was not needed: it comes next.
    #[inline(never)]
    fn undo(&mut self, index: u32, head: &mut Head) {
        self.len -= 1;
        self.made = self.made.wrapping_sub(1);
        if index + 1 == self.fresh && (self.free == 0 || self.fresh <= self.resting) {
            self.fresh = index;
            return;
        }
        if self.free == 0 {
            self.last = index;
        }
        head.next = core::mem::replace(&mut self.free, index + 1);
    }

    /// The slot at `index` is given back. Returns the slot that it comes behind, if there is one.
    #[inline(never)]
    fn give_back(&mut self, index: u32, head: &mut Head) -> Option<u32> {
        head.generation = head.generation.wrapping_add(1);
        head.next = 0;
        let last = core::mem::replace(&mut self.last, index);
        self.len -= 1;
        if self.free == 0 {
            self.free = index + 1;
            return None;
        }
        Some(last)
    }
}

impl<'s, T> Table<'s, T> {
    /// An empty table whose generations start at `seed`.
    pub(crate) fn new(slots: &'s mut [Slot<T>], seed: u32) -> Self {
        for slot in slots.iter_mut() {
            *slot = Slot::of(seed);
        }
        Self { slots, count: Count::default(), queue: Queue::default(), lowest: 0 }
    }

    /// The same, of which no slot is used again before all have been used.
    pub(crate) fn resting(slots: &'s mut [Slot<T>], seed: u32) -> Self {
        let mut table = Self::new(slots, seed);
        table.count.resting = table.capacity();
        table
    }

    pub(crate) fn len(&self) -> u32 {
        self.count.len
    }

    /// Objects that were ever put in.
    pub(crate) fn made(&self) -> u64 {
        self.count.made
    }

    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count.len >= self.capacity()
    }

    /// The handle that the next [`Self::insert`] returns.
    #[inline(never)]
    pub(crate) fn vacant(&self) -> Option<Handle> {
        let index = self.count.next();
        let slot = self.slots.get(index as usize)?;
        Some(Handle::new(index, slot.head.generation))
    }

    pub(crate) fn insert(&mut self, value: T) -> Option<Handle> {
        let handle = self.vacant()?;
        let slot = self.slots.get_mut(handle.index() as usize)?;
        slot.value = Some(value);
        self.count.take(&mut slot.head);
        self.lowest = self.lowest.min(handle.index());
        Some(handle)
    }

    /// Undoes the newest [`Self::insert`], or one of the newest few: that handle comes next again.
    pub(crate) fn undo(&mut self, handle: Handle) {
        let index = handle.index();
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        slot.value = None;
        self.count.undo(index, &mut slot.head);
    }

    // A look-up is many instructions and happens everywhere on the control path: once in the
    // program for each kind.
    #[inline(never)]
    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.index() as usize)?;
        if slot.head.generation == handle.generation() { slot.value.as_ref() } else { None }
    }

    #[inline(never)]
    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.index() as usize)?;
        if slot.head.generation == handle.generation() { slot.value.as_mut() } else { None }
    }

    /// The consumer's word about an object.
    #[inline(never)]
    pub(crate) fn context(&mut self, handle: Handle) -> Option<&mut u64> {
        let slot = self.slots.get_mut(handle.index() as usize)?;
        let is_live = slot.head.generation == handle.generation() && slot.value.is_some();
        is_live.then_some(&mut slot.head.context)
    }

    /// Drops an object; whether it lived. What of it is needed has been read before: to move it out
    /// would copy it.
    #[inline(never)]
    pub(crate) fn remove(&mut self, handle: Handle) -> bool {
        if self.get(handle).is_none() {
            return false;
        }
        if self.head(handle.index()).is_some_and(|head| head.number.is_some()) {
            self.file(handle, None);
        }
        if let Some(slot) = self.slots.get_mut(handle.index() as usize) {
            slot.value = None;
            let last = self.count.give_back(handle.index(), &mut slot.head);
            if let Some(last) = last.and_then(|last| self.slots.get_mut(last as usize)) {
                last.head.next = handle.index() + 1;
            }
        }
        true
    }

    /// Files an object under a number, or under none; not under the one before any more.
    #[inline(never)]
    pub(crate) fn file(&mut self, handle: Handle, number: Option<u32>) {
        let own = handle.index();
        if self.get(handle).is_none() {
            return;
        }
        let Some(head) = self.head(own) else { return };
        let (old, behind) = (head.number, head.next);
        if old == number {
            return;
        }
        if let Some(old) = old {
            let bucket = self.bucket(old);
            let first = self.head(bucket).map_or(0, |head| head.bucket);
            if first == own + 1 {
                if let Some(head) = self.head(bucket) {
                    head.bucket = behind;
                }
            } else {
                let mut link = first;
                while let Some(head) = link.checked_sub(1).and_then(|index| self.head(index)) {
                    link = head.next;
                    if link == own + 1 {
                        head.next = behind;
                        break;
                    }
                }
            }
        }
        let next = number.and_then(|number| {
            let bucket = self.bucket(number);
            self.head(bucket).map(|head| core::mem::replace(&mut head.bucket, own + 1))
        });
        if let Some(head) = self.head(own) {
            head.number = number;
            head.next = next.unwrap_or(0);
        }
    }

    /// The object that is filed under `number` and for which `is` holds.
    #[inline(never)]
    pub(crate) fn numbered(&self, number: u32, is: impl Fn(&T) -> bool) -> Option<Handle> {
        let mut link = self.slots.get(self.bucket(number) as usize)?.head.bucket;
        loop {
            let index = link.checked_sub(1)?;
            let slot = self.slots.get(index as usize)?;
            if slot.head.number == Some(number) && slot.value.as_ref().is_some_and(&is) {
                return Some(Handle::new(index, slot.head.generation));
            }
            link = slot.head.next;
        }
    }

    /// The slot whose `bucket` begins the list of those filed under a number. Numbers that follow
    /// each other, as a device gives them out, get slots far from each other.
    fn bucket(&self, number: u32) -> u32 {
        let hash = u64::from(number.wrapping_mul(0x9e37_79b1));
        u32::try_from((hash * u64::from(self.capacity())) >> 32).unwrap_or(0)
    }

    #[inline(never)]
    fn head(&mut self, index: u32) -> Option<&mut Head> {
        self.slots.get_mut(index as usize).map(|slot| &mut slot.head)
    }

    /// Puts an object at the end of the queue, unless it is in it.
    #[inline(never)]
    pub(crate) fn enqueue(&mut self, handle: Handle) {
        let own = handle.index();
        if self.get(handle).is_none() || self.head(own).is_none_or(|head| head.queued != 0) {
            return;
        }
        if let Some(head) = self.head(own) {
            head.queued = LAST;
        }
        let last = core::mem::replace(&mut self.queue.last, own + 1);
        match last.checked_sub(1).and_then(|index| self.head(index)) {
            Some(head) => head.queued = own + 1,
            None => self.queue.first = own + 1,
        }
        self.queue.len += 1;
    }

    /// Takes the first object out of the queue. One that was removed meanwhile is passed over.
    #[inline(never)]
    pub(crate) fn dequeue(&mut self) -> Option<Handle> {
        loop {
            let index = self.queue.first.checked_sub(1)?;
            let next = self.head(index).map(|head| core::mem::take(&mut head.queued));
            self.queue.first = next.filter(|next| *next != LAST).unwrap_or(0);
            self.queue.len -= 1;
            if self.queue.first == 0 {
                self.queue.last = 0;
            }
            if let Some(handle) = self.handle_at(index) {
                return Some(handle);
            }
        }
    }

    /// Slots in the queue.
    pub(crate) fn queued(&self) -> u32 {
        self.queue.len
    }

    /// The object at `index`, with its handle.
    #[inline(never)]
    fn at(&self, index: u32) -> Option<(Handle, &T)> {
        let slot = self.slots.get(index as usize)?;
        let value = slot.value.as_ref()?;
        Some((Handle::new(index, slot.head.generation), value))
    }

    /// The handle of the object at `index`.
    pub(crate) fn handle_at(&self, index: u32) -> Option<Handle> {
        self.at(index).map(|(handle, _)| handle)
    }

    /// Every object with its handle.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        (0..self.count.fresh).filter_map(|index| self.at(index))
    }

    /// The first object there is. Slots that it passed over it passes over no more.
    #[inline(never)]
    pub(crate) fn first(&mut self) -> Option<Handle> {
        while self.lowest < self.count.fresh {
            let found = self.handle_at(self.lowest);
            if found.is_some() {
                return found;
            }
            self.lowest += 1;
        }
        None
    }

    /// The first few objects there are, as the consumer names them.
    pub(crate) fn few<H, const N: usize>(&mut self, name: impl Fn(Handle) -> H) -> Vec<H, N> {
        let first = self.first().map_or(self.count.fresh, Handle::index);
        let handles = (first..self.count.fresh).filter_map(|index| self.handle_at(index));
        few(handles.map(name))
    }
}

impl<T: Kind> Table<'_, T> {
    /// The object of a handle, or the refusal of a stale one.
    pub(crate) fn live(&self, handle: T::Handle) -> Result<&T, DatReturn> {
        self.get(handle.into()).filter(|object| object.is_live()).ok_or(T::STALE)
    }

    /// The same, to be changed.
    pub(crate) fn live_mut(&mut self, handle: T::Handle) -> Result<&mut T, DatReturn> {
        self.get_mut(handle.into()).filter(|object| object.is_live()).ok_or(T::STALE)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn a_freed_slot_is_reused_under_another_handle() {
        let mut slots = [const { Slot::new() }; 2];
        let mut table: Table<'_, char> = Table::new(&mut slots, 7);
        let a = table.insert('a').unwrap();
        let b = table.insert('b').unwrap();
        assert_eq!(table.insert('c'), None);
        assert!(table.is_full());
        assert!(table.remove(a));
        assert!(!table.remove(a));
        let c = table.insert('c').unwrap();
        assert_eq!(c.index(), a.index());
        assert_eq!((table.get(a), table.get(b), table.get(c)), (None, Some(&'b'), Some(&'c')));
        assert_eq!(table.iter().count(), 2);
    }

    #[test]
    fn what_is_undone_has_not_happened() {
        for resting in [false, true] {
            let mut slots = [const { Slot::new() }; 4];
            let make = if resting { Table::resting } else { Table::new };
            let mut table: Table<'_, u8> = make(&mut slots, 7);
            let undone = |table: &mut Table<'_, u8>| {
                let (next, made, len) = (table.vacant(), table.made(), table.len());
                let handle = table.insert(1).unwrap();
                table.undo(handle);
                assert_eq!((table.vacant(), table.made(), table.len()), (next, made, len));
                assert_eq!((table.get(handle), table.iter().next().is_some()), (None, len != 0));
            };
            undone(&mut table);
            let held = [0; 4].map(|_| {
                undone(&mut table);
                table.insert(0).unwrap()
            });
            for handle in held {
                table.remove(handle);
                undone(&mut table);
            }
            // Two of three are undone, in either order; no slot is lost, none is taken twice.
            for order in [[0, 1], [1, 0], [2, 0], [1, 2]] {
                let few = [0; 3].map(|_| table.insert(0).unwrap());
                for place in order {
                    table.undo(few[place]);
                }
                let left = 3 - order[0] - order[1];
                assert_eq!(table.iter().map(|(handle, _)| handle).collect::<Vec<_>>(), [few[left]]);
                table.remove(few[left]);
            }
            let all: BTreeSet<_> = (0..4).map(|_| table.insert(0).unwrap().index()).collect();
            assert_eq!((all.len(), table.insert(0)), (4, None));
        }
    }

    #[test]
    fn a_freed_slot_rests_while_others_are_free() {
        let mut slots = [const { Slot::new() }; 4];
        let mut table: Table<'_, u8> = Table::resting(&mut slots, 7);
        for turn in 0..100_u32 {
            let handle = table.insert(0).unwrap();
            assert_eq!(handle.index(), turn % 4);
            table.remove(handle);
        }
        // Two stay; the other two still take turns.
        let held = [table.insert(0).unwrap(), table.insert(0).unwrap()];
        let turns = [0; 6].map(|_| {
            let handle = table.insert(0).unwrap();
            table.remove(handle);
            handle.index()
        });
        assert_eq!(turns, [2, 3, 2, 3, 2, 3]);
        assert!(held.iter().all(|&held| table.remove(held)));
        let order = [0; 4].map(|_| table.insert(0).unwrap().index());
        assert_eq!((order, table.insert(0)), ([2, 3, 0, 1], None));
    }

    #[test]
    fn slots_given_back_are_taken_in_that_order_before_new_ones() {
        let mut slots = [const { Slot::new() }; 4];
        let mut table: Table<'_, u8> = Table::new(&mut slots, 7);
        let [a, b, c] = [0; 3].map(|_| table.insert(0).unwrap());
        assert!(table.remove(b) && table.remove(a) && table.remove(c));
        assert_eq!([0; 4].map(|_| table.insert(0).unwrap().index()), [1, 0, 2, 3]);
    }

    #[test]
    fn what_is_filed_is_found_by_its_number_alone() {
        let mut slots: [Slot<u32>; 8] = core::array::from_fn(|_| Slot::new());
        let mut table = Table::new(&mut slots, 5);
        let mut held = [(); 8].map(|()| table.insert(0).unwrap());
        // Numbers of three rounds, in lists of one to many.
        for round in 0..3_u32 {
            for (n, handle) in (0..).zip(held) {
                table.file(handle, Some(100 * round + n % 5));
                *table.get_mut(handle).unwrap() = n;
            }
            for n in 0..8 {
                let found = table.numbered(100 * round + n % 5, |own| *own == n);
                assert_eq!(found, Some(held[n as usize]));
            }
            assert_eq!(table.numbered(100 * round + 5, |_| true), None);
            // One leaves by being freed, one by having no number any more.
            assert!(table.remove(held[1]));
            table.file(held[6], None);
            let first = |table: &Table<'_, u32>| table.numbered(100 * round + 1, |_| true);
            assert_eq!(first(&table), None);
            held[1] = table.insert(0).unwrap();
            assert_eq!(first(&table), None);
        }
    }

    #[test]
    fn the_queue_has_each_object_once_and_passes_over_those_that_went() {
        let mut slots: [Slot<u32>; 4] = core::array::from_fn(|_| Slot::new());
        let mut table = Table::new(&mut slots, 5);
        let held = [(); 4].map(|()| table.insert(0).unwrap());
        for round in 0..3 {
            for n in [2, 0, 2, 3, 1, 0] {
                table.enqueue(held[n]);
            }
            assert_eq!(table.queued(), 4);
            assert_eq!(table.dequeue(), Some(held[2]));
            table.enqueue(held[2]);
            // In the last round the middle of the queue goes, and the one at its end.
            let gone = round == 2 && table.remove(held[3]) && table.remove(held[2]);
            for (n, goes) in [(0, false), (3, true), (1, false), (2, true)] {
                if !(gone && goes) {
                    assert_eq!(table.dequeue(), Some(held[n]));
                }
            }
            assert_eq!(table.dequeue(), None);
            assert_eq!(table.queued(), 0);
        }
    }

    #[test]
    fn handles_of_another_table_are_invalid() {
        let (mut one, mut two) = ([const { Slot::new() }; 1], [const { Slot::new() }; 1]);
        let mut one: Table<'_, u8> = Table::new(&mut one, 1);
        let two: Table<'_, u8> = Table::new(&mut two, 2);
        let a = one.insert(1_u8).unwrap();
        assert_eq!(two.get(a), None);
        assert_eq!(two.vacant().map(|h| h.generation()), Some(2));
    }
}
