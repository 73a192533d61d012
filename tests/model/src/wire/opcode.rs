//! The BTH opcodes of the services this device gives: RC, UC, XRC and UD.
//!
//! The byte on the wire is a service (three bits) and an operation. UC has a part of the operations
//! of RC, XRC has all of them and names the shared receive queue in every request; so an [`Opcode`]
//! is an operation of RC or UD, and a [`Service`] stands beside it. RD, CNP, FLUSH and ATOMIC WRITE
//! are not among them; a packet with such an opcode is dropped in silence, as IBTA asks for a
//! service a QP does not have. A CNP is legal to ignore.
//! Reference: IBTA volume 1, section 9.2.1, OpCode field; annex A14 (XRC).

/// The transport service of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0x00,
    /// Unreliable connection.
    Uc = 0x20,
    /// Unreliable datagram.
    Ud = 0x60,
    /// Extended reliable connection.
    Xrc = 0xa0,
}

/// Service and operation of the opcode byte, or the byte if it is of neither.
pub fn split(byte: u8) -> Result<(Service, Opcode), u8> {
    let service = match byte & 0xe0 {
        0x00 => Service::Rc,
        0x20 => Service::Uc,
        0x60 => Service::Ud,
        0xa0 => Service::Xrc,
        _ => return Err(byte),
    };
    let opcode = match service {
        Service::Ud => Opcode::try_from(byte)?,
        Service::Rc | Service::Uc | Service::Xrc => {
            Opcode::try_from(byte & 0x1f).map_err(|_| byte)?
        }
    };
    if service == Service::Uc && !opcode.is_unacknowledged() {
        return Err(byte);
    }
    Ok((service, opcode))
}

/// The opcode byte of an operation in a service.
#[must_use]
pub fn join(service: Service, opcode: Opcode) -> u8 {
    u8::from(opcode) | service as u8
}

/// Which extended headers a packet carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// RETH.
    pub reth: bool,
    /// AtomicETH.
    pub atomic: bool,
    /// AETH.
    pub aeth: bool,
    /// AtomicAckETH.
    pub atomic_ack: bool,
    /// DETH.
    pub deth: bool,
    /// ImmDt.
    pub imm: bool,
    /// IETH.
    pub ieth: bool,
}

macro_rules! opcodes {
    ($($name:ident = $value:literal, $doc:literal, [$($header:ident),*];)*) => {
        /// A BTH opcode.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode { $(#[doc = $doc] $name = $value,)* }

        impl Opcode {
            /// All opcodes known here.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The extended headers that follow the BTH.
            #[must_use]
            pub fn headers(self) -> Headers {
                match self {
                    $(Self::$name => Headers { $($header: true,)* ..Headers::default() },)*
                }
            }
        }

        impl TryFrom<u8> for Opcode {
            type Error = u8;
            fn try_from(byte: u8) -> Result<Self, u8> {
                match byte { $($value => Ok(Self::$name),)* other => Err(other) }
            }
        }

        impl From<Opcode> for u8 {
            fn from(op: Opcode) -> u8 {
                match op { $(Opcode::$name => $value,)* }
            }
        }
    };
}

opcodes! {
    SendFirst = 0x00, "RC SEND first", [];
    SendMiddle = 0x01, "RC SEND middle", [];
    SendLast = 0x02, "RC SEND last", [];
    SendLastImm = 0x03, "RC SEND last with immediate", [imm];
    SendOnly = 0x04, "RC SEND only", [];
    SendOnlyImm = 0x05, "RC SEND only with immediate", [imm];
    WriteFirst = 0x06, "RC RDMA WRITE first", [reth];
    WriteMiddle = 0x07, "RC RDMA WRITE middle", [];
    WriteLast = 0x08, "RC RDMA WRITE last", [];
    WriteLastImm = 0x09, "RC RDMA WRITE last with immediate", [imm];
    WriteOnly = 0x0a, "RC RDMA WRITE only", [reth];
    WriteOnlyImm = 0x0b, "RC RDMA WRITE only with immediate", [reth, imm];
    ReadRequest = 0x0c, "RC RDMA READ request", [reth];
    ReadFirst = 0x0d, "RC RDMA READ response first", [aeth];
    ReadMiddle = 0x0e, "RC RDMA READ response middle", [];
    ReadLast = 0x0f, "RC RDMA READ response last", [aeth];
    ReadOnly = 0x10, "RC RDMA READ response only", [aeth];
    Ack = 0x11, "RC acknowledge (positive or negative)", [aeth];
    AtomicAck = 0x12, "RC ATOMIC acknowledge", [aeth, atomic_ack];
    CompareSwap = 0x13, "RC compare and swap", [atomic];
    FetchAdd = 0x14, "RC fetch and add", [atomic];
    SendLastInval = 0x16, "RC SEND last with invalidate", [ieth];
    SendOnlyInval = 0x17, "RC SEND only with invalidate", [ieth];
    UdSendOnly = 0x64, "UD SEND only", [deth];
    UdSendOnlyImm = 0x65, "UD SEND only with immediate", [deth, imm];
}

impl Opcode {
    /// Whether this is a packet of the UD service.
    #[must_use]
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::UdSendOnly | Self::UdSendOnlyImm)
    }

    /// Whether the unreliable connection has this operation: SEND and WRITE.
    #[must_use]
    pub fn is_unacknowledged(self) -> bool {
        u8::from(self) <= u8::from(Self::WriteOnlyImm)
    }

    /// Whether this is an answer: for a requester, not for a responder.
    #[must_use]
    pub fn is_response(self) -> bool {
        matches!(
            self,
            Self::ReadFirst
                | Self::ReadMiddle
                | Self::ReadLast
                | Self::ReadOnly
                | Self::Ack
                | Self::AtomicAck
        )
    }
}
