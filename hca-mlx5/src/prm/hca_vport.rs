//! The virtual port of an InfiniBand function: its state, addresses and P_Keys; and what sends a
//! management datagram to the port's own agent, where there is no such virtual port.
//!
//! PRM chapter "Virtual ports"; Linux `mlx5_ifc_hca_vport_context_bits`,
//! `mlx5_ifc_query_hca_vport_gid_in_bits`, `mlx5_ifc_mad_ifc_in_bits`.

use super::layout;

layout! {
    /// QUERY_HCA_VPORT_CONTEXT, QUERY_HCA_VPORT_GID and QUERY_HCA_VPORT_PKEY input.
    QueryHcaVportIn, 16;
    0x08[31] other_vport, set_other_vport: bool;
    /// Only where the function has two ports.
    0x08[19:16] port_num, set_port_num: u8;
    0x08[15:0] vport_number, set_vport_number: u16;
    /// Entry of the table of GIDs or P_Keys; all ones for all of them.
    0x0c[15:0] index, set_index: u16;
}

/// Where the context, GIDs or P_Keys stand in the output of those commands.
pub const ANSWER: usize = 0x10;
/// Bytes of QUERY_HCA_VPORT_CONTEXT's output and of MODIFY_HCA_VPORT_CONTEXT's input, in which the
/// context stands at the same place.
pub const CONTEXT_OUT: usize = 528;
/// Bytes of a P_Key in QUERY_HCA_VPORT_PKEY's output: the key stands in the last two.
pub const P_KEY_ENTRY: usize = 4;

layout! {
    /// The context.
    HcaVportContext, 512;
    0x20[31] sm_virt_aware, set_sm_virt_aware: bool;
    /// The function may use QP0.
    0x20[30] has_smi, set_has_smi: bool;
    0x20[29] has_raw, set_has_raw: bool;
    /// Each packet needs a global header.
    0x20[28] grh_required, set_grh_required: bool;
    0x20[15:12] port_physical_state, set_port_physical_state: u8;
    0x20[11:8] vport_state_policy, set_vport_state_policy: u8;
    0x20[7:4] port_state, set_port_state: u8;
    /// 1 down, 2 initialize, 3 armed, 4 active.
    0x20[3:0] vport_state, set_vport_state: u8;
    0x28(64) system_image_guid, set_system_image_guid: u64;
    0x30(64) port_guid, set_port_guid: u64;
    0x38(64) node_guid, set_node_guid: u64;
    0x40(32) cap_mask1, set_cap_mask1: u32;
    /// Of MODIFY_HCA_VPORT_CONTEXT: which bits of `cap_mask1` count.
    0x44(32) cap_mask1_field_select, set_cap_mask1_field_select: u32;
    0x60[31:16] lid, set_lid: u16;
    0x60[11:8] init_type_reply, set_init_type_reply: u8;
    0x60[7:5] lmc, set_lmc: u8;
    0x60[4:0] subnet_timeout, set_subnet_timeout: u8;
    0x64[31:16] sm_lid, set_sm_lid: u16;
    0x64[15:12] sm_sl, set_sm_sl: u8;
    0x68[31:16] qkey_violation_counter, set_qkey_violation_counter: u16;
    0x68[15:0] pkey_violation_counter, set_pkey_violation_counter: u16;
}

layout! {
    /// Start of MAD_IFC's input.
    MadIfcIn, 16;
    0x08[31:16] remote_lid, set_remote_lid: u16;
    0x08[7:0] port, set_port: u8;
}

/// Where the datagram stands in MAD_IFC's input and output.
pub const MAD_AT: usize = 0x10;
/// Bytes of both.
pub const MAD_IFC: usize = 272;
/// `op_mod` of MAD_IFC: check M_Key and B_Key.
pub const CHECK_KEYS: u16 = 0;
/// The same: check neither.
pub const IGNORE_KEYS: u16 = 3;

layout! {
    /// ATTACH_TO_MCG and DETACH_FROM_MCG input.
    AttachToMcgIn, 32;
    0x08[23:0] qpn, set_qpn: u32;
    0x10(128) multicast_gid, set_multicast_gid: u128;
}
