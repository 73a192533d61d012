//! `dat compat rping`: one side of rping.
//!
//! A ping has two halves. The client announces its source; the server reads it and says go on. The
//! client announces its sink; the server writes there what it has read and says go on. An
//! announcement is 16 bytes, all big-endian: address (8), key (4), length (4); a word to go on is
//! as long, and nobody looks at what is in it. The client ends the connection when it has had
//! enough.
//!
//! The contents of ping N: `rdma-ping-N: `, then the characters from 65 to 122 round and round,
//! beginning with the one at place N modulo 58, and a zero at the end. So the server can verify
//! them, which rping's own does not.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dat_core::{DtoOperation, LmrTriplet, MemPriv, RmrTriplet};
use serde::Serialize;
use tracing::debug;
use vfio_host::{Host, Nic};

use super::super::End;
use super::super::failure::Failure;
use super::super::out::{Out, progress};
use super::super::signals;
use super::super::traffic::adapter::{self, Task};
use super::super::traffic::histogram::{Histogram, Latency};
use super::super::traffic::memory::Memory;
use super::args::{Patience, Rping};
use super::ends::Makings;
use super::link::{LinkEvent, Links};

/// Bytes of an announcement.
const INFO: usize = 16;
/// Most bytes of a ping.
const MOST: usize = 65535;
/// Receives: the peer never has more than one message under way.
const RECVS: usize = 2;
/// First and last of the characters, and how many there are.
const FIRST: u8 = 65;
const LETTERS: u8 = 58;

/// What is reported at the end.
#[derive(Debug, Serialize)]
struct Report {
    role: &'static str,
    peer: String,
    /// Pings there and back.
    count: u64,
    /// Bytes of the last.
    size: u32,
    verified: bool,
    latency_us: Option<Latency>,
}

pub(super) fn run(rping: &Rping, out: &Out) -> Result<End, Failure> {
    let server = rping.side.peer(&rping.adapter, rping.port)?;
    let own = rping.side.adapter(&rping.adapter);
    let session = Session { rping, server, out };
    let report = adapter::with(&own, session)?;
    out.result(&report, &words(&report))?;
    // Interrupted, as ping(8): well, if there was anything.
    Ok(if report.count > 0 { End::Ok } else { End::Failed })
}

fn words(report: &Report) -> String {
    let Report { role, peer, count, size, verified, latency_us } = report;
    let checked = if *verified { ", verified" } else { "" };
    let mut text = format!("rping {role}: {count} pings of {size} bytes with {peer}{checked}\n");
    if let Some(Latency { min, median, max, .. }) = latency_us {
        text.push_str(&format!("min {min:.1} us, median {median:.1} us, max {max:.1} us\n"));
    }
    text
}

struct Session<'a> {
    rping: &'a Rping,
    server: Option<SocketAddr>,
    out: &'a Out,
}

impl Task for Session<'_> {
    type Report = Report;

    fn run<'p, H: Host>(self, nic: &mut Nic<'_, 'p, H>) -> Result<Report, Failure> {
        let Self { rping, server, out } = self;
        let mut table = Table::new(nic, &rping.patience, server.is_some())?;
        let mut times = Histogram::new();
        let (count, size) = match server {
            Some(server) => table.call(nic, rping, server, &mut times, out)?,
            None => table.serve(nic, rping)?,
        };
        let peer = table.links.peer.clone();
        table.free(nic)?;
        Ok(Report {
            role: if server.is_some() { "client" } else { "server" },
            peer,
            count,
            size,
            verified: rping.verify,
            latency_us: times.latency(),
        })
    }
}

/// The connection and its memory.
struct Table<'p, H: Host> {
    links: Links,
    /// What the peer sends: announcements, or words to go on.
    inward: Memory<'p, H>,
    /// What this side sends.
    outward: Memory<'p, H>,
    /// The sink of a client; on a server what it reads and writes back.
    sink: Memory<'p, H>,
    /// The source of a client.
    source: Option<Memory<'p, H>>,
}

impl<'p, H: Host> Table<'p, H> {
    fn new(nic: &mut Nic<'_, 'p, H>, patience: &Patience, client: bool) -> Result<Self, Failure> {
        let makings = Makings { count: 1, requests: 4, receives: 2 };
        let program = if client { "rping -s" } else { "rping -c" };
        let links = Links::new(nic, makings, patience, program)?;
        let pz = links.pz;
        let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let far = |right| if client { local | right } else { local };
        let source = MemPriv::LOCAL_READ | MemPriv::REMOTE_READ;
        Ok(Self {
            inward: Memory::new(nic, pz, INFO * RECVS, local)?,
            outward: Memory::new(nic, pz, INFO, MemPriv::LOCAL_READ)?,
            sink: Memory::new(nic, pz, MOST, far(MemPriv::REMOTE_WRITE))?,
            source: if client { Some(Memory::new(nic, pz, MOST, source)?) } else { None },
            links,
        })
    }

    fn free(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let memory = [self.inward, self.outward, self.sink];
        self.links.free(nic, memory.into_iter().chain(self.source))
    }

    fn recvs(&self) -> [LmrTriplet; RECVS] {
        [0, 1].map(|n| self.inward.local(n * INFO, INFO))
    }

    /// Says something: an announcement, or all zero to go on.
    fn say(&self, nic: &mut Nic<'_, 'p, H>, info: [u8; INFO]) -> Result<(), Failure> {
        self.outward.store(0, &info);
        self.links.send(nic, 0, self.outward.local(0, INFO), 0)
    }

    /// The next thing that the peer says, or `None` if it has parted.
    fn said(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        what: &str,
    ) -> Result<Option<[u8; INFO]>, Failure> {
        loop {
            let dto = match self.links.next_event(nic, what)? {
                LinkEvent::Over => return Ok(None),
                LinkEvent::Up => continue,
                LinkEvent::Asked(cr) => {
                    Links::refuse(nic, cr);
                    continue;
                }
                LinkEvent::Done(_, dto) => dto,
            };
            match dto.operation {
                DtoOperation::Send => {}
                DtoOperation::Receive if dto.len as usize == INFO => {
                    let at = usize::try_from(dto.cookie).unwrap_or(0) * INFO;
                    let mut info = [0; INFO];
                    self.inward.load(at, &mut info);
                    self.links.recv(nic, 0, self.inward.local(at, INFO), dto.cookie)?;
                    return Ok(Some(info));
                }
                DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate => {
                    return Err(Failure::new(format!(
                        "{} sent {} bytes; rping's messages have {INFO}",
                        self.links.peer, dto.len
                    ))
                    .remedy("is it rping?"));
                }
                DtoOperation::RdmaRead
                | DtoOperation::RdmaWrite
                | DtoOperation::BindMw
                | DtoOperation::LmrFmr
                | DtoOperation::LmrInvalidate => {
                    return Err(Failure::new("an operation ended twice"));
                }
            }
        }
    }

    /// Waits for the end of a read or write; the peer has nothing to say meanwhile. `false` if it
    /// has parted instead.
    fn moved(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        operation: DtoOperation,
        what: &str,
    ) -> Result<bool, Failure> {
        loop {
            match self.links.next_event(nic, what)? {
                LinkEvent::Done(_, dto) if dto.operation == operation => return Ok(true),
                LinkEvent::Done(_, dto) if dto.operation == DtoOperation::Send => {}
                LinkEvent::Done(..) => {
                    return Err(Failure::new(format!("{} spoke out of turn", self.links.peer))
                        .remedy("is it rping?"));
                }
                LinkEvent::Over => return Ok(false),
                LinkEvent::Up => {}
                LinkEvent::Asked(cr) => Links::refuse(nic, cr),
            }
        }
    }

    /// The client's side: pings and the bytes of one.
    fn call(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        rping: &Rping,
        server: SocketAddr,
        times: &mut Histogram,
        out: &Out,
    ) -> Result<(u64, u32), Failure> {
        let recvs = self.recvs();
        self.links.connect(nic, 0, server, &recvs)?;
        // A ping that is under way comes to its end: the server would call anything else a failure.
        self.links.see_through();
        let bar = progress(*out, rping.count, "rping");
        let mut bytes = vec![0; rping.size as usize];
        let mut number = 0;
        while (rping.count == 0 || number < rping.count) && !signals::asked() {
            contents(number, &mut bytes);
            let time = self.ping(nic, &bytes)?;
            if rping.verify {
                let mut back = vec![0; bytes.len()];
                self.sink.load(0, &mut back);
                verify(number, "what came back", &back, &bytes)?;
            }
            times.add(time);
            bar.inc(1);
            number += 1;
        }
        bar.finish_and_clear();
        self.links.part(nic)?;
        Ok((number, rping.size))
    }

    fn ping(&mut self, nic: &mut Nic<'_, 'p, H>, bytes: &[u8]) -> Result<Duration, Failure> {
        let Some(source) = &self.source else {
            return Err(Failure::new("a server has no source"));
        };
        source.store(0, bytes);
        // What does not come back is not taken for what came back last.
        self.sink.store(0, &vec![0; bytes.len()]);
        let start = Instant::now();
        self.say(nic, announce(source, bytes.len()))?;
        self.go_on(nic, "the end of the server's read")?;
        self.say(nic, announce(&self.sink, bytes.len()))?;
        self.go_on(nic, "the end of the server's write")?;
        Ok(start.elapsed())
    }

    fn go_on(&mut self, nic: &mut Nic<'_, 'p, H>, what: &str) -> Result<(), Failure> {
        match self.said(nic, what)? {
            Some(_) => Ok(()),
            None => {
                Err(Failure::new(format!("{} ended the connection before {what}", self.links.peer))
                    .remedy("its output says why; is it rping, with at least this --size?"))
            }
        }
    }

    /// The server's side: pings and the bytes of the last.
    fn serve(&mut self, nic: &mut Nic<'_, 'p, H>, rping: &Rping) -> Result<(u64, u32), Failure> {
        let recvs = self.recvs();
        self.links.recvs(nic, 0, &recvs)?;
        self.links.listen(nic, rping.port)?;
        let (cr, _) = self.links.asked(nic, rping.patience.wait)?;
        self.links.accept(nic, cr, 0)?;
        self.links.deafen(nic)?;
        let (mut number, mut size) = (0, 0);
        while let Some(source) = self.said(nic, "a client's source")? {
            let Some(len) = self.serve_one(nic, number, source, rping.verify)? else {
                return Err(Failure::new(format!(
                    "{} ended the connection in mid-ping",
                    self.links.peer
                ))
                .remedy("its output says why"));
            };
            number += 1;
            size = len;
        }
        Ok((number, size))
    }

    /// One ping; its bytes, or `None` if the client has parted.
    fn serve_one(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        number: u64,
        source: [u8; INFO],
        check: bool,
    ) -> Result<Option<u32>, Failure> {
        let from = self.announced(source)?;
        let len = from.len as usize;
        self.sink.store(0, &vec![0; len]);
        self.links.read(nic, 0, self.sink.local(0, len), &from)?;
        if !self.moved(nic, DtoOperation::RdmaRead, "the end of a read")? {
            return Ok(None);
        }
        if check {
            let (mut wanted, mut read) = (vec![0; len], vec![0; len]);
            contents(number, &mut wanted);
            self.sink.load(0, &mut read);
            verify(number, "what was read", &read, &wanted)?;
        }
        self.say(nic, [0; INFO])?;
        let Some(sink) = self.said(nic, "a client's sink")? else {
            return Ok(None);
        };
        let to = self.announced(sink)?;
        let back = to.len.min(from.len);
        self.links.write(nic, 0, self.sink.local(0, back as usize), &to)?;
        if !self.moved(nic, DtoOperation::RdmaWrite, "the end of a write")? {
            return Ok(None);
        }
        self.say(nic, [0; INFO])?;
        Ok(Some(from.len))
    }

    /// What the client announced.
    fn announced(&self, info: [u8; INFO]) -> Result<RmrTriplet, Failure> {
        let [a, b, c, d, e, f, g, h, k, l, m, n, w, x, y, z] = info;
        let far = RmrTriplet {
            addr: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            len: u32::from_be_bytes([w, x, y, z]),
            context: u32::from_be_bytes([k, l, m, n]),
        };
        debug!("{} announced {far:x?}", self.links.peer);
        if far.len == 0 || far.len as usize > MOST {
            return Err(Failure::new(format!(
                "{} announced {} bytes; a ping has 1 to {MOST}",
                self.links.peer, far.len
            ))
            .remedy("is it rping?"));
        }
        Ok(far)
    }
}

/// The announcement of `len` bytes of memory.
fn announce<H: Host>(memory: &Memory<'_, H>, len: usize) -> [u8; INFO] {
    let (addr, _, context) = memory.far();
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    let word = u128::from(addr) << 64 | u128::from(context) << 32 | u128::from(len);
    word.to_be_bytes()
}

/// Writes the contents of ping `number`.
fn contents(number: u64, bytes: &mut [u8]) {
    let head = format!("rdma-ping-{number}: ");
    let letters = (0..LETTERS).map(|n| FIRST + n).cycle();
    let start = usize::try_from(number % u64::from(LETTERS)).unwrap_or(0);
    let text = head.bytes().chain(letters.skip(start));
    for (byte, value) in bytes.iter_mut().zip(text) {
        *byte = value;
    }
    if let Some(last) = bytes.last_mut() {
        *last = 0;
    }
}

fn verify(number: u64, what: &str, got: &[u8], wanted: &[u8]) -> Result<(), Failure> {
    match got.iter().zip(wanted).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(Failure::new(format!(
            "ping {number}: {what} is wrong from byte {at} on"
        ))
        .remedy("the peer wrote other contents, or one of the two adapters moved them wrongly: try two of a kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_those_of_rping() {
        let mut bytes = [1; 26];
        contents(0, &mut bytes);
        assert_eq!(&bytes, b"rdma-ping-0: ABCDEFGHIJKL\0");
        contents(57, &mut bytes);
        assert_eq!(&bytes, b"rdma-ping-57: zABCDEFGHIJ\0");
        contents(58, &mut bytes);
        assert_eq!(&bytes, b"rdma-ping-58: ABCDEFGHIJK\0");
        let mut long = [1; 80];
        contents(1, &mut long);
        assert_eq!(&long[13 + 56..], b"zABCDEFGHI\0"[..].get(..11).unwrap());
        assert!(verify(0, "it", b"ab", b"ab").is_ok());
        let wrong = verify(3, "it", b"ab", b"ac").unwrap_err();
        assert!(wrong.cause.contains("ping 3") && wrong.cause.contains("byte 1"));
    }
}
