//! An Interface Adapter on a host, with the calls that wait: dat_evd_wait(3), dat_cno_wait(3).
//!
//! `dat_core::Ia` never waits and is told the time. [`Nic`] joins it with its [`Host`]: it supplies
//! the time, and waits by sleeping on the host's wake-ups. What a wait is for, and when it is over,
//! is the `Ia`'s affair: a wait here begins one there, looks at it once a turn, sleeps in between,
//! and ends it. All other calls are the `Ia`'s own, by dereference.
//!
//! A program with an event loop of its own polls the descriptor of [`Nic::as_fd`](AsFd) and calls
//! [`Nic::prepare`] before each sleep: `true` says that something is there already.
//!
//! Waits belong to the control half. Threads share an adapter by its halves: while one waits here,
//! others post with an `EpPoster`. A thread that took a reaping half away arms it, sleeps as it
//! likes, and is woken by the agent of a CNO that its Event Dispatcher is attached to: the thread
//! that waits here, or drives the adapter, calls it.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Poll;
use std::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::Net;
use dat_core::{
    CloseFlag, Cno, CnoWait, Cr, DatReturn, DatType, Ep, Evd, EvdWait, Event, Ia, Instant, Next,
    Parts, Qos, Storage,
};
use hca_mlx5::dma::Buffer;
use hca_mlx5::{Config, Mlx5};

use crate::error::{Error, Kind};
use crate::host::{Host, Trouble};
use crate::wait::{Waiting, turn};

/// Times that one look drives an adapter which keeps finding work.
const DRIVES: usize = 64;
/// Longest sleep: nothing relies on it.
const LONGEST: Duration = Duration::from_secs(3600);

/// The storage of an adapter of ordinary size: 64 Endpoints with 128 requests each way, 16 Event
/// Dispatchers, 256 LMRs.
pub type Room<'p, H> = Storage<Mlx5<'p, H>, 64, 16, 256, 128>;

/// Why a wait ended without an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// `TIMEOUT_EXPIRED`, or the call was wrong.
    Dat(DatReturn),
    /// The device is in trouble. Events that were there have been delivered. That it is to be
    /// removed is told once; what is worse, by every wait.
    Device(Trouble),
}

impl WaitError {
    /// The time is over.
    pub const TIMEOUT: Self = Self::Dat(DatReturn::of(DatType::TimeoutExpired));
    /// The same of a CNO.
    pub const UNTRIGGERED: Self = Self::Dat(DatReturn::QUEUE_EMPTY);
}

impl From<DatReturn> for WaitError {
    fn from(ret: DatReturn) -> Self {
        Self::Dat(ret)
    }
}

impl From<dat_core::Error> for WaitError {
    fn from(error: dat_core::Error) -> Self {
        error.ret().into()
    }
}

impl std::fmt::Display for WaitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dat(ret) => ret.fmt(f),
            Self::Device(trouble) => trouble.fmt(f),
        }
    }
}

impl std::error::Error for WaitError {}

/// An adapter and its host.
#[derive(Debug)]
pub struct Nic<
    's,
    'p,
    H: Host,
    const QPS: usize = 64,
    const CQS: usize = 64,
    const KEYS: usize = 512,
> {
    ia: Ia<'s, Mlx5<'p, H, QPS, CQS, KEYS>>,
    host: &'p H,
    next: Next,
    /// The program knows that the device is to be removed.
    told: bool,
}

impl<'s, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize>
    Nic<'s, 'p, H, QPS, CQS, KEYS>
{
    /// Brings the device up and opens an adapter on it. The host overrides what of `config` depends
    /// on it ([`Host::config`]).
    #[doc(alias = "dat_ia_open")]
    pub fn open(
        host: &'p H,
        parts: Parts<'s, Mlx5<'p, H, QPS, CQS, KEYS>>,
        net: Net,
        config: &Config<'p>,
    ) -> Result<Self, Error> {
        let failed = |said: String| match (host.trouble(), host.shortage()) {
            (Some(Trouble::Gone(error)), _) | (_, Some(error)) => error,
            (Some(other), None) => Error::new(Kind::Device, host.name(), said, other.to_string()),
            (None, None) => Error::new(Kind::Device, host.name(), said, ""),
        };
        let driver =
            Mlx5::open(host, &host.config(config)).map_err(|fault| failed(fault.to_string()))?;
        let now = Instant::from_nanos(host.now());
        let ia = Ia::open(driver, parts, net, now, host.entropy())
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { ia, host, next: Next { deadline: None, work: true }, told: false })
    }

    /// The host beneath.
    #[must_use]
    pub fn host(&self) -> &'p H {
        self.host
    }

    /// The host's time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.host.now())
    }

    /// Zeroed memory to register, page aligned.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Option<Buffer<'p, H>> {
        Buffer::zeroed(self.host, len)
    }

    /// The same, of memory that the device can only send from.
    #[must_use]
    pub fn send_buffer(&self, len: usize) -> Option<Buffer<'p, H>> {
        Buffer::read_only(self.host, len)
    }

    /// [`Ia::advance`], now.
    pub fn advance(&mut self) -> Next {
        self.next = self.ia.advance(self.now());
        self.next
    }

    /// [`Ia::ep_connect`], now, to the service point `remote.port()` of `remote.ip()`.
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

    /// [`Ia::ep_connect_direct`], now.
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

    /// [`Ia::ep_disconnect`], now.
    #[doc(alias = "dat_ep_disconnect")]
    pub fn ep_disconnect(&mut self, ep: Ep, flag: CloseFlag) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.ep_disconnect(now, ep, flag)
    }

    /// [`Ia::ep_free`], now.
    #[doc(alias = "dat_ep_free")]
    pub fn ep_free(&mut self, ep: Ep) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.ep_free(now, ep)
    }

    /// [`Ia::evd_free`]. Who asks for a connection and is still queued there is turned away: nobody
    /// could answer him any more.
    #[doc(alias = "dat_evd_free")]
    pub fn evd_free(&mut self, evd: Evd) -> Result<(), dat_core::Error> {
        let mut requests = Vec::new();
        // Where they cannot be looked at, the free says why.
        let _ = self.ia.evd_requests(evd, |cr| requests.push(cr));
        self.ia.evd_free(evd)?;
        for cr in requests {
            // He may have gone meanwhile.
            let _ = self.cr_reject(cr, &[]);
        }
        Ok(())
    }

    /// [`Ia::cr_accept`], now.
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

    /// [`Ia::cr_reject`], now.
    #[doc(alias = "dat_cr_reject")]
    pub fn cr_reject(&mut self, cr: Cr, private_data: &[u8]) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.cr_reject(now, cr, private_data)
    }

    /// [`Ia::close`], now. If it succeeds, the host is ready for another adapter; if not, after
    /// [`Host::renew`].
    #[doc(alias = "dat_ia_close")]
    pub fn close(mut self, flag: CloseFlag) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.close(now, flag)
    }

    /// Waits until `evd` has `threshold` events and returns the first; [`Ia::evd_more`] tells how
    /// many are left.
    ///
    /// `TIMEOUT_EXPIRED` after `timeout`, which leaves what came in its place. Other errors as for
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

    /// Waits until the CNO is triggered, and says by whom; by none if the last Event Dispatcher
    /// left it. `QUEUE_EMPTY` after `timeout`.
    #[doc(alias = "dat_cno_wait")]
    pub fn cno_wait(&mut self, cno: Cno, timeout: Duration) -> Result<Option<Evd>, WaitError> {
        let now = self.now();
        let wait = self.ia.cno_wait(now, cno, timeout)?;
        self.under(wait, CnoWait::until)
    }

    /// Waits until it is over.
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

    /// A CNO with a descriptor, which becomes readable when the CNO may have been triggered, when
    /// the adapter wants to be driven, and when the device is in trouble. Before each sleep on
    /// it, and after, ask [`Nic::cno_trigger`].
    #[doc(alias = "dat_cno_fd_create")]
    pub fn cno_fd_create(&mut self) -> Result<(OwnedFd, Cno), dat_core::Error> {
        let none = DatReturn::of(DatType::InsufficientResources);
        let fd = self.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|_| dat_core::Error::from(none))?;
        Ok((fd, self.ia.cno_fd_create()?))
    }

    /// Drives the adapter and says which Event Dispatcher triggered the CNO; `QUEUE_EMPTY` if none
    /// did, and then a sleep on the descriptor is safe.
    #[doc(alias = "dat_cno_trigger")]
    pub fn cno_trigger(&mut self, cno: Cno) -> Result<Evd, WaitError> {
        self.ia.cno_query(cno)?;
        let found = self.turn(|nic, _| nic.ia.cno_trigger(cno).ok().map(Ok), |_| {});
        found.unwrap_or(Err(WaitError::UNTRIGGERED))
    }

    /// Waits until one of the dispatchers has an event, and says which: extension, a CNO for this
    /// call.
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

    /// Before a sleep on the descriptor: whether something is there already. If not, the descriptor
    /// becomes readable when an event may have come to one of `evds`, when the adapter wants to
    /// be driven, or when the device is in trouble.
    pub fn prepare(&mut self, evds: &[Evd]) -> Result<bool, WaitError> {
        Ok(self.any(evds).transpose()?.is_some())
    }

    /// One turn of a wait for any of the dispatchers.
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

    /// What a dispatcher refuses, the next look reports.
    fn arm(&mut self, evds: &[Evd]) {
        for evd in evds {
            let _ = self.ia.evd_arm(*evd, false);
        }
    }

    fn sleep_until(&mut self, until: Instant) {
        let left = until.since(self.now());
        self.host.wakeups().sleep(left.min(LONGEST));
    }

    /// One turn of a wait, with the timer set for what is due next.
    fn turn<T>(
        &mut self,
        look: impl FnMut(&mut Self, Instant) -> Option<Result<T, WaitError>>,
        arm: impl FnMut(&mut Self),
    ) -> Option<Result<T, WaitError>> {
        let mut look = Look { nic: self, look, arm };
        let found = turn(&mut look);
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

    /// Drives the adapter for as long as it finds work, within bounds.
    fn drive(&mut self) {
        for _ in 0..DRIVES {
            if !self.advance().work {
                break;
            }
        }
    }
}

/// Something of the adapter that can be waited for: how it is looked at and ended, and what has to
/// be armed.
pub(crate) trait Awaited<N> {
    /// What it gives.
    type Found;
    /// Looks whether it is over.
    fn look(&mut self, nic: &mut N, now: Instant) -> Poll<Result<Self::Found, WaitError>>;
    /// Has the device announce what it is waited for.
    fn arm(&mut self, nic: &mut N);
    /// Ends it.
    fn end(&mut self, nic: &mut N);
}

impl<'s, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize>
    Awaited<Nic<'s, 'p, H, QPS, CQS, KEYS>> for EvdWait
{
    type Found = Event;

    fn look(
        &mut self,
        nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS>,
        now: Instant,
    ) -> Poll<Result<Event, WaitError>> {
        nic.ia.evd_waited(now, self).map_err(WaitError::from)
    }

    fn arm(&mut self, nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS>) {
        nic.arm(&[self.evd()]);
    }

    fn end(&mut self, nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS>) {
        nic.ia.evd_wait_end(self);
    }
}

impl<'s, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize>
    Awaited<Nic<'s, 'p, H, QPS, CQS, KEYS>> for CnoWait
{
    type Found = Option<Evd>;

    fn look(
        &mut self,
        nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS>,
        now: Instant,
    ) -> Poll<Result<Option<Evd>, WaitError>> {
        nic.ia.cno_waited(now, self).map_err(WaitError::from)
    }

    /// The adapter arms what is attached to a CNO each time it is driven.
    fn arm(&mut self, _nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS>) {}

    fn end(&mut self, nic: &mut Nic<'s, 'p, H, QPS, CQS, KEYS>) {
        nic.ia.cno_wait_end(self);
    }
}

/// A wait under way, which ends with this value: also where a future is dropped.
pub(crate) struct Under<'n, N, W: Awaited<N>> {
    pub(crate) nic: &'n mut N,
    pub(crate) what: W,
}

impl<'n, N, W: Awaited<N>> Under<'n, N, W> {
    pub(crate) fn new(nic: &'n mut N, what: W) -> Self {
        Self { nic, what }
    }
}

impl<'s, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize, W>
    Under<'_, Nic<'s, 'p, H, QPS, CQS, KEYS>, W>
where
    W: Awaited<Nic<'s, 'p, H, QPS, CQS, KEYS>>,
{
    /// One turn of it.
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

/// A wait for something of an adapter.
struct Look<'n, N, L, A> {
    nic: &'n mut N,
    look: L,
    arm: A,
}

impl<'s, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize, T, L, A> Waiting
    for Look<'_, Nic<'s, 'p, H, QPS, CQS, KEYS>, L, A>
where
    L: FnMut(&mut Nic<'s, 'p, H, QPS, CQS, KEYS>, Instant) -> Option<Result<T, WaitError>>,
    A: FnMut(&mut Nic<'s, 'p, H, QPS, CQS, KEYS>),
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
        match self.nic.host.trouble()? {
            // The driver finds out by itself, within its period of looking, and everything posted
            // comes back first.
            Trouble::Gone(_) if self.nic.ia.lost().is_none() => None,
            // Told once: the program may still want to wait for its connections to end.
            Trouble::RemovalRequested if std::mem::replace(&mut self.nic.told, true) => None,
            trouble @ (Trouble::Gone(_) | Trouble::BusError | Trouble::RemovalRequested) => {
                Some(Err(WaitError::Device(trouble)))
            }
        }
    }

    fn arm(&mut self) {
        (self.arm)(self.nic);
    }
}

impl<'s, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize> Deref
    for Nic<'s, 'p, H, QPS, CQS, KEYS>
{
    type Target = Ia<'s, Mlx5<'p, H, QPS, CQS, KEYS>>;

    fn deref(&self) -> &Self::Target {
        &self.ia
    }
}

impl<H: Host, const QPS: usize, const CQS: usize, const KEYS: usize> DerefMut
    for Nic<'_, '_, H, QPS, CQS, KEYS>
{
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.ia
    }
}

/// Readable when [`Nic::prepare`] should be called again.
impl<H: Host, const QPS: usize, const CQS: usize, const KEYS: usize> AsFd
    for Nic<'_, '_, H, QPS, CQS, KEYS>
{
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.host.wakeups().as_fd()
    }
}
