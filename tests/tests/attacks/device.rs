//! A device that writes what it likes into the memory that it may write, and changes it between two
//! loads of the driver's: completions, events, command outputs, received datagrams and frames.
//!
//! The driver must not panic, must not store to memory that nobody has, and must return from every
//! call: after a bounded number of loads, and of waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as Real};

use dat_core::provider::Provider;
use dat_core::{CloseFlag, DtoEvent, EpState, Event, IbDtoEvent, Qos};
use dat_tests::bringup::{Driver, Rig, journey, light, net, patience};
use dat_tests::host::views::Liar;
use dat_tests::host::watched::Watched;
use dat_tests::session::{LIMIT, NONE, QUALIFIER, Session, Setup};
use mlx5_model::Config as Card;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// More loads than this in one call mean that it does not end.
const LOADS: u64 = 3_000_000;
/// Real time of each of the tests that try at random.
const SHARE: Duration = Duration::from_secs(3);

/// Counts the loads of the call that is made now.
#[derive(Clone, Default)]
struct Meter(Arc<AtomicU64>);

impl Meter {
    fn load(&self) {
        let loads = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(loads < LOADS, "a call does not end");
    }

    /// Loads since the last call of this.
    fn read(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// Something else than what is there.
fn garble(rng: &mut SmallRng, bytes: &mut [u8]) {
    let len = bytes.len();
    match rng.random_range(0..7) {
        0 => bytes[rng.random_range(0..len)] ^= 1 << rng.random_range(0..8),
        1 => rng.fill(bytes),
        2 => bytes.fill(0),
        3 => bytes.fill(0xff),
        4 => bytes[rng.random_range(0..len)] = rng.random(),
        // Whose it is, if it is the last word of an entry.
        5 => bytes[len - 1] ^= 1,
        _ => {
            let number = 1_u32 << rng.random_range(0..32) >> rng.random_range(0..2);
            bytes[len - len.min(4)..].copy_from_slice(&number.to_be_bytes()[..len.min(4)]);
        }
    }
}

/// A device that garbles one load in `one_in`.
fn erratic(seed: u64, one_in: u32, meter: &Meter) -> Liar {
    let (mut rng, meter) = (SmallRng::seed_from_u64(seed), meter.clone());
    Box::new(move |_, bytes| {
        meter.load();
        if !bytes.is_empty() && rng.random_ratio(1, one_in) {
            garble(&mut rng, bytes);
        }
    })
}

/// A device whose rings are never empty: each entry is new whenever it is looked at again, and of
/// the kind that `last` says, given the place of its last word.
fn eager(meter: &Meter, mut last: impl FnMut(usize, u8) -> Option<u8> + Send + 'static) -> Liar {
    let mut laps: BTreeMap<usize, u8> = BTreeMap::new();
    let meter = meter.clone();
    Box::new(move |offset, bytes| {
        meter.load();
        if let ([_, _, _, owner], 0x3c) = (bytes, offset % 64) {
            if let Some(kind) = last(offset, *owner) {
                let lap = laps.entry(offset).or_default();
                *owner = kind & !1 | *lap;
                *lap ^= 1;
            }
        }
    })
}

#[test]
fn what_it_writes_may_change_between_two_loads_while_it_is_brought_up_and_down() {
    let start = Real::now();
    let mut ends = BTreeSet::new();
    for seed in 0.. {
        eprintln!("seed {seed}");
        let rig = Rig::new(Card { seed, ..light() });
        let meter = Meter::default();
        let one_in = [2, 10, 100, 1000][seed as usize % 4];
        rig.slot.views().lie(Some(erratic(seed, one_in, &meter)));
        let (before, host) = (rig.now(), Watched::new(&rig.slot));
        let end = journey(&host, &patience());
        ends.insert(end.map_or_else(|(step, _)| step.to_string(), |()| "done".into()));
        assert!(rig.now() - before < Duration::from_secs(60), "{:?}", rig.now() - before);
        assert_eq!(rig.slot.views().strays(), 0, "the driver stored where nobody has memory");
        if start.elapsed() > SHARE {
            break;
        }
    }
    assert!(ends.len() > 3, "all ended at {ends:?}");
}

/// Entries of all kinds in all rings of the driver's own, without end.
#[test]
fn rings_that_are_never_empty_hold_up_no_call() {
    for kind in 0..=0xff_u8 {
        let rig = Rig::light();
        let mut driver = Driver::open(&rig.slot, &patience()).unwrap();
        driver.set_net(&net(), rig.now()).unwrap();
        let meter = Meter::default();
        rig.slot.views().lie(Some(eager(&meter, move |_, _| Some(kind))));
        for _ in 0..6 {
            let before = rig.now();
            driver.service(rig.now());
            let mut datagrams = 0;
            while driver.mad_recv().is_some() {
                datagrams += 1;
            }
            while driver.notice().is_some() {}
            assert!(meter.read() < 300_000 && datagrams <= 512, "kind {kind:#x}");
            assert!(rig.now() - before < Duration::from_secs(10), "kind {kind:#x}");
            rig.pass(Duration::from_millis(20));
        }
        rig.slot.views().lie(None);
        let _ = driver.close();
        assert_eq!(rig.slot.views().strays(), 0);
    }
}

/// Requests of a side that are not complete, by cookie.
#[derive(Default)]
struct Open(BTreeSet<u64>);

impl Open {
    fn take(&mut self, event: &Event) {
        if let Event::Dto(DtoEvent { cookie, .. }) | Event::IbDto(IbDtoEvent { cookie, .. }) = event
        {
            assert!(self.0.remove(cookie), "{event:?} is not outstanding");
        }
    }
}

/// Takes all events of a side, as many as a call gives.
fn events(session: &mut Session<'_>, side: usize, open: &mut Open) {
    let own = &session.sides[side];
    for evd in [own.recv, own.request, own.conn, own.cr, session.pair.ias[side].async_evd()] {
        for _ in 0..1000 {
            let Ok(event) = session.pair.ias[side].evd_dequeue(evd) else { break };
            open.take(&event);
        }
        let _ = session.pair.ias[side].evd_arm(evd, false);
    }
}

/// Posts one of each kind, some with a window.
fn posts(session: &mut Session<'_>, side: usize, cookie: &mut u64, open: &mut Open) {
    let ep = session.sides[side].ep;
    let own = [session.seg(side, 0, 300)];
    let room = [session.seg(side, 0x8000, 400)];
    let there = session.far(1 - side, 0x4000, 300);
    let ia = &mut session.pair.ias[side];
    let c = *cookie;
    let done = [
        ia.ep_post_recv(ep, &room, c, NONE),
        ia.ep_post_send(ep, &own, c + 1, NONE),
        ia.ep_post_rdma_write(ep, &own, c + 2, &there, NONE),
        ia.ep_post_rdma_read(ep, &own, c + 3, &there, NONE),
    ];
    *cookie += 4;
    open.0.extend(done.iter().zip(c..).filter(|(done, _)| done.is_ok()).map(|(_, c)| c));
}

/// Two connected sides, of which the first has a device that lies: everything that a program does
/// comes to an end, each request comes back once, and at worst the adapter reports a fault.
fn lied_to(session: &mut Session<'_>, meter: &Meter, mut lie: impl FnMut() -> Liar) {
    session.forgive = true;
    let mut open = [Open::default(), Open::default()];
    let mut cookie = 0;
    for _ in 0..12 {
        session.pair.slots[0].views().lie(Some(lie()));
        let ep = session.sides[0].ep;
        for (side, open) in open.iter_mut().enumerate() {
            posts(session, side, &mut cookie, open);
        }
        for _ in 0..8 {
            let before = session.now();
            let now = session.now();
            let _ = session.pair.ias[0].advance(now);
            meter.read();
            // One command that is never answered, or an answer to page requests.
            assert!(session.now() - before < Duration::from_secs(700), "advance");
            events(session, 0, &mut open[0]);
            meter.read();
            session.pair.slots[0].views().lie(None);
            session.pair.turn_by(30_000);
            events(session, 1, &mut open[1]);
            session.pair.slots[0].views().lie(Some(lie()));
        }
        if session.state(0) == EpState::Disconnected {
            // A reset drops what was not dequeued, and of that a device that lies hides some.
            session.pair.slots[0].views().lie(None);
            let now = session.now();
            let _ = session.pair.ias[0].advance(now);
            events(session, 0, &mut open[0]);
            let _ = session.pair.ias[0].ep_reset(ep);
            let (now, to) = (session.now(), session.address(1));
            let ia = &mut session.pair.ias[0];
            let _ = ia.ep_connect(now, ep, to, QUALIFIER, LIMIT, b"", Qos::BestEffort);
        }
        let own = &session.sides[0];
        let (pz, memory) = (own.pz, own.mem.region());
        let rights = dat_core::MemPriv::LOCAL_READ;
        if let Ok(made) = session.pair.ias[0].lmr_create(pz, memory, rights) {
            let _ = session.pair.ias[0].lmr_free(made.lmr);
        }
        meter.read();
    }
    session.pair.slots[0].views().lie(None);
    for side in 0..2 {
        let (ep, now) = (session.sides[side].ep, session.now());
        let _ = session.pair.ias[side].ep_disconnect(now, ep, CloseFlag::Abrupt);
    }
    session.pass(Duration::from_secs(1));
    for (side, open) in open.iter_mut().enumerate() {
        events(session, side, open);
    }
    let lost = session.pair.ias[0].lost();
    assert!(open[0].0.is_empty(), "{:?} never came back; {lost:?}", open[0].0);
    assert!(
        lost.is_some() || !matches!(session.state(0), EpState::Connected),
        "{:?}",
        session.state(0)
    );
    assert_eq!(session.pair.slots[0].views().strays(), 0);
    session.lost = [true; 2];
}

#[test]
fn a_device_that_lies_at_random_under_traffic() {
    let start = Real::now();
    for seed in 0.. {
        eprintln!("seed {seed}");
        let meter = Meter::default();
        Setup::seed(seed).connected(|session| {
            let mut next = seed << 32;
            let one_in = [3, 20, 200][seed as usize % 3];
            lied_to(session, &meter, || {
                next += 1;
                erratic(next, one_in, &meter)
            });
        });
        if start.elapsed() > SHARE {
            break;
        }
    }
}

#[test]
fn rings_that_are_never_empty_under_traffic() {
    for kind in [0x00, 0x10, 0x20, 0x24, 0x30, 0x40, 0x50, 0x90, 0xd0, 0xe0] {
        let meter = Meter::default();
        Setup::default().connected(|session| {
            lied_to(session, &meter, || eager(&meter, move |_, _| Some(kind)));
        });
    }
}
