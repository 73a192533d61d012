//! The queue pair context, its address path, and the messages that carry them.
//!
//! PRM "CREATE_QP", "Queue Pair Context", "Address path"; Linux `mlx5_ifc_qpc_bits`,
//! `mlx5_ifc_ads_bits`. A transition command carries a whole context, of which the device takes the
//! fields that belong to the transition; the optional parameter mask names only optional ones, so
//! that 0 is right for each step this driver takes.

use super::layout;

/// Number of a queue pair, the one the wire knows too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qpn(pub u32);

/// Offset of the context in CREATE_QP and transition inputs and a QUERY_QP output.
pub const CONTEXT_AT: usize = 0x18;
/// Length of a transition's input.
pub const TRANSITION: usize = 272;
/// Length of a QUERY_QP output without page addresses.
pub const QUERY_OUT: usize = 272;
/// [`QpContext::state`]: Error.
pub const STATE_ERR: u8 = 6;
/// Where a transition's optional parameter mask stands.
pub const OPTIONAL_AT: usize = 0x10;
/// Bit of that mask: the P_Key index (Linux `MLX5_QP_OPTPAR_PKEY_INDEX`).
pub const OPTIONAL_P_KEY_INDEX: u32 = 1 << 4;
/// Offset of the primary address path in the context.
pub const PRIMARY_PATH_AT: usize = 0x18;

/// Service type: reliable connected.
pub const ST_RC: u8 = 0;
/// Service type: unreliable datagrams.
pub const ST_UD: u8 = 2;
/// Service type: the subnet management interface, QP0.
pub const ST_SMI: u8 = 7;
/// Service type: the general services interface, QP1.
pub const ST_GSI: u8 = 8;
/// [`QpContext::rq_type`]: receives come from a shared queue.
pub const RQ_SHARED: u8 = 1;
/// Path migration state of a queue pair without an alternate path.
pub const PM_MIGRATED: u8 = 3;
/// Largest datagram, log2.
pub const LOG_DATAGRAM: u8 = 12;
/// [`QpContext::atomic_mode`]: the operands of the specification, 8 bytes.
pub const ATOMIC_IB: u8 = 1;
/// [`QpContext::cs_res`]: messages of up to 32 bytes come in their completions.
pub const IN_CQE_32: u8 = 1;
/// User index that makes completions carry the QPN instead.
pub const INDEX_IS_QPN: u32 = 0xff_ffff;
/// log2 of the largest RC message.
pub const LOG_MSG_MAX: u8 = 30;
/// Requests between acknowledge requests, log2: the value every driver known to work sends.
pub const LOG_ACK_REQ_FREQ: u8 = 8;

layout! {
    /// Queue pair context (`qpc`).
    QpContext, 232;
    /// 0 RST, 1 INIT, 2 RTR, 3 RTS, 4 SQER, 6 ERR.
    0x00[31:28] state, set_state: u8;
    0x00[27:24] lag_tx_port_affinity, set_lag_tx_port_affinity: u8;
    0x00[23:16] st, set_st: u8;
    0x00[12:11] pm_state, set_pm_state: u8;
    0x04[31] wq_signature, set_wq_signature: bool;
    0x04[28] latency_sensitive, set_latency_sensitive: bool;
    0x04[23:0] pd, set_pd: u32;
    0x08[31:29] mtu, set_mtu: u8;
    0x08[28:24] log_msg_max, set_log_msg_max: u8;
    0x08[22:19] log_rq_size, set_log_rq_size: u8;
    /// log2 of a receive slot in units of 16 bytes.
    0x08[18:16] log_rq_stride, set_log_rq_stride: u8;
    0x08[15] no_sq, set_no_sq: bool;
    /// log2 of the send queue in blocks of 64 bytes.
    0x08[14:11] log_sq_size, set_log_sq_size: u8;
    0x08[7:6] ts_format, set_ts_format: u8;
    0x08[4] rlky, set_rlky: bool;
    0x0c[31:24] counter_set_id, set_counter_set_id: u8;
    0x0c[23:0] uar_page, set_uar_page: u32;
    0x10[23:0] user_index, set_user_index: u32;
    0x14[28:24] log_page_size, set_log_page_size: u8;
    0x14[23:0] remote_qpn, set_remote_qpn: u32;
    0x70[31:28] log_ack_req_freq, set_log_ack_req_freq: u8;
    0x70[23:21] log_sra_max, set_log_sra_max: u8;
    0x70[18:16] retry_count, set_retry_count: u8;
    0x70[15:13] rnr_retry, set_rnr_retry: u8;
    0x70[11] fre, set_fre: bool;
    0x78[23:0] next_send_psn, set_next_send_psn: u32;
    0x7c[23:0] cqn_snd, set_cqn_snd: u32;
    0x88[23:0] last_acked_psn, set_last_acked_psn: u32;
    0x8c[23:0] ssn, set_ssn: u32;
    0x90[23:21] log_rra_max, set_log_rra_max: u8;
    0x90[19:16] atomic_mode, set_atomic_mode: u8;
    /// Peers may read.
    0x90[15] rre, set_rre: bool;
    /// Peers may write.
    0x90[14] rwe, set_rwe: bool;
    /// Peers may do atomics.
    0x90[13] rae, set_rae: bool;
    /// Start of the rings in their first page, in 64ths of a page.
    0x90[11:6] page_offset, set_page_offset: u8;
    0x94[28:24] min_rnr_nak, set_min_rnr_nak: u8;
    0x94[23:0] next_rcv_psn, set_next_rcv_psn: u32;
    0x98[23:0] xrcd, set_xrcd: u32;
    0x9c[23:0] cqn_rcv, set_cqn_rcv: u32;
    /// Device address of the doorbell record, which must be zero when the queue pair is created.
    0xa0(64) dbr_addr, set_dbr_addr: u64;
    0xa8(32) q_key, set_q_key: u32;
    /// 0 own receive queue, 1 SRQ, 3 none.
    0xac[26:24] rq_type, set_rq_type: u8;
    0xac[23:0] srqn_rmpn_xrqn, set_srqn_rmpn_xrqn: u32;
    0xb4[31:16] hw_sq_wqebb_counter, set_hw_sq_wqebb_counter: u16;
    0xb4[15:0] sw_sq_wqebb_counter, set_sw_sq_wqebb_counter: u16;
    0xb8(32) hw_rq_counter, set_hw_rq_counter: u32;
    0xbc(32) sw_rq_counter, set_sw_rq_counter: u32;
    0xc4[15:8] cs_req, set_cs_req: u8;
    0xc4[7:0] cs_res, set_cs_res: u8;
}

layout! {
    /// Address path (`ads`), at [`PRIMARY_PATH_AT`] of the context.
    AddressPath, 44;
    /// Force loopback.
    0x00[31] fl, set_fl: bool;
    0x00[15:0] pkey_index, set_pkey_index: u16;
    /// InfiniBand only: RoCE has the GID in `rgid_rip` regardless.
    0x04[23] grh, set_grh: bool;
    /// Low bits of the own LID.
    0x04[22:16] mlid, set_mlid: u8;
    0x04[15:0] rlid, set_rlid: u16;
    0x08[31:27] ack_timeout, set_ack_timeout: u8;
    /// Entry of the RoCE address table.
    0x08[23:16] src_addr_index, set_src_addr_index: u8;
    0x08[11:8] stat_rate, set_stat_rate: u8;
    0x08[7:0] hop_limit, set_hop_limit: u8;
    0x0c[27:20] tclass, set_tclass: u8;
    0x0c[19:0] flow_label, set_flow_label: u32;
    0x10(128) rgid_rip, set_rgid_rip: u128;
    0x20[21:16] dscp, set_dscp: u8;
    0x20[15:0] udp_sport, set_udp_sport: u16;
    0x24[30:28] eth_prio, set_eth_prio: u8;
    0x24[27:24] sl, set_sl: u8;
    0x24[23:16] vhca_port_num, set_vhca_port_num: u8;
    0x24[15:0] rmac_47_32, set_rmac_47_32: u16;
    0x28(32) rmac_31_0, set_rmac_31_0: u32;
}
