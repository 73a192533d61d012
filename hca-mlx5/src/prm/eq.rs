//! Event queues: context, CREATE_EQ, the event queue entry (EQE), the event types.
//!
//! PRM chapter "Event queues"; Linux `mlx5_ifc_eqc_bits`, `mlx5_eqe`. The EQE is read one
//! big-endian word at a time.

use super::layout;

layout! {
    /// Event queue context.
    EqContext, 64;
    /// 0 in order, 0xa write failure.
    0x00[31:28] status, set_status: u8;
    /// Enable collapsed entries.
    0x00[18] ec, set_ec: bool;
    /// Overrun ignore.
    0x00[17] oi, set_oi: bool;
    /// 9 armed, 0xa fired.
    0x00[11:8] st, set_st: u8;
    0x08[11:6] page_offset, set_page_offset: u8;
    0x0c[28:24] log_eq_size, set_log_eq_size: u8;
    0x0c[23:0] uar_page, set_uar_page: u32;
    /// MSI-X vector.
    0x14[11:0] intr, set_intr: u16;
    0x18[28:24] log_page_size, set_log_page_size: u8;
    0x28[23:0] consumer_counter, set_consumer_counter: u32;
    0x2c[23:0] producer_counter, set_producer_counter: u32;
}

layout! {
    /// CREATE_EQ input, without the page list that follows at [`CREATE_EQ_PAGES`].
    CreateEqIn, 272;
    /// Events 63..0; bit n asks for event type n. The other three words are for types above 63, of which none exists.
    0x58(64) event_bitmask, set_event_bitmask: u64;
}

/// Where the context stands in CREATE_EQ (input) and QUERY_EQ (output).
pub const EQ_CONTEXT: usize = 0x10;
/// Where CREATE_EQ's page list starts.
pub const CREATE_EQ_PAGES: usize = 0x110;

/// [`EqContext::st`]: the next event interrupts.
pub const ARMED: u8 = 9;
/// Bytes of QUERY_EQ's output.
pub const QUERY_EQ_OUT: usize = 272;
/// Where the entry stands in GEN_EQE's input.
pub const GEN_EQE_ENTRY: usize = 0x10;

/// Bytes of an entry.
pub const EQE_SIZE: usize = 64;
/// Byte in the entry at which the event's own data starts.
pub const EQE_DATA: usize = 0x20;

bitfield::bitfield! {
    /// First word of an EQE.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct EqeHead(pub u32);
    impl Debug;
    /// Type of the event.
    pub u8, event_type, set_event_type: 23, 16;
    /// Detail of some types.
    pub u8, event_sub_type, set_event_sub_type: 7, 0;
}

bitfield::bitfield! {
    /// Last word of an EQE.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct EqeTail(pub u32);
    impl Debug;
    /// Not checked: written only where command signatures are on.
    pub u8, signature, set_signature: 15, 8;
    /// Turns over at each pass through the ring; 0 in the first.
    pub owner, set_owner: 0;
}

/// Event types this driver subscribes to or knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventType {
    /// A completion queue that was armed has a new entry.
    Completion = 0x00,
    /// The alternate path was taken.
    PathMigrated = 0x01,
    /// First packet of the peer arrived at a queue pair in RTR.
    CommunicationEstablished = 0x02,
    /// The send queue is drained.
    SendQueueDrained = 0x03,
    /// A completion queue failed.
    CqError = 0x04,
    /// A work queue failed in the device.
    WqCatastrophic = 0x05,
    /// The alternate path failed.
    PathMigrationFailed = 0x07,
    /// Internal error of the device.
    InternalError = 0x08,
    /// The port changed state or an attribute.
    PortChange = 0x09,
    /// A command finished.
    Command = 0x0a,
    /// The firmware wants pages, or gives some back.
    PageRequest = 0x0b,
    /// Another owner changed this function's vport context.
    NicVportChange = 0x0d,
    /// The peer sent a request that is invalid for the queue.
    WqInvalidRequest = 0x10,
    /// The peer sent a request that the keys do not allow.
    WqAccessError = 0x11,
    /// A shared receive queue failed in the device.
    SrqCatastrophic = 0x12,
    /// The last receive of a queue pair in error was consumed.
    LastWqe = 0x13,
    /// A shared receive queue fell below its limit.
    SrqLimit = 0x14,
    /// A cable or transceiver module changed state.
    PortModule = 0x16,
    /// The device is too hot.
    Temperature = 0x17,
}

impl EventType {
    /// From its number.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => Self::Completion,
            0x01 => Self::PathMigrated,
            0x02 => Self::CommunicationEstablished,
            0x03 => Self::SendQueueDrained,
            0x04 => Self::CqError,
            0x05 => Self::WqCatastrophic,
            0x07 => Self::PathMigrationFailed,
            0x08 => Self::InternalError,
            0x09 => Self::PortChange,
            0x0a => Self::Command,
            0x0b => Self::PageRequest,
            0x0d => Self::NicVportChange,
            0x10 => Self::WqInvalidRequest,
            0x11 => Self::WqAccessError,
            0x12 => Self::SrqCatastrophic,
            0x13 => Self::LastWqe,
            0x14 => Self::SrqLimit,
            0x16 => Self::PortModule,
            0x17 => Self::Temperature,
            _ => return None,
        })
    }

    /// Its bit in the event bitmask of CREATE_EQ.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }
}

bitfield::bitfield! {
    /// Word written to the EQ doorbells of a UAR page.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct EqDoorbell(pub u32);
    impl Debug;
    /// Which queue.
    pub u8, eqn, set_eqn: 31, 24;
    /// Consumer index, free running.
    pub u32, consumer_index, set_consumer_index: 23, 0;
}

/// Offset in the UAR page of the doorbell that updates the index and arms.
pub const UAR_EQ_ARM: usize = 0x40;
/// Offset in the UAR page of the doorbell that only updates the index.
pub const UAR_EQ_UPDATE: usize = 0x48;
