//! The client's side of a measurement: posts what may be posted, counts what has been verified.

use std::time::{Duration, Instant};

use dat_core::{DtoEvent, DtoOperation, Event, MemPriv, Rmr, RmrTriplet};
use vfio_host::{Host, Nic};

use super::super::super::failure::Failure;
use super::super::adapter::dat;
use super::super::call::{Call, Stop};
use super::super::ends::Ends;
use super::super::hello::{Hello, Kind, Message, Saying};
use super::super::histogram::Histogram;
use super::super::view::View;

/// A part of a test that is ended by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Nothing is measured yet.
    Warming,
    /// Times are taken.
    Measuring,
    /// What is out comes to its end.
    Stopping,
}

/// A running test.
pub(super) struct Run<'p, H: Host> {
    pub(super) call: Call<'p, H>,
    /// It ends after so many operations.
    pub(super) target: u64,
    /// When each operation in flight was posted, or ought to have been, by its number modulo the
    /// depth.
    starts: Vec<Instant>,
    pub(super) times: Histogram,
    rmr: Option<Rmr>,
    /// The key of the latest bind.
    window: u32,
    posted: u64,
    pub(super) completed: u64,
    /// The number of operations that the peer has verified.
    pub(super) verified: u64,
    /// When the first operation is due, and how many in a second.
    pace: Option<(Instant, f64)>,
    /// Times are taken.
    measures: bool,
    /// What the peer saw until the measurement began, and until its latest message.
    views: [View; 2],
}

impl<'p, H: Host> Run<'p, H> {
    /// Makes one that posts so many operations in a second, or each as soon as it may.
    pub(super) fn new(
        nic: &mut Nic<'_, 'p, H>,
        mut call: Call<'p, H>,
        rate: Option<f64>,
    ) -> Result<Self, Failure> {
        let mut rmr = None;
        if call.conn.hello.kind == Kind::Bind {
            call.conn.fill_far();
            let pz = call.conn.pz();
            rmr = Some(nic.rmr_create(pz).map_err(|e| dat("dat_rmr_create", e))?);
        }
        let Hello { depth, count, .. } = call.conn.hello;
        Ok(Self {
            call,
            target: if count == 0 { u64::MAX } else { count },
            starts: vec![Instant::now(); depth.into()],
            times: Histogram::new(),
            rmr,
            window: 0,
            posted: 0,
            completed: 0,
            verified: 0,
            pace: rate.map(|rate| (Instant::now(), rate)),
            measures: true,
            views: [View::default(); 2],
        })
    }

    /// Begins or ends the measurement.
    pub(super) fn enter(&mut self, phase: Phase) {
        match phase {
            Phase::Warming => self.measures = false,
            Phase::Measuring => {
                self.measures = true;
                self.views[0] = self.views[1];
            }
            Phase::Stopping => self.stop(),
        }
    }

    /// Returns what the peer saw of the measurement.
    pub(super) fn peer_view(&self) -> View {
        self.views[1].since(self.views[0])
    }

    /// Returns whether all is done and verified.
    pub(super) fn is_over(&self) -> bool {
        self.verified >= self.target
    }

    /// Returns when the next operation is planned for.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn planned(&self) -> Option<Instant> {
        let (start, rate) = self.pace?;
        Some(
            start
                + Duration::try_from_secs_f64(self.posted as f64 / rate)
                    .unwrap_or(Duration::MAX / 2),
        )
    }

    /// Returns when the next operation is due, if it is not yet.
    pub(super) fn due(&self) -> Option<Instant> {
        self.planned().filter(|due| *due > Instant::now())
    }

    /// Ends a test without a count: with the next operation after which the peer reports. Those until
    /// then come at once, and their times are not taken.
    fn stop(&mut self) {
        (self.pace, self.measures) = (None, false);
        let Hello { depth, .. } = self.call.conn.hello;
        let unit = u64::from(depth) * self.call.conn.hello.step();
        // One more at the least: of reads the last completion has the peer asked.
        self.target = self.target.min((self.posted + 1).next_multiple_of(unit));
    }

    /// The oldest operation in flight is done.
    fn complete(&mut self) {
        let slot = self.slot(self.completed);
        if self.measures {
            if let Some(start) = self.starts.get(slot) {
                self.times.add(start.elapsed());
            }
        }
        self.completed += 1;
    }

    fn slot(&self, number: u64) -> usize {
        let slots = u64::try_from(self.starts.len()).unwrap_or(1).max(1);
        usize::try_from(number % slots).unwrap_or(0)
    }

    /// Returns whether something has to come from the peer before it goes on.
    pub(super) fn waits_for_peer(&self) -> bool {
        !self.is_over() && (self.completed < self.posted || self.due().is_none())
    }

    /// Returns whether another operation may be posted.
    pub(super) fn may_post(&self) -> bool {
        let Hello { kind, depth, .. } = self.call.conn.hello;
        let depth = u64::from(depth);
        // An operation must not destroy one that the peer has not verified yet: a message without a
        // receive, a write over another one, a window bound anew while the peer reads through it.
        let unverified = match kind {
            Kind::Ping | Kind::Send | Kind::Bind => depth,
            Kind::Write => 2 * depth,
            Kind::Read => u64::MAX,
        };
        self.posted < self.target
            && self.due().is_none()
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
    pub(super) fn post_all(&mut self, ends: &mut impl Ends) -> Result<(), Failure> {
        let before = self.posted;
        while self.may_post() {
            self.post(ends)?;
        }
        if self.posted == before { Ok(()) } else { self.call.conn.ring(ends) }
    }

    fn post(&mut self, ends: &mut impl Ends) -> Result<(), Failure> {
        let number = self.posted;
        let far = self.far(number);
        let slot = self.slot(number);
        // What is late waits already: else a stall would count once, not for each it holds up.
        let planned = self.planned();
        if let Some(start) = self.starts.get_mut(slot) {
            *start = planned.unwrap_or_else(Instant::now);
        }
        let conn = &mut self.call.conn;
        let Hello { kind, depth, .. } = conn.hello;
        match kind {
            Kind::Ping | Kind::Send => {
                conn.fill(number, number);
                conn.send(ends, number, number)?;
            }
            Kind::Write => {
                conn.fill(number, number);
                conn.write(ends, number, far, number)?;
            }
            Kind::Read => conn.read(ends, number, far, number)?,
            Kind::Bind => self.bind(ends, number)?,
        }
        self.posted += 1;
        let batch = self.posted % u64::from(depth) == 0 || self.posted == self.target;
        if batch && matches!(kind, Kind::Write | Kind::Bind) {
            self.claim(ends)?;
        }
        Ok(())
    }

    fn bind(&mut self, ends: &mut impl Ends, number: u64) -> Result<(), Failure> {
        let conn = &self.call.conn;
        let (Some(rmr), Some(far)) = (self.rmr, conn.far()) else {
            return Ok(());
        };
        let range = far.local(conn.layout.far.of(number), conn.hello.bytes_of_one());
        self.window = ends
            .rmr_bind(rmr, &range, MemPriv::REMOTE_READ, conn.ep, number)
            .map_err(|ret| dat("dat_rmr_bind", ret))?;
        Ok(())
    }

    /// Sends the message that all operations posted so far are done. That is true when it arrives,
    /// because requests execute in order.
    fn claim(&mut self, ends: &mut impl Ends) -> Result<(), Failure> {
        let last = self.posted.saturating_sub(1);
        let mut message = Message::new(Saying::Verify, self.posted);
        let conn = &mut self.call.conn;
        if let (Kind::Bind, Some(far)) = (conn.hello.kind, conn.far()) {
            message.addr = far.far().0.wrapping_add(conn.layout.far.of(last) as u64);
            message.context = self.window;
            message.len = conn.hello.size;
        }
        conn.say(ends, &message)
    }

    /// Takes all events there are, so that what they make room for is posted under one doorbell.
    /// Returns whether there was one.
    pub(super) fn take_all(&mut self, ends: &mut impl Ends) -> Result<bool, Stop> {
        let mut taken = false;
        while let Some(event) = self.call.pending(ends)? {
            self.event(ends, &event)?;
            taken = true;
        }
        Ok(taken)
    }

    fn event(&mut self, ends: &mut impl Ends, event: &Event) -> Result<(), Failure> {
        match (event, self.call.conn.hello.kind) {
            (Event::RmrBind { .. }, Kind::Bind) => self.complete(),
            (Event::Dto(dto), kind) => match (dto.operation, kind) {
                (DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate, _) => {
                    self.received(ends, dto)?;
                }
                (DtoOperation::Send, Kind::Send) | (DtoOperation::RdmaWrite, Kind::Write) => {
                    self.complete();
                }
                (DtoOperation::RdmaRead, Kind::Read) => self.read(ends, dto.cookie)?,
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
    fn read(&mut self, ends: &mut impl Ends, number: u64) -> Result<(), Failure> {
        let conn = &mut self.call.conn;
        let contents = number % conn.hello.server().far.count.max(1) as u64;
        if let Some(at) = conn.read_wrong(number, contents) {
            return Err(Failure::new(format!(
                "read {number} has wrong contents from byte {at} on"
            )));
        }
        self.complete();
        if self.completed == self.target {
            self.claim(ends)?;
        }
        Ok(())
    }

    /// Processes a message of the peer about the test.
    fn received(&mut self, ends: &mut impl Ends, dto: &DtoEvent) -> Result<(), Failure> {
        let conn = &self.call.conn;
        let Some(message) = conn.message(dto.cookie, dto.len) else {
            return Err(Failure::new("the peer sent a malformed message")
                .remedy("are both dat of the same version?"));
        };
        let Message { number, addr, .. } = message;
        match message.saying {
            Saying::Verified if number > self.verified && number <= self.posted => {
                self.verified = number;
                self.views[1] = View::of(&message);
                conn.post_recv(ends, dto.cookie)
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

    pub(super) fn part(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        if let Some(rmr) = self.rmr {
            nic.rmr_free(rmr).map_err(|e| dat("dat_rmr_free", e))?;
        }
        self.call.part(nic)
    }
}
