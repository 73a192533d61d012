//! The virtual port: its state, and the context with addresses, frame size and the RoCE switch.
//!
//! PRM chapter "Virtual ports"; Linux `mlx5_ifc_nic_vport_context_bits`.

use super::layout;

layout! {
    /// QUERY_VPORT_STATE output.
    QueryVportStateOut, 16;
    0x0c[7:4] admin_state, set_admin_state: u8;
    /// 1 up.
    0x0c[3:0] state, set_state: u8;
}

layout! {
    /// MODIFY_VPORT_STATE input.
    ModifyVportStateIn, 16;
    0x08[31] other_vport, set_other_vport: bool;
    0x08[15:0] vport_number, set_vport_number: u16;
    0x0c[7:4] admin_state, set_admin_state: u8;
}

/// `op_mod` for the uplink, which belongs to the physical function.
pub const UPLINK: u16 = 2;
/// The virtual port is up while the port is.
pub const FOLLOWS: u8 = 2;

/// Where the context stands in QUERY_NIC_VPORT_CONTEXT's output.
pub const QUERIED_CONTEXT: usize = 0x10;
/// Where it stands in MODIFY_NIC_VPORT_CONTEXT's input.
pub const MODIFIED_CONTEXT: usize = 0x100;
/// Bytes of QUERY_NIC_VPORT_CONTEXT's output.
pub const QUERY_OUT: usize = 272;
/// Bytes of MODIFY_NIC_VPORT_CONTEXT's input, without an address list.
pub const MODIFY_IN: usize = 512;

layout! {
    /// Start of MODIFY_NIC_VPORT_CONTEXT's input: which fields of the context count.
    ModifyNicVportIn, 16;
    0x08[31] other_vport, set_other_vport: bool;
    0x08[15:0] vport_number, set_vport_number: u16;
    0x0c[13] select_affiliation, set_select_affiliation: bool;
    0x0c[11] select_disable_uc_local_lb, set_select_disable_uc_local_lb: bool;
    0x0c[10] select_disable_mc_local_lb, set_select_disable_mc_local_lb: bool;
    0x0c[9] select_node_guid, set_select_node_guid: bool;
    0x0c[8] select_port_guid, set_select_port_guid: bool;
    0x0c[7] select_min_inline, set_select_min_inline: bool;
    0x0c[6] select_mtu, set_select_mtu: bool;
    0x0c[5] select_change_event, set_select_change_event: bool;
    0x0c[4] select_promisc, set_select_promisc: bool;
    0x0c[3] select_permanent_address, set_select_permanent_address: bool;
    0x0c[2] select_addresses_list, set_select_addresses_list: bool;
    0x0c[1] select_roce_en, set_select_roce_en: bool;
}

layout! {
    /// The context, without the address list that may follow.
    NicVportContext, 256;
    0x00[26:24] min_wqe_inline_mode, set_min_wqe_inline_mode: u8;
    0x00[2] disable_mc_local_lb, set_disable_mc_local_lb: bool;
    0x00[1] disable_uc_local_lb, set_disable_uc_local_lb: bool;
    0x00[0] roce_en, set_roce_en: bool;
    0x04[31] arm_change_event, set_arm_change_event: bool;
    /// A frame size: headers included.
    0x24[15:0] mtu, set_mtu: u16;
    0x28(64) system_image_guid, set_system_image_guid: u64;
    0x30(64) port_guid, set_port_guid: u64;
    0x38(64) node_guid, set_node_guid: u64;
    0x68[31:16] qkey_violation_counter, set_qkey_violation_counter: u16;
    0xf0[31] promisc_uc, set_promisc_uc: bool;
    0xf0[30] promisc_mc, set_promisc_mc: bool;
    0xf0[29] promisc_all, set_promisc_all: bool;
    0xf0[26:24] allowed_list_type, set_allowed_list_type: u8;
    0xf0[11:0] allowed_list_size, set_allowed_list_size: u16;
    /// A MAC in the low six bytes.
    0xf4(64) permanent_address, set_permanent_address: u64;
}
