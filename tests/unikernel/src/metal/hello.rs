//! The messages between two sides of a `dat` test, version 1: hello, welcome or refusal in the
//! private data of the connection, and messages about the test. The layout is documented with the
//! `dat` command, in `vfio-host/dat/src/traffic/hello.rs`; this is an independent implementation
//! for an image without a heap, of the tests ping, write and read.
//!
//! Numbers are big-endian; private data is padded with zeros.

/// The version of the protocol.
const VERSION: u8 = 1;
const HELLO: [u8; 4] = *b"dat?";
const WELCOME: [u8; 4] = *b"dat!";
const REFUSAL: [u8; 4] = *b"dat-";
const MESSAGE: [u8; 4] = *b"dat:";

/// Bytes of a message about the test.
pub(crate) const MESSAGE_LEN: u32 = 32;
/// Bytes of a refusal.
pub(crate) const REFUSAL_LEN: usize = 148;
/// Greatest size of one operation, and most of them in flight.
pub(crate) const MOST_SIZE: u32 = 1 << 20;
pub(crate) const MOST_DEPTH: u16 = 48;

/// A kind of test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A message in each direction, one after the other.
    Ping = 1,
    /// RDMA writes to the listener's memory.
    Write = 3,
    /// RDMA reads of it.
    Read = 4,
}

impl Kind {
    /// All kinds that the image supports.
    pub(crate) const ALL: [Self; 3] = [Self::Ping, Self::Write, Self::Read];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// The request for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: Kind,
    /// Operations in flight.
    pub(crate) depth: u16,
    /// Bytes of one.
    pub(crate) size: u32,
    /// Number of operations; 0 if the client ends the test when it likes.
    pub(crate) count: u64,
    /// Seed of the contents.
    pub(crate) seed: u64,
    /// Path MTU of the client.
    pub(crate) mtu: u16,
}

impl Hello {
    /// Encodes it.
    pub(crate) fn bytes(&self) -> [u8; 30] {
        let mut bytes = [0; 30];
        let (depth, size) = (self.depth.to_be_bytes(), self.size.to_be_bytes());
        let (count, seed) = (self.count.to_be_bytes(), self.seed.to_be_bytes());
        put(
            &mut bytes,
            &[
                &HELLO,
                &[VERSION, self.kind as u8],
                &depth,
                &size,
                &count,
                &seed,
                &self.mtu.to_be_bytes(),
            ],
        );
        bytes
    }

    /// Decodes private data. An error is a text for the peer.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let rest = &mut { bytes };
        if take(rest) != Some(HELLO) {
            return Err("this serves dat tests, and that was none");
        }
        if take(rest) != Some([VERSION]) {
            return Err("dat of another version; this one speaks version 1");
        }
        let mut fields = || {
            let [kind] = take(rest)?;
            let (depth, size) = (u16::from_be_bytes(take(rest)?), u32::from_be_bytes(take(rest)?));
            let (count, seed) = (u64::from_be_bytes(take(rest)?), u64::from_be_bytes(take(rest)?));
            let mtu = u16::from_be_bytes(take(rest)?);
            Some((kind, depth, size, count, seed, mtu))
        };
        let (kind, depth, size, count, seed, mtu) = fields().ok_or("the hello is too short")?;
        let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
        let kind = kind.ok_or("an image on bare metal: it serves ping, write and read")?;
        if rest.iter().any(|byte| *byte != 0) {
            return Err("there is something behind the hello");
        }
        if !(1..=MOST_SIZE).contains(&size) || !(1..=MOST_DEPTH).contains(&depth) {
            return Err("an operation has 1 byte to 1M, and 1 to 48 are in flight");
        }
        if kind == Kind::Ping && depth != 1 {
            return Err("a ping has one message in flight");
        }
        Ok(Self { kind, depth, size, count, seed, mtu })
    }

    /// Returns the bytes from the start of one operation's memory to the next one's.
    pub(crate) fn stride(&self) -> u32 {
        self.size.next_multiple_of(64)
    }

    /// Returns the number of operations whose memory the listener offers: twice the depth, or one
    /// more than the depth.
    pub(crate) fn offered(&self) -> u32 {
        let depth = u32::from(self.depth);
        match self.kind {
            Kind::Ping => 0,
            Kind::Write => 2 * depth,
            Kind::Read => depth + 1,
        }
    }
}

/// The listener's answer: the memory that it offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) context: u32,
}

impl Welcome {
    /// Encodes it, in answer to `hello`.
    pub(crate) fn bytes(&self, hello: &Hello) -> [u8; 28] {
        let mut bytes = [0; 28];
        let depth = hello.depth.to_be_bytes();
        let (addr, len) = (self.addr.to_be_bytes(), self.len.to_be_bytes());
        let head: [&[u8]; 3] = [&WELCOME, &[VERSION, hello.kind as u8], &depth];
        put(&mut bytes, &[head[0], head[1], head[2], &addr, &len, &self.context.to_be_bytes()]);
        bytes
    }

    /// Decodes private data, which must answer `hello`.
    pub(crate) fn read(bytes: &[u8], hello: &Hello) -> Option<Self> {
        let rest = &mut { bytes };
        let head = (take(rest)?, take(rest)?, take(rest)?);
        let welcome = Self {
            addr: u64::from_be_bytes(take(rest)?),
            len: u64::from_be_bytes(take(rest)?),
            context: u32::from_be_bytes(take(rest)?),
        };
        let offered = u64::from(hello.offered()) * u64::from(hello.stride());
        let good = head == (WELCOME, [VERSION, hello.kind as u8], hello.depth.to_be_bytes())
            && welcome.len == offered
            && welcome.addr.checked_add(welcome.len).is_some();
        good.then_some(welcome)
    }
}

/// Encodes the private data of a refusal.
pub(crate) fn refusal(words: &str) -> [u8; REFUSAL_LEN] {
    let mut bytes = [0; REFUSAL_LEN];
    put(&mut bytes, &[&REFUSAL, &[VERSION], words.as_bytes()]);
    bytes
}

/// Returns the text of a refusal.
pub(crate) fn refusal_words(bytes: &[u8]) -> Option<&str> {
    let words = bytes.strip_prefix(&REFUSAL)?.get(1..)?;
    let len = words.iter().position(|byte| !(b' '..=b'~').contains(byte));
    core::str::from_utf8(words.get(..len.unwrap_or(words.len()))?).ok()
}

/// The kind of a message about operations up to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Saying {
    /// Listener: those before it are verified.
    Verified = 1,
    /// The other side: those before it are done; verify them.
    Verify = 2,
    /// Listener: the contents of that one are wrong.
    Wrong = 3,
}

/// A message about the test, with the nanoseconds that it has taken. So many are of CPU time too: the
/// image polls.
pub(crate) fn message(saying: Saying, number: u64, took: u64) -> [u8; MESSAGE_LEN as usize] {
    let mut bytes = [0; MESSAGE_LEN as usize];
    let (number, took) = (number.to_be_bytes(), took.to_be_bytes());
    put(&mut bytes, &[&MESSAGE, &[saying as u8, 0, 0, 0], &number, &took, &took]);
    bytes
}

/// Decodes a message.
pub(crate) fn read_message(bytes: &[u8]) -> Option<(Saying, u64)> {
    let rest = &mut { bytes };
    if take(rest)? != MESSAGE {
        return None;
    }
    let saying = match take(rest)? {
        [1, 0, 0, 0] => Saying::Verified,
        [2, 0, 0, 0] => Saying::Verify,
        [3, 0, 0, 0] => Saying::Wrong,
        _ => return None,
    };
    Some((saying, u64::from_be_bytes(take(rest)?)))
}

/// Takes the next bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk()?;
    *bytes = tail;
    Some(*head)
}

/// Writes fields one after the other, truncated at the end of `to`.
fn put(to: &mut [u8], fields: &[&[u8]]) {
    for (place, byte) in to.iter_mut().zip(fields.iter().copied().flatten()) {
        *place = *byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Hello = Hello {
        kind: Kind::Read,
        depth: 4,
        size: 100,
        count: 9,
        seed: 0x0102_0304_0506_0708,
        mtu: 4096,
    };

    #[test]
    fn a_hello_is_laid_out_as_the_table_says() {
        let bytes = READ.bytes();
        assert_eq!(
            bytes,
            *b"dat?\x01\x04\0\x04\0\0\0\x64\0\0\0\0\0\0\0\x09\x01\x02\x03\x04\x05\x06\x07\x08\x10\0"
        );
        let mut padded = bytes.to_vec();
        padded.resize(56, 0);
        assert_eq!(Hello::read(&padded), Ok(READ));
        padded[40] = 1;
        assert!(Hello::read(&padded).is_err());
        for len in 0..30 {
            assert!(Hello::read(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn requests_beyond_the_limits_are_refused() {
        for (at, byte) in [(0, b'x'), (4, 2), (5, 2), (5, 1), (7, 0), (7, 49), (9, 0x11), (11, 0)] {
            let mut bytes = READ.bytes();
            bytes[at] = byte;
            assert!(Hello::read(&bytes).is_err(), "{at}");
        }
        let open = Hello { count: 0, ..READ };
        assert_eq!(Hello::read(&open.bytes()), Ok(open), "the client ends it");
    }

    #[test]
    fn a_welcome_answers_its_hello_and_no_other() {
        let welcome = Welcome { addr: 0x1234_5678_9abc_def0, len: 640, context: 7 };
        let bytes = welcome.bytes(&READ);
        assert_eq!(bytes[..8], *b"dat!\x01\x04\0\x04");
        assert_eq!(Welcome::read(&bytes, &READ), Some(welcome));
        assert_eq!(Welcome::read(&bytes, &Hello { depth: 5, ..READ }), None);
        assert_eq!(Welcome::read(&bytes, &Hello { size: 129, ..READ }), None);
        assert_eq!(Welcome::read(&bytes[..27], &READ), None);
    }

    #[test]
    fn refusals_and_messages_are_decoded_as_encoded() {
        assert_eq!(refusal_words(&refusal("no room")), Some("no room"));
        assert_eq!(refusal_words(b"dat"), None);
        assert_eq!(refusal(&"x".repeat(500))[REFUSAL_LEN - 1], b'x');
        let bytes = message(Saying::Verify, 77, 1 << 32);
        assert_eq!(bytes[..16], *b"dat:\x02\0\0\0\0\0\0\0\0\0\0\x4d");
        assert_eq!(bytes[16..], *b"\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0");
        assert_eq!(read_message(&bytes), Some((Saying::Verify, 77)));
        assert_eq!(read_message(&bytes[..15]), None);
    }
}
