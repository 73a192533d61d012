//! A device leaves the bus at a random time while two adapters connect, move data, register memory
//! and disconnect: the program has one report of it, everything outstanding ends, no call hangs, and after a
//! reset the same function serves the next round.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dat_core::{
    AsyncEvent, CloseFlag, DtoEvent, DtoStatus, Ep, EvdFlags, Event, FaultKind, Instant, LmrParam,
    MemPriv, PspFlag, Qos,
};
use hca_mlx5::dma::Buffer;

use crate::bringup::light;
use crate::host::inproc::{Slot, enable};
use crate::laws::rng::Rng;
use crate::pair::{Pair, Room, Stage};
use crate::session::{NONE, QUALIFIER, far, seg};

/// From when the driver notices the loss until the program has every event of it.
pub const REPORTED: Duration = Duration::from_millis(100);
/// The driver notices within four looks at the health registers.
const NOTICED: Duration = Duration::from_secs(4);
/// A close waits for no device that is lost.
const CLOSED: Duration = Duration::from_secs(1);
/// Everything else ends sooner, the attempts of a peer without an answer too.
const LIMIT: Duration = Duration::from_secs(100);
const LEN: usize = 0x4000;
const ROUNDS: u32 = 8;
/// How often each side posts one of each kind in a round.
const DEPTH: usize = 4;

/// What the points were like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// How many.
    pub points: u64,
    /// Of these, with requests or receives that the lost device had not completed.
    pub busy: u64,
    /// Those.
    pub ended: u64,
    /// The longest time from the loss until the driver noticed.
    pub noticed: Duration,
    /// The longest time from there until the program had every event.
    pub reported: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} devices left the bus, {} with work outstanding: {} requests ended without success; noticed after \
             {:?} at most, reported {:?} later at most",
            self.points, self.busy, self.ended, self.noticed, self.reported
        )
    }
}

/// Lets a device leave at so many points.
///
/// # Panics
/// If anything is not as it should be.
#[must_use]
pub fn run(points: u64, seed: u64) -> Report {
    let stage = Stage { cards: [light(), light()], seed, ..Stage::default() };
    let (_, slots) = stage.plug(&mut |_, wire| wire);
    let mut rng = Rng::new(seed);
    let mut report = Report::default();
    // One round to the end, to know how long its parts take.
    let [traffic, over, end] = point(&stage, &slots, None, &mut report);
    for _ in 0..points {
        // Most of them while data moves.
        let within = if rng.percent(80) { traffic..over } else { Duration::ZERO..end };
        let span = (within.end - within.start).as_nanos() as u64;
        let at = within.start + Duration::from_nanos(rng.next() % span.max(1));
        point(&stage, &slots, Some((rng.below(2), at)), &mut report);
    }
    report
}

/// One side's objects.
struct Side<'s> {
    ep: Ep,
    evd: dat_core::Evd,
    pz: dat_core::Pz,
    lmr: LmrParam,
    memory: Buffer<'s, Slot>,
    /// Cookies of what is posted.
    outstanding: BTreeSet<u64>,
    /// It has asked for a connection, or accepted one; that ended.
    begun: bool,
    ended: bool,
    up: bool,
    /// The loss of the device was reported.
    lost: bool,
    /// Requests and receives that ended without success.
    failed: u64,
}

/// A round; how long it took until data moved, until all had moved, and in all. The device of that
/// side leaves at that time after the begin.
fn point(
    stage: &Stage,
    slots: &[Slot; 2],
    leaves: Option<(usize, Duration)>,
    report: &mut Report,
) -> [Duration; 3] {
    let world = slots[0].world();
    let mut rooms = [Box::new(Room::new()), Box::new(Room::new())];
    let [a, b] = &mut rooms;
    let ias = [stage.open(&slots[0], a, 0, None), stage.open(&slots[1], b, 1, None)];
    let ias = ias.map(|ia| ia.unwrap_or_else(|error| panic!("open: {error}")));
    let mut pair =
        Pair { world: Arc::clone(world), slots: [&slots[0], &slots[1]], ias, stage: stage.clone() };
    pair.await_links();
    let sides = [0, 1].map(|side| make(&mut pair, side));
    let start = pair.now();
    let mut run = Run { pair, sides, cookie: 0, noticed: [None; 2], traffic: [start; 2] };
    if let Some((side, at)) = leaves {
        slots[side].leave_at((start + at).as_nanos());
    }
    let done = run.program();
    let [traffic, over] = run.traffic;
    let times = [traffic, over, run.pair.now()].map(|time| time.since(start));
    match leaves {
        None => assert_eq!(done, Some(()), "nothing was lost, and it did not work"),
        Some((side, at)) => run.lost(side, start + at, report),
    }
    run.close(leaves.map(|(side, _)| side));
    for (side, slot) in slots.iter().enumerate() {
        if leaves.is_some_and(|(lost, _)| lost == side) {
            // What a device held that does not answer is the host's again after a reset.
            slot.hca().flr();
            slot.reclaim();
            enable(&mut slot.hca());
        }
        assert_eq!((slot.in_use(), slot.views().pages_out()), (0, 0), "side {side}: memory");
    }
    times
}

fn make<'s>(pair: &mut Pair<'s>, side: usize) -> Side<'s> {
    let memory = Buffer::zeroed(pair.slots[side], 4 * LEN).unwrap();
    let ia = &mut pair.ias[side];
    let pz = ia.pz_create().unwrap();
    let evd = ia.evd_create(64, EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR).unwrap();
    ia.psp_create(QUALIFIER, evd, PspFlag::Consumer).unwrap();
    let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None).unwrap();
    let lmr = ia.lmr_create(pz, memory.region(), MemPriv::ALL).unwrap();
    Side {
        ep,
        evd,
        pz,
        lmr,
        memory,
        outstanding: BTreeSet::new(),
        begun: false,
        ended: false,
        up: false,
        lost: false,
        failed: 0,
    }
}

struct Run<'s> {
    pair: Pair<'s>,
    sides: [Side<'s>; 2],
    cookie: u64,
    /// When the driver of a side first knew that its device is lost.
    noticed: [Option<Instant>; 2],
    /// When the first data moved, and when all had.
    traffic: [Instant; 2],
}

impl Run<'_> {
    /// Connects, moves data both ways, registers memory, disconnects. Nothing, if a call fails or
    /// the connection ends before.
    fn program(&mut self) -> Option<()> {
        let (now, to) = (self.pair.now(), self.pair.stage.address(1));
        let ep = self.sides[0].ep;
        let timeout = Duration::from_secs(10);
        let ia = &mut self.pair.ias[0];
        let asked = ia.ep_connect(now, ep, to, QUALIFIER, timeout, b"", Qos::BestEffort);
        self.sides[0].begun = self.made(0, asked).is_some();
        self.until(|run| run.sides.iter().all(|side| side.up))?;
        self.traffic[0] = self.pair.now();
        for round in 0..ROUNDS {
            for side in [0, 1].repeat(DEPTH) {
                self.post(side)?;
            }
            for side in 0..2 {
                if round % 4 != 3 {
                    continue;
                }
                let own = &self.sides[side];
                let (pz, region) = (own.pz, own.memory.region());
                let extra = self.pair.ias[side].lmr_create(pz, region, MemPriv::ALL);
                let extra = self.made(side, extra)?;
                let freed = self.pair.ias[side].lmr_free(extra.lmr);
                self.made(side, freed)?;
            }
            self.until(|run| run.sides.iter().all(|side| side.outstanding.is_empty()))?;
        }
        let now = self.pair.now();
        self.traffic[1] = now;
        let left = self.pair.ias[0].ep_disconnect(now, ep, CloseFlag::Graceful);
        self.made(0, left)?;
        self.until(|run| run.sides.iter().all(|side| side.ended))
    }

    /// Posts one of each kind, unless the connection has ended.
    fn post(&mut self, side: usize) -> Option<()> {
        if self.sides[side].ended {
            return None;
        }
        let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
        let (ep, cookie) = (own.ep, self.cookie);
        let at = |n: usize| [seg(&own.lmr, n * LEN, LEN)];
        let there = |n: usize| far(&peer.lmr, n * LEN, LEN);
        let ia = &mut self.pair.ias[side];
        let posted = [
            ia.ep_post_recv(ep, &at(0), cookie, NONE),
            ia.ep_post_rdma_write(ep, &at(1), cookie + 1, &there(2), NONE),
            ia.ep_post_rdma_read(ep, &at(3), cookie + 2, &there(1), NONE),
            ia.ep_post_send(ep, &at(1), cookie + 3, NONE),
        ];
        self.cookie += 4;
        let good = posted.iter().zip(cookie..).filter(|(posted, _)| posted.is_ok());
        self.sides[side].outstanding.extend(good.map(|(_, cookie)| cookie));
        posted.iter().all(Result::is_ok).then_some(())
    }

    /// The result of a call; notes if it says that the device is lost.
    fn made<T>(&mut self, side: usize, result: Result<T, dat_core::Error>) -> Option<T> {
        if let Err(error) = &result {
            if error.fault().is_some_and(|fault| fault.kind == FaultKind::Gone) {
                self.notice(side);
            }
        }
        result.ok()
    }

    fn notice(&mut self, side: usize) {
        let now = self.pair.now();
        self.noticed[side].get_or_insert(now);
    }

    /// Takes events until all is done; nothing if a device is lost before.
    fn until(&mut self, mut done: impl FnMut(&Self) -> bool) -> Option<()> {
        let end = self.pair.now() + LIMIT;
        let mut leap = 500;
        loop {
            self.events();
            if done(self) {
                return Some(());
            }
            if self.pair.ias.iter().any(|ia| ia.lost().is_some()) {
                return None;
            }
            assert!(self.pair.now() < end, "a wait hangs: {:?}", self.outstanding());
            self.pair.turn_by(leap);
            leap = (leap * 2).min(1_000_000);
        }
    }

    fn outstanding(&self) -> [&BTreeSet<u64>; 2] {
        self.sides.each_ref().map(|side| &side.outstanding)
    }

    fn events(&mut self) {
        for side in 0..2 {
            if self.pair.ias[side].lost().is_some() {
                self.notice(side);
            }
            for evd in [self.sides[side].evd, self.pair.ias[side].async_evd()] {
                while let Ok(event) = self.pair.ias[side].evd_dequeue(evd) {
                    self.take(side, &event);
                }
            }
        }
    }

    /// Requests end once, a connection ends once, and a device is lost once.
    fn take(&mut self, side: usize, event: &Event) {
        let own = &mut self.sides[side];
        match event {
            Event::Dto(DtoEvent { cookie, ep, status, .. }) => {
                assert_eq!(*ep, own.ep);
                own.failed += u64::from(*status != DtoStatus::Success);
                assert!(own.outstanding.remove(cookie), "side {side}: {event:?}");
                assert!(!own.ended, "side {side}: {event:?} comes after the connection's end");
            }
            Event::ConnectionRequest { cr, .. } => {
                let (now, ep) = (self.pair.now(), own.ep);
                let accepted = self.pair.ias[side].cr_accept(now, *cr, Some(ep), b"");
                self.sides[side].begun = self.made(side, accepted).is_some();
            }
            Event::Established(_) => own.up = true,
            Event::Disconnected(_)
            | Event::Broken(_)
            | Event::TimedOut(_)
            | Event::Unreachable(_)
            | Event::NonPeerRejected(_)
            | Event::AcceptCompletionError(_) => {
                assert!(own.begun && !own.ended, "side {side}: {event:?} ends nothing");
                (own.ended, own.up) = (true, false);
            }
            Event::Async(AsyncEvent::IaCatastrophic) => {
                assert!(!own.lost, "side {side}: lost twice");
                own.lost = true;
            }
            other => panic!("side {side}: {other:?}"),
        }
    }

    /// Everything of the loss is reported, and the peer ends its own.
    fn lost(&mut self, side: usize, left: Instant, report: &mut Report) {
        report.points += 1;
        let over = |run: &Self| {
            let own = &run.sides[side];
            own.lost && own.outstanding.is_empty() && own.begun == own.ended
        };
        while !over(self) {
            let now = self.pair.now();
            let since = self.noticed[side].map_or(Duration::ZERO, |noticed| now.since(noticed));
            assert!(since <= REPORTED, "side {side}: {:?} not reported", self.outstanding());
            assert!(now.since(left) <= NOTICED + REPORTED, "side {side}: the loss is not noticed");
            self.pair.turn();
            self.events();
        }
        let noticed = self.noticed[side].expect("it is reported");
        report.noticed = report.noticed.max(noticed.since(left));
        report.reported = report.reported.max(self.pair.now().since(noticed));
        let failed = self.sides[side].failed;
        report.busy += u64::from(failed != 0);
        report.ended += failed;
        // Calls return at once, with the reason.
        let before = self.pair.now();
        let refused = self.pair.ias[side].pz_create().map(|_| ()).unwrap_err();
        assert_eq!(refused.fault().map(|fault| fault.kind), Some(FaultKind::Gone), "{refused}");
        assert_eq!(self.pair.now(), before, "a call waits for a lost device");
        // The other adapter goes on: it ends what it has with the lost one.
        let peer = 1 - side;
        let (now, ep) = (self.pair.now(), self.sides[peer].ep);
        if self.sides[peer].begun && !self.sides[peer].ended {
            let _ = self.pair.ias[peer].ep_disconnect(now, ep, CloseFlag::Abrupt);
        }
        let end = self.pair.now() + LIMIT;
        while !self.sides[peer].outstanding.is_empty()
            || self.sides[peer].begun != self.sides[peer].ended
        {
            assert!(self.pair.now() < end, "side {peer}, the peer: {:?}", self.outstanding());
            self.pair.turn();
            self.events();
        }
        assert!(self.pair.ias[peer].lost().is_none(), "the peer is lost, too");
    }

    fn close(mut self, lost: Option<usize>) {
        for side in 0..2 {
            let now = self.pair.now();
            let closed = self.pair.ias[side].close(now, CloseFlag::Abrupt);
            assert!(closed.is_ok() || lost == Some(side), "side {side}: {closed:?}");
            assert!(self.pair.now().since(now) <= CLOSED || lost != Some(side), "close waits");
        }
        drop(self.pair);
        for side in self.sides {
            side.memory.release();
        }
    }
}
