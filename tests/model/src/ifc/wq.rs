//! Work queues, their send, receive and steering ends: contexts and command frames.

layouts! {
    /// Work queue.
    wq[192] {
        wq_type: 4, wq_signature: 1, end_padding_mode: 2, cd_slave: 1, reserved_at_8: 24,
        hds_skip_first_sge: 1, log2_hds_buf_size: 3, reserved_at_24: 7, page_offset: 5, lwm: 16,
        reserved_at_40: 8, pd: 24, reserved_at_60: 8, uar_page: 24, dbr_addr: 64,
        hw_counter: 32, sw_counter: 32, reserved_at_100: 12, log_wq_stride: 4,
        reserved_at_110: 3, log_wq_pg_sz: 5, reserved_at_118: 3, log_wq_sz: 5,
        dbr_umem_valid: 1, wq_umem_valid: 1, reserved_at_122: 1, log_hairpin_num_packets: 5,
        reserved_at_128: 3, log_hairpin_data_sz: 5, reserved_at_130: 4,
        log_wqe_num_of_strides: 4, two_byte_shift_en: 1, reserved_at_139: 4,
        log_wqe_stride_size: 3, dbr_umem_id: 32, wq_umem_id: 32, wq_umem_offset: 64,
        headers_mkey: 32, shampo_enable: 1, reserved_at_1e1: 4, log_reservation_size: 3,
        reserved_at_1e8: 5, log_max_num_of_packets_per_reservation: 3, reserved_at_1f0: 6,
        log_headers_entry_size: 2, reserved_at_1f8: 4, log_headers_buffer_entry_num: 4,
        reserved_at_200: 1024,
    }
    /// Send queue context.
    sqc[240] {
        rlky: 1, cd_master: 1, fre: 1, flush_in_error_en: 1, allow_multi_pkt_send_wqe: 1,
        min_wqe_inline_mode: 3, state: 4, reg_umr: 1, allow_swp: 1, hairpin: 1, non_wire: 1,
        reserved_at_10: 10, ts_format: 2, reserved_at_1c: 12, user_index: 24, reserved_at_40: 8,
        cqn: 24, reserved_at_60: 8, hairpin_peer_rq: 24, reserved_at_80: 16,
        hairpin_peer_vhca: 16, reserved_at_a0: 40, ts_cqe_to_dest_cqn: 24, reserved_at_e0: 16,
        packet_pacing_rate_limit_index: 16, tis_lst_sz: 16, qos_queue_group_id: 16,
        reserved_at_120: 72, tis_num_0: 24, wq: wq,
    }
    /// Receive queue context.
    rqc[240] {
        rlky: 1, delay_drop_en: 1, scatter_fcs: 1, vsd: 1, mem_rq_type: 4, state: 4,
        reserved_at_c: 1, flush_in_error_en: 1, hairpin: 1, reserved_at_f: 11, ts_format: 2,
        reserved_at_1c: 12, user_index: 24, reserved_at_40: 8, cqn: 24, counter_set_id: 8,
        reserved_at_68: 32, rmpn: 24, reserved_at_a0: 8, hairpin_peer_sq: 24,
        reserved_at_c0: 16, hairpin_peer_vhca: 16, reserved_at_e0: 70,
        shampo_no_match_alignment_granularity: 2, reserved_at_128: 6,
        shampo_match_criteria_type: 2, reservation_timeout: 16, reserved_at_140: 64, wq: wq,
    }
    /// Receive memory pool context.
    rmpc[240] {
        reserved_at_0: 8, state: 4, reserved_at_c: 20, basic_cyclic_rcv_wqe: 1,
        reserved_at_21: 351, wq: wq,
    }
    /// Transport interface send context.
    tisc[160] {
        strict_lag_tx_port_affinity: 1, tls_en: 1, reserved_at_2: 2, lag_tx_port_affinity: 4,
        reserved_at_8: 4, prio: 4, reserved_at_10: 280, transport_domain: 24,
        reserved_at_140: 8, underlay_qpn: 24, reserved_at_160: 8, pd: 24, reserved_at_180: 896,
    }
    /// Transport interface receive context.
    tirc[240] {
        reserved_at_0: 32, disp_type: 4, tls_en: 1, reserved_at_25: 95,
        lro_timeout_period_usecs: 16, packet_merge_mask: 4, lro_max_ip_payload_size: 8,
        reserved_at_a0: 72, inline_rqn: 24, rx_hash_symmetric: 1, reserved_at_101: 1,
        tunneled_offload_en: 1, reserved_at_103: 5, indirect_table: 24, rx_hash_fn: 4,
        reserved_at_124: 2, self_lb_block: 2, transport_domain: 24, rx_hash_toeplitz_key: 320,
        rx_hash_field_selector_outer: 32, rx_hash_field_selector_inner: 32,
        reserved_at_2c0: 1216,
    }
    /// Receive queue table context.
    rqtc[240] {
        reserved_at_0: 165, list_q_type: 3, reserved_at_a8: 8, rqt_max_size: 16,
        rq_vhca_id_format: 1, reserved_at_c1: 15, rqt_actual_size: 16, reserved_at_e0: 1696,
    }
    /// CREATE_SQ, MODIFY_SQ.
    sq_in[272] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, reserved_at_60: 32,
        modify_bitmask: 64, reserved_at_c0: 64, sqc: sqc, pas: 0,
    }
    /// CREATE_RQ, MODIFY_RQ.
    rq_in[272] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, reserved_at_60: 32,
        modify_bitmask: 64, reserved_at_c0: 64, rqc: rqc, pas: 0,
    }
    /// CREATE_RMP, MODIFY_RMP.
    rmp_in[272] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, reserved_at_60: 32,
        modify_bitmask: 64, reserved_at_c0: 64, rmpc: rmpc, pas: 0,
    }
    /// Fields that MODIFY_RMP changes.
    rmp_bitmask[8] { reserved_at_0: 63, lwm: 1 }
    /// Shared receive queue context of ISSI 0.
    srqc[64] {
        state: 4, log_srq_size: 4, reserved_at_8: 24, wq_signature: 1, cont_srq: 1,
        reserved_at_22: 1, rlky: 1, reserved_at_24: 1, log_rq_stride: 3, xrcd: 24,
        page_offset: 6, reserved_at_46: 2, cqn: 24, reserved_at_60: 32, reserved_at_80: 2,
        log_page_size: 6, reserved_at_88: 24, reserved_at_a0: 32, reserved_at_c0: 8, pd: 24,
        lwm: 16, wqe_cnt: 16, reserved_at_100: 64, dbr_addr: 64, reserved_at_180: 128,
    }
    /// XRC shared receive queue context.
    xrc_srqc[64] {
        state: 4, log_xrc_srq_size: 4, reserved_at_8: 24, wq_signature: 1, cont_srq: 1,
        reserved_at_22: 1, rlky: 1, basic_cyclic_rcv_wqe: 1, log_rq_stride: 3, xrcd: 24,
        page_offset: 6, reserved_at_46: 1, dbr_umem_valid: 1, cqn: 24, reserved_at_60: 32,
        user_index_equal_xrc_srqn: 1, reserved_at_81: 1, log_page_size: 6, user_index: 24,
        reserved_at_a0: 32, reserved_at_c0: 8, pd: 24, lwm: 16, wqe_cnt: 16,
        reserved_at_100: 64, db_record_addr_h: 32, db_record_addr_l: 30, reserved_at_17e: 2,
        reserved_at_180: 128,
    }
    /// CREATE_SRQ.
    srq_in[272] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, reserved_at_60: 32,
        srq_context_entry: srqc, reserved_at_280: 1536, pas: 0,
    }
    /// CREATE_XRC_SRQ.
    xrc_srq_in[272] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, reserved_at_60: 32,
        xrc_srq_context_entry: xrc_srqc, reserved_at_280: 96, xrc_srq_umem_valid: 1,
        reserved_at_2e1: 1439, pas: 0,
    }
    /// CREATE_TIS, MODIFY_TIS.
    tis_in[192] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, reserved_at_60: 32,
        modify_bitmask: 64, reserved_at_c0: 64, tisc: tisc,
    }
    /// CREATE_TIR, MODIFY_TIR.
    tir_in[272] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, reserved_at_60: 32,
        modify_bitmask: 64, reserved_at_c0: 64, tirc: tirc,
    }
    /// Fields that MODIFY_TIR changes.
    modify_tir_bitmask[8] {
        reserved_at_0: 32, reserved_at_20: 27, self_lb_en: 1, reserved_at_3c: 1, hash: 1,
        reserved_at_3e: 1, packet_merge: 1,
    }
    /// CREATE_RQT, MODIFY_RQT, with the list of receive queues behind.
    rqt_in[272] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, reserved_at_60: 32,
        modify_bitmask: 64, reserved_at_c0: 64, rqtc: rqtc, rq_num: 0,
    }
}
