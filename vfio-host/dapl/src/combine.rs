//! Calls of several threads that are carried out together: while one thread waits for the device,
//! others leave their requests, and the next one carries all of them out.
//!
//! A thread leaves its request in a slot ([`Combiner::enter`]). If no other thread leads, it does: it
//! waits a moment for others ([`Combiner::gather`]), takes the lock of what the requests are about,
//! takes all requests that are there by then ([`Combiner::take`]), carries them out, hands out the
//! results, and lets the thread lead that has waited longest ([`Combiner::finish`]). Otherwise it
//! sleeps until its result is there, or until it has to lead. A thread leads once for each of its
//! requests at most. Nothing here allocates.

use heapless::Vec;

use crate::sync::{Condvar, Mutex, locked, wait};

/// Requests that are carried out together at most. A thread that finds no slot is on its own.
pub(crate) const ROOM: usize = 8;

/// How often the leading thread lets others run before it goes on without their requests.
const PATIENCE: usize = 100;

/// Requests that are carried out together: the slot of each, the request, and its result.
pub(crate) type Batch<A, T> = Vec<(usize, A, Option<T>), ROOM>;

enum Slot<A, T> {
    Free,
    /// A request, and how many came before it.
    Waiting(A, u64),
    /// Being carried out.
    Taken,
    Done(T),
}

struct State<A, T> {
    slots: [Slot<A, T>; ROOM],
    /// Requests that were left.
    left: u64,
    /// Threads that make requests at present, as far as was seen.
    crowd: usize,
    /// The slot of the thread that leads, or has to.
    leader: Option<usize>,
}

/// What a thread that has left a request does next.
pub(crate) enum Turn<A, T> {
    /// It returns: this is the result.
    Done(T),
    /// It leads, and its request is in that slot.
    Lead(usize),
    /// All slots are taken: it carries out its own request.
    Alone(A),
}

/// Requests of threads.
pub(crate) struct Combiner<A, T> {
    state: Mutex<State<A, T>>,
    /// The thread of each slot sleeps on it.
    bells: [Condvar; ROOM],
}

impl<A, T> Combiner<A, T> {
    pub(crate) fn new() -> Self {
        let slots = std::array::from_fn(|_| Slot::Free);
        let bells = std::array::from_fn(|_| Condvar::new());
        Self { state: Mutex::new(State { slots, left: 0, crowd: 1, leader: None }), bells }
    }

    /// Leaves a request, and returns when its result is there or the thread has to lead.
    pub(crate) fn enter(&self, ask: A) -> Turn<A, T> {
        let mut state = locked(&self.state);
        let free = state.slots.iter().position(|slot| matches!(slot, Slot::Free));
        let Some((own, bell)) = free.and_then(|own| Some((own, self.bells.get(own)?))) else {
            return Turn::Alone(ask);
        };
        let before = state.left;
        state.left = before.wrapping_add(1);
        if let Some(slot) = state.slots.get_mut(own) {
            *slot = Slot::Waiting(ask, before);
        }
        loop {
            if let Some(result) = state.result(own) {
                return Turn::Done(result);
            }
            if *state.leader.get_or_insert(own) == own {
                return Turn::Lead(own);
            }
            state = wait(bell, state);
        }
    }

    /// Gives the threads that were served last, or waited meanwhile, the time to leave their next
    /// requests: much less than a command takes. A thread on its own does not wait.
    pub(crate) fn gather(&self) {
        for _ in 0..PATIENCE {
            let state = locked(&self.state);
            if state.waiting() >= state.crowd {
                return;
            }
            drop(state);
            std::thread::yield_now();
        }
    }

    /// Takes all requests that wait, that of the leading thread among them.
    pub(crate) fn take(&self) -> Batch<A, T> {
        let mut state = locked(&self.state);
        let mut batch = Vec::new();
        for (place, slot) in state.slots.iter_mut().enumerate() {
            if matches!(slot, Slot::Waiting(..)) {
                if let Slot::Waiting(ask, _) = std::mem::replace(slot, Slot::Taken) {
                    let _ = batch.push((place, ask, None));
                }
            }
        }
        batch
    }

    /// Hands out the results, `otherwise` where there is none, and lets the next thread lead. Returns
    /// the result of the request in slot `own`.
    pub(crate) fn finish(&self, own: usize, batch: Batch<A, T>, otherwise: impl Fn() -> T) -> T {
        let mut asked = Vec::<A, ROOM>::new();
        let mut state = locked(&self.state);
        state.crowd = batch.len() + state.waiting();
        for (place, ask, result) in batch {
            // Dropped when the lock is released.
            let _ = asked.push(ask);
            if let Some(slot) = state.slots.get_mut(place) {
                *slot = Slot::Done(result.unwrap_or_else(&otherwise));
            }
            if place != own {
                if let Some(bell) = self.bells.get(place) {
                    bell.notify_one();
                }
            }
        }
        state.leader = state.oldest();
        if let Some(bell) = state.leader.and_then(|place| self.bells.get(place)) {
            bell.notify_one();
        }
        let result = state.result(own);
        drop(state);
        drop(asked);
        result.unwrap_or_else(otherwise)
    }
}

impl<A, T> State<A, T> {
    /// How many requests wait.
    fn waiting(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Waiting(..))).count()
    }

    /// The slot of the request that has waited longest.
    fn oldest(&self) -> Option<usize> {
        let since = |slot: &Slot<A, T>| match slot {
            Slot::Waiting(_, before) => Some(self.left.wrapping_sub(*before)),
            Slot::Free | Slot::Taken | Slot::Done(_) => None,
        };
        let all = self.slots.iter().enumerate();
        all.filter_map(|(place, slot)| Some((since(slot)?, place))).max().map(|(_, place)| place)
    }

    /// Takes the result out of a slot, which is free then.
    fn result(&mut self, place: usize) -> Option<T> {
        let slot = self.slots.get_mut(place).filter(|slot| matches!(slot, Slot::Done(_)))?;
        match std::mem::replace(slot, Slot::Free) {
            Slot::Done(result) => Some(result),
            Slot::Free | Slot::Waiting(..) | Slot::Taken => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// More threads than slots: each request is carried out once, under the lock, and its result goes
    /// to its thread.
    #[test]
    fn each_request_is_carried_out_once() {
        const THREADS: usize = 2 * ROOM;
        const EACH: usize = 500;
        let (combiner, seen) = (Combiner::new(), Mutex::new(vec![0; THREADS * EACH]));
        let call = &|number: usize| match combiner.enter(number) {
            Turn::Done(result) => result,
            Turn::Lead(own) => {
                let mut seen = locked(&seen);
                let mut batch = combiner.take();
                for (_, number, result) in &mut batch {
                    seen[*number] += 1;
                    *result = Some(*number + 1);
                }
                drop(seen);
                combiner.finish(own, batch, || 0)
            }
            Turn::Alone(number) => {
                locked(&seen)[number] += 1;
                number + 1
            }
        };
        std::thread::scope(|threads| {
            for own in 0..THREADS {
                threads.spawn(move || {
                    for number in own * EACH..(own + 1) * EACH {
                        assert_eq!(call(number), number + 1);
                    }
                });
            }
        });
        assert!(locked(&seen).iter().all(|times| *times == 1));
    }
}
