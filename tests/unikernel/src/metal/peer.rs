//! The DAT peer: brings the HCA up, then serves tests or runs them against another peer, of bare
//! metal or a `dat` command.
//!
//! This file has the adapter, its events and a connection with its memory; `serve` is the passive
//! side of a test, `call` the active one. One connection at a time, one Event Dispatcher for all.
#![expect(clippy::wildcard_enum_match_arm, reason = "any unexpected event means the same: the end")]

use core::fmt;
use core::time::Duration;

use dat_core::provider::{Net, Provider};
use dat_core::{
    CloseFlag, CompletionFlags, Cr, DtoEvent, DtoOperation, DtoStatus, Ep, Error, Evd, EvdFlags,
    Event, Ia, Instant, LmrParam, LmrTriplet, MemPriv, Pz, Storage,
};
use hca_mlx5::dma::Buffer;
use hca_mlx5::platform::Clock as _;
use hca_mlx5::{Config, Mlx5};
use heapless::Deque;

use crate::console::say;
use crate::contents;
use crate::hello::{self, Hello, MESSAGE_LEN, Saying};
use crate::host::Host;
use crate::options::Options;

mod call;
mod serve;

/// The driver, with tables for the objects of one peer.
pub(crate) type Driver = Mlx5<'static, Host, 8, 16, 32>;
/// The adapter's storage.
pub(crate) type PeerStorage = Storage<Driver, 4, 8, 16, 64, 64>;

/// Number of receives for messages about a test, and bytes of each.
const NOTES: (u32, u32) = (4, 64);
/// Events that one connection can have outstanding, and connection requests in addition.
const EVENTS: u32 = 64;
/// Longest sleep between two calls of `advance`.
const PAUSE: Duration = Duration::from_millis(100);

const NONE: CompletionFlags = CompletionFlags::empty();
/// Time for peers to confirm the end of their connections; a lost message is repeated within it.
const LINGER: Duration = Duration::from_secs(5);

/// Why a test failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A call was refused.
    Dat(Error),
    /// The arena has no memory for the buffers.
    Memory,
    /// The machine's generator gives no numbers.
    NoEntropy,
    /// The timeout of the command line has expired.
    Late(&'static str),
    /// An unexpected event.
    Unexpected(&'static str, Event),
    /// The peer refused; its text has been printed.
    Refused,
    /// The peer sent malformed data.
    Nonsense(&'static str),
    /// A byte differs from the one sent: kind, operation, offset.
    Content(&'static str, u64, usize),
}

impl<E: Into<Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Dat(error.into())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dat(error) => write!(f, "{error}"),
            Self::Memory => f.write_str("the arena is too small: a smaller size= or depth="),
            Self::NoEntropy => f.write_str("the generator gives no random numbers: try again"),
            Self::Late(what) => write!(f, "timeout= is over while waiting for {what}"),
            Self::Unexpected(what, Event::Dto(done)) => {
                let (number, cookie) = (done.status.number(), done.cookie);
                write!(f, "instead of {what} DTO {cookie} ended with status {number}")
            }
            // Only the number: the names of all events would take much space.
            Self::Unexpected(what, event) => {
                write!(f, "instead of {what} came event {:#x} of dat.h", event.number())
            }
            Self::Refused => f.write_str("the peer refused the test"),
            Self::Nonsense(what) => write!(f, "the peer's {what} is invalid"),
            Self::Content(what, number, at) => {
                write!(f, "{what} {number} has wrong contents from byte {at} on")
            }
        }
    }
}

/// Registered memory.
struct Memory {
    buffer: Buffer<'static, Host>,
    lmr: LmrParam,
}

impl Memory {
    fn local(&self, at: u32, len: u32) -> [LmrTriplet; 1] {
        [LmrTriplet {
            addr: self.lmr.region.addr + u64::from(at),
            len,
            context: self.lmr.lmr_context,
        }]
    }
}

/// The connection of one test.
struct Conn {
    ep: Ep,
    hello: Hello,
    /// Receives, then data or answers, then messages about the test.
    own: Memory,
    /// Memory that the peer may access.
    far: Option<Memory>,
    /// Number of receives, and bytes of each.
    recv: (u32, u32),
    /// When it was established.
    began: Instant,
    /// Number of messages about the test so far.
    said: u32,
    /// All operations of the test are done and verified; the connection may still be open.
    complete: bool,
}

impl Conn {
    /// Returns the offset of the receive for operation or message `number`.
    fn recv_at(&self, number: u64) -> u32 {
        let (count, stride) = self.recv;
        u32::try_from(number % u64::from(count)).unwrap_or(0) * stride
    }

    /// Returns the offset of the data of operation `number`.
    fn data_at(&self, number: u64) -> u32 {
        let (count, stride) = self.recv;
        let place = number % u64::from(self.hello.depth.max(2));
        count * stride + u32::try_from(place).unwrap_or(0) * self.hello.stride()
    }

    /// Returns the offset of operation `number` in the listener's memory.
    fn far_at(&self, number: u64) -> u32 {
        let place = number % u64::from(self.hello.offered().max(1));
        u32::try_from(place).unwrap_or(0) * self.hello.stride()
    }

    fn fill(&self, number: u64, contents: u64) {
        let (at, size) = (self.data_at(number) as usize, self.hello.size);
        contents::fill(&self.own.buffer, at, size, self.hello.seed, contents);
    }

    /// Compares `size` bytes at `at`.
    fn check(&self, memory: &Memory, at: u32, number: u64, contents: u64) -> Result<(), Trouble> {
        let wrong = contents::differ(
            &memory.buffer,
            at as usize,
            self.hello.size,
            self.hello.seed,
            contents,
        );
        match wrong {
            None => Ok(()),
            Some(byte) => Err(Trouble::Content(self.hello.kind.name(), number, byte)),
        }
    }
}

/// The adapter and its state for one connection after the other.
struct Peer<'a> {
    host: &'static Host,
    options: &'a Options,
    ia: &'a mut Ia<'static, Driver>,
    pz: Pz,
    evd: Evd,
    end: Instant,
    /// Whether the next completion interrupts.
    armed: bool,
    /// A request that waits until the connection of a complete test ends.
    next: Option<Cr>,
    /// Receives that completed before the event that their connection is established: the RTU may
    /// be overtaken by the first message.
    early: Deque<DtoEvent, 8>,
}

/// Opens the adapter, runs the role of the options and closes the adapter.
pub(crate) fn run(
    host: &'static Host,
    storage: &'static mut PeerStorage,
    options: &Options,
) -> Result<(), Trouble> {
    let start = host.now();
    let seed = || host.entropy.seed().ok_or(Trouble::NoEntropy);
    let config = Config { entropy: seed()?, ..Config::default() };
    let driver = Driver::open(host, &config).map_err(Error::from)?;
    let identity = *driver.device().identity();
    let (major, minor, sub) = identity.firmware;
    say!(
        "up: firmware {major}.{minor}.{sub}, MAC {:02x?}, {} pages given, {} us",
        identity.mac,
        host.held(),
        (host.now() - start) / 1000
    );
    let net = Net {
        addr: options.ip,
        prefix: options.prefix,
        gateway: options.gateway,
        vlan: options.vlan,
    };
    let now = || Instant::from_nanos(host.now());
    let mut ia = Ia::open(driver, storage.parts(), net, now(), seed()?)?;
    let done = run_role(host, &mut ia, options);
    // Nothing repeats a lost message after the closing.
    ia.disconnect_all(now());
    let until = now() + LINGER;
    while ia.cm_ending() != 0 && now() < until {
        ia.advance(now());
    }
    let closed = ia.close(now(), CloseFlag::Abrupt);
    done?;
    Ok(closed?)
}

fn run_role(
    host: &'static Host,
    ia: &mut Ia<'static, Driver>,
    options: &Options,
) -> Result<(), Trouble> {
    let pz = ia.pz_create()?;
    let evd = ia.evd_create(EVENTS, EvdFlags::DEFAULT)?;
    let end = Instant::from_nanos(host.now()) + options.timeout;
    let mut peer =
        Peer { host, options, ia, pz, evd, end, armed: false, next: None, early: Deque::new() };
    match options.peer {
        Some(to) => peer.calls(to)?,
        None => peer.listen()?,
    }
    peer.ia.evd_free(evd)?;
    Ok(peer.ia.pz_free(pz)?)
}

impl Peer<'_> {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.host.now())
    }

    /// Returns the path MTU of the port.
    fn mtu(&self) -> u16 {
        u16::try_from(self.ia.provider().limits().mtu.bytes()).unwrap_or(u16::MAX)
    }

    /// Waits for the next event.
    fn event(&mut self, what: &'static str) -> Result<Event, Trouble> {
        loop {
            let now = self.now();
            let next = self.ia.advance(now);
            if let Ok(event) = self.ia.evd_dequeue(self.evd) {
                return Ok(event);
            }
            if now >= self.end {
                return Err(Trouble::Late(what));
            }
            if next.work {
                continue;
            }
            self.armed &= !self.ia.evd_take_notice(self.evd);
            if self.host.interrupts.is_some() && !self.armed {
                // A completion between the poll and the arming interrupts at once.
                self.ia.evd_arm(self.evd, false)?;
                self.armed = true;
            }
            let due = next.deadline.unwrap_or(self.end);
            let due = due.min(self.end).min(now + PAUSE);
            let rest = u64::try_from(due.since(now).as_nanos()).unwrap_or(0);
            self.host.rest(rest.max(1_000));
        }
    }

    /// Waits for the next completion of a test; `None` at the end of the connection. Rejects other
    /// requests meanwhile, but keeps one if the test is complete: the peer may request the next
    /// test before the end of this connection is dequeued, which follows the completions of its
    /// receives.
    fn step(&mut self, conn: &Conn, what: &'static str) -> Result<Option<DtoEvent>, Trouble> {
        if let Some(done) = self.early.pop_front() {
            return Ok(Some(done));
        }
        loop {
            match self.event(what)? {
                Event::Dto(done) if done.status == DtoStatus::Success => return Ok(Some(done)),
                Event::Dto(done) if done.status == DtoStatus::ErrFlushed => {}
                Event::Disconnected(ep) if ep == conn.ep => return Ok(None),
                Event::ConnectionRequest { cr, .. } if conn.complete && self.next.is_none() => {
                    self.next = Some(cr);
                }
                Event::ConnectionRequest { cr, .. } => self.refuse(cr)?,
                other => return Err(Trouble::Unexpected(what, other)),
            }
        }
    }

    /// Rejects a request that comes during a test.
    fn refuse(&mut self, cr: Cr) -> Result<(), Trouble> {
        let words = hello::refusal("too many tests are running; try again later");
        Ok(self.ia.cr_reject(self.now(), cr, &words)?)
    }

    /// Waits for the next receive of a test; `None` at the end of the connection.
    fn received(&mut self, conn: &Conn, what: &'static str) -> Result<Option<DtoEvent>, Trouble> {
        loop {
            match self.step(conn, what)? {
                Some(done) if done.operation != DtoOperation::Receive => {}
                other => return Ok(other),
            }
        }
    }

    /// Waits for a message about the test; `None` at the end of the connection.
    fn message(&mut self, conn: &Conn) -> Result<Option<(Saying, u64)>, Trouble> {
        let Some(done) = self.received(conn, "a message about the test")? else {
            return Ok(None);
        };
        let mut bytes = [0; MESSAGE_LEN as usize];
        conn.own.buffer.copy_out(conn.recv_at(done.cookie) as usize, &mut bytes);
        let message = hello::read_message(&bytes).filter(|_| done.len == MESSAGE_LEN);
        self.post_recv(conn, done.cookie)?;
        message.ok_or(Trouble::Nonsense("message")).map(Some)
    }

    /// Sends a message about the test.
    fn say(&mut self, conn: &mut Conn, saying: Saying, number: u64) -> Result<(), Trouble> {
        let (count, stride) = NOTES;
        let at = conn.data_at(0) + u32::from(conn.hello.depth.max(2)) * conn.hello.stride();
        let at = at + conn.said % count * stride;
        conn.said = conn.said.wrapping_add(1);
        let took = self.now().as_nanos().saturating_sub(conn.began.as_nanos());
        conn.own.buffer.copy_in(at as usize, &hello::message(saying, number, took));
        let place = conn.own.local(at, MESSAGE_LEN);
        Ok(self.ia.ep_post_send(conn.ep, &place, number, NONE)?)
    }

    fn post_recv(&mut self, conn: &Conn, number: u64) -> Result<(), Trouble> {
        let place = conn.own.local(conn.recv_at(number), conn.recv.1);
        Ok(self.ia.ep_post_recv(conn.ep, &place, number, NONE)?)
    }

    fn memory(&mut self, len: u32, rights: MemPriv) -> Result<Memory, Trouble> {
        let buffer = Buffer::zeroed(self.host, len as usize).ok_or(Trouble::Memory)?;
        match self.ia.lmr_create(self.pz, buffer.region(), rights) {
            Ok(lmr) => Ok(Memory { buffer, lmr }),
            Err(error) => {
                buffer.release();
                Err(error.into())
            }
        }
    }

    fn unregister(&mut self, memory: Memory) -> Result<(), Trouble> {
        self.ia.lmr_free(memory.lmr.lmr)?;
        memory.buffer.release();
        Ok(())
    }

    /// Makes an Endpoint with its memory, of which the peer gets `offered` bytes with these rights,
    /// and posts receives.
    fn conn(&mut self, hello: Hello, offered: u32, rights: MemPriv) -> Result<Conn, Trouble> {
        let recv = match hello.kind {
            hello::Kind::Ping => (2, hello.stride()),
            hello::Kind::Write | hello::Kind::Read => NOTES,
        };
        let data = u32::from(hello.depth.max(2)) * hello.stride();
        let own = recv.0 * recv.1 + data + NOTES.0 * NOTES.1;
        let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let own = self.memory(own, local)?;
        let far = match offered {
            0 => Ok(None),
            len => self.memory(len, local | rights).map(Some),
        };
        let far = match far {
            Ok(far) => far,
            Err(trouble) => {
                self.unregister(own)?;
                return Err(trouble);
            }
        };
        let evd = Some(self.evd);
        let ep = self.ia.ep_create(Some(self.pz), evd, evd, evd, None)?;
        let conn = Conn { ep, hello, own, far, recv, began: self.now(), said: 0, complete: false };
        for number in 0..u64::from(recv.0) {
            self.post_recv(&conn, number)?;
        }
        Ok(conn)
    }

    /// Frees everything of a connection.
    fn free(&mut self, conn: Conn) -> Result<(), Trouble> {
        self.ia.ep_free(self.now(), conn.ep)?;
        self.unregister(conn.own)?;
        conn.far.map_or(Ok(()), |far| self.unregister(far))
    }
}
