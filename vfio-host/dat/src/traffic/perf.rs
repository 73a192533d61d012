//! `dat perf`: measures the rate and bandwidth of operations in flight.
//!
//! The peer reports how many operations it has verified, which limits the number in flight. So the
//! result counts operations that arrived with correct contents, not posted ones.

use std::time::Instant;

use dat_core::{CompletionFlags, DtoEvent, DtoOperation, Event, MemPriv, Rmr, RmrTriplet};
use serde::Serialize;
use vfio_host::{Host, Nic};

use super::super::End;
use super::super::args::Perf;
use super::super::failure::Failure;
use super::super::out::{Out, progress};
use super::adapter::{self, Task, dat};
use super::call::{Call, Callee};
use super::hello::{Hello, Kind, Message, Saying};

/// The result.
#[derive(Debug, Serialize)]
struct Report {
    peer: String,
    test: Kind,
    size: u32,
    depth: u16,
    /// Number of operations, all verified.
    count: u64,
    seconds: f64,
    operations_per_second: f64,
    /// Payload only; `None` for binds, which move no data.
    #[serde(skip_serializing_if = "Option::is_none")]
    megabytes_per_second: Option<f64>,
}

pub(crate) fn run(perf: &Perf, out: &Out) -> Result<End, Failure> {
    let callee =
        Callee { peer: perf.peer.address(&perf.adapter)?, timeout: perf.timeout, spin: perf.poll };
    let hello = Hello {
        kind: perf.kind,
        depth: perf.depth,
        size: perf.size,
        count: perf.count,
        seed: 0,
        mtu: 0,
    };
    hello.check().map_err(Failure::usage)?;
    let report = adapter::with(&perf.adapter, Measuring { perf, callee, hello, out })?;
    out.result(&report, &words(&report))?;
    Ok(End::Ok)
}

fn words(report: &Report) -> String {
    let Report {
        peer,
        test,
        size,
        depth,
        count,
        seconds,
        operations_per_second,
        megabytes_per_second,
    } = report;
    let bytes = match megabytes_per_second {
        Some(rate) => format!(", {rate:.1} MB/s"),
        None => String::new(),
    };
    format!(
        "{} with {peer}: {count} operations of {size} bytes, {depth} in flight, all verified\n\
         {seconds:.3} s, {operations_per_second:.0} operations/s{bytes}\n",
        test.name()
    )
}

struct Measuring<'a> {
    perf: &'a Perf,
    callee: Callee,
    hello: Hello,
    out: &'a Out,
}

impl Task for Measuring<'_> {
    type Report = Report;

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn run<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Report, Failure> {
        let Self { perf, callee, hello, out } = self;
        let call = Call::new(nic, callee, hello)?;
        let mut run = Run::new(nic, call)?;
        let bar = progress(*out, perf.count, perf.kind.name());
        let start = Instant::now();
        while run.verified < perf.count {
            run.post_all(nic)?;
            let Some(event) = run.call.next(nic)? else {
                return Err(Failure::new(format!(
                    "interrupted after {} of {} operations",
                    run.verified, perf.count
                )));
            };
            run.event(nic, &event)?;
            // All that came since, so that what it makes room for is posted under one doorbell.
            while let Some(event) = run.call.pending(nic)? {
                run.event(nic, &event)?;
            }
            bar.set_position(run.verified.max(run.completed));
        }
        let seconds = start.elapsed().as_secs_f64();
        bar.finish_and_clear();
        run.part(nic)?;
        let rate = perf.count as f64 / seconds.max(1e-9);
        Ok(Report {
            peer: callee.peer.to_string(),
            test: perf.kind,
            size: perf.size,
            depth: perf.depth,
            count: perf.count,
            seconds,
            operations_per_second: rate,
            megabytes_per_second: (perf.kind != Kind::Bind)
                .then(|| rate * f64::from(perf.size) / 1e6),
        })
    }
}

/// A running test.
struct Run<'p, H: Host> {
    call: Call<'p, H>,
    rmr: Option<Rmr>,
    /// The key of the latest bind.
    window: u32,
    posted: u64,
    completed: u64,
    /// The number of operations that the peer has verified.
    verified: u64,
}

impl<'p, H: Host> Run<'p, H> {
    fn new(nic: &mut Nic<'_, 'p, H>, mut call: Call<'p, H>) -> Result<Self, Failure> {
        let mut rmr = None;
        if call.conn.hello.kind == Kind::Bind {
            call.conn.fill_far();
            let pz = call.conn.pz();
            rmr = Some(nic.rmr_create(pz).map_err(|e| dat("dat_rmr_create", e))?);
        }
        Ok(Self { call, rmr, window: 0, posted: 0, completed: 0, verified: 0 })
    }

    /// Returns whether another operation may be posted.
    fn may_post(&self) -> bool {
        let Hello { kind, count, depth, .. } = self.call.conn.hello;
        let depth = u64::from(depth);
        // An operation must not destroy one that the peer has not verified yet: a message without a
        // receive, a write over another one, a window bound anew while the peer reads through it.
        let unverified = match kind {
            Kind::Ping | Kind::Send | Kind::Bind => depth,
            Kind::Write => 2 * depth,
            Kind::Read => u64::MAX,
        };
        self.posted < count
            && self.posted - self.completed < depth
            && self.posted - self.verified < unverified
    }

    /// Returns a piece of the peer's memory.
    fn far(&self, number: u64) -> RmrTriplet {
        let at = self.call.conn.hello.server().far.of(number);
        RmrTriplet {
            addr: self.call.welcome.addr.wrapping_add(at as u64),
            len: self.call.conn.hello.size,
            context: self.call.welcome.context,
        }
    }

    /// Posts what may be posted, under one doorbell.
    fn post_all(&mut self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let before = self.posted;
        while self.may_post() {
            self.post(nic)?;
        }
        if self.posted == before { Ok(()) } else { self.call.conn.ring(nic) }
    }

    fn post(&mut self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let number = self.posted;
        let far = self.far(number);
        let conn = &mut self.call.conn;
        let Hello { kind, depth, count, .. } = conn.hello;
        match kind {
            Kind::Ping | Kind::Send => {
                conn.fill(number, number);
                conn.send(nic, number, number)?;
            }
            Kind::Write => {
                conn.fill(number, number);
                conn.write(nic, number, far, number)?;
            }
            Kind::Read => conn.read(nic, number, far, number)?,
            Kind::Bind => self.bind(nic, number)?,
        }
        self.posted += 1;
        let batch = self.posted.is_multiple_of(depth.into()) || self.posted == count;
        if batch && matches!(kind, Kind::Write | Kind::Bind) {
            self.claim(nic)?;
        }
        Ok(())
    }

    fn bind(&mut self, nic: &mut Nic<'_, 'p, H>, number: u64) -> Result<(), Failure> {
        let conn = &self.call.conn;
        let (Some(rmr), Some(far)) = (self.rmr, conn.far()) else {
            return Ok(());
        };
        let range = far.local(conn.layout.far.of(number), conn.hello.bytes_of_one());
        self.window = nic
            .rmr_bind(rmr, &range, MemPriv::REMOTE_READ, conn.ep, number, CompletionFlags::empty())
            .map_err(|ret| dat("dat_rmr_bind", ret))?;
        Ok(())
    }

    /// Sends the message that all operations posted so far are done. That is true when it arrives,
    /// because requests execute in order.
    fn claim(&mut self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let last = self.posted.saturating_sub(1);
        let mut message = Message::new(Saying::Verify, self.posted);
        let conn = &mut self.call.conn;
        if let (Kind::Bind, Some(far)) = (conn.hello.kind, conn.far()) {
            message.addr = far.far().0.wrapping_add(conn.layout.far.of(last) as u64);
            message.context = self.window;
            message.len = conn.hello.size;
        }
        conn.say(nic, &message)
    }

    fn event(&mut self, nic: &mut Nic<'_, 'p, H>, event: &Event) -> Result<(), Failure> {
        match (event, self.call.conn.hello.kind) {
            (Event::RmrBind { .. }, Kind::Bind) => self.completed += 1,
            (Event::Dto(dto), kind) => match (dto.operation, kind) {
                (DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate, _) => {
                    self.received(nic, dto)?;
                }
                (DtoOperation::Send, Kind::Send) | (DtoOperation::RdmaWrite, Kind::Write) => {
                    self.completed += 1;
                }
                (DtoOperation::RdmaRead, Kind::Read) => self.read(nic, dto.cookie)?,
                // A message about the test was sent.
                (
                    DtoOperation::Send
                    | DtoOperation::RdmaWrite
                    | DtoOperation::RdmaRead
                    | DtoOperation::BindMw
                    | DtoOperation::LmrFmr
                    | DtoOperation::LmrInvalidate,
                    _,
                ) => {}
            },
            (_, _) => {}
        }
        Ok(())
    }

    /// Verifies a completed read.
    fn read(&mut self, nic: &mut Nic<'_, 'p, H>, number: u64) -> Result<(), Failure> {
        let conn = &mut self.call.conn;
        let contents = number % conn.hello.server().far.count.max(1) as u64;
        if let Some(at) = conn.read_wrong(number, contents) {
            return Err(Failure::new(format!(
                "read {number} has wrong contents from byte {at} on"
            )));
        }
        self.completed += 1;
        if self.completed == self.call.conn.hello.count {
            self.claim(nic)?;
        }
        Ok(())
    }

    /// Processes a message of the peer about the test.
    fn received(&mut self, nic: &mut Nic<'_, 'p, H>, dto: &DtoEvent) -> Result<(), Failure> {
        let conn = &self.call.conn;
        let Some(message) = conn.message(dto.cookie, dto.len) else {
            return Err(Failure::new("the peer sent a malformed message")
                .remedy("are both dat of the same version?"));
        };
        let Message { number, addr, .. } = message;
        match message.saying {
            Saying::Verified if number > self.verified && number <= self.posted => {
                self.verified = number;
                conn.post_recv(nic, dto.cookie)
            }
            Saying::Wrong => Err(Failure::new(format!(
                "the peer found operation {number} with wrong contents from byte {addr} on"
            ))),
            Saying::Verified | Saying::Verify => Err(Failure::new(format!(
                "the peer claims to have verified {number} operations of {} posted",
                self.posted
            ))),
        }
    }

    fn part(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        if let Some(rmr) = self.rmr {
            nic.rmr_free(rmr).map_err(|e| dat("dat_rmr_free", e))?;
        }
        self.call.part(nic)
    }
}
