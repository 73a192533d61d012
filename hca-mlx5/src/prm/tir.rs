//! Transport interface receive: what a flow table entry hands frames to.
//!
//! PRM chapter "Transport interface"; Linux `mlx5_ifc_tirc_bits`. Only the direct form is used
//! here: one TIR, one receive queue, no hash.

use super::layout;

layout! {
    /// TIR context.
    TirContext, 240;
    /// 0 direct to `inline_rqn`, 1 through a table by hash.
    0x04[31:28] disp_type, set_disp_type: u8;
    0x1c[23:0] inline_rqn, set_inline_rqn: u32;
    0x20[31] rx_hash_symmetric, set_rx_hash_symmetric: bool;
    0x20[29] tunneled_offload_en, set_tunneled_offload_en: bool;
    0x20[23:0] indirect_table, set_indirect_table: u32;
    /// 0 none, 2 Toeplitz.
    0x24[31:28] rx_hash_fn, set_rx_hash_fn: u8;
    /// Drop what this function itself sent: bit 0 unicast, bit 1 multicast.
    0x24[25:24] self_lb_block, set_self_lb_block: u8;
    0x24[23:0] transport_domain, set_transport_domain: u32;
}

/// [`TirContext`] `disp_type` of a TIR that hands everything to one receive queue.
pub const DIRECT: u8 = 0;
/// Where the context stands in CREATE_TIR.
pub const TIR_CONTEXT: usize = 0x20;
/// Length of CREATE_TIR.
pub const CREATE_TIR_IN: usize = 272;
