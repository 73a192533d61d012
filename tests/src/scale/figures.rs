//! Figures that are no call's: commands, bytes, and times of many calls of one kind.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use dat_core::provider::Region;
use dat_core::{CloseFlag, EvdFlags, MemPriv, Storage};
use hca_mlx5::Mlx5;
use hca_mlx5::cmd::dump::{Direction, Dump, Observer};
use mlx5_model::wire::Wire as _;

use super::crowd::{Crowd, Driver, Host, attr};
use super::meter::Meter;
use crate::attack::{EVIL, arp, station};
use crate::bench::host::{LENT_PAGES, LENT_PAGES_LEN};

/// DTOs of one direction of the Endpoint whose bytes are counted: room for as many is needed.
pub const DTOS: u16 = 128;

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// What was measured.
    pub value: f64,
    /// What it shall be at most.
    pub goal: f64,
    /// What it may be for now, as long as the goal is not met; 0 if it is, or is only reported.
    pub present: f64,
}

const fn figure(name: &'static str, value: f64, goal: f64, present: f64) -> Figure {
    Figure { name, value, goal, present }
}

/// Counts commands.
#[derive(Debug, Default)]
pub struct Commands {
    sent: AtomicU64,
    open: AtomicU64,
    most: AtomicU64,
}

impl Observer for Commands {
    fn command(&self, dump: &Dump<'_>) {
        if dump.direction == Direction::Output {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(open, Ordering::Relaxed);
    }
}

/// All of them, on side 0 of a crowd whose commands go to `commands`.
#[must_use]
pub fn all(crowd: &mut Crowd, commands: &Commands) -> Vec<Figure> {
    let mut figures = reconnects(crowd, commands);
    figures.extend(bytes(crowd));
    figures.extend(registration(crowd, commands));
    figures.push(neighbours(crowd));
    figures
}

/// Commands of connections made and ended.
fn reconnects(crowd: &mut Crowd, commands: &Commands) -> Vec<Figure> {
    const TIMES: usize = 32;
    let eps = [0, 1].map(|side| crowd.make(side, TIMES));
    commands.most.store(0, Ordering::Relaxed);
    let before = commands.sent.load(Ordering::Relaxed);
    crowd.connect(&eps[0], &eps[1]);
    let now = crowd.now();
    for &ep in &eps[0] {
        crowd.ias[0].ep_disconnect(now, ep, CloseFlag::Abrupt).unwrap();
    }
    for side in [0, 1] {
        let conn = crowd.of[side].conn;
        for _ in 0..TIMES {
            crowd.wait(side, conn);
        }
        for &ep in &eps[side] {
            crowd.ias[side].ep_reset(ep).unwrap();
        }
    }
    let sent = commands.sent.load(Ordering::Relaxed) - before;
    let most = commands.most.load(Ordering::Relaxed);
    crowd.connect(&eps[0], &eps[1]);
    let now = crowd.now();
    let before = commands.sent.load(Ordering::Relaxed);
    for (side, eps) in eps.into_iter().enumerate() {
        for ep in eps {
            crowd.ias[side].ep_free(now, ep).unwrap();
        }
    }
    let freed = commands.sent.load(Ordering::Relaxed) - before;
    vec![
        figure("firmware commands of a reconnect, a side", sent as f64 / TIMES as f64, 4.0, 0.0),
        figure(
            "firmware commands to free a connected Endpoint",
            freed as f64 / TIMES as f64,
            2.0,
            0.0,
        ),
        figure("commands in flight, at most, of 32 connections at once", most as f64, 8.0, 0.0),
    ]
}

/// Bytes of an Endpoint.
fn bytes(crowd: &mut Crowd) -> Vec<Figure> {
    type Table<const N: usize> = Mlx5<'static, Host, N>;
    let entry = (size_of::<Table<128>>() - size_of::<Table<64>>()) / 64;
    let state = Storage::<Driver, 1, 1, 1, { DTOS as usize }>::ENDPOINT_BYTES + entry;
    let with_rings = [EvdFlags::DTO, EvdFlags::DTO | EvdFlags::RMR_BIND].map(|flags| {
        let (ia, of) = (&mut crowd.ias[0], &crowd.of[0]);
        let mut wanted = attr(ia);
        (wanted.max_request_dtos, wanted.max_recv_dtos) = (DTOS, DTOS);
        let dto = ia.evd_create(1024, flags).unwrap();
        let evds = (Some(dto), Some(dto), Some(of.conn));
        let before = crowd.hosts[0].taken();
        let ep = ia.ep_create(Some(of.pz), evds.0, evds.1, evds.2, Some(&wanted)).unwrap();
        let rings = crowd.hosts[0].taken() - before;
        let now = crowd.now();
        crowd.ias[0].ep_free(now, ep).unwrap();
        crowd.ias[0].evd_free(dto).unwrap();
        (state + rings) as f64
    });
    let [plain, binds] = with_rings;
    vec![
        figure("bytes of state of an Endpoint", state as f64, 3584.0, 4800.0),
        figure("the same with its rings, 128 + 128 DTOs, no binds", plain, 30_720.0, 0.0),
        figure("the same with its rings, 128 + 128 DTOs and binds", binds, 30_720.0, 45_824.0),
    ]
}

/// A gibibyte of which only the last 12 bits of both addresses agree, in one piece for the device
/// and in single pages.
fn registration(crowd: &mut Crowd, commands: &Commands) -> Vec<Figure> {
    let lent = Region { addr: LENT_PAGES, len: LENT_PAGES_LEN };
    let scattered = crowd.hosts[0].scattered();
    let (ia, of) = (&mut crowd.ias[0], &crowd.of[0]);
    let mut figures = Vec::new();
    // Of scattered pages each is asked for twice: 262,144 of them.
    for (region, time, goal, count) in [
        (lent, "1 GiB of ordinary pages registered, us", 100.0, "its commands"),
        (scattered, "1 GiB of scattered pages registered, us", 2000.0, "its commands, scattered"),
    ] {
        let mut meter = Meter::default();
        let mut sent = 0;
        for _ in 0..5 {
            let before = commands.sent.load(Ordering::Relaxed);
            let made =
                meter.run("register", || ia.lmr_create(of.pz, region, MemPriv::ALL)).unwrap();
            sent = commands.sent.load(Ordering::Relaxed) - before;
            ia.lmr_free(made.lmr).unwrap();
        }
        let spans = meter.ran.iter().map(|&(_, span)| span);
        let best = spans.fold(f64::INFINITY, f64::min) / 1000.0;
        // A time is no gate.
        figures.push(figure(time, best, goal, f64::INFINITY));
        figures.push(figure(count, sent as f64, 4.0, 0.0));
    }
    figures
}

/// ARP requests for neighbours that are known, of 1,000 that are asked for twice.
fn neighbours(crowd: &mut Crowd) -> Figure {
    const COUNT: u16 = 1000;
    let lap = |crowd: &mut Crowd| {
        let mut asked = 0;
        for number in 0..COUNT {
            let [high, low] = number.to_be_bytes();
            let addr = Ipv4Addr::new(192, 168, 32 + high, low);
            for _ in 0..100 {
                let now = crowd.now();
                if let Poll::Ready(found) = crowd.ias[0].ud_address(now, addr.into(), 1, 1) {
                    found.unwrap();
                    break;
                }
                crowd.turn();
                while let Some(frame) = crowd.other.recv() {
                    asked += u64::from(answer(crowd, &frame));
                }
            }
        }
        asked
    };
    let first = lap(crowd);
    assert!(first >= u64::from(COUNT), "{first} of {COUNT} neighbours were asked for");
    figure("repeated ARP requests for 1,000 neighbours", lap(crowd) as f64, 0.0, 0.0)
}

/// Answers a frame if it is an ARP request for one of the neighbours. Returns whether it was one.
fn answer(crowd: &mut Crowd, frame: &[u8]) -> bool {
    let (Some(kind), Some(target), Some(sender)) =
        (frame.get(12..22), frame.get(38..42), frame.get(28..32))
    else {
        return false;
    };
    let quad = |bytes: &[u8]| Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
    if kind != [8, 6, 0, 1, 8, 0, 6, 4, 0, 1] || target[2] < 32 {
        return false;
    }
    let reply = arp([EVIL, station(0)], 2, (EVIL, quad(target)), (station(0), quad(sender)));
    crowd.other.send(&reply);
    true
}
