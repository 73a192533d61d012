//! Receive queues of their own: the `rqc` context and the receive WQE's end mark.
//!
//! PRM chapter "Work queues"; Linux `mlx5_ifc_rqc_bits`. The `wq` part, the places in the messages
//! and MODIFY_RQ's head are those of a send queue ([`super::sq`]). Receive memory pools are the
//! same again, shared by queue pairs.

use super::layout;

layout! {
    /// Receive queue context, without its [`super::sq::WqContext`], which stands at [`super::sq::SQ_WQ`].
    RqContext, 48;
    /// Segments may carry the reserved lkey.
    0x00[31] rlky, set_rlky: bool;
    0x00[29] scatter_fcs, set_scatter_fcs: bool;
    /// VLAN strip disable: tags stay in the frame.
    0x00[28] vsd, set_vsd: bool;
    /// 0 entries in the queue's own ring, 1 in a shared memory queue.
    0x00[27:24] mem_rq_type, set_mem_rq_type: u8;
    /// [`super::sq::QueueState`].
    0x00[23:20] state, set_state: u8;
    0x00[18] flush_in_error_en, set_flush_in_error_en: bool;
    /// See [`timestamps`](crate::prm::caps::timestamps).
    0x00[5:4] ts_format, set_ts_format: u8;
    0x04[23:0] user_index, set_user_index: u32;
    0x08[23:0] cqn, set_cqn: u32;
    0x0c[31:24] counter_set_id, set_counter_set_id: u8;
    0x10[23:0] rmpn, set_rmpn: u32;
}

layout! {
    /// Context of a receive memory pool, which a shared receive queue is; without its [`super::sq::WqContext`], which stands at
    /// [`super::sq::SQ_WQ`].
    RmpContext, 48;
    /// [`super::sq::QueueState`].
    0x00[23:20] state, set_state: u8;
    /// Entries in order, not linked.
    0x04[31] basic_cyclic_rcv_wqe, set_basic_cyclic_rcv_wqe: bool;
}

/// `modify_bitmask` of MODIFY_RMP: the limit, which arms its event.
pub const RMP_LIMIT: u64 = 1;
