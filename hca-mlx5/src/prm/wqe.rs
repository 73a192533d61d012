//! Work queue entries: the words of each segment, as the device reads them.
//!
//! PRM chapter "Work request operations"; Linux `include/linux/mlx5/qp.h`, rdma-core
//! `providers/mlx5/wqe.h`. A WQE is a chain of 16-byte units (its length in them is DS), it starts
//! on a 64-byte basic block (WQEBB) and begins with the control segment. Everything here is two
//! 64-bit words a unit: each word is the number whose big-endian form the device reads, so that a
//! whole block is built in registers and turned over once, when it is stored.
//!
//! Only the segments that DAT needs are here: no Ethernet (a raw Ethernet queue has its own), no
//! signatures.

use bitfield::bitfield;

/// Bytes of a basic block, the step of the send queue's index.
pub const WQEBB: usize = 64;
/// Bytes of a unit, the measure of DS.
pub const UNIT: usize = 16;

/// Opcode of a no-operation.
pub const NOP: u8 = 0x00;
/// Opcode of a SEND that closes a window of the peer.
pub const SEND_INVAL: u8 = 0x01;
/// Opcode of an RDMA WRITE.
pub const RDMA_WRITE: u8 = 0x08;
/// Opcode of a SEND.
pub const SEND: u8 = 0x0a;
/// Opcode of an RDMA WRITE with immediate.
pub const RDMA_WRITE_IMM: u8 = 0x09;
/// Opcode of a SEND with immediate.
pub const SEND_IMM: u8 = 0x0b;
/// Opcode of an atomic compare and swap.
pub const ATOMIC_CS: u8 = 0x11;
/// Opcode of an atomic fetch and add.
pub const ATOMIC_FA: u8 = 0x12;
/// Opcode of an RDMA READ.
pub const RDMA_READ: u8 = 0x10;
/// Opcode of a change to a memory key, which is what a window bind is.
pub const UMR: u8 = 0x25;

bitfield! {
    /// First word of the control segment; also the 8 bytes a doorbell carries.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct CtrlHead(u64);
    impl Debug;
    u8;
    /// Variant of the opcode.
    pub opmod, set_opmod: 63, 56;
    u16;
    /// Free-running index of the WQE's first basic block.
    pub wqe_index, set_wqe_index: 55, 40;
    u8;
    /// The opcode.
    pub opcode, set_opcode: 39, 32;
    u32;
    /// Number of the queue pair.
    pub qpn, set_qpn: 31, 8;
    u8;
    /// Length of the WQE in 16-byte units, this segment included.
    pub ds, set_ds: 5, 0;
}

impl CtrlHead {
    /// The word of a WQE.
    #[inline]
    #[must_use]
    pub const fn new(opcode: u8, wqe_index: u16, qpn: u32, ds: u8) -> Self {
        // By hand, so that it is `const`: the setters are not.
        let index = (wqe_index as u64) << 40 | (opcode as u64) << 32;
        Self(index | (qpn as u64 & 0xff_ffff) << 8 | ds as u64 & 0x3f)
    }

    /// From the number.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }
}

bitfield! {
    /// Second word of the control segment.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct CtrlTail(u64);
    impl Debug;
    u8;
    /// Complement of the XOR of the WQE, where signatures are on.
    pub signature, set_signature: 63, 56;
    /// Fence (3 bits), completion (2 bits), solicited (1 bit): the byte `fm_ce_se`.
    pub fm_ce_se, set_fm_ce_se: 39, 32;
    /// [`FENCE_SMALL`] and its like, by their 3 bits.
    pub fence, set_fence: 39, 37;
    /// 0 completion only on error, 2 always.
    pub ce, set_ce: 35, 34;
    /// Solicited event at the peer.
    pub se, set_se: 33, 33;
    u32;
    /// Immediate, or the memory key a UMR changes.
    pub immediate, set_immediate: 31, 0;
}

impl CtrlTail {
    /// The word of a WQE.
    #[inline]
    #[must_use]
    pub const fn new(fm_ce_se: u8, immediate: u32) -> Self {
        Self((fm_ce_se as u64) << 32 | immediate as u64)
    }

    /// From the number.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }
}

/// `fm_ce_se`: start only when earlier UMRs have taken effect ("initiator small fence").
pub const FENCE_SMALL: u8 = 1 << 5;
/// `fm_ce_se`: start only when all earlier requests have been carried out ("strong ordering").
pub const FENCE_STRONG: u8 = 3 << 5;
/// `fm_ce_se`: start only when all earlier requests, reads too, are done. The value both open
/// stacks send for a fenced request; it implies [`FENCE_SMALL`].
pub const FENCE_ALL: u8 = 4 << 5;
/// `fm_ce_se`: always write a CQE.
pub const SIGNALED: u8 = 2 << 2;
/// `fm_ce_se`: solicited event.
pub const SOLICITED: u8 = 1 << 1;

/// Bit of the byte count that turns a data pointer into inline data.
pub const INLINE: u32 = 1 << 31;

/// The two words of a data pointer.
#[inline]
#[must_use]
pub const fn data(addr: u64, len: u32, lkey: u32) -> [u64; 2] {
    [(len as u64) << 32 | lkey as u64, addr]
}

/// Length and lkey in the first word of a data pointer.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "fields of a word")]
pub const fn data_of(first: u64) -> (u32, u32) {
    ((first >> 32) as u32, first as u32)
}

/// The two words of a remote address segment.
#[inline]
#[must_use]
pub const fn remote(addr: u64, rkey: u32) -> [u64; 2] {
    [addr, (rkey as u64) << 32]
}

/// The two words of an atomic segment: what is swapped in or added, and what is compared.
#[inline]
#[must_use]
pub const fn atomic(operand: u64, compare: u64) -> [u64; 2] {
    [operand, compare]
}

/// The first of the two words that begin an entry of a linked receive queue: the number of the
/// next. The second is 0.
#[inline]
#[must_use]
pub const fn next(slot: u16) -> u64 {
    (slot as u64) << 32
}

/// Returns the index that [`next`] was made of.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "fields of a word")]
pub const fn next_of(word: u64) -> u16 {
    (word >> 32) as u16
}

/// The lkey that ends the scatter list of a receive early.
pub const TERMINATE: u32 = 0x100;

bitfield! {
    /// First word of the UMR control segment; the second is the mask of the key fields to change, four zero words
    /// follow.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct UmrHead(u64);
    impl Debug;
    /// The translation stands in the WQE itself.
    pub inline, set_inline: 63;
    /// Refuse unless the key is bound.
    pub check_bound, set_check_bound: 62;
    /// Refuse unless the key is free.
    pub check_free, set_check_free: 61;
    /// The translation offset is valid.
    pub offset_valid, set_offset_valid: 60;
    /// Refuse unless the key belongs to this queue pair.
    pub check_qpn, set_check_qpn: 59;
    u16;
    /// Size of the translation in 16-byte words, in steps of 4 for KLMs.
    pub octowords, set_octowords: 31, 16;
    /// Where in the key's translation the change starts.
    pub offset, set_offset: 15, 0;
}

impl UmrHead {
    /// The word of a type 1 window bind of `octowords` of inline translation.
    #[inline]
    #[must_use]
    pub const fn bind(octowords: u16) -> Self {
        // Inline and offset valid.
        Self(1 << 63 | 1 << 60 | (octowords as u64) << 16)
    }

    /// The word of the first bind of a type 2 window: as above, and the key has to be free.
    #[inline]
    #[must_use]
    pub const fn bind_free(octowords: u16) -> Self {
        Self(Self::bind(octowords).0 | 1 << 61)
    }

    /// The word of a fast registration whose list of `octowords` stands behind a data pointer; the
    /// key has to be free.
    #[inline]
    #[must_use]
    pub const fn register(octowords: u16) -> Self {
        Self(1 << 61 | (octowords as u64) << 16)
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }
}

/// 16-byte words of a list of `pages` pages, in whole granules of eight.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a list has 2^15 pages at most")]
pub const fn page_octowords(pages: u32) -> u16 {
    (pages.next_multiple_of(8) / 2) as u16
}

/// Alignment of a list that a UMR points to.
pub const LIST_ALIGN: usize = 2048;

/// Fields of a memory key that a UMR may change, as bits of its mask.
pub mod mask {
    /// Length.
    pub const LEN: u64 = 1 << 0;
    /// Page size.
    pub const PAGE_SIZE: u64 = 1 << 1;
    /// Start address.
    pub const START: u64 = 1 << 6;
    /// Low byte of the key.
    pub const KEY: u64 = 1 << 13;
    /// The one queue pair allowed to use it.
    pub const QPN: u64 = 1 << 14;
    /// Local read.
    pub const LR: u64 = 1 << 17;
    /// Local write.
    pub const LW: u64 = 1 << 18;
    /// Remote read.
    pub const RR: u64 = 1 << 19;
    /// Remote write.
    pub const RW: u64 = 1 << 20;
    /// Atomics.
    pub const A: u64 = 1 << 21;
    /// Bound or free.
    pub const FREE: u64 = 1 << 29;

    /// Fields that a type 1 bind sets. Local read and atomics are not among them: they were given,
    /// or not, when the window was made.
    pub const BIND: u64 = FREE | RW | RR | LW | KEY | START | LEN;
    /// Fields that an unbind sets.
    pub const UNBIND: u64 = FREE | KEY;
    /// Fields that a bind of a type 2 window sets.
    pub const BIND_OWN: u64 = BIND | QPN;
    /// Fields that its unbind sets.
    pub const UNBIND_OWN: u64 = UNBIND | QPN;
    /// Fields that a fast registration sets.
    pub const REGISTER: u64 = FREE | A | RW | RR | LW | LR | KEY | START | PAGE_SIZE | LEN;
}

/// What makes an entry of a list that a UMR points to open its page: read and write, which the
/// rights of the key limit further (Linux `MLX5_MTT_READ`, `MLX5_MTT_WRITE`).
pub const LISTED: u64 = 0b11;

/// 16-byte words a bind writes: one KLM, rounded up to the four that a window has room for.
pub const BIND_OCTOWORDS: u16 = 4;

bitfield! {
    /// First word of the key segment of a UMR (the first two dwords of the memory key context).
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct UmrKey(u64);
    impl Debug;
    /// The key opens nothing.
    pub free, set_free: 62;
    /// Atomics.
    pub a, set_a: 46;
    /// Remote write.
    pub rw, set_rw: 45;
    /// Remote read.
    pub rr, set_rr: 44;
    /// Local write.
    pub lw, set_lw: 43;
    /// Local read.
    pub lr, set_lr: 42;
    u32;
    /// The one queue pair allowed to use it; all ones for any.
    pub qpn, set_qpn: 31, 8;
    u8;
    /// Low byte of the key.
    pub mkey_7_0, set_mkey_7_0: 7, 0;
}

impl UmrKey {
    /// The number.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }
}

/// The QPN that stands for any queue pair in a memory key.
pub const ANY_QPN: u32 = 0xff_ffff;

bitfield! {
    /// The word of an address vector at byte 8: destination QPN, service level, UDP source port.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct AvPath(u64);
    impl Debug;
    /// This is the 48-byte form.
    pub extended, set_extended: 63;
    u32;
    /// Destination QPN.
    pub dqpn, set_dqpn: 55, 32;
    u8;
    /// Static rate.
    pub stat_rate, set_stat_rate: 31, 28;
    /// Service level; on RoCE the priority, shifted up by one.
    pub sl, set_sl: 27, 24;
    /// InfiniBand: low bits of the own LID.
    pub path_bits, set_path_bits: 22, 16;
    u16;
    /// UDP source port; on InfiniBand the LID of the destination.
    pub rlid_udp_sport, set_rlid_udp_sport: 15, 0;
}

bitfield! {
    /// The word of an address vector at byte 0x14..0x1c: destination MAC, traffic class, hop limit.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct AvMac(u64);
    impl Debug;
    u64;
    /// Destination MAC.
    pub rmac, set_rmac: 63, 16;
    u8;
    /// Traffic class.
    pub tclass, set_tclass: 15, 8;
    /// Hop limit.
    pub hop_limit, set_hop_limit: 7, 0;
}

bitfield! {
    /// The dword of an address vector at byte 0x1c.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct AvGrh(u32);
    impl Debug;
    /// The global part is valid.
    pub grh, set_grh: 30;
    u8;
    /// Entry of the local address table.
    pub source_index, set_source_index: 27, 20;
    u32;
    /// Flow label.
    pub flow_label, set_flow_label: 19, 0;
}

/// Fields of an address vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Av {
    /// Q_Key of the destination.
    pub qkey: u32,
    /// QPN of the destination.
    pub dqpn: u32,
    /// UDP source port; on InfiniBand the LID of the destination.
    pub rlid_udp_sport: u16,
    /// InfiniBand: static rate, as the device counts.
    pub stat_rate: u8,
    /// InfiniBand: low bits of the own LID.
    pub path_bits: u8,
    /// The packet has a global header: on RoCE always.
    pub grh: bool,
    /// MAC of the destination or of the gateway to it.
    pub rmac: [u8; 6],
    /// Traffic class.
    pub tclass: u8,
    /// Service level; on RoCE the priority, shifted up by one.
    pub sl: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Entry of the local address table.
    pub source_index: u8,
    /// Flow label.
    pub flow_label: u32,
    /// GID of the destination.
    pub dgid: [u8; 16],
}

impl Av {
    /// The six words of the segment.
    #[must_use]
    pub fn words(&self) -> [u64; 6] {
        let mut path = AvPath(0);
        path.set_extended(true);
        path.set_dqpn(self.dqpn);
        path.set_stat_rate(self.stat_rate);
        path.set_sl(self.sl);
        path.set_path_bits(self.path_bits);
        path.set_rlid_udp_sport(self.rlid_udp_sport);
        let [a, b, c, d, e, f] = self.rmac;
        let mut mac = AvMac(0);
        mac.set_rmac(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        mac.set_tclass(self.tclass);
        mac.set_hop_limit(self.hop_limit);
        let mut grh = AvGrh(0);
        grh.set_grh(self.grh);
        grh.set_source_index(self.source_index);
        grh.set_flow_label(self.flow_label);
        let gid = u128::from_be_bytes(self.dgid);
        // The MAC starts in the middle of a word: dwords 0x10 (reserved), 0x14, 0x18, 0x1c.
        let tail = u128::from(mac.0) << 32 | u128::from(grh.0);
        [u64::from(self.qkey) << 32, path.0, high(tail), low(tail), high(gid), low(gid)]
    }
}

/// Upper half.
const fn high(wide: u128) -> u64 {
    low(wide >> 64)
}

/// Lower half.
#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is asked for")]
const fn low(wide: u128) -> u64 {
    wide as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_words_are_the_manuals() {
        let head = CtrlHead::new(RDMA_WRITE, 0x1234, 0x4d, 3);
        assert_eq!(head.word().to_be_bytes(), [0, 0x12, 0x34, 8, 0, 0, 0x4d, 3]);
        let tail = CtrlTail::new(SIGNALED | SOLICITED | FENCE_SMALL, 0x0102_0304);
        assert_eq!(tail.word().to_be_bytes(), [0, 0, 0, 0x2a, 1, 2, 3, 4]);
        assert_eq!((tail.fence(), tail.ce(), tail.se()), (1, 2, 1));
    }

    #[test]
    fn bind_masks_are_those_of_the_open_stacks_but_for_atomics() {
        assert_eq!(mask::BIND, 0x203c_2041 & !mask::A);
        assert_eq!(mask::UNBIND, 0x2000_2000);
        assert_eq!(mask::BIND_OWN, 0x203c_6041 & !mask::A);
        assert_eq!(mask::UNBIND_OWN, 0x2000_6000);
        // Linux's enabling of a registration, but for the protection domain, which stays.
        assert_eq!(mask::REGISTER, 0x203e_20c3 & !(1 << 7));
        assert_eq!(UmrHead::bind_free(4).word().to_be_bytes(), [0xb0, 0, 0, 0, 0, 4, 0, 0]);
        assert_eq!(
            UmrHead::register(page_octowords(9)).word().to_be_bytes(),
            [0x20, 0, 0, 0, 0, 8, 0, 0]
        );
        assert_eq!(UmrHead::bind(4).word().to_be_bytes(), [0x90, 0, 0, 0, 0, 4, 0, 0]);
    }

    #[test]
    fn key_access_bits_fall_on_the_access_byte() {
        let mut key = UmrKey(0);
        key.set_lr(true);
        key.set_rr(true);
        key.set_qpn(ANY_QPN);
        key.set_mkey_7_0(0x5a);
        assert_eq!(key.word().to_be_bytes(), [0, 0, 0x14, 0, 0xff, 0xff, 0xff, 0x5a]);
        let (mut lw, mut rw, mut a, mut free) = (UmrKey(0), UmrKey(0), UmrKey(0), UmrKey(0));
        lw.set_lw(true);
        rw.set_rw(true);
        a.set_a(true);
        free.set_free(true);
        assert_eq!(lw.word().to_be_bytes()[2], 0x08);
        assert_eq!(rw.word().to_be_bytes()[2], 0x20);
        assert_eq!(a.word().to_be_bytes()[2], 0x40);
        assert_eq!(free.word().to_be_bytes()[0], 0x40);
    }

    #[test]
    fn address_vector_bytes() {
        let av = Av {
            qkey: 0x8001_0000,
            dqpn: 1,
            rlid_udp_sport: 0xc287,
            stat_rate: 0,
            path_bits: 0,
            grh: true,
            rmac: [2, 3, 4, 5, 6, 7],
            tclass: 0x68,
            sl: 10,
            hop_limit: 64,
            source_index: 3,
            flow_label: 0xabcde,
            dgid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 7, 2],
        };
        let bytes: std::vec::Vec<u8> = av.words().iter().flat_map(|w| w.to_be_bytes()).collect();
        #[rustfmt::skip]
        let golden = [
            0x80, 0x01, 0, 0,   0, 0, 0, 0,   0x80, 0, 0, 1,   0x0a, 0, 0xc2, 0x87,
            0, 0, 0, 0,   2, 3, 4, 5,   6, 7, 0x68, 64,   0x40, 0x3a, 0xbc, 0xde,
            0, 0, 0, 0,   0, 0, 0, 0,   0, 0, 0xff, 0xff,   192, 168, 7, 2,
        ];
        assert_eq!(bytes, golden);
    }

    #[test]
    fn the_next_entry_stands_at_byte_2() {
        assert_eq!(next(0x1234).to_be_bytes(), [0, 0, 0x12, 0x34, 0, 0, 0, 0]);
    }

    #[test]
    fn data_and_remote_words() {
        assert_eq!(
            data(0x1122_3344_5566_7788, 0x100, 0xdead_be01),
            [0x0000_0100_dead_be01, 0x1122_3344_5566_7788]
        );
        assert_eq!(remote(0x10, 0xabcd), [0x10, 0x0000_abcd_0000_0000]);
    }
}
