//! Opens and closes the adapters of hosts, with what their consumers need.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dat_core::provider::Net;
use dat_core::{CloseFlag, Evd, EvdFlags, Ia, Instant, MemPriv, PspFlag, SrqAttr};
use dat_tests::host::inproc::enable;
use dat_tests::pair::Driver;
use hca_mlx5::Config;

use crate::faults::Kind;
use crate::memory::Memory;
use crate::oracle::{Check, Phase, Pieces, Target, Violation, violation};
use crate::script::{Common, Wake};
use crate::world::{Adapter, Datagrams, HEADERS, PLACES, QKEY, QUALIFIER, SHARED, Sim, Stream};

impl<'s> Sim<'s> {
    /// Opens the adapter of a host, and makes what it needs.
    pub(crate) fn open(&mut self, host: usize) -> Check {
        let opened = match self.try_open(host) {
            Err(Violation { text, .. }) if self.hosts[host].sick || self.hosts[host].flaky => {
                self.say(host, format_args!("open failed, once more after a reset: {text}"));
                self.reset_function(host);
                self.try_open(host)
            }
            other => other,
        };
        opened?;
        let known = &mut self.hosts[host];
        (known.sick, known.lost, known.flaky) = (false, false, false);
        (known.dirty, known.due, known.neglected) = (true, 0, None);
        known.unanswered = false;
        if self.shape.beside[host] {
            known.slot.run_beside(self.shape.seed ^ host as u64);
        }
        self.prepare_all(host)?;
        for _ in 0..self.shape.pool[host] {
            self.post_shared(host)?;
        }
        for _ in 0..SHARED {
            self.post_datagram_receive(host)?;
        }
        self.say(host, format_args!("open"));
        Ok(())
    }

    fn try_open(&mut self, host: usize) -> Check {
        let Some(room) = self.rooms.next() else {
            return violation("rooms", "no storage is left");
        };
        let net = Net {
            addr: self.address(host),
            prefix: if self.shape.ipv6 { 64 } else { 24 },
            gateway: None,
            vlan: None,
        };
        let known = &self.hosts[host];
        let (slot, size) = (known.slot, known.size);
        let mut config = Config::default();
        if let Some(mtu) = self.shape.mtu {
            config.frame_size = mtu + HEADERS;
        }
        let shared = known.ends.iter().any(|&(l, side)| self.shape.links[l].shared[side]);
        let (wake, pool) = (self.shape.wakes[host], self.shape.pool[host] as u16);
        if self.shape.faults.contains(&Kind::MutedCommand) {
            config.command_timeout = Some(Duration::from_millis(400));
        }
        let fail = |what: &str, error: &dyn std::fmt::Display| Violation {
            rule: "open",
            text: format!("h{host}: {what}: {error}"),
        };
        let driver = Driver::open(slot, &slot.config(config)).map_err(|e| fail("device", &e))?;
        let now = Instant::from_nanos(self.time.now());
        let ia = Ia::open(driver, room.parts(), net, now, slot.entropy());
        let mut ia = ia.map_err(|e| fail("adapter", &e))?;
        let make = |ia: &mut Ia<'s, Driver<'s>>, mem: &Memory<'s>| {
            let pz = ia.pz_create()?;
            let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
            let lmr = ia.lmr_create(pz, mem.region(), local)?;
            let cr = ia.evd_create(32, EvdFlags::CR)?;
            ia.psp_create(QUALIFIER, cr, PspFlag::Consumer)?;
            let attr = SrqAttr { max_recv_dtos: pool, max_recv_iov: 1, low_watermark: 0 };
            let srq = if shared { Some(ia.srq_create(pz, &attr)?) } else { None };
            let evds = [ia.evd_create(64, EvdFlags::DTO)?, ia.evd_create(64, EvdFlags::DTO)?];
            let ep = ia.ep_create_ud(pz, evds[0], evds[1], None, None, QKEY)?;
            let qpn = ia.ep_query(ep)?.qp.map_or(0, |qp| qp.number);
            let cno = if wake == Wake::Cno { Some(ia.cno_create(None)?) } else { None };
            Ok::<_, dat_core::Error>((
                pz,
                lmr,
                cr,
                srq,
                Datagrams {
                    ep,
                    evds,
                    qpn,
                    receives: VecDeque::new(),
                    sends: VecDeque::new(),
                    pieces: [Pieces::new(PLACES); 2],
                },
                cno,
            ))
        };
        let Some(mem) = Memory::new(slot, size, self.shape.lent[host]) else {
            return violation("open", format!("h{host}: no memory"));
        };
        match make(&mut ia, &mem) {
            Ok((pz, lmr, cr, srq, datagrams, cno)) => {
                self.hosts[host].adapter = Some(Adapter {
                    ia,
                    mem,
                    pz,
                    lmr,
                    cr,
                    srq,
                    shared: BTreeMap::new(),
                    pieces: Pieces::new(PLACES),
                    datagrams,
                    waiting: Vec::new(),
                    keys: VecDeque::new(),
                    cno,
                    wait: None,
                    image: vec![0; size],
                });
                self.hosts[host].streams.clear();
                Ok(())
            }
            Err(error) => {
                let _ = ia.close(now, CloseFlag::Abrupt);
                mem.release();
                Err(fail("objects", &error))
            }
        }
    }

    /// What the ends of a host need, and the list of its Event Dispatchers.
    fn prepare_all(&mut self, host: usize) -> Check {
        let mut common = None;
        let all = self.shape.common[host] == Common::All;
        if self.shape.common[host] != Common::Nothing && !self.hosts[host].ends.is_empty() {
            let lengths = self.hosts[host].ends.iter().map(|&(l, side)| self.lengths(l, side));
            let length: u32 = lengths.flatten().sum();
            let Some(adapter) = self.adapter(host) else { return Ok(()) };
            let mut flags = EvdFlags::DTO | EvdFlags::RMR_BIND;
            flags.set(EvdFlags::CONNECTION, all);
            let made = adapter.ia.evd_create(length, flags);
            common = self.call(host, "evd_create", made)?.map(|evd| (evd, length));
        }
        let mut streams: Vec<_> =
            { common.iter() }.map(|(evd, _)| (*evd, Stream::Ends(all))).collect();
        for n in 0..self.hosts[host].ends.len() {
            let (l, side) = self.hosts[host].ends[n];
            self.prepare(l, side, common)?;
            let Some(evds) = self.links[l].ends[side].evds.filter(|_| common.is_none() || !all)
            else {
                continue;
            };
            let merged = evds[0] == evds[2];
            let evds = if merged || common.is_some() { &evds[2..] } else { &evds[..] };
            streams.extend(evds.iter().map(|evd| (*evd, Stream::End(l, side, merged))));
        }
        let Some(adapter) = &mut self.hosts[host].adapter else { return Ok(()) };
        streams.push((adapter.cr, Stream::Requests));
        streams.extend(adapter.datagrams.evds.map(|evd| (evd, Stream::Datagrams)));
        streams.push((adapter.ia.async_evd(), Stream::Asynchronous));
        if let Some(cno) = adapter.cno {
            let joined = streams.iter().try_for_each(|(evd, _)| {
                // Somebody else may not wait for those of the adapter itself.
                adapter.ia.evd_modify_cno(*evd, Some(cno))
            });
            self.call(host, "evd_modify_cno", joined)?;
        }
        self.hosts[host].streams = streams;
        Ok(())
    }

    /// Events that the Event Dispatchers of an end have room for: receives, requests and connection
    /// events.
    fn lengths(&self, l: usize, side: usize) -> [u32; 3] {
        let shape = &self.shape.links[l];
        let depth = shape.depth as u32;
        let pool = self.shape.pool[shape.hosts[side]] as u32;
        [depth + if shape.shared[side] { pool } else { 0 }, depth, 4]
    }

    /// Event Dispatchers and registration of an end.
    fn prepare(&mut self, l: usize, side: usize, common: Option<(Evd, u32)>) -> Check {
        let shape = &self.shape.links[l];
        let end = &self.links[l].ends[side];
        let (host, at, len) = (end.host, end.base[3], end.target.certain.len());
        let merged = shape.merged[side];
        let mut lengths = self.lengths(l, side);
        let all = self.shape.common[host] == Common::All;
        match common {
            Some((_, length)) if all => lengths = [length; 3],
            Some((_, length)) => lengths[..2].fill(length),
            None if merged => lengths = [lengths.iter().sum(); 3],
            None => {}
        }
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        let ia = &mut adapter.ia;
        let requests = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let made = (|| {
            let evds = match common {
                Some((evd, _)) if all => [evd; 3],
                Some((evd, _)) => [evd, evd, ia.evd_create(lengths[2], EvdFlags::CONNECTION)?],
                None if merged => [ia.evd_create(lengths[0], requests | EvdFlags::CONNECTION)?; 3],
                None => [
                    ia.evd_create(lengths[0], EvdFlags::DTO)?,
                    ia.evd_create(lengths[1], requests)?,
                    ia.evd_create(lengths[2], EvdFlags::CONNECTION)?,
                ],
            };
            let mut region = adapter.mem.region();
            (region.addr, region.len) = (region.addr + at as u64, len as u64);
            let rights = MemPriv::ALL | MemPriv::REMOTE_ATOMIC;
            let whole = ia.lmr_create(adapter.pz, region, rights)?;
            Ok::<_, dat_core::Error>((evds, whole))
        })();
        let Some((evds, whole)) = self.call(host, "make an end", made)? else { return Ok(()) };
        let end = &mut self.links[l].ends[side];
        (end.evds, end.whole, end.lengths) = (Some(evds), Some(whole), lengths);
        // No two places are alike: what is read says where it was.
        let bytes = self.contents(u64::from(whole.rmr_context) << 32, len);
        self.links[l].ends[side].target.adopt(&bytes);
        if let Some(adapter) = self.data(host) {
            Self::store(adapter, at, &bytes);
        }
        Ok(())
    }

    /// Resets a function that the host does not trust any more.
    fn reset_function(&mut self, host: usize) {
        let slot = self.hosts[host].slot;
        slot.hca().flr();
        slot.reclaim();
        enable(&mut slot.hca());
    }

    /// Closes the adapter of a host.
    pub fn close(&mut self, host: usize) -> Check {
        let now = self.instant();
        let known = &mut self.hosts[host];
        let (sick, ill, slot) = (known.sick, known.sick || known.flaky, known.slot);
        known.commands.with(VecDeque::clear);
        let Some(mut adapter) = known.adapter.take() else { return Ok(()) };
        if let Some((mut wait, _)) = adapter.wait.take() {
            adapter.ia.evd_wait_end(&mut wait);
        }
        let closed = adapter.ia.close(now, CloseFlag::Abrupt);
        drop(adapter.ia);
        adapter.mem.release();
        self.calls += 1;
        match closed {
            Ok(()) => self.say(host, format_args!("close")),
            Err(ref error) if ill => self.say(host, format_args!("close: {error}")),
            Err(error) => return violation("close", format!("h{host}: {error}")),
        }
        for n in 0..self.hosts[host].ends.len() {
            let (l, side) = self.hosts[host].ends[n];
            self.excuse(l, side, "a host closed its adapter");
            let depth = self.shape.links[l].depth;
            let link = &mut self.links[l];
            let end = &mut link.ends[side];
            (end.ep, end.evds, end.whole) = (None, None, None);
            (end.phase, end.conn) = (Phase::None, None);
            end.requests.clear();
            end.receives.clear();
            (end.sources, end.buffers) = (Pieces::new(depth), Pieces::new(depth));
            end.grants.fill(None);
            end.stale.clear();
            end.unbound.clear();
            end.freed.clear();
            end.target = Target::new(end.target.certain.len());
            // What it had under way at its peer stays so.
            link.ends[1 - side].target.broken();
            // What its reads and atomics bring was to be judged by what is forgotten here.
            link.ends[1 - side].requests.iter_mut().for_each(|item| item.brings.clear());
            // A request that it has seen may come again, to the adapter that follows.
            if let Some(conn) = link.ends[1 - side].conn {
                link.conns[conn].requested = false;
            }
        }
        // What a refused command has left behind, the teardown gives back.
        if sick || closed.is_err() {
            self.reset_function(host);
            return Ok(());
        }
        let (bytes, pages) = (slot.in_use(), slot.views().pages_out());
        if bytes != 0 || pages != 0 {
            return violation(
                "leak",
                format!("h{host}: {bytes} bytes and {pages} firmware pages not given back"),
            );
        }
        self.books(host)
    }

    /// Neither the model nor the memory of a host has anything to complain of.
    pub fn books(&mut self, host: usize) -> Check {
        let slot = self.hosts[host].slot;
        let complaints = slot.hca().complaints().to_vec();
        if let Some(first) = complaints.first() {
            return violation("complaint", format!("h{host}: {first}"));
        }
        let strays = slot.views().strays();
        if strays != 0 {
            return violation("stray", format!("h{host}: {strays} stores to memory of nobody"));
        }
        Ok(())
    }

    /// Closes and opens the adapter of a host.
    pub(crate) fn reopen(&mut self, host: usize) -> Check {
        self.close(host)?;
        self.open(host)
    }
}
