//! Completion queue entries: the last 32 bytes of a 64-byte CQE, which hold all that a queue pair's
//! completion says.
//!
//! PRM section "Completion queue entry"; Linux `struct mlx5_cqe64` and `struct mlx5_err_cqe`.
//! Single dwords, each the number whose big-endian form the device wrote. Checksums, hashes and time
//! stamps belong to Ethernet. The first half of an entry is empty, or holds a short message.

use bitfield::bitfield;
use dat_core::provider::Status;

/// Bytes of an entry.
pub const CQE: usize = 64;
/// Where the dword with the user index stands.
pub const INDEX_AT: usize = 0x20;
/// Where a datagram's entry names its sender, a dword.
pub const SENDER_AT: usize = 0x18;
/// Where a datagram's entry has the low bits of the LID that it was sent to, in the last byte but
/// two of a dword.
pub const PATH_BITS_AT: usize = 0x10;
/// InfiniBand: where a datagram's entry has the sender's LID, in the low half of a dword.
pub const SLID_AT: usize = 0x14;
/// Where the immediate stands, a dword.
pub const IMMEDIATE_AT: usize = 0x24;
/// Where the byte count stands, a dword.
pub const BYTE_CNT_AT: usize = 0x2c;
/// Where an error entry says why.
pub const CAUSE_AT: usize = 0x34;
/// Where the word with the number of the queue pair stands.
pub const SOURCE_AT: usize = 0x38;
/// Where the dword with the ownership byte stands.
pub const OWNER_AT: usize = 0x3c;

/// Requester: a request succeeded.
pub const REQUESTER: u8 = 0;
/// Responder: RDMA WRITE with immediate arrived.
pub const RESPONDER_WRITE_IMM: u8 = 1;
/// Responder: SEND arrived.
pub const RESPONDER_SEND: u8 = 2;
/// Responder: SEND with immediate arrived.
pub const RESPONDER_SEND_IMM: u8 = 3;
/// Responder: SEND with invalidate arrived.
pub const RESPONDER_SEND_INVALIDATE: u8 = 4;
/// The queue goes on in another ring: the last entry of this one.
pub const RESIZED: u8 = 5;
/// A request failed.
pub const REQUESTER_ERROR: u8 = 13;
/// A receive failed.
pub const RESPONDER_ERROR: u8 = 14;
/// Never written by the device: software marks empty entries with it.
pub const INVALID: u8 = 15;

/// [`Owner::format`]: the entry's first half holds the message.
pub const INLINE_32: u8 = 1;
/// Bytes of that half.
pub const PAYLOAD: u32 = 32;
/// [`Owner::format`]: the title of a session of compressed entries.
pub const COMPRESSED: u8 = 3;
/// Mini CQEs in a slot.
pub const MINIS: u32 = 8;

/// The dword that marks an entry as empty before its first use: invalid opcode, and the owner bit
/// of the lap before.
pub const EMPTY: u32 = 0xf1;

bitfield! {
    /// The dword at 0x3c: what the entry is of, and whose it is.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Owner(u32);
    impl Debug;
    u16;
    /// Send queue: index of the first basic block of the finished WQE. Receive queue: index of the receive.
    pub wqe_counter, _: 31, 16;
    u8;
    /// Signature or validity iteration; never part of a decision.
    pub signature, _: 15, 8;
    /// Kind of the entry.
    pub opcode, _: 7, 4;
    /// 0 plain, 1 payload in the entry's first half, 3 compressed.
    pub format, _: 3, 2;
    /// Solicited event.
    pub solicited, _: 1;
    /// Lap of the ring, the lowest bit of it.
    pub owner, _: 0;
}

impl Owner {
    /// Opcode, format and owner bit, as they stand in the last byte.
    #[inline]
    #[must_use]
    pub const fn kind(self) -> u8 {
        self.0.to_le_bytes()[0] & !2
    }

    /// Of an entry of that [`kind`](Self::kind) and that counter, on an even lap.
    #[inline]
    #[must_use]
    pub const fn plain(kind: u8, wqe_counter: u16) -> Self {
        Self((wqe_counter as u32) << 16 | kind as u32)
    }

    /// Whether counter and kind are those of that number.
    #[inline]
    #[must_use]
    pub const fn says(self, word: u32) -> bool {
        // What is left out: the signature and the solicited bit.
        (self.0 ^ word) & 0xffff_00fd == 0
    }

    /// That of a plain entry of a session of this title, with another counter.
    #[must_use]
    pub const fn unfolded(self, wqe_counter: u16) -> Self {
        // What is left out: the title's counter, format and lap.
        Self((wqe_counter as u32) << 16 | self.0 & 0xfff2)
    }

    /// From the number.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        Self(word)
    }

    /// The number, as of a lap with that owner bit.
    #[inline]
    #[must_use]
    pub const fn on_lap(self, lap: bool) -> u32 {
        self.0 & !1 | lap as u32
    }
}

bitfield! {
    /// The dword at 0x20.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Index(u32);
    impl Debug;
    u32;
    /// The number the queue pair was given by its maker (CQE version 1), or the SRQ's.
    pub user_index, _: 23, 0;
}

bitfield! {
    /// The dword at 0x34 of an error entry.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Cause(u32);
    impl Debug;
    u8;
    /// Hardware syndrome.
    pub hw_err_synd, _: 31, 24;
    /// Kind of hardware syndrome.
    pub hw_synd_type, _: 23, 16;
    /// Vendor syndrome, whose list is not public.
    pub vendor_err_synd, _: 15, 8;
    /// Syndrome.
    pub syndrome, _: 7, 0;
}

bitfield! {
    /// The word at 0x38.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Source(u64);
    impl Debug;
    u8;
    /// Opcode of the WQE (requester entries).
    pub sop, _: 63, 56;
    u32;
    /// Number of the queue pair.
    pub qpn, _: 55, 32;
}

bitfield! {
    /// A mini CQE: what an entry of a session has of its own (Linux `struct mlx5_mini_cqe8`).
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Mini(u64);
    impl Debug;
    u16;
    /// Of a request. Of a receive, a hash of no use.
    pub wqe_counter, _: 63, 48;
    u8;
    /// Of a request: opcode of the WQE.
    pub sop, _: 47, 40;
    u32;
    /// Byte count.
    pub byte_cnt, _: 31, 0;
}

bitfield! {
    /// The dword at 0x18 of a datagram's entry.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Sender(u32);
    impl Debug;
    /// RoCE: type of the network header (Linux `MLX5_CQE_ROCE_L3_HEADER_TYPE_*`): 0 none that it
    /// knows, 1 IPv6, 2 IPv4.
    pub u8, l3_type, _: 25, 24;
    /// 0 the packet had no global header.
    pub u8, grh, _: 29, 28;
    u32;
    /// The sender's QPN.
    pub rqpn, _: 23, 0;
}

impl Sender {
    /// From the number.
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        Self(word)
    }
}

impl Mini {
    /// From the number.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }
}

impl Index {
    /// From the number.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        Self(word)
    }
}

impl Cause {
    /// From the number.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        Self(word)
    }
}

impl Source {
    /// From the number.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }
}

/// The meaning of an error entry's syndrome.
#[must_use]
pub const fn status(syndrome: u8) -> Status {
    match syndrome {
        0x01 => Status::LocalLength,
        0x02 => Status::LocalQpOperation,
        0x04 => Status::LocalProtection,
        0x05 => Status::Flushed,
        0x06 => Status::WindowBind,
        0x10 => Status::BadResponse,
        0x11 => Status::LocalAccess,
        0x12 => Status::RemoteInvalidRequest,
        0x13 => Status::RemoteAccess,
        0x14 => Status::RemoteOperation,
        0x15 => Status::TransportRetry,
        0x16 => Status::RnrRetry,
        0x22 => Status::RemoteAborted,
        _ => Status::Other,
    }
}
