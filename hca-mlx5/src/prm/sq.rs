//! Work queues of their own and send queues: the `wq` and `sqc` contexts, CREATE_SQ, MODIFY_SQ, and
//! the Ethernet segment.
//!
//! PRM chapter "Work queues"; Linux `mlx5_ifc_wq_bits`, `mlx5_ifc_sqc_bits`, `mlx5_wqe_eth_seg`.
//! The `wq` part is the same in receive queues ([`super::rq`]).

use super::layout;

layout! {
    /// The ring of a send, receive or memory queue; the list of page addresses follows it.
    WqContext, 192;
    /// 0 linked list, 1 cyclic, 2 and 3 the same in strides.
    0x00[31:28] wq_type, set_wq_type: u8;
    0x00[27] wq_signature, set_wq_signature: bool;
    0x00[26:25] end_padding_mode, set_end_padding_mode: u8;
    /// Offset into the first page, in 1/64 of a page.
    0x04[20:16] page_offset, set_page_offset: u8;
    0x04[15:0] lwm, set_lwm: u16;
    0x08[23:0] pd, set_pd: u32;
    /// Doorbell page; only send queues have one.
    0x0c[23:0] uar_page, set_uar_page: u32;
    0x10(64) dbr_addr, set_dbr_addr: u64;
    0x18(32) hw_counter, set_hw_counter: u32;
    0x1c(32) sw_counter, set_sw_counter: u32;
    /// log2 of the bytes between entries.
    0x20[19:16] log_wq_stride, set_log_wq_stride: u8;
    /// log2 of the page size in units of 4 KiB.
    0x20[12:8] log_wq_pg_sz, set_log_wq_pg_sz: u8;
    /// log2 of the number of entries.
    0x20[4:0] log_wq_sz, set_log_wq_sz: u8;
}

/// [`WqContext`] `wq_type` of a ring.
pub const WQ_CYCLIC: u8 = 1;
/// [`WqContext`] `wq_type` of entries that name the next one.
pub const WQ_LINKED: u8 = 0;

layout! {
    /// Send queue context, without its [`WqContext`], which stands at [`SQ_WQ`].
    SqContext, 48;
    /// Segments may carry the reserved lkey.
    0x00[31] rlky, set_rlky: bool;
    0x00[29] fre, set_fre: bool;
    /// Posts to a queue in error complete as flushed.
    0x00[28] flush_in_error_en, set_flush_in_error_en: bool;
    0x00[27] allow_multi_pkt_send_wqe, set_allow_multi_pkt_send_wqe: bool;
    /// Which headers stand in the WQE itself: [`InlineMode`].
    0x00[26:24] min_wqe_inline_mode, set_min_wqe_inline_mode: u8;
    /// [`QueueState`].
    0x00[23:20] state, set_state: u8;
    0x00[19] reg_umr, set_reg_umr: bool;
    /// See [`timestamps`](crate::prm::caps::timestamps).
    0x00[5:4] ts_format, set_ts_format: u8;
    0x04[23:0] user_index, set_user_index: u32;
    0x08[23:0] cqn, set_cqn: u32;
    0x20[31:16] tis_lst_sz, set_tis_lst_sz: u16;
    0x2c[23:0] tis_num_0, set_tis_num_0: u32;
}

/// Where the `wq` part stands in a send or receive queue context.
pub const SQ_WQ: usize = 0x30;
/// Where the context stands in CREATE_SQ and CREATE_RQ, and in their MODIFY and QUERY.
pub const SQ_CONTEXT: usize = 0x20;
/// Where the page list of CREATE_SQ and CREATE_RQ starts.
pub const SQ_PAGES: usize = 0x110;

/// State of a send or receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QueueState {
    /// Created or reset: takes nothing.
    Reset = 0,
    /// Working.
    Ready = 1,
    /// In error.
    Error = 3,
}

layout! {
    /// Head of MODIFY_SQ and MODIFY_RQ.
    ModifyQueueIn, 32;
    /// The state it is in.
    0x08[31:28] queue_state, set_queue_state: u8;
    0x08[23:0] number, set_number: u32;
    0x10(64) modify_bitmask, set_modify_bitmask: u64;
}

/// Which headers of a frame a send queue wants inside the WQE. Same numbers in the NIC vport
/// context and in `sqc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum InlineMode {
    /// None.
    None = 0,
    /// Ethernet and VLAN: what real cards want.
    #[default]
    L2 = 1,
    /// And the network header.
    Ip = 2,
    /// And the transport header.
    TcpUdp = 3,
}

impl InlineMode {
    /// From its code; a code of the future is taken for the most demanding one known.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::None,
            1 => Self::L2,
            2 => Self::Ip,
            _ => Self::TcpUdp,
        }
    }

    /// Bytes of header that satisfy it, for frames with at most one VLAN tag and no IPv6 extension
    /// headers: two more than a multiple of 16, so that the Ethernet segment has no gap.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::None | Self::L2 => 18,
            Self::Ip => 66,
            Self::TcpUdp => 82,
        }
    }
}

/// Bytes of the Ethernet segment before its inline headers.
pub const ETH_SEGMENT_FIXED: usize = 14;

bitfield::bitfield! {
    /// Last word of the Ethernet segment's first 16 bytes.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct EthInlineWord(u32);
    impl Debug;
    /// Bytes of header that stand in the segment.
    pub u16, inline_hdr_sz, set_inline_hdr_sz: 31, 16;
    /// The first two of them.
    pub u16, inline_hdr_start, set_inline_hdr_start: 15, 0;
}

impl EthInlineWord {
    /// For so many bytes inline; the first two follow as bytes.
    #[must_use]
    pub fn new(inline_hdr_sz: u16) -> Self {
        let mut word = Self(0);
        word.set_inline_hdr_sz(inline_hdr_sz);
        word
    }

    /// The number.
    #[must_use]
    pub const fn word(self) -> u32 {
        self.0
    }
}
