//! Counters of the transport, by set of queue pairs, and of the port.
//!
//! PRM "QUERY_Q_COUNTER", "QUERY_VPORT_COUNTER"; Linux `mlx5_ifc_query_q_counter_out_bits`,
//! `mlx5_ifc_query_vport_counter_out_bits`.

use super::layout;

/// Bytes of QUERY_VPORT_COUNTER's output.
pub const VPORT_OUT: usize = 528;
/// Bytes of QUERY_Q_COUNTER's output.
pub const QUEUE_OUT: usize = 256;

layout! {
    /// QUERY_Q_COUNTER input.
    QueryQCounterIn, 32;
    0x18[31] clear, set_clear: bool;
    0x1c[7:0] counter_set_id, set_counter_set_id: u8;
}

layout! {
    /// Start of QUERY_Q_COUNTER's output.
    QueryQCounterOut, 192;
    0x30(32) out_of_buffer, set_out_of_buffer: u32;
    0x38(32) out_of_sequence, set_out_of_sequence: u32;
    0x50(32) packet_seq_err, set_packet_seq_err: u32;
    0x70(32) req_rnr_retries_exceeded, set_req_rnr_retries_exceeded: u32;
    0xa0(32) req_remote_invalid_request, set_req_remote_invalid_request: u32;
    0xa4(32) resp_remote_invalid_request, set_resp_remote_invalid_request: u32;
    0xa8(32) req_remote_access_errors, set_req_remote_access_errors: u32;
    0xac(32) resp_remote_access_errors, set_resp_remote_access_errors: u32;
    0xb4(32) req_transport_retries_exceeded, set_req_transport_retries_exceeded: u32;
}

layout! {
    /// Packets and bytes.
    TrafficCounter, 16;
    0x00(64) packets, set_packets: u64;
    0x08(64) octets, set_octets: u64;
}

/// Where packets received in error stand in QUERY_VPORT_COUNTER's output, as a [`TrafficCounter`].
pub const RECEIVED_ERRORS: usize = 0x10;
/// Where packets that could not be sent stand.
pub const TRANSMIT_ERRORS: usize = 0x20;
