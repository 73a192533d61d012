//! What goes over the wire, byte by byte.
//!
//! A message of the control connection has 8192 bytes, whatever is in it. Numbers are little-endian
//! on the wire; a side that is big-endian turns them round. Names are 256 bytes, ended by a zero.
//! Which number is at which place is said at each type; the version of all of it is 6.
//!
//! Keys and addresses of memory are told in messages of their own, 12 bytes for each: the key (4),
//! the address (8). They are the only numbers that are in the byte order of one of the two sides,
//! so each says of itself at the start which order it has.

use super::super::super::failure::Failure;

/// Version of what is here.
pub(super) const VERSION: u32 = 6;
/// Bytes of a message of the control connection.
pub(super) const CONTROL: usize = 8192;
/// Most operations of a transaction test.
pub(super) const OPS: usize = 100;
/// Bytes that tell of one piece of memory.
pub(super) const FAR: usize = 12;
/// Bytes of the message that tells of the memory of all operations.
pub(super) const FARS: usize = OPS * FAR;
/// Bytes of a message that says go.
pub(super) const SYNC: usize = 64;
/// Private data of a request for a connection of a transaction test.
pub(super) const GREETING: &[u8] = b"DAPL and RDMA rule! Test 4321.";

/// Bytes of a name.
const NAME: usize = 256;

/// Byte order of a side's keys and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Low byte first.
    Little,
    /// High byte first.
    Big,
}

impl Order {
    fn of(word: u32) -> Self {
        if word == 0 { Self::Big } else { Self::Little }
    }
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A transaction test.
    Transaction,
    /// A performance test.
    Performance,
    /// The server's end.
    Quit,
}

impl Kind {
    const ALL: [(u32, Self); 3] = [(1, Self::Transaction), (2, Self::Performance), (4, Self::Quit)];
}

/// A message of the control connection being written.
struct Writing(Vec<u8>);

impl Writing {
    fn new() -> Self {
        Self(Vec::with_capacity(CONTROL))
    }

    fn word(mut self, word: u32) -> Self {
        self.0.extend(word.to_le_bytes());
        self
    }

    fn long(mut self, long: u64) -> Self {
        self.0.extend(long.to_le_bytes());
        self
    }

    /// A name that is too long is cut: nobody acts on names.
    fn name(mut self, name: &str) -> Self {
        let end = self.0.len() + NAME;
        self.0.extend(name.bytes().take(NAME - 1));
        self.0.resize(end, 0);
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(CONTROL, 0);
        self.0
    }
}

/// One being read. What is beyond its end is zero.
struct Reading<'a>(&'a [u8]);

impl Reading<'_> {
    fn word(&mut self) -> u32 {
        let word = self.0.first_chunk().copied().unwrap_or_default();
        self.skip(4);
        u32::from_le_bytes(word)
    }

    fn skip(&mut self, bytes: usize) {
        self.0 = self.0.get(bytes..).unwrap_or_default();
    }
}

/// Who the client is: the first message of a control connection. Words: version, little-endian or
/// not, kind of test, number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientInfo {
    /// Byte order of its keys and addresses.
    pub(super) order: Order,
    /// What it wants.
    pub(super) kind: Kind,
    /// Connections of the test: all threads' together.
    pub(super) connections: u32,
}

impl ClientInfo {
    /// A client on this machine, whose keys go out with the low byte first.
    pub(super) fn new(kind: Kind, connections: u32) -> Self {
        Self { order: Order::Little, kind, connections }
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        let kind = Kind::ALL.iter().find(|(_, kind)| *kind == self.kind);
        Writing::new()
            .word(VERSION)
            .word(u32::from(self.order == Order::Little))
            .word(kind.map_or(0, |(number, _)| *number))
            .word(self.connections)
            .end()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Failure> {
        let mut reading = Reading(bytes);
        let version = reading.word();
        let order = Order::of(reading.word());
        let number = reading.word();
        check_version(version)?;
        let kind = Kind::ALL.iter().find(|(kind, _)| *kind == number);
        let kind = kind.map(|(_, kind)| *kind).ok_or_else(|| {
            Failure::new(format!("a client wants a test of kind {number}"))
                .remedy("a server serves -T T, -T P and -T Q")
        })?;
        let connections = reading.word();
        Ok(Self { order, kind, connections })
    }
}

/// The server's answer to a command. Words: version, little-endian or not, first port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerInfo {
    /// Byte order of its keys and addresses.
    pub(super) order: Order,
    /// Where the first connection of the test is to go; the others to those that follow.
    pub(super) first_port: u32,
}

impl ServerInfo {
    pub(super) fn bytes(self) -> Vec<u8> {
        Writing::new()
            .word(VERSION)
            .word(u32::from(self.order == Order::Little))
            .word(self.first_port)
            .end()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Failure> {
        let mut reading = Reading(bytes);
        check_version(reading.word())?;
        let order = Order::of(reading.word());
        let first_port = reading.word();
        Ok(Self { order, first_port })
    }
}

fn check_version(version: u32) -> Result<(), Failure> {
    if version == VERSION {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the other side speaks version {version} of dapltest's protocol, this one version {VERSION}"
    ))
    .remedy("version 6 is that of dapltest 2.0 and 2.1; is it dapltest?"))
}

/// How an operation moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// RR: an RDMA read.
    Read,
    /// RW: an RDMA write.
    Write,
    /// SR: a send, and a receive on the other side.
    Send,
}

impl Transfer {
    const ALL: [(u32, Self, &'static str); 3] =
        [(0, Self::Read, "RR"), (1, Self::Write, "RW"), (2, Self::Send, "SR")];

    fn number(self) -> u32 {
        let found = Self::ALL.iter().find(|(_, transfer, _)| *transfer == self);
        found.map_or(0, |(number, ..)| *number)
    }

    fn read(number: u32) -> Result<Self, Failure> {
        let found = Self::ALL.iter().find(|(known, ..)| *known == number);
        found.map(|(_, transfer, _)| *transfer).ok_or_else(|| {
            Failure::new(format!("a client wants an operation of kind {number}"))
                .remedy("is it dapltest?")
        })
    }

    /// As the arguments have it.
    pub(super) fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, transfer, _)| *transfer == self);
        found.map_or("", |(_, _, name)| name)
    }

    /// The one of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, _, known)| *known == name);
        found.map(|(_, transfer, _)| *transfer)
    }
}

/// An operation of a transaction test. Words: by the server or not, transfer, segments, bytes of a
/// segment, `-f` or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    /// The server does it, else the client.
    pub(super) by_server: bool,
    /// What it is.
    pub(super) transfer: Transfer,
    /// Segments on either side.
    pub(super) segments: u32,
    /// Bytes of each.
    pub(super) size: u32,
    /// `-f`: the end of the client's send is looked for when the server's next message has come.
    pub(super) deferred: bool,
}

/// A transaction test's command.
///
/// Words, unless said otherwise: version; little-endian or not; name of the server; iterations;
/// threads; connections of each; 0; reserved service points or not; debug; verified or not; polling
/// or not; port (8 bytes); name of the adapter; quality of service; number of operations; the
/// operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transaction {
    /// How often all operations are done.
    pub(super) iterations: u32,
    /// Threads on either side.
    pub(super) threads: u32,
    /// Connections of each.
    pub(super) eps: u32,
    /// The server makes an RSP for each connection.
    pub(super) rsp: bool,
    /// The server says more.
    pub(super) debug: bool,
    /// Contents are verified.
    pub(super) validate: bool,
    /// Completions are polled for.
    pub(super) poll: bool,
    /// The operations.
    pub(super) ops: Vec<Op>,
}

/// Names and numbers that a client tells, and nobody acts on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labels<'a> {
    /// The server, as it was named to the client.
    pub(super) server: &'a str,
    /// The client's adapter.
    pub(super) adapter: &'a str,
    /// The server's port.
    pub(super) port: u16,
}

impl Transaction {
    pub(super) fn bytes(&self, labels: Labels<'_>) -> Vec<u8> {
        let count = u32::try_from(self.ops.len()).unwrap_or(u32::MAX);
        let head = Writing::new()
            .word(VERSION)
            .word(1)
            .name(labels.server)
            .word(self.iterations)
            .word(self.threads)
            .word(self.eps)
            .word(0)
            .word(self.rsp.into())
            .word(self.debug.into())
            .word(self.validate.into())
            .word(self.poll.into())
            .long(labels.port.into())
            .name(labels.adapter)
            .word(0)
            .word(count);
        let whole = self.ops.iter().fold(head, |writing, op| {
            writing
                .word(op.by_server.into())
                .word(op.transfer.number())
                .word(op.segments)
                .word(op.size)
                .word(op.deferred.into())
        });
        whole.end()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Failure> {
        let mut reading = Reading(bytes);
        check_version(reading.word())?;
        reading.skip(4 + NAME);
        let iterations = reading.word();
        let threads = reading.word();
        let eps = reading.word();
        reading.skip(4);
        let rsp = reading.word() != 0;
        let debug = reading.word() != 0;
        let validate = reading.word() != 0;
        let poll = reading.word() != 0;
        reading.skip(8 + NAME + 4);
        let count = reading.word() as usize;
        if count > OPS {
            return Err(Failure::new(format!("a client wants {count} operations"))
                .remedy("dapltest has 100 at the most; is it dapltest?"));
        }
        let ops = (0..count).map(|_| {
            Ok(Op {
                by_server: reading.word() != 0,
                transfer: Transfer::read(reading.word())?,
                segments: reading.word(),
                size: reading.word(),
                deferred: reading.word() != 0,
            })
        });
        Ok(Self {
            ops: ops.collect::<Result<_, Failure>>()?,
            iterations,
            threads,
            eps,
            rsp,
            debug,
            validate,
            poll,
        })
    }
}

/// A performance test's command.
///
/// Words, unless said otherwise: version; little-endian or not; name of the server; name of the
/// adapter; quality of service; debug; polling or not; iterations; length of the pipeline;
/// transfer; bytes of a segment; segments; 0; port (8 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Performance {
    /// The server says more.
    pub(super) debug: bool,
    /// The client spins.
    pub(super) poll: bool,
    /// Operations.
    pub(super) iterations: u32,
    /// Under way at a time, as asked for.
    pub(super) pipeline: u32,
    /// What they are.
    pub(super) transfer: Transfer,
    /// Bytes of a segment.
    pub(super) size: u32,
    /// Segments of each.
    pub(super) segments: u32,
}

impl Performance {
    pub(super) fn bytes(&self, labels: Labels<'_>) -> Vec<u8> {
        Writing::new()
            .word(VERSION)
            .word(1)
            .name(labels.server)
            .name(labels.adapter)
            .word(0)
            .word(self.debug.into())
            .word(self.poll.into())
            .word(self.iterations)
            .word(self.pipeline)
            .word(self.transfer.number())
            .word(self.size)
            .word(self.segments)
            .word(0)
            .long(labels.port.into())
            .end()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Failure> {
        let mut reading = Reading(bytes);
        check_version(reading.word())?;
        reading.skip(4 + NAME + NAME + 4);
        Ok(Self {
            debug: reading.word() != 0,
            poll: reading.word() != 0,
            iterations: reading.word(),
            pipeline: reading.word(),
            transfer: Transfer::read(reading.word())?,
            size: reading.word(),
            segments: reading.word(),
        })
    }
}

/// The command that ends a server: names of server and adapter, words for debug and quality of
/// service, port (8 bytes).
pub(super) fn quit(labels: Labels<'_>, debug: bool) -> Vec<u8> {
    Writing::new()
        .name(labels.server)
        .name(labels.adapter)
        .word(debug.into())
        .word(0)
        .long(labels.port.into())
        .end()
}

/// A piece of the other side's memory: key and address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Far {
    /// Its RMR context.
    pub(super) key: u32,
    /// Where it begins.
    pub(super) addr: u64,
}

impl Far {
    pub(super) fn bytes(self, order: Order) -> [u8; FAR] {
        let mut bytes = [0; FAR];
        let (key, addr) = bytes.split_at_mut(4);
        match order {
            Order::Little => {
                key.copy_from_slice(&self.key.to_le_bytes());
                addr.copy_from_slice(&self.addr.to_le_bytes());
            }
            Order::Big => {
                key.copy_from_slice(&self.key.to_be_bytes());
                addr.copy_from_slice(&self.addr.to_be_bytes());
            }
        }
        bytes
    }

    pub(super) fn read([a, b, c, d, rest @ ..]: [u8; FAR], order: Order) -> Self {
        match order {
            Order::Little => {
                Self { key: u32::from_le_bytes([a, b, c, d]), addr: u64::from_le_bytes(rest) }
            }
            Order::Big => {
                Self { key: u32::from_be_bytes([a, b, c, d]), addr: u64::from_be_bytes(rest) }
            }
        }
    }
}

#[cfg(test)]
mod tests;
