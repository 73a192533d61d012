//! An Interface Adapter on a host, with the calls that wait: dat_evd_wait(3), dat_cno_wait(3).
//!
//! `dat_core::Ia` never waits and is told the time. [`Nic`] joins it with its [`Host`]: it supplies the time, and waits by
//! sleeping on the host's wake-ups. All other calls are the `Ia`'s own, by dereference.
//!
//! A program with an event loop of its own polls the descriptor of [`Nic::as_fd`](AsFd) and calls [`Nic::prepare`] before each
//! sleep: `true` says that something is there already.
//!
//! Waits belong to the control half. A reaping half that was taken to another thread polls.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use dat_core::cm::QpTerms;
use dat_core::provider::Net;
use dat_core::{
    CloseFlag, Cr, DatReturn, DatSubtype, DatType, Ep, Evd, Event, Ia, Instant, Next, Qos, Storage,
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

/// The storage of an adapter of ordinary size: 64 Endpoints with 128 requests each way, 16 Event Dispatchers, 256 LMRs.
pub type Room<'p, H> = Storage<Mlx5<'p, H>, 64, 16, 256, 128>;

/// Why a wait ended without an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// `TIMEOUT_EXPIRED`, or the call was wrong.
    Dat(DatReturn),
    /// The device is in trouble. Events that were there have been delivered. That it is to be removed is told once; what is
    /// worse, by every wait.
    Device(Trouble),
}

impl WaitError {
    /// The time is over.
    pub const TIMEOUT: Self = Self::Dat(DatReturn::of(DatType::TimeoutExpired));
}

impl From<DatReturn> for WaitError {
    fn from(ret: DatReturn) -> Self {
        Self::Dat(ret)
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
    /// Events that a wait has taken while it waited for more.
    early: Vec<(Evd, VecDeque<Event>)>,
    next: Next,
    /// The program knows that the device is to be removed.
    told: bool,
}

impl<'s, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize>
    Nic<'s, 'p, H, QPS, CQS, KEYS>
{
    /// Brings the device up and opens an adapter on it. The interrupt vectors of `config` are the host's affair.
    #[doc(alias = "dat_ia_open")]
    pub fn open<
        const EPS: usize,
        const EVDS: usize,
        const LMRS: usize,
        const DTOS: usize,
        const EVENTS: usize,
    >(
        host: &'p H,
        room: &'s mut Storage<Mlx5<'p, H, QPS, CQS, KEYS>, EPS, EVDS, LMRS, DTOS, EVENTS>,
        net: Net,
        config: &Config<'p>,
    ) -> Result<Self, Error> {
        let failed = |said: String| match (host.trouble(), host.shortage()) {
            (Some(Trouble::Gone(error)), _) | (_, Some(error)) => error,
            (Some(other), None) => Error::new(Kind::Device, host.name(), said, other.to_string()),
            (None, None) => Error::new(Kind::Device, host.name(), said, ""),
        };
        let shared = |vector: u16| if vector < host.vectors() { vector } else { 0 };
        let config = Config {
            async_vector: 0,
            page_vector: 0,
            completion_vector: shared(1),
            command_vector: shared(2),
            ..*config
        };
        let driver = Mlx5::open(host, &config).map_err(|fault| failed(fault.to_string()))?;
        let now = Instant::from_nanos(host.now());
        let ia = Ia::open(driver, room, net, now, host.entropy())
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            ia,
            host,
            early: Vec::new(),
            next: Next {
                deadline: None,
                work: true,
            },
            told: false,
        })
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
        self.ia
            .ep_connect(now, ep, ip, port, timeout, private_data, Qos::BestEffort)
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

    /// [`Ia::evd_free`]; events that were not dequeued are lost.
    #[doc(alias = "dat_evd_free")]
    pub fn evd_free(&mut self, evd: Evd) -> Result<(), dat_core::Error> {
        self.ia.evd_free(evd)?;
        self.early.retain(|(other, _)| *other != evd);
        Ok(())
    }

    /// [`Ia::close`], now. If it succeeds, the host is ready for another adapter; if not, after [`Host::renew`].
    #[doc(alias = "dat_ia_close")]
    pub fn close(mut self, flag: CloseFlag) -> Result<(), dat_core::Error> {
        let now = self.now();
        self.ia.close(now, flag)
    }

    /// The next event, or `QUEUE_EMPTY`: [`Ia::evd_dequeue`], after what a wait has taken already.
    #[doc(alias = "dat_evd_dequeue")]
    pub fn evd_dequeue(&mut self, evd: Evd) -> Result<Event, DatReturn> {
        match self.early(evd).and_then(VecDeque::pop_front) {
            Some(event) => Ok(event),
            None => self.ia.evd_dequeue(evd),
        }
    }

    /// Events that a wait has taken and [`Nic::evd_dequeue`] gives without asking the device: `nmore` of dat_evd_wait(3).
    #[must_use]
    pub fn evd_more(&self, evd: Evd) -> usize {
        let early = self.early.iter().find(|(other, _)| *other == evd);
        early.map_or(0, |(_, events)| events.len())
    }

    fn early(&mut self, evd: Evd) -> Option<&mut VecDeque<Event>> {
        let found = self.early.iter_mut().find(|(other, _)| *other == evd);
        found.map(|(_, events)| events)
    }

    /// Waits until `evd` has `threshold` events and returns the first; the others come by [`Nic::evd_dequeue`].
    ///
    /// `INVALID_PARAMETER` for a threshold of 0 or beyond the dispatcher's length; `TIMEOUT_EXPIRED` after `timeout`, which
    /// leaves what came in its place.
    #[doc(alias = "dat_evd_wait")]
    pub fn evd_wait(
        &mut self,
        evd: Evd,
        timeout: Duration,
        threshold: u32,
    ) -> Result<Event, WaitError> {
        self.check(evd, threshold)?;
        self.wait(&[evd], threshold, timeout)?;
        Ok(self.evd_dequeue(evd)?)
    }

    /// Waits until one of the dispatchers has an event, and says which: an event counter over `evds`.
    #[doc(alias = "dat_cno_wait")]
    pub fn wait_any(&mut self, evds: &[Evd], timeout: Duration) -> Result<Evd, WaitError> {
        for evd in evds {
            self.check(*evd, 1)?;
        }
        self.wait(evds, 1, timeout)
    }

    /// Before a sleep on the descriptor: whether something is there already. If not, the descriptor becomes readable when an
    /// event may have come to one of `evds`, when the adapter wants to be driven, or when the device is in trouble.
    pub fn prepare(&mut self, evds: &[Evd]) -> Result<bool, WaitError> {
        for evd in evds {
            self.check(*evd, 1)?;
        }
        let found = self.turn(evds, 1);
        Ok(found.transpose()?.is_some())
    }

    pub(crate) fn check(&self, evd: Evd, threshold: u32) -> Result<(), DatReturn> {
        let param = self.ia.evd_query(evd).map_err(|error| error.ret())?;
        let wrong = |ty, subtype| Err(DatReturn::new(ty, subtype));
        if param.reaper_out {
            return wrong(DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter);
        }
        if threshold == 0 || threshold > param.qlen {
            return wrong(DatType::InvalidParameter, DatSubtype::InvalidArg3);
        }
        Ok(())
    }

    fn wait(&mut self, evds: &[Evd], threshold: u32, timeout: Duration) -> Result<Evd, WaitError> {
        let until = self.now() + timeout;
        loop {
            if let Some(found) = self.turn(evds, threshold) {
                return found;
            }
            let left = until.since(self.now());
            if left.is_zero() {
                return Err(WaitError::TIMEOUT);
            }
            self.host.wakeups().sleep(left.min(LONGEST));
        }
    }

    /// One turn of a wait, with the timer set for what is due next.
    pub(crate) fn turn(&mut self, evds: &[Evd], threshold: u32) -> Option<Result<Evd, WaitError>> {
        let mut look = Look {
            nic: self,
            evds,
            threshold: usize::try_from(threshold).unwrap_or(usize::MAX),
        };
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

    /// Takes events of `evd` until there are `threshold`. Whether there are.
    fn gather(&mut self, evd: Evd, threshold: usize) -> Result<bool, DatReturn> {
        while self.evd_more(evd) < threshold {
            let event = match self.ia.evd_dequeue(evd) {
                Ok(event) => event,
                Err(DatReturn::QUEUE_EMPTY) => return Ok(false),
                Err(other) => return Err(other),
            };
            match self.early(evd) {
                Some(events) => events.push_back(event),
                None => self.early.push((evd, VecDeque::from([event]))),
            }
        }
        Ok(true)
    }
}

/// A wait for events of an adapter.
struct Look<'n, 's, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize> {
    nic: &'n mut Nic<'s, 'p, H, QPS, CQS, KEYS>,
    evds: &'n [Evd],
    threshold: usize,
}

impl<H: Host, const QPS: usize, const CQS: usize, const KEYS: usize> Waiting
    for Look<'_, '_, '_, H, QPS, CQS, KEYS>
{
    type Found = Result<Evd, WaitError>;

    fn clear(&mut self) {
        self.nic.host.wakeups().clear();
    }

    fn look(&mut self) -> Option<Self::Found> {
        // The adapter arms its own queues each time it is driven.
        self.nic.drive();
        for evd in self.evds {
            match self.nic.gather(*evd, self.threshold) {
                Ok(true) => return Some(Ok(*evd)),
                Ok(false) => {}
                Err(ret) => return Some(Err(ret.into())),
            }
        }
        match self.nic.host.trouble()? {
            // The driver finds out by itself, within its period of looking, and everything posted comes back first.
            Trouble::Gone(_) if self.nic.ia.lost().is_none() => None,
            // Told once: the program may still want to wait for its connections to end.
            Trouble::RemovalRequested if std::mem::replace(&mut self.nic.told, true) => None,
            trouble @ (Trouble::Gone(_) | Trouble::BusError | Trouble::RemovalRequested) => {
                Some(Err(WaitError::Device(trouble)))
            }
        }
    }

    fn arm(&mut self) {
        for evd in self.evds {
            // What a dispatcher refuses, the next look reports.
            let _ = self.nic.ia.evd_arm(*evd, false);
        }
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
