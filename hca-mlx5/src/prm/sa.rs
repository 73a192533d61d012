//! Subnet administration (SA): the header of its datagrams, and records.
//!
//! IBTA volume 1, chapter 15; Linux `ib_mad.h` (`struct ib_rmpp_hdr`, `ib_sa_hdr`), `ib_sa.h` and
//! the tables of fields in `core/sa_query.c`; OpenSM's `ib_types.h` for status codes.

use super::layout;

/// Where the record stands.
pub const DATA: usize = 0x38;
/// Bytes for it.
pub const DATA_LEN: usize = 200;

/// `class_version`.
pub const CLASS_VERSION: u8 = 2;

layout! {
    /// What a datagram of the SA has between the common header and the record: the header of the
    /// reliable multi-packet protocol (RMPP) and the SA's own.
    SaHeader, 56;
    /// 1 where the protocol is in use.
    0x18[31:24] rmpp_version, set_rmpp_version: u8;
    /// [`rmpp`].
    0x18[23:16] rmpp_type, set_rmpp_type: u8;
    0x18[15:11] rmpp_rtime, set_rmpp_rtime: u8;
    0x18[10:8] rmpp_flags, set_rmpp_flags: u8;
    0x18[7:0] rmpp_status, set_rmpp_status: u8;
    /// Of data: counted from 1.
    0x1c[31:0] seg_num, set_seg_num: u32;
    /// Of data: bytes of the SA header and records, in the first segment of all segments, in the
    /// last of that segment.
    0x20[31:0] paylen_newwin, set_paylen_newwin: u32;
    0x24(64) sm_key, set_sm_key: u64;
    /// From one record to the next, in units of 8 bytes.
    0x2c[31:16] attr_offset, set_attr_offset: u16;
    /// Which fields of the request count, by bits: [`path_component`], [`member_component`].
    0x30(64) comp_mask, set_comp_mask: u64;
}

/// Numbers of RMPP.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod rmpp {
    pub const VERSION: u8 = 1;
    pub const TYPE_DATA: u8 = 1;
    pub const TYPE_ACK: u8 = 2;
    pub const TYPE_STOP: u8 = 3;
    pub const TYPE_ABORT: u8 = 4;
    pub const FLAG_ACTIVE: u8 = 1;
    pub const FLAG_FIRST: u8 = 1 << 1;
    pub const FLAG_LAST: u8 = 1 << 2;
    /// `rmpp_rtime` of one that says no response time.
    pub const NO_RESPONSE_TIME: u8 = 0x1f;
    /// Bytes of the SA's header that `paylen_newwin` counts in each segment.
    pub const SA_HEADER_LEN: u32 = 20;
}

/// Methods beside the common ones.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod method {
    pub use super::super::mad::method::{GET, GET_RESP, REPORT, REPORT_RESP, SET};
    pub const GET_TABLE: u8 = 0x12;
    pub const GET_TRACE_TABLE: u8 = 0x13;
    pub const GET_MULTI: u8 = 0x14;
    pub const DELETE: u8 = 0x15;
    pub const GET_TABLE_RESP: u8 = 0x92;
    pub const GET_MULTI_RESP: u8 = 0x94;
    pub const DELETE_RESP: u8 = 0x95;
}

/// High byte of `status` (volume 1, 15.2.2).
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod status {
    pub const NO_RESOURCES: u16 = 0x0100;
    pub const REQ_INVALID: u16 = 0x0200;
    pub const NO_RECORDS: u16 = 0x0300;
    pub const TOO_MANY_RECORDS: u16 = 0x0400;
    pub const REQ_INVALID_GID: u16 = 0x0500;
    pub const REQ_INSUFFICIENT_COMPONENTS: u16 = 0x0600;
    pub const REQ_DENIED: u16 = 0x0700;
}

/// Attributes beside the common ones (`attr_id`).
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod attribute {
    pub use super::super::mad::attribute::{CLASS_PORT_INFO, INFORM_INFO, NOTICE};
    pub const NODE_RECORD: u16 = 0x0011;
    pub const PORT_INFO_RECORD: u16 = 0x0012;
    pub const SM_INFO_RECORD: u16 = 0x0018;
    pub const SERVICE_RECORD: u16 = 0x0031;
    pub const PATH_RECORD: u16 = 0x0035;
    pub const MC_MEMBER_RECORD: u16 = 0x0038;
}

/// What a selector field says of the field behind it.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod selector {
    pub const GREATER: u8 = 0;
    pub const LESS: u8 = 1;
    pub const EXACTLY: u8 = 2;
    /// The largest MTU or rate, the smallest lifetime.
    pub const BEST: u8 = 3;
}

layout! {
    /// PathRecord (volume 1, 15.2.5.16).
    PathRecord, 64;
    0x00(64) service_id, set_service_id: u64;
    0x08(128) dgid, set_dgid: u128;
    0x18(128) sgid, set_sgid: u128;
    0x28[31:16] dlid, set_dlid: u16;
    0x28[15:0] slid, set_slid: u16;
    0x2c[31] raw_traffic, set_raw_traffic: bool;
    0x2c[27:8] flow_label, set_flow_label: u32;
    /// Above 1: the destination is in another subnet, and packets need a global header.
    0x2c[7:0] hop_limit, set_hop_limit: u8;
    0x30[31:24] traffic_class, set_traffic_class: u8;
    0x30[23] reversible, set_reversible: bool;
    0x30[22:16] numb_path, set_numb_path: u8;
    0x30[15:0] pkey, set_pkey: u16;
    0x34[31:20] qos_class, set_qos_class: u16;
    0x34[19:16] sl, set_sl: u8;
    0x34[15:14] mtu_selector, set_mtu_selector: u8;
    /// 1 to 5 for 256 to 4096 bytes.
    0x34[13:8] mtu, set_mtu: u8;
    0x34[7:6] rate_selector, set_rate_selector: u8;
    /// [`rate`].
    0x34[5:0] rate, set_rate: u8;
    0x38[31:30] packet_lifetime_selector, set_packet_lifetime_selector: u8;
    /// 4.096 us times two to this.
    0x38[29:24] packet_lifetime, set_packet_lifetime: u8;
    0x38[23:16] preference, set_preference: u8;
}

/// Bits of `comp_mask` for a [`PathRecord`].
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod path_component {
    pub const SERVICE_ID: u64 = 1 | 1 << 1;
    pub const DGID: u64 = 1 << 2;
    pub const SGID: u64 = 1 << 3;
    pub const DLID: u64 = 1 << 4;
    pub const SLID: u64 = 1 << 5;
    pub const RAW_TRAFFIC: u64 = 1 << 6;
    pub const FLOW_LABEL: u64 = 1 << 8;
    pub const HOP_LIMIT: u64 = 1 << 9;
    pub const TRAFFIC_CLASS: u64 = 1 << 10;
    pub const REVERSIBLE: u64 = 1 << 11;
    pub const NUMB_PATH: u64 = 1 << 12;
    pub const PKEY: u64 = 1 << 13;
    pub const QOS_CLASS: u64 = 1 << 14;
    pub const SL: u64 = 1 << 15;
    pub const MTU_SELECTOR: u64 = 1 << 16;
    pub const MTU: u64 = 1 << 17;
    pub const RATE_SELECTOR: u64 = 1 << 18;
    pub const RATE: u64 = 1 << 19;
    pub const PACKET_LIFETIME_SELECTOR: u64 = 1 << 20;
    pub const PACKET_LIFETIME: u64 = 1 << 21;
    pub const PREFERENCE: u64 = 1 << 22;
}

layout! {
    /// MCMemberRecord (volume 1, 15.2.5.17).
    McMemberRecord, 52;
    0x00(128) mgid, set_mgid: u128;
    0x10(128) port_gid, set_port_gid: u128;
    0x20[31:0] qkey, set_qkey: u32;
    0x24[31:16] mlid, set_mlid: u16;
    0x24[15:14] mtu_selector, set_mtu_selector: u8;
    0x24[13:8] mtu, set_mtu: u8;
    0x24[7:0] traffic_class, set_traffic_class: u8;
    0x28[31:16] pkey, set_pkey: u16;
    0x28[15:14] rate_selector, set_rate_selector: u8;
    0x28[13:8] rate, set_rate: u8;
    0x28[7:6] packet_lifetime_selector, set_packet_lifetime_selector: u8;
    0x28[5:0] packet_lifetime, set_packet_lifetime: u8;
    0x2c[31:28] sl, set_sl: u8;
    0x2c[27:8] flow_label, set_flow_label: u32;
    0x2c[7:0] hop_limit, set_hop_limit: u8;
    0x30[31:28] scope, set_scope: u8;
    /// [`join_state`].
    0x30[27:24] join_state, set_join_state: u8;
    0x30[23] proxy_join, set_proxy_join: bool;
}

/// Bits of `comp_mask` for an [`McMemberRecord`].
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod member_component {
    pub const MGID: u64 = 1;
    pub const PORT_GID: u64 = 1 << 1;
    pub const QKEY: u64 = 1 << 2;
    pub const MLID: u64 = 1 << 3;
    pub const MTU_SELECTOR: u64 = 1 << 4;
    pub const MTU: u64 = 1 << 5;
    pub const TRAFFIC_CLASS: u64 = 1 << 6;
    pub const PKEY: u64 = 1 << 7;
    pub const RATE_SELECTOR: u64 = 1 << 8;
    pub const RATE: u64 = 1 << 9;
    pub const PACKET_LIFETIME_SELECTOR: u64 = 1 << 10;
    pub const PACKET_LIFETIME: u64 = 1 << 11;
    pub const SL: u64 = 1 << 12;
    pub const FLOW_LABEL: u64 = 1 << 13;
    pub const HOP_LIMIT: u64 = 1 << 14;
    pub const SCOPE: u64 = 1 << 15;
    pub const JOIN_STATE: u64 = 1 << 16;
    pub const PROXY_JOIN: u64 = 1 << 17;
}

/// Bits of `join_state`.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod join_state {
    pub const FULL: u8 = 1;
    pub const NON: u8 = 1 << 1;
    pub const SEND_ONLY: u8 = 1 << 2;
    pub const SEND_ONLY_FULL: u8 = 1 << 3;
}

/// Rates of a link or a path in Gbit/s (volume 1, table of PathRecord; Linux `enum ib_rate`).
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod rate {
    pub const GBPS_2_5: u8 = 2;
    pub const GBPS_10: u8 = 3;
    pub const GBPS_30: u8 = 4;
    pub const GBPS_5: u8 = 5;
    pub const GBPS_20: u8 = 6;
    pub const GBPS_40: u8 = 7;
    pub const GBPS_60: u8 = 8;
    pub const GBPS_80: u8 = 9;
    pub const GBPS_120: u8 = 10;
    pub const GBPS_14: u8 = 11;
    pub const GBPS_56: u8 = 12;
    pub const GBPS_112: u8 = 13;
    pub const GBPS_168: u8 = 14;
    pub const GBPS_25: u8 = 15;
    pub const GBPS_100: u8 = 16;
    pub const GBPS_200: u8 = 17;
    pub const GBPS_300: u8 = 18;
    pub const GBPS_28: u8 = 19;
    pub const GBPS_50: u8 = 20;
    pub const GBPS_400: u8 = 21;
    pub const GBPS_600: u8 = 22;
    pub const GBPS_800: u8 = 23;
    pub const GBPS_1200: u8 = 24;
}
