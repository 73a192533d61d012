//! Congestion control of RoCE, as the firmware has it.
//!
//! PRM "QUERY_CONG_STATUS", "QUERY_CONG_PARAMS"; Linux `mlx5_ifc_query_cong_status_in_bits`,
//! `mlx5_ifc_cong_control_r_roce_ecn_np_bits`.

use super::layout;

/// `cong_protocol`: the sender slows down when it is notified (Linux `MLX5_IB_RROCE_ECN_RP`).
pub const REACTION_POINT: u8 = 1;
/// `cong_protocol`: the receiver notifies the sender of marked packets (`MLX5_IB_RROCE_ECN_NP`).
pub const NOTIFICATION_POINT: u8 = 2;
/// Bytes of QUERY_CONG_PARAMS' output.
pub const PARAMS_OUT: usize = 272;
/// Where the parameters stand in it.
pub const PARAMS: usize = 0x10;

layout! {
    /// Input of both queries; of parameters without the priority.
    QueryCongestionIn, 16;
    0x08[7:4] priority, set_priority: u8;
    0x08[3:0] cong_protocol, set_cong_protocol: u8;
}

layout! {
    /// QUERY_CONG_STATUS output.
    QueryCongestionStatusOut, 16;
    0x0c[31] enable, set_enable: bool;
}

layout! {
    /// Start of the parameters of a notification point.
    NotificationPoint, 32;
    /// Microseconds.
    0x14(32) min_time_between_cnps, set_min_time_between_cnps: u32;
    0x18[13:8] cnp_dscp, set_cnp_dscp: u8;
    0x18[2:0] cnp_802p_prio, set_cnp_802p_prio: u8;
}
