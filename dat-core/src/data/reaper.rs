//! The reaping half of an Event Dispatcher.
//!
//! Length: the way of a completion reads straight down, the usual case first and each unusual one
//! after it.

use core::fmt;
use core::sync::atomic::Ordering;

use crate::data::chain::Chain;
use crate::data::count::{Verdict, verdict};
use crate::data::finish::{bind_done, complete_suppressed, finish};
use crate::data::poster::kick;
use crate::data::shared::Shared;
use crate::data::shared::connection::ConnectionEvent;
use crate::data::shared::ep::{EpShared, KIND, NO_INDEX, QueueLine, Span, Trouble, queue_of};
use crate::data::shared::evd::EvdShared;
use crate::data::shared::request::{RequestSlot, Tag};
use crate::data::shared::stack::END;
use crate::data::shared::window::invalidated;
use crate::provider::{CompletionQueue, Polled, Provider};
use crate::types::atomic::AtomicU64;
use crate::types::completion::{Arrived, Completion, Direction, Extra, Status};
use crate::types::counters::EpCounter;
use crate::types::dat_return::DatReturn;
use crate::types::event::{
    DtoEvent, DtoOperation, DtoStatus, Entry, Event, IbDtoEvent, IbOperation,
};
use crate::types::handle::Evd;

/// Completions looked at in one dequeue. A device that floods a queue with nonsense gets no more
/// time than that.
const BUDGET: u32 = 256;

/// A completion queue's reaping end, with what an Event Dispatcher remembers between two dequeues.
pub(crate) struct Reaper<P: Provider> {
    pub(crate) cq: Option<P::Cq>,
    /// The Event Dispatcher it is of.
    pub(crate) evd: Evd,
    /// Events taken out of the ring.
    head: u32,
    /// Connection events, taken from their stack.
    pub(crate) events: Chain,
    /// Queues to flush and events that end a connection, in the order in which they become due:
    /// each when the completion queue has given what it held when the element came here.
    pub(crate) endings: Chain,
    /// Queues to flush have come there since a listener was last notified.
    unreported: bool,
    /// Completions in the ring, where the control half has put them.
    pub(crate) absorbed: u32,
    /// Position in the completion queue up to which the control half has looked through it.
    pub(crate) seen: u64,
    /// Version of the Event Dispatcher at which completions are all there is to look at. While
    /// something else waits, a version that it does not have.
    pub(super) plain_at: u32,
    /// Completions of an earlier generation of their queue pair.
    pub(crate) stale: u32,
    /// Completions and ring entries that made no sense.
    pub(crate) nonsense: u32,
    /// What the last receive of the InfiniBand extensions reported besides.
    pub(crate) extra: Extra,
    pub(crate) tally: ReaperTally,
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

impl<P: Provider> Reaper<P> {
    pub(crate) fn new(evd: Evd, cq: Option<P::Cq>) -> Self {
        Self {
            cq,
            evd,
            head: 0,
            events: Chain::new(),
            endings: Chain::new(),
            unreported: false,
            absorbed: 0,
            seen: 0,
            plain_at: 0,
            stale: 0,
            nonsense: 0,
            extra: Extra::default(),
            tally: ReaperTally::default(),
        }
    }

    /// The next event. `last` is the Endpoint of the plain completion before it: mostly it is that
    /// of the next as well, which then need not be looked up.
    #[inline(always)]
    pub(crate) fn dequeue<'s>(
        &mut self,
        shared: &Shared<'s>,
        evd: &EvdShared,
        last: &mut &'s EpShared,
    ) -> Result<Event, DatReturn> {
        let version = evd.version();
        if version != self.plain_at {
            return copied(|found| *found = self.dequeue_any(shared, evd, version));
        }
        // From here on the version is `self.plain_at`, which needs no register.
        let Some(cq) = &mut self.cq else {
            return Err(DatReturn::QUEUE_EMPTY);
        };
        match cq.poll_plain() {
            Polled::Sent(index, token) => {
                if let Some(oldest) = Oldest::find(shared, last, index) {
                    if oldest.tag.is_plainly(token) {
                        return Ok(Event::Dto(oldest.dto()));
                    }
                    if oldest.tag.is_plain_bind(token) {
                        let slot = oldest.slot.len();
                        let cookie = oldest.take();
                        let index = index & shared.ep_mask;
                        if let Some(rmr) = bind_done(shared, index, oldest.ep, slot) {
                            return Ok(Event::RmrBind { rmr, cookie, status: DtoStatus::Success });
                        }
                        return copied(|found| {
                            *found = self.dequeue_any(shared, evd, self.plain_at)
                        });
                    }
                }
            }
            Polled::Received(index, token, len) => {
                if let Some(event) = receive_done(shared, last, index, token, len) {
                    return Ok(Event::Dto(event));
                }
            }
            Polled::Empty => return Err(DatReturn::QUEUE_EMPTY),
            Polled::Other => {
                return copied(|found| *found = self.dequeue_any(shared, evd, self.plain_at));
            }
        }
        copied(|found| *found = self.dequeue_after(shared, evd))
    }

    /// The event of the success just taken, which is not of the oldest outstanding, or has none;
    /// then the next one.
    #[cold]
    #[inline(never)]
    fn dequeue_after(&mut self, shared: &Shared<'_>, evd: &EvdShared) -> Result<Event, DatReturn> {
        if let Some(last) = self.cq.as_ref().and_then(P::Cq::last) {
            if last.direction == Direction::Send {
                if let Some(event) = run_done(shared, last.index, last.token) {
                    return Ok(Event::Dto(event));
                }
            }
            self.count_seen(shared, &last);
            if let Some(event) = self.complete(shared, &last) {
                return Ok(event);
            }
        }
        self.tally.taken += 1;
        self.dequeue_any(shared, evd, self.plain_at)
    }

    /// The next event when there is more than a completion to look at. `version` was read before
    /// anything else.
    #[cold]
    #[inline(never)]
    fn dequeue_any(
        &mut self,
        shared: &Shared<'_>,
        evd: &EvdShared,
        version: u32,
    ) -> Result<Event, DatReturn> {
        let found = self.next(shared, evd);
        self.tally.found += u64::from(found.is_ok());
        let plain = self.head == evd.producer.tail.load(Ordering::Acquire)
            && self.events.is_empty()
            && self.endings.is_empty();
        // The version does not advance by half its range between two dequeues.
        self.plain_at = if plain { version } else { version ^ 1 << 31 };
        found
    }

    /// The one place that decides the order of events; [`EvdReaper`] says what it is.
    fn next(&mut self, shared: &Shared<'_>, evd: &EvdShared) -> Result<Event, DatReturn> {
        for _ in 0..BUDGET {
            self.adopt(shared, evd);
            if let Some(event) = self.connection_event(shared, evd) {
                return Ok(event);
            }
            // A connection event that is left waits for the ring, and others may stand behind it:
            // ESTABLISHED before what is flushed.
            if !self.is_due(shared) || !self.events.is_empty() {
                if let Some(entry) = self.pop(shared, evd) {
                    match self.enter(shared, entry) {
                        Some(event) => return Ok(event),
                        None => continue,
                    }
                }
                if let Some(completion) = self.poll() {
                    self.count_seen(shared, &completion);
                    match self.complete(shared, &completion) {
                        Some(event) => return Ok(event),
                        None => continue,
                    }
                }
            }
            // Due, or ring and completion queue are empty: then nothing is left that the first of
            // them could wait for.
            let Some(id) = self.endings.first() else {
                return Err(DatReturn::QUEUE_EMPTY);
            };
            if let Some(event) = self.end(shared, evd, id) {
                return Ok(event);
            }
        }
        Err(DatReturn::QUEUE_EMPTY)
    }

    /// Takes over what was put onto the stacks.
    pub(crate) fn adopt(&mut self, shared: &Shared<'_>, evd: &EvdShared) {
        // ORDER: connection events are taken before queues to flush, and both before the completion
        // queue is looked at: an end resets the queue pair, then asks for the flush, then
        // sends the event.
        if evd.producer.connection.is_empty() && evd.producer.flush.is_empty() {
            return;
        }
        let events = Chain::from_stack(shared, evd.producer.connection.take());
        let flush = Chain::from_stack(shared, evd.producer.flush.take());
        let written = self.written();
        flush.each(shared, |id| {
            let (ep, direction) = queue_of(id);
            if let Some(ep) = shared.ep(ep) {
                ep.flush_at(direction).store(written, Ordering::Relaxed);
                ep.flush_to(direction).store(ep.posted(direction), Ordering::Relaxed);
            }
        });
        self.events.append(shared, events);
        self.endings.append(shared, flush);
        self.unreported |= !flush.is_empty();
    }

    /// Whether queues to flush have come, whoever took them over, and some of that is left, since
    /// the last call.
    pub(crate) fn take_unreported(&mut self) -> bool {
        core::mem::take(&mut self.unreported) && !self.endings.is_empty()
    }

    /// The oldest connection event, if it need not wait. The end of a connection comes behind the
    /// entries of the ring that were there before it, and behind completions, for which it goes
    /// to the endings.
    fn connection_event(&mut self, shared: &Shared<'_>, evd: &EvdShared) -> Option<Event> {
        while let Some(id) = self.events.first() {
            let event = shared.connection.get(id)?;
            // The beginning of a connection comes before its first receives, which the control half
            // may have put there.
            let ring = event.behind.load(Ordering::Relaxed).wrapping_sub(self.head);
            if event.is_end() && 0_i32.wrapping_add_unsigned(ring).is_positive() {
                return None;
            }
            let ep = shared.ep(event.ep().0.index())?;
            let ending = &ep.slow.ending;
            if let Some(earlier) = shared.connection.get(ending.load(Ordering::Relaxed)) {
                if earlier.is_of(event.ep(), self.slot()) {
                    // The Endpoint has been reset and connected anew: the end of the earlier connection
                    // comes first.
                    ending.store(END, Ordering::Relaxed);
                    return self.delivered(evd, earlier.take());
                }
            }
            self.events.pop_front(shared);
            let merged = [Direction::Send, Direction::Recv]
                .iter()
                .any(|&way| ep.line(way).evd.load(Ordering::Relaxed) == self.slot());
            if !merged || !event.follows_completions() {
                let found = event.take();
                shared.connection.give_back(id);
                match found {
                    Some(_) => return self.delivered(evd, found),
                    None => continue,
                }
            }
            event.due_at.store(self.written(), Ordering::Relaxed);
            ending.store(id, Ordering::Relaxed);
            self.endings.push_back(shared, id);
        }
        None
    }

    /// Counts a connection event as delivered.
    fn delivered(&self, evd: &EvdShared, event: Option<Event>) -> Option<Event> {
        let taken = &evd.consumer.connection_taken;
        taken.store(taken.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        event
    }

    /// Position behind the newest completion that the device has written.
    fn written(&self) -> u64 {
        self.cq.as_ref().map(P::Cq::written).unwrap_or_default()
    }

    /// Whether the first of the endings waits for no completion any more.
    fn is_due(&self, shared: &Shared<'_>) -> bool {
        let Some(at) = self.endings.first().and_then(|id| due_at(shared, id)) else {
            return false;
        };
        let at = at.load(Ordering::Relaxed);
        let ring = u64::from(self.absorbed);
        self.cq.as_ref().is_none_or(|cq| at <= cq.taken().wrapping_sub(ring))
    }

    /// Carries out the first of the endings: flushes one request or receive, delivers the event, or
    /// takes the element off the chain.
    fn end(&mut self, shared: &Shared<'_>, evd: &EvdShared, id: u32) -> Option<Event> {
        let Some(event) = shared.connection.get(id) else {
            return self.flush_one(shared, id);
        };
        self.endings.pop_front(shared);
        let found = event.event().and_then(|_| {
            Self::forget_ending(shared, id, event);
            self.delivered(evd, event.take())
        });
        shared.connection.give_back(id);
        found
    }

    /// An event does not wait for its Endpoint's completions any more. The Endpoint may have
    /// another that does.
    fn forget_ending(shared: &Shared<'_>, id: u32, event: &ConnectionEvent) {
        if let Some(ep) = shared.ep(event.ep().0.index()) {
            let ending = &ep.slow.ending;
            let _ = ending.compare_exchange(id, END, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Takes the next entry of the ring.
    fn pop(&mut self, shared: &Shared<'_>, evd: &EvdShared) -> Option<Option<Entry>> {
        if self.head == evd.producer.tail.load(Ordering::Acquire) {
            return None;
        }
        let words = shared.event(self.slot(), self.head)?.load();
        self.head = self.head.wrapping_add(1);
        // ORDER: the entry has been read before its place is given back.
        evd.consumer.head.store(self.head, Ordering::Release);
        Some(Entry::decode(words))
    }

    /// The event of an entry of the ring, if it has one.
    fn enter(&mut self, shared: &Shared<'_>, entry: Option<Entry>) -> Option<Event> {
        match entry? {
            Entry::Event(event) => Some(event),
            Entry::Absorbed(early) => {
                self.absorbed = self.absorbed.saturating_sub(1);
                seen_taken(shared, &early);
                self.complete(shared, &early)
            }
        }
    }

    /// Takes the next completion off the queue, to make an event of it or not.
    pub(crate) fn poll(&mut self) -> Option<Completion> {
        let completion = self.cq.as_mut()?.poll()?;
        self.tally.taken += 1;
        Some(completion)
    }

    /// Counts the completion just taken off the queue, if the control half had seen it.
    fn count_seen(&self, shared: &Shared<'_>, completion: &Completion) {
        if self.cq.as_ref().is_some_and(|cq| cq.taken() <= self.seen) {
            seen_taken(shared, completion);
        }
    }

    /// Matches any completion with what was posted. `None` if it is used up without an event.
    #[inline(never)]
    fn complete(&mut self, shared: &Shared<'_>, completion: &Completion) -> Option<Event> {
        let index = completion.index & shared.ep_mask;
        let Some(ep) = shared.ep(index) else {
            self.nonsense = self.nonsense.saturating_add(1);
            return None;
        };
        let name = ep.line(completion.direction).index.load(Ordering::Relaxed);
        if name & !KIND != completion.index {
            self.stale = self.stale.saturating_add(1);
            return None;
        }
        let event = match completion.direction {
            Direction::Send => complete_request(shared, index, ep, completion),
            Direction::Recv => complete_receive(shared, ep, completion),
        };
        let Some(event) = event else {
            self.nonsense = self.nonsense.saturating_add(1);
            tell(shared, index, ep, Trouble::NONSENSE);
            return None;
        };
        if completion.extra.arrived == Arrived::Invalidation && completion.status == Status::Success
        {
            let _ = invalidated(shared, completion.extra.immediate);
        }
        self.extra = completion.extra;
        if completion.status != Status::Success {
            tell(shared, index, ep, Trouble::of(completion));
        }
        event
    }

    /// Completes one outstanding entry of the first queue of the chain as flushed, or takes the
    /// queue off the chain: when it is empty, and when all is flushed that was posted before it
    /// came here. What has been posted since goes to the end of the chain.
    fn flush_one(&mut self, shared: &Shared<'_>, id: u32) -> Option<Event> {
        let (index, direction) = queue_of(id);
        let ep = shared.ep(index)?;
        let line = ep.line(direction);
        let seq = line.consumed.load(Ordering::Relaxed);
        let left = ep.flush_to(direction).load(Ordering::Relaxed).wrapping_sub(seq);
        // A poster in another thread may have asked for it before the control half has stopped the
        // device.
        let more = || ep.outstanding(direction) != 0 && ep.is_flushable();
        if !more() || !0_i32.wrapping_add_unsigned(left).is_positive() {
            self.endings.pop_front(shared);
            line.flush.release();
            if more() {
                kick(shared, index, ep, direction);
            }
            return None;
        }
        let status = DtoStatus::ErrFlushed;
        let done = seq.wrapping_add(1);
        match direction {
            Direction::Send => {
                let slot = shared.request(line, seq)?;
                let request = slot.read();
                slot.wipe();
                line.consumed.store(done, Ordering::Release);
                finish(shared, index, ep, request, status)
            }
            Direction::Recv => {
                let cookie = shared.receive(line, seq)?.load(Ordering::Relaxed);
                line.consumed.store(done, Ordering::Release);
                Some(Event::Dto(DtoEvent {
                    ep: line.handle(),
                    cookie,
                    status,
                    len: 0,
                    operation: DtoOperation::Receive,
                }))
            }
        }
    }

    /// Forgets whatever of that Endpoint waits to be flushed here; the event that ended its
    /// connection waits for nothing any more: an Endpoint remembers only its newest, and events
    /// of several connections may wait. The control half only, while the reaper is here.
    pub(crate) fn purge(&mut self, shared: &Shared<'_>, ep: u32) {
        let Some(evd) = shared.evd(self.slot()) else {
            return;
        };
        self.adopt(shared, evd);
        let (mut kept, mut moved) = (Chain::new(), Chain::new());
        while let Some(id) = self.endings.pop_front(shared) {
            if let Some(event) = shared.connection.get(id) {
                if event.ep().0.index() == ep {
                    Self::forget_ending(shared, id, event);
                    moved.push_back(shared, id);
                } else {
                    kept.push_back(shared, id);
                }
                continue;
            }
            let (of, direction) = queue_of(id);
            match shared.ep(of) {
                Some(line) if of == ep => line.line(direction).flush.release(),
                Some(_) | None => kept.push_back(shared, id),
            }
        }
        self.endings = kept;
        // Whatever waits at an end was sent before what is left of the events.
        moved.append(shared, self.events);
        self.events = moved;
    }

    /// Takes the completions off the front that have no event, so that the slots of their requests
    /// are free.
    pub(crate) fn drop_silent(&mut self, shared: &Shared<'_>, evd: &EvdShared) {
        while self.head != evd.producer.tail.load(Ordering::Acquire) {
            let place = shared.event(self.slot(), self.head);
            let silent = match place.and_then(|place| Entry::decode(place.load())) {
                Some(Entry::Absorbed(early)) => verdict(shared, &early) == Verdict::Nothing,
                Some(Entry::Event(_)) => false,
                None => true,
            };
            let Some(entry) = silent.then(|| self.pop(shared, evd)).flatten() else { return };
            let _ = self.enter(shared, entry);
        }
        let (mut front, mut silent) = (true, 0_u32);
        if let Some(cq) = &self.cq {
            cq.survey(0, |completion| {
                front = front && verdict(shared, &completion) == Verdict::Nothing;
                silent += u32::from(front);
            });
        }
        for _ in 0..silent {
            if let Some(completion) = self.poll() {
                let _ = self.complete(shared, &completion);
            }
        }
    }

    /// The Event Dispatcher goes: gives back the slots of the connection events that nobody has
    /// dequeued.
    pub(crate) fn give_back_events(&mut self, shared: &Shared<'_>, evd: &EvdShared) {
        self.adopt(shared, evd);
        for chain in [&mut self.events, &mut self.endings] {
            while let Some(id) = chain.pop_front(shared) {
                shared.connection.give_back(id);
            }
        }
    }

    /// The slot of its Event Dispatcher.
    pub(crate) const fn slot(&self) -> u32 {
        self.evd.0.index()
    }

    /// Takes out what waits here of an Endpoint that has left service; receives from a Shared
    /// Receive Queue go back there. The control half only, while the reaper is here, and after
    /// a look at all of it: what stays may move.
    pub(crate) fn sweep(&mut self, shared: &Shared<'_>, ep: u32) {
        let Some(ep) = shared.ep(ep) else { return };
        let index = ep.receive.index.load(Ordering::Relaxed) & !KIND;
        let give_back = |direction, token| {
            if direction == Direction::Recv {
                if let Some(srq) = ep.srq() {
                    let _ = shared.srq_take(srq, token, 0);
                }
            }
        };
        if let Some(cq) = &mut self.cq {
            let taken = &mut self.tally.taken;
            cq.sweep(index, |direction, token| {
                *taken += 1;
                give_back(direction, token);
            });
        }
        // What stays has moved to later positions: whatever waits for some of it waits for all.
        let written = self.written();
        self.endings.each(shared, |id| {
            if let Some(at) = due_at(shared, id) {
                at.store(written, Ordering::Relaxed);
            }
        });
        let tail = shared
            .evd(self.slot())
            .map_or(self.head, |evd| evd.producer.tail.load(Ordering::Acquire));
        for ahead in 0..tail.wrapping_sub(self.head) {
            let Some(place) = shared.event(self.slot(), self.head.wrapping_add(ahead)) else {
                continue;
            };
            if let Some(Entry::Absorbed(early)) = Entry::decode(place.load()) {
                if early.index == index {
                    give_back(early.direction, early.token);
                    let index = NO_INDEX;
                    place.store(crate::types::event::pack(&Completion { index, ..early }));
                }
            }
        }
    }

    /// Asks the device to announce the next completion.
    pub(crate) fn arm(&mut self, solicited_only: bool) {
        if let Some(cq) = &mut self.cq {
            self.tally.notify = self.tally.notify.wrapping_add(1);
            cq.arm(solicited_only);
        }
    }
}

/// Where the completion queue has to be before an element of the endings is due.
fn due_at<'s>(shared: &Shared<'s>, id: u32) -> Option<&'s AtomicU64> {
    if let Some(event) = shared.connection.get(id) {
        return Some(&event.due_at);
    }
    let (ep, direction) = queue_of(id);
    Some(shared.ep(ep)?.flush_at(direction))
}

/// What `fill` found, moved piece by piece from a place of its own: a result that comes through
/// memory, as those of calls do, must not pull into memory what the caller returns otherwise.
/// (Measured: 14 instructions of each plain completion.)
#[inline(always)]
fn copied(fill: impl FnOnce(&mut Result<Event, DatReturn>)) -> Result<Event, DatReturn> {
    let mut found = Err(DatReturn::QUEUE_EMPTY);
    fill(&mut found);
    match found {
        Ok(Event::Dto(dto)) => Ok(Event::Dto(DtoEvent {
            ep: dto.ep,
            cookie: dto.cookie,
            status: dto.status,
            len: dto.len,
            operation: dto.operation,
        })),
        other => other,
    }
}

/// The oldest outstanding request of an Endpoint. Finding it changes nothing.
struct Oldest<'s> {
    ep: &'s EpShared,
    consumed: u32,
    span: Span,
    slot: &'s RequestSlot,
    tag: Tag,
}

impl<'s> Oldest<'s> {
    /// What is in the slot where that of the queue pair `name` would be.
    #[inline(always)]
    fn find(shared: &Shared<'s>, last: &mut &'s EpShared, name: u32) -> Option<Self> {
        if last.request.index.load(Ordering::Relaxed) != name {
            *last = named(shared, name, |ep| &ep.request)?;
        }
        let ep = *last;
        let line = &ep.request;
        let consumed = line.consumed.load(Ordering::Relaxed);
        let span = line.span();
        let slot = shared.requests.get(span.place(consumed))?;
        Some(Self { ep, consumed, span, slot, tag: slot.tag() })
    }

    /// Gives its slot back; its cookie.
    #[inline(always)]
    fn take(&self) -> u64 {
        let cookie = self.slot.cookie();
        self.slot.wipe();
        // ORDER: the slot has been read, and wiped, before it is given back.
        self.ep.request.consumed.store(self.consumed.wrapping_add(1), Ordering::Release);
        cookie
    }

    /// Takes it, for the event of its success.
    #[inline(always)]
    fn dto(&self) -> DtoEvent {
        DtoEvent {
            ep: self.ep.request.handle(),
            len: self.slot.len(),
            cookie: self.take(),
            status: DtoStatus::Success,
            operation: self.tag.operation(),
        }
    }
}

/// The event of a success that ends a row of suppressed DTOs of one block each, which need not be
/// looked at: what ends their row knows how many they are. Otherwise nothing has been changed.
fn run_done(shared: &Shared<'_>, name: u32, token: u16) -> Option<DtoEvent> {
    let mut last = Oldest::find(shared, &mut { shared.no_ep }, name)?;
    let ahead = last.tag.distance(token);
    last.consumed = last.consumed.wrapping_add(ahead.into());
    last.slot = shared.requests.get(last.span.place(last.consumed))?;
    last.tag = last.slot.tag();
    // Those before it match no completion but by their count.
    last.tag.ends_run(token, ahead).then(|| last.dto())
}

/// The Endpoint whose queue pair completes by that name, on that one of its queues.
#[inline(always)]
fn named<'s>(
    shared: &Shared<'s>,
    name: u32,
    line: impl Fn(&EpShared) -> &QueueLine,
) -> Option<&'s EpShared> {
    let ep = shared.ep(name & shared.ep_mask)?;
    (line(ep).index.load(Ordering::Relaxed) == name).then_some(ep)
}

/// The event of a receive that succeeded. Otherwise nothing has been changed.
#[inline(always)]
fn receive_done<'s>(
    shared: &Shared<'s>,
    last: &mut &'s EpShared,
    name: u32,
    token: u16,
    len: u32,
) -> Option<DtoEvent> {
    if last.receive.index.load(Ordering::Relaxed) != name {
        *last = named(shared, name, |ep| &ep.receive)?;
    }
    let ep = *last;
    let cookie = take_receive(shared, ep, token, len)?;
    ep.count(EpCounter::Recv, len);
    Some(DtoEvent {
        ep: ep.receive.handle(),
        cookie,
        status: DtoStatus::Success,
        len,
        operation: DtoOperation::Receive,
    })
}

/// Counts a receive from a Shared Receive Queue that the control half had seen.
fn seen_taken(shared: &Shared<'_>, completion: &Completion) {
    if completion.direction == Direction::Recv {
        if let Some(ep) = shared.ep(completion.index & shared.ep_mask) {
            if ep.receive.index.load(Ordering::Relaxed) & !KIND == completion.index {
                ep.receive.taken.fetch_add(1, Ordering::AcqRel);
            }
        }
    }
}

/// The cookie of the oldest outstanding receive, if the completion is of that one, and makes sense.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "sequences are compared in 16 bits")]
fn take_receive(shared: &Shared<'_>, ep: &EpShared, token: u16, len: u32) -> Option<u64> {
    let line = &ep.receive;
    let consumed = line.consumed.load(Ordering::Relaxed);
    if token != consumed as u16
        || ep.poster.receives.load(Ordering::Acquire) == consumed
        || len > line.max_len.load(Ordering::Relaxed)
    {
        return None;
    }
    let cookie = shared.receive(line, consumed)?.load(Ordering::Relaxed);
    // ORDER: the slot has been read before it is given back.
    line.consumed.store(consumed.wrapping_add(1), Ordering::Release);
    Some(cookie)
}

/// A receive that ended in any way. `None` if it makes no sense.
fn complete_receive(
    shared: &Shared<'_>,
    ep: &EpShared,
    completion: &Completion,
) -> Option<Option<Event>> {
    // An immediate tells of bytes that were written elsewhere.
    let written = completion.extra.arrived == Arrived::WriteImmediate;
    let len = if written { 0 } else { completion.len };
    let cookie = match ep.srq() {
        None => take_receive(shared, ep, completion.token, len)?,
        Some(srq) => shared.srq_take(srq, completion.token, len)?,
    };
    let status = DtoStatus::from_status(completion.status);
    let handle = ep.receive.handle();
    if let Some(operation) = received(ep, completion) {
        let counter = match operation {
            IbOperation::RecvMsgUd => EpCounter::RecvUd,
            IbOperation::RecvMsgImmed | IbOperation::RecvMsgUdImmed => EpCounter::RecvImm,
            IbOperation::RecvRdmaWriteImmed
            | IbOperation::RdmaWriteImmed
            | IbOperation::FetchAdd
            | IbOperation::CmpSwap
            | IbOperation::SendUd => EpCounter::RecvRdmaImm,
        };
        ep.count(counter, completion.len);
        let event = IbDtoEvent::new(handle, cookie, status, completion.len, operation);
        return Some(Some(Event::IbDto(event)));
    }
    let len = if status == DtoStatus::Success {
        ep.count(EpCounter::Recv, completion.len);
        completion.len
    } else {
        0
    };
    Some(Some(Event::Dto(DtoEvent {
        ep: handle,
        cookie,
        status,
        len,
        operation: if completion.extra.arrived == Arrived::Invalidation {
            DtoOperation::ReceiveWithInvalidate
        } else {
            DtoOperation::Receive
        },
    })))
}

/// What has arrived, if that is an affair of the InfiniBand extensions. A receive that failed is
/// one like any other.
fn received(ep: &EpShared, completion: &Completion) -> Option<IbOperation> {
    if completion.status != Status::Success {
        return None;
    }
    match (completion.extra.arrived, ep.is_datagram()) {
        (Arrived::Message, false) | (Arrived::Invalidation, _) => None,
        (Arrived::Message, true) => Some(IbOperation::RecvMsgUd),
        (Arrived::Immediate, false) => Some(IbOperation::RecvMsgImmed),
        (Arrived::Immediate, true) => Some(IbOperation::RecvMsgUdImmed),
        (Arrived::WriteImmediate, _) => Some(IbOperation::RecvRdmaWriteImmed),
    }
}

/// A request that ended in any way, and with it those before it that were to succeed in silence.
/// `None` if it makes no sense; `Some(None)` if it has no event.
fn complete_request(
    shared: &Shared<'_>,
    index: u32,
    ep: &EpShared,
    completion: &Completion,
) -> Option<Option<Event>> {
    let line = &ep.request;
    let consumed = line.consumed.load(Ordering::Relaxed);
    let outstanding = ep.outstanding(Direction::Send);
    // Not a search: each request is passed once, by the completion that says it is done.
    let mut ahead = 0;
    let (seq, request) = loop {
        let seq = consumed.wrapping_add(ahead);
        let request = shared.request(line, seq)?.read();
        // A slot that is not posted has no token.
        if request.tag.is(completion.token) {
            break (seq, request);
        }
        if ahead == outstanding || !request.tag.is_suppressed() {
            return complete_follower(shared, index, ep, completion).then_some(None);
        }
        ahead += 1;
    };
    for passed in 0..=ahead {
        let slot = shared.request(line, consumed.wrapping_add(passed))?;
        if passed != ahead {
            complete_suppressed(shared, index, ep, slot.read(), true);
        }
        slot.wipe();
    }
    // ORDER: the slots have been read, and wiped, before they are given back.
    line.consumed.store(seq.wrapping_add(1), Ordering::Release);
    let status = DtoStatus::from_status(completion.status);
    Some(finish(shared, index, ep, request, status))
}

/// The completion of a request of dat-core's own: those before it have completed. False if it makes
/// no sense.
fn complete_follower(
    shared: &Shared<'_>,
    index: u32,
    ep: &EpShared,
    completion: &Completion,
) -> bool {
    let (line, follower) = (&ep.request, &ep.slow.follower);
    let evd = shared.evd(line.evd.load(Ordering::Relaxed));
    let Some(to) = follower.follows(completion.token) else {
        let is_one = follower.earlier_done();
        if let Some(evd) = evd.filter(|_| is_one) {
            evd.followers_done(1);
        }
        return is_one;
    };
    let consumed = line.consumed.load(Ordering::Relaxed);
    let followed = to.wrapping_sub(consumed);
    if completion.status == Status::Success && followed <= ep.outstanding(Direction::Send) {
        for seq in (0..followed).map(|ahead| consumed.wrapping_add(ahead)) {
            let Some(slot) = shared.request(line, seq) else {
                return false;
            };
            complete_suppressed(shared, index, ep, slot.read(), true);
            slot.wipe();
        }
        // ORDER: the slots have been read, and wiped, before they are given back.
        line.consumed.store(to, Ordering::Release);
    }
    // What fails takes those before it with it, each by a completion of its own.
    follower.done(completion.token);
    if let Some(evd) = evd {
        evd.followers_done(1);
    }
    true
}

/// Leaves word for the control half.
pub(crate) fn tell(shared: &Shared<'_>, index: u32, ep: &EpShared, trouble: Trouble) {
    // The first cause counts. What is flushed follows from one, and may complete before it on the
    // other queue.
    let replaces = |known| match Trouble::from_word(known) {
        None => Some(trouble.word()),
        Some(known) if known.is_flush() && trouble.is_a_cause() => Some(trouble.word()),
        Some(_) => None,
    };
    let _ = ep.poster.trouble.fetch_update(Ordering::AcqRel, Ordering::Relaxed, replaces);
    shared.work.push(index, &ep.slow.work);
}

/// The reaping half of an Event Dispatcher, as a value of its own: a thread that owns it dequeues
/// without a lock.
///
/// From [`Ia::evd_take_reaper`](crate::Ia::evd_take_reaper), and back by
/// [`Ia::evd_return_reaper`](crate::Ia::evd_return_reaper); the Event Dispatcher cannot be freed
/// meanwhile, and its Endpoints be neither reset nor freed before their completions have been
/// dequeued.
///
/// The order of events. ESTABLISHED comes first. Software, request and asynchronous events come as
/// they were raised, and before completions, which come in their own order. An event that ends a
/// connection comes behind what was raised before it, behind the completions of its Endpoint that
/// complete on the same Event Dispatcher, and behind what is flushed of it there, in posting order;
/// what other Endpoints complete meanwhile does not hold it back. So on a merged Event Dispatcher
/// it is the last event of its connection, and the beginning of the Endpoint's next connection
/// comes behind it.
pub struct EvdReaper<'s, P: Provider> {
    pub(crate) evd: Evd,
    pub(crate) reaper: Reaper<P>,
    pub(crate) shared: Shared<'s>,
    pub(crate) shared_evd: &'s EvdShared,
    /// The Endpoint of the newest plain completion.
    pub(crate) last: &'s EpShared,
}

impl<P: Provider> fmt::Debug for EvdReaper<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvdReaper").field("evd", &self.evd).finish_non_exhaustive()
    }
}

/// What a reaper counts: whatever does not follow from the consumer index of its completion queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReaperTally {
    /// Dequeues by handle that found nothing. A thread that polls its half makes millions of them,
    /// which say nothing.
    pub(crate) empty: u64,
    /// Completions taken off the queue beside the straight way of a dequeue, on which each is an
    /// event.
    pub(crate) taken: u64,
    /// Events found there.
    pub(crate) found: u64,
    /// Requests to be woken.
    pub(crate) notify: u64,
}
