//! Completion queue entries: the 64 bytes the device writes, plain, compressed and of an error.
//!
//! PRM: CQE format, error CQE format; Linux `struct mlx5_cqe64`, `struct mlx5_err_cqe`.

layouts! {
    /// Completion queue entry.
    cqe[64] {
        tls_outer_l3_tunneled: 8, reserved_at_8: 8, wqe_id: 16, lro_tcppsh_abort_dupack: 8,
        lro_min_ttl: 8, lro_tcp_win: 16, lro_ack_seq_num: 32, rss_hash_result: 32,
        rss_hash_type: 8, ml_path: 8, reserved_at_90: 16, check_sum: 16, slid: 16,
        flags_rqpn: 32, hds_ip_ext: 8, l4_l3_hdr_type: 8, vlan_info: 16, lro_num_seg: 8,
        srqn_user_index: 24, imm_inval_pkey: 32, reserved_at_140: 32, byte_cnt: 32,
        timestamp: 64, sop_drop: 8, qpn: 24, wqe_counter: 16, signature: 8, opcode: 4,
        cqe_format: 2, se: 1, owner: 1,
    }
    /// Entry of a compressed array, with the hash.
    mini_cqe_hash[8] { rx_hash_result: 32, byte_cnt: 32 }
    /// The same with the checksum.
    mini_cqe_csum[8] { checksum: 16, reserved_at_10: 16, byte_cnt: 32 }
    /// Completion queue entry of an error.
    err_cqe[64] {
        reserved_at_0: 264, srqn_user_index: 24, reserved_at_120: 128, hw_err_synd: 8,
        hw_synd_type: 8, vendor_err_synd: 8, syndrome: 8, s_wqe_opcode: 8, qpn: 24,
        wqe_counter: 16, signature: 8, opcode: 4, cqe_format: 2, se: 1, owner: 1,
    }
}
