//! The server's side of one test: from a request to its end.
//!
//! Everything the peer says is checked against the hello that it sent and against what was agreed
//! since; what does not fit ends the session, and only that.

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

/// A peer that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// Last words may take so long.
const PARTING: Duration = Duration::from_secs(2);

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "outcome", content = "why")]
pub(super) enum Outcome {
    /// All of it was done and verified.
    Complete,
    /// Somebody ended it early; what there was is verified.
    Ended,
    /// Something was wrong.
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

/// What is told of a session.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Told {
    /// Who asked for it.
    pub(super) peer: IpAddr,
    /// What it was.
    pub(super) test: Kind,
    /// Bytes of one operation.
    pub(super) size: u32,
    /// Operations asked for; 0 of an endless ping.
    pub(super) count: u64,
    /// Operations verified.
    pub(super) verified: u64,
    /// How long it took.
    pub(super) seconds: f64,
    /// How it ended.
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, test, size, verified, seconds, outcome, .. } = self;
        let test = test.name();
        write!(f, "{peer}: {test}, {size} bytes, {verified} verified in {seconds:.3} s, {outcome}")
    }
}

/// One test under way.
#[derive(Debug)]
pub(super) struct Session<'p, H: Host> {
    conn: Conn<'p, H>,
    peer: IpAddr,
    started: Instant,
    heard: Instant,
    /// Operations verified, and how many of them the peer has been told of.
    verified: u64,
    told: u64,
    /// A read through the peer's window is under way.
    reading: bool,
    outcome: Option<Outcome>,
    /// What arrived before the connection was there on this side too: the peer's first data may
    /// come before its last word of connecting. No more than there are receives.
    early: Option<Vec<DtoEvent>>,
    /// Since when its last words are on their way.
    parting: Option<Instant>,
}

/// What the peer may do to the memory that is for it.
fn rights(kind: Kind) -> MemPriv {
    match kind {
        Kind::Write => MemPriv::REMOTE_WRITE,
        Kind::Read => MemPriv::REMOTE_READ,
        Kind::Ping | Kind::Send | Kind::Bind => MemPriv::empty(),
    }
}

impl<'p, H: Host> Session<'p, H> {
    /// Answers a request: a session, or `None` if it was refused, for what is asked or for what the
    /// server says.
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
            // A request that its peer has given up meanwhile.
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
            heard: now,
            verified: 0,
            told: 0,
            reading: false,
            outcome: None,
            early: Some(Vec::new()),
            parting: None,
        }))
    }

    /// Its events.
    pub(super) fn evd(&self) -> Evd {
        self.conn.evd
    }

    /// It is over.
    pub(super) fn over(&self) -> bool {
        let gone = |since: Instant| since.elapsed() > PARTING;
        self.outcome.is_some() && self.parting.is_none_or(gone)
    }

    fn fail(&mut self, why: impl Into<String>) {
        self.outcome.get_or_insert(Outcome::Failed(why.into()));
    }

    /// Ends it if the peer has been silent for too long.
    pub(super) fn check_silence(&mut self) {
        if self.heard.elapsed() > SILENCE {
            self.fail(format!("nothing came for {} s", SILENCE.as_secs()));
        }
    }

    /// Takes one event. What goes wrong is this session's end, not the server's.
    pub(super) fn event(&mut self, nic: &mut Nic<'_, 'p, H>, event: Event) {
        self.heard = Instant::now();
        if let Some(dto) = self.conn.dto(&event) {
            match &mut self.early {
                Some(early) => early.push(dto),
                None => self.take(nic, dto),
            }
        } else if event == Event::Established(self.conn.ep) {
            self.started = self.heard;
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
            if count != 0 && self.verified == count { Outcome::Complete } else { Outcome::Ended }
        } else {
            Outcome::Failed(match nic.ep_cause(ep) {
                Ok(Some(fault)) => format!("the connection broke: {fault}"),
                Ok(None) | Err(_) => format!("the connection broke: {event:?}"),
            })
        };
        self.outcome.get_or_insert(outcome);
    }

    fn take(&mut self, nic: &mut Nic<'_, 'p, H>, dto: DtoEvent) {
        if self.outcome.is_none()
            && let Err(failure) = self.completion(nic, dto)
        {
            self.fail(failure.cause);
        }
    }

    fn completion(&mut self, nic: &mut Nic<'_, 'p, H>, dto: DtoEvent) -> Result<(), Failure> {
        if dto.status == DtoStatus::ErrFlushed {
            // The end of the connection is told by an event of its own.
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
                    return self.conn.send(nic, number, number);
                }
                self.tell(nic)
            }
            Kind::Write | Kind::Read | Kind::Bind => {
                let message = self.conn.message(piece, len);
                let message = message
                    .filter(|message| message.saying == Saying::Verify)
                    .ok_or_else(|| Failure::new("the peer said something that makes no sense"))?;
                self.conn.post_recv(nic, piece)?;
                self.verify(nic, &message)
            }
        }
    }

    /// The peer says that operations up to a number are done.
    fn verify(&mut self, nic: &mut Nic<'_, 'p, H>, message: &Message) -> Result<(), Failure> {
        let Hello { kind, depth, size, count, .. } = self.conn.hello;
        let (from, to) = (self.verified, message.number);
        let most = match kind {
            Kind::Write => 2 * u64::from(depth),
            Kind::Bind => u64::from(depth),
            Kind::Read | Kind::Ping | Kind::Send => count,
        };
        let news = to.checked_sub(from).filter(|news| (1..=most).contains(news));
        if to > count || news.is_none() || self.reading || kind == Kind::Read && to != count {
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
                self.conn.read(nic, 0, from, to)
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

    /// Tells the peer how far this side is, if it is far enough.
    fn tell(&mut self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let Hello { kind, count, .. } = self.conn.hello;
        let due = kind != Kind::Send || self.verified - self.told >= self.conn.hello.step();
        if due || self.verified == count {
            self.told = self.verified;
            let message = Message::new(Saying::Verified, self.verified);
            self.conn.say(nic, &message)?;
        }
        Ok(())
    }

    /// Wrong contents: the peer is told, and the session has failed.
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

    /// Gives everything back; what is told of it.
    pub(super) fn finish(self, nic: &mut Nic<'_, 'p, H>) -> Result<Told, Failure> {
        let Hello { kind, size, count, .. } = self.conn.hello;
        let told = Told {
            peer: self.peer,
            test: kind,
            size,
            count,
            verified: self.verified,
            seconds: self.heard.duration_since(self.started).as_secs_f64(),
            outcome: self.outcome.unwrap_or(Outcome::Ended),
        };
        self.conn.free(nic)?;
        Ok(told)
    }
}
