//! A device that writes what it likes into completion and event queues: good entries, such with
//! other bytes, old ones, those of other Endpoints, and random ones.
//!
//! The host is that of the benchmarks. The device is away while requests are posted and entries are
//! written and dequeued, so that nobody else writes there; it is back for events and for commands.
//! Endpoints break all the time, and connect again.
//!
//! What holds: nothing panics, each request comes back once and names the Endpoint that it was
//! posted to, and a success is no longer than a message may be. An entry may name an Endpoint whose
//! completions belong to another Event Dispatcher: then the event comes here, which is counted.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant as Real};

use dat_core::{
    CompletionFlags, DtoEvent, DtoOperation, DtoStatus, Ep, EpState, Evd, Event, IbDtoEvent,
    LmrTriplet, RmrTriplet,
};
use mlx5_model::{Event as Raised, Wrote, event};

use crate::bench::puppet::{Puppet, Ring};
use crate::bench::stage::{Rig, address};
use crate::bringup::absent_peer;
use crate::laws::rng::Rng;

const LANES: usize = 3;
/// Entries of one queue between two looks at it, and such turns between two of the adapter.
const BATCH: u32 = 32;
const TURNS: usize = 8;
/// Events of each turn of the adapter, and the queues of the driver they go to: those of commands,
/// asynchronous events, page requests, completions.
const EVENTS: u64 = 64;
/// Turns in which the driver reads them.
const READS: usize = 6;
const EVENT_QUEUES: [u8; 4] = [0x10, 0x11, 0x12, 0x13];
/// A dequeue without an event may have passed over some entries: so many in a row are the end.
const EMPTY: u32 = 3;
/// The longest message of InfiniBand.
const LONGEST: u32 = 1 << 31;
const NONE: CompletionFlags = CompletionFlags::empty();

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Entries of completion queues.
    pub completions: u64,
    /// Entries of event queues.
    pub events: u64,
    /// Requests that came back with success.
    pub succeeded: u64,
    /// Those that came back otherwise.
    pub failed: u64,
    /// Of all, those whose entry stood in the queue of another Endpoint.
    pub elsewhere: u64,
    /// Connections that broke.
    pub broken: u64,
    /// How long it took.
    pub time: Duration,
}

impl Report {
    /// Entries of both kinds.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.completions + self.events
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64().max(1e-3);
        write!(
            f,
            "{} entries in {seconds:.0} s, {:.0} a second: {} completions, {} events; {} requests \
             succeeded, {} failed, {} of them by an entry in another's queue; {} connections \
             broke",
            self.entries(),
            self.entries() as f64 / seconds,
            self.completions,
            self.events,
            self.succeeded,
            self.failed,
            self.elsewhere,
            self.broken
        )
    }
}

/// Writes so many entries.
///
/// # Panics
/// If anything is not as it should be.
#[must_use]
pub fn run(entries: u64, seed: u64) -> Report {
    let start = Real::now();
    let mut device = Device::new(seed);
    while device.report.entries() < entries {
        device.rig.detach();
        for _ in 0..TURNS {
            device.post();
            device.complete();
            device.dequeue();
        }
        device.rig.hosts[0].detach(false);
        device.raise();
        for _ in 0..READS {
            device.rig.turn();
            device.dequeue();
        }
        // Only commands read the queue of commands.
        let pz = device.rig.ias[0].pz_create().unwrap();
        device.rig.ias[0].pz_free(pz).unwrap();
        device.renew();
    }
    let hca = device.rig.hosts[0].hca();
    let overrun = hca.complaints().iter().find(|complaint| complaint.contains("overrun"));
    assert_eq!(overrun, None, "the driver reads too few events");
    drop(hca);
    Report { time: start.elapsed(), ..device.report }
}

/// One Endpoint, and what of it is not complete.
struct Lane {
    ep: Ep,
    /// Of requests, and of receives.
    evds: [Evd; 2],
    conn: Evd,
    puppets: [Puppet<'static>; 2],
    qp: Ring,
    piece: [LmrTriplet; 1],
    far: RmrTriplet,
    /// Cookies.
    outstanding: [BTreeSet<u64>; 2],
    /// Those that came back since it is connected: the number of the next one.
    done: [u16; 2],
    ended: bool,
}

struct Device {
    rig: Rig,
    lanes: [Lane; LANES],
    rng: Rng,
    cookie: u64,
    last: [u8; 64],
    report: Report,
}

impl Device {
    fn new(seed: u64) -> Self {
        let mut rig = Rig::default();
        let lanes = [(); LANES].map(|()| {
            let lane = rig.lane();
            let ia = &mut rig.ias[0];
            ia.ep_return_poster(lane.poster).unwrap();
            ia.evd_return_reaper(lane.requests).unwrap();
            ia.evd_return_reaper(lane.receives).unwrap();
            Lane {
                ep: lane.ep,
                evds: [lane.request_evd, lane.receive_evd],
                conn: lane.conn_evd,
                puppets: [lane.sent, lane.got],
                qp: lane.qp,
                piece: lane.piece,
                far: lane.far,
                outstanding: [BTreeSet::new(), BTreeSet::new()],
                done: [0; 2],
                ended: false,
            }
        });
        // The model's own completions of the Endpoints do not arrive.
        let rings = lanes.each_ref().map(|lane| lane.puppets.each_ref().map(Puppet::ring));
        let host = rig.hosts[0];
        host.hca().set_mangle(Some(Box::new(move |kind, iova, _| {
            kind != Wrote::Cqe || {
                let at = host.offset(iova);
                let within =
                    |ring: &Ring| (ring.offset..ring.offset + (64 << ring.log_size)).contains(&at);
                !rings.as_flattened().iter().any(within)
            }
        })));
        Self {
            rig,
            lanes,
            rng: Rng::new(seed),
            cookie: 0,
            last: [0; 64],
            report: Report::default(),
        }
    }

    /// Posts what finds room.
    fn post(&mut self) {
        for (n, lane) in self.lanes.iter_mut().enumerate() {
            for way in 0..2 {
                while lane.outstanding[way].len() < BATCH as usize {
                    // A cookie says whose it is.
                    self.cookie += LANES as u64;
                    let cookie = self.cookie + n as u64;
                    let (ia, ep) = (&mut self.rig.ias[0], lane.ep);
                    let posted = match (way, cookie / LANES as u64 % 3) {
                        (1, _) => ia.ep_post_recv(ep, &lane.piece, cookie, NONE),
                        (_, 0) => ia.ep_post_send(ep, &lane.piece, cookie, NONE),
                        (_, 1) => ia.ep_post_rdma_write(ep, &lane.piece, cookie, &lane.far, NONE),
                        _ => ia.ep_post_rdma_read(ep, &lane.piece, cookie, &lane.far, NONE),
                    };
                    if posted.is_err() {
                        break;
                    }
                    lane.outstanding[way].insert(cookie);
                }
            }
        }
    }

    /// Writes a batch into each queue.
    fn complete(&mut self) {
        for n in 0..LANES {
            for way in 0..2 {
                let mut next = self.lanes[n].done[way];
                for _ in 0..BATCH {
                    let entry = self.entry(n, way, &mut next);
                    self.lanes[n].puppets[way].write(entry);
                    self.last = entry;
                    self.report.completions += 1;
                }
            }
        }
    }

    /// An entry for one queue of an Endpoint. `next` is the number of the request that comes next.
    fn entry(&mut self, n: usize, way: usize, next: &mut u16) -> [u8; 64] {
        let rng = &mut self.rng;
        let dice = rng.below(100);
        let mut lane = &self.lanes[n];
        let mut counter = *next;
        let mut opcode = if way == 0 { 0 } else { 2 };
        let mut syndrome = 0;
        match dice {
            0..60 => *next = next.wrapping_add(1),
            60..64 => lane = &self.lanes[rng.below(LANES)],
            64..68 => counter = counter.wrapping_add(rng.below(80) as u16).wrapping_sub(40),
            68..72 => opcode = rng.below(16) as u8,
            72..76 => (opcode, syndrome) = (13 + way as u8, rng.below(256) as u8),
            76..80 => return self.last,
            80..85 => return std::array::from_fn(|_| rng.next() as u8),
            _ => {}
        }
        let mut entry = [0; 64];
        entry[0x20..0x24].copy_from_slice(&lane.qp.user_index.to_be_bytes());
        entry[0x2c..0x30].copy_from_slice(&(rng.below(256) as u32).to_be_bytes());
        entry[0x37] = syndrome;
        entry[0x38..0x3c].copy_from_slice(&lane.qp.number.to_be_bytes());
        entry[0x3c..0x3e].copy_from_slice(&counter.to_be_bytes());
        entry[0x3f] = opcode << 4;
        if dice >= 85 {
            for _ in 0..=rng.below(3) {
                let at = rng.below(64);
                entry[at] =
                    if rng.percent(50) { entry[at] ^ 1 << rng.below(8) } else { rng.next() as u8 };
            }
        }
        entry
    }

    /// Takes all events there are.
    fn dequeue(&mut self) {
        for n in 0..LANES {
            let lane = &self.lanes[n];
            for evd in [lane.evds[0], lane.evds[1], lane.conn, self.rig.ias[0].async_evd()] {
                let mut empty = 0;
                while empty < EMPTY {
                    match self.rig.ias[0].evd_dequeue(evd) {
                        Ok(event) => {
                            empty = 0;
                            self.take(n, evd, &event);
                        }
                        Err(_) => empty += 1,
                    }
                }
            }
        }
    }

    fn take(&mut self, n: usize, evd: Evd, event: &Event) {
        let (ep, cookie, status, receive) = match *event {
            Event::Dto(DtoEvent { ep, cookie, status, len, operation }) => {
                assert!(len <= LONGEST, "{event:?}");
                let receives = [DtoOperation::Receive, DtoOperation::ReceiveWithInvalidate];
                (ep, cookie, status, receives.contains(&operation))
            }
            // A lie may make a message one with an immediate.
            Event::IbDto(dto) => {
                let IbDtoEvent { ep, cookie, .. } = dto;
                (ep, cookie, dto.status(), true)
            }
            // The last one if an entry that makes no sense comes while it connects.
            Event::Broken(ep) | Event::Disconnected(ep) | Event::NonPeerRejected(ep) => {
                let lane = &mut self.lanes[n];
                assert!(ep == lane.ep && !lane.ended, "{event:?}");
                lane.ended = true;
                return;
            }
            Event::Established(_) | Event::Async(_) => return,
            ref other => panic!("{other:?}"),
        };
        let way = usize::from(receive);
        let whose = (cookie % LANES as u64) as usize;
        let lane = &mut self.lanes[whose];
        assert_eq!(ep, lane.ep, "{event:?} is delivered to another Endpoint");
        assert!(lane.outstanding[way].remove(&cookie), "{event:?} is not outstanding");
        lane.done[way] = lane.done[way].wrapping_add(1);
        let success = status == DtoStatus::Success;
        self.report.succeeded += u64::from(success);
        self.report.failed += u64::from(!success);
        self.report.elsewhere += u64::from(evd != lane.evds[way]);
    }

    /// Puts events into the driver's queues.
    fn raise(&mut self) {
        let host = self.rig.hosts[0];
        let before = host.hca().stats().eqes;
        let rng = &mut self.rng;
        for _ in 0..EVENTS {
            let mut raised = Raised::new(rng.below(0x28) as u8, rng.below(4) as u8);
            let lane = &self.lanes[rng.below(LANES)];
            let cqs = lane.puppets.each_ref().map(|puppet| puppet.ring().number);
            match rng.below(8) {
                0 => raised.data = std::array::from_fn(|_| rng.next() as u8),
                1 => raised = raised.with(rng.below(28) & !3, rng.next() as u32),
                2 => raised.kind = rng.next() as u8,
                3 => raised = raised.with(rng.of(&[0, 0x18]), rng.below(0x1000) as u32),
                4 => raised = raised.with(0x18, lane.qp.number),
                _ => raised = raised.with(rng.of(&[0, 0x18]), rng.of(&cqs)),
            }
            // A completion queue that has failed stays so.
            let number = raised.data.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
            let fails = |puppet: &Puppet<'_>| puppet.ring().number == number & 0xff_ffff;
            if raised.kind == event::CQ_ERROR
                && self.lanes.iter().any(|lane| lane.puppets.iter().any(fails))
            {
                raised.kind = event::COMPLETION;
            }
            host.hca().inject_event(Some(rng.of(&EVENT_QUEUES)), &raised);
        }
        let written = host.hca().stats().eqes - before;
        assert_eq!(written, EVENTS, "an event queue of the driver's is missing, or has failed");
        self.report.events += written;
    }

    /// Connects again what is not connected.
    fn renew(&mut self) {
        let terms = absent_peer();
        for n in 0..LANES {
            let lane = &mut self.lanes[n];
            let (ep, now) = (lane.ep, self.rig.now());
            let ia = &mut self.rig.ias[0];
            assert!(ia.lost().is_none(), "{:?}", ia.lost());
            if ia.ep_query(ep).unwrap().state != EpState::Disconnected {
                continue;
            }
            assert!(lane.ended, "an Endpoint is disconnected, and no event says so");
            assert_eq!(lane.outstanding, [BTreeSet::new(), BTreeSet::new()], "never came back");
            self.report.broken += 1;
            (lane.ended, lane.done) = (false, [0; 2]);
            ia.ep_reset(ep).unwrap();
            ia.ep_connect_direct(now, ep, address(1), &terms, Duration::from_secs(2)).unwrap();
        }
    }
}
