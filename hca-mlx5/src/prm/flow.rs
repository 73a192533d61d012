//! Flow steering: tables, groups, entries, the root; the MAC table of the embedded switch.
//!
//! PRM chapter "Flow tables"; Linux `mlx5_ifc_create_flow_table_in_bits` and neighbours. Of the
//! match parameters only the outer layer 2 is declared: nothing here steers by more than the
//! destination MAC.

use super::{BytesMut, layout};

/// Table type: frames received by this function's NIC.
pub const NIC_RX: u8 = 0;
/// [`CreateFlowGroupIn`] `match_criteria_enable`: the outer headers count.
pub const MATCH_OUTER: u8 = 1;
/// [`FlowContext`] `action`: hand the frame to the destination list.
pub const FORWARD: u16 = 4;
/// Destination type: a TIR.
pub const TO_TIR: u8 = 2;

layout! {
    /// CREATE_FLOW_TABLE, with the fields of its context, which stands at 0x18.
    CreateFlowTableIn, 64;
    0x10[31:24] table_type, set_table_type: u8;
    /// 0 drop (or the default table), 1 go to `table_miss_id`.
    0x18[27:24] table_miss_action, set_table_miss_action: u8;
    0x18[23:16] level, set_level: u8;
    /// log2 of the number of entries.
    0x18[7:0] log_size, set_log_size: u8;
    0x1c[23:0] table_miss_id, set_table_miss_id: u32;
}

layout! {
    /// SET_FLOW_TABLE_ROOT.
    SetFlowTableRootIn, 64;
    0x10[31:24] table_type, set_table_type: u8;
    0x14[23:0] table_id, set_table_id: u32;
    0x18[23:0] underlay_qpn, set_underlay_qpn: u32;
}

layout! {
    /// DESTROY_FLOW_TABLE; DESTROY_FLOW_GROUP with `group_id`; DELETE_FLOW_TABLE_ENTRY with [`DeleteFlowEntryIn`].
    DestroyFlowIn, 64;
    0x10[31:24] table_type, set_table_type: u8;
    0x14[23:0] table_id, set_table_id: u32;
    /// Whole dword: group numbers have 32 bits.
    0x18(32) group_id, set_group_id: u32;
}

layout! {
    /// DELETE_FLOW_TABLE_ENTRY.
    DeleteFlowEntryIn, 64;
    0x10[31:24] table_type, set_table_type: u8;
    0x14[23:0] table_id, set_table_id: u32;
    0x20(32) flow_index, set_flow_index: u32;
}

layout! {
    /// Head of CREATE_FLOW_GROUP; the [`MatchL2`] mask follows at [`MATCH`].
    CreateFlowGroupIn, 64;
    0x10[31:24] table_type, set_table_type: u8;
    0x14[23:0] table_id, set_table_id: u32;
    0x1c(32) start_flow_index, set_start_flow_index: u32;
    0x24(32) end_flow_index, set_end_flow_index: u32;
    0x3c[7:0] match_criteria_enable, set_match_criteria_enable: u8;
}

/// Length of CREATE_FLOW_GROUP.
pub const CREATE_FLOW_GROUP_IN: usize = 1024;
/// Where the mask stands in CREATE_FLOW_GROUP.
pub const MATCH: usize = 0x40;

layout! {
    /// Layer 2 of the match parameters, in masks and in values.
    MatchL2, 16;
    0x00(32) smac_47_16, set_smac_47_16: u32;
    0x04[31:16] smac_15_0, set_smac_15_0: u16;
    0x04[15:0] ethertype, set_ethertype: u16;
    0x08(32) dmac_47_16, set_dmac_47_16: u32;
    0x0c[31:16] dmac_15_0, set_dmac_15_0: u16;
    0x0c[11:0] first_vid, set_first_vid: u16;
}

impl<T: BytesMut> MatchL2<T> {
    /// Frames to the MAC in the low 48 bits; with all ones, the mask for any.
    pub fn set_destination(&mut self, mac: u64) {
        let [_, _, a, b, c, d, e, f] = mac.to_be_bytes();
        self.set_dmac_47_16(u32::from_be_bytes([a, b, c, d]));
        self.set_dmac_15_0(u16::from_be_bytes([e, f]));
    }
}

layout! {
    /// Head of SET_FLOW_TABLE_ENTRY; the flow context follows at [`FLOW_CONTEXT`].
    SetFteIn, 64;
    0x10[31:24] table_type, set_table_type: u8;
    0x14[23:0] table_id, set_table_id: u32;
    0x18[7:0] modify_enable_mask, set_modify_enable_mask: u8;
    0x20(32) flow_index, set_flow_index: u32;
}

layout! {
    /// Head of the flow context; the match value follows at [`FLOW_MATCH`], the destinations at [`FLOW_DESTINATIONS`].
    FlowContext, 64;
    0x04(32) group_id, set_group_id: u32;
    /// Comes back in the completion of every frame it matches.
    0x08[23:0] flow_tag, set_flow_tag: u32;
    0x0c[15:0] action, set_action: u16;
    0x10[23:0] destination_list_size, set_destination_list_size: u32;
    0x14[23:0] flow_counter_list_size, set_flow_counter_list_size: u32;
}

layout! {
    /// One destination.
    Destination, 8;
    0x00[31:24] destination_type, set_destination_type: u8;
    0x00[23:0] destination_id, set_destination_id: u32;
}

/// Where the flow context stands in SET_FLOW_TABLE_ENTRY.
pub const FLOW_CONTEXT: usize = 0x40;
/// Where the match value stands in it (from the start of the message).
pub const FLOW_MATCH: usize = 0x80;
/// Where the destination list stands (from the start of the message).
pub const FLOW_DESTINATIONS: usize = 0x340;
/// Length of SET_FLOW_TABLE_ENTRY with one destination.
pub const SET_FTE_IN: usize = FLOW_DESTINATIONS + 8;

layout! {
    /// SET_L2_TABLE_ENTRY; DELETE_L2_TABLE_ENTRY uses `table_index` only.
    L2TableEntryIn, 64;
    0x14[23:0] table_index, set_table_index: u32;
    0x1c[12] vlan_valid, set_vlan_valid: bool;
    0x1c[11:0] vlan, set_vlan: u16;
    /// The MAC in the low 48 bits.
    0x20(64) mac_address, set_mac_address: u64;
}

/// Which of the vport's address lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ListKind {
    /// Unicast MACs.
    Unicast = 0,
    /// Multicast MACs, broadcast among them.
    Multicast = 1,
    /// VLANs.
    Vlan = 2,
}
