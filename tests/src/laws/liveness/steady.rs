//! Steady traffic: the event of one Endpoint comes although another one's completions keep coming.

use std::time::Duration;

use dat_core::{CloseFlag, EpState};

use super::setup::Merge;
use super::state::Program;
use crate::conformance::{A, B, Side};
use crate::laws::{Check, violation};

/// Turns until connections are up.
const PATIENCE: usize = 400;

impl<S: Side> Program<'_, '_, S> {
    /// Connects Endpoints on one Event Dispatcher, keeps it full with completions of one, and ends
    /// another.
    pub(super) fn steady(&mut self, length: u64, done: &mut u64) -> Check {
        let ends = 2 + self.rng.below(3);
        self.set_up_side(A, ends, Merge::One);
        self.set_up_side(B, ends, Merge::Each);
        for side in [A, B] {
            self.sides[side].appetite = 0;
        }
        for end in 0..self.sides[A].ends.len() {
            self.connect(A, end)?;
        }
        for _ in 0..PATIENCE {
            self.turn(Duration::from_micros(20));
            for queue in 0..self.sides[B].queues.len() {
                self.drain(B, queue)?;
            }
            while !self.sides[B].requests.is_empty() {
                self.answer(B)?;
            }
            self.drain(A, 0)?;
        }
        let alive = self.alive(A);
        let up: Vec<usize> =
            alive.into_iter().filter(|&end| self.state(A, end) == EpState::Connected).collect();
        let [busy, other, ..] = up[..] else {
            return self.finish();
        };
        // Some traffic on the one that ends.
        for _ in 0..self.rng.below(4) {
            self.post_write(A, other)?;
            self.post_recv(A, other, false)?;
        }
        let limit = 2 * self.sides[A].queues[0].qlen + 64;
        let connection = self.sides[A].ends[other].current.unwrap_or(0);
        let mut started = false;
        let mut ended = false;
        let mut again = self.rng.percent(50);
        let mut since = 0;
        let begin = self.rng.below(20) as u64;
        for step in 0..length.max(40) + 4 * limit as u64 {
            *done = (*done + 1).min(length);
            if self.state(A, busy) != EpState::Connected {
                return self.finish();
            }
            // Keep more than one completion in the queue: it is never seen empty.
            for _ in 0..1 + self.rng.below(3) {
                self.post_write(A, busy)?;
            }
            if step == begin {
                started = true;
                match self.rng.below(3) {
                    0 => self.disconnect(A, other, CloseFlag::Abrupt)?,
                    1 => self.disconnect(A, other, CloseFlag::Graceful)?,
                    _ => {
                        for end in 0..self.sides[B].ends.len() {
                            let known = self.sides[B].ends[end].current;
                            let peer = self.sides[A].connections[connection].peer;
                            if peer.is_some() && known == peer {
                                self.disconnect(B, end, CloseFlag::Abrupt)?;
                            }
                        }
                    }
                }
            }
            if self.rng.percent(60) {
                self.turn(Duration::from_micros(2));
            }
            for queue in 0..self.sides[B].queues.len() {
                self.dequeue(B, queue)?;
            }
            if !ended && started && self.state(A, other) == EpState::Disconnected {
                ended = true;
                again &= self.fits_stale(A, 0, 1);
                if again {
                    // The next connection begins while the event of this one waits.
                    self.reset(A, other)?;
                    self.connect(A, other)?;
                }
            }
            if !self.sides[B].requests.is_empty() {
                self.answer(B)?;
            }
            if self.dequeue(A, 0)? && ended {
                since += 1;
            }
            if self.sides[A].connections[connection].terminal_seen {
                break;
            }
            if since > limit && again {
                // The order of both connections' events is what this episode is about.
                break;
            }
            if since > limit {
                return violation(
                    "starved",
                    format!(
                        "end {other}: no terminal event after {since} more completions, length {}",
                        self.sides[A].queues[0].qlen
                    ),
                );
            }
        }
        self.finish()
    }
}
