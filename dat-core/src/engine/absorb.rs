//! Looking at completions before the consumer does.
//!
//! What an Endpoint has outstanding ends when the device completes it, not when the consumer
//! dequeues the completion: a graceful disconnect must end though the consumer waits on its connect
//! Event Dispatcher alone. So the control half looks through the completion queue where the
//! completions lie, once past each, and notes for each Endpoint how far it has come.
//!
//! An Event Dispatcher that a CNO, upcalls or a waiter listen to must not be armed for completions
//! that it has announced already. So there the control half takes completions out of the queue and
//! puts them into the ring, where the reaper finds them in order.

use core::sync::atomic::Ordering;

use crate::data::DataPath;
use crate::data::count::{Verdict, verdict};
use crate::data::reaper::{Reaper, tell};
use crate::data::shared::Shared;
use crate::data::shared::ep::{EpShared, Trouble};
use crate::engine::Ia;
use crate::objects::Objects;
use crate::objects::ep::EpControl;
use crate::objects::table::Table;
use crate::provider::{CompletionQueue, Provider};
use crate::types::completion::{Completion, Direction, Status};
use crate::types::event::pack;
use crate::types::handle::{Ep, Evd};

/// What was taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// Some of it notifies.
    pub(crate) notifying: bool,
    /// Nothing is left.
    pub(crate) all: bool,
}

impl<P: Provider> Ia<'_, P> {
    /// Moves completions of `evd` into its ring, up to half of it.
    pub(crate) fn absorb(&mut self, evd: Evd) -> Taken {
        let mut taken = Taken::default();
        let shared = self.data.shared;
        let Some(ring) = shared.evd(evd.0.index()) else {
            return taken;
        };
        self.objects.look_through(&mut self.data, evd);
        loop {
            let Some(control) = self.events.evds.get(evd.0) else {
                return taken;
            };
            let full = ring.queued() >= control.ring / 2;
            let Ok(reaper) = self.reaper_here(evd) else {
                return taken;
            };
            if full {
                taken.all = reaper.cq.as_ref().is_none_or(|cq| cq.written() == cq.taken());
                return taken;
            }
            let Some(completion) = reaper.poll() else {
                taken.all = true;
                return taken;
            };
            taken.notifying |= verdict(&shared, &completion) == Verdict::Notifies;
            if self.events.put(evd, pack(&completion)) {
                if let Ok(reaper) = self.reaper_here(evd) {
                    reaper.absorbed += 1;
                }
            }
        }
    }

    /// Takes the completions off the front of an Event Dispatcher that have no event.
    pub(crate) fn drop_silent(&mut self, evd: Evd) {
        let shared = self.data.shared;
        if let (Some(ring), Ok(reaper)) = (shared.evd(evd.0.index()), self.reaper_here(evd)) {
            reaper.drop_silent(&shared, ring);
        }
    }
}

impl Objects<'_> {
    /// Looks at the completions of `evd` that have come since the last time. They stay where they
    /// are.
    pub(crate) fn look_through<P: Provider>(&mut self, data: &mut DataPath<'_, P>, evd: Evd) {
        if let Some(Some(reaper)) = data.reapers.get_mut(evd.0.index() as usize) {
            look_through(reaper, &data.shared, &mut self.eps);
        }
    }

    /// Requests or receives that an Endpoint has posted and the device has not completed, as far as
    /// is known; all that is not dequeued while the reaper is with another thread.
    pub(crate) fn unfinished<P: Provider>(
        &mut self,
        data: &mut DataPath<'_, P>,
        ep: Ep,
        direction: Direction,
    ) -> u32 {
        let shared = self.shared;
        let (Ok(control), Some(line)) = (self.eps.live(ep), shared.ep(ep.0.index())) else {
            return 0;
        };
        if line.is_flushable() {
            // All that is left was flushed.
            return 0;
        }
        let evd = match direction {
            Direction::Send => control.request_evd,
            Direction::Recv => control.recv_evd,
        };
        if let Some(evd) = evd {
            self.look_through(data, evd);
        }
        let consumed = line.line(direction).consumed.load(Ordering::Acquire);
        let posted = line.posted(direction);
        let done = self.eps.live(ep).map_or(consumed, |control| control.done(direction));
        let outstanding = posted.wrapping_sub(consumed);
        outstanding - known(done, consumed, outstanding)
    }
}

/// The same, of an Event Dispatcher whose reaper is here.
pub(super) fn look_through<P: Provider>(
    reaper: &mut Reaper<P>,
    shared: &Shared<'_>,
    eps: &mut Table<'_, EpControl>,
) {
    if let Some(cq) = &reaper.cq {
        reaper.seen = cq.survey(reaper.seen, |completion| note(shared, eps, &completion));
    }
}

/// How many of `outstanding` requests are known to have completed, if the last of those is the one
/// before `done`. The consumer may have overtaken what was noted.
pub(crate) const fn known(done: u32, consumed: u32, outstanding: u32) -> u32 {
    let ahead = done.wrapping_sub(consumed);
    if ahead <= outstanding { ahead } else { 0 }
}

/// Notes what a completion says of its Endpoint.
fn note(shared: &Shared<'_>, eps: &mut Table<'_, EpControl>, completion: &Completion) {
    let index = completion.index & shared.ep_mask;
    let Some(ep) = shared.ep(index).filter(|ep| ep.is_named(completion)) else {
        return;
    };
    if completion.status != Status::Success {
        tell(shared, index, ep, Trouble::of(completion));
    }
    let Some(control) = eps.handle_at(index).and_then(|handle| eps.get_mut(handle)) else {
        return;
    };
    match completion.direction {
        Direction::Send => {
            let found = sequence(shared, ep, control.requests_done, completion.token);
            // Where a follower fails, those before it have had completions of their own.
            let done = match found {
                Some(seq) => Some(seq.wrapping_add(1)),
                None => ep.slow.follower.completed(completion.token),
            };
            if let Some(done) = done {
                control.requests_done = done;
            }
        }
        Direction::Recv if ep.srq().is_some() => {
            control.arrived = control.arrived.wrapping_add(1);
        }
        Direction::Recv => {
            let consumed = ep.receive.consumed.load(Ordering::Acquire);
            let ahead = u32::from(completion.token).wrapping_sub(consumed) & 0xffff;
            // One that was not posted counts for nothing; see `known`.
            control.receives_done = consumed.wrapping_add(ahead).wrapping_add(1);
        }
    }
}

/// The sequence of the outstanding request of that token. Each request is passed once: from what
/// was known already, or dequeued since.
fn sequence(shared: &Shared<'_>, ep: &EpShared, done: u32, token: u16) -> Option<u32> {
    let line = &ep.request;
    let consumed = line.consumed.load(Ordering::Acquire);
    let outstanding = ep.posted(Direction::Send).wrapping_sub(consumed);
    (known(done, consumed, outstanding)..outstanding)
        .map(|ahead| consumed.wrapping_add(ahead))
        .find(|&seq| shared.request(line, seq).is_some_and(|slot| slot.tag().is(token)))
}
