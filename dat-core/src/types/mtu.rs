//! Path MTUs.

/// Path MTU of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// From the code that CM messages and queue pair contexts carry.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }

    /// The code that CM messages and queue pair contexts carry.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Payload bytes of one packet.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self.code()
    }
}
