//! The completion queue context and the messages that carry it.
//!
//! PRM "CREATE_CQ", "Completion Queue Context"; Linux `mlx5_ifc_cqc_bits`.

use super::layout;

/// Number of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cqn(pub u32);

/// Offset of the context in a CREATE_CQ input and a QUERY_CQ output.
pub const CONTEXT_AT: usize = 0x10;

/// MODIFY_CQ's modifier that gives the queue another ring.
pub const RESIZE: u16 = 1;
/// Offset of the queue's number in a MODIFY_CQ input.
pub const NUMBER_AT: usize = 0x08;
/// Offset of the field select in a MODIFY_CQ input.
pub const SELECT_AT: usize = 0x0c;
/// Fields that a resize selects: size, offset in the first page, page size.
pub const SELECT_RING: u32 = 7;
/// Fields that a moderation selects, without [`RESIZE`]: period and count (Linux
/// `MLX5_CQ_MODIFY_PERIOD`, `MLX5_CQ_MODIFY_COUNT`).
pub const SELECT_MODERATION: u32 = 3;

layout! {
    /// Completion queue context (`cqc`).
    CqContext, 64;
    /// 0 in order, 9 overflow, 0xa write failure.
    0x00[31:28] status, set_status: u8;
    /// 0: entries of 64 bytes.
    0x00[23:21] cqe_sz, set_cqe_sz: u8;
    /// Every entry is written to slot 0.
    0x00[20] cc, set_cc: bool;
    /// Overrun is not an error.
    0x00[17] oi, set_oi: bool;
    0x00[16:15] cq_period_mode, set_cq_period_mode: u8;
    0x00[14] cqe_comp_en, set_cqe_comp_en: bool;
    /// 6 armed for solicited, 9 armed, 0xa fired.
    0x00[11:8] st, set_st: u8;
    /// Start of the ring in its first page, in 64ths of a page.
    0x08[11:6] page_offset, set_page_offset: u8;
    0x0c[28:24] log_cq_size, set_log_cq_size: u8;
    0x0c[23:0] uar_page, set_uar_page: u32;
    0x10[27:16] cq_period, set_cq_period: u16;
    0x10[15:0] cq_max_count, set_cq_max_count: u16;
    /// The event queue that gets its events.
    0x14(32) c_eqn_or_apu_element, set_c_eqn_or_apu_element: u32;
    /// Page size, 0 for 4 KiB.
    0x18[28:24] log_page_size, set_log_page_size: u8;
    0x20[23:0] last_notified_index, set_last_notified_index: u32;
    0x24[23:0] last_solicit_index, set_last_solicit_index: u32;
    0x28[23:0] consumer_counter, set_consumer_counter: u32;
    0x2c[23:0] producer_counter, set_producer_counter: u32;
    /// Device address of the doorbell record.
    0x38(64) dbr_addr, set_dbr_addr: u64;
}
