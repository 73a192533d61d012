//! Side B: uses of its memory, and its state.

use std::collections::VecDeque;
use std::time::Duration;

use dat_core::{
    CloseFlag, CompletionFlags, DatType, Ep, EpState, Evd, EvdFlags, LmrParam, LmrTriplet, MemPriv,
    Pz, Rmr,
};

use super::memory::{BLOCK, BLOCKS, UNIT, UNITS};
use crate::conformance::{A, Adapters, B, NONE, Side};
use crate::laws::rng::Rng;
use crate::laws::{Check, violation};

/// Length of the Event Dispatchers.
const LENGTH: u32 = 128;

/// A unit of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unit {
    pub(super) exposed: bool,
    pub(super) epoch: u8,
}

/// A registration of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registration {
    pub(super) lmr: LmrParam,
    pub(super) zone: usize,
    pub(super) remote: bool,
}

/// A range that a bind was posted for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// Cookie of the bind.
    pub(super) bind: u64,
    pub(super) first: usize,
    /// 0 for an unbind.
    pub(super) units: usize,
    /// The pair whose Endpoint it was posted to.
    pub(super) pair: usize,
}

/// An RMR.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) rmr: Rmr,
    /// Made by `rmr_create_for_ep`.
    pub(super) of_ep: bool,
    pub(super) zone: usize,
    pub(super) ranges: Vec<Range>,
}

/// A request of side B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) cookie: u64,
    pub(super) suppressed: bool,
    pub(super) bind: bool,
}

/// A connected pair of Endpoints.
#[derive(Debug)]
pub(super) struct Pair {
    /// Of side A and side B.
    pub(super) eps: [Ep; 2],
    /// Zone of side B's Endpoint.
    pub(super) zone: usize,
    /// A peer may reach memory through side B's Endpoint.
    pub(super) open: bool,
    pub(super) posted: VecDeque<Posted>,
    /// Incremented when completions may have been dropped.
    pub(super) era: u64,
}

/// A context that side A has learned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) context: u32,
    pub(super) addr: u64,
}

/// A program and what is known.
pub(super) struct Program<'w, 's, S: Side> {
    pub(super) ias: &'w mut Adapters<'s, S>,
    pub(super) rng: Rng,
    pub(super) verbose: bool,
    pub(super) steps: u64,
    pub(super) cookie: u64,
    /// Zones of side B.
    pub(super) zones: Vec<Pz>,
    /// First byte of side B's memory.
    pub(super) memory: u64,
    pub(super) units: [Unit; UNITS],
    pub(super) regions: [Option<Registration>; BLOCKS],
    /// Block and zone of a registration with remote privileges that is being made.
    pub(super) opening: Option<(usize, usize)>,
    pub(super) windows: Vec<Window>,
    pub(super) pairs: Vec<Pair>,
    pub(super) targets: Vec<Target>,
    /// Source of writes of side A, and where its reads go.
    pub(super) source: LmrTriplet,
    pub(super) sink: u64,
    pub(super) sink_lmr: LmrParam,
    pub(super) zone_a: Pz,
    /// Completions of both sides.
    pub(super) evds: [Evd; 2],
    pub(super) conns: [Evd; 2],
    pub(super) requests: Evd,
    pub(super) qualifier: u64,
    /// Posts to side B's Event Dispatcher since it was seen empty.
    pub(super) charged: usize,
    /// Contexts of registrations that are gone.
    pub(super) gone: Vec<(u32, u64)>,
    pub(super) freed: Vec<Rmr>,
    /// The last call that took something away.
    pub(super) last_close: String,
    pub(super) held: bool,
}

impl<'w, 's, S: Side> Program<'w, 's, S> {
    pub(super) fn new(ias: &'w mut Adapters<'s, S>, mut rng: Rng, verbose: bool) -> Self {
        let qualifier = ias.free_qualifier();
        let completions = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let merged = rng.percent(40);
        let mut evds = Vec::new();
        let mut conns = Vec::new();
        for side in [A, B] {
            let ia = &mut ias[side].ia;
            if merged {
                let all = completions | EvdFlags::CONNECTION;
                let evd = ia.evd_create(LENGTH, all).unwrap();
                evds.push(evd);
                conns.push(evd);
            } else {
                evds.push(ia.evd_create(LENGTH, completions).unwrap());
                conns.push(ia.evd_create(16, EvdFlags::CONNECTION).unwrap());
            }
        }
        let requests = ias.b.evd_create(8, EvdFlags::CR).unwrap();
        ias.b.psp_create(qualifier, requests, dat_core::PspFlag::Consumer).unwrap();
        let zones = 1 + rng.below(3);
        let zones: Vec<Pz> = (0..zones).map(|_| ias.b.pz_create().unwrap()).collect();
        let memory = ias.b.side.memory(UNITS * UNIT).addr;
        let zone_a = ias.a.pz_create().unwrap();
        let own = ias.a.side.memory(4096);
        let sink_lmr = ias.a.lmr_create(zone_a, own, MemPriv::ALL).unwrap();
        ias.a.side.store(own.addr, &[0x11; UNIT]);
        let source = LmrTriplet { addr: own.addr, len: UNIT as u32, context: sink_lmr.lmr_context };
        Self {
            ias,
            rng,
            verbose,
            steps: 0,
            cookie: 0,
            zones,
            memory,
            units: [Unit::default(); UNITS],
            regions: [None; BLOCKS],
            opening: None,
            windows: Vec::new(),
            pairs: Vec::new(),
            targets: Vec::new(),
            source,
            sink: own.addr + 1024,
            sink_lmr,
            zone_a,
            evds: [evds[A], evds[B]],
            conns: [conns[A], conns[B]],
            requests,
            qualifier,
            charged: 0,
            gone: Vec::new(),
            freed: Vec::new(),
            last_close: String::from("nothing"),
            held: false,
        }
    }

    /// Prints a line of the program.
    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            let now = self.ias.now().as_nanos();
            eprintln!("{:6} {now:>14} {}", self.steps, text());
        }
    }

    /// Runs a program of `length` steps and the checks after it.
    pub(super) fn run(&mut self, length: u64, done: &mut u64) -> Check {
        self.fill();
        let pairs = 1 + self.rng.below(4);
        for index in 0..pairs {
            let zone = index % self.zones.len();
            let eps = [self.make_ep(A, zone), self.make_ep(B, zone)];
            self.pairs.push(Pair { eps, zone, open: false, posted: VecDeque::new(), era: 0 });
            self.mend(index)?;
        }
        while *done < length {
            *done += 1;
            self.act()?;
            if *done % 8 == 0 {
                self.check()?;
            }
        }
        self.hold(false);
        // The last shots, with time for all that is in flight.
        for _ in 0..6 {
            self.fire()?;
            self.pass(Duration::from_millis(3))?;
            self.check()?;
        }
        self.collect()
    }

    pub(super) fn make_ep(&mut self, side: usize, zone: usize) -> Ep {
        let pz = if side == A { self.zone_a } else { self.zones[zone] };
        let mut attr = self.ias[side].ep_attr_default();
        attr.max_request_dtos = 8;
        attr.max_recv_dtos = 4;
        self.steps += 1;
        let (evd, conn) = (Some(self.evds[side]), Some(self.conns[side]));
        self.ias[side].ep_create(Some(pz), evd, evd, conn, Some(&attr)).unwrap()
    }

    /// Keeps posted requests in flight, where the provider can.
    pub(super) fn hold(&mut self, held: bool) {
        if held != self.held {
            self.held = held;
            self.note(|| format!("hold: {held}"));
            self.ias.a.side.hold(held);
        }
    }

    fn act(&mut self) -> Check {
        match self.rng.below(100) {
            0..40 => self.fire(),
            40..48 => {
                let span = self.rng.of(&[1, 5, 50, 500]);
                self.steps += 2;
                self.ias.turn(Duration::from_micros(span));
                Ok(())
            }
            48..54 => self.reap(B, 2),
            54..62 => self.register(),
            62..76 => self.bind(),
            76..83 => self.free_rmr(),
            83..87 => self.free_lmr(),
            87 => self.restart(),
            88 => self.replace(),
            89..91 => self.bad_input(),
            91..93 => self.block(),
            93..95 => {
                let held = !self.held;
                self.hold(held);
                Ok(())
            }
            _ => {
                let pair = self.rng.below(self.pairs.len());
                self.mend(pair)
            }
        }
    }

    fn register(&mut self) -> Check {
        let block = self.rng.below(BLOCKS);
        if self.regions[block].is_some() {
            return Ok(());
        }
        let zone = self.rng.below(self.zones.len());
        let remote = self.rng.percent(35);
        let addr = self.memory + (block * BLOCK * UNIT) as u64;
        let region = dat_core::provider::Region { addr, len: (BLOCK * UNIT) as u64 };
        let rights = if remote { MemPriv::ALL } else { MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE };
        // Memory that peers may reach is public from before the call on.
        self.opening = remote.then_some((block, zone));
        self.expose()?;
        self.steps += 1;
        let made = self.ias.b.lmr_create(self.zones[zone], region, rights);
        let Ok(lmr) = made else {
            return violation("lmr", format!("lmr_create: {made:?}"));
        };
        self.note(|| format!("block {block}: zone {zone}, remote {remote}"));
        self.opening = None;
        self.regions[block] = Some(Registration { lmr, zone, remote });
        if remote {
            self.learn(lmr.rmr_context, addr);
        }
        self.expose()
    }

    /// Side A learns a context.
    fn learn(&mut self, context: u32, addr: u64) {
        let target = Target { context, addr };
        if self.targets.len() < 48 {
            self.targets.push(target);
        } else {
            let at = self.rng.below(48);
            self.targets[at] = target;
        }
    }

    /// Makes an RMR, or binds one.
    fn bind(&mut self) -> Check {
        if self.windows.len() < 2 || self.windows.len() < 5 && self.rng.percent(25) {
            let zone = self.rng.below(self.zones.len());
            let of_ep = self.rng.percent(50);
            let pz = self.zones[zone];
            self.steps += 1;
            let made =
                if of_ep { self.ias.b.rmr_create_for_ep(pz) } else { self.ias.b.rmr_create(pz) };
            if let Ok(rmr) = made {
                self.windows.push(Window { rmr, of_ep, zone, ranges: Vec::new() });
            }
        }
        let block = self.rng.below(BLOCKS);
        if self.windows.is_empty() || self.charged > 90 {
            return self.reap(B, usize::MAX);
        }
        let at = self.rng.below(self.windows.len());
        let pair = self.rng.below(self.pairs.len());
        let Some(region) = self.regions[block] else {
            return Ok(());
        };
        let units = if self.rng.percent(10) { 0 } else { 1 + self.rng.below(BLOCK) };
        let first = block * BLOCK + self.rng.below(BLOCK + 1 - units.max(1));
        let mut flags = NONE;
        if self.rng.percent(30) {
            flags |= CompletionFlags::SUPPRESS;
        }
        let range = LmrTriplet {
            addr: self.memory + (first * UNIT) as u64,
            len: (units * UNIT) as u32,
            context: region.lmr.lmr_context,
        };
        let rights = self.rng.of(&[
            MemPriv::REMOTE_READ | MemPriv::REMOTE_WRITE,
            MemPriv::REMOTE_WRITE,
            MemPriv::REMOTE_READ,
        ]);
        self.cookie += 1;
        let cookie = self.cookie << 8 | pair as u64;
        self.windows[at].ranges.push(Range { bind: cookie, first, units, pair });
        self.expose()?;
        let (rmr, ep) = (self.windows[at].rmr, self.pairs[pair].eps[B]);
        self.steps += 1;
        let done = self.ias.b.rmr_bind(rmr, &range, rights, ep, cookie, flags);
        self.note(|| {
            format!("bind {cookie:#x} {rmr:?} of units {first} + {units} pair {pair} {flags:?}: {done:?}")
        });
        match done {
            Ok(context) => {
                self.charged += 1;
                self.pairs[pair].posted.push_back(Posted {
                    cookie,
                    suppressed: flags.contains(CompletionFlags::SUPPRESS),
                    bind: true,
                });
                if units > 0 {
                    self.learn(context, range.addr);
                }
                Ok(())
            }
            Err(_) => {
                self.windows[at].ranges.pop();
                self.expose()
            }
        }
    }

    fn free_rmr(&mut self) -> Check {
        if self.windows.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.windows.len());
        let rmr = self.windows[at].rmr;
        self.steps += 1;
        let done = self.ias.b.rmr_free(rmr);
        self.note(|| format!("rmr_free {rmr:?}: {done:?}"));
        if let Err(error) = done {
            return violation("free", format!("rmr_free: {error}"));
        }
        let window = self.windows.swap_remove(at);
        self.last_close = format!("rmr_free of {window:?}");
        self.freed.push(rmr);
        self.expose()?;
        if self.rng.percent(60) {
            self.fire()?;
        }
        if self.rng.percent(40) {
            self.free_lmr()?;
        }
        Ok(())
    }

    fn free_lmr(&mut self) -> Check {
        let block = self.rng.below(BLOCKS);
        let Some(region) = self.regions[block] else {
            return Ok(());
        };
        self.steps += 1;
        let done = self.ias.b.lmr_free(region.lmr.lmr);
        self.note(|| format!("lmr_free of block {block}: {done:?}"));
        if done.is_err() {
            return Ok(());
        }
        self.regions[block] = None;
        // A window over a region that is gone leads nowhere.
        for window in &mut self.windows {
            window.ranges.retain(|range| range.first / BLOCK != block);
        }
        self.last_close = format!("lmr_free of block {block}");
        if self.gone.len() < 8 {
            self.gone.push((region.lmr.lmr_context, region.lmr.region.addr));
        }
        self.expose()
    }

    /// Side B's Endpoint is taken out of service and reset, while its peer goes on firing.
    fn restart(&mut self) -> Check {
        let pair = self.rng.below(self.pairs.len());
        let ep = self.pairs[pair].eps[B];
        let now = self.ias.now();
        self.steps += 2;
        let _ = self.ias.b.ep_disconnect(now, ep, CloseFlag::Abrupt);
        if self.ias.b.ep_get_status(ep).unwrap().state != EpState::Disconnected {
            return Ok(());
        }
        self.reset_b(pair)?;
        self.fire()
    }

    /// Resets side B's Endpoint, which is DISCONNECTED.
    pub(super) fn reset_b(&mut self, pair: usize) -> Check {
        self.steps += 1;
        let done = self.ias.b.ep_reset(self.pairs[pair].eps[B]);
        self.note(|| format!("ep_reset of pair {pair}: {done:?}"));
        if let Err(error) = done {
            return violation("free", format!("ep_reset: {error}"));
        }
        self.last_close = format!("ep_reset of pair {pair}");
        self.closed(pair);
        self.expose()
    }

    /// Nothing leads through side B's Endpoint of a pair any more.
    fn closed(&mut self, pair: usize) {
        let known = &mut self.pairs[pair];
        known.open = false;
        known.posted.clear();
        known.era += 1;
        for window in self.windows.iter_mut().filter(|window| window.of_ep) {
            window.ranges.retain(|range| range.pair != pair);
        }
    }

    /// Side B frees its Endpoint, in whatever state, and makes another.
    fn replace(&mut self) -> Check {
        let pair = self.rng.below(self.pairs.len());
        let (now, ep) = (self.ias.now(), self.pairs[pair].eps[B]);
        self.steps += 1;
        let done = self.ias.b.ep_free(now, ep);
        self.note(|| format!("ep_free of pair {pair}: {done:?}"));
        if let Err(error) = done {
            return violation("free", format!("ep_free: {error}"));
        }
        self.last_close = format!("ep_free of pair {pair}");
        self.closed(pair);
        self.expose()?;
        self.fire()?;
        let zone = self.pairs[pair].zone;
        self.pairs[pair].eps[B] = self.make_ep(B, zone);
        Ok(())
    }

    /// Handles and contexts of what is gone.
    fn bad_input(&mut self) -> Check {
        let pair = self.rng.below(self.pairs.len());
        let ep = self.pairs[pair].eps[B];
        self.steps += 3;
        if let Some(&rmr) = self.freed.last() {
            match self.ias.b.rmr_free(rmr) {
                Err(error) if DatType::InvalidHandle == error.ret().ty() => {}
                other => return violation("bad-input", format!("second rmr_free: {other:?}")),
            }
            let Some(region) = self.regions.iter().flatten().next() else {
                return Ok(());
            };
            let range = LmrTriplet {
                addr: region.lmr.region.addr,
                len: 8,
                context: region.lmr.lmr_context,
            };
            let rights = MemPriv::REMOTE_WRITE;
            if let Ok(context) = self.ias.b.rmr_bind(rmr, &range, rights, ep, 7, NONE) {
                return violation("bad-input", format!("bind of a freed RMR gave {context:#x}"));
            }
        }
        if let Some(&(context, addr)) = self.gone.last() {
            let segment = LmrTriplet { addr, len: 8, context };
            if self.ias.b.ep_post_send(ep, &[segment], 7, NONE).is_ok() {
                return violation("bad-input", "a send from memory that is not registered");
            }
        }
        Ok(())
    }

    /// A send for which side A posts no receive: what is posted behind it stays in flight.
    fn block(&mut self) -> Check {
        let pair = self.rng.below(self.pairs.len());
        if self.charged > 90 {
            return self.reap(B, usize::MAX);
        }
        self.cookie += 1;
        let cookie = self.cookie << 8 | pair as u64;
        self.steps += 1;
        let ep = self.pairs[pair].eps[B];
        let done = self.ias.b.ep_post_send(ep, &[], cookie, NONE);
        self.note(|| format!("send {cookie:#x} without a receive, pair {pair}: {done:?}"));
        if done.is_ok() {
            self.charged += 1;
            self.pairs[pair].posted.push_back(Posted { cookie, suppressed: false, bind: false });
        }
        Ok(())
    }
}
