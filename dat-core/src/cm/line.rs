//! Slots that stand in line for the caller, chained through the table: to be found without a
//! search, however long the table is.

use crate::cm::slot::Slot;

/// Purpose of a line. A slot has an entry in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Kind {
    /// Slots that may have an event.
    Events,
    /// Slots that may have a message to send.
    Sends,
}

impl Kind {
    /// How many there are.
    pub(super) const COUNT: usize = 2;
}

/// A slot's link in a line: the next slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    /// It does not stand in line.
    pub(super) const NONE: Self = Self(u32::MAX);
    /// It is the last.
    const LAST: Self = Self(u32::MAX - 1);

    fn of(index: usize) -> Self {
        u32::try_from(index).map_or(Self::NONE, Self)
    }

    /// The slot that is meant, if it is one: no table is as long as the two others are great.
    fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// First come, first served. Nobody stands there twice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    first: Place,
    last: Place,
}

impl Line {
    /// Nobody.
    pub(super) const EMPTY: Self = Self { first: Place::NONE, last: Place::NONE };

    /// Has a slot stand behind all others, unless it stands in line already.
    pub(super) fn push(&mut self, slots: &mut [Slot], kind: Kind, index: usize) {
        let Some(behind) = behind(slots, kind, index) else {
            return;
        };
        if *behind != Place::NONE {
            return;
        }
        *behind = Place::LAST;
        let own = Place::of(index);
        match behind_of(slots, kind, self.last) {
            Some(behind) => *behind = own,
            None => self.first = own,
        }
        self.last = own;
    }

    /// Takes the first out.
    pub(super) fn pop(&mut self, slots: &mut [Slot], kind: Kind) -> Option<usize> {
        let own = self.first;
        let next = behind_of(slots, kind, own)?;
        self.first = match core::mem::replace(next, Place::NONE) {
            Place::LAST => Place::NONE,
            next => next,
        };
        if self.first == Place::NONE {
            self.last = Place::NONE;
        }
        Some(own.index())
    }
}

fn behind(slots: &mut [Slot], kind: Kind, index: usize) -> Option<&mut Place> {
    slots.get_mut(index)?.lines.get_mut(kind as usize)
}

fn behind_of(slots: &mut [Slot], kind: Kind, place: Place) -> Option<&mut Place> {
    behind(slots, kind, place.index())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_in_turn_and_once() {
        let mut slots = [const { Slot::new() }; 3];
        let (mut events, mut sends) = (Line::EMPTY, Line::EMPTY);
        for index in [2, 0, 2, 9, 1, 0] {
            events.push(&mut slots, Kind::Events, index);
        }
        sends.push(&mut slots, Kind::Sends, 1);
        assert_eq!(events.pop(&mut slots, Kind::Events), Some(2));
        events.push(&mut slots, Kind::Events, 2);
        let rest = core::array::from_fn(|_| events.pop(&mut slots, Kind::Events));
        assert_eq!(rest, [Some(0), Some(1), Some(2), None]);
        events.push(&mut slots, Kind::Events, 1);
        assert_eq!(events.pop(&mut slots, Kind::Events), Some(1));
        assert_eq!(sends.pop(&mut slots, Kind::Sends), Some(1));
        assert_eq!(sends.pop(&mut slots, Kind::Sends), None);
    }
}
