//! The table of slots: which a new connection takes, which a message means, and which has the
//! earliest deadline. None of it takes longer because more is open.

use crate::cm::Cm;
use crate::cm::ids::{LAST_GENERATION, SLOT_BITS};
use crate::cm::lists::{Head, Kind, Place};
use crate::cm::slot::{Counted, Send, Slot, State};
use crate::types::deadlines::{self, Timed};
use crate::types::siphash::siphash;
use crate::types::time::Instant;

/// Links followed at most in a list of the index. Of honest peers' connections it holds one or two;
/// with the same address, adapter and number over and over a list grows, and only its sender finds
/// less.
const LONGEST_SEARCH: usize = 32;

/// Whose message it is.
pub(super) enum Found {
    /// That of the connection in this slot.
    Slot(usize),
    /// That of a connection that is known, but not to this sender: dropped.
    Foreign,
    /// Nobody's.
    Unknown,
}

impl Slot {
    /// The list of slots that a new connection may take, or of those that want a path.
    fn spare(&self) -> Option<Head> {
        if self.state == State::SidrReady {
            return Some(Head::Paths);
        }
        if self.kept || self.send != Send::Nothing {
            return None;
        }
        let silent = self.has_no_events();
        match self.state {
            State::Idle if silent => Some(Head::Vacant),
            State::TimeWait | State::SidrAnswered | State::SidrKept if silent => Some(Head::Over),
            // The retries of its DREQ are optional: the peer finds out by itself.
            State::DreqSent if silent && self.ended => Some(Head::Leaving),
            State::Idle
            | State::ReqReady
            | State::ReqSent
            | State::ReqReceived
            | State::RepReceived
            | State::RepSent
            | State::Established
            | State::DreqSent
            | State::TimeWait
            | State::SidrReady
            | State::SidrSent
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => None,
        }
    }

    /// What stands in the index of this kind for it.
    fn number(&self, kind: Kind) -> Option<u32> {
        let asked = matches!(self.state, State::SidrReceived | State::SidrAnswered);
        match kind {
            Kind::Id => {
                (!self.active && (asked || self.state.connects())).then_some(self.remote_id)
            }
            Kind::Qp if self.asker != 0 => Some(self.asker),
            Kind::Qp => (self.state.connects()
                && !matches!(self.state, State::TimeWait | State::ReqSent))
            .then_some(self.terms.remote_qpn),
            Kind::Event | Kind::Send | Kind::Spare | Kind::Bucket => None,
        }
    }
}

impl Cm<'_> {
    /// A slot for a new connection, under a new comm ID: a vacant one; else the one whose connection
    /// ended first; else one that its caller has left and whose peer has been sent a DREQ that it
    /// has not confirmed.
    pub(super) fn allocate(&mut self) -> Option<(usize, &mut Slot)> {
        let fresh = (self.fresh < self.slots.len().min(1 << SLOT_BITS)).then_some(self.fresh);
        let index = self
            .first(Head::Vacant)
            .or(fresh)
            .or_else(|| self.first(Head::Over))
            .or_else(|| self.first(Head::Leaving))?;
        self.fresh = self.fresh.max(index + 1);
        for kind in [Kind::Spare, Kind::Id, Kind::Qp] {
            self.lists.remove(self.slots, Place::of(index, kind));
        }
        self.count_as(index, None);
        let number = u32::try_from(index).ok()?;
        let slot = self.slots.get_mut(index)?;
        // On the wire 0 stands for an ID that is not known.
        let id = loop {
            slot.generation = slot.generation.wrapping_add(1) & LAST_GENERATION;
            match self.ids.id(number, slot.generation) {
                0 => {}
                id => break id,
            }
        };
        let starting_psn = self.psns.next_u32() >> 8;
        slot.renew();
        (slot.id, slot.index) = (id, number);
        slot.terms.rq_psn = starting_psn;
        slot.ended = false;
        Some((index, slot))
    }

    fn first(&mut self, head: Head) -> Option<usize> {
        self.lists.after(self.slots, head.into()).map(Place::slot)
    }

    /// Notes that the slot may have an event, a message or a deadline now, and where it is found.
    /// Called at the end of every change.
    #[inline(never)]
    pub(super) fn touch(&mut self, index: usize) {
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        let (spare, send) = (slot.spare(), slot.send != Send::Nothing);
        let counted = slot.state.counted();
        if !slot.has_no_events() {
            self.lists.push(self.slots, Head::Events, Place::of(index, Kind::Event));
        }
        if send {
            self.lists.push(self.slots, Head::Sends, Place::of(index, Kind::Send));
        }
        if let Some(slot) = self.slots.get_mut(index) {
            if core::mem::replace(&mut slot.spare, spare) != spare {
                let place = Place::of(index, Kind::Spare);
                self.lists.remove(self.slots, place);
                if let Some(head) = spare {
                    self.lists.push(self.slots, head, place);
                }
            }
        }
        self.count_as(index, counted);
        self.index(index, Kind::Id);
        self.index(index, Kind::Qp);
        self.note_deadline(index);
    }

    /// Counts the slot as something else than before.
    fn count_as(&mut self, index: usize, counted: Option<Counted>) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let before = core::mem::replace(&mut slot.counted, counted);
        if before == counted {
            return;
        }
        if let Some(count) = before.and_then(|what| self.counts.get_mut(what as usize)) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = counted.and_then(|what| self.counts.get_mut(what as usize)) {
            *count += 1;
        }
    }

    /// The look-up whose path has been tried for the longest time. It is the last to be tried from
    /// now on.
    pub(super) fn next_path(&mut self) -> Option<usize> {
        let index = self.lists.pop(self.slots, Head::Paths)?;
        self.lists.push(self.slots, Head::Paths, Place::of(index, Kind::Spare));
        Some(index)
    }

    /// Calls `each` with the slots of all look-ups of one who asks.
    pub(super) fn each_of_asker(&mut self, asker: u32, mut each: impl FnMut(&mut Self, usize)) {
        let bucket = self.bucket(Kind::Qp, asker, 0);
        let mut next = self.lists.after(self.slots, bucket);
        while let Some(place) = next {
            next = self.lists.after(self.slots, place);
            let index = place.slot();
            if place.is(Kind::Qp)
                && asker != 0
                && self.slots.get(index).is_some_and(|slot| slot.asker == asker)
            {
                each(self, index);
            }
        }
    }

    /// Puts the slot into the index, or takes it out.
    fn index(&mut self, index: usize, kind: Kind) {
        let place = Place::of(index, kind);
        let Some(slot) = self.slots.get(index) else { return };
        let peer = if slot.asker != 0 { 0 } else { slot.peer };
        let number = slot.number(kind);
        match number {
            None => self.lists.remove(self.slots, place),
            Some(_) if self.lists.holds(self.slots, place) => {}
            Some(number) => {
                let bucket = self.bucket(kind, number, peer);
                self.lists.push(self.slots, bucket, place);
            }
        }
    }

    /// What a peer is called in the index: a keyed hash of its address and its adapter. No two
    /// peers that anybody could find have the same.
    pub(super) fn peer(&self, remote: u128, guid: u64) -> u64 {
        let [high, low] = [remote >> 64, remote & u128::from(u64::MAX)]
            .map(|part| u64::try_from(part).unwrap_or_default());
        siphash(self.peers, [high, low, guid])
    }

    /// The list of a number of a peer: by a product with a secret factor, so that nobody can choose
    /// numbers which share a list.
    fn bucket(&self, kind: Kind, number: u32, peer: u64) -> Place {
        let number = u64::from(number) << 8 | kind as u64;
        let hash = peer.wrapping_add(number).wrapping_mul(self.numbers) >> 32;
        let buckets = self.slots.len() as u64;
        Place::of((hash.wrapping_mul(buckets) >> 32) as usize, Kind::Bucket)
    }

    /// The slot in the index for which `is` holds.
    pub(super) fn look_up(
        &mut self,
        kind: Kind,
        number: u32,
        peer: u64,
        mut is: impl FnMut(usize, &Slot) -> bool,
    ) -> Option<usize> {
        let mut place = self.bucket(kind, number, peer);
        for _ in 0..LONGEST_SEARCH {
            place = self.lists.after(self.slots, place)?;
            let index = place.slot();
            if place.is(kind) {
                if let Some(slot) = self.slots.get(index) {
                    if slot.number(kind) == Some(number) && slot.peer == peer && is(index, slot) {
                        return Some(index);
                    }
                }
            }
        }
        None
    }

    /// The slot that a message with these IDs, the sender's first, belongs to. Until the peer's ID
    /// is known, an answer shows by its `transaction` that its sender has seen the request; all
    /// peers known repeat it in REP, MRA and REJ (Linux `cm_id_priv->tid`).
    pub(super) fn find(
        &mut self,
        from: u128,
        [theirs, own]: [u32; 2],
        transaction: Option<u64>,
    ) -> Found {
        let found = self.wired(own).and_then(|index| Some((index, self.slots.get(index)?)));
        let Some((index, slot)) = found else {
            self.counters.unknown += 1;
            return Found::Unknown;
        };
        let asked = slot.active && slot.remote_id == 0;
        let wrong = if slot.remote != from {
            &mut self.counters.wrong_address
        } else if asked && transaction != Some(slot.transaction) {
            &mut self.counters.wrong_transaction
        } else if !asked && theirs != slot.remote_id {
            &mut self.counters.wrong_id
        } else {
            return Found::Slot(index);
        };
        *wrong += 1;
        self.counters.foreign += 1;
        Found::Foreign
    }

    /// The earliest deadline of all.
    pub(super) fn earliest(&self) -> Instant {
        deadlines::earliest(self.slots)
    }

    /// A slot to which the earliest deadline leads.
    pub(super) fn due(&self) -> usize {
        deadlines::due(self.slots)
    }

    /// Takes note of the deadline of a slot.
    pub(super) fn note_deadline(&mut self, index: usize) {
        deadlines::note(self.slots, index);
    }
}

impl Timed for Slot {
    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn soonest(&self) -> Instant {
        self.soonest
    }

    fn set_soonest(&mut self, soonest: Instant) {
        self.soonest = soonest;
    }
}
