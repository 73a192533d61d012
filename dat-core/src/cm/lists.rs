//! Lists through the table of slots, so that none is searched for however long the table is: slots
//! that have an event or a message, slots that a new connection may take, and an index of those
//! that a message without this side's ID may mean.
//!
//! Each list is a ring of links with a head in it, so a slot leaves from anywhere. Heads of the
//! index stand in the slots, one in each: the table brings the room for its own index.

use crate::cm::slot::Slot;

/// What a link of a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The slot may have an event.
    Event,
    /// The slot may have a message to send.
    Send,
    /// A new connection may take the slot, or it is a look-up that wants a path.
    Spare,
    /// Index by the peer's comm ID or request ID.
    Id,
    /// Index by the peer's queue pair; of look-ups of this side, by who asks.
    Qp,
    /// Head of a list of the index; the slot has nothing to do with those in it.
    Bucket,
}

impl Kind {
    /// How many there are.
    pub(super) const COUNT: usize = 6;
}

/// Heads that do not stand in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Head {
    /// Of those with an event.
    Events,
    /// Of those with a message.
    Sends,
    /// Of slots that hold nothing.
    Vacant,
    /// Of ended connections that only answer late messages.
    Over,
    /// Of connections that their callers have left, and the peers have been asked to.
    Leaving,
    /// Of look-ups whose path is being resolved.
    Paths,
}

impl Head {
    const COUNT: usize = 6;
}

/// A link, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

/// Numbers of a slot's links, a power of two.
const STRIDE: u32 = 8;
/// The first number that is a head's.
const HEADS: u32 = 1 << 31;

impl Place {
    const NONE: Self = Self(u32::MAX);

    pub(super) fn of(index: usize, kind: Kind) -> Self {
        // No table is as long as the numbers go.
        u32::try_from(index)
            .map_or(Self::NONE, |index| Self(index.wrapping_mul(STRIDE).wrapping_add(kind as u32)))
    }

    pub(super) fn slot(self) -> usize {
        usize::try_from(self.0 / STRIDE).unwrap_or(usize::MAX)
    }

    /// It is the link of a slot, and of that kind.
    pub(super) const fn is(self, kind: Kind) -> bool {
        self.0 < HEADS && self.0 % STRIDE == kind as u32
    }
}

impl From<Head> for Place {
    fn from(head: Head) -> Self {
        Self(HEADS + head as u32)
    }
}

/// The neighbours in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    previous: Place,
    next: Place,
}

impl Link {
    /// In no ring; of a head: nothing is in its ring.
    pub(super) const NONE: Self = Self { previous: Place::NONE, next: Place::NONE };
}

/// The heads that do not stand in slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lists([Link; Head::COUNT]);

impl Lists {
    pub(super) const EMPTY: Self = Self([Link::NONE; Head::COUNT]);

    fn link<'a>(&'a mut self, slots: &'a mut [Slot], place: Place) -> Option<&'a mut Link> {
        match place.0.checked_sub(HEADS) {
            Some(head) => self.0.get_mut(usize::try_from(head).ok()?),
            None => {
                let kind = usize::try_from(place.0 % STRIDE).ok()?;
                slots.get_mut(place.slot())?.links.get_mut(kind)
            }
        }
    }

    /// What comes behind a head or a link in its ring; `None` at the end.
    pub(super) fn after(&mut self, slots: &mut [Slot], place: Place) -> Option<Place> {
        let next = self.link(slots, place)?.next;
        (next.0 < HEADS && !next.is(Kind::Bucket)).then_some(next)
    }

    /// It is in a ring.
    pub(super) fn holds(&mut self, slots: &mut [Slot], place: Place) -> bool {
        self.link(slots, place).is_some_and(|link| *link != Link::NONE)
    }

    /// Puts a link behind all others, unless it is in a ring already.
    pub(super) fn push(&mut self, slots: &mut [Slot], head: impl Into<Place>, place: Place) {
        let head = head.into();
        if self.link(slots, place).is_none_or(|link| *link != Link::NONE) {
            return;
        }
        let Some(first) = self.link(slots, head) else { return };
        if *first == Link::NONE {
            *first = Link { previous: head, next: head };
        }
        let last = core::mem::replace(&mut first.previous, place);
        if let Some(link) = self.link(slots, last) {
            link.next = place;
        }
        if let Some(link) = self.link(slots, place) {
            *link = Link { previous: last, next: head };
        }
    }

    /// Takes a link out of its ring, if it is in one.
    pub(super) fn remove(&mut self, slots: &mut [Slot], place: Place) {
        let Some(link) = self.link(slots, place) else { return };
        let Link { previous, next } = core::mem::replace(link, Link::NONE);
        if let Some(link) = self.link(slots, previous) {
            link.next = next;
        }
        if let Some(link) = self.link(slots, next) {
            link.previous = previous;
        }
    }

    /// Takes the first out of a list; its slot.
    pub(super) fn pop(&mut self, slots: &mut [Slot], head: Head) -> Option<usize> {
        let first = self.after(slots, head.into())?;
        self.remove(slots, first);
        Some(first.slot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_in_turn_and_once() {
        let mut slots = [const { Slot::new() }; 3];
        let mut lists = Lists::EMPTY;
        for index in [2, 0, 2, 9, 1, 0] {
            lists.push(&mut slots, Head::Events, Place::of(index, Kind::Event));
        }
        lists.push(&mut slots, Head::Sends, Place::of(1, Kind::Send));
        assert_eq!(lists.pop(&mut slots, Head::Events), Some(2));
        lists.push(&mut slots, Head::Events, Place::of(2, Kind::Event));
        let rest = core::array::from_fn(|_| lists.pop(&mut slots, Head::Events));
        assert_eq!(rest, [Some(0), Some(1), Some(2), None]);
        lists.push(&mut slots, Head::Events, Place::of(1, Kind::Event));
        assert_eq!(lists.pop(&mut slots, Head::Events), Some(1));
        assert_eq!(lists.pop(&mut slots, Head::Sends), Some(1));
        assert_eq!(lists.pop(&mut slots, Head::Sends), None);
    }

    #[test]
    fn a_slot_leaves_from_anywhere() {
        for leaves in 0..3 {
            let mut slots = [const { Slot::new() }; 3];
            let mut lists = Lists::EMPTY;
            let bucket = Place::of(1, Kind::Bucket);
            for index in 0..3 {
                lists.push(&mut slots, bucket, Place::of(index, Kind::Id));
            }
            for _ in 0..2 {
                lists.remove(&mut slots, Place::of(leaves, Kind::Id));
            }
            let mut left = (0..3).filter(|index| *index != leaves);
            let mut place = bucket;
            while let Some(next) = lists.after(&mut slots, place) {
                assert!(next.is(Kind::Id) && !next.is(Kind::Qp));
                assert_eq!(Some(next.slot()), left.next());
                place = next;
            }
            assert_eq!(left.next(), None);
            assert!(!lists.holds(&mut slots, Place::of(leaves, Kind::Id)));
        }
    }
}
