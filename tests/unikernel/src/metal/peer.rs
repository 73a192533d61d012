//! The DAT peer: brings the HCA up, then serves tests or runs them against another peer, of bare
//! metal or a `dat` command.
//!
//! Here are the adapter, its events and a connection with its memory; `serve` is the passive side
//! of a test, `call` the active one. One connection at a time, one event dispatcher for everything.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "any event that does not belong where it came means the same: the end"
)]

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

use crate::contents;
use crate::hello::{self, Hello, MESSAGE_LEN, Saying};
use crate::machine::Machine;
use crate::options::Options;
use crate::serial::say;

mod call;
mod serve;

/// The driver, with tables for what one peer makes.
pub(crate) type Driver = Mlx5<'static, Machine, 8, 16, 32>;
/// The adapter's storage.
pub(crate) type Room = Storage<Driver, 4, 8, 16, 64, 64>;

/// Receives for messages about a test, and bytes of each.
const NOTES: (u32, u32) = (4, 64);
/// Events that one connection can have outstanding, and requests for others besides.
const EVENTS: u32 = 64;
/// Longest rest without a look around.
const PAUSE: Duration = Duration::from_millis(100);

const NONE: CompletionFlags = CompletionFlags::empty();

/// What went wrong.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A call was refused.
    Dat(Error),
    /// No room for the buffers.
    Memory,
    /// The time of the command line is over.
    Late(&'static str),
    /// Another event than the one that belongs here.
    Unexpected(&'static str, Event),
    /// The peer said no; its words have been printed.
    Refused,
    /// What the peer says makes no sense.
    Nonsense(&'static str),
    /// A byte is not what was sent: kind, operation, place.
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
            Self::Late(what) => write!(f, "timeout= is over while waiting for {what}"),
            Self::Unexpected(what, Event::Dto(done)) => {
                let (number, cookie) = (done.status.number(), done.cookie);
                write!(f, "instead of {what} DTO {cookie} ended with status {number}")
            }
            // The names of all events would be as long as some of the code that makes them.
            Self::Unexpected(what, event) => {
                write!(f, "instead of {what} came event {:#x} of dat.h", event.number())
            }
            Self::Refused => f.write_str("the peer refused the test"),
            Self::Nonsense(what) => write!(f, "the peer's {what} makes no sense"),
            Self::Content(what, number, at) => {
                write!(f, "{what} {number} has wrong contents from byte {at} on")
            }
        }
    }
}

/// Registered memory.
struct Memory {
    buffer: Buffer<'static, Machine>,
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

/// One connection, of one test.
struct Conn {
    ep: Ep,
    hello: Hello,
    /// Receives, then places for data or answers, then messages about the test.
    own: Memory,
    /// What the peer may reach.
    far: Option<Memory>,
    /// Receives: how many, and bytes of each.
    recv: (u32, u32),
    /// Messages about the test so far.
    said: u32,
    /// All that the test counts has been done and verified; its connection may still be open.
    complete: bool,
}

impl Conn {
    /// Where the receive is that operation or message `number` comes to.
    fn recv_at(&self, number: u64) -> u32 {
        let (count, stride) = self.recv;
        u32::try_from(number % u64::from(count)).unwrap_or(0) * stride
    }

    /// Where the data of operation `number` are.
    fn data_at(&self, number: u64) -> u32 {
        let (count, stride) = self.recv;
        let place = number % u64::from(self.hello.depth.max(2));
        count * stride + u32::try_from(place).unwrap_or(0) * self.hello.stride()
    }

    /// Where in the listener's memory operation `number` lies.
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

/// The adapter and what it needs for one connection after the other.
struct Peer<'a> {
    machine: &'static Machine,
    options: &'a Options,
    ia: &'a mut Ia<'static, Driver>,
    pz: Pz,
    evd: Evd,
    end: Instant,
    /// The next completion interrupts.
    armed: bool,
    /// The request that waits for the end of the connection of a complete test.
    next: Option<Cr>,
}

/// Plays the part that the options name.
pub(crate) fn run(
    machine: &'static Machine,
    room: &'static mut Room,
    options: &Options,
) -> Result<(), Trouble> {
    let start = machine.now();
    let config = Config { entropy: machine.entropy.next().max(1), ..Config::default() };
    let driver = Driver::open(machine, &config).map_err(Error::from)?;
    let identity = *driver.device().identity();
    let (major, minor, sub) = identity.firmware;
    say!(
        "up: firmware {major}.{minor}.{sub}, MAC {:02x?}, {} pages given, {} us",
        identity.mac,
        machine.held(),
        (machine.now() - start) / 1000
    );
    let net = Net {
        addr: options.ip,
        prefix: options.prefix,
        gateway: options.gateway,
        vlan: options.vlan,
    };
    let now = || Instant::from_nanos(machine.now());
    let mut ia = Ia::open(driver, room.parts(), net, now(), machine.entropy.next())?;
    let played = play(machine, &mut ia, options);
    let closed = ia.close(now(), CloseFlag::Abrupt);
    played?;
    Ok(closed?)
}

fn play(
    machine: &'static Machine,
    ia: &mut Ia<'static, Driver>,
    options: &Options,
) -> Result<(), Trouble> {
    let pz = ia.pz_create()?;
    let evd = ia.evd_create(EVENTS, EvdFlags::DEFAULT)?;
    let end = Instant::from_nanos(machine.now()) + options.timeout;
    let mut peer = Peer { machine, options, ia, pz, evd, end, armed: false, next: None };
    match options.peer {
        Some(to) => peer.calls(to)?,
        None => peer.listen()?,
    }
    peer.ia.evd_free(evd)?;
    Ok(peer.ia.pz_free(pz)?)
}

impl Peer<'_> {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.machine.now())
    }

    /// Greatest payload of a packet of the port.
    fn mtu(&self) -> u16 {
        u16::try_from(self.ia.provider().limits().mtu.bytes()).unwrap_or(u16::MAX)
    }

    /// The next event.
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
            if self.machine.interrupts.is_some() && !self.armed {
                // A completion between the look and the arming interrupts at once.
                self.ia.evd_arm(self.evd, false)?;
                self.armed = true;
            }
            let due = next.deadline.unwrap_or(self.end);
            let due = due.min(self.end).min(now + PAUSE);
            let rest = u64::try_from(due.since(now).as_nanos()).unwrap_or(0);
            self.machine.rest(rest.max(1_000));
        }
    }

    /// The next event of a test under way: a completion, or None at the end of the connection.
    /// Another request is refused meanwhile. If the test is complete, one waits: the peer may
    /// ask for the next test before the end of this connection is dequeued, which comes behind
    /// the completions of its receives.
    fn step(&mut self, conn: &Conn, what: &'static str) -> Result<Option<DtoEvent>, Trouble> {
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
        let words = hello::refusal("as many tests as it serves at a time are under way");
        Ok(self.ia.cr_reject(self.now(), cr, &words)?)
    }

    /// The next receive of a test; None at the end of the connection.
    fn received(&mut self, conn: &Conn, what: &'static str) -> Result<Option<DtoEvent>, Trouble> {
        loop {
            match self.step(conn, what)? {
                Some(done) if done.operation != DtoOperation::Receive => {}
                other => return Ok(other),
            }
        }
    }

    /// A message about the test; None at the end of the connection.
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

    /// Says something about the test.
    fn say(&mut self, conn: &mut Conn, saying: Saying, number: u64) -> Result<(), Trouble> {
        let (count, stride) = NOTES;
        let at = conn.data_at(0) + u32::from(conn.hello.depth.max(2)) * conn.hello.stride();
        let at = at + conn.said % count * stride;
        conn.said = conn.said.wrapping_add(1);
        conn.own.buffer.copy_in(at as usize, &hello::message(saying, number));
        let place = conn.own.local(at, MESSAGE_LEN);
        Ok(self.ia.ep_post_send(conn.ep, &place, number, NONE)?)
    }

    fn post_recv(&mut self, conn: &Conn, number: u64) -> Result<(), Trouble> {
        let place = conn.own.local(conn.recv_at(number), conn.recv.1);
        Ok(self.ia.ep_post_recv(conn.ep, &place, number, NONE)?)
    }

    fn memory(&mut self, len: u32, rights: MemPriv) -> Result<Memory, Trouble> {
        let buffer = Buffer::zeroed(self.machine, len as usize).ok_or(Trouble::Memory)?;
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

    /// An Endpoint with its memory, of which the peer gets `offered` bytes with these rights;
    /// receives are posted.
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
        let conn = Conn { ep, hello, own, far, recv, said: 0, complete: false };
        for number in 0..u64::from(recv.0) {
            self.post_recv(&conn, number)?;
        }
        Ok(conn)
    }

    /// Gives everything of a connection back.
    fn free(&mut self, conn: Conn) -> Result<(), Trouble> {
        self.ia.ep_free(self.now(), conn.ep)?;
        self.unregister(conn.own)?;
        conn.far.map_or(Ok(()), |far| self.unregister(far))
    }
}
