//! Looking at completions before the consumer does.
//!
//! A graceful disconnect ends when the posted requests have completed, not when the consumer has dequeued their
//! completions: it may wait on its connect Event Dispatcher alone. So while such a disconnect runs, the control half
//! takes completions out of the queue and puts them into the ring, where the reaper finds them in order.

use core::sync::atomic::Ordering;

use crate::Ia;
use crate::handle::{Ep, Evd};
use crate::provider::{Completion, CompletionQueue, Direction, Provider, Status};
use crate::shared::ep::{Info, Trouble};

/// Completions taken in one go.
const BUDGET: u32 = 64;

impl<P: Provider> Ia<'_, P> {
    /// Moves completions of `evd` into its ring, up to half of it. Nothing is moved behind a terminal event that still
    /// lies there: the reaper would find it later than what is in the queue.
    pub(crate) fn absorb(&mut self, evd: Evd) {
        let Some(ring) = self.shared.evd(evd.0.index()) else {
            return;
        };
        for _ in 0..BUDGET {
            let Some(control) = self.evds.get(evd.0) else {
                return;
            };
            let head = ring.consumer.head.load(Ordering::Acquire);
            let tail = ring.producer.tail.load(Ordering::Relaxed);
            let queued = tail.wrapping_sub(head);
            let terminal_ahead = control.terminal.wrapping_sub(head);
            let terminal_waits = terminal_ahead != 0 && terminal_ahead <= queued;
            if terminal_waits || queued >= control.ring / 2 {
                return;
            }
            let Ok(reaper) = self.reaper(evd) else { return };
            let Some(completion) = reaper.cq.as_mut().and_then(CompletionQueue::poll) else {
                return;
            };
            self.put(evd, crate::event::pack(&completion), false);
            self.worked = true;
            self.witness(&completion);
        }
    }

    /// Notes what a completion says of its Endpoint.
    fn witness(&mut self, completion: &Completion) {
        let shared = self.shared;
        let index = completion.index & shared.ep_mask;
        let Some(ep) = shared.ep(index) else { return };
        let line = ep.line(completion.direction);
        if line.index.load(Ordering::Relaxed) != completion.index {
            return;
        }
        if completion.status != Status::Success {
            super::reaper::tell(&shared, index, ep, Trouble::of(completion));
        }
        if completion.direction != Direction::Send {
            return;
        }
        let Some(handle) = self.eps.handle_at(index) else {
            return;
        };
        let Ok(control) = self.ep_mut(Ep(handle)) else {
            return;
        };
        let mask = line.mask.load(Ordering::Relaxed);
        let first = line.first.load(Ordering::Relaxed);
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
                shared.request(first, seq, mask).is_some_and(|slot| {
                    Info::from_word(slot.info.load(Ordering::Acquire)).is(completion.token)
                })
            });
        if let Some(seq) = found {
            control.completed = seq.wrapping_add(1);
        }
    }
}
