//! Capability blocks of QUERY_HCA_CAP and SET_HCA_CAP.
//!
//! PRM chapter "HCA capabilities"; Linux `mlx5_ifc_cmd_hca_cap_bits` and its siblings. Each block
//! is 4 KiB on the wire; the layouts here cover the start of it, as far as this driver looks.
//! SET_HCA_CAP carries the block back whole, so what is not named here returns unchanged.

use super::layout;

/// Bytes of a capability block.
pub const BLOCK: usize = 4096;
/// Where the block stands in both messages.
pub const BLOCK_AT: usize = 0x10;

/// Which block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum CapType {
    /// [`GeneralCap`].
    General = 0,
    /// [`EthernetCap`].
    Ethernet = 1,
    /// [`AtomicCap`].
    Atomic = 3,
    /// [`RoceCap`].
    Roce = 4,
    /// [`FlowTableCap`]s, NIC receive at [`FLOW_TABLE_NIC_RECEIVE`].
    FlowTable = 7,
}

impl CapType {
    /// `op_mod` that asks for the current values.
    #[must_use]
    pub const fn current(self) -> u16 {
        (self as u16) << 1 | 1
    }

    /// `op_mod` that asks for the greatest values, and that of SET_HCA_CAP.
    #[must_use]
    pub const fn max(self) -> u16 {
        (self as u16) << 1
    }
}

layout! {
    /// General device capabilities.
    GeneralCap, 256;
    0x10[31:24] log_max_srq_sz, set_log_max_srq_sz: u8;
    0x10[23:16] log_max_qp_sz, set_log_max_qp_sz: u8;
    0x10[4:0] log_max_qp, set_log_max_qp: u8;
    0x14[20:16] log_max_srq, set_log_max_srq: u8;
    /// The uplink's virtual port has a state of its own, which may follow the port's.
    0x14[14] uplink_follow, set_uplink_follow: bool;
    0x18[23:16] log_max_cq_sz, set_log_max_cq_sz: u8;
    0x18[4:0] log_max_cq, set_log_max_cq: u8;
    0x1c[31:24] log_max_eq_sz, set_log_max_eq_sz: u8;
    0x1c[23] relaxed_ordering_write, set_relaxed_ordering_write: bool;
    /// As `relaxed_ordering_read`, but only set where PCI Express allows it as well: all that older
    /// firmware says.
    0x1c[22] relaxed_ordering_read_pci_enabled, set_relaxed_ordering_read_pci_enabled: bool;
    0x1c[21:16] log_max_mkey, set_log_max_mkey: u8;
    0x1c[9] terminate_scatter_list_mkey, set_terminate_scatter_list_mkey: bool;
    0x1c[4] fast_teardown, set_fast_teardown: bool;
    0x1c[3:0] log_max_eq, set_log_max_eq: u8;
    0x20[31:24] max_indirection, set_max_indirection: u8;
    /// Keys of keys have entries of one size.
    0x20[23] fixed_buffer_size, set_fixed_buffer_size: bool;
    0x20[22:16] log_max_mrw_sz, set_log_max_mrw_sz: u8;
    0x20[15] force_teardown, set_force_teardown: bool;
    0x20[5:0] log_max_klm_list_size, set_log_max_klm_list_size: u8;
    0x28[26] release_all_pages, set_release_all_pages: bool;
    0x28[21:16] log_max_ra_req_qp, set_log_max_ra_req_qp: u8;
    0x28[5:0] log_max_ra_res_qp, set_log_max_ra_res_qp: u8;
    0x2c[30] cc_query_allowed, set_cc_query_allowed: bool;
    0x2c[27] cache_line_128byte, set_cache_line_128byte: bool;
    0x2c[15:0] gid_table_size, set_gid_table_size: u16;
    0x30[30] vport_counters, set_vport_counters: bool;
    0x30[25:16] max_qp_cnt, set_max_qp_cnt: u16;
    0x30[15:0] pkey_table_size, set_pkey_table_size: u16;
    0x34[31] vport_group_manager, set_vport_group_manager: bool;
    0x34[29] ib_virt, set_ib_virt: bool;
    0x34[25] nic_flow_table, set_nic_flow_table: bool;
    0x34[24] eswitch_manager, set_eswitch_manager: bool;
    0x34[22] mcam_reg, set_mcam_reg: bool;
    0x34[21] pcam_reg, set_pcam_reg: bool;
    0x34[20:16] local_ca_ack_delay, set_local_ca_ack_delay: u8;
    0x34[15] port_module_event, set_port_module_event: bool;
    /// 0 InfiniBand, 1 Ethernet.
    0x34[9:8] port_type, set_port_type: u8;
    0x34[7:0] num_ports, set_num_ports: u8;
    0x38[28:24] log_max_msg, set_log_max_msg: u8;
    /// Bit n: static rate n of an address path (Linux `ib_rate_to_mlx5`).
    0x3c[31:16] stat_rate_support, set_stat_rate_support: u16;
    0x3c[3:0] cqe_version, set_cqe_version: u8;
    0x40[30] striding_rq, set_striding_rq: bool;
    /// A UMR must not change the page size, the right to atomics, a key that stands for others.
    0x40[24] umr_modify_entity_size_disabled, set_umr_modify_entity_size_disabled: bool;
    0x40[23] umr_modify_atomic_disabled, set_umr_modify_atomic_disabled: bool;
    0x40[22] umr_indirect_mkey_disabled, set_umr_indirect_mkey_disabled: bool;
    /// The fence that a UMR needs: 0 behind all before it, 1 behind earlier UMRs, 2 none.
    0x40[21:20] umr_fence, set_umr_fence: u8;
    0x40[15:14] cmdif_checksum, set_cmdif_checksum: u8;
    0x40[11] wq_signature, set_wq_signature: bool;
    0x40[10] sctr_data_cqe, set_sctr_data_cqe: bool;
    0x40[3] eth_net_offloads, set_eth_net_offloads: bool;
    0x40[2] roce, set_roce: bool;
    0x40[1] atomic, set_atomic: bool;
    0x44[31] cq_oi, set_cq_oi: bool;
    0x44[30] cq_resize, set_cq_resize: bool;
    0x44[29] cq_moderation, set_cq_moderation: bool;
    0x44[15] umr_ptr_rlky, set_umr_ptr_rlky: bool;
    /// Memory windows and invalidation.
    0x44[14] imaicl, set_imaicl: bool;
    0x44[9] qkv, set_qkv: bool;
    0x44[8] pkv, set_pkv: bool;
    0x44[7] set_deth_sqpn, set_set_deth_sqpn: bool;
    0x44[3] xrc, set_xrc: bool;
    0x44[2] ud, set_ud: bool;
    0x44[1] uc, set_uc: bool;
    0x44[0] rc, set_rc: bool;
    0x48[31] uar_4k, set_uar_4k: bool;
    0x48[23] fl_rc_qp_when_roce_disabled, set_fl_rc_qp_when_roce_disabled: bool;
    /// Log2 of the megabytes of doorbell pages in BAR 0.
    0x48[21:16] uar_sz, set_uar_sz: u8;
    0x48[7:0] log_pg_sz, set_log_pg_sz: u8;
    0x4c[31] bf, set_bf: bool;
    0x4c[30] driver_version, set_driver_version: bool;
    /// Log2 of the bytes of a BlueFlame register, two buffers of half that.
    0x4c[20:16] log_bf_reg_size, set_log_bf_reg_size: u8;
    0x50[15:0] max_wqe_sz_sq, set_max_wqe_sz_sq: u16;
    0x54[15:0] max_wqe_sz_rq, set_max_wqe_sz_rq: u16;
    0x58[15:0] max_wqe_sz_sq_dc, set_max_wqe_sz_sq_dc: u16;
    0x64[28:24] log_max_transport_domain, set_log_max_transport_domain: u8;
    0x64[21] relaxed_ordering_read, set_relaxed_ordering_read: bool;
    0x64[20:16] log_max_pd, set_log_max_pd: u8;
    0x6c[28:24] log_max_rq, set_log_max_rq: u8;
    0x6c[20:16] log_max_sq, set_log_max_sq: u8;
    0x6c[12:8] log_max_tir, set_log_max_tir: u8;
    0x6c[4:0] log_max_tis, set_log_max_tis: u8;
    0x70[31] basic_cyclic_rcv_wqe, set_basic_cyclic_rcv_wqe: bool;
    0x70[28:24] log_max_rmp, set_log_max_rmp: u8;
    0x70[20:16] log_max_rqt, set_log_max_rqt: u8;
    0x70[12:8] log_max_rqt_size, set_log_max_rqt_size: u8;
    /// SET_HCA_CAP may switch [`GeneralCap::roce`].
    0x74[30] roce_rw_supported, set_roce_rw_supported: bool;
    0x74[28:24] log_max_stride_sz_rq, set_log_max_stride_sz_rq: u8;
    0x74[20:16] log_min_stride_sz_rq, set_log_min_stride_sz_rq: u8;
    0x78[4:0] log_max_wq_sz, set_log_max_wq_sz: u8;
    0x7c[20:16] log_max_vlan_list, set_log_max_vlan_list: u8;
    0x7c[12:8] log_max_current_mc_list, set_log_max_current_mc_list: u8;
    0x7c[4:0] log_max_current_uc_list, set_log_max_current_uc_list: u8;
    /// Kinds of timestamps of send and of receive queues, see [`timestamps`].
    0x88[31:30] sq_ts_format, set_sq_ts_format: u8;
    0x88[29:28] rq_ts_format, set_rq_ts_format: u8;
    0x90[28:24] log_max_l2_table, set_log_max_l2_table: u8;
    /// Log2 of the host's page size in units of 4 KiB.
    0x90[15:0] log_uar_page_sz, set_log_uar_page_sz: u16;
    0x98(32) device_frequency_mhz, set_device_frequency_mhz: u32;
    0xb4[0] cqe_compression, set_cqe_compression: bool;
    0xc0[15:8] num_vhca_ports, set_num_vhca_ports: u8;
    0xc0[1] sw_owner_id, set_sw_owner_id: bool;
}

layout! {
    /// RoCE capabilities.
    RoceCap, 32;
    0x00[31] roce_apm, set_roce_apm: bool;
    0x00[27] sw_r_roce_src_udp_port, set_sw_r_roce_src_udp_port: bool;
    0x00[26] fl_rc_qp_when_roce_disabled, set_fl_rc_qp_when_roce_disabled: bool;
    0x00[25] fl_rc_qp_when_roce_enabled, set_fl_rc_qp_when_roce_enabled: bool;
    /// Kinds of timestamps of queue pairs, see [`timestamps`].
    0x00[1:0] qp_ts_format, set_qp_ts_format: u8;
    /// Bit 1 IPv4, bit 2 IPv6.
    0x10[19:16] l3_type, set_l3_type: u8;
    /// Bit 0 version 1, bit 2 version 2.
    0x10[7:0] roce_version, set_roce_version: u8;
    0x14[15:0] r_roce_dest_udp_port, set_r_roce_dest_udp_port: u16;
    0x18[31:16] r_roce_max_src_udp_port, set_r_roce_max_src_udp_port: u16;
    0x18[15:0] r_roce_min_src_udp_port, set_r_roce_min_src_udp_port: u16;
    0x1c[15:0] roce_address_table_size, set_roce_address_table_size: u16;
}

/// `ts_format` of a queue on a device of this capability. One that keeps real time may refuse
/// queues that want the free-running counter, so they take what the device prefers (Linux
/// `mlx5_get_qp_default_ts` and its siblings).
#[must_use]
pub const fn timestamps(cap: u8) -> u8 {
    const FREE_RUNNING: u8 = 0;
    const PREFERRED: u8 = 1;
    if cap == 0 { FREE_RUNNING } else { PREFERRED }
}

/// [`AtomicCap::atomic_req_8b_endianness_mode`]: as the host has them.
pub const ATOMIC_ANSWERS_AS_HOST: u8 = 1;
/// Bits of [`AtomicCap::atomic_operations`]: compare and swap, fetch and add.
pub const ATOMIC_OPERATIONS: u16 = 0b11;
/// Bit of [`AtomicCap::atomic_size_qp`]: operands of 8 bytes.
pub const ATOMIC_8_BYTES: u16 = 8;

layout! {
    /// Atomic capabilities.
    AtomicCap, 32;
    /// 0 answers are big-endian in the initiator's memory, 1 as the host has them.
    0x08[31:30] atomic_req_8b_endianness_mode, set_atomic_req_8b_endianness_mode: u8;
    0x08[25] supported_atomic_req_8b_endianness_mode_1, set_supported_atomic_req_8b_endianness_mode_1: bool;
    /// 1 compare and swap, 2 fetch and add, 4 and 8 their extended forms.
    0x10[15:0] atomic_operations, set_atomic_operations: u16;
    /// Bit n for operands of 2^n bytes.
    0x14[15:0] atomic_size_qp, set_atomic_size_qp: u16;
    0x18[15:0] atomic_size_dc, set_atomic_size_dc: u16;
}

layout! {
    /// Ethernet offload capabilities.
    EthernetCap, 32;
    0x00[31] csum_cap, set_csum_cap: bool;
    0x00[30] vlan_cap, set_vlan_cap: bool;
    0x00[29] lro_cap, set_lro_cap: bool;
    0x00[23] self_lb_en_modifiable, set_self_lb_en_modifiable: bool;
    0x00[20:16] max_lso_cap, set_max_lso_cap: u8;
    0x00[15:14] multi_pkt_send_wqe, set_multi_pkt_send_wqe: u8;
    /// 0 the L2 header must be in the WQE, 1 the vport context says, 2 nothing must.
    0x00[13:12] wqe_inline_mode, set_wqe_inline_mode: u8;
    0x00[11:8] rss_ind_tbl_cap, set_rss_ind_tbl_cap: u8;
    0x00[7] reg_umr_sq, set_reg_umr_sq: bool;
}

/// Where NIC receive stands in the flow table block.
pub const FLOW_TABLE_NIC_RECEIVE: usize = 0x40;

layout! {
    /// Capabilities of flow tables of one kind.
    FlowTableCap, 64;
    0x00[31] ft_support, set_ft_support: bool;
    0x00[28] flow_modify_en, set_flow_modify_en: bool;
    0x00[27] modify_root, set_modify_root: bool;
    0x04[29:24] log_max_ft_size, set_log_max_ft_size: u8;
    0x04[7:0] max_ft_level, set_max_ft_level: u8;
    0x0c[7:0] log_max_ft_num, set_log_max_ft_num: u8;
    0x10[7:0] log_max_destination, set_log_max_destination: u8;
    0x14[7:0] log_max_flow, set_log_max_flow: u8;
}
