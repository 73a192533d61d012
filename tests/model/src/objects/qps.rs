//! The queue pairs of a function, by number, and which of them have something to do.
//!
//! There may be thousands, nearly all of them idle, and every message of the host's asks what is
//! due: so they stand in line by time, and a changed one is put into its new position before the
//! next query. Nothing reports that a receive was posted to a QP in error: its record has to be
//! read.

use std::collections::{BTreeMap, BTreeSet};

use super::qp::{Qp, Receives};
use crate::host::Nanos;
use crate::transport::Engine;
use crate::transport::host::QpState;

/// QPs in error that are looked at in one step.
const LOOKS: usize = 64;
/// Until more of them are, if there are more.
const PAUSE: Nanos = 1_000_000;

/// All queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Qps {
    all: BTreeMap<u32, Qp>,
    /// May have changed since it was last put in line.
    changed: Vec<u32>,
    /// When engines want to be called, the first first.
    line: BTreeSet<(Nanos, u32)>,
    /// The place of each in it.
    places: BTreeMap<u32, Nanos>,
    /// In error, with receives of their own.
    failed: BTreeSet<u32>,
    /// The one of those whose turn it is.
    turn: u32,
}

impl Qps {
    /// One of them.
    pub(crate) fn get(&self, qpn: &u32) -> Option<&Qp> {
        self.all.get(qpn)
    }

    /// One of them, to be changed.
    pub(crate) fn get_mut(&mut self, qpn: &u32) -> Option<&mut Qp> {
        self.touch(*qpn);
        self.all.get_mut(qpn)
    }

    /// Whether there is one.
    pub(crate) fn contains_key(&self, qpn: &u32) -> bool {
        self.all.contains_key(qpn)
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Qp> {
        self.all.values()
    }

    /// Another one.
    pub(crate) fn insert(&mut self, qpn: u32, qp: Qp) {
        self.touch(qpn);
        self.all.insert(qpn, qp);
    }

    /// One less.
    pub(crate) fn remove(&mut self, qpn: &u32) -> Option<Qp> {
        self.touch(*qpn);
        self.all.remove(qpn)
    }

    fn touch(&mut self, qpn: u32) {
        if self.changed.last() != Some(&qpn) {
            self.changed.push(qpn);
        }
    }

    /// Updates the deadlines and the error list for the changed queue pairs.
    fn reschedule_changed(&mut self) {
        for qpn in std::mem::take(&mut self.changed) {
            let qp = self.all.get(&qpn);
            let due = qp.and_then(|qp| qp.engine.as_ref().and_then(Engine::next_deadline));
            let was = match due {
                Some(due) => self.places.insert(qpn, due),
                None => self.places.remove(&qpn),
            };
            if was != due {
                was.map(|was| self.line.remove(&(was, qpn)));
                due.map(|due| self.line.insert((due, qpn)));
            }
            let failed = |qp: &Qp| qp.state == QpState::Err && qp.receives == Receives::Own;
            if qp.is_some_and(failed) {
                self.failed.insert(qpn);
            } else {
                self.failed.remove(&qpn);
            }
        }
    }

    /// Queue pairs whose timer has expired at `now`, and those in error to poll this round, in the
    /// order of their numbers.
    pub(crate) fn due(&mut self, now: Nanos) -> BTreeMap<u32, Due> {
        self.reschedule_changed();
        let mut due = BTreeMap::<u32, Due>::new();
        for (_, qpn) in self.line.range(..=(now, u32::MAX)) {
            due.entry(*qpn).or_default().timer = true;
        }
        let turn = self.turn;
        let round = self.failed.range(turn..).chain(self.failed.range(..turn));
        for qpn in round.take(LOOKS) {
            due.entry(*qpn).or_default().receives = true;
            self.turn = qpn + 1;
        }
        due
    }

    /// When something is due next.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Nanos> {
        self.reschedule_changed();
        let timer = self.line.first().map(|(due, _)| *due);
        let more = (self.failed.len() > LOOKS).then_some(now + PAUSE);
        timer.into_iter().chain(more).min()
    }
}

/// Work that is due for one queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Its engine's timer.
    pub(crate) timer: bool,
    /// A look at what was posted to receive.
    pub(crate) receives: bool,
}
