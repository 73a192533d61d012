//! Completions on their way to their ring: in order within a queue, in any order between queues.

use super::cqe::{Cqe, CqeOpcode};
use crate::host::Nanos;

/// One of them.
#[derive(Debug)]
struct Entry {
    due: Nanos,
    /// Number of the queue, and whether it is the receiving one.
    queue: (u32, bool),
    cqn: u32,
    cqe: Cqe,
}

/// All of them, in the order in which the work ended.
#[derive(Debug, Default)]
pub(crate) struct Late(Vec<Entry>);

impl Late {
    /// Adds one, which does not pass an earlier one of its queue.
    pub(crate) fn put(&mut self, due: Nanos, number: u32, cqn: u32, cqe: &Cqe) {
        let sends = matches!(cqe.opcode, CqeOpcode::Requester | CqeOpcode::RequesterError);
        let queue = (number, !sends);
        let last = self.0.iter().rfind(|entry| entry.queue == queue).map_or(0, |entry| entry.due);
        self.0.push(Entry { due: due.max(last), queue, cqn, cqe: *cqe });
    }

    /// Takes those due by a time, in the order of their times: queue, CQ and entry.
    pub(crate) fn take(&mut self, until: Nanos) -> Vec<(u32, u32, Cqe)> {
        let mut due: Vec<_> = self.0.extract_if(.., |entry| entry.due <= until).collect();
        due.sort_by_key(|entry| entry.due);
        due.into_iter().map(|entry| (entry.queue.0, entry.cqn, entry.cqe)).collect()
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.0.iter().map(|entry| entry.due).min()
    }
}
