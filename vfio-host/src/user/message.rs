//! Messages of vfio-user: a header of 16 bytes and a body of fixed fields, in native byte order.
//!
//! The protocol carries VFIO's interface in messages: regions, interrupts and DMA have the numbers
//! of the kernel's interface.

/// Bytes of a header.
pub(crate) const HEADER: usize = 16;

/// Requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    DeviceGetInfo = 4,
    DeviceGetRegionInfo = 5,
    DeviceGetIrqInfo = 7,
    DeviceSetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    DeviceReset = 13,
}

impl Command {
    /// Returns its name for error messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Version => "VERSION",
            Self::DmaMap => "DMA_MAP",
            Self::DmaUnmap => "DMA_UNMAP",
            Self::DeviceGetInfo => "DEVICE_GET_INFO",
            Self::DeviceGetRegionInfo => "DEVICE_GET_REGION_INFO",
            Self::DeviceGetIrqInfo => "DEVICE_GET_IRQ_INFO",
            Self::DeviceSetIrqs => "DEVICE_SET_IRQS",
            Self::RegionRead => "REGION_READ",
            Self::RegionWrite => "REGION_WRITE",
            Self::DeviceReset => "DEVICE_RESET",
        }
    }
}

/// The message is a reply.
const REPLY: u32 = 1;
/// Bits of the flags that hold the message type.
const KIND: u32 = 0xf;
/// No reply is wanted.
const NO_REPLY: u32 = 1 << 4;
/// The reply is an error.
const ERROR: u32 = 1 << 5;

/// Encodes a request: its header, followed by the fields of its body.
pub(crate) fn request(id: u16, command: Command, posted: bool, body: &[&[u8]]) -> Vec<u8> {
    let len = body.iter().fold(HEADER, |len, part| len.saturating_add(part.len()));
    let mut message = Vec::with_capacity(len);
    message.extend(id.to_ne_bytes());
    message.extend((command as u16).to_ne_bytes());
    message.extend(u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes());
    message.extend(if posted { NO_REPLY } else { 0 }.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    for part in body {
        message.extend(*part);
    }
    message
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) id: u16,
    /// Length of the body in bytes.
    pub(crate) body: usize,
    /// The error number of an error reply, which may be 0; `None` for success.
    pub(crate) error: Option<u32>,
}

impl Reply {
    /// Parses a header; `None` if it is not that of a reply, or of one longer than `most`.
    pub(crate) fn parse(bytes: &[u8; HEADER], most: usize) -> Option<Self> {
        let [a, b, ..] = bytes;
        let [size, flags, error] = [1, 2, 3].map(|index| word(bytes, index));
        let size = usize::try_from(size).ok()?;
        let body = size.checked_sub(HEADER).filter(|body| *body <= most)?;
        (flags & KIND == REPLY).then_some(Self {
            id: u16::from_ne_bytes([*a, *b]),
            body,
            error: (flags & ERROR != 0).then_some(error),
        })
    }
}

/// Returns field `index` of a body of 32-bit words; 0 beyond its end.
pub(crate) fn word(body: &[u8], index: usize) -> u32 {
    let words = body.chunks_exact(4).nth(index).and_then(<[_]>::first_chunk::<4>);
    words.map_or(0, |word| u32::from_ne_bytes(*word))
}

/// Returns the 64-bit field at word `index`.
pub(crate) fn long(body: &[u8], index: usize) -> u64 {
    let at = index.saturating_mul(4);
    let bytes = body.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_laid_out_as_the_protocol_says() {
        let message = request(0x1234, Command::RegionWrite, true, &[&[1, 2], &[3]]);
        assert_eq!(message.len(), HEADER + 3);
        assert_eq!(u16::from_ne_bytes([message[0], message[1]]), 0x1234);
        assert_eq!(u16::from_ne_bytes([message[2], message[3]]), 10);
        assert_eq!([word(&message, 1), word(&message, 2), word(&message, 3)], [19, 0x10, 0]);
        assert_eq!(message[HEADER..], [1, 2, 3]);
    }

    #[test]
    fn replies_errors_and_malformed_messages_are_distinguished() {
        let make = |size: u32, flags: u32, error: u32| {
            let mut bytes = [0; HEADER];
            bytes[0..2].copy_from_slice(&7u16.to_ne_bytes());
            bytes[4..8].copy_from_slice(&size.to_ne_bytes());
            bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
            bytes[12..16].copy_from_slice(&error.to_ne_bytes());
            bytes
        };
        let reply = Reply::parse(&make(20, 1, 0), 64).unwrap();
        assert_eq!((reply.id, reply.body, reply.error), (7, 4, None));
        let reply = Reply::parse(&make(16, 0x21, 22), 64).unwrap();
        assert_eq!((reply.body, reply.error), (0, Some(22)));
        for (size, flags) in [(15, 1), (0, 1), (16 + 65, 1), (u32::MAX, 1), (16, 0), (16, 2)] {
            assert_eq!(Reply::parse(&make(size, flags, 0), 64), None);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: [u8; HEADER], body: Vec<u8>, index in 0usize..64) {
            if let Some(reply) = Reply::parse(&bytes, 4096) {
                prop_assert!(reply.body <= 4096);
            }
            let _ = (word(&body, index), long(&body, index));
        }
    }
}
