//! Completions on their way to their ring: in order within a queue, in any order between queues.

use super::cqe::{Cqe, CqeOpcode};
use crate::host::Nanos;
use crate::table::Table;

/// Number of the queue, and whether it is the receiving one.
type Queue = (u32, bool);

/// One of them.
#[derive(Debug)]
struct Entry {
    queue: Queue,
    cqn: u32,
    cqe: Cqe,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// By the time when they are due, and the order in which the work ended.
    entries: Table<(Nanos, u64), Entry>,
    /// Of each queue that has some, how many, and when the last one is due.
    last: Table<Queue, (u32, Nanos)>,
    count: u64,
}

impl Late {
    /// Adds one, which does not pass an earlier one of its queue.
    pub(crate) fn put(&mut self, due: Nanos, number: u32, cqn: u32, cqe: &Cqe) {
        let sends = matches!(cqe.opcode, CqeOpcode::Requester | CqeOpcode::RequesterError);
        let queue = (number, !sends);
        let (waiting, last) = self.last.entry(queue).or_default();
        *waiting += 1;
        *last = due.max(*last);
        self.entries.insert((*last, self.count), Entry { queue, cqn, cqe: *cqe });
        self.count += 1;
    }

    /// Takes those due by a time, in the order of their times: queue, CQ and entry.
    pub(crate) fn take(&mut self, until: Nanos) -> Vec<(u32, u32, Cqe)> {
        let due: Vec<_> = self.entries.range(..=(until, u64::MAX)).map(|(key, _)| key).collect();
        let due = due.iter().filter_map(|key| self.entries.remove(key));
        due.map(|Entry { queue, cqn, cqe }| {
            if let Some((waiting, _)) = self.last.get_mut(&queue) {
                *waiting -= 1;
                if *waiting == 0 {
                    self.last.remove(&queue);
                }
            }
            (queue.0, cqn, cqe)
        })
        .collect()
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.entries.range(..).next().map(|((due, _), _)| due)
    }
}
