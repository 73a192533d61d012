//! Two adapters on one wire, and the time they live in.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Deref, DerefMut, Index, IndexMut};
use std::time::Duration;

use dat_core::provider::{Net, Provider, Region, lid_of};
use dat_core::{AsyncEvd, CloseFlag, Ep, Error, Evd, Event, Ia, IaQuery, Instant, Storage};

/// The side that asks for connections in most cases.
pub const A: usize = 0;
/// The side that is asked.
pub const B: usize = 1;
/// Everything takes less time than this, or it has failed.
pub const LIMIT: Duration = Duration::from_secs(20);
/// Adapters that one case can open on a side, one after another.
pub const OPENS: usize = 4;

/// An adapter's storage in cases: small, so that a case can use it up.
/// 8 Endpoints, 16 Event Dispatchers, 16 LMRs, 32 DTOs each way, 16 events.
pub type Room<P> = Storage<P, 8, 16, 16, 32, 16>;

/// Environment of an adapter, which DAT does not define: its HCA, its memory, and the passing of
/// time.
pub trait Side {
    /// The HCA that the adapter is opened on.
    type Hca: Provider;

    /// Brings the HCA up. Once the adapter on it has been closed, it can be brought up again.
    fn hca(&self) -> Self::Hca;
    /// Bytes that nobody can guess.
    fn entropy(&self) -> [u8; 32];
    /// The time, as adapters take it. The same on both sides.
    fn now(&self) -> Instant;
    /// Lets time pass for everything on the wire, by `span` or less.
    fn pass(&self, span: Duration);
    /// Keeps posted requests in flight until released, where the provider would otherwise execute
    /// them in the call that posts them. False if it cannot: a device needs time anyway, and
    /// takes as much as it likes.
    fn hold(&self, _held: bool) -> bool {
        false
    }
    /// Zeroed memory that an LMR can be made of, page aligned, kept for as long as the case runs.
    fn memory(&self, len: usize) -> Region;
    /// Stores into such memory.
    fn store(&self, addr: u64, bytes: &[u8]);
    /// Returns the contents of such memory, with all that peers have written.
    fn load(&self, addr: u64, len: usize) -> Vec<u8>;
    /// As [`Side::store`], without a fence: the HCA may see the bytes late.
    fn store_unfenced(&self, addr: u64, bytes: &[u8]) {
        self.store(addr, bytes);
    }
    /// As [`Side::load`], without a fence: what peers have written may be missing.
    fn load_unfenced(&self, addr: u64, len: usize) -> Vec<u8> {
        self.load(addr, len)
    }
    /// How often the provider was asked to synchronise memory for incoming reads and for incoming
    /// writes, if it counts.
    fn syncs(&self) -> Option<[u32; 2]> {
        None
    }
    /// The pages of 4 KiB of such memory, from its first byte on, as the HCA addresses them.
    fn pages(&self, region: Region) -> Vec<u64>;
    /// Memory of one page that the host shares with others under this name.
    fn share(&self, name: &[u8; 40]) -> Region;
}

/// The address of a side.
#[must_use]
pub fn address(side: usize) -> IpAddr {
    Ipv4Addr::new(192, 168, 7, if side == A { 1 } else { 2 }).into()
}

/// The address of a side, where `named` is a name of its port on InfiniBand: a GID, or what stands for
/// a LID. Else `named`.
pub(super) fn owner(side: usize, named: IpAddr) -> IpAddr {
    let is_gid = matches!(named, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if is_gid || lid_of(named).is_some() { address(side) } else { named }
}

/// The network of a side.
#[must_use]
pub fn net(side: usize) -> Net {
    Net::new(address(side), 24)
}

/// One adapter: all calls of [`Ia`] by dereference.
pub struct Party<'s, S: Side> {
    /// The adapter.
    pub ia: Ia<'s, S::Hca>,
    /// Its environment.
    pub side: S,
    index: usize,
    spare: Vec<&'s mut Room<S::Hca>>,
    closed: bool,
}

impl<S: Side> std::fmt::Debug for Party<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.ia.fmt(f)
    }
}

impl<'s, S: Side> Party<'s, S> {
    /// Opens an adapter on `hca`.
    ///
    /// # Panics
    /// If that fails.
    pub fn open(index: usize, side: S, hca: S::Hca, rooms: &'s mut [Room<S::Hca>]) -> Self {
        let mut spare: Vec<_> = rooms.iter_mut().collect();
        let room = spare.pop().unwrap();
        let ia = Ia::open(hca, room.parts(), net(index), side.now(), side.entropy());
        Self {
            ia: ia.unwrap_or_else(|error| panic!("side {index}: open: {error}")),
            side,
            index,
            spare,
            closed: false,
        }
    }

    /// [`Ia::close`], now. [`Party::reopen`] opens another adapter afterwards.
    pub fn close(&mut self, flag: CloseFlag) -> Result<(), Error> {
        let now = self.side.now();
        self.ia.close(now, flag)?;
        self.closed = true;
        Ok(())
    }

    /// Opens another adapter on the same side after [`Party::close`].
    #[track_caller]
    pub fn reopen(&mut self) {
        self.reopen_with(AsyncEvd::New(8)).unwrap();
    }

    /// As [`Party::reopen`], with another way for asynchronous errors.
    #[track_caller]
    pub fn reopen_with(&mut self, async_evd: AsyncEvd) -> Result<(), Error> {
        let hca = self.side.hca();
        self.open_on(hca, async_evd)
    }

    /// As [`Party::reopen`], on an HCA that is up.
    #[track_caller]
    pub fn reopen_on(&mut self, hca: S::Hca) {
        self.open_on(hca, AsyncEvd::New(8)).unwrap();
    }

    #[track_caller]
    fn open_on(&mut self, hca: S::Hca, async_evd: AsyncEvd) -> Result<(), Error> {
        assert!(self.closed, "close it first");
        let room = self.spare.pop().expect("OPENS is too small");
        let (now, entropy) = (self.side.now(), self.side.entropy());
        self.ia = Ia::open_with(hca, room.parts(), net(self.index), now, entropy, async_evd)?;
        self.closed = false;
        Ok(())
    }

    /// Opens an adapter for its attributes on the same side after [`Party::close`].
    #[track_caller]
    pub fn open_query(&mut self) -> IaQuery<'s, S::Hca> {
        assert!(self.closed, "close it first");
        let room = self.spare.pop().expect("OPENS is too small");
        IaQuery::open_query(self.side.hca(), room.parts(), net(self.index))
    }

    /// Its network address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        address(self.index)
    }
}

impl<'s, S: Side> Deref for Party<'s, S> {
    type Target = Ia<'s, S::Hca>;

    fn deref(&self) -> &Self::Target {
        &self.ia
    }
}

impl<S: Side> DerefMut for Party<'_, S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.ia
    }
}

/// Environment of a case. Fields `a` and `b` for calls, or `ias[side]` where the side is a
/// variable.
pub struct Adapters<'s, S: Side> {
    /// Side [`A`].
    pub a: Party<'s, S>,
    /// Side [`B`].
    pub b: Party<'s, S>,
    /// The case leaves a poster or reaper out when it closes: what hangs on
    /// it goes with the device.
    pub untidy: bool,
    /// The case has a device refuse a work request. (The model complains of each.)
    pub refusing: bool,
    /// Both sides and the wire go on by themselves: of two things that end a connection, either
    /// may come first.
    pub hurried: bool,
    /// The next connection qualifier that nobody listens on.
    pub(super) qualifier: u64,
}

impl<S: Side> std::fmt::Debug for Adapters<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapters").field("a", &self.a).field("b", &self.b).finish_non_exhaustive()
    }
}

impl<'s, S: Side> Index<usize> for Adapters<'s, S> {
    type Output = Party<'s, S>;

    fn index(&self, side: usize) -> &Party<'s, S> {
        if side == A { &self.a } else { &self.b }
    }
}

impl<S: Side> IndexMut<usize> for Adapters<'_, S> {
    fn index_mut(&mut self, side: usize) -> &mut Self::Output {
        if side == A { &mut self.a } else { &mut self.b }
    }
}

impl<'s, S: Side> Adapters<'s, S> {
    /// Two adapters on one wire.
    #[must_use]
    pub fn new(a: Party<'s, S>, b: Party<'s, S>) -> Self {
        Self { a, b, untidy: false, refusing: false, hurried: false, qualifier: 4711 }
    }

    /// Closes what the case has not closed; whether nothing may be left.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn finish(mut self) -> bool {
        for side in [A, B] {
            let party = &mut self[side];
            if !party.closed {
                let closed = party.close(CloseFlag::Abrupt);
                closed.unwrap_or_else(|error| panic!("side {side}: close: {error}"));
            }
        }
        !self.untidy
    }

    /// Closes what the case has not closed, but leaves the HCAs up: gives those that are.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn leave(self) -> [Option<S::Hca>; 2] {
        [self.a, self.b].map(|party| {
            if party.closed {
                return None;
            }
            let left = party.ia.leave(party.side.now());
            Some(left.unwrap_or_else(|error| panic!("side {}: close: {error}", party.index)))
        })
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.a.side.now()
    }

    /// An address on the wire that nobody answers to.
    #[must_use]
    pub fn nobody(&self) -> IpAddr {
        Ipv4Addr::new(192, 168, 7, 99).into()
    }

    /// One round: both adapters do what is due, then time passes by `leap` at the most, and not
    /// beyond the next deadline.
    pub fn turn(&mut self, mut leap: Duration) {
        const LEAST: Duration = Duration::from_micros(1);
        let now = self.now();
        for party in [&mut self.a, &mut self.b] {
            if party.closed {
                continue;
            }
            let next = party.ia.advance(now);
            if next.work {
                leap = LEAST;
            } else if let Some(deadline) = next.deadline {
                leap = leap.min(deadline.since(now).max(LEAST));
            }
        }
        self.a.side.pass(leap);
    }

    /// Drives both sides for a span of time. In a guest this is real time.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now() + span;
        while self.now() < end {
            let left = end.since(self.now());
            self.turn(left.min(Duration::from_millis(1)));
        }
    }

    /// Drives both sides until `done` gives a value; nothing, if it gives none within `limit`.
    pub fn within<T>(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let end = self.now() + limit;
        // Looks often at first, and less often the longer nothing comes.
        let mut leap = Duration::from_nanos(500);
        loop {
            if let Some(value) = done(self) {
                return Some(value);
            }
            if self.now() >= end {
                return None;
            }
            self.turn(leap);
            leap = (leap * 2).min(Duration::from_millis(1));
        }
    }

    /// As [`Adapters::within`], of what has to come.
    #[track_caller]
    pub fn until<T>(&mut self, done: impl FnMut(&mut Self) -> Option<T>) -> T {
        match self.within(LIMIT, done) {
            Some(value) => value,
            None => panic!("it did not come within {LIMIT:?}"),
        }
    }

    /// How late an event may be that has its time: the step of [`Adapters::within`], or what a busy
    /// machine needs.
    #[must_use]
    pub fn slack(&self) -> Duration {
        Duration::from_millis(if self.hurried { 10_000 } else { 3 })
    }

    /// The next event of an Event Dispatcher, which has to come.
    #[track_caller]
    pub fn event(&mut self, side: usize, evd: Evd) -> Event {
        match self.within(LIMIT, |ias| ias[side].evd_dequeue(evd).ok()) {
            Some(event) => event,
            None => panic!("side {side}: no event within {LIMIT:?}"),
        }
    }

    /// The connection of an Endpoint broke. Where sides hurry, the peer's word that it is over may
    /// have come first.
    #[track_caller]
    pub fn broken(&mut self, side: usize, evd: Evd, ep: Ep) {
        let event = self.event(side, evd);
        let peer_first = self.hurried && event == Event::Disconnected(ep);
        assert!(event == Event::Broken(ep) || peer_first, "{event:?}");
    }

    /// The next event of an Event Dispatcher, if there is one now.
    #[track_caller]
    pub fn look(&mut self, side: usize, evd: Evd) -> Option<Event> {
        match self[side].evd_dequeue(evd) {
            Ok(event) => Some(event),
            Err(dat_core::DatReturn::QUEUE_EMPTY) => None,
            Err(other) => panic!("side {side}: dequeue: {other}"),
        }
    }

    /// Drives both sides for a while and insists that nothing comes to these Event Dispatchers.
    #[track_caller]
    pub fn expect_no_event(&mut self, span: Duration, evds: &[(usize, Evd)]) {
        self.pass(span);
        for &(side, evd) in evds {
            if let Some(event) = self.look(side, evd) {
                panic!("side {side}: {event:?} came, nothing was to");
            }
        }
    }
}
