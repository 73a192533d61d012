//! Queue pairs: address path, context and command frames.

layouts! {
    /// Address path.
    ads[44] {
        fl: 1, free_ar: 1, reserved_at_2: 14, pkey_index: 16, plane_index: 8, grh: 1, mlid: 7,
        rlid: 16, ack_timeout: 5, reserved_at_45: 3, src_addr_index: 8, reserved_at_50: 4,
        stat_rate: 4, hop_limit: 8, reserved_at_60: 4, tclass: 8, flow_label: 20, rgid_rip: 128,
        reserved_at_100: 4, f_dscp: 1, f_ecn: 1, reserved_at_106: 1, f_eth_prio: 1, ecn: 2,
        dscp: 6, udp_sport: 16, dei_cfi: 1, eth_prio: 3, sl: 4, vhca_port_num: 8,
        rmac_47_32: 16, rmac_31_0: 32,
    }
    /// Queue pair context.
    qpc[232] {
        state: 4, lag_tx_port_affinity: 4, st: 8, reserved_at_10: 2, isolate_vl_tc: 1,
        pm_state: 2, reserved_at_15: 1, req_e2e_credit_mode: 2, offload_type: 4,
        end_padding_mode: 2, reserved_at_1e: 2, wq_signature: 1, block_lb_mc: 1,
        atomic_like_write_en: 1, latency_sensitive: 1, reserved_at_24: 1, drain_sigerr: 1,
        reserved_at_26: 2, pd: 24, mtu: 3, log_msg_max: 5, reserved_at_48: 1, log_rq_size: 4,
        log_rq_stride: 3, no_sq: 1, log_sq_size: 4, reserved_at_55: 1, retry_mode: 2,
        ts_format: 2, reserved_at_5a: 1, rlky: 1, ulp_stateless_offload_mode: 4,
        counter_set_id: 8, uar_page: 24, reserved_at_80: 8, user_index: 24, reserved_at_a0: 3,
        log_page_size: 5, remote_qpn: 24, primary_address_path: ads,
        secondary_address_path: ads, log_ack_req_freq: 4, reserved_at_384: 4, log_sra_max: 3,
        reserved_at_38b: 2, retry_count: 3, rnr_retry: 3, reserved_at_393: 1, fre: 1,
        cur_rnr_retry: 3, cur_retry_count: 3, reserved_at_39b: 45, next_send_psn: 24,
        reserved_at_3e0: 3, log_num_dci_stream_channels: 5, cqn_snd: 24, reserved_at_400: 3,
        log_num_dci_errored_streams: 5, deth_sqpn: 24, reserved_at_420: 40, last_acked_psn: 24,
        reserved_at_460: 8, ssn: 24, reserved_at_480: 8, log_rra_max: 3, reserved_at_48b: 1,
        atomic_mode: 4, rre: 1, rwe: 1, rae: 1, reserved_at_493: 1, page_offset: 6,
        reserved_at_49a: 3, cd_slave_receive: 1, cd_slave_send: 1, cd_master: 1,
        reserved_at_4a0: 3, min_rnr_nak: 5, next_rcv_psn: 24, reserved_at_4c0: 8, xrcd: 24,
        reserved_at_4e0: 8, cqn_rcv: 24, dbr_addr: 64, q_key: 32, reserved_at_560: 5,
        rq_type: 3, srqn_rmpn_xrqn: 24, reserved_at_580: 8, rmsn: 24, hw_sq_wqebb_counter: 16,
        sw_sq_wqebb_counter: 16, hw_rq_counter: 32, sw_rq_counter: 32, reserved_at_600: 47,
        cgs: 1, cs_req: 8, cs_res: 8, dc_access_key: 64, reserved_at_680: 3, dbr_umem_valid: 1,
        reserved_at_684: 156, dbr_umem_id: 32,
    }
    /// CREATE_QP and every transition that carries a context.
    qp_in[272] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, reserved_at_60: 32,
        opt_param_mask: 32, ece: 32, qpc: qpc, wq_umem_offset: 64, wq_umem_id: 32,
        wq_umem_valid: 1, reserved_at_861: 31, pas: 0,
    }
    /// ATTACH_TO_MCG, DETACH_FROM_MCG.
    mcg_in[32] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, reserved_at_40: 8, qpn: 24,
        reserved_at_60: 32, multicast_gid: 128,
    }
    /// QUERY_QP.
    query_qp_out[272] {
        status: 8, reserved_at_8: 24, syndrome: 32, reserved_at_40: 64, opt_param_mask: 32,
        ece: 32, qpc: qpc, reserved_at_800: 128, pas: 0,
    }
}
