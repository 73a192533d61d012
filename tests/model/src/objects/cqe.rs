//! Completion queue entries: the 64 bytes the device writes.
//!
//! The ring sets owner bit and place (`cq.rs`); this file only knows which field lies where.
//! PRM: CQE format, error CQE format.

use crate::ifc::cqe::{cqe as l, err_cqe};
use crate::transport::host::{InCqe, Syndrome};

/// Size of an entry (`cqe_sz` 0).
pub(crate) const CQE_BYTES: usize = l::BYTES;

/// Formats of an entry with payload: 32 bytes over its own first half, or 64 bytes before it.
const INLINE_32: u32 = 1;
const INLINE_64: u32 = 2;
/// Bytes of the smaller form.
const NARROW: usize = 32;
/// What stands behind a payload that is shorter than its form.
const UNDEFINED: u8 = 0xc5;

/// Opcode of an entry (upper half of byte 0x3f).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CqeOpcode {
    /// A send-queue work request is done.
    Requester = 0,
    /// RDMA write with immediate arrived.
    RespWriteImm = 1,
    /// A send arrived.
    RespSend = 2,
    /// A send with immediate arrived.
    RespSendImm = 3,
    /// A send with invalidate arrived.
    RespSendInv = 4,
    /// The ring ends here, and another begins.
    ResizeCq = 5,
    /// A send-queue work request failed.
    RequesterError = 13,
    /// A receive failed.
    ResponderError = 14,
}

/// The vendor syndrome that goes with a syndrome: seen on silicon where known, otherwise a number
/// of our own; never zero, so that no driver builds on zero.
pub(crate) const fn vendor_syndrome(syndrome: Syndrome) -> u8 {
    match syndrome {
        Syndrome::LocalLength => 0x7b,
        Syndrome::LocalQpOperation => 0x77,
        Syndrome::LocalProtection => 0x51,
        Syndrome::Flushed => 0xf9,
        Syndrome::MwBind => 0x78,
        Syndrome::BadResponse => 0x73,
        Syndrome::LocalAccess => 0x59,
        Syndrome::RemoteInvalidRequest => 0x8a,
        Syndrome::RemoteAccess => 0x88,
        Syndrome::RemoteOperation => 0x8c,
        Syndrome::TransportRetryExceeded => 0x81,
        Syndrome::RnrRetryExceeded => 0x82,
        Syndrome::Aborted => 0x93,
    }
}

/// One entry, every field the model ever sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cqe {
    /// Its opcode.
    pub(crate) opcode: CqeOpcode,
    /// Number of the queue it belongs to (24 bits); of a frame in a raw receive queue the flow
    /// tag.
    pub(crate) qpn: u32,
    /// `srqn_or_user_index` (24 bits).
    pub(crate) user_index: u32,
    /// Opcode of the send-queue work request.
    pub(crate) wqe_opcode: u8,
    /// Index of the work request.
    pub(crate) wqe_counter: u16,
    /// Bytes.
    pub(crate) byte_cnt: u32,
    /// Immediate, invalidated key, or P_Key of a GSI packet.
    pub(crate) immediate: u32,
    /// GRH present, service level, L3 type and the sender's QPN (dword 0x18).
    pub(crate) flags_rqpn: u32,
    /// Ones-complement sum over the packet behind its Ethernet header.
    pub(crate) check_sum: u16,
    /// Source LID of a datagram.
    pub(crate) slid: u16,
    /// Low bits of the LID that a datagram was for, by which it differs from the base LID.
    pub(crate) path_bits: u8,
    /// Hash of a packet from a raw receive queue.
    pub(crate) rss_hash: u32,
    /// Headers of the packet that were hashed (byte 0x10).
    pub(crate) rss_kind: u8,
    /// L2, L3, L4 verdict (byte 0x1c).
    pub(crate) hds_ip_ext: u8,
    /// L4 and L3 kind, VLAN stripped (byte 0x1d).
    pub(crate) l4_l3_hdr_type: u8,
    /// Stripped VLAN tag.
    pub(crate) vlan: u16,
    /// Device clock.
    pub(crate) timestamp: u64,
    /// The packet bore a congestion mark.
    pub(crate) congested: bool,
    /// The peer asked for an event.
    pub(crate) solicited: bool,
    /// For an error: the syndrome.
    pub(crate) error: Option<Syndrome>,
    /// Payload of the message.
    pub(crate) in_cqe: Option<InCqe>,
}

impl Cqe {
    /// An entry of one kind with every other field zero.
    pub(crate) const fn new(opcode: CqeOpcode, qpn: u32) -> Self {
        Self {
            opcode,
            qpn,
            user_index: 0,
            wqe_opcode: 0,
            wqe_counter: 0,
            byte_cnt: 0,
            immediate: 0,
            flags_rqpn: 0,
            check_sum: 0,
            slid: 0,
            path_bits: 0,
            rss_hash: 0,
            rss_kind: 0,
            hds_ip_ext: 0,
            l4_l3_hdr_type: 0,
            vlan: 0,
            timestamp: 0,
            congested: false,
            solicited: false,
            error: None,
            in_cqe: None,
        }
    }

    /// Whether a CQ armed for solicited completions only fires on it: errors always count.
    pub(crate) const fn counts_as_solicited(&self) -> bool {
        self.solicited || self.error.is_some()
    }

    /// The half of a 128-byte entry before the entry proper, if it holds payload.
    pub(crate) fn encode_before(&self) -> Option<[u8; CQE_BYTES]> {
        let payload = self.in_cqe?;
        let mut bytes = [UNDEFINED; CQE_BYTES];
        bytes[..payload.bytes().len()].copy_from_slice(payload.bytes());
        Some(bytes)
    }

    /// The bytes, owner bit zero, of an entry of 64 bytes or of the second half of a `wide` one.
    pub(crate) fn encode(&self, wide: bool) -> [u8; CQE_BYTES] {
        let mut b = [0; CQE_BYTES];
        l::srqn_user_index.set(&mut b, self.user_index);
        l::sop_drop.set(&mut b, u32::from(self.wqe_opcode));
        l::qpn.set(&mut b, self.qpn);
        l::wqe_counter.set(&mut b, u32::from(self.wqe_counter));
        if let Some(error) = self.error {
            // An error entry carries nothing else: real cards show zeroes up to 0x33.
            err_cqe::vendor_err_synd.set(&mut b, u32::from(vendor_syndrome(error)));
            err_cqe::syndrome.set(&mut b, error as u32);
        } else {
            l::rss_hash_result.set(&mut b, self.rss_hash);
            l::rss_hash_type.set(&mut b, u32::from(self.rss_kind));
            l::ml_path
                .set(&mut b, u32::from(self.congested) << 7 | u32::from(self.path_bits & 0x7f));
            l::slid.set(&mut b, u32::from(self.slid));
            l::check_sum.set(&mut b, u32::from(self.check_sum));
            l::flags_rqpn.set(&mut b, self.flags_rqpn);
            l::hds_ip_ext.set(&mut b, u32::from(self.hds_ip_ext));
            l::l4_l3_hdr_type.set(&mut b, u32::from(self.l4_l3_hdr_type));
            l::vlan_info.set(&mut b, u32::from(self.vlan));
            l::imm_inval_pkey.set(&mut b, self.immediate);
            l::byte_cnt.set(&mut b, self.byte_cnt);
            l::timestamp.set64(&mut b, self.timestamp);
        }
        if let Some(payload) = self.in_cqe {
            l::cqe_format.set(&mut b, if wide { INLINE_64 } else { INLINE_32 });
            if !wide {
                let bytes = payload.bytes();
                b[..NARROW].fill(UNDEFINED);
                b[..bytes.len()].copy_from_slice(bytes);
            }
        }
        l::opcode.set(&mut b, self.opcode as u32);
        l::se.set(&mut b, u32::from(self.solicited));
        // The signature byte is never zero in dumps of real cards; no driver may compare it.
        let sum = b.iter().fold(0u8, |a, &x| a ^ x);
        l::signature.set(&mut b, u32::from(!sum));
        b
    }
}
