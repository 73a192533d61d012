//! Extension: several events in one call. Of successes that follow one another on one queue of an
//! Endpoint, who it is and where it stands is looked up once for all.

use core::sync::atomic::Ordering;

use crate::data::reaper::Reaper;
use crate::data::shared::Shared;
use crate::data::shared::ep::EpShared;
use crate::data::shared::evd::EvdShared;
use crate::provider::{CompletionQueue, Provider};
use crate::types::counters::EpCounter;
use crate::types::event::{DtoEvent, DtoOperation, DtoStatus, Event};

/// Receives that a burst takes before it hands out the first of them.
const BURST: usize = 32;

impl<P: Provider> Reaper<P> {
    /// Gives up to `most` events to `take`, and returns how many. With `PLAIN` it ends behind an
    /// event that is no plain completion: what that brings besides is still there then.
    #[inline(always)]
    pub(crate) fn dequeue_each<'s, const PLAIN: bool>(
        &mut self,
        shared: &Shared<'s>,
        evd: &EvdShared,
        last: &mut &'s EpShared,
        most: usize,
        mut take: impl FnMut(Event),
    ) -> usize {
        let mut count = 0;
        while count < most {
            let Ok(event) = self.dequeue(shared, evd, last) else {
                break;
            };
            take(event);
            count += 1;
            if PLAIN && !event.is_plain() {
                break;
            }
            if let Event::Dto(dto) = event {
                let left = most - count;
                let more = if dto.operation == DtoOperation::Receive {
                    self.run_receives(shared, evd, last, left, &mut take)
                } else {
                    self.run(shared, evd, last, left, &mut take)
                };
                count += more.unwrap_or_default();
            }
        }
        count
    }

    /// Stores events, as [`Reaper::dequeue_each`] with `PLAIN` gives them.
    pub(crate) fn dequeue_into<'s>(
        &mut self,
        shared: &Shared<'s>,
        evd: &EvdShared,
        last: &mut &'s EpShared,
        events: &mut [Event],
    ) -> usize {
        let most = events.len();
        let mut places = events.iter_mut();
        self.dequeue_each::<true>(shared, evd, last, most, |event| {
            if let Some(place) = places.next() {
                *place = event;
            }
        })
    }

    /// The plain successes that follow, as far as they are of requests of that Endpoint and nothing
    /// but completions is to be looked at. Who it is and where it stands is looked up once, and
    /// all slots are given back at once.
    #[inline(always)]
    fn run(
        &mut self,
        shared: &Shared<'_>,
        evd: &EvdShared,
        ep: &EpShared,
        most: usize,
        take: &mut impl FnMut(Event),
    ) -> Option<usize> {
        if evd.version() != self.plain_at {
            return None;
        }
        let cq = self.cq.as_mut()?;
        let line = &ep.request;
        let name = line.index.load(Ordering::Relaxed);
        let mask = line.mask.load(Ordering::Relaxed);
        let first = line.first.load(Ordering::Relaxed) as usize;
        let handle = line.handle();
        let begin = line.consumed.load(Ordering::Relaxed);
        // As far as they stand in a row.
        let at = (begin & mask) as usize;
        let room = most.min(mask as usize + 1 - at);
        let slots = shared.requests.get(first + at..first + at + room)?;
        let count = cq.poll_sent(name, slots, |slot, token| {
            let tag = slot.tag();
            if !tag.is_plainly(token) {
                return false;
            }
            let (cookie, len) = (slot.cookie(), slot.len());
            slot.wipe();
            take(Event::Dto(DtoEvent {
                ep: handle,
                cookie,
                status: DtoStatus::Success,
                len,
                operation: tag.operation(),
            }));
            true
        });
        // ORDER: the slots have been read, and wiped, before they are given back.
        line.consumed.store(begin.wrapping_add(count), Ordering::Release);
        Some(count as usize)
    }

    /// The same for receives. A consumer posts a receive anew as soon as it has its event, so all
    /// that a burst holds are taken, and given back, before the first of their events goes out.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "sequences are compared in 16 bits")]
    fn run_receives(
        &mut self,
        shared: &Shared<'_>,
        evd: &EvdShared,
        ep: &EpShared,
        most: usize,
        take: &mut impl FnMut(Event),
    ) -> Option<usize> {
        if evd.version() != self.plain_at {
            return None;
        }
        let cq = self.cq.as_mut()?;
        let line = &ep.receive;
        let name = line.index.load(Ordering::Relaxed);
        let mask = line.mask.load(Ordering::Relaxed);
        let first = line.first.load(Ordering::Relaxed) as usize;
        let begin = line.consumed.load(Ordering::Relaxed);
        let posted = ep.poster.receives.load(Ordering::Acquire).wrapping_sub(begin) as usize;
        let longest = line.max_len.load(Ordering::Relaxed);
        // As far as their slots stand in a row.
        let at = (begin & mask) as usize;
        let room = most.min(posted).min(BURST).min(mask as usize + 1 - at);
        let slots = shared.receives.get(first + at..first + at + room)?;
        let mut burst = [(0, 0); BURST];
        let mut places = slots.iter().zip(&mut burst);
        let mut bytes = 0;
        let mut count = 0_u32;
        cq.poll_received(name, begin as u16, room, |len| {
            if len <= longest {
                if let Some((slot, place)) = places.next() {
                    *place = (slot.load(Ordering::Relaxed), len);
                    bytes += u64::from(len);
                    count += 1;
                    return true;
                }
            }
            false
        });
        // ORDER: the slots have been read before they are given back.
        line.consumed.store(begin.wrapping_add(count), Ordering::Release);
        ep.count_all(EpCounter::Recv, count.into(), bytes);
        let (ep, status) = (line.handle(), DtoStatus::Success);
        let operation = DtoOperation::Receive;
        for &(cookie, len) in burst.get(..count as usize)? {
            take(Event::Dto(DtoEvent { ep, cookie, status, len, operation }));
        }
        Some(count as usize)
    }
}
