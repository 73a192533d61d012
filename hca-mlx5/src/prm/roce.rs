//! The RoCE address table: which GID, MAC and VLAN a source index stands for.
//!
//! PRM chapter "RoCE"; Linux `mlx5_ifc_roce_addr_layout_bits`.

use super::layout;

layout! {
    /// Start of SET_ROCE_ADDRESS's and QUERY_ROCE_ADDRESS's input.
    RoceAddressIn, 16;
    0x08[31:16] roce_address_index, set_roce_address_index: u16;
    /// Only where the general capability `num_vhca_ports` is not 0.
    0x08[3:0] vhca_port_num, set_vhca_port_num: u8;
}

/// Where the entry stands in SET_ROCE_ADDRESS's input and QUERY_ROCE_ADDRESS's output.
pub const ROCE_ADDRESS: usize = 0x10;

layout! {
    /// An entry of the table.
    RoceAddress, 32;
    /// The GID; an IPv4 address as ::ffff:a.b.c.d.
    0x00(128) source_l3_address, set_source_l3_address: u128;
    0x10[28] vlan_valid, set_vlan_valid: bool;
    0x10[27:16] vlan_id, set_vlan_id: u16;
    0x10[15:0] source_mac_47_32, set_source_mac_47_32: u16;
    0x14[31:0] source_mac_31_0, set_source_mac_31_0: u32;
    /// 0 IPv4, 1 IPv6.
    0x18[11:8] roce_l3_type, set_roce_l3_type: u8;
    /// 0 version 1, 2 version 2.
    0x18[7:0] roce_version, set_roce_version: u8;
}
