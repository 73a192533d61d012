//! The messages between the two sides of a test: the hello in the connection request, the welcome
//! or the refusal that answers it, and the messages of the test itself.
//!
//! None of it is trusted. A hello is accepted only if every byte of it is as this version writes it
//! and its request is within the limits here. Everything else is refused with a text, which the
//! peer receives.
//!
//! Numbers are big-endian. Private data is padded with zeros by the wire; the padding must be zero.
//!
//! | hello, 30 bytes | | welcome, 28 bytes | | message, 32 bytes | |
//! |---|---|---|---|---|---|
//! | 0 | `dat?` | 0 | `dat!` | 0 | `dat:` |
//! | 4 | version 1 | 4 | version 1 | 4 | what it says |
//! | 5 | the test | 5 | the test | 5 | 0 |
//! | 6 | depth, 2 bytes | 6 | depth, 2 bytes | 8 | number, 8 bytes |
//! | 8 | size, 4 bytes | 8 | address, 8 bytes | 16 | address, 8 bytes |
//! | 12 | count, 8 bytes | 16 | length, 8 bytes | 24 | key, 4 bytes |
//! | 20 | seed, 8 bytes | 24 | key, 4 bytes | 28 | length, 4 bytes |
//! | 28 | greatest payload of a packet, 2 bytes | | | | |
//!
//! A refusal is `dat-`, the version, and up to 143 bytes of ASCII.
//!
//! A server says in each `Verified` what it saw so far: in place of the address the nanoseconds
//! since the connection was established, in place of key and length those of CPU time that it spent
//! meanwhile. Both are 0 if it has no clock.

use clap::ValueEnum;
use serde::Serialize;

/// The version of the protocol.
const VERSION: u8 = 1;
const HELLO: [u8; 4] = *b"dat?";
const WELCOME: [u8; 4] = *b"dat!";
const REFUSAL: [u8; 4] = *b"dat-";
const MESSAGE: [u8; 4] = *b"dat:";

/// Bytes of a hello.
pub(super) const HELLO_LEN: usize = 30;
/// Bytes of a welcome.
pub(super) const WELCOME_LEN: usize = 28;
/// Bytes of a message.
pub(super) const MESSAGE_LEN: usize = 32;
/// Bytes of a refusal's words.
const WORDS: usize = 143;

/// Greatest size of one operation.
pub(super) const MOST_SIZE: u32 = 1 << 20;
/// Most operations in flight.
pub(super) const MOST_DEPTH: u16 = 48;
/// Most bytes that one side allocates for one test: two pieces for each of 4M in flight, and space
/// for messages.
pub(super) const MOST_MEMORY: usize = (8 << 20) + 4096;

/// A kind of test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub(crate) enum Kind {
    /// A message in each direction, one after the other.
    #[value(skip)]
    Ping = 1,
    /// Sends to the peer's receives.
    Send = 2,
    /// RDMA writes to the peer's memory.
    Write = 3,
    /// RDMA reads of the peer's memory.
    Read = 4,
    /// Binds of a memory window, through which the peer reads.
    Bind = 5,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Ping, Self::Send, Self::Write, Self::Read, Self::Bind];

    /// Returns its name, as `--kind` takes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::Bind => "bind",
        }
    }
}

/// Why a peer's bytes are not accepted.
pub(super) type Objection = &'static str;

/// The request for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// Kind of the test.
    pub(super) kind: Kind,
    /// Operations in flight.
    pub(super) depth: u16,
    /// Bytes of one operation.
    pub(super) size: u32,
    /// Number of operations; 0 if the client ends the test when it likes.
    pub(super) count: u64,
    /// Seed of the contents.
    pub(super) seed: u64,
    /// Path MTU of the client. (The CM's own messages carry it in one direction only, and the
    /// receiver cannot object.)
    pub(super) mtu: u16,
}

/// Takes the next bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk()?;
    *bytes = tail;
    Some(*head)
}

impl Hello {
    /// Encodes it.
    pub(super) fn bytes(&self) -> [u8; HELLO_LEN] {
        let mut bytes = Writer::<HELLO_LEN>::default();
        bytes.put(&HELLO);
        bytes.put(&[VERSION, self.kind as u8]);
        bytes.put(&self.depth.to_be_bytes());
        bytes.put(&self.size.to_be_bytes());
        bytes.put(&self.count.to_be_bytes());
        bytes.put(&self.seed.to_be_bytes());
        bytes.put(&self.mtu.to_be_bytes());
        bytes.bytes
    }

    /// Decodes private data of any length.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Objection> {
        let rest = &mut { bytes };
        if take(rest) != Some(HELLO) {
            return Err("this is dat listen, and that was no dat test");
        }
        if take(rest) != Some([VERSION]) {
            return Err("dat of another version; this one speaks version 1");
        }
        let mut fields = || -> Option<(u8, u16, u32, u64, u64, u16)> {
            let [kind] = take(rest)?;
            Some((
                kind,
                u16::from_be_bytes(take(rest)?),
                u32::from_be_bytes(take(rest)?),
                u64::from_be_bytes(take(rest)?),
                u64::from_be_bytes(take(rest)?),
                u16::from_be_bytes(take(rest)?),
            ))
        };
        let (kind, depth, size, count, seed, mtu) = fields().ok_or("the hello is too short")?;
        if rest.iter().any(|byte| *byte != 0) {
            return Err("there is something behind the hello");
        }
        let kind = Kind::ALL
            .into_iter()
            .find(|known| *known as u8 == kind)
            .ok_or("no such kind of test")?;
        let hello = Self { kind, depth, size, count, seed, mtu };
        hello.check().map(|()| hello)
    }

    /// Checks the limits.
    pub(super) fn check(&self) -> Result<(), Objection> {
        if !(1..=MOST_SIZE).contains(&self.size) {
            return Err("an operation has 1 byte to 1M");
        }
        if !(1..=MOST_DEPTH).contains(&self.depth) {
            return Err("1 to 48 operations are in flight");
        }
        if self.kind == Kind::Ping && self.depth != 1 {
            return Err("a ping has one message in flight");
        }
        if self.server().total() > MOST_MEMORY || self.client().total() > MOST_MEMORY {
            return Err("size times depth is too much: 4M at the most");
        }
        Ok(())
    }

    /// Returns the bytes between the starts of two pieces.
    pub(super) fn stride(&self) -> usize {
        self.bytes_of_one().next_multiple_of(64)
    }

    /// Bytes of one operation.
    pub(super) fn bytes_of_one(&self) -> usize {
        usize::try_from(self.size.min(MOST_SIZE)).unwrap_or(0)
    }

    /// Returns after how many operations the server reports its progress.
    pub(super) fn step(&self) -> u64 {
        u64::from(self.depth / 2).max(1)
    }

    /// Returns the layout of the server's memory.
    pub(super) fn server(&self) -> Layout {
        let (stride, depth) = (self.stride(), usize::from(self.depth));
        let pieces = |count| (count, stride);
        let [recv, landing, data, notes, far] = match self.kind {
            Kind::Ping => [pieces(2), NONE, pieces(2), NONE, NONE],
            Kind::Send => [pieces(depth), NONE, NONE, NOTES, NONE],
            Kind::Write => [NOTES, NONE, NONE, NOTES, pieces(2 * depth)],
            // One more than the reader has pieces, so that consecutive reads into the same piece
            // have different contents.
            Kind::Read => [NOTES, NONE, NONE, NOTES, pieces(depth + 1)],
            Kind::Bind => [NOTES, pieces(1), NONE, NOTES, NONE],
        };
        Layout::new([recv, landing], [data, notes], far)
    }

    /// Returns the layout of the client's memory.
    pub(super) fn client(&self) -> Layout {
        let (stride, depth) = (self.stride(), usize::from(self.depth));
        let pieces = |count| (count, stride);
        let [recv, landing, data, notes, far] = match self.kind {
            Kind::Ping => [pieces(2), NONE, pieces(2), NONE, NONE],
            Kind::Send | Kind::Write => [NOTES, NONE, pieces(depth), NOTES, NONE],
            Kind::Read => [NOTES, pieces(depth), NONE, NOTES, NONE],
            Kind::Bind => [NOTES, NONE, NONE, NOTES, pieces(depth)],
        };
        Layout::new([recv, landing], [data, notes], far)
    }
}

/// Pieces for messages of the test itself, and the bytes of one. Neither side has more of them in
/// flight.
const NOTES: (usize, usize) = (4, 64);
/// No pieces.
const NONE: (usize, usize) = (0, 64);

/// Pieces of equal length, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    /// Offset of the first.
    pub(super) at: usize,
    /// Number of pieces.
    pub(super) count: usize,
    /// Bytes from one to the next.
    pub(super) stride: usize,
}

impl Pieces {
    /// Returns the offset of the piece of operation `number`.
    pub(super) fn of(&self, number: u64) -> usize {
        let count = u64::try_from(self.count).unwrap_or(1).max(1);
        self.at + usize::try_from(number % count).unwrap_or(0) * self.stride
    }

    fn end(&self) -> usize {
        self.at + self.count * self.stride
    }
}

/// The layout of one side's memory, in three parts: written by its device, only read by its device,
/// and accessible to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Written: receives.
    pub(super) recv: Pieces,
    /// Written: targets of reads.
    pub(super) landing: Pieces,
    /// Read: data sent or written to the peer.
    pub(super) data: Pieces,
    /// Read: messages about the test.
    pub(super) notes: Pieces,
    /// Accessible to the peer.
    pub(super) far: Pieces,
}

impl Layout {
    fn new(
        [recv, landing]: [(usize, usize); 2],
        [data, notes]: [(usize, usize); 2],
        far: (usize, usize),
    ) -> Self {
        let pieces = |at, (count, stride)| Pieces { at, count, stride };
        let recv = pieces(0, recv);
        let data = pieces(0, data);
        Self {
            recv,
            landing: pieces(recv.end(), landing),
            data,
            notes: pieces(data.end(), notes),
            far: pieces(0, far),
        }
    }

    /// Returns the bytes that this side's device writes.
    pub(super) fn inward(&self) -> usize {
        self.landing.end()
    }

    /// Returns the bytes that this side's device only reads.
    pub(super) fn outward(&self) -> usize {
        self.notes.end()
    }

    /// Returns the bytes that the peer may access.
    pub(super) fn reachable(&self) -> usize {
        self.far.end()
    }

    /// Returns the sum of the three.
    pub(super) fn total(&self) -> usize {
        self.inward() + self.outward() + self.reachable()
    }
}

/// The server's answer: the memory that the client may write or read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Welcome {
    /// Address of the first byte.
    pub(super) addr: u64,
    /// Length in bytes.
    pub(super) len: u64,
    /// Its key.
    pub(super) context: u32,
}

impl Welcome {
    /// Encodes it, in answer to `hello`.
    pub(super) fn bytes(&self, hello: &Hello) -> [u8; WELCOME_LEN] {
        let mut bytes = Writer::<WELCOME_LEN>::default();
        bytes.put(&WELCOME);
        bytes.put(&[VERSION, hello.kind as u8]);
        bytes.put(&hello.depth.to_be_bytes());
        bytes.put(&self.addr.to_be_bytes());
        bytes.put(&self.len.to_be_bytes());
        bytes.put(&self.context.to_be_bytes());
        bytes.bytes
    }

    /// Decodes private data of any length, which must answer `hello`.
    pub(super) fn read(bytes: &[u8], hello: &Hello) -> Option<Self> {
        let rest = &mut { bytes };
        let head = (take(rest)?, take(rest)?, take(rest)?);
        if head != (WELCOME, [VERSION, hello.kind as u8], hello.depth.to_be_bytes()) {
            return None;
        }
        let welcome = Self {
            addr: u64::from_be_bytes(take(rest)?),
            len: u64::from_be_bytes(take(rest)?),
            context: u32::from_be_bytes(take(rest)?),
        };
        let enough = u64::try_from(hello.server().reachable()).ok()?;
        let sound = welcome.len == enough
            && welcome.addr.checked_add(welcome.len).is_some()
            && rest.iter().all(|byte| *byte == 0);
        sound.then_some(welcome)
    }
}

/// Encodes the private data of a rejection.
pub(super) fn refusal(words: &str) -> Vec<u8> {
    let mut bytes = REFUSAL.to_vec();
    bytes.push(VERSION);
    bytes.extend(words.bytes().filter(u8::is_ascii).take(WORDS));
    bytes
}

/// Returns the text of a rejection by `dat listen`.
pub(super) fn refusal_words(bytes: &[u8]) -> Option<String> {
    let rest = &mut { bytes };
    if take(rest) != Some(REFUSAL) {
        return None;
    }
    take::<1>(rest)?;
    let words: String = rest
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| char::from(*byte))
        .filter(|c| c.is_ascii_graphic() || *c == ' ')
        .collect();
    (!words.is_empty()).then_some(words)
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Saying {
    /// Server: operations before this number are verified.
    Verified = 1,
    /// Client: operations before this number are done; verify them.
    Verify = 2,
    /// Server: the contents of that operation are wrong, from byte `addr` on.
    Wrong = 3,
}

/// A message of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its kind.
    pub(super) saying: Saying,
    /// Number of an operation.
    pub(super) number: u64,
    /// An address, or the offset of a wrong byte.
    pub(super) addr: u64,
    /// The key of the address.
    pub(super) context: u32,
    /// Length in bytes.
    pub(super) len: u32,
}

impl Message {
    /// Makes a message that names an operation only.
    pub(super) fn new(saying: Saying, number: u64) -> Self {
        Self { saying, number, addr: 0, context: 0, len: 0 }
    }

    /// Encodes it.
    pub(super) fn bytes(&self) -> [u8; MESSAGE_LEN] {
        let mut bytes = Writer::<MESSAGE_LEN>::default();
        bytes.put(&MESSAGE);
        bytes.put(&[self.saying as u8, 0, 0, 0]);
        bytes.put(&self.number.to_be_bytes());
        bytes.put(&self.addr.to_be_bytes());
        bytes.put(&self.context.to_be_bytes());
        bytes.put(&self.len.to_be_bytes());
        bytes.bytes
    }

    /// Decodes a message of exactly its length.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let rest = &mut { bytes };
        if bytes.len() != MESSAGE_LEN || take(rest)? != MESSAGE {
            return None;
        }
        let saying = match take(rest)? {
            [1, 0, 0, 0] => Saying::Verified,
            [2, 0, 0, 0] => Saying::Verify,
            [3, 0, 0, 0] => Saying::Wrong,
            _ => return None,
        };
        Some(Self {
            saying,
            number: u64::from_be_bytes(take(rest)?),
            addr: u64::from_be_bytes(take(rest)?),
            context: u32::from_be_bytes(take(rest)?),
            len: u32::from_be_bytes(take(rest)?),
        })
    }
}

/// Writes fields one after the other.
struct Writer<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Default for Writer<N> {
    fn default() -> Self {
        Self { bytes: [0; N], at: 0 }
    }
}

impl<const N: usize> Writer<N> {
    fn put(&mut self, field: &[u8]) {
        for (place, byte) in self.bytes.iter_mut().skip(self.at).zip(field) {
            *place = *byte;
        }
        self.at += field.len();
    }
}

#[cfg(test)]
mod tests;
