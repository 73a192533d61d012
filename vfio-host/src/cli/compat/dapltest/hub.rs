//! What all that is under way shares: the adapter, its Endpoints, and the news of them that nobody
//! has taken yet.
//!
//! A thread of the tool sleeps at an Event Dispatcher until its own event comes. Here a thread is a
//! future, and all of them run in one thread of the machine: a turn of the [`Hub`] waits for
//! events, hands them to the Endpoints that they are for, and lets everybody look again. No wait is
//! without an end: it fails when its time is over, when the connection is, or when the
//! operation has failed, and says what it was for.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dat_core::cm::Reason;
use dat_core::provider::Provider;
use dat_core::{
    CloseFlag, Cr, DtoEvent, DtoOperation, DtoStatus, Ep, Evd, EvdFlags, Event, MemPriv, PspFlag,
    Pz,
};

use super::super::super::failure::Failure;
use super::super::super::signals;
use super::super::super::traffic::adapter::{self, SLICE, broken, dat};
use super::super::super::traffic::memory::Memory;
use super::super::args::Patience;
use super::super::link::{Links, failed, unconnected};
use crate::Host;
use crate::cli::Nic;

/// What runs by itself.
pub(super) type Task<'t> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 't>>;

/// Completions that wait at the most: all of all Endpoints.
const EVENTS: u32 = 1 << 14;
/// The other side may take so long to hear of the end.
const PARTING: Duration = Duration::from_secs(2);
/// The program on the other side.
pub(super) const PROGRAM: &str = "dapltest";

/// How a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is none yet.
    None,
    Up,
    /// It has ended in good order.
    Over,
    /// It has ended otherwise.
    Broken,
    /// It did not come about.
    Refused(Event),
}

/// News of an Endpoint.
#[derive(Debug)]
struct Inbox {
    ep: Ep,
    state: State,
    /// Ends of what it was asked to do.
    done: VecDeque<DtoEvent>,
    /// Messages.
    came: VecDeque<DtoEvent>,
}

#[derive(Debug)]
struct Inner<'h, 's, 'p, H: Host> {
    nic: &'h mut Nic<'s, 'p, H>,
    evd: Evd,
    inboxes: Vec<Inbox>,
    /// Service points, and who asks there.
    asked: Vec<(u16, VecDeque<Cr>)>,
}

/// The adapter and what belongs to it.
#[derive(Debug)]
pub(super) struct Hub<'h, 's, 'p, H: Host> {
    inner: RefCell<Inner<'h, 's, 'p, H>>,
    /// The zone of all memory.
    pub(super) pz: Pz,
    /// Longest silence of the other side.
    pub(super) timeout: Duration,
    spin: bool,
    /// Tests under way that poll.
    polling: Cell<u32>,
    /// Things under way that a Ctrl-C would interrupt.
    busy: Cell<u32>,
    /// Something happened besides events.
    stirred: Cell<bool>,
}

impl<'h, 's, 'p, H: Host> Hub<'h, 's, 'p, H> {
    pub(super) fn new(nic: &'h mut Nic<'s, 'p, H>, patience: &Patience) -> Result<Self, Failure> {
        let pz = nic.pz_create().map_err(|e| dat("dat_pz_create", e))?;
        let streams = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR;
        let evd = nic.evd_create(EVENTS, streams).map_err(|e| dat("dat_evd_create", e))?;
        Ok(Self {
            inner: RefCell::new(Inner { nic, evd, inboxes: Vec::new(), asked: Vec::new() }),
            pz,
            timeout: patience.timeout,
            spin: patience.poll,
            polling: Cell::new(0),
            busy: Cell::new(0),
            stirred: Cell::new(false),
        })
    }

    /// Gives back what it made itself.
    pub(super) fn free(self) -> Result<(), Failure> {
        let Inner { nic, evd, .. } = self.inner.into_inner();
        let first = nic.evd_free(evd).map_err(|e| dat("dat_evd_free", e));
        first.and(nic.pz_free(self.pz).map_err(|e| dat("dat_pz_free", e)))
    }

    /// Does something with the adapter.
    pub(super) fn nic<T>(&self, act: impl FnOnce(&mut Nic<'s, 'p, H>) -> T) -> T {
        act(self.inner.borrow_mut().nic)
    }

    /// Lets everybody look again before the next wait.
    pub(super) fn stir(&self) {
        self.stirred.set(true);
    }

    /// Something that a Ctrl-C would interrupt begins; for a test that polls, so do the turns.
    pub(super) fn begin(&self, polls: bool) {
        self.busy.set(self.busy.get() + 1);
        self.polling.set(self.polling.get() + u32::from(polls));
    }

    /// It has ended.
    pub(super) fn end(&self, polls: bool) {
        self.busy.set(self.busy.get().saturating_sub(1));
        self.polling.set(self.polling.get().saturating_sub(polls.into()));
        self.stir();
    }

    /// How many of them are under way.
    pub(super) fn busy(&self) -> u32 {
        self.busy.get()
    }

    /// How many Endpoints there is still room for.
    pub(super) fn room(&self) -> u32 {
        let inner = self.inner.borrow();
        let used = u32::try_from(inner.inboxes.len()).unwrap_or(u32::MAX);
        inner.nic.query().0.max_eps.saturating_sub(used)
    }

    /// An Endpoint for so many requests and receives at a time, of so many segments.
    pub(super) fn ep_create(
        &self,
        requests: u16,
        receives: u16,
        segments: u8,
    ) -> Result<Ep, Failure> {
        let inner = &mut *self.inner.borrow_mut();
        let (nic, evd) = (&mut *inner.nic, Some(inner.evd));
        let mut attr = nic.ep_attr_default();
        let reads = nic.provider().limits().max_reads;
        attr.max_request_dtos = requests;
        attr.max_recv_dtos = receives;
        attr.max_request_iov = attr.max_request_iov.max(segments);
        attr.max_recv_iov = attr.max_recv_iov.max(segments);
        attr.max_rdma_read_iov = attr.max_rdma_read_iov.max(segments);
        attr.max_rdma_write_iov = attr.max_rdma_write_iov.max(segments);
        attr.max_rdma_read_in = reads;
        attr.max_rdma_read_out = reads;
        let ep = nic
            .ep_create(Some(self.pz), evd, evd, evd, Some(&attr))
            .map_err(|e| dat("dat_ep_create", e))?;
        inner.inboxes.push(Inbox {
            ep,
            state: State::None,
            done: VecDeque::new(),
            came: VecDeque::new(),
        });
        Ok(ep)
    }

    /// Registered memory of so many bytes.
    pub(super) fn memory(&self, len: usize, rights: MemPriv) -> Result<Memory<'p, H>, Failure> {
        self.nic(|nic| Memory::new(nic, self.pz, len, rights)).map_err(|failure| {
            failure
                .remedy("give fewer connections, or fewer or smaller segments behind SR, RR and RW")
        })
    }

    /// Takes an Endpoint back, connected or not.
    pub(super) fn ep_free(&self, ep: Ep) -> Result<(), Failure> {
        let inner = &mut *self.inner.borrow_mut();
        inner.inboxes.retain(|inbox| inbox.ep != ep);
        inner.nic.ep_free(ep).map_err(|e| dat("dat_ep_free", e))
    }

    /// Makes one whose connection is over usable again.
    pub(super) fn ep_reset(&self, ep: Ep) -> Result<(), Failure> {
        let inner = &mut *self.inner.borrow_mut();
        inner.nic.ep_reset(ep).map_err(|e| dat("dat_ep_reset", e))?;
        // What was under way came back before the end was told.
        let evd = inner.evd;
        while let Ok(event) = inner.nic.evd_dequeue(evd) {
            inner.deal(event);
        }
        if let Some(inbox) = inner.inbox(ep) {
            inbox.state = State::None;
            inbox.done.clear();
            inbox.came.clear();
        }
        Ok(())
    }

    /// Opens a port: an RSP for one Endpoint, or else a PSP.
    pub(super) fn listen(&self, port: u16, reserved: Option<Ep>) -> Result<Point, Failure> {
        let inner = &mut *self.inner.borrow_mut();
        let kind = match reserved {
            Some(ep) => inner
                .nic
                .rsp_create(port.into(), Some(ep), inner.evd)
                .map(Sp::Reserved)
                .map_err(|e| dat(&format!("dat_rsp_create at port {port}"), e))?,
            None => inner
                .nic
                .psp_create(port.into(), inner.evd, PspFlag::Consumer)
                .map(Sp::Public)
                .map_err(|e| dat(&format!("dat_psp_create at port {port}"), e))?,
        };
        inner.asked.push((port, VecDeque::new()));
        Ok(Point { port, kind })
    }

    /// Closes it. Who still asks there is turned away.
    pub(super) fn close(&self, point: &Point) -> Result<(), Failure> {
        let inner = &mut *self.inner.borrow_mut();
        if let Some(at) = inner.asked.iter().position(|(port, _)| *port == point.port) {
            for cr in inner.asked.swap_remove(at).1 {
                Links::refuse(inner.nic, cr);
            }
        }
        let now = inner.nic.now();
        match point.kind {
            Sp::Public(psp) => inner.nic.psp_free(psp).map_err(|e| dat("dat_psp_free", e)),
            Sp::Reserved(rsp) => inner.nic.rsp_free(now, rsp).map_err(|e| dat("dat_rsp_free", e)),
        }
    }

    /// Waits until somebody asks at a port: the request, and who. `None` after `limit`, or if
    /// somebody asks for the end.
    pub(super) async fn asked(&self, port: u16, limit: Duration) -> Option<(Cr, IpAddr)> {
        let found = self
            .until(limit, |inner| {
                if signals::asked() {
                    return Some(None);
                }
                let at = inner.asked.iter_mut().find(|(known, _)| *known == port);
                let cr = at?.1.pop_front()?;
                let request = inner.nic.cr_query(cr).ok()?;
                Some(Some((cr, request.remote)))
            })
            .await;
        found.flatten()
    }

    /// Waits until a connection is there. `false`: it did not come about, and it may be tried again
    /// after a reset.
    pub(super) async fn up(&self, ep: Ep, peer: SocketAddr) -> Result<bool, Failure> {
        let state = self
            .until(self.timeout, |inner| {
                let state = inner.inbox(ep)?.state;
                (state != State::None).then_some(state)
            })
            .await;
        self.nic(|nic| match state {
            Some(State::Up) => Ok(true),
            None | Some(State::None) => {
                Err(late("the connection", self.timeout, &peer.ip().to_string()))
            }
            Some(State::Refused(event)) => {
                let reason = nic.ep_reject_reason(ep).ok().flatten();
                if let Some(Reason::STALE | Reason::NO_RESOURCES) = reason {
                    return Ok(false);
                }
                Err(unconnected(nic, peer, ep, event, PROGRAM, self.timeout))
            }
            // So short that nobody saw it: what came over it may still be read.
            Some(State::Over) => Ok(true),
            Some(State::Broken) => Err(broken(nic, ep, &peer.ip().to_string())),
        })
    }

    /// Waits for the end of the oldest request of an Endpoint.
    pub(super) async fn done(&self, ep: Ep, peer: &str, what: &str) -> Result<DtoEvent, Failure> {
        self.news(ep, peer, what, |inbox| &mut inbox.done).await
    }

    /// Waits for the next message of an Endpoint.
    pub(super) async fn came(&self, ep: Ep, peer: &str, what: &str) -> Result<DtoEvent, Failure> {
        self.news(ep, peer, what, |inbox| &mut inbox.came).await
    }

    async fn news(
        &self,
        ep: Ep,
        peer: &str,
        what: &str,
        queue: fn(&mut Inbox) -> &mut VecDeque<DtoEvent>,
    ) -> Result<DtoEvent, Failure> {
        let found = self
            .until(self.timeout, |inner| {
                let inbox = inner.inbox(ep)?;
                let state = inbox.state;
                match queue(inbox).pop_front() {
                    Some(dto) => Some(Ok(dto)),
                    None if matches!(state, State::None | State::Up) => None,
                    None => Some(Err(state)),
                }
            })
            .await;
        match found {
            Some(Ok(dto)) if dto.status == DtoStatus::Success => Ok(dto),
            Some(Ok(dto)) => Err(self.nic(|nic| failed(nic, &dto, peer))),
            Some(Err(State::Broken)) => Err(self.nic(|nic| broken(nic, ep, peer))),
            Some(Err(_)) => Err(Failure::new(format!("{peer} ended the connection before {what}"))
                .remedy("its output says why; is it dapltest?")),
            None => Err(late(what, self.timeout, peer)),
        }
    }

    /// Ends connections, and waits until they have ended; the other side may do so at the same
    /// time.
    pub(super) async fn part(&self, eps: &[Ep]) {
        let mut parting = Vec::new();
        for ep in eps {
            let state = self.inner.borrow_mut().inbox(*ep).map(|inbox| inbox.state);
            // What has not begun has no end, which the adapter says.
            if let Some(before @ (State::None | State::Up)) = state
                && self.nic(|nic| nic.ep_disconnect(*ep, CloseFlag::Abrupt)).is_ok()
            {
                parting.push((*ep, before));
            }
        }
        let _ = self
            .until(PARTING, |inner| {
                let waits = |(ep, before): &(Ep, State)| {
                    inner.inbox(*ep).is_some_and(|inbox| inbox.state == *before)
                };
                (!parting.iter().any(waits)).then_some(())
            })
            .await;
    }

    /// Waits for the peer to end a connection, but no longer than this.
    pub(super) async fn left(&self, ep: Ep, limit: Duration) {
        let _ = self
            .until(limit, |inner| {
                let up = |inbox: &mut Inbox| inbox.state == State::Up;
                (!inner.inbox(ep).is_some_and(up)).then_some(())
            })
            .await;
    }

    /// Waits until something holds.
    pub(super) async fn holds(
        &self,
        what: &str,
        peer: &str,
        holds: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        let held = self.until(self.timeout, |_| holds().then_some(())).await;
        held.ok_or_else(|| late(what, self.timeout, peer))
    }

    async fn until<T>(
        &self,
        limit: Duration,
        mut look: impl FnMut(&mut Inner<'h, 's, 'p, H>) -> Option<T>,
    ) -> Option<T> {
        let until = Instant::now() + limit;
        poll_fn(|_| match look(&mut self.inner.borrow_mut()) {
            Some(found) => Poll::Ready(Some(found)),
            None if Instant::now() >= until => Poll::Ready(None),
            None => Poll::Pending,
        })
        .await
    }

    /// Runs a task to its end, and all that it hands over meanwhile.
    pub(super) fn run<'t>(
        &self,
        more: &RefCell<Vec<Task<'t>>>,
        mut first: Task<'_>,
    ) -> Result<(), Failure> {
        let mut context = Context::from_waker(Waker::noop());
        let mut running: Vec<Task<'t>> = Vec::new();
        loop {
            if let Poll::Ready(ended) = first.as_mut().poll(&mut context) {
                return ended;
            }
            running.append(&mut more.borrow_mut());
            let mut failure = None;
            running.retain_mut(|task| match task.as_mut().poll(&mut context) {
                Poll::Pending => true,
                Poll::Ready(ended) => {
                    self.stir();
                    failure = failure.take().or(ended.err());
                    false
                }
            });
            if let Some(failure) = failure {
                return Err(failure);
            }
            self.turn()?;
        }
    }

    /// Waits for events, unless something else has happened, and hands them out.
    fn turn(&self) -> Result<(), Failure> {
        if self.busy.get() > 0 {
            interrupted()?;
        }
        if self.stirred.take() {
            return Ok(());
        }
        let spin = self.spin || self.polling.get() > 0;
        self.wait(spin)
    }

    /// Waits for events for a moment, and hands them out.
    pub(super) fn wait(&self, spin: bool) -> Result<(), Failure> {
        let inner = &mut *self.inner.borrow_mut();
        let evd = inner.evd;
        if let Some(event) = adapter::next(inner.nic, evd, SLICE, spin)? {
            inner.deal(event);
            while let Ok(event) = inner.nic.evd_dequeue(evd) {
                inner.deal(event);
            }
        }
        Ok(())
    }

    /// The end of the oldest request, if it has come: for a side that waits by itself.
    pub(super) fn done_already(&self, ep: Ep, peer: &str) -> Result<Option<DtoEvent>, Failure> {
        let (dto, state) = {
            let mut inner = self.inner.borrow_mut();
            let Some(inbox) = inner.inbox(ep) else {
                return Ok(None);
            };
            (inbox.done.pop_front(), inbox.state)
        };
        match (dto, state) {
            (Some(dto), _) if dto.status == DtoStatus::Success => Ok(Some(dto)),
            (Some(dto), _) => Err(self.nic(|nic| failed(nic, &dto, peer))),
            (None, State::Up) => Ok(None),
            (None, _) => Err(self.nic(|nic| broken(nic, ep, peer))),
        }
    }
}

/// Runs all to their ends, or until the first fails.
pub(super) async fn all(mut tasks: Vec<Task<'_>>) -> Result<(), Failure> {
    poll_fn(|context| {
        let mut failure = None;
        tasks.retain_mut(|task| match task.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(ended) => {
                failure = failure.take().or(ended.err());
                false
            }
        });
        match failure {
            Some(failure) => Poll::Ready(Err(failure)),
            None if tasks.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}

/// A port that is open.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) port: u16,
    kind: Sp,
}

#[derive(Debug)]
enum Sp {
    Public(dat_core::Psp),
    Reserved(dat_core::Rsp),
}

impl<H: Host> Inner<'_, '_, '_, H> {
    fn inbox(&mut self, ep: Ep) -> Option<&mut Inbox> {
        self.inboxes.iter_mut().find(|inbox| inbox.ep == ep)
    }

    /// Puts an event where it belongs.
    fn deal(&mut self, event: Event) {
        match event {
            // The event that ends the connection says more, and comes behind.
            Event::Dto(dto) if dto.status == DtoStatus::ErrFlushed => {}
            Event::Dto(dto) => {
                if let Some(inbox) = self.inbox(dto.ep) {
                    match dto.operation {
                        DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate => {
                            inbox.came.push_back(dto);
                        }
                        DtoOperation::Send
                        | DtoOperation::RdmaWrite
                        | DtoOperation::RdmaRead
                        | DtoOperation::BindMw
                        | DtoOperation::LmrFmr
                        | DtoOperation::LmrInvalidate => inbox.done.push_back(dto),
                    }
                }
            }
            Event::ConnectionRequest { cr, conn_qual, .. }
            | Event::ReservedRequest { cr, conn_qual, .. } => {
                let port = u16::try_from(conn_qual).unwrap_or(0);
                match self.asked.iter_mut().find(|(known, _)| *known == port) {
                    Some((_, waiting)) => waiting.push_back(cr),
                    None => Links::refuse(self.nic, cr),
                }
            }
            Event::CommonRequest { cr, .. } | Event::UdConnectionRequest { cr, .. } => {
                Links::refuse(self.nic, cr);
            }
            Event::Established(ep) => self.is(ep, State::Up),
            Event::Disconnected(ep) => self.is(ep, State::Over),
            Event::Broken(ep) => self.is(ep, State::Broken),
            Event::PeerRejected(ep)
            | Event::NonPeerRejected(ep)
            | Event::AcceptCompletionError(ep)
            | Event::TimedOut(ep)
            | Event::Unreachable(ep) => self.is(ep, State::Refused(event)),
            Event::RmrBind { .. }
            | Event::UdAccepted(_)
            | Event::IbDto(_)
            | Event::UdEstablished(..)
            | Event::UdReject(..)
            | Event::UdError(_)
            | Event::Async(_)
            | Event::Software(_) => {}
        }
    }

    fn is(&mut self, ep: Ep, state: State) {
        if let Some(inbox) = self.inbox(ep) {
            inbox.state = state;
        }
    }
}

/// Something did not come.
pub(super) fn late(what: &str, limit: Duration, peer: &str) -> Failure {
    Failure::new(format!("{what} did not come within {} s", limit.as_secs_f64())).remedy(format!(
        "is {peer} still there, and is it dapltest? --timeout and --wait give it more time"
    ))
}

/// Fails if somebody asked for the end.
pub(super) fn interrupted() -> Result<(), Failure> {
    if signals::asked() {
        return Err(Failure::new("interrupted"));
    }
    Ok(())
}
