//! The layouts of vfio-user, version 0.0: a header of 16 bytes, a command's fields after it, all
//! little endian.
//!
//! A request is decoded into a [`Request`] whose every number is the client's and unchecked; the
//! replies are written field by field. What a command does is said in [`super::function`].

use rustix::io::Errno;

/// Bytes of the header.
pub(super) const HEADER: usize = 16;
/// Payload of a read or write at the most, as announced to the client.
pub(super) const MOST_DATA: u32 = 1 << 20;
/// Descriptors in one message at the most, as announced to the client.
pub(super) const MOST_FDS: usize = 16;
/// A message at the most: fields and payload.
pub(super) const MOST_BYTES: usize = MOST_DATA as usize + 4096;

/// Header flags.
const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;
/// The low bits say command or reply.
const KIND: u32 = 0xf;

/// Header of every message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    id: u16,
    command: u16,
    size: u32,
    flags: u32,
}

impl Header {
    /// From the wire.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Self {
        let word = |at: usize| {
            bytes.iter().skip(at).take(4).rev().fold(0, |acc, byte| acc << 8 | u32::from(*byte))
        };
        Self { id: word(0) as u16, command: (word(0) >> 16) as u16, size: word(4), flags: word(8) }
    }

    /// How many bytes follow; `None` for a length that no message has.
    pub(super) fn body(&self) -> Option<usize> {
        let body = (self.size as usize).checked_sub(HEADER)?;
        (body <= MOST_BYTES).then_some(body)
    }

    /// The client does not wait for an answer, and must not get one.
    pub(super) fn silent(&self) -> bool {
        self.flags & NO_REPLY != 0
    }

    /// Parses the request.
    pub(super) fn request<'a>(&self, body: &'a [u8]) -> Result<Request<'a>, Errno> {
        if self.flags & KIND != 0 {
            return Err(Errno::INVAL);
        }
        Request::decode(self.command, body)
    }

    /// The answer: fields, or an error number.
    pub(super) fn answer(&self, result: Result<Vec<u8>, Errno>) -> Vec<u8> {
        let (flags, error, body) = match result {
            Ok(body) => (REPLY, 0, body),
            Err(errno) => (REPLY | ERROR, errno.raw_os_error(), Vec::new()),
        };
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.command.to_le_bytes());
        bytes.extend_from_slice(&((HEADER + body.len()) as u32).to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&error.to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }
}

/// Requests of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// The greeting; its capabilities bind the client, not us.
    Version {
        major: u16,
    },
    DmaMap {
        flags: u32,
        offset: u64,
        iova: u64,
        size: u64,
    },
    DmaUnmap {
        argsz: u32,
        flags: u32,
        iova: u64,
        size: u64,
    },
    DeviceInfo,
    RegionInfo {
        index: u32,
    },
    IrqInfo {
        index: u32,
    },
    SetIrqs {
        flags: u32,
        index: u32,
        start: u32,
        count: u32,
        data: &'a [u8],
    },
    RegionRead {
        offset: u64,
        region: u32,
        count: u32,
    },
    RegionWrite {
        offset: u64,
        region: u32,
        data: &'a [u8],
    },
    Reset,
}

impl<'a> Request<'a> {
    fn decode(command: u16, body: &'a [u8]) -> Result<Self, Errno> {
        let mut from = Fields(body);
        Ok(match command {
            1 => Self::Version { major: from.u32()? as u16 },
            2 => {
                from.u32()?;
                Self::DmaMap {
                    flags: from.u32()?,
                    offset: from.u64()?,
                    iova: from.u64()?,
                    size: from.u64()?,
                }
            }
            3 => Self::DmaUnmap {
                argsz: from.u32()?,
                flags: from.u32()?,
                iova: from.u64()?,
                size: from.u64()?,
            },
            4 => Self::DeviceInfo,
            5 => {
                from.u64()?;
                Self::RegionInfo { index: from.u32()? }
            }
            7 => {
                from.u64()?;
                Self::IrqInfo { index: from.u32()? }
            }
            8 => {
                from.u32()?;
                Self::SetIrqs {
                    flags: from.u32()?,
                    index: from.u32()?,
                    start: from.u32()?,
                    count: from.u32()?,
                    data: from.0,
                }
            }
            9 => Self::RegionRead { offset: from.u64()?, region: from.u32()?, count: from.u32()? },
            10 => {
                let (offset, region, count) = (from.u64()?, from.u32()?, from.u32()?);
                let data = from.0.get(..count as usize).ok_or(Errno::INVAL)?;
                Self::RegionWrite { offset, region, data }
            }
            13 => Self::Reset,
            _ => return Err(Errno::NOTSUP),
        })
    }
}

/// Little-endian numbers, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Result<u32, Errno> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*word))
    }

    fn u64(&mut self) -> Result<u64, Errno> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }
}

/// A reply under construction.
#[derive(Debug, Default)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// The answer to a greeting.
pub(super) fn greeting(major: u16) -> Result<Vec<u8>, Errno> {
    if major != 0 {
        return Err(Errno::INVAL);
    }
    let text = format!(
        "{{\"capabilities\":{{\"max_msg_fds\":{MOST_FDS},\"max_data_xfer_size\":{MOST_DATA}}}}}\0"
    );
    Ok(Reply::default().u32(0).bytes(text.as_bytes()).done())
}
