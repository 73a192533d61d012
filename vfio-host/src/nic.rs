//! An Interface Adapter on a host, with the calls that wait: dat_evd_wait(3), dat_cno_wait(3).
//!
//! `dat_core::Ia` never sleeps and takes the time as an argument. [`Nic`] joins it with its
//! [`Host`]: it supplies the time, and waits by sleeping on the host's wake-ups. The `Ia` decides
//! when a wait is over: a wait here begins one in the `Ia`, polls it once a turn, sleeps in between
//! and ends it. All other calls are those of the `Ia`, by dereference.
//!
//! A program with its own event loop polls the descriptor of [`Nic::as_fd`](AsFd) and calls
//! [`Nic::prepare`] before each sleep: `true` says that an event is pending already.
//!
//! Waits need the `Nic` itself. Other threads share the adapter through its posters and reapers:
//! while one thread waits here, others post with an `EpPoster`. A thread that took an `EvdReaper`
//! arms it and sleeps by its own means. The agent of the CNO that its Event Dispatcher is attached
//! to wakes it: the thread that waits here, or drives the adapter, calls the agent.
//!
//! Length: one type, its waits, and table sizes in the header of each implementation.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::Net;
use dat_core::{
    CloseFlag, Cno, CnoWait, Cr, DatReturn, DatSubtype, DatType, Ep, Evd, EvdWait, Event, Fault,
    Ia, Instant, Next, Parts, Qos, Storage,
};
use hca_mlx5::dma::Buffer;
use hca_mlx5::{Config, Mlx5};

use crate::error::{Error, Kind};
use crate::host::{Host, Trouble};
use crate::status::{self, Server};
use crate::wait::{Waiting, turn};

/// Upper limit of the times that one look drives an adapter which keeps finding work.
const DRIVES: usize = 64;
/// Time that [`Nic::close`] gives peers to confirm the end of their connections; a lost message is
/// repeated within it.
pub const LINGER: Duration = Duration::from_secs(5);
/// Turns in a row that find something before they clear the wake-ups, which show trouble.
const UNCLEARED: u32 = 64;
/// Longest sleep: nothing relies on it.
const LONGEST: Duration = Duration::from_secs(3600);

/// The storage of an adapter of ordinary size: 64 Endpoints with 128 requests in each direction, 16
/// Event Dispatchers, 256 LMRs.
pub type NicStorage<'p, H> = Storage<Mlx5<'p, H>, 64, 16, 256, 128>;

/// Why a wait ended without an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// `TIMEOUT_EXPIRED`, or the call was refused.
    Dat(dat_core::Error),
    /// The device is in trouble. Pending events have been delivered before. A removal request is
    /// reported by one wait, other trouble by every wait.
    Device(Trouble),
    /// The adapter is lost, for the reason that [`Ia::lost`] has. Pending events have been delivered
    /// before. Every wait reports it, unless there is [`Self::Device`] to report.
    Lost(Fault),
}

impl WaitError {
    /// The timeout has expired.
    pub const TIMEOUT: Self =
        Self::Dat(dat_core::Error::new(DatType::TimeoutExpired, DatSubtype::None));
    /// The timeout of a wait for a CNO has expired.
    pub const UNTRIGGERED: Self =
        Self::Dat(dat_core::Error::new(DatType::QueueEmpty, DatSubtype::None));
}

impl From<DatReturn> for WaitError {
    fn from(ret: DatReturn) -> Self {
        Self::Dat(ret.into())
    }
}

impl From<dat_core::Error> for WaitError {
    fn from(error: dat_core::Error) -> Self {
        Self::Dat(error)
    }
}

impl std::fmt::Display for WaitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dat(error) => error.fmt(f),
            Self::Device(trouble) => trouble.fmt(f),
            Self::Lost(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for WaitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Dat(error) => error.source(),
            Self::Device(trouble) => trouble.source(),
            Self::Lost(fault) => Some(fault),
        }
    }
}

impl From<WaitError> for Error {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Dat(error) => error.into(),
            WaitError::Device(Trouble::Gone(error)) => error,
            WaitError::Device(trouble) => {
                Self::new(Kind::Gone, "", trouble.to_string(), "").because(trouble)
            }
            WaitError::Lost(fault) => {
                Self::new(Kind::Device, "", fault.to_string(), "").because(fault)
            }
        }
    }
}

/// An adapter and its host.
#[derive(Debug)]
pub struct Nic<
    's,
    'p,
    H: Host,
    const QPS: usize = 64,
    const CQS: usize = 64,
    const KEYS: usize = 512,
    const NEIGHBOURS: usize = 64,
> {
    ia: Ia<'s, Mlx5<'p, H, QPS, CQS, KEYS, NEIGHBOURS>>,
    host: &'p H,
    next: Next,
    /// Turns since the wake-ups were cleared.
    uncleared: u32,
    /// A wait has reported that the device is to be removed.
    removal_reported: bool,
    opened: Instant,
    /// Tells others what the adapter is doing.
    status: Option<Server>,
}

impl<
    's,
    'p,
    H: Host,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
> Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>
{
    /// Brings the device up and opens an adapter on it. [`Host::config`] replaces those parts of
    /// `config` that depend on the host.
    #[doc(alias = "dat_ia_open")]
    pub fn open(
        host: &'p H,
        parts: Parts<'s, Mlx5<'p, H, QPS, CQS, KEYS, NEIGHBOURS>>,
        net: Net,
        config: &Config<'p>,
    ) -> Result<Self, Error> {
        let failed = |error: dat_core::Error, said: String| {
            let remedy = match (host.trouble(), host.shortage()) {
                (Some(Trouble::Gone(error)), _) | (_, Some(error)) => return error,
                (Some(other), None) => other.to_string(),
                (None, None) => String::new(),
            };
            Error::new(Kind::Device, host.name(), said, remedy).because(error)
        };
        let config = host.config(config)?;
        let driver =
            Mlx5::open(host, &config).map_err(|fault| failed(fault.into(), fault.to_string()))?;
        let now = Instant::from_nanos(host.now());
        let ia = Ia::open(driver, parts, net, now, host.entropy()?)
            .map_err(|error| failed(error, error.to_string()))?;
        let next = Next { deadline: None, work: true };
        Ok(Self {
            ia,
            host,
            next,
            uncleared: 0,
            removal_reported: false,
            opened: now,
            status: None,
        })
    }

    /// Returns the host beneath.
    #[must_use]
    pub fn host(&self) -> &'p H {
        self.host
    }

    /// Returns the host's time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.host.now())
    }

    /// Allocates zeroed, page-aligned memory to register.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Option<Buffer<'p, H>> {
        Buffer::zeroed(self.host, len)
    }

    /// Allocates zeroed, page-aligned memory that the device can only send from.
    #[must_use]
    pub fn send_buffer(&self, len: usize) -> Option<Buffer<'p, H>> {
        Buffer::read_only(self.host, len)
    }

    /// Calls [`Ia::advance`] with the present time.
    pub fn advance(&mut self) -> Next {
        self.next = self.ia.advance(self.now());
        if self.status.as_ref().is_some_and(Server::asked) {
            self.tell_status();
        }
        self.next
    }

    /// Has [`status::running`] find this adapter, until it is closed: see [`crate::status`].
    pub fn serve_status(&mut self, folder: &Path) -> Result<(), Error> {
        let wake = self.host.wakeups().caller().try_clone();
        let server = wake.and_then(|wake| Server::new(folder, wake)).map_err(|error| {
            let cause = format!("no socket there for the state of {}: {error}", self.host.name());
            Error::new(
                Kind::Refused,
                folder.display().to_string(),
                cause,
                "set DAT_STATUS_DIR to a folder of your own",
            )
        })?;
        self.status = Some(server);
        Ok(())
    }

    #[cold]
    fn tell_status(&mut self) {
        let open = self.now().since(self.opened);
        let snapshot = status::snapshot(&mut self.ia, self.host.name(), open);
        if let Some(server) = &self.status {
            server.answer(&snapshot);
        }
    }

    /// Calls [`Ia::ep_connect`] with the present time, to the service point `remote.port()` of
    /// `remote.ip()`.
    #[doc(alias = "dat_ep_connect")]
    pub fn ep_connect(
        &mut self,
        ep: Ep,
        remote: SocketAddr,
        timeout: Duration,
        private_data: &[u8],
    ) -> Result<(), dat_core::Error> {
        let (ip, port) = (remote.ip(), remote.port().into());
        let now = self.now();
        self.ia.ep_connect(now, ep, ip, port, timeout, private_data, Qos::BestEffort)
    }

    /// Calls [`Ia::ep_connect_direct`] with the present time.
    pub fn ep_connect_direct(
        &mut self,
        ep: Ep,
        remote: IpAddr,
        terms: &QpTerms,
        timeout: Duration,
    ) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.ep_connect_direct(now, ep, remote, terms, timeout)
    }

    /// Calls [`Ia::ep_disconnect`] with the present time.
    #[doc(alias = "dat_ep_disconnect")]
    pub fn ep_disconnect(&mut self, ep: Ep, flag: CloseFlag) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.ep_disconnect(now, ep, flag)
    }

    /// Calls [`Ia::ep_free`] with the present time.
    #[doc(alias = "dat_ep_free")]
    pub fn ep_free(&mut self, ep: Ep) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.ep_free(now, ep)
    }

    /// Calls [`Ia::evd_free`] after rejecting the connection requests still queued there, which
    /// could not be answered any more.
    #[doc(alias = "dat_evd_free")]
    pub fn evd_free(&mut self, evd: Evd) -> Result<(), dat_core::Error> {
        let mut requests = Vec::new();
        // If they cannot be dequeued, the free reports the reason.
        let _ = self.ia.evd_requests(evd, |cr| requests.push(cr));
        self.ia.evd_free(evd)?;
        for cr in requests {
            // The peer may have given up meanwhile.
            let _ = self.cr_reject(cr, &[]);
        }
        Ok(())
    }

    /// Calls [`Ia::cr_accept`] with the present time.
    #[doc(alias = "dat_cr_accept")]
    pub fn cr_accept(
        &mut self,
        cr: Cr,
        ep: Option<Ep>,
        private_data: &[u8],
    ) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.cr_accept(now, cr, ep, private_data)
    }

    /// Calls [`Ia::cr_reject`] with the present time.
    #[doc(alias = "dat_cr_reject")]
    pub fn cr_reject(&mut self, cr: Cr, private_data: &[u8]) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.cr_reject(now, cr, private_data)
    }

    /// Calls [`Ia::close`] with the present time, after the peers have confirmed the end of their
    /// connections or [`LINGER`] is over: nothing repeats a lost message once the device is closed.
    /// After success every handle is stale, and the host is ready for another adapter; after an error
    /// of the device, [`Host::renew`] makes it so. A graceful close that is refused leaves the adapter
    /// open.
    ///
    /// An adapter that is dropped instead leaves as a process that dies: its peers get no event.
    #[doc(alias = "dat_ia_close")]
    pub fn close(&mut self, flag: CloseFlag) -> Result<(), dat_core::Error> {
        let farewell = self.begin_close(flag);
        // Trouble with the device ends the wait, and is reported by the closing.
        let _ = self.under(farewell, |wait| wait.until);
        self.close_now(flag)
    }

    /// Ends what an abrupt close ends, and returns the wait for the peers to confirm it.
    pub(crate) fn begin_close(&mut self, flag: CloseFlag) -> Farewell {
        let now = self.now();
        if flag == CloseFlag::Abrupt {
            self.ia.disconnect_all(now);
        }
        Farewell { until: now + LINGER }
    }

    /// Closes the adapter at once.
    pub(crate) fn close_now(&mut self, flag: CloseFlag) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.close(now, flag)?;
        self.status = None;
        Ok(())
    }

    /// Waits until `evd` has `threshold` events and returns the first; [`Ia::evd_more`] returns how
    /// many are left.
    ///
    /// Returns `TIMEOUT_EXPIRED` after `timeout`; events that came stay queued. Other errors as for
    /// [`Ia::evd_wait`].
    #[doc(alias = "dat_evd_wait")]
    pub fn evd_wait(
        &mut self,
        evd: Evd,
        timeout: Duration,
        threshold: u32,
    ) -> Result<Event, WaitError> {
        let now = self.now();
        let wait = self.ia.evd_wait(now, evd, timeout, threshold)?;
        self.under(wait, EvdWait::until)
    }

    /// Waits until the CNO is triggered and returns the Event Dispatcher that triggered it; `None`
    /// if the last Event Dispatcher was detached. `QUEUE_EMPTY` after `timeout`.
    #[doc(alias = "dat_cno_wait")]
    pub fn cno_wait(&mut self, cno: Cno, timeout: Duration) -> Result<Option<Evd>, WaitError> {
        let now = self.now();
        let wait = self.ia.cno_wait(now, cno, timeout)?;
        self.under(wait, CnoWait::until)
    }

    /// Runs a wait until it is over.
    fn under<W: Awaited<Self>>(
        &mut self,
        wait: W,
        until: fn(&W) -> Instant,
    ) -> Result<W::Found, WaitError> {
        let mut under = Under::new(self, wait);
        loop {
            if let Some(found) = under.turn() {
                return found;
            }
            under.nic.sleep_until(until(&under.what));
        }
    }

    /// Creates a CNO with a descriptor, which becomes readable when the CNO may have been
    /// triggered, when the adapter has to be driven, and when the device is in trouble. Call
    /// [`Nic::cno_trigger`] before and after each sleep on it.
    #[doc(alias = "dat_cno_fd_create")]
    pub fn cno_fd_create(&mut self) -> Result<(OwnedFd, Cno), dat_core::Error> {
        let none = DatReturn::of(DatType::InsufficientResources);
        let fd = self.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|_| dat_core::Error::from(none))?;
        Ok((fd, self.ia.cno_fd_create()?))
    }

    /// Drives the adapter and returns the Event Dispatcher that triggered the CNO. After
    /// `QUEUE_EMPTY` a sleep on the descriptor is safe.
    #[doc(alias = "dat_cno_trigger")]
    pub fn cno_trigger(&mut self, cno: Cno) -> Result<Evd, WaitError> {
        self.ia.cno_query(cno)?;
        let found = self.turn(|nic, _| nic.ia.cno_trigger(cno).ok().map(Ok), |_| {});
        found.unwrap_or(Err(WaitError::UNTRIGGERED))
    }

    /// Waits until one of the dispatchers has an event and returns that dispatcher. An extension of
    /// this crate: it acts like a CNO for one call.
    pub fn wait_any(&mut self, evds: &[Evd], timeout: Duration) -> Result<Evd, WaitError> {
        let until = self.now() + timeout;
        loop {
            if let Some(found) = self.any(evds) {
                return found;
            }
            if until <= self.now() {
                return Err(WaitError::TIMEOUT);
            }
            self.sleep_until(until);
        }
    }

    /// Prepares a sleep on the descriptor. Returns whether an event is pending already. If not, the
    /// descriptor becomes readable when an event may have come to one of `evds`, when the adapter
    /// has to be driven, or when the device is in trouble.
    pub fn prepare(&mut self, evds: &[Evd]) -> Result<bool, WaitError> {
        Ok(self.any(evds).transpose()?.is_some())
    }

    /// Runs one turn of a wait for any of the dispatchers.
    pub(crate) fn any(&mut self, evds: &[Evd]) -> Option<Result<Evd, WaitError>> {
        let look = |nic: &mut Self, _| {
            evds.iter().find_map(|evd| match nic.ia.evd_more(*evd) {
                Ok(0) => None,
                Ok(_) => Some(Ok(*evd)),
                Err(ret) => Some(Err(ret.into())),
            })
        };
        self.turn(look, |nic| nic.arm(evds))
    }

    /// Arms the dispatchers. Errors are ignored: the next look reports them.
    fn arm(&mut self, evds: &[Evd]) {
        for evd in evds {
            let _ = self.ia.evd_arm(*evd, false);
        }
    }

    fn sleep_until(&mut self, until: Instant) {
        let left = until.since(self.now());
        self.host.wakeups().sleep(left.min(LONGEST));
    }

    /// Runs one turn of a wait and sets the timer for the next deadline.
    fn turn<T>(
        &mut self,
        look: impl FnMut(&mut Self, Instant) -> Option<Result<T, WaitError>>,
        arm: impl FnMut(&mut Self),
    ) -> Option<Result<T, WaitError>> {
        self.uncleared += 1;
        let busy = self.uncleared < UNCLEARED;
        let mut look = Look { nic: self, look, arm };
        // What is pending is found without a system call.
        let found = if busy { look.look() } else { None }.or_else(|| {
            look.nic.uncleared = 0;
            turn(&mut look)
        });
        if found.is_none() {
            let after = match self.next {
                Next { work: true, .. } => Some(Duration::ZERO),
                Next { deadline, .. } => deadline
                    .filter(|deadline| *deadline != Instant::NEVER)
                    .map(|deadline| deadline.since(self.now())),
            };
            self.host.wakeups().set_timer(after);
        }
        found
    }

    /// Drives the adapter while it finds work, at most [`DRIVES`] times.
    fn drive(&mut self) {
        for _ in 0..DRIVES {
            if !self.advance().work {
                break;
            }
        }
    }
}

/// A wait that the `Ia` supports: for an Event Dispatcher or for a CNO.
pub(crate) trait Awaited<N> {
    /// The result of the wait.
    type Found;
    /// Polls whether the wait is over.
    fn look(&mut self, nic: &mut N, now: Instant) -> Poll<Result<Self::Found, WaitError>>;
    /// Has the device interrupt when the wait may be over.
    fn arm(&mut self, nic: &mut N);
    /// Ends the wait.
    fn end(&mut self, nic: &mut N);
}

impl<
    's,
    'p,
    H: Host,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
> Awaited<Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>> for EvdWait
{
    type Found = Event;

    fn look(
        &mut self,
        nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>,
        now: Instant,
    ) -> Poll<Result<Event, WaitError>> {
        nic.ia.evd_waited(now, self).map_err(WaitError::from)
    }

    fn arm(&mut self, nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>) {
        nic.arm(&[self.evd()]);
    }

    fn end(&mut self, nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>) {
        nic.ia.evd_wait_end(self);
    }
}

impl<
    's,
    'p,
    H: Host,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
> Awaited<Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>> for CnoWait
{
    type Found = Option<Evd>;

    fn look(
        &mut self,
        nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>,
        now: Instant,
    ) -> Poll<Result<Option<Evd>, WaitError>> {
        nic.ia.cno_waited(now, self).map_err(WaitError::from)
    }

    /// Does nothing: the adapter arms the queues attached to a CNO each time it is driven.
    fn arm(&mut self, _nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>) {}

    fn end(&mut self, nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>) {
        nic.ia.cno_wait_end(self);
    }
}

/// The wait of a closing adapter for its peers to confirm the end of their connections.
pub(crate) struct Farewell {
    until: Instant,
}

impl<
    's,
    'p,
    H: Host,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
> Awaited<Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>> for Farewell
{
    type Found = ();

    fn look(
        &mut self,
        nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>,
        now: Instant,
    ) -> Poll<Result<(), WaitError>> {
        let over = nic.ia.cm_ending() == 0 || nic.ia.lost().is_some() || now >= self.until;
        if over { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Does nothing: the adapter arms its own queues each time it is driven.
    fn arm(&mut self, _nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>) {}

    fn end(&mut self, _nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>) {}
}

/// A wait in progress. Dropping it ends the wait, also when a future is dropped.
pub(crate) struct Under<'n, N, W: Awaited<N>> {
    pub(crate) nic: &'n mut N,
    pub(crate) what: W,
}

impl<'n, N, W: Awaited<N>> Under<'n, N, W> {
    pub(crate) fn new(nic: &'n mut N, what: W) -> Self {
        Self { nic, what }
    }
}

impl<
    's,
    'p,
    H: Host,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
    W,
> Under<'_, Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>, W>
where
    W: Awaited<Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>>,
{
    /// Runs one turn.
    pub(crate) fn turn(&mut self) -> Option<Result<W::Found, WaitError>> {
        let what = std::cell::RefCell::new(&mut self.what);
        self.nic.turn(
            |nic, now| match what.borrow_mut().look(nic, now) {
                Poll::Ready(found) => Some(found),
                Poll::Pending => None,
            },
            |nic| what.borrow_mut().arm(nic),
        )
    }
}

impl<N, W: Awaited<N>> Drop for Under<'_, N, W> {
    fn drop(&mut self) {
        self.what.end(self.nic);
    }
}

/// The steps of a turn: `look` polls, `arm` arms.
struct Look<'n, N, L, A> {
    nic: &'n mut N,
    look: L,
    arm: A,
}

impl<
    's,
    'p,
    H: Host,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
    T,
    L,
    A,
> Waiting for Look<'_, Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>, L, A>
where
    L: FnMut(
        &mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>,
        Instant,
    ) -> Option<Result<T, WaitError>>,
    A: FnMut(&mut Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>),
{
    type Found = Result<T, WaitError>;

    fn clear(&mut self) {
        self.nic.host.wakeups().clear();
    }

    fn look(&mut self) -> Option<Self::Found> {
        // The adapter arms its own queues each time it is driven.
        self.nic.drive();
        let now = self.nic.now();
        if let Some(found) = (self.look)(self.nic, now) {
            return Some(found);
        }
        let lost = self.nic.ia.lost().copied();
        let reported = &mut self.nic.removal_reported;
        let trouble = self.nic.host.trouble().filter(|trouble| match trouble {
            // The driver detects this within its health check period, and all posted requests
            // complete first.
            Trouble::Gone(_) => lost.is_some(),
            // Reported once: the program may still wait for its connections to end.
            Trouble::RemovalRequested => !std::mem::replace(reported, true),
            Trouble::BusError => true,
        });
        let error = trouble.map(WaitError::Device).or(lost.map(WaitError::Lost))?;
        Some(Err(error))
    }

    fn arm(&mut self) {
        (self.arm)(self.nic);
    }
}

impl<
    's,
    'p,
    H: Host,
    const QPS: usize,
    const CQS: usize,
    const KEYS: usize,
    const NEIGHBOURS: usize,
> Deref for Nic<'s, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>
{
    type Target = Ia<'s, Mlx5<'p, H, QPS, CQS, KEYS, NEIGHBOURS>>;

    fn deref(&self) -> &Self::Target {
        &self.ia
    }
}

impl<H: Host, const QPS: usize, const CQS: usize, const KEYS: usize, const NEIGHBOURS: usize>
    DerefMut for Nic<'_, '_, H, QPS, CQS, KEYS, NEIGHBOURS>
{
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.ia
    }
}

/// The descriptor is readable when [`Nic::prepare`] should be called again.
impl<H: Host, const QPS: usize, const CQS: usize, const KEYS: usize, const NEIGHBOURS: usize> AsFd
    for Nic<'_, '_, H, QPS, CQS, KEYS, NEIGHBOURS>
{
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.host.wakeups().as_fd()
    }
}
