//! Looking at completions before the consumer does.
//!
//! A graceful disconnect ends when the posted requests have completed, not when the consumer has dequeued their
//! completions: it may wait on its connect Event Dispatcher alone. So while such a disconnect runs, the control half
//! takes completions out of the queue and puts them into the ring, where the reaper finds them in order. It does the same
//! for an Event Dispatcher that a CNO or upcalls listen to, to tell what has come.

use core::sync::atomic::Ordering;

use super::count::{Verdict, verdict};
use crate::Ia;
use crate::handle::{Ep, Evd};
use crate::provider::{Completion, CompletionQueue, Direction, Provider, Status};
use crate::shared::ep::{KIND, Trouble};

/// Completions taken in one go.
const BUDGET: u32 = 64;

/// What was taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// Some of it notifies.
    pub(crate) notifying: bool,
    /// Nothing is left.
    pub(crate) all: bool,
}

impl<P: Provider> Ia<'_, P> {
    /// Moves completions of `evd` into its ring, up to half of it. Nothing is moved behind a terminal event that still
    /// lies there: the reaper would find it later than what is in the queue.
    pub(crate) fn absorb(&mut self, evd: Evd) -> Taken {
        let mut taken = Taken::default();
        let shared = self.shared;
        let Some(ring) = shared.evd(evd.0.index()) else {
            return taken;
        };
        for _ in 0..BUDGET {
            let Some(control) = self.evds.get(evd.0) else {
                return taken;
            };
            let head = ring.consumer.head.load(Ordering::Acquire);
            let tail = ring.producer.tail.load(Ordering::Relaxed);
            let queued = tail.wrapping_sub(head);
            let terminal_ahead = control.terminal.wrapping_sub(head);
            let terminal_waits = terminal_ahead != 0 && terminal_ahead <= queued;
            let full = terminal_waits || queued >= control.ring / 2;
            let Ok(reaper) = self.reaper_here(evd) else {
                return taken;
            };
            if full {
                taken.all = true;
                if let Some(cq) = &mut reaper.cq {
                    cq.survey(|_| taken.all = false);
                }
                return taken;
            }
            let Some(completion) = reaper.poll() else {
                taken.all = true;
                return taken;
            };
            taken.notifying |= verdict(&shared, &completion) == Verdict::Notifies;
            self.put(evd, crate::event::pack(&completion), false);
            self.worked = true;
            self.witness(&completion);
        }
        taken
    }

    /// Notes what a completion says of its Endpoint.
    fn witness(&mut self, completion: &Completion) {
        let shared = self.shared;
        let index = completion.index & shared.ep_mask;
        let Some(ep) = shared.ep(index) else { return };
        let line = ep.line(completion.direction);
        if line.index.load(Ordering::Relaxed) & !KIND != completion.index {
            return;
        }
        if completion.status != Status::Success {
            super::reaper::tell(&shared, index, ep, Trouble::of(completion));
        }
        let Some(handle) = self.eps.handle_at(index) else {
            return;
        };
        let Ok(control) = self.ep_mut(Ep(handle)) else {
            return;
        };
        if completion.direction != Direction::Send {
            control.arrived = control.arrived.wrapping_add(1);
            return;
        }
        let consumed = line.consumed.load(Ordering::Acquire);
        let posted = ep.posted(Direction::Send);
        // Each request is passed once: from what was known already, or dequeued since.
        let known = control.completed.wrapping_sub(consumed);
        let start = if known <= posted.wrapping_sub(consumed) {
            control.completed
        } else {
            consumed
        };
        let found = (0..posted.wrapping_sub(start))
            .map(|ahead| start.wrapping_add(ahead))
            .find(|&seq| {
                shared
                    .request(line, seq)
                    .is_some_and(|slot| slot.tag().is(completion.token))
            });
        if let Some(seq) = found {
            control.completed = seq.wrapping_add(1);
        }
    }
}
