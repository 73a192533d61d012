//! The reaping half of an Event Dispatcher.

use core::fmt;
use core::sync::atomic::Ordering;

use crate::dat_return::DatReturn;
use crate::ep::table::EpState;
use crate::event::{DtoEvent, DtoOperation, DtoStatus, Entry, Event};
use crate::handle::{Evd, Handle, Rmr};
use crate::provider::{Completion, CompletionQueue, Direction, Provider, Status};
use crate::shared::Shared;
use crate::shared::ep::{EpShared, Info, Op, Trouble};
use crate::shared::evd::{EvdShared, EventSlot};
use crate::shared::lmr::{RMR_LIVE, RMR_RETIRING};
use crate::shared::stack::END;

/// Completions looked at in one dequeue. A device that floods a queue with nonsense gets no more time than that.
const BUDGET: u32 = 256;

/// A completion queue's reaping end, with what an Event Dispatcher remembers between two dequeues.
pub(crate) struct Reaper<P: Provider> {
    pub(crate) cq: Option<P::Cq>,
    evd: u32,
    /// Events taken out of the ring.
    head: u32,
    /// 1 while `flush` or `held` hold something.
    pending: u32,
    /// Chain of queues to flush, taken from the stack.
    flush: u32,
    /// A completion whose request another thread is still posting.
    held: Option<Completion>,
    /// Completions of an earlier life of their queue pair.
    pub(crate) stale: u32,
    /// Completions and ring entries that made no sense.
    pub(crate) nonsense: u32,
}

impl<P: Provider> fmt::Debug for Reaper<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper")
            .field("evd", &self.evd)
            .field("stale", &self.stale)
            .field("nonsense", &self.nonsense)
            .finish_non_exhaustive()
    }
}

/// What became of a completion.
enum Reaped {
    Event(Event),
    /// It was used up without an event.
    Nothing,
    /// Its request is not published yet.
    Hold,
}

/// The ring slot of that count.
pub(super) fn slot<'s>(shared: &Shared<'s>, evd: u32, count: u32) -> Option<&'s EventSlot> {
    let shift = shared.event_shift;
    let mask = (1_u32 << shift) - 1;
    shared.events.get((evd << shift | count & mask) as usize)
}

impl<P: Provider> Reaper<P> {
    pub(crate) fn new(evd: u32, cq: Option<P::Cq>) -> Self {
        Self {
            cq,
            evd,
            head: 0,
            pending: 0,
            flush: END,
            held: None,
            stale: 0,
            nonsense: 0,
        }
    }

    /// The next event.
    #[inline]
    pub(crate) fn dequeue(&mut self, shared: &Shared<'_>) -> Result<Event, DatReturn> {
        let Some(evd) = shared.evd(self.evd) else {
            return Err(DatReturn::QUEUE_EMPTY);
        };
        // ORDER: the count of the ring is read before the completion queue and the flush stack, so that a terminal event
        // it covers finds everything that its writer put there first.
        let tail = evd.producer.tail.load(Ordering::Acquire);
        if (tail ^ self.head) | self.pending != 0 {
            return self.dequeue_any(shared, evd, tail);
        }
        let Some(cq) = &mut self.cq else {
            return Err(DatReturn::QUEUE_EMPTY);
        };
        match cq.poll() {
            Some(completion) => match self.complete(shared, &completion) {
                Reaped::Event(event) => Ok(event),
                Reaped::Nothing => self.dequeue_any(shared, evd, tail),
                Reaped::Hold => Err(DatReturn::QUEUE_EMPTY),
            },
            None if evd.producer.flush.is_empty() => Err(DatReturn::QUEUE_EMPTY),
            None => self.dequeue_any(shared, evd, tail),
        }
    }

    /// The next event when there is more than a plain completion to look at.
    #[cold]
    #[inline(never)]
    fn dequeue_any(
        &mut self,
        shared: &Shared<'_>,
        evd: &EvdShared,
        tail: u32,
    ) -> Result<Event, DatReturn> {
        let found = self.search(shared, evd, tail);
        self.pending = u32::from(self.flush != END || self.held.is_some());
        found.ok_or(DatReturn::QUEUE_EMPTY)
    }

    #[inline(never)]
    fn search(&mut self, shared: &Shared<'_>, evd: &EvdShared, tail: u32) -> Option<Event> {
        for _ in 0..BUDGET {
            let mut completion = self.held.take();
            let front = if completion.is_none() {
                self.front(shared, tail)
            } else {
                None
            };
            match front {
                Some(Entry::Event(event)) if !event.is_terminal() => {
                    self.pop(evd);
                    return Some(event);
                }
                Some(Entry::Absorbed(early)) => {
                    self.pop(evd);
                    completion = Some(early);
                }
                Some(Entry::Event(_)) | None => {}
            }
            if completion.is_none() {
                if self.flush == END {
                    // ORDER: the chain is taken before the completion queue is polled: whoever pushed it had reset the
                    // queue pair, so all its completions are there to be found first.
                    self.flush = evd.producer.flush.take();
                }
                completion = self.cq.as_mut().and_then(CompletionQueue::poll);
            }
            if let Some(completion) = completion {
                match self.complete_slowly(shared, &completion) {
                    Reaped::Event(event) => return Some(event),
                    Reaped::Nothing => continue,
                    Reaped::Hold => return None,
                }
            }
            if self.flush != END {
                match self.flush_one(shared) {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            match front {
                Some(Entry::Event(event)) => {
                    self.pop(evd);
                    return Some(event);
                }
                Some(Entry::Absorbed(_)) | None if self.head != tail => {
                    self.nonsense = self.nonsense.saturating_add(1);
                    self.pop(evd);
                }
                Some(Entry::Absorbed(_)) | None => return None,
            }
        }
        None
    }

    fn front(&self, shared: &Shared<'_>, tail: u32) -> Option<Entry> {
        if self.head == tail {
            return None;
        }
        Entry::decode(slot(shared, self.evd, self.head)?.load())
    }

    fn pop(&mut self, evd: &EvdShared) {
        self.head = self.head.wrapping_add(1);
        // ORDER: the entry has been read before its place is given back.
        evd.consumer.head.store(self.head, Ordering::Release);
    }

    /// Matches a completion with what was posted.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "sequences are compared in 16 bits"
    )]
    fn complete(&mut self, shared: &Shared<'_>, completion: &Completion) -> Reaped {
        let index = completion.index & shared.ep_mask;
        let Some(ep) = shared.ep(index) else {
            return self.makes_no_sense();
        };
        match completion.direction {
            Direction::Send => {
                let line = &ep.request;
                if line.index.load(Ordering::Relaxed) != completion.index {
                    return self.is_stale();
                }
                let first = shared.first_token(index);
                let token_mask = line.token_mask.load(Ordering::Relaxed);
                let Some(entry) = shared.token(first, completion.token, token_mask) else {
                    return self.makes_no_sense();
                };
                let consumed = line.consumed.load(Ordering::Relaxed);
                let mask = line.mask.load(Ordering::Relaxed);
                let low = entry.load(Ordering::Relaxed);
                let ahead = u32::from(low.wrapping_sub(consumed as u16));
                let seq = consumed.wrapping_add(ahead);
                let first = shared.first_slot(index);
                let Some(slot) = shared.request(first, seq, mask) else {
                    return self.makes_no_sense();
                };
                // ORDER: pairs with the poster's last store: a matching token makes the cookie visible.
                let info = Info::from_word(slot.info.load(Ordering::Acquire));
                if ahead > mask || !info.is(completion.token) {
                    return self.unknown_token(shared, index, ep, completion);
                }
                if ahead != 0 && !skip_silent(shared, index, ep, consumed, ahead) {
                    return self.breaks(shared, index, ep, Trouble::NONSENSE);
                }
                let cookie = slot.cookie.load(Ordering::Relaxed);
                // ORDER: the slot has been read before it is given back.
                line.consumed.store(seq.wrapping_add(1), Ordering::Release);
                let operation = match info.op() {
                    Op::Send => DtoOperation::Send,
                    Op::RdmaWrite => DtoOperation::RdmaWrite,
                    Op::RdmaRead => DtoOperation::RdmaRead,
                    Op::Bind | Op::Drain => {
                        return self.special(shared, index, ep, completion, cookie, info);
                    }
                };
                if completion.status != Status::Success || info.is_suppressed() {
                    return self.special(shared, index, ep, completion, cookie, info);
                }
                let ep = line.handle(index);
                let status = DtoStatus::Success;
                let len = info.len();
                Reaped::Event(Event::Dto(DtoEvent {
                    ep,
                    cookie,
                    status,
                    len,
                    operation,
                }))
            }
            Direction::Recv => {
                let line = &ep.receive;
                if line.index.load(Ordering::Relaxed) != completion.index {
                    return self.is_stale();
                }
                let consumed = line.consumed.load(Ordering::Relaxed);
                let posted = ep.poster.receives.load(Ordering::Acquire);
                let too_long = completion.len > line.max_len.load(Ordering::Relaxed);
                if (completion.token != consumed as u16) | (posted == consumed) | too_long {
                    return self.breaks(shared, index, ep, Trouble::NONSENSE);
                }
                let first = shared.first_slot(index);
                let mask = line.mask.load(Ordering::Relaxed);
                let Some(slot) = shared.receive(first, consumed, mask) else {
                    return self.makes_no_sense();
                };
                let cookie = slot.load(Ordering::Relaxed);
                // ORDER: the slot has been read before it is given back.
                line.consumed
                    .store(consumed.wrapping_add(1), Ordering::Release);
                if completion.status != Status::Success {
                    self.trouble(shared, index, ep, completion);
                }
                Reaped::Event(Event::Dto(DtoEvent {
                    ep: line.handle(index),
                    cookie,
                    status: DtoStatus::from_status(completion.status),
                    len: if completion.status == Status::Success {
                        completion.len
                    } else {
                        0
                    },
                    operation: DtoOperation::Receive,
                }))
            }
        }
    }

    /// [`Self::complete`], out of line.
    #[cold]
    #[inline(never)]
    fn complete_slowly(&mut self, shared: &Shared<'_>, completion: &Completion) -> Reaped {
        self.complete(shared, completion)
    }

    /// A request that failed, was suppressed, is a bind, or is dat-core's own.
    #[cold]
    #[inline(never)]
    fn special(
        &mut self,
        shared: &Shared<'_>,
        index: u32,
        ep: &EpShared,
        completion: &Completion,
        cookie: u64,
        info: Info,
    ) -> Reaped {
        if completion.status != Status::Success {
            self.trouble(shared, index, ep, completion);
        }
        let status = DtoStatus::from_status(completion.status);
        match finish(shared, index, ep, cookie, info, status) {
            Some(event) => Reaped::Event(event),
            None => Reaped::Nothing,
        }
    }

    /// A token that names nothing outstanding: either its request is being posted right now, or the device is wrong.
    #[cold]
    #[inline(never)]
    fn unknown_token(
        &mut self,
        shared: &Shared<'_>,
        index: u32,
        ep: &EpShared,
        completion: &Completion,
    ) -> Reaped {
        let posted = ep.posted(Direction::Send);
        let consumed = ep.request.consumed.load(Ordering::Relaxed);
        let mask = ep.request.mask.load(Ordering::Relaxed);
        let newest = posted.wrapping_sub(1);
        let first = shared.first_slot(index);
        let pending = posted != consumed
            && !EpState::of(ep).is_disconnected()
            && shared.request(first, newest, mask).is_some_and(|slot| {
                let info = Info::from_word(slot.info.load(Ordering::Acquire));
                // It is either still without its token, or got this one after the first look.
                info.is_pending() || info.is(completion.token)
            });
        if pending {
            self.held = Some(*completion);
            self.pending = 1;
            return Reaped::Hold;
        }
        self.breaks(shared, index, ep, Trouble::NONSENSE)
    }

    /// Says that the connection broke. The control half does the rest in its next advance.
    #[cold]
    #[inline(never)]
    fn breaks(
        &mut self,
        shared: &Shared<'_>,
        index: u32,
        ep: &EpShared,
        trouble: Trouble,
    ) -> Reaped {
        self.nonsense = self
            .nonsense
            .saturating_add(u32::from(trouble.is_nonsense()));
        tell(shared, index, ep, trouble);
        Reaped::Nothing
    }

    #[cold]
    #[inline(never)]
    fn trouble(&self, shared: &Shared<'_>, index: u32, ep: &EpShared, completion: &Completion) {
        let Completion {
            status,
            direction,
            syndrome,
            vendor,
            ..
        } = *completion;
        tell(
            shared,
            index,
            ep,
            Trouble::completion(status, direction, syndrome, vendor),
        );
    }

    #[cold]
    #[inline(never)]
    fn is_stale(&mut self) -> Reaped {
        self.stale = self.stale.saturating_add(1);
        Reaped::Nothing
    }

    #[cold]
    #[inline(never)]
    fn makes_no_sense(&mut self) -> Reaped {
        self.nonsense = self.nonsense.saturating_add(1);
        Reaped::Nothing
    }

    /// Completes one outstanding entry of the first queue of the chain as flushed, or takes the queue off the chain.
    fn flush_one(&mut self, shared: &Shared<'_>) -> Option<Event> {
        let id = self.flush;
        let index = id >> 1;
        let direction = if id & 1 == 0 {
            Direction::Send
        } else {
            Direction::Recv
        };
        let Some(ep) = shared.ep(index) else {
            self.flush = END;
            return None;
        };
        let line = ep.line(direction);
        if ep.outstanding(direction) == 0 || !ep.is_flushable() {
            self.flush = line.flush.next();
            line.flush.release();
            if ep.outstanding(direction) != 0 && ep.is_flushable() {
                crate::post::kick(shared, index, ep, direction);
            }
            return None;
        }
        let seq = line.consumed.load(Ordering::Relaxed);
        let mask = line.mask.load(Ordering::Relaxed);
        let first = shared.first_slot(index);
        let status = DtoStatus::ErrFlushed;
        let (cookie, info) = match direction {
            Direction::Send => {
                let slot = shared.request(first, seq, mask)?;
                let info = Info::from_word(slot.info.load(Ordering::Acquire));
                (slot.cookie.load(Ordering::Relaxed), Some(info))
            }
            Direction::Recv => (
                shared.receive(first, seq, mask)?.load(Ordering::Relaxed),
                None,
            ),
        };
        line.consumed.store(seq.wrapping_add(1), Ordering::Release);
        match info {
            Some(info) => finish(shared, index, ep, cookie, info, status),
            None => Some(Event::Dto(DtoEvent {
                ep: line.handle(index),
                cookie,
                status,
                len: 0,
                operation: DtoOperation::Receive,
            })),
        }
    }

    /// Forgets whatever of that Endpoint waits to be flushed here. The control half only, while the reaper is here.
    pub(crate) fn purge(&mut self, shared: &Shared<'_>, ep: u32) {
        let Some(evd) = shared.evd(self.evd) else {
            return;
        };
        let mut kept = END;
        for mut id in [
            core::mem::replace(&mut self.flush, END),
            evd.producer.flush.take(),
        ] {
            while id != END {
                let direction = if id & 1 == 0 {
                    Direction::Send
                } else {
                    Direction::Recv
                };
                let Some(line) = shared.ep(id >> 1).map(|ep| ep.line(direction)) else {
                    break;
                };
                let next = line.flush.next();
                if id >> 1 == ep {
                    line.flush.release();
                } else {
                    line.flush.set_next(kept);
                    kept = id;
                }
                id = next;
            }
        }
        self.flush = kept;
        if self
            .held
            .is_some_and(|held| held.index & shared.ep_mask == ep)
        {
            self.held = None;
        }
        self.pending = u32::from(self.flush != END || self.held.is_some());
    }

    /// Asks the device to announce the next completion.
    pub(crate) fn arm(&mut self, solicited_only: bool) {
        if let Some(cq) = &mut self.cq {
            cq.arm(solicited_only);
        }
    }
}

/// Finishes the requests that the device passed over, if every one of them was to succeed in silence.
#[inline(never)]
fn skip_silent(shared: &Shared<'_>, index: u32, ep: &EpShared, from: u32, count: u32) -> bool {
    let (first, mask) = (
        shared.first_slot(index),
        ep.request.mask.load(Ordering::Relaxed),
    );
    let info = |i| {
        let slot = shared.request(first, from.wrapping_add(i), mask)?;
        Some(Info::from_word(slot.info.load(Ordering::Acquire)))
    };
    if !(0..count).all(|i| info(i).is_some_and(Info::is_suppressed)) {
        return false;
    }
    for bind in (0..count)
        .filter_map(info)
        .filter(|info| info.op() == Op::Bind)
    {
        let _ = bind_done(shared, index, ep, bind.len());
    }
    true
}

/// The event of a request that is done with, if it has one.
fn finish(
    shared: &Shared<'_>,
    index: u32,
    ep: &EpShared,
    cookie: u64,
    info: Info,
    status: DtoStatus,
) -> Option<Event> {
    let success = status == DtoStatus::Success;
    let silent = success && info.is_suppressed();
    let operation = match info.op() {
        Op::Send => DtoOperation::Send,
        Op::RdmaWrite => DtoOperation::RdmaWrite,
        Op::RdmaRead => DtoOperation::RdmaRead,
        Op::Drain => return None,
        Op::Bind => {
            let rmr = bind_done(shared, index, ep, info.len())?;
            let refused = !success && status != DtoStatus::ErrFlushed;
            let status = if refused {
                DtoStatus::RmrOperationFailed
            } else {
                status
            };
            return (!silent).then_some(Event::RmrBind {
                rmr,
                cookie,
                status,
            });
        }
    };
    let len = if success { info.len() } else { 0 };
    let ep = ep.request.handle(index);
    (!silent).then_some(Event::Dto(DtoEvent {
        ep,
        cookie,
        status,
        len,
        operation,
    }))
}

/// Counts a bind as completed. `None` if the consumer has freed the RMR since.
pub(crate) fn bind_done(shared: &Shared<'_>, index: u32, ep: &EpShared, slot: u32) -> Option<Rmr> {
    let window = shared.rmrs.get(slot as usize)?;
    window.binds.fetch_sub(1, Ordering::AcqRel);
    match window.live.load(Ordering::Acquire) {
        RMR_LIVE => {
            let generation = window.generation.load(Ordering::Relaxed);
            Some(Rmr(Handle {
                index: slot,
                generation,
            }))
        }
        RMR_RETIRING => {
            shared.work.push(index, &ep.poster.work);
            None
        }
        _ => None,
    }
}

/// Leaves word for the control half.
pub(super) fn tell(shared: &Shared<'_>, index: u32, ep: &EpShared, trouble: Trouble) {
    // The first cause counts; what follows from it is noise.
    let _ =
        ep.poster
            .trouble
            .compare_exchange(0, trouble.word(), Ordering::AcqRel, Ordering::Relaxed);
    shared.work.push(index, &ep.poster.work);
}

/// The reaping half of an Event Dispatcher, as a value of its own: a thread that owns it dequeues without a lock.
///
/// From [`Ia::evd_take_reaper`](crate::Ia::evd_take_reaper), and back by
/// [`Ia::evd_return_reaper`](crate::Ia::evd_return_reaper); the Event Dispatcher cannot be freed meanwhile, and its
/// Endpoints be neither reset nor freed before their completions have been dequeued.
///
/// The order of events: software, request, established and asynchronous events come first, in their own order. Then
/// completions. When there are none left, what a broken or closed connection left outstanding comes back flushed, in
/// posting order. Only then a terminal connection event is delivered, so that on a merged Event Dispatcher it is the
/// last word of its Endpoint.
pub struct EvdReaper<'s, P: Provider> {
    pub(crate) evd: Evd,
    pub(crate) reaper: Reaper<P>,
    pub(crate) shared: Shared<'s>,
}

impl<P: Provider> fmt::Debug for EvdReaper<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvdReaper")
            .field("evd", &self.evd)
            .finish_non_exhaustive()
    }
}
