//! `dat compat perftest`: one side of ib_send_bw, ib_send_lat, ib_write_bw, ib_write_lat,
//! ib_read_bw, ib_read_lat and ib_atomic_bw, in the plain form of each: one direction, a number of
//! operations, reliable connections that are agreed upon over TCP ([`talk`]).
//!
//! What can be verified without a word between the two is: messages are counted and have the right
//! length; writes are polled for as over there; what is added atomically adds up. More rests on
//! habits of those programs, which some of their options change, so it is done only if asked for:
//! whatever comes from one place is the same every time ([`slots`]), writes arrive where they
//! should and nowhere else.
//!
//! What it does not do: both directions at once, tests by time, other transports, connections made
//! by the connection manager.

mod bandwidth;
mod latency;
mod plan;
mod slots;
mod talk;

use std::net::IpAddr;

use dat_core::cm::QpTerms;
use dat_core::provider::{Mtu, Provider};
use dat_core::{LmrTriplet, MemPriv, RmrTriplet};
use serde::Serialize;
use vfio_host::{Host, Nic};

use super::super::End;
use super::super::failure::Failure;
use super::super::out::Out;
use super::super::traffic::adapter::{self, Task};
use super::super::traffic::contents;
use super::super::traffic::histogram::Latency;
use super::super::traffic::memory::Memory;
use super::args::{AtomicKind, PerfTest, Perftest};
use super::link::Links;
use super::oob::{self, Address};
use plan::{ALIGN, MOST, Plan, SENDS, Verb, place};
use slots::{Seen, Slots};
use talk::{Key, Report, Talk};

/// Retries as over there: without acknowledgement, without a receive.
const RETRIES: (u8, u8) = (7, 7);
/// Bytes of 2^20.
const MIB: f64 = 1_048_576.0;

/// What is reported at the end.
#[derive(Debug, Serialize)]
struct Results {
    test: PerfTest,
    role: &'static str,
    peer: String,
    connections: usize,
    size: u32,
    mtu: u32,
    /// Over all connections; the server of ib_read_lat reports none.
    operations: Option<u64>,
    verified: bool,
    /// As measured here, or else as the other side tells.
    seconds: Option<f64>,
    megabytes_per_second: Option<f64>,
    operations_per_second: Option<f64>,
    /// One way, or a whole read.
    latency_us: Option<Latency>,
}

/// What a run has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    operations: Option<u64>,
    seconds: Option<f64>,
    latency: Option<Latency>,
}

pub(super) fn run(perftest: &Perftest, out: &Out) -> Result<End, Failure> {
    let plan = Plan::new(perftest)?;
    let session = Session { perftest, plan, out };
    let results = adapter::with(&perftest.adapter, session)?;
    out.result(&results, &words(&results))?;
    Ok(End::Ok)
}

fn words(results: &Results) -> String {
    let Results { test, role, peer, connections, size, operations, verified, .. } = results;
    let what = match test.verb() {
        Verb::Send => "messages",
        Verb::Write => "writes",
        Verb::Read => "reads",
        Verb::Atomic => "atomics",
    };
    let checked = if *verified { ", verified" } else { "" };
    let count = operations.map_or_else(String::new, |count| format!("{count} "));
    let mut text = format!(
        "{} {role}: {count}{what} of {size} bytes with {peer} over {connections} connections{checked}\n",
        test.program()
    );
    if let (Some(seconds), Some(bytes), Some(rate)) =
        (results.seconds, results.megabytes_per_second, results.operations_per_second)
    {
        text.push_str(&format!("{seconds:.3} s, {bytes:.2} MB/s, {rate:.0} a second\n"));
    }
    if let Some(Latency { min, median, max, .. }) = results.latency_us {
        let way = if test.verb() == Verb::Read { "a read" } else { "one way" };
        text.push_str(&format!("{way}: min {min:.1} us, median {median:.1} us, max {max:.1} us\n"));
    }
    text
}

/// What the two sides have agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    /// Stretch of memory in which small operations wander.
    pub(super) cycle: usize,
    /// Least distance of two of them.
    pub(super) line: usize,
    /// Greatest payload of a packet.
    pub(super) mtu: Mtu,
}

struct Session<'a> {
    perftest: &'a Perftest,
    plan: Plan,
    out: &'a Out,
}

impl Task for Session<'_> {
    type Report = Results;

    fn run<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Results, Failure> {
        let Self { perftest, plan, out } = self;
        let limits = nic.provider().limits();
        let (mtu, most) = (limits.mtu, limits.max_reads);
        if plan.verb == Verb::Atomic && !limits.atomics {
            return Err(Failure::new(format!("{} has no atomics", nic.host().name()))
                .remedy("dat info says what it has"));
        }
        let mut links = Links::new(nic, plan.makings(), &perftest.patience, plan.test.program())?;
        let mut talk = Talk::meet(nic, perftest)?;
        let agreed = talk.agree(nic, &mut links, mtu)?;
        let mut table = Table::new(nic, links, plan, agreed)?;
        let reads = match plan.verb {
            Verb::Read | Verb::Atomic => perftest.outs.map_or(most, |outs| outs.min(most)),
            Verb::Send | Verb::Write => 1,
        };
        table.connect(nic, &mut talk, reads, perftest.qp_timeout)?;
        let ran = match (plan.bandwidth, plan.client, plan.verb) {
            (true, true, _) => table.call(nic, *out)?,
            (true, false, Verb::Send) => table.count(nic, *out)?,
            (false, _, Verb::Send) => table.send_in_turn(nic, *out)?,
            (false, _, Verb::Write) => table.write_in_turn(nic, *out)?,
            (false, true, _) => table.read_each(nic, *out)?,
            (_, false, _) => Ran::default(),
        };
        let ran = table.end(nic, &mut talk, ran)?;
        let peer = table.links.peer.clone();
        table.free(nic)?;
        Ok(results(&plan, &agreed, peer, &ran))
    }
}

fn results(plan: &Plan, agreed: &Agreed, peer: String, ran: &Ran) -> Results {
    #[expect(clippy::cast_precision_loss, reason = "figures to look at")]
    let rate = ran
        .operations
        .zip(ran.seconds)
        .map(|(operations, seconds)| operations as f64 / seconds)
        .filter(|rate| plan.bandwidth && rate.is_finite());
    let size = u32::try_from(plan.size).unwrap_or(u32::MAX);
    Results {
        test: plan.test,
        role: if plan.client { "client" } else { "server" },
        peer,
        connections: plan.connections,
        size,
        mtu: agreed.mtu.bytes(),
        operations: ran.operations,
        verified: plan.verify,
        seconds: ran.seconds,
        megabytes_per_second: rate.map(|rate| rate * f64::from(size) / 1e6),
        operations_per_second: rate,
        latency_us: ran.latency,
    }
}

/// The connections and their memory.
struct Table<'p, H: Host> {
    plan: Plan,
    agreed: Agreed,
    links: Links,
    slots: Slots,
    /// Bytes of one connection's part of what is sent or open.
    span: usize,
    /// What goes out; for reads and atomics, where it comes in.
    near: Memory<'p, H>,
    /// What is open to the other side; for sends, where they come in.
    open: Memory<'p, H>,
    /// What was in the open memory at first.
    before: Vec<u8>,
    /// Memory of the other side, for each connection.
    far: Vec<RmrTriplet>,
    /// What came, for each connection.
    seen: Vec<Seen>,
    own: Vec<Key>,
    keys: Vec<Key>,
}

impl<'p, H: Host> Table<'p, H> {
    fn new(
        nic: &mut Nic<'_, 'p, H>,
        links: Links,
        plan: Plan,
        agreed: Agreed,
    ) -> Result<Self, Failure> {
        let span = plan.size.max(agreed.cycle);
        let whole = span * plan.connections;
        if whole > MOST {
            return Err(Failure::new(format!(
                "the peer's pages of {} bytes, times {} connections, are more than 4M",
                agreed.cycle, plan.connections
            ))
            .remedy("give a smaller -q on both sides"));
        }
        let inward = plan.connections * usize::from(plan.places) * place(plan.size);
        let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let sink = matches!(plan.verb, Verb::Read | Verb::Atomic);
        let near = if sink {
            Memory::new(nic, links.pz, inward.max(ALIGN), local)?
        } else {
            Memory::new(nic, links.pz, whole, MemPriv::LOCAL_READ)?
        };
        // Nothing is open to a side that does not reach into this one.
        let polled = plan.verb == Verb::Write && !plan.bandwidth;
        let rights = match plan.verb {
            Verb::Write if polled || !plan.client => local | MemPriv::REMOTE_WRITE,
            Verb::Read if !plan.client => MemPriv::LOCAL_READ | MemPriv::REMOTE_READ,
            Verb::Atomic if !plan.client => local | MemPriv::REMOTE_ATOMIC,
            Verb::Send | Verb::Write | Verb::Read | Verb::Atomic => local,
        };
        let len = if plan.verb == Verb::Send { inward.max(ALIGN) } else { whole };
        let open = Memory::new(nic, links.pz, len, rights)?;
        let mut before = vec![0; len];
        contents::fill(adapter::seed(nic), 1, &mut before);
        if polled {
            // The counter's place, and the zeros around it, are what the program over there has.
            before.fill(!0);
            if let Some(last) = before.get_mut(plan.size - 1) {
                *last = 0;
            }
        } else if !sink {
            let mut bytes = vec![0; whole];
            contents::fill(adapter::seed(nic), 0, &mut bytes);
            near.store(0, &bytes);
        }
        open.store(0, &before);
        Ok(Self {
            slots: Slots::new(plan.size, &agreed, plan.bandwidth),
            links,
            span,
            near,
            open,
            before,
            far: Vec::new(),
            seen: vec![Seen::default(); plan.connections],
            own: Vec::new(),
            keys: Vec::new(),
            plan,
            agreed,
        })
    }

    fn free(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        self.links.free(nic, [self.near, self.open])
    }

    /// Swaps keys, connects, and waits until both have.
    fn connect(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        talk: &mut Talk,
        reads: u8,
        ack_timeout: u8,
    ) -> Result<(), Failure> {
        let place = oob::place(nic)?;
        let (addr, _, rkey) = self.open.far();
        for link in 0..self.plan.connections {
            let qpn = self.links.qpn(nic, link)?;
            let [.., a, b, c] = adapter::seed(nic).to_be_bytes();
            self.own.push(Key {
                address: Address::new(qpn, u32::from_be_bytes([0, a, b, c]), place),
                reads: reads.into(),
                rkey,
                addr: addr + (link * self.span) as u64,
            });
        }
        if self.plan.verb == Verb::Send {
            self.receive_all(nic)?;
        }
        let Some(first) = self.own.first().copied() else {
            return Ok(());
        };
        let (limit, what) = (talk.timeout(), "that it is ready");
        let sends = self.plan.verb == Verb::Send;
        // Programs that measure the latency of RDMA say their first key twice.
        let twice = if !self.plan.bandwidth && !sends {
            Some(talk.step(nic, &mut self.links, &first, None, limit, "its queue pair")?)
        } else {
            None
        };
        self.keys = talk.keys(nic, &mut self.links, &self.own)?;
        if let (Some(twice), Some(far)) = (twice, self.keys.first()) {
            if twice.address.qpn != far.address.qpn {
                return Err(Failure::new("the peer's first two keys differ")
                    .remedy(format!("is it {} with one connection?", self.plan.test.program())));
            }
        }
        for link in 0..self.plan.connections {
            self.connect_one(nic, link, place.0, reads, ack_timeout)?;
        }
        let far = self.keys.first().copied();
        if sends {
            talk.step(nic, &mut self.links, &first, far.as_ref(), limit, what)?;
        }
        for (own, far) in self.own.iter().zip(&self.keys) {
            talk.step(nic, &mut self.links, own, Some(far), limit, what)?;
        }
        talk.step(nic, &mut self.links, &first, far.as_ref(), limit, what)?;
        Ok(())
    }

    fn connect_one(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        link: usize,
        local: IpAddr,
        reads: u8,
        ack_timeout: u8,
    ) -> Result<(), Failure> {
        let (Some(own), Some(far)) = (self.own.get(link), self.keys.get(link)) else {
            return Ok(());
        };
        let remote = far.ip(local)?;
        self.links.peer = remote.to_string();
        let (retry_count, rnr_retry) = RETRIES;
        let limits = nic.provider().limits();
        let (most, class) = (limits.max_reads, limits.classes.best_effort);
        let terms = QpTerms {
            remote_qpn: far.address.qpn,
            rq_psn: far.address.psn,
            sq_psn: own.address.psn,
            mtu: self.agreed.mtu,
            responder_resources: reads,
            initiator_depth: u8::try_from(far.reads).unwrap_or(u8::MAX).clamp(1, most.max(1)),
            retry_count,
            rnr_retry,
            ack_timeout,
            class,
        };
        self.far.push(RmrTriplet {
            addr: far.addr,
            len: u32::try_from(self.span).unwrap_or(u32::MAX),
            context: far.rkey,
        });
        self.links.connect_direct(nic, link, remote, &terms)
    }

    /// The end, which both sides have to reach.
    fn end(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        talk: &mut Talk,
        mut ran: Ran,
    ) -> Result<Ran, Failure> {
        let plan = self.plan;
        let blind = !plan.client && plan.verb != Verb::Send;
        let limit = if blind { plan.wait.max(talk.timeout()) } else { talk.timeout() };
        let (Some(own), far) = (self.own.first().copied(), self.keys.first().copied()) else {
            return Ok(ran);
        };
        let what = "that it has done all";
        if plan.bandwidth && plan.verb != Verb::Send {
            talk.step(nic, &mut self.links, &own, far.as_ref(), limit, what)?;
            let own = self.figures(&ran);
            let figures = talk.report(nic, &mut self.links, &own)?;
            if blind {
                ran = self.judged(&figures)?;
                self.intact()?;
            }
        }
        if plan.verb == Verb::Write && !plan.bandwidth {
            // Nobody says anything at the end of this one, and the last word of all was a write of
            // the client.
            if !plan.client {
                talk.linger(nic)?;
            }
            self.polled()?;
        } else {
            talk.step(nic, &mut self.links, &own, far.as_ref(), limit, what)?;
        }
        Ok(ran)
    }

    #[expect(clippy::cast_precision_loss, reason = "figures to look at")]
    fn figures(&self, ran: &Ran) -> Report {
        let operations = ran.operations.unwrap_or(0);
        let rate = ran.seconds.map_or(0.0, |seconds| operations as f64 / seconds);
        Report {
            size: self.plan.size as u64,
            operations,
            mean: rate * self.plan.size as f64 / MIB,
            rate: rate / 1e6,
        }
    }

    /// What the client has reported, if it can be so.
    #[expect(clippy::cast_precision_loss, reason = "figures to look at")]
    fn judged(&self, figures: &Report) -> Result<Ran, Failure> {
        let (size, all) = (self.plan.size as u64, self.plan.all());
        let peer = &self.links.peer;
        if figures.size != size {
            return Err(Failure::new(format!(
                "{peer} moved {} bytes at a time instead of {size}",
                figures.size
            ))
            .remedy("give the same -s on both sides"));
        }
        if figures.operations != all {
            return Err(Failure::new(format!(
                "{peer} did {} operations instead of {all}",
                figures.operations
            ))
            .remedy("give the same -n and -q on both sides"));
        }
        let seconds = Some(all as f64 / (figures.rate * 1e6));
        Ok(Ran {
            operations: Some(all),
            seconds: seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0),
            latency: None,
        })
    }

    /// Whether the open memory of a server is as the client's operations should have left it.
    fn intact(&self) -> Result<(), Failure> {
        let plan = &self.plan;
        if !plan.verify {
            return Ok(());
        }
        let mut now = vec![0; self.before.len()];
        self.open.load(0, &mut now);
        let parts = self.before.chunks(self.span).zip(now.chunks(self.span));
        for (link, (before, now)) in parts.enumerate() {
            let touched = self.slots.touched(plan.size, plan.iters, before.len());
            match plan.verb {
                Verb::Send | Verb::Read => {}
                Verb::Write => {
                    if let Some(at) = slots::wrong(before, now, &touched) {
                        return Err(self.misplaced(link, at));
                    }
                }
                Verb::Atomic => {
                    let outside = |at: &usize| {
                        before.get(*at) != now.get(*at) && touched.get(*at) == Some(&false)
                    };
                    if let Some(at) = (0..before.len()).find(outside) {
                        return Err(self.misplaced(link, at));
                    }
                    let grown = slots::growth(before, now, self.slots);
                    if plan.atomic == AtomicKind::FetchAndAdd && grown != plan.iters {
                        return Err(Failure::new(format!(
                            "connection {link}: {} additions of 1 by {} add up to {grown}",
                            plan.iters, self.links.peer
                        ))
                        .remedy("is it ib_atomic_bw -A FETCH_AND_ADD, without --perform_warm_up? if so, one of the two adapters counts wrongly"));
                    }
                }
            }
        }
        Ok(())
    }

    fn misplaced(&self, link: usize, at: usize) -> Failure {
        Failure::new(format!(
            "connection {link}: memory is wrong from byte {at} on, after the operations of {}",
            self.links.peer
        ))
        .remedy("-V wants a peer without -l, --flows and payload options; else one of the two adapters moved it wrongly: try two of a kind")
    }

    /// Memory of the other side for operation `number`.
    fn far(&self, link: usize, number: u64) -> RmrTriplet {
        let far = self.far.get(link).copied();
        let far = far.unwrap_or(RmrTriplet { addr: 0, len: 0, context: 0 });
        RmrTriplet {
            addr: far.addr.wrapping_add(self.slots.at(number) as u64),
            len: u32::try_from(self.plan.size).unwrap_or(u32::MAX),
            ..far
        }
    }

    /// What goes out in operation `number`.
    fn outward(&self, link: usize, number: u64) -> LmrTriplet {
        let at = link * self.span + self.slots.at(number);
        self.near.local(at, self.plan.size)
    }

    /// Where the place of operation `number` begins, of those for what comes in.
    fn inward(&self, link: usize, number: u64) -> usize {
        let places = u64::from(self.plan.places.max(1));
        let turn = usize::try_from(number % places).unwrap_or(0);
        (link * usize::from(self.plan.places) + turn) * place(self.plan.size)
    }
}
