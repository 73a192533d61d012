//! Counters, and the InfiniBand frames asked even on Ethernet.

layouts! {
    /// Packets and bytes.
    traffic_counter[16] {
        packets: 64,
        octets: 64,
    }
    /// QUERY_Q_COUNTER input.
    query_q_counter_in[32] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        reserved_at_40: 128,
        clear: 1, reserved_at_c1: 31,
        reserved_at_e0: 24, counter_set_id: 8,
    }
    /// QUERY_Q_COUNTER output.
    query_q_counter_out[256] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 64,
        rx_write_requests: 32,
        reserved_at_a0: 32,
        rx_read_requests: 32,
        reserved_at_e0: 32,
        rx_atomic_requests: 32,
        reserved_at_120: 32,
        rx_dct_connect: 32,
        reserved_at_160: 32,
        out_of_buffer: 32,
        reserved_at_1a0: 32,
        out_of_sequence: 32,
        reserved_at_1e0: 32,
        duplicate_request: 32,
        reserved_at_220: 32,
        rnr_nak_retry_err: 32,
        reserved_at_260: 32,
        packet_seq_err: 32,
        reserved_at_2a0: 32,
        implied_nak_seq_err: 32,
        reserved_at_2e0: 32,
        local_ack_timeout_err: 32,
        reserved_at_320: 96,
        req_rnr_retries_exceeded: 32,
        reserved_at_3a0: 32,
        resp_local_length_error: 32,
        req_local_length_error: 32,
        resp_local_qp_error: 32,
        local_operation_error: 32,
        resp_local_protection: 32,
        req_local_protection: 32,
        resp_cqe_error: 32,
        req_cqe_error: 32,
        req_mw_binding: 32,
        req_bad_response: 32,
        req_remote_invalid_request: 32,
        resp_remote_invalid_request: 32,
        req_remote_access_errors: 32,
        resp_remote_access_errors: 32,
        req_remote_operation_errors: 32,
        req_transport_retries_exceeded: 32,
        cq_overflow: 32,
        resp_cqe_flush_error: 32,
        req_cqe_flush_error: 32,
        reserved_at_620: 480,
    }
    /// QUERY_VPORT_COUNTER input.
    query_vport_counter_in[32] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        other_vport: 1, reserved_at_41: 11, port_num: 4, vport_number: 16,
        reserved_at_60: 96,
        clear: 1, reserved_at_c1: 31,
        reserved_at_e0: 32,
    }
    /// QUERY_VPORT_COUNTER output.
    query_vport_counter_out[528] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 64,
        received_errors: traffic_counter,
        transmit_errors: traffic_counter,
        received_ib_unicast: traffic_counter,
        transmitted_ib_unicast: traffic_counter,
        received_ib_multicast: traffic_counter,
        transmitted_ib_multicast: traffic_counter,
        received_eth_broadcast: traffic_counter,
        transmitted_eth_broadcast: traffic_counter,
        received_eth_unicast: traffic_counter,
        transmitted_eth_unicast: traffic_counter,
        received_eth_multicast: traffic_counter,
        transmitted_eth_multicast: traffic_counter,
        reserved_at_680: 2560,
    }
    /// MAD_IFC input.
    mad_ifc_in[272] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        remote_lid: 16, reserved_at_50: 8, port: 8,
        reserved_at_60: 32,
        mad: 2048,
    }
    /// QUERY_HCA_VPORT_PKEY input.
    query_hca_vport_pkey_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        other_vport: 1, reserved_at_41: 11, port_num: 4, vport_number: 16,
        reserved_at_60: 16, pkey_index: 16,
    }
}
