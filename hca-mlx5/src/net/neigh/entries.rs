//! The entries of the neighbour cache, and what is asked of them, without a search however many
//! there are: by address, the oldest of a line, which gives way first, which has the next question.
//!
//! An entry stays where it was put, until another replaces it there. Anybody on the link chooses
//! addresses, so the index has a keyed hash.

use dat_core::Instant;
use dat_core::provider::siphash;
use heapless::Vec;

use super::frame::Mac;
use super::least::{Least, visit};
use crate::prm::gid::Gid;

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// `asked` questions are out; at `due` the next one, or the end. With `known` they go to that
    /// MAC alone, else to everybody.
    Asking {
        known: Option<Mac>,
        asked: u8,
        due: Instant,
    },
    Known {
        mac: Mac,
        confirmed: Instant,
    },
    /// `until` is set once the failure has been reported.
    Failed {
        until: Option<Instant>,
    },
    /// Given by the configuration.
    Fixed(Mac),
}

impl State {
    /// The first question to everybody, at `now`.
    pub(super) const fn search(now: Instant) -> Self {
        Self::Asking { known: None, asked: 0, due: now }
    }
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) addr: Gid,
    pub(super) state: State,
    /// When it was last asked for, if ever.
    pub(super) used: Option<Instant>,
    /// Asked for only because it asked.
    pub(super) asker: bool,
}

/// Entries of which there are few, in the order in which they became what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Searches for those who asked.
    Askers,
    /// Learned and never asked for.
    Hints,
    /// Searches of this side.
    Searches,
}

impl Line {
    /// How many there are.
    const COUNT: usize = 3;
}

impl Entry {
    pub(super) const fn new(addr: Gid, state: State) -> Self {
        Self { addr, state, used: None, asker: false }
    }

    /// Everybody is asked for it.
    pub(super) const fn searches(&self) -> bool {
        matches!(self.state, State::Asking { known: None, .. })
    }

    /// Asked for in vain.
    pub(super) const fn is_failure(&self) -> bool {
        matches!(self.state, State::Failed { .. })
    }

    /// The line that it is in.
    pub(super) const fn line(&self) -> Option<Line> {
        match self.state {
            State::Asking { known: None, .. } if self.asker => Some(Line::Askers),
            State::Asking { known: None, .. } => Some(Line::Searches),
            State::Known { .. } if self.used.is_none() => Some(Line::Hints),
            State::Asking { .. } | State::Known { .. } | State::Failed { .. } | State::Fixed(_) => {
                None
            }
        }
    }

    /// When its next question is due.
    const fn due(&self) -> Instant {
        match self.state {
            State::Asking { due, .. } => due,
            State::Known { .. } | State::Failed { .. } | State::Fixed(_) => Instant::NEVER,
        }
    }

    /// Of two entries the one with the lower rank gives way: a failure before what is known; of that
    /// a hint before what was asked for, and then what was asked for, or confirmed, earlier.
    fn rank(&self) -> u128 {
        match self.state {
            State::Failed { .. } => 0,
            State::Known { confirmed, .. } => {
                let used = self.used.map_or(0, |used| used.after(1).as_nanos());
                u128::from(used) << 64 | u128::from(confirmed.as_nanos())
            }
            State::Asking { .. } | State::Fixed(_) => STAYS,
        }
    }
}

/// Rank of an entry that does not give way.
const STAYS: u128 = u128::MAX;

/// The entries before and behind one in its line, a ring with a head in it: by their places, of
/// which those from `N` on are heads.
#[derive(Clone, Copy, Debug)]
struct Link {
    previous: usize,
    next: usize,
}

impl Link {
    /// In a ring with nothing else.
    const fn alone(place: usize) -> Self {
        Self { previous: place, next: place }
    }
}

#[derive(Debug)]
struct Slot {
    entry: Entry,
    /// In its line, if it is in one.
    link: Link,
    /// Its list of the index.
    list: usize,
    /// The next in that list, counted from 1; 0 behind the last.
    next: usize,
}

/// Up to `N` entries.
#[derive(Debug)]
pub(super) struct Entries<const N: usize> {
    slots: Vec<Slot, N>,
    /// Key of the hash.
    secret: [u64; 2],
    /// The address whose list was looked up last, and that list: frames and calls come in runs about
    /// one address.
    last: (Gid, usize),
    /// The first entry of each list of the index, counted from 1; 0 if the list is empty.
    lists: [usize; N],
    /// By [`Line`].
    heads: [Link; Line::COUNT],
    lens: [usize; Line::COUNT],
    ranks: Least<u128, N>,
    deadlines: Least<Instant, N>,
}

impl<const N: usize> Entries<N> {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            secret: [0; 2],
            last: (Gid(0), usize::MAX),
            lists: [0; N],
            heads: [Link::alone(N), Link::alone(N + 1), Link::alone(N + 2)],
            lens: [0; Line::COUNT],
            ranks: Least::new(STAYS),
            deadlines: Least::new(Instant::NEVER),
        }
    }

    /// Sets the secret of the hash.
    pub(super) fn set_secret(&mut self, secret: [u64; 2]) {
        self.secret = secret;
        self.last.1 = usize::MAX;
        self.lists.fill(0);
        for at in 0..self.slots.len() {
            self.enlist(at);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, at: usize) -> Option<&Slot> {
        visit();
        self.slots.get(at)
    }

    fn slot_mut(&mut self, at: usize) -> Option<&mut Slot> {
        visit();
        self.slots.get_mut(at)
    }

    pub(super) fn get(&self, at: usize) -> Option<Entry> {
        self.slot(at).map(|slot| slot.entry)
    }

    /// The list of an address.
    #[inline(always)]
    fn list(&mut self, addr: Gid) -> usize {
        if self.last.0 != addr || self.last.1 >= N {
            self.last = (addr, self.hash(addr));
        }
        self.last.1
    }

    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "a word of it")]
    fn hash(&self, addr: Gid) -> usize {
        let hash = siphash(self.secret, [(addr.0 >> 64) as u64, addr.0 as u64]);
        usize::try_from(((hash >> 32) * N as u64) >> 32).unwrap_or(0)
    }

    /// The entry of `addr`, and where it is.
    pub(super) fn find(&mut self, addr: Gid) -> Option<(usize, Entry)> {
        let list = self.list(addr);
        let mut link = *self.lists.get(list)?;
        loop {
            let at = link.checked_sub(1)?;
            let slot = self.slot(at)?;
            if slot.entry.addr == addr {
                return Some((at, slot.entry));
            }
            link = slot.next;
        }
    }

    /// Enters an entry into the index.
    fn enlist(&mut self, at: usize) {
        let Some(addr) = self.get(at).map(|entry| entry.addr) else { return };
        let list = self.list(addr);
        let Some(head) = self.lists.get_mut(list) else { return };
        let next = core::mem::replace(head, at + 1);
        if let Some(slot) = self.slot_mut(at) {
            (slot.list, slot.next) = (list, next);
        }
    }

    /// Takes an entry out of the index.
    fn unlist(&mut self, at: usize) {
        let Some(&Slot { list, next, .. }) = self.slot(at) else { return };
        let Some(head) = self.lists.get_mut(list) else { return };
        let mut link = *head;
        if link == at + 1 {
            *head = next;
            return;
        }
        while let Some(before) = link.checked_sub(1).and_then(|at| self.slot_mut(at)) {
            link = before.next;
            if link == at + 1 {
                before.next = next;
                return;
            }
        }
    }

    fn link(&mut self, place: usize) -> Option<&mut Link> {
        match place.checked_sub(N) {
            Some(line) => self.heads.get_mut(line),
            None => self.slot_mut(place).map(|slot| &mut slot.link),
        }
    }

    /// Puts an entry behind all others of a line.
    fn join(&mut self, at: usize, line: Line) {
        let head = N + line as usize;
        let Some(first) = self.link(head) else { return };
        let last = core::mem::replace(&mut first.previous, at);
        if let Some(link) = self.link(last) {
            link.next = at;
        }
        if let Some(link) = self.link(at) {
            *link = Link { previous: last, next: head };
        }
        if let Some(len) = self.lens.get_mut(line as usize) {
            *len = len.saturating_add(1);
        }
    }

    /// Takes an entry out of its line.
    fn leave(&mut self, at: usize, line: Line) {
        let Some(&mut Link { previous, next }) = self.link(at) else { return };
        if let Some(link) = self.link(previous) {
            link.next = next;
        }
        if let Some(link) = self.link(next) {
            link.previous = previous;
        }
        if let Some(len) = self.lens.get_mut(line as usize) {
            *len = len.saturating_sub(1);
        }
    }

    /// Entries of a line.
    pub(super) fn count(&self, line: Line) -> usize {
        self.lens.get(line as usize).map_or(0, |len| *len)
    }

    /// The oldest of a line.
    pub(super) fn oldest(&self, line: Line) -> Option<usize> {
        let first = self.heads.get(line as usize)?.next;
        (first < N).then_some(first)
    }

    /// The entry that gives way first, if any does.
    pub(super) fn least(&self) -> Option<(usize, Entry)> {
        let at = self.ranks.first();
        Some((at, self.get(at)?)).filter(|_| self.ranks.least() != STAYS)
    }

    /// The earliest time at which a question is due.
    pub(super) fn next_deadline(&self) -> Instant {
        self.deadlines.least()
    }

    /// An entry whose question is due at that time.
    pub(super) fn next(&self) -> Option<(usize, Entry)> {
        let at = self.deadlines.first();
        Some((at, self.get(at)?))
    }

    /// Adds an entry. False if there is no room.
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        let at = self.slots.len();
        let link = Link::alone(at);
        let pushed = self.slots.push(Slot { entry, link, list: 0, next: 0 }).is_ok();
        if pushed {
            self.enlist(at);
            self.place(at, entry, entry.line());
        }
        pushed
    }

    /// Replaces the entry at `at`.
    pub(super) fn set(&mut self, at: usize, entry: Entry) {
        let Some(slot) = self.slot_mut(at) else { return };
        let old = core::mem::replace(&mut slot.entry, entry);
        if old.addr != entry.addr {
            self.unlist(at);
            self.enlist(at);
        }
        let moves = (old.addr, old.line()) != (entry.addr, entry.line());
        if moves {
            if let Some(line) = old.line() {
                self.leave(at, line);
            }
        }
        self.place(at, entry, entry.line().filter(|_| moves));
    }

    /// Enters an entry into a line and into the trees.
    fn place(&mut self, at: usize, entry: Entry, line: Option<Line>) {
        if let Some(line) = line {
            self.join(at, line);
        }
        self.ranks.set(at, entry.rank());
        self.deadlines.set(at, entry.due());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    const N: usize = 16;

    fn state() -> impl Strategy<Value = State> {
        let time = || (0..9_u64).prop_map(Instant::from_nanos);
        let mac = || any::<bool>().prop_map(|one| [2, 0, 0, 0, 0, u8::from(one)]);
        prop_oneof![
            (proptest::option::of(mac()), 0..4_u8, time())
                .prop_map(|(known, asked, due)| State::Asking { known, asked, due }),
            (mac(), time()).prop_map(|(mac, confirmed)| State::Known { mac, confirmed }),
            proptest::option::of(time()).prop_map(|until| State::Failed { until }),
            mac().prop_map(State::Fixed),
        ]
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let used = proptest::option::of((0..9_u64).prop_map(Instant::from_nanos));
        (0..40_u128, state(), used, any::<bool>()).prop_map(|(addr, state, used, asker)| Entry {
            addr: Gid(addr),
            state,
            used,
            asker,
        })
    }

    /// The same by searching through all of them.
    #[derive(Default)]
    struct Model {
        entries: Vec<Entry>,
        lines: [Vec<usize>; Line::COUNT],
    }

    impl Model {
        fn set(&mut self, at: usize, entry: Entry) {
            let old = self.entries.get(at).copied();
            match self.entries.get_mut(at) {
                Some(place) => *place = entry,
                None => self.entries.push(entry),
            }
            if old.map(|old| (old.addr, old.line())) == Some((entry.addr, entry.line())) {
                return;
            }
            self.lines.iter_mut().for_each(|line| line.retain(|other| *other != at));
            if let Some(line) = entry.line() {
                self.lines[line as usize].push(at);
            }
        }

        fn find(&self, addr: Gid) -> Option<usize> {
            self.entries.iter().position(|entry| entry.addr == addr)
        }

        /// Failures, then what was asked for longest ago, if ever.
        fn least(&self) -> Option<usize> {
            let rank = |entry: &Entry| match entry.state {
                State::Failed { .. } => Some((None, Instant::ZERO)),
                State::Known { confirmed, .. } => Some((entry.used, confirmed)),
                State::Asking { .. } | State::Fixed(_) => None,
            };
            let ranks =
                self.entries.iter().zip(0..).filter_map(|(entry, at)| Some((rank(entry)?, at)));
            ranks.min().map(|(_, at)| at)
        }

        fn next(&self) -> Option<(Instant, usize)> {
            let due = |entry: &Entry| match entry.state {
                State::Asking { due, .. } => Some(due),
                State::Known { .. } | State::Failed { .. } | State::Fixed(_) => None,
            };
            let due =
                self.entries.iter().zip(0..).filter_map(|(entry, at)| Some((due(entry)?, at)));
            due.min()
        }
    }

    proptest! {
        #[test]
        fn all_is_found_as_by_a_search(
            steps in proptest::collection::vec((0..N, entry(), any::<u8>()), 1..200)
        ) {
            let mut entries = Entries::<N>::new();
            let mut model = Model::default();
            for (at, entry, rest) in steps {
                if rest < 8 {
                    entries.set_secret([rest.into(), at as u64]);
                }
                // No address is entered twice.
                let at = model.find(entry.addr).unwrap_or(at).min(model.entries.len());
                if at < model.entries.len() {
                    entries.set(at, entry);
                } else {
                    prop_assert!(entries.push(entry));
                }
                model.set(at, entry);
                prop_assert_eq!(entries.len(), model.entries.len());
                for addr in (0..40).map(Gid) {
                    let expected = model.find(addr).map(|at| (at, model.entries[at]));
                    prop_assert_eq!(entries.find(addr), expected);
                }
                for line in [Line::Askers, Line::Hints, Line::Searches] {
                    let expected = &model.lines[line as usize];
                    prop_assert_eq!(entries.count(line), expected.len());
                    prop_assert_eq!(entries.oldest(line), expected.first().copied());
                }
                prop_assert_eq!(entries.least().map(|(at, _)| at), model.least());
                let next = model.next();
                prop_assert_eq!(entries.next_deadline(), next.map_or(Instant::NEVER, |next| next.0));
                if let Some((_, at)) = next {
                    prop_assert_eq!(entries.next(), Some((at, model.entries[at])));
                }
            }
            prop_assert!(model.entries.len() < N || !entries.push(Entry::new(Gid(99), State::Fixed([2; 6]))));
        }
    }
}
