//! The server's side of one test: from a request to its end.
//!
//! Every message of the peer is checked against its hello and against the state of the test. A
//! message that does not fit ends this session only.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use dat_core::{
    CloseFlag, Cr, DtoEvent, DtoOperation, DtoStatus, Ep, Evd, Event, MemPriv, RmrTriplet,
};
use serde::Serialize;
use tracing::{debug, info};
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::adapter::{dat, path_mtu, status};
use super::conn::Conn;
use super::hello::{Hello, Kind, Message, Saying, Welcome, refusal};
use super::view::Watch;

/// A peer that sends nothing for so long is considered gone.
const SILENCE: Duration = Duration::from_secs(60);

/// Longest wait for a requested disconnect.
const PARTING: Duration = Duration::from_secs(2);

/// The end of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "outcome", content = "why")]
pub(super) enum Outcome {
    /// All operations were done and verified.
    Complete,
    /// The client ended it early; all operations until then were verified.
    Ended,
    /// An error ended it.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::Ended => f.write_str("ended early"),
            Self::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

/// The result of a session.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Address of the client.
    pub(super) peer: IpAddr,
    /// Kind of the test.
    pub(super) test: Kind,
    /// Bytes of one operation.
    pub(super) size: u32,
    /// Requested operations; 0 if the client ends the test when it likes.
    pub(super) count: u64,
    /// Operations verified.
    pub(super) verified: u64,
    /// Duration in seconds.
    pub(super) seconds: f64,
    /// Its end.
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, test, size, verified, seconds, outcome, .. } = self;
        let test = test.name();
        write!(f, "{peer}: {test}, {size} bytes, {verified} verified in {seconds:.3} s, {outcome}")
    }
}

/// One running test.
#[derive(Debug)]
pub(super) struct Session<'p, H: Host> {
    conn: Conn<'p, H>,
    peer: IpAddr,
    started: Instant,
    watch: Watch,
    /// When the last event came.
    last_event: Instant,
    /// Number of verified operations.
    verified: u64,
    /// The value of `verified` last reported to the peer.
    reported: u64,
    /// A read through the peer's window is in flight.
    reading: bool,
    outcome: Option<Outcome>,
    /// Completions that came before `Established`: the peer's first data may overtake the last
    /// message of the handshake. At most as many as there are receives.
    early: Option<Vec<DtoEvent>>,
    /// When the disconnect was requested.
    parting: Option<Instant>,
}

/// Returns the peer's rights to the memory offered to it.
fn rights(kind: Kind) -> MemPriv {
    match kind {
        Kind::Write => MemPriv::REMOTE_WRITE,
        Kind::Read => MemPriv::REMOTE_READ,
        Kind::Ping | Kind::Send | Kind::Bind => MemPriv::empty(),
    }
}

impl<'p, H: Host> Session<'p, H> {
    /// Answers a request. Returns a session, or `None` if the request was rejected, because of its
    /// hello or because of `taken`.
    pub(super) fn answer(
        nic: &mut Nic<'_, 'p, H>,
        cr: Cr,
        taken: Result<(), &'static str>,
    ) -> Result<Option<Self>, Failure> {
        let request = nic.cr_query(cr).map_err(|e| dat("dat_cr_query", e))?;
        let peer = request.remote;
        let hello = Hello::read(request.private_data);
        let refused = |nic: &mut Nic<'_, 'p, H>, words: &str| {
            info!("{peer}: refused: {words}");
            nic.cr_reject(cr, &refusal(words)).map_err(|e| dat("dat_cr_reject", e))?;
            Ok(None)
        };
        let hello = match taken.and(hello) {
            Ok(hello) => hello,
            Err(objection) => return refused(nic, objection),
        };
        let mtu = path_mtu(nic);
        if hello.mtu > mtu {
            let words = format!("its packets carry {mtu} bytes at the most: give --mtu {mtu} here");
            return refused(nic, &words);
        }
        let made = Conn::new(nic, hello, hello.server(), rights(hello.kind));
        let mut conn = match made {
            Ok(conn) => conn,
            Err(failure) => {
                debug!("{failure}");
                return refused(nic, "there is no memory left for its buffers");
            }
        };
        if hello.kind == Kind::Read {
            conn.fill_far();
        }
        let welcome = match conn.far() {
            Some(far) => {
                let (addr, len, context) = far.far();
                Welcome { addr, len, context }
            }
            None => Welcome::default(),
        };
        let ready = conn.post_recvs(nic).and_then(|()| {
            nic.cr_accept(cr, Some(conn.ep), &welcome.bytes(&hello))
                .map_err(|e| dat("dat_cr_accept", e))
        });
        if let Err(failure) = ready {
            // The peer has given the request up meanwhile.
            debug!("{peer}: {failure}");
            conn.free(nic)?;
            return Ok(None);
        }
        info!("{peer}: {} of {} bytes", hello.kind.name(), hello.size);
        let now = Instant::now();
        Ok(Some(Self {
            conn,
            peer,
            started: now,
            watch: Watch::start(),
            last_event: now,
            verified: 0,
            reported: 0,
            reading: false,
            outcome: None,
            early: Some(Vec::new()),
            parting: None,
        }))
    }

    /// Returns its Event Dispatcher.
    pub(super) fn evd(&self) -> Evd {
        self.conn.evd
    }

    /// Returns whether it is over.
    pub(super) fn over(&self) -> bool {
        let gone = |since: Instant| since.elapsed() > PARTING;
        self.outcome.is_some() && self.parting.is_none_or(gone)
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.outcome.get_or_insert(Outcome::Failed(why.into()));
    }

    /// Fails the session if the peer has sent nothing for too long.
    pub(super) fn check_silence(&mut self) {
        if self.last_event.elapsed() > SILENCE {
            self.fail(format!("nothing came for {} s", SILENCE.as_secs()));
        }
    }

    /// Processes one event. An error ends this session, not the server.
    pub(super) fn event(&mut self, nic: &mut Nic<'_, 'p, H>, event: Event) {
        self.last_event = Instant::now();
        if let Some(dto) = self.conn.dto(&event) {
            match &mut self.early {
                Some(early) => early.push(dto),
                None => self.take(nic, dto),
            }
        } else if event == Event::Established(self.conn.ep) {
            self.started = self.last_event;
            self.watch = Watch::start();
            for dto in self.early.take().unwrap_or_default() {
                self.take(nic, dto);
            }
        } else if event.is_terminal() {
            self.parting = None;
            self.ended(nic, event, self.conn.ep);
        }
    }

    fn ended(&mut self, nic: &Nic<'_, 'p, H>, event: Event, ep: Ep) {
        let count = self.conn.hello.count;
        let outcome = if let Event::Disconnected(_) = event {
            // The end of a test without a count is the client's, once it knows of all.
            let is_whole = if count == 0 && self.conn.hello.kind != Kind::Ping {
                self.verified != 0 && self.verified == self.reported
            } else {
                count != 0 && self.verified == count
            };
            if is_whole { Outcome::Complete } else { Outcome::Ended }
        } else {
            Outcome::Failed(match nic.ep_cause(ep) {
                Ok(Some(fault)) => format!("the connection broke: {fault}"),
                Ok(None) | Err(_) => format!("the connection broke: {event:?}"),
            })
        };
        self.outcome.get_or_insert(outcome);
    }

    fn take(&mut self, nic: &mut Nic<'_, 'p, H>, dto: DtoEvent) {
        if self.outcome.is_none() {
            if let Err(failure) = self.completion(nic, dto) {
                self.fail(failure.cause);
            }
        }
    }

    fn completion(&mut self, nic: &mut Nic<'_, 'p, H>, dto: DtoEvent) -> Result<(), Failure> {
        if dto.status == DtoStatus::ErrFlushed {
            // A separate event reports the end of the connection.
            return Ok(());
        }
        if dto.status != DtoStatus::Success {
            return Err(Failure::new(status(dto.status).0));
        }
        match dto.operation {
            DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate => {
                self.received(nic, dto.cookie, dto.len)
            }
            DtoOperation::RdmaRead => self.read(nic, dto.cookie),
            DtoOperation::Send
            | DtoOperation::RdmaWrite
            | DtoOperation::BindMw
            | DtoOperation::LmrFmr
            | DtoOperation::LmrInvalidate => Ok(()),
        }
    }

    fn received(&mut self, nic: &mut Nic<'_, 'p, H>, piece: u64, len: u32) -> Result<(), Failure> {
        let kind = self.conn.hello.kind;
        match kind {
            Kind::Ping | Kind::Send => {
                let number = self.verified;
                if len != self.conn.hello.size {
                    return Err(Failure::new(format!(
                        "message {number} has {len} bytes instead of {}",
                        self.conn.hello.size
                    )));
                }
                // A ping's numbers count questions and answers.
                let contents = if kind == Kind::Ping { 2 * number } else { number };
                if let Some(at) = self.conn.received_wrong(piece, contents) {
                    return self.wrong(nic, number, at);
                }
                self.conn.post_recv(nic, piece)?;
                self.verified += 1;
                if kind == Kind::Ping {
                    self.conn.fill(number, contents + 1);
                    return self.conn.ping(nic, number);
                }
                self.tell(nic)
            }
            Kind::Write | Kind::Read | Kind::Bind => {
                let message = self.conn.message(piece, len);
                let message = message
                    .filter(|message| message.saying == Saying::Verify)
                    .ok_or_else(|| Failure::new("the peer sent a malformed message"))?;
                self.conn.post_recv(nic, piece)?;
                self.verify(nic, &message)
            }
        }
    }

    /// Returns how many operations the test may have.
    fn most(&self) -> u64 {
        match self.conn.hello.count {
            0 => u64::MAX,
            count => count,
        }
    }

    /// Verifies the operations that the peer claims to have done.
    fn verify(&mut self, nic: &mut Nic<'_, 'p, H>, message: &Message) -> Result<(), Failure> {
        let Hello { kind, depth, size, .. } = self.conn.hello;
        let count = self.most();
        let (from, to) = (self.verified, message.number);
        let most = match kind {
            Kind::Write => 2 * u64::from(depth),
            Kind::Bind => u64::from(depth),
            Kind::Read | Kind::Ping | Kind::Send => count,
        };
        let plausible = to.checked_sub(from).is_some_and(|claimed| (1..=most).contains(&claimed));
        let is_early = kind == Kind::Read && to != count && count != u64::MAX;
        if to > count || !plausible || self.reading || is_early {
            return Err(Failure::new(format!(
                "the peer claims {to} operations of {count} after {from}"
            )));
        }
        match kind {
            Kind::Write => {
                for number in from..to {
                    if let Some(at) = self.conn.far_wrong(number, number) {
                        return self.wrong(nic, number, at);
                    }
                }
                self.verified = to;
                self.tell(nic)
            }
            Kind::Read => {
                // The reader has verified what it read; here nothing may have changed.
                for piece in 0..=u64::from(depth) {
                    if let Some(at) = self.conn.far_wrong(piece, piece) {
                        return self.wrong(nic, piece, at);
                    }
                }
                self.verified = to;
                self.tell(nic)
            }
            Kind::Bind => {
                if message.len != size {
                    return Err(Failure::new(format!(
                        "the peer's window has {} bytes instead of {size}",
                        message.len
                    )));
                }
                let from = RmrTriplet { addr: message.addr, len: size, context: message.context };
                self.reading = true;
                self.conn.read(nic, 0, from, to)?;
                self.conn.ring(nic)
            }
            Kind::Ping | Kind::Send => Ok(()),
        }
    }

    /// A read through the peer's window has arrived.
    fn read(&mut self, nic: &mut Nic<'_, 'p, H>, to: u64) -> Result<(), Failure> {
        self.reading = false;
        let last = to.saturating_sub(1);
        if let Some(at) = self.conn.read_wrong(0, last % u64::from(self.conn.hello.depth)) {
            return self.wrong(nic, last, at);
        }
        self.verified = to;
        self.tell(nic)
    }

    /// Reports the number of verified operations to the peer, once a step of them is new.
    fn tell(&mut self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let Hello { kind, count, .. } = self.conn.hello;
        let due = kind != Kind::Send || self.verified - self.reported >= self.conn.hello.step();
        if due || self.verified == count {
            self.reported = self.verified;
            let done = self.verified;
            let view = if done == count { self.watch.now(done) } else { self.watch.view(done) };
            self.conn.say(nic, &view.message())?;
        }
        Ok(())
    }

    /// Fails the session because of wrong contents, and reports them to the peer.
    fn wrong(&mut self, nic: &mut Nic<'_, 'p, H>, number: u64, at: usize) -> Result<(), Failure> {
        self.fail(format!("operation {number} has wrong contents from byte {at} on"));
        if self.conn.hello.kind != Kind::Ping {
            let message = Message { addr: at as u64, ..Message::new(Saying::Wrong, number) };
            self.conn.say(nic, &message)?;
            // Graceful: the message goes out first.
            self.parting = Some(Instant::now());
            return nic
                .ep_disconnect(self.conn.ep, CloseFlag::Graceful)
                .map_err(|e| dat("dat_ep_disconnect", e));
        }
        Ok(())
    }

    /// Frees everything and returns the result.
    pub(super) fn finish(self, nic: &mut Nic<'_, 'p, H>) -> Result<Report, Failure> {
        let Hello { kind, size, count, .. } = self.conn.hello;
        let report = Report {
            peer: self.peer,
            test: kind,
            size,
            count,
            verified: self.verified,
            seconds: self.last_event.duration_since(self.started).as_secs_f64(),
            outcome: self.outcome.unwrap_or(Outcome::Ended),
        };
        self.conn.free(nic)?;
        Ok(report)
    }
}
