//! How many events an Event Dispatcher has, without taking any: what a threshold, `nmore` and a
//! resize go by.
//!
//! Not every completion is an event (a suppressed success is none), not every event has a
//! completion (what is flushed), and not every event notifies. So they are looked at one by one, in
//! the order in which the reaper would.

use core::sync::atomic::Ordering;

use crate::data::chain::each;
use crate::data::reaper::Reaper;
use crate::data::shared::Shared;
use crate::data::shared::ep::{EpShared, queue_of};
use crate::data::shared::evd::EvdShared;
use crate::data::shared::request::Request;
use crate::provider::{CompletionQueue, Provider};
use crate::types::completion::{Completion, Direction, Status};
use crate::types::event::Entry;
use crate::types::handle::Cr;

/// Events, and those among them that notify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) events: u32,
    pub(crate) notifying: u32,
}

impl Count {
    fn add(&mut self, verdict: Verdict) {
        self.events += u32::from(verdict != Verdict::Nothing);
        self.notifying += u32::from(verdict == Verdict::Notifies);
    }
}

/// What becomes of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No event.
    Nothing,
    /// An event that wakes nobody.
    Silent,
    /// An event.
    Notifies,
}

/// What will become of a completion that nobody has dequeued yet.
pub(crate) fn verdict(shared: &Shared<'_>, completion: &Completion) -> Verdict {
    let index = completion.index & shared.ep_mask;
    let Some(ep) = shared.ep(index).filter(|ep| ep.is_named(completion)) else {
        return Verdict::Nothing;
    };
    let failed = completion.status != Status::Success;
    if completion.direction == Direction::Recv {
        return if !failed && shared.receive_is_silent(ep, completion) {
            Verdict::Silent
        } else {
            Verdict::Notifies
        };
    }
    let Some((_, found)) = find(shared, ep, completion.token) else {
        return Verdict::Nothing;
    };
    if !failed && found.tag.is_suppressed() {
        Verdict::Nothing
    } else if !failed && found.tag.is_unsignalled() {
        Verdict::Silent
    } else {
        Verdict::Notifies
    }
}

/// The outstanding request of that token, and how many lie before it.
fn find(shared: &Shared<'_>, ep: &EpShared, token: u16) -> Option<(u32, Request)> {
    (0..ep.outstanding(Direction::Send)).find_map(|ahead| {
        let request = request(shared, ep, ahead)?;
        request.tag.is(token).then_some((ahead, request))
    })
}

/// The outstanding request with that many before it.
fn request(shared: &Shared<'_>, ep: &EpShared, ahead: u32) -> Option<Request> {
    let line = &ep.request;
    let seq = line.consumed.load(Ordering::Acquire).wrapping_add(ahead);
    Some(shared.request(line, seq)?.read())
}

impl<P: Provider> Reaper<P> {
    /// The events that are here now.
    pub(crate) fn count(&self, shared: &Shared<'_>, evd: &EvdShared) -> Count {
        let mut count = Count::default();
        self.each(shared, evd, |entry| match entry {
            Entry::Event(_) => count.add(Verdict::Notifies),
            Entry::Absorbed(completion) => count.add(verdict(shared, &completion)),
        });
        let mut add = |id| {
            let more = match shared.connection.get(id) {
                Some(event) => u32::from(event.event().is_some()),
                None => {
                    let (ep, direction) = queue_of(id);
                    let flushed = |ep| self.flushed(shared, evd, ep, direction);
                    shared.ep(ep).map(flushed).unwrap_or_default()
                }
            };
            count.events += more;
            count.notifying += more;
        };
        self.events.each(shared, &mut add);
        self.endings.each(shared, &mut add);
        // Nobody takes these meanwhile: the reaper is here.
        each(shared, evd.producer.connection.top(), &mut add);
        each(shared, evd.producer.flush.top(), &mut add);
        count
    }

    /// The requests whose events are here.
    pub(crate) fn requests(&self, shared: &Shared<'_>, evd: &EvdShared, mut see: impl FnMut(Cr)) {
        self.each(shared, evd, |entry| {
            if let Entry::Event(event) = entry {
                if let Some(cr) = event.request() {
                    see(cr);
                }
            }
        });
    }

    /// Events of one queue that software will flush: outstanding ones that no completion covers.
    fn flushed(
        &self,
        shared: &Shared<'_>,
        evd: &EvdShared,
        ep: &EpShared,
        direction: Direction,
    ) -> u32 {
        let mut covered = 0;
        self.each(shared, evd, |entry| {
            if let Entry::Absorbed(completion) = entry {
                if completion.direction == direction && ep.is_named(&completion) {
                    covered = match direction {
                        Direction::Recv => covered + 1,
                        Direction::Send => find(shared, ep, completion.token)
                            .map_or(covered, |(ahead, _)| ahead + 1),
                    };
                }
            }
        });
        let left = covered..ep.outstanding(direction);
        u32::try_from(left.count()).unwrap_or(u32::MAX)
    }

    /// Everything in the ring, then everything in the completion queue.
    fn each(&self, shared: &Shared<'_>, evd: &EvdShared, mut see: impl FnMut(Entry)) {
        let head = evd.consumer.head.load(Ordering::Acquire);
        let tail = evd.producer.tail.load(Ordering::Acquire);
        for ahead in 0..tail.wrapping_sub(head) {
            let place = shared.event(self.slot(), head.wrapping_add(ahead));
            if let Some(entry) = place.and_then(|place| Entry::decode(place.load())) {
                see(entry);
            }
        }
        if let Some(cq) = &self.cq {
            cq.survey(0, |completion| see(Entry::Absorbed(completion)));
        }
    }
}
