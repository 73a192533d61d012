//! The client's side of a connection: connect, hello and disconnect.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dat_core::cm::Reason;
use dat_core::{CloseFlag, DatReturn, DtoEvent, DtoStatus, Event, MemPriv};
use tracing::{debug, info};
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::super::signals;
use super::adapter::{self, SLICE, broken, dat};
use super::conn::Conn;
use super::ends::Ends;
use super::hello::{Hello, Welcome, refusal_words};

/// Attempts to connect that the peer may reject because it still holds an earlier connection.
const ATTEMPTS: usize = 4;
/// Longest wait for a graceful disconnect.
const PARTING: Duration = Duration::from_secs(2);

/// The remedy if the peer is not a `dat listen`.
const OTHER_PORT: &str = "start dat listen there, or give the port it was started with: PEER:PORT";

/// The peer to call, and how to wait for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Callee {
    /// Its address and port.
    pub(super) peer: SocketAddr,
    /// Longest wait for an event.
    pub(super) timeout: Duration,
    /// Poll instead of sleeping.
    pub(super) spin: bool,
}

/// A connection to a `dat listen` that agreed to a test.
#[derive(Debug)]
pub(super) struct Call<'p, H: Host> {
    /// The connection.
    pub(super) conn: Conn<'p, H>,
    /// The peer's memory that this side may access.
    pub(super) welcome: Welcome,
    callee: Callee,
}

impl<'p, H: Host> Call<'p, H> {
    /// Connects and agrees on the test. Sets the seed and the path MTU of the hello.
    pub(super) fn new(
        nic: &mut Nic<'_, 'p, H>,
        callee: Callee,
        hello: Hello,
    ) -> Result<Self, Failure> {
        let hello = Hello { seed: adapter::seed(nic), mtu: adapter::path_mtu(nic), ..hello };
        let conn = Conn::new(nic, hello, hello.client(), MemPriv::empty())?;
        let welcome = connect(nic, &conn, callee)?;
        Ok(Self { conn, welcome, callee })
    }

    /// Returns the next event, or `None` after Ctrl-C. The end of the connection and a timeout are
    /// failures.
    pub(super) fn next(&self, nic: &mut Nic<'_, 'p, H>) -> Result<Option<Event>, Failure> {
        let until = Instant::now() + self.callee.timeout;
        loop {
            if signals::asked() {
                return Ok(None);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.silence());
            }
            if let Some(event) =
                adapter::next(nic, self.conn.evd, left.min(SLICE), self.callee.spin)?
            {
                match sound(event) {
                    Ok(None) => {}
                    Ok(event) => return Ok(event),
                    Err(event) => return Err(self.failure(nic, event)),
                }
            }
        }
    }

    /// Returns the failure of a peer that has been silent for the timeout.
    pub(super) fn silence(&self) -> Failure {
        let Callee { peer, timeout, .. } = self.callee;
        let cause = format!("nothing came from {peer} for {} s", timeout.as_secs_f64());
        // What every Ethernet carries.
        let remedy = if self.conn.hello.mtu > 1024 {
            "does the path carry frames of this MTU (--mtu 1024 is safe)? is its dat listen still there? --timeout gives it more time"
        } else {
            "is its dat listen still there? --timeout gives it more time"
        };
        Failure::new(cause).remedy(remedy)
    }

    /// Returns the next event if one is pending.
    pub(super) fn pending(&self, ends: &mut impl Ends) -> Result<Option<Event>, Stop> {
        loop {
            match ends.dequeue(self.conn.evd) {
                Ok(event) => {
                    if let Some(event) = sound(event).map_err(Stop::Event)? {
                        return Ok(Some(event));
                    }
                }
                Err(DatReturn::QUEUE_EMPTY) => return Ok(None),
                Err(ret) => return Err(dat("dat_evd_dequeue", ret).into()),
            }
        }
    }

    /// Returns the failure that an event is.
    pub(super) fn failure(&self, nic: &mut Nic<'_, 'p, H>, event: Event) -> Failure {
        if let Event::Dto(DtoEvent { status, .. }) | Event::RmrBind { status, .. } = event {
            return self.failed(nic, status);
        }
        self.ended(nic, event)
    }

    fn ended(&self, nic: &mut Nic<'_, 'p, H>, event: Event) -> Failure {
        let peer = self.callee.peer;
        if matches!(event, Event::Disconnected(_)) {
            return Failure::new(format!("{peer} ended the connection in mid-test"))
                .remedy("its output says why");
        }
        broken(nic, self.conn.ep, &peer.to_string())
    }

    fn failed(&self, nic: &mut Nic<'_, 'p, H>, status: DtoStatus) -> Failure {
        nic.advance();
        if let Some(trouble) = adapter::trouble(nic) {
            return trouble;
        }
        let (cause, remedy) = adapter::status(status);
        Failure::new(format!("an operation with {} failed: {cause}", self.callee.peer))
            .remedy(remedy)
    }

    /// Disconnects gracefully: posted requests complete first, and the peer gets the disconnect.
    pub(super) fn part(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let ep = self.conn.ep;
        nic.ep_disconnect(ep, CloseFlag::Graceful)
            .map_err(|error| dat("dat_ep_disconnect", error))?;
        let until = Instant::now() + PARTING;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let event = adapter::next(nic, self.conn.evd, left, self.callee.spin)?;
            if event.is_none_or(|event| event.is_terminal()) {
                break;
            }
        }
        self.conn.free(nic)
    }
}

/// Why a test ends early.
#[derive(Debug)]
pub(super) enum Stop {
    /// An event of its connection; see [`Call::failure`].
    Event(Event),
    /// Anything else.
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Returns the event, `None` for one whose cause another event has, or as the error one that is a
/// failure.
fn sound(event: Event) -> Result<Option<Event>, Event> {
    if event.is_terminal() {
        return Err(event);
    }
    let (Event::Dto(DtoEvent { status, .. }) | Event::RmrBind { status, .. }) = event else {
        return Ok(Some(event));
    };
    if status == DtoStatus::Success {
        return Ok(Some(event));
    }
    // The event that ends the connection follows and has the cause.
    let follows = status == DtoStatus::ErrFlushed && matches!(event, Event::Dto(_));
    if follows { Ok(None) } else { Err(event) }
}

fn connect<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    conn: &Conn<'p, H>,
    callee: Callee,
) -> Result<Welcome, Failure> {
    let Callee { peer, timeout, spin } = callee;
    let until = Instant::now() + timeout;
    let hello = conn.hello.bytes();
    let mut attempt = 1;
    loop {
        conn.post_recvs(nic)?;
        info!("connecting to {peer}");
        let left = until.saturating_duration_since(Instant::now());
        nic.ep_connect(conn.ep, peer, left.max(SLICE), &hello)
            .map_err(|error| dat("dat_ep_connect", error))?;
        let event = loop {
            if signals::asked() {
                return Err(Failure::new("interrupted while connecting"));
            }
            if let Some(event) = adapter::next(nic, conn.evd, SLICE, spin)? {
                if conn.dto(&event).is_none() {
                    break event;
                }
            }
        };
        debug!("attempt {attempt}: {event:?}");
        let reason = nic.ep_reject_reason(conn.ep).ok().flatten();
        if reason == Some(Reason::STALE) && attempt < ATTEMPTS && Instant::now() < until {
            // The peer may still hold a connection from before a reset of this device. The rejected
            // attempt ended it.
            nic.ep_reset(conn.ep).map_err(|e| dat("dat_ep_reset", e))?;
            attempt += 1;
            continue;
        }
        return answered(nic, conn, peer, timeout, event);
    }
}

fn answered<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    conn: &Conn<'p, H>,
    peer: SocketAddr,
    timeout: Duration,
    event: Event,
) -> Result<Welcome, Failure> {
    let (ip, port) = (peer.ip(), peer.port());
    let private = nic.ep_private_data(conn.ep).unwrap_or_default();
    let fail = |cause: String, remedy: &str| Err(Failure::new(cause).remedy(remedy));
    if let Event::Established(_) = event {
        return match Welcome::read(private, &conn.hello) {
            Some(welcome) => Ok(welcome),
            None => fail(
                format!(
                    "what accepts connections on port {port} of {ip} is no dat listen of this version"
                ),
                OTHER_PORT,
            ),
        };
    }
    if let Event::PeerRejected(_) = event {
        return match refusal_words(private) {
            Some(words) => fail(format!("{peer} refused the test: {words}"), ""),
            None => {
                fail(format!("{peer} refused the connection, and it is no dat listen"), OTHER_PORT)
            }
        };
    }
    let reason = nic.ep_reject_reason(conn.ep).ok().flatten();
    if reason == Some(Reason::INVALID_MTU) {
        let mtu = adapter::path_mtu(nic);
        return fail(
            format!("{peer} cannot take packets of {mtu} bytes"),
            "give the --mtu that it was started with, or a smaller one; 1024 is safe",
        );
    }
    if let (Event::NonPeerRejected(_), None | Some(Reason::INVALID_SERVICE_ID)) = (event, reason) {
        return fail(format!("{ip} is there, but nothing listens on its port {port}"), OTHER_PORT);
    }
    if let Some(reason) = reason {
        return fail(
            format!("{peer} rejected the connection: {reason}"),
            "its output may say why; try again later",
        );
    }
    if let Event::Unreachable(_) = event {
        return fail(
            format!("{ip} does not answer"),
            "is it up, is its address right, is it in the same network and VLAN (--ip, --vlan, --gateway)?",
        );
    }
    if let Event::TimedOut(_) = event {
        return fail(
            format!("no connection to {peer} within {} s", timeout.as_secs_f64()),
            "is it up, in the same network and VLAN, and does dat listen run there? --timeout gives it more time",
        );
    }
    Err(broken(nic, conn.ep, &peer.to_string()))
}
