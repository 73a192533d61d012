//! Sessions at DAT level: two sides on two models, ready to connect, with the wire and the host's
//! memory under control.
//!
//! [`Setup::run`] brings everything up, runs a test and takes everything down, and then
//! asserts that no model complained and that every byte and every firmware page was given back.
//! [`Setup::connected`] connects first.
//!
//! Length: the calls that DAT tests share stand in one place; each is a few lines.

pub mod line;
mod side;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dat_core::{
    CloseFlag, CompletionFlags, DtoEvent, DtoOperation, DtoStatus, Ep, EpAttr, EpState, Evd, Event,
    Instant, LmrParam, LmrTriplet, MemPriv, Qos, RmrTriplet,
};
use hca_mlx5::platform::{Dma, Fence};
use mlx5_model::Hca;
use mlx5_model::faults::{Refusals, Refusing};
use mlx5_model::host::{DmaError, HostMemory};

use crate::host::chosen::or_chosen;
use crate::host::inproc::{Slot, World};
use crate::pair::{Pair, Room, Stage};

pub use line::Line;
pub use side::Side;

/// Everything takes less model time than this, or it has failed.
pub const LIMIT: Duration = Duration::from_secs(100);
/// The service point of side 1, and of side 0.
pub const QUALIFIER: u64 = 4711;
/// No flags.
pub const NONE: CompletionFlags = CompletionFlags::empty();

/// Settings of a session.
#[derive(Clone)]
pub struct Setup {
    /// Cards, wire, addresses.
    pub stage: Stage,
    /// Bytes of each side's memory.
    pub bytes: usize,
    /// One Event Dispatcher for all streams of an Endpoint.
    pub merged: bool,
    /// Changes the attributes that the adapter suggests.
    pub tweak: fn(&mut EpAttr),
}

impl Default for Setup {
    fn default() -> Self {
        Self { stage: Stage::default(), bytes: 64 << 10, merged: false, tweak: |_| {} }
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("stage", &self.stage.seed).finish_non_exhaustive()
    }
}

/// A running session.
#[derive(Debug)]
pub struct Session<'s> {
    /// Time, cards, adapters.
    pub pair: Pair<'s>,
    /// The plug of each side.
    pub lines: [Line; 2],
    /// Accesses that each side's host memory refuses to the device.
    pub refusals: [Refusals; 2],
    /// The objects of each side.
    pub sides: [Side<'s>; 2],
    /// The device of that side is lost or its test leaves it unfit: close may fail, and memory may
    /// stay taken.
    pub lost: [bool; 2],
    /// The model is expected to complain: the test checks the complaints itself.
    pub forgive: bool,
    tweak: fn(&mut EpAttr),
}

/// The host's memory as a value that a wrapper can hold.
struct Host(Box<dyn HostMemory + Send>);

impl HostMemory for Host {
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        self.0.read(iova, buf)
    }

    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        self.0.write(iova, buf)
    }
}

impl Setup {
    /// The setup with another seed.
    #[must_use]
    pub fn seed(seed: u64) -> Self {
        Self { stage: Stage { seed, ..Stage::default() }, ..Self::default() }
    }

    /// Runs `act` in a new session.
    pub fn run<T>(&self, act: impl FnOnce(&mut Session<'_>) -> T) -> T {
        let stage = &self.stage;
        let world = World::new();
        let mut ports = stage.ports().into_iter();
        let mut lines = Vec::new();
        let refusals = [Refusals::default(), Refusals::default()];
        let slots = [0, 1].map(|side| {
            let seed = stage.seed.wrapping_mul(2).wrapping_add(side as u64);
            let line = Line::new(Box::new(ports.next().unwrap()), world.clock(), seed, stage.rates);
            lines.push(line.clone());
            let mut card = or_chosen(&stage.cards[side]);
            card.seed = card.seed.wrapping_add(seed);
            card.mac[5] = card.mac[5].wrapping_add(side as u8);
            let refusals = refusals[side].clone();
            Slot::plug(&world, stage.memory, seed, |memory| {
                Hca::new(card, Box::new(Refusing::new(Host(memory), refusals)), Box::new(line))
            })
        });
        let lines = <[Line; 2]>::try_from(lines).unwrap();
        let mut rooms = [Box::new(Room::new()), Box::new(Room::new())];
        let (result, lost, forgive) = {
            let [a, b] = &mut rooms;
            let ias = [stage.open(&slots[0], a, 0, None), stage.open(&slots[1], b, 1, None)];
            let mut ias = ias.map(|ia| ia.unwrap_or_else(|e| panic!("open: {e}")));
            let sides = [0, 1].map(|side| Side::make(&mut ias[side], &slots[side], self));
            let mut pair = Pair {
                world: Arc::clone(&world),
                slots: [&slots[0], &slots[1]],
                ias,
                stage: stage.clone(),
            };
            pair.await_links();
            let mut session = Session {
                pair,
                lines,
                refusals,
                sides,
                lost: [false; 2],
                forgive: false,
                tweak: self.tweak,
            };
            let result = act(&mut session);
            (result, session.lost, session.close())
        };
        for (side, slot) in slots.iter().enumerate() {
            let complaints = slot.hca().complaints().to_vec();
            assert!(
                forgive || complaints.is_empty(),
                "the model of side {side} complains: {complaints:#?}"
            );
            if !lost[side] {
                assert_eq!(slot.in_use(), 0, "side {side}: bytes of the arena not given back");
                assert_eq!(
                    slot.views().pages_out(),
                    0,
                    "side {side}: firmware pages not given back"
                );
            }
        }
        result
    }

    /// Connects the Endpoints of both sides, then runs `act`.
    pub fn connected<T>(&self, act: impl FnOnce(&mut Session<'_>) -> T) -> T {
        self.run(|session| {
            session.connect();
            act(session)
        })
    }
}

/// Byte `i` of the contents numbered `n`.
#[must_use]
pub fn pattern(n: u32, i: usize) -> u8 {
    let x = (i as u32 ^ n.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    (x >> 13) as u8
}

/// Contents numbered `n`.
#[must_use]
pub fn contents(n: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| pattern(n, i)).collect()
}

/// How a DTO ended, without what the test does not look at.
#[must_use]
pub fn ending(event: &Event) -> (u64, DtoStatus) {
    match event {
        Event::Dto(DtoEvent { cookie, status, .. }) | Event::RmrBind { cookie, status, .. } => {
            (*cookie, *status)
        }
        other => panic!("{other:?} is no completion"),
    }
}

impl<'s> Session<'s> {
    /// The time now.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.pair.now()
    }

    /// The address of a side.
    #[must_use]
    pub fn address(&self, side: usize) -> IpAddr {
        self.pair.stage.address(side)
    }

    /// Lets time pass, with both adapters driven.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            self.pair.turn();
        }
    }

    /// One more Endpoint on a side, completing where the first one does.
    pub fn endpoint(&mut self, side: usize) -> Ep {
        let own = &self.sides[side];
        let ia = &mut self.pair.ias[side];
        let mut attr = ia.ep_attr_default();
        (self.tweak)(&mut attr);
        ia.ep_create(Some(own.pz), Some(own.recv), Some(own.request), Some(own.conn), Some(&attr))
            .unwrap()
    }

    // ---- memory ----

    /// Fills a piece of a side's memory with the contents numbered `n`.
    pub fn fill(&mut self, side: usize, at: usize, len: usize, n: u32) {
        assert_eq!(self.sides[side].mem.copy_in(at, &contents(n, len)), len);
        self.fence(side);
    }

    /// Orders the side's reads after a peer's accesses that no completion reports.
    pub fn fence(&self, side: usize) {
        let slot = self.pair.slots[side];
        slot.fence(Fence::BeforeDoorbell);
        slot.fence(Fence::AfterOwnership);
    }

    /// A piece of a side's memory.
    #[must_use]
    pub fn look(&self, side: usize, at: usize, len: usize) -> Vec<u8> {
        self.fence(side);
        let mut bytes = vec![0; len];
        assert_eq!(self.sides[side].mem.copy_out(at, &mut bytes), len);
        bytes
    }

    /// All of a side's memory.
    #[must_use]
    pub fn all(&self, side: usize) -> Vec<u8> {
        self.look(side, 0, self.sides[side].mem.len())
    }

    /// Asserts the contents numbered `n`.
    #[track_caller]
    pub fn check(&self, side: usize, at: usize, len: usize, n: u32) {
        let bytes = self.look(side, at, len);
        if let Some(i) = (0..len).find(|&i| bytes[i] != pattern(n, i)) {
            panic!(
                "side {side}: byte {i} of {len} of contents {n} is {:#04x}, not {:#04x}",
                bytes[i],
                pattern(n, i)
            );
        }
    }

    /// A local segment.
    #[must_use]
    pub fn seg(&self, side: usize, at: usize, len: usize) -> LmrTriplet {
        seg(&self.sides[side].lmr, at, len)
    }

    /// The same bytes as a peer names them.
    #[must_use]
    pub fn far(&self, side: usize, at: usize, len: usize) -> RmrTriplet {
        far(&self.sides[side].lmr, at, len)
    }

    /// Another registration of all of a side's memory.
    pub fn register(&mut self, side: usize, rights: MemPriv) -> LmrParam {
        let own = &self.sides[side];
        self.pair.ias[side].lmr_create(own.pz, own.mem.region(), rights).unwrap()
    }

    // ---- posts ----

    /// Posts a receive on the side's first Endpoint.
    #[track_caller]
    pub fn recv(&mut self, side: usize, at: usize, len: usize, cookie: u64) {
        let seg = [self.seg(side, at, len)];
        let ep = self.sides[side].ep;
        self.pair.ias[side].ep_post_recv(ep, &seg, cookie, NONE).unwrap();
    }

    /// Posts a send.
    #[track_caller]
    pub fn send(&mut self, side: usize, at: usize, len: usize, cookie: u64) {
        let seg = [self.seg(side, at, len)];
        let ep = self.sides[side].ep;
        self.pair.ias[side].ep_post_send(ep, &seg, cookie, NONE).unwrap();
    }

    /// Posts an RDMA write to the same offset at the other side.
    #[track_caller]
    pub fn write(&mut self, side: usize, at: usize, len: usize, cookie: u64) {
        let to = self.far(1 - side, at, len);
        self.write_to(side, at, len, to, cookie);
    }

    /// Posts an RDMA write to any address.
    #[track_caller]
    pub fn write_to(&mut self, side: usize, at: usize, len: usize, to: RmrTriplet, cookie: u64) {
        let seg = [self.seg(side, at, len)];
        let ep = self.sides[side].ep;
        self.pair.ias[side].ep_post_rdma_write(ep, &seg, cookie, &to, NONE).unwrap();
    }

    /// Posts an RDMA read of the same offset at the other side.
    #[track_caller]
    pub fn read(&mut self, side: usize, at: usize, len: usize, cookie: u64) {
        let from = self.far(1 - side, at, len);
        self.read_from(side, at, len, from, cookie);
    }

    /// Posts an RDMA read of any address.
    #[track_caller]
    pub fn read_from(&mut self, side: usize, at: usize, len: usize, from: RmrTriplet, cookie: u64) {
        let seg = [self.seg(side, at, len)];
        let ep = self.sides[side].ep;
        self.pair.ias[side].ep_post_rdma_read(ep, &seg, cookie, &from, NONE).unwrap();
    }

    // ---- events ----

    /// The next event of an Event Dispatcher.
    #[track_caller]
    pub fn event(&mut self, side: usize, evd: Evd) -> Event {
        self.event_within(side, evd, LIMIT)
    }

    /// As [`Session::event`], with another limit.
    #[track_caller]
    pub fn event_within(&mut self, side: usize, evd: Evd, limit: Duration) -> Event {
        match self.pair.wait(side, evd, limit) {
            Some(event) => event,
            None => panic!("side {side}: no event within {limit:?} of model time"),
        }
    }

    /// The next completion of a request, which must be a success of that kind with that cookie; its
    /// length.
    #[track_caller]
    pub fn requested(&mut self, side: usize, operation: DtoOperation, cookie: u64) -> u32 {
        let evd = self.sides[side].request;
        self.succeeded(side, evd, operation, cookie)
    }

    /// The next completion of a receive, which must be a success with that cookie; its length.
    #[track_caller]
    pub fn received(&mut self, side: usize, cookie: u64) -> u32 {
        let evd = self.sides[side].recv;
        self.succeeded(side, evd, DtoOperation::Receive, cookie)
    }

    #[track_caller]
    fn succeeded(&mut self, side: usize, evd: Evd, operation: DtoOperation, cookie: u64) -> u32 {
        match self.event(side, evd) {
            Event::Dto(DtoEvent {
                status: DtoStatus::Success,
                len,
                operation: o,
                cookie: c,
                ..
            }) if (o, c) == (operation, cookie) => len,
            other => {
                panic!("side {side}: expected success of {operation:?} {cookie}, got {other:?}")
            }
        }
    }

    /// The next `count` completions of requests as cookie and status.
    #[track_caller]
    pub fn requests(&mut self, side: usize, count: usize) -> Vec<(u64, DtoStatus)> {
        let evd = self.sides[side].request;
        (0..count).map(|_| ending(&self.event(side, evd))).collect()
    }

    /// The next `count` completions of receives as cookie and status.
    #[track_caller]
    pub fn receives(&mut self, side: usize, count: usize) -> Vec<(u64, DtoStatus)> {
        let evd = self.sides[side].recv;
        (0..count).map(|_| ending(&self.event(side, evd))).collect()
    }

    /// The next connection event of a side.
    #[track_caller]
    pub fn connection(&mut self, side: usize) -> Event {
        let evd = self.sides[side].conn;
        self.event(side, evd)
    }

    /// Asserts that no event comes for a while, on any Event Dispatcher of either side.
    #[track_caller]
    pub fn expect_no_event(&mut self, time: Duration) {
        self.pass(time);
        for side in 0..2 {
            let own = &self.sides[side];
            let all = [own.recv, own.request, own.conn, own.cr, self.pair.ias[side].async_evd()];
            for evd in all {
                if let Ok(event) = self.pair.ias[side].evd_dequeue(evd) {
                    panic!("side {side}: {event:?} came, none was expected");
                }
            }
        }
    }

    /// State of a side's first Endpoint.
    #[must_use]
    pub fn state(&self, side: usize) -> EpState {
        self.pair.ias[side].ep_query(self.sides[side].ep).unwrap().state
    }

    // ---- connections ----

    /// Side 0 asks for a connection to side 1.
    #[track_caller]
    pub fn ask(&mut self, ep: Ep, private: &[u8], timeout: Duration) {
        let (now, to) = (self.now(), self.address(1));
        self.pair.ias[0]
            .ep_connect(now, ep, to, QUALIFIER, timeout, private, Qos::BestEffort)
            .unwrap();
    }

    /// The request at side 1.
    #[track_caller]
    pub fn request(&mut self) -> dat_core::Cr {
        let evd = self.sides[1].cr;
        match self.event(1, evd) {
            Event::ConnectionRequest { cr, conn_qual: QUALIFIER, psp }
                if Some(psp) == self.sides[1].psp =>
            {
                cr
            }
            other => panic!("expected a connection request, got {other:?}"),
        }
    }

    /// Connects the first Endpoints.
    #[track_caller]
    pub fn connect(&mut self) {
        let (a, b) = (self.sides[0].ep, self.sides[1].ep);
        self.connect_eps(a, b);
    }

    /// Connects an Endpoint of side 0 with one of side 1.
    #[track_caller]
    pub fn connect_eps(&mut self, a: Ep, b: Ep) {
        self.ask(a, b"hello", LIMIT);
        let cr = self.request();
        let now = self.now();
        self.pair.ias[1].cr_accept(now, cr, Some(b), b"welcome").unwrap();
        assert_eq!(self.connection(0), Event::Established(a));
        assert_eq!(self.connection(1), Event::Established(b));
    }

    /// Ends the connection of a side's first Endpoint.
    #[track_caller]
    pub fn disconnect(&mut self, side: usize, flag: CloseFlag) {
        let now = self.now();
        self.pair.ias[side].ep_disconnect(now, self.sides[side].ep, flag).unwrap();
    }

    /// Both sides see the end of the connection, once, and are disconnected then.
    #[track_caller]
    pub fn ended(&mut self) -> [Event; 2] {
        let events = [0, 1].map(|side| self.connection(side));
        for (side, event) in events.iter().enumerate() {
            let ep = self.sides[side].ep;
            assert!(
                matches!(event, Event::Broken(e) | Event::Disconnected(e) if *e == ep),
                "side {side}: expected the end of the connection, got {event:?}"
            );
            assert_eq!(self.state(side), EpState::Disconnected);
        }
        events
    }

    /// A round of traffic both ways with the first Endpoints: send, write and read with contents
    /// checked.
    #[track_caller]
    pub fn traffic(&mut self, n: u32) {
        for side in [0, 1] {
            let (cookie, n) = (u64::from(n) * 2 + side as u64, n * 8 + 4 * side as u32);
            self.recv(1 - side, 0x8000, 3000, cookie);
            // The receive is there long before the peer sends.
            self.fence(1 - side);
            self.fill(side, 0x9000, 2500, n);
            self.send(side, 0x9000, 2500, cookie);
            self.requested(side, DtoOperation::Send, cookie);
            assert_eq!(self.received(1 - side, cookie), 2500);
            self.check(1 - side, 0x8000, 2500, n);
            self.fill(side, 0xa000, 700, n + 1);
            self.write(side, 0xa000, 700, cookie);
            self.requested(side, DtoOperation::RdmaWrite, cookie);
            self.check(1 - side, 0xa000, 700, n + 1);
            self.fill(1 - side, 0xb000, 900, n + 2);
            self.read(side, 0xb000, 900, cookie);
            assert_eq!(self.requested(side, DtoOperation::RdmaRead, cookie), 900);
            self.check(side, 0xb000, 900, n + 2);
        }
    }

    /// Takes everything down; whether the models may complain.
    fn close(mut self) -> bool {
        for side in 0..2 {
            let now = self.now();
            let closed = self.pair.ias[side].close(now, CloseFlag::Abrupt);
            assert!(closed.is_ok() || self.lost[side], "side {side}: close: {closed:?}");
        }
        for side in self.sides {
            side.mem.release();
        }
        self.forgive
    }
}

/// A local segment of an LMR.
#[must_use]
pub fn seg(lmr: &LmrParam, at: usize, len: usize) -> LmrTriplet {
    lmr.local(at as u64, len as u32)
}

/// The same bytes as a peer names them.
#[must_use]
pub fn far(lmr: &LmrParam, at: usize, len: usize) -> RmrTriplet {
    lmr.remote(at as u64, len as u32)
}
