//! Command status codes.

/// Status of a command, as byte 0 of its output says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0x00,
    /// Internal error.
    Internal = 0x01,
    /// Unknown or unsupported opcode or modifier.
    BadOp = 0x02,
    /// A parameter is out of range or a combination is not allowed.
    BadParam = 0x03,
    /// Not at this stage of bring-up.
    BadSysState = 0x04,
    /// A number that names nothing.
    BadResource = 0x05,
    /// Busy.
    Busy = 0x06,
    /// Not yet.
    NotReady = 0x07,
    /// Beyond a limit.
    ExceedLimit = 0x08,
    /// The object named is not in a state that allows it, for one still referenced.
    BadResourceState = 0x09,
    /// Index out of range.
    BadIndex = 0x0a,
    /// No memory for it.
    NoResources = 0x0f,
    /// The QP is not in the state this transition starts from.
    BadQpState = 0x10,
    /// The new ring of a CQ is too small for what is outstanding.
    TooManyCqes = 0x40,
    /// Input shorter than the command's.
    BadInputLength = 0x50,
    /// Output shorter than the command's.
    BadOutputLength = 0x51,
}

/// A command refused: status, and the model's own syndrome number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u8,
    pub(crate) syndrome: u32,
}

impl Status {
    /// Refuses with a syndrome, which on real cards is a firmware build's private number.
    pub(crate) const fn because(self, syndrome: u32) -> Refusal {
        Refusal { status: self as u8, syndrome }
    }
}
