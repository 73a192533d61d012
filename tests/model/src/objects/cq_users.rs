//! Which queues complete to a CQ.

use super::qp::Qp;
use crate::table::{Counts, Set};

/// Kind of a queue that completes to a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Qp,
    Sq,
    Rq,
}

/// The users of all CQs.
#[derive(Debug, Default)]
pub(crate) struct CqUsers {
    /// CQ, kind and number of the queue.
    users: Set<(u32, Kind, u32)>,
    /// CQs of queue pairs whose completions hold payload.
    filled: Counts<u32>,
}

impl CqUsers {
    /// A raw queue begins to use a CQ.
    pub(super) fn add(&mut self, cqn: u32, kind: Kind, number: u32) {
        self.users.insert((cqn, kind, number));
    }

    /// A raw queue is gone.
    pub(super) fn remove(&mut self, cqn: u32, kind: Kind, number: u32) {
        self.users.remove(&(cqn, kind, number));
    }

    /// A queue pair begins to use its CQs.
    pub(super) fn add_qp(&mut self, qp: &Qp) {
        for cqn in [qp.cqn_snd(), qp.cqn_rcv()].into_iter().flatten() {
            self.add(cqn, Kind::Qp, qp.qpn);
            if qp.scatters_to_cqe() {
                self.filled.add(cqn);
            }
        }
    }

    /// A queue pair is gone.
    pub(super) fn remove_qp(&mut self, qp: &Qp) {
        for cqn in [qp.cqn_snd(), qp.cqn_rcv()].into_iter().flatten() {
            self.remove(cqn, Kind::Qp, qp.qpn);
            if qp.scatters_to_cqe() {
                self.filled.remove(cqn);
            }
        }
    }

    /// The queues that complete to a CQ: queue pairs, then raw queues for sending, then those for
    /// receiving, each in the order of their numbers.
    pub(super) fn of(&self, cqn: u32) -> impl Iterator<Item = u32> {
        let all = (cqn, Kind::Qp, 0)..=(cqn, Kind::Rq, u32::MAX);
        self.users.range(all).map(|(.., number)| number)
    }

    /// How many users all CQs have.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether completions of a queue pair of a CQ hold payload.
    pub(super) fn is_filled(&self, cqn: u32) -> bool {
        self.filled.has(cqn)
    }
}
