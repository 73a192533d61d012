//! Management datagrams (MADs): the common header, and what all management classes share.
//!
//! IBTA volume 1, chapter 13; Linux `ib_mad.h` (`struct ib_mad_hdr`, `ib_rmpp_hdr`,
//! `ib_class_port_info`, `ib_mad_notice_attr`). A layout of a header begins at the first byte of
//! the datagram, so that all of them apply to the same bytes; a layout of an attribute begins at
//! the first byte of the data of its class.

use super::layout;

/// Bytes of a datagram.
pub const MAD_LEN: usize = 256;
/// A datagram.
pub type Mad = [u8; MAD_LEN];

/// `base_version` of all.
pub const BASE_VERSION: u8 = 1;

layout! {
    /// The header of every datagram.
    MadHeader, 24;
    0x00[31:24] base_version, set_base_version: u8;
    0x00[23:16] mgmt_class, set_mgmt_class: u8;
    0x00[15:8] class_version, set_class_version: u8;
    0x00[7:0] method, set_method: u8;
    /// With directed routes bit 15 is the direction, `SmpHeader::direction`.
    0x04[31:16] status, set_status: u16;
    0x04[15:0] class_specific, set_class_specific: u16;
    0x08(64) tid, set_tid: u64;
    0x10[31:16] attr_id, set_attr_id: u16;
    0x14[31:0] attr_mod, set_attr_mod: u32;
}

/// Management classes (`mgmt_class`).
pub mod class {
    /// Subnet management, routed by LID.
    pub const SUBNET_LID: u8 = 0x01;
    /// Subnet management, by directed route.
    pub const SUBNET_DIRECTED: u8 = 0x81;
    /// Subnet administration.
    pub const SUBNET_ADMINISTRATION: u8 = 0x03;
    /// Performance management.
    pub const PERFORMANCE: u8 = 0x04;
    /// Communication management.
    pub const CM: u8 = 0x07;
}

/// Methods that several classes have (`method`).
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod method {
    pub const GET: u8 = 0x01;
    pub const SET: u8 = 0x02;
    pub const SEND: u8 = 0x03;
    pub const TRAP: u8 = 0x05;
    pub const REPORT: u8 = 0x06;
    pub const TRAP_REPRESS: u8 = 0x07;
    /// The bit that a response has.
    pub const RESPONSE: u8 = 0x80;
    pub const GET_RESP: u8 = 0x81;
    pub const REPORT_RESP: u8 = 0x86;
}

/// Low byte of `status`, which has the same meaning in all classes.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod status {
    pub const SUCCESS: u16 = 0;
    /// The request is dropped; the sender may repeat it.
    pub const BUSY: u16 = 0x0001;
    /// The response is a ClassPortInfo that names who answers (volume 1, 13.5.2).
    pub const REDIRECT: u16 = 0x0002;
    /// The field of the codes below.
    pub const CODE: u16 = 0x001c;
    pub const BAD_VERSION: u16 = 0x0004;
    pub const UNSUPPORTED_METHOD: u16 = 0x0008;
    pub const UNSUPPORTED_METHOD_ATTRIBUTE: u16 = 0x000c;
    /// A value of the attribute or its modifier is not valid.
    pub const INVALID_FIELD: u16 = 0x001c;
}

/// Attributes that several classes have (`attr_id`).
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod attribute {
    pub const CLASS_PORT_INFO: u16 = 0x0001;
    pub const NOTICE: u16 = 0x0002;
    pub const INFORM_INFO: u16 = 0x0003;
}

/// Q_Key of QP1, and of each datagram for it.
pub const GSI_QKEY: u32 = 0x8001_0000;
/// The default partition, full member.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// The permissive LID: of any port, by directed route.
pub const PERMISSIVE_LID: u16 = 0xffff;
/// The first multicast LID; those below, from 1 on, are of ports.
pub const FIRST_MULTICAST_LID: u16 = 0xc000;

/// Whether a LID can be a port's.
#[must_use]
pub const fn is_unicast(lid: u16) -> bool {
    lid != 0 && lid < FIRST_MULTICAST_LID
}

layout! {
    /// ClassPortInfo (volume 1, 13.4.8.1).
    ClassPortInfo, 72;
    0x00[31:24] base_version, set_base_version: u8;
    0x00[23:16] class_version, set_class_version: u8;
    0x00[15:0] capability_mask, set_capability_mask: u16;
    0x04[31:5] capability_mask2, set_capability_mask2: u32;
    /// The time of a response is at most 4.096 us times two to this.
    0x04[4:0] resp_time_value, set_resp_time_value: u8;
    0x08(128) redirect_gid, set_redirect_gid: u128;
    0x18[31:24] redirect_tc, set_redirect_tc: u8;
    0x18[23:20] redirect_sl, set_redirect_sl: u8;
    0x18[19:0] redirect_fl, set_redirect_fl: u32;
    /// Zero: by `redirect_gid` across subnets only.
    0x1c[31:16] redirect_lid, set_redirect_lid: u16;
    0x1c[15:0] redirect_pkey, set_redirect_pkey: u16;
    0x20[23:0] redirect_qp, set_redirect_qp: u32;
    0x24[31:0] redirect_qkey, set_redirect_qkey: u32;
    0x28(128) trap_gid, set_trap_gid: u128;
    0x38[31:24] trap_tc, set_trap_tc: u8;
    0x38[23:20] trap_sl, set_trap_sl: u8;
    0x38[19:0] trap_fl, set_trap_fl: u32;
    0x3c[31:16] trap_lid, set_trap_lid: u16;
    0x3c[15:0] trap_pkey, set_trap_pkey: u16;
    0x40[31:24] trap_hl, set_trap_hl: u8;
    0x40[23:0] trap_qp, set_trap_qp: u32;
    0x44[31:0] trap_qkey, set_trap_qkey: u32;
}

layout! {
    /// Notice (volume 1, 13.4.8.2) of a generic type, with the details of the traps in [`trap`].
    Notice, 64;
    0x00[31] is_generic, set_is_generic: bool;
    0x00[30:24] notice_type, set_notice_type: u8;
    /// 1 channel adapter, 2 switch, 3 router, 4 class manager.
    0x00[23:0] producer_type, set_producer_type: u32;
    0x04[31:16] trap_num, set_trap_num: u16;
    0x04[15:0] issuer_lid, set_issuer_lid: u16;
    0x08[31] toggle, set_toggle: bool;
    0x08[30:16] count, set_count: u16;
    /// Of trap 128: the switch.
    0x08[15:0] switch_lid, set_switch_lid: u16;
    /// Of traps 129 to 131, 144, 145 and 256 to 258: the port.
    0x0c[31:16] lid, set_lid: u16;
    /// Of trap 144.
    0x10[31:0] new_capability_mask, set_new_capability_mask: u32;
    /// Of traps 64 to 67: a port's GID, or a multicast GID.
    0x10(128) gid, set_gid: u128;
}

/// Numbers of traps (volume 1, 14.2.5.1 and 15.2.5.4).
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod trap {
    /// A port is in service, a port is out of service.
    pub const IN_SERVICE: u16 = 64;
    pub const OUT_OF_SERVICE: u16 = 65;
    /// A multicast group was created, was deleted.
    pub const GROUP_CREATED: u16 = 66;
    pub const GROUP_DELETED: u16 = 67;
    /// The state of a link of a switch changed.
    pub const LINK_STATE: u16 = 128;
    /// Capabilities of a port, or its description, changed.
    pub const CAPABILITIES: u16 = 144;
    pub const SYSTEM_GUID: u16 = 145;
    pub const BAD_M_KEY: u16 = 256;
    pub const BAD_P_KEY: u16 = 257;
    pub const BAD_Q_KEY: u16 = 258;
}

layout! {
    /// InformInfo (volume 1, 13.4.8.3) of a generic type.
    InformInfo, 36;
    0x00(128) gid, set_gid: u128;
    0x10[31:16] lid_range_begin, set_lid_range_begin: u16;
    0x10[15:0] lid_range_end, set_lid_range_end: u16;
    0x14[15:8] is_generic, set_is_generic: u8;
    /// 1 begins a subscription, 0 ends it.
    0x14[7:0] subscribe, set_subscribe: u8;
    0x18[31:16] notice_type, set_notice_type: u16;
    0x18[15:0] trap_num, set_trap_num: u16;
    0x1c[31:8] qpn, set_qpn: u32;
    0x1c[4:0] resp_time_value, set_resp_time_value: u8;
    0x20[23:0] producer_type, set_producer_type: u32;
}
