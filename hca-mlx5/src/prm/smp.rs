//! Subnet management packets (SMPs) and their attributes.
//!
//! IBTA volume 1, chapter 14; Linux `ib_smi.h` (`struct ib_smp`, `ib_port_info`, `ib_node_info`)
//! and, for what these leave out, the structures of OpenSM's `ib_types.h`.

use super::layout;

/// Bytes of an attribute.
pub const DATA_LEN: usize = 64;
/// Where the attribute stands.
pub const DATA: usize = 0x40;
/// Where the ports of a directed route stand, by hop; the first entry is not used.
pub const INITIAL_PATH: usize = 0x80;
/// The same of the route back.
pub const RETURN_PATH: usize = 0xc0;
/// Links of a directed route at most.
pub const MAX_HOPS: u8 = 63;

/// `class_version` of both classes.
pub const CLASS_VERSION: u8 = 1;

layout! {
    /// What an SMP has between the common header and the attribute.
    SmpHeader, 64;
    /// Of a directed route: the D bit, set on the way back.
    0x04[31] direction, set_direction: bool;
    0x04[30:16] status, set_status: u16;
    0x04[15:8] hop_ptr, set_hop_ptr: u8;
    0x04[7:0] hop_cnt, set_hop_cnt: u8;
    0x18(64) mkey, set_mkey: u64;
    /// Permissive LIDs where the whole way is a directed route.
    0x20[31:16] dr_slid, set_dr_slid: u16;
    0x20[15:0] dr_dlid, set_dr_dlid: u16;
}

/// Attributes (`attr_id`).
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod attribute {
    pub use super::super::mad::attribute::NOTICE;
    pub const NODE_DESCRIPTION: u16 = 0x0010;
    pub const NODE_INFO: u16 = 0x0011;
    pub const SWITCH_INFO: u16 = 0x0012;
    pub const GUID_INFO: u16 = 0x0014;
    pub const PORT_INFO: u16 = 0x0015;
    pub const P_KEY_TABLE: u16 = 0x0016;
    pub const SL_TO_VL: u16 = 0x0017;
    pub const VL_ARBITRATION: u16 = 0x0018;
    pub const SM_INFO: u16 = 0x0020;
}

layout! {
    /// NodeInfo (volume 1, 14.2.5.3).
    NodeInfo, 40;
    0x00[31:24] base_version, set_base_version: u8;
    0x00[23:16] class_version, set_class_version: u8;
    /// [`node_type`].
    0x00[15:8] node_type, set_node_type: u8;
    0x00[7:0] num_ports, set_num_ports: u8;
    0x04(64) sys_guid, set_sys_guid: u64;
    0x0c(64) node_guid, set_node_guid: u64;
    0x14(64) port_guid, set_port_guid: u64;
    0x1c[31:16] partition_cap, set_partition_cap: u16;
    0x1c[15:0] device_id, set_device_id: u16;
    0x20[31:0] revision, set_revision: u32;
    /// The port by which the request came.
    0x24[31:24] local_port_num, set_local_port_num: u8;
    0x24[23:0] vendor_id, set_vendor_id: u32;
}

/// Kinds of nodes.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod node_type {
    pub const CHANNEL_ADAPTER: u8 = 1;
    pub const SWITCH: u8 = 2;
    pub const ROUTER: u8 = 3;
}

layout! {
    /// SwitchInfo (volume 1, 14.2.5.4).
    SwitchInfo, 20;
    0x00[31:16] lin_cap, set_lin_cap: u16;
    0x00[15:0] rand_cap, set_rand_cap: u16;
    0x04[31:16] mcast_cap, set_mcast_cap: u16;
    0x04[15:0] lin_top, set_lin_top: u16;
    0x08[31:24] def_port, set_def_port: u8;
    0x08[23:16] def_mcast_pri_port, set_def_mcast_pri_port: u8;
    0x08[15:8] def_mcast_not_port, set_def_mcast_not_port: u8;
    0x08[7:3] lifetime_value, set_lifetime_value: u8;
    0x08[2] port_state_change, set_port_state_change: bool;
    0x0c[31:16] lids_per_port, set_lids_per_port: u16;
    0x0c[15:0] enforce_cap, set_enforce_cap: u16;
    0x10[15:0] mcast_top, set_mcast_top: u16;
}

layout! {
    /// PortInfo (volume 1, 14.2.5.6).
    PortInfo, 64;
    0x00(64) mkey, set_mkey: u64;
    0x08(64) gid_prefix, set_gid_prefix: u64;
    0x10[31:16] lid, set_lid: u16;
    0x10[15:0] sm_lid, set_sm_lid: u16;
    /// [`capability`].
    0x14[31:0] cap_mask, set_cap_mask: u32;
    0x18[31:16] diag_code, set_diag_code: u16;
    0x18[15:0] mkey_lease_period, set_mkey_lease_period: u16;
    0x1c[31:24] local_port_num, set_local_port_num: u8;
    /// Widths are masks: 1 1x, 2 4x, 4 8x, 8 12x, 16 2x. Zero changes nothing; 255 enables all.
    0x1c[23:16] link_width_enabled, set_link_width_enabled: u8;
    0x1c[15:8] link_width_supported, set_link_width_supported: u8;
    0x1c[7:0] link_width_active, set_link_width_active: u8;
    /// Speeds are masks: 1 2.5, 2 5, 4 10 Gbit/s for each lane. Zero changes nothing; 15 enables
    /// all.
    0x20[31:28] link_speed_supported, set_link_speed_supported: u8;
    /// [`port_state`].
    0x20[27:24] port_state, set_port_state: u8;
    /// [`physical_state`].
    0x20[23:20] port_phys_state, set_port_phys_state: u8;
    0x20[19:16] link_down_default, set_link_down_default: u8;
    0x20[15:14] mkey_protect, set_mkey_protect: u8;
    0x20[10:8] lmc, set_lmc: u8;
    0x20[7:4] link_speed_active, set_link_speed_active: u8;
    0x20[3:0] link_speed_enabled, set_link_speed_enabled: u8;
    /// MTUs are 1 to 5 for 256 to 4096 bytes.
    0x24[31:28] neighbor_mtu, set_neighbor_mtu: u8;
    0x24[27:24] master_sm_sl, set_master_sm_sl: u8;
    /// Lanes for data, 1 to 5: VL0, VL0-1, VL0-3, VL0-7, VL0-14.
    0x24[23:20] vl_cap, set_vl_cap: u8;
    0x24[19:16] init_type, set_init_type: u8;
    0x24[15:8] vl_high_limit, set_vl_high_limit: u8;
    0x24[7:0] vl_arb_high_cap, set_vl_arb_high_cap: u8;
    0x28[31:24] vl_arb_low_cap, set_vl_arb_low_cap: u8;
    0x28[23:20] init_type_reply, set_init_type_reply: u8;
    0x28[19:16] mtu_cap, set_mtu_cap: u8;
    0x28[15:13] vl_stall_count, set_vl_stall_count: u8;
    0x28[12:8] hoq_lifetime, set_hoq_lifetime: u8;
    /// As `vl_cap`.
    0x28[7:4] operational_vls, set_operational_vls: u8;
    0x28[3] partition_enforcement_inbound, set_partition_enforcement_inbound: bool;
    0x28[2] partition_enforcement_outbound, set_partition_enforcement_outbound: bool;
    0x28[1] filter_raw_inbound, set_filter_raw_inbound: bool;
    0x28[0] filter_raw_outbound, set_filter_raw_outbound: bool;
    0x2c[31:16] mkey_violations, set_mkey_violations: u16;
    0x2c[15:0] pkey_violations, set_pkey_violations: u16;
    0x30[31:16] qkey_violations, set_qkey_violations: u16;
    0x30[15:8] guid_cap, set_guid_cap: u8;
    /// Set by the manager: clients are to register again what they registered at it.
    0x30[7] client_rereg, set_client_rereg: bool;
    0x30[6:5] mcast_pkey_trap_suppr, set_mcast_pkey_trap_suppr: u8;
    /// A trap is sent once in 4.096 us times two to this.
    0x30[4:0] subnet_timeout, set_subnet_timeout: u8;
    0x34[28:24] resp_time_value, set_resp_time_value: u8;
    0x34[23:20] local_phy_errors, set_local_phy_errors: u8;
    0x34[19:16] overrun_errors, set_overrun_errors: u8;
    0x34[15:0] max_credit_hint, set_max_credit_hint: u16;
    0x38[23:0] link_roundtrip_latency, set_link_roundtrip_latency: u32;
    0x3c[31:16] cap_mask2, set_cap_mask2: u16;
    /// Masks: 1 14.0625 (FDR), 2 25.78125 (EDR), 4 53.125 (HDR), 8 106.25 (NDR) Gbit/s.
    0x3c[15:12] link_speed_ext_active, set_link_speed_ext_active: u8;
    0x3c[11:8] link_speed_ext_supported, set_link_speed_ext_supported: u8;
    0x3c[4:0] link_speed_ext_enabled, set_link_speed_ext_enabled: u8;
}

/// Values of `port_state`.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod port_state {
    /// In a Set.
    pub const NO_CHANGE: u8 = 0;
    pub const DOWN: u8 = 1;
    pub const INIT: u8 = 2;
    pub const ARMED: u8 = 3;
    pub const ACTIVE: u8 = 4;
}

/// Values of `port_phys_state`.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod physical_state {
    /// In a Set.
    pub const NO_CHANGE: u8 = 0;
    pub const SLEEP: u8 = 1;
    pub const POLLING: u8 = 2;
    pub const DISABLED: u8 = 3;
    pub const TRAINING: u8 = 4;
    pub const LINK_UP: u8 = 5;
    pub const ERROR_RECOVERY: u8 = 6;
}

/// Bits of `cap_mask`.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod capability {
    /// A subnet manager runs behind the port.
    pub const SM: u32 = 1 << 1;
    pub const NOTICE: u32 = 1 << 2;
    pub const TRAP: u32 = 1 << 3;
    pub const SL_MAPPING: u32 = 1 << 6;
    /// A subnet manager behind the port is not allowed to run.
    pub const SM_DISABLED: u32 = 1 << 10;
    pub const SYSTEM_IMAGE_GUID: u32 = 1 << 11;
    pub const EXTENDED_SPEEDS: u32 = 1 << 14;
    pub const CAP_MASK2: u32 = 1 << 15;
    pub const CM: u32 = 1 << 16;
    pub const CLIENT_REREGISTER: u32 = 1 << 25;
}

layout! {
    /// GUIDInfo (volume 1, 14.2.5.5): block `attr_mod` of the GUIDs of a port.
    GuidInfo, 64;
    0x00(64) guid_0, set_guid_0: u64;
    0x08(64) guid_1, set_guid_1: u64;
    0x10(64) guid_2, set_guid_2: u64;
    0x18(64) guid_3, set_guid_3: u64;
    0x20(64) guid_4, set_guid_4: u64;
    0x28(64) guid_5, set_guid_5: u64;
    0x30(64) guid_6, set_guid_6: u64;
    0x38(64) guid_7, set_guid_7: u64;
}

/// P_Keys in a block of the P_KeyTable (volume 1, 14.2.5.7), two bytes each; the block is the low
/// half of `attr_mod`, the port of a switch the high one.
pub const P_KEYS_PER_BLOCK: usize = 32;
/// The bit of a P_Key of a full member.
pub const P_KEY_FULL_MEMBER: u16 = 0x8000;

layout! {
    /// SMInfo (volume 1, 14.2.5.13).
    SmInfo, 24;
    /// The port GUID.
    0x00(64) guid, set_guid: u64;
    0x08(64) sm_key, set_sm_key: u64;
    0x10[31:0] act_count, set_act_count: u32;
    0x14[31:28] priority, set_priority: u8;
    /// [`sm_state`].
    0x14[27:24] state, set_state: u8;
}

/// States of a subnet manager.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod sm_state {
    pub const NOT_ACTIVE: u8 = 0;
    pub const DISCOVERING: u8 = 1;
    pub const STANDBY: u8 = 2;
    pub const MASTER: u8 = 3;
}

/// `attr_mod` of Set(SMInfo) (volume 1, 14.4.1).
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod sm_control {
    pub const HANDOVER: u32 = 1;
    pub const ACKNOWLEDGE: u32 = 2;
    pub const DISABLE: u32 = 3;
    pub const STANDBY: u32 = 4;
    pub const DISCOVER: u32 = 5;
}
