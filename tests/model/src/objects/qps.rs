//! The queue pairs of a function, by number, and which of them have something to do.
//!
//! There may be thousands, nearly all of them idle, and every message of the host's asks what is
//! due: so they stand in line by time, and a changed one is put into its new position before the
//! next query. Nothing reports that a receive was posted to a QP in error: its record has to be
//! read. One that is idle takes 2.3 KiB together with a CQ and a key of its own.

use std::collections::BTreeMap;

use super::qp::{Qp, Receives};
use crate::bus::Bus;
use crate::host::Nanos;
use crate::table::{Deadlines, Set, Table};
use crate::transport::Engine;
use crate::transport::host::{QpKind, QpState};

/// QPs in error that are looked at in one step.
const LOOKS: usize = 16;
/// Until more of them are, if there are more.
const PAUSE: Nanos = 250_000;

/// One queue pair.
#[derive(Debug)]
struct Entry {
    qp: Qp,
    /// It is among the changed ones.
    changed: bool,
}

/// All queue pairs.
#[derive(Debug, Default)]
pub(crate) struct Qps {
    all: Table<u32, Entry>,
    /// May have changed since they were last put in line, each once.
    changed: Vec<u32>,
    /// When engines want to be called.
    timers: Deadlines,
    /// In error, with receives of their own.
    failed: Set<u32>,
    /// The one of those whose turn it is.
    turn: u32,
    /// Of the general services, and not in RESET.
    gsi: Set<u32>,
    /// Of subnet management, and not in RESET.
    smi: Set<u32>,
    /// How many are of the special services.
    special: usize,
}

/// Whether it is a queue pair of the special services, which has another number on the wire.
fn is_special(qp: &Qp) -> bool {
    matches!(qp.kind, QpKind::Gsi | QpKind::Smi)
}

impl Qps {
    /// One of them.
    pub(crate) fn get(&self, qpn: &u32) -> Option<&Qp> {
        self.all.get(qpn).map(|entry| &entry.qp)
    }

    /// One of them, to be changed.
    pub(crate) fn get_mut(&mut self, qpn: &u32) -> Option<&mut Qp> {
        let entry = self.all.get_mut(qpn)?;
        if !std::mem::replace(&mut entry.changed, true) {
            self.changed.push(*qpn);
        }
        Some(&mut entry.qp)
    }

    /// Whether there is one.
    pub(crate) fn contains_key(&self, qpn: &u32) -> bool {
        self.all.contains_key(qpn)
    }

    /// How many there are, without those of the special services.
    pub(crate) fn ordinary(&self) -> usize {
        self.all.len() - self.special
    }

    /// Another one.
    pub(crate) fn insert(&mut self, qpn: u32, qp: Qp) {
        // Those destroyed since are still listed.
        if self.changed.len() > 2 * self.all.len() {
            self.reschedule_changed();
        }
        self.changed.push(qpn);
        self.special += usize::from(is_special(&qp));
        self.all.insert(qpn, Entry { qp, changed: true });
    }

    /// One less.
    pub(crate) fn remove(&mut self, qpn: &u32) -> Option<Qp> {
        let entry = self.all.remove(qpn)?;
        self.special -= usize::from(is_special(&entry.qp));
        self.timers.set(*qpn, None);
        self.failed.remove(qpn);
        self.gsi.remove(qpn);
        self.smi.remove(qpn);
        Some(entry.qp)
    }

    /// The GSI QP that receives: the one with the lowest number, if there are several.
    pub(crate) fn gsi(&mut self) -> Option<u32> {
        self.reschedule_changed();
        self.gsi.first()
    }

    /// The same of subnet management.
    pub(crate) fn smi(&mut self) -> Option<u32> {
        self.reschedule_changed();
        self.smi.first()
    }

    /// Whether a number on the wire names a QP: those of the special services have others there.
    pub(crate) fn has_on_wire(&self, qpn: &u32) -> bool {
        self.get(qpn).is_some_and(|qp| !is_special(qp))
    }

    /// Whether a QP has receives that were posted and not taken, as its record says.
    pub(crate) fn has_receives(&mut self, bus: &mut Bus, qpn: u32) -> bool {
        self.all.get_mut(&qpn).is_some_and(|entry| entry.qp.has_receives(bus))
    }

    /// Updates the deadlines and the error list for the changed queue pairs.
    fn reschedule_changed(&mut self) {
        for qpn in std::mem::take(&mut self.changed) {
            let Some(Entry { qp, changed }) = self.all.get_mut(&qpn) else {
                continue;
            };
            *changed = false;
            self.timers.set(qpn, qp.engine.as_ref().and_then(Engine::next_deadline));
            let lists = [
                (&mut self.failed, qp.state == QpState::Err && qp.receives == Receives::Own),
                (&mut self.gsi, qp.state != QpState::Reset && qp.kind == QpKind::Gsi),
                (&mut self.smi, qp.state != QpState::Reset && qp.kind == QpKind::Smi),
            ];
            for (list, is_in) in lists {
                if is_in {
                    list.insert(qpn);
                } else if !list.is_empty() {
                    list.remove(&qpn);
                }
            }
        }
    }

    /// Queue pairs whose timer has expired at `now`, and those in error to poll this round, in the
    /// order of their numbers.
    pub(crate) fn due(&mut self, now: Nanos) -> BTreeMap<u32, Due> {
        self.reschedule_changed();
        let mut due = BTreeMap::<u32, Due>::new();
        for qpn in self.timers.due(now) {
            due.entry(qpn).or_default().timer = true;
        }
        let turn = self.turn;
        let round = self.failed.range(turn..).chain(self.failed.range(..turn));
        for qpn in round.take(LOOKS) {
            due.entry(qpn).or_default().receives = true;
            self.turn = qpn + 1;
        }
        due
    }

    /// Entries of all lists besides the queue pairs themselves.
    #[cfg(test)]
    pub(super) fn listed(&self) -> usize {
        self.changed.len() + self.timers.len() + self.failed.len() + self.gsi.len() + self.smi.len()
    }

    /// When something is due next.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Nanos> {
        self.reschedule_changed();
        let more = (self.failed.len() > LOOKS).then_some(now + PAUSE);
        self.timers.next().into_iter().chain(more).min()
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
