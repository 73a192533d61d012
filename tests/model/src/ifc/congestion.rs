//! Congestion control of RoCE.

layouts! {
    /// QUERY_CONG_STATUS input.
    query_cong_status_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        reserved_at_40: 24, priority: 4, cong_protocol: 4,
        reserved_at_60: 32,
    }
    /// QUERY_CONG_STATUS output.
    query_cong_status_out[16] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 32,
        enable: 1, tag_enable: 1, reserved_at_62: 30,
    }
    /// QUERY_CONG_PARAMS input.
    query_cong_params_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        reserved_at_40: 28, cong_protocol: 4,
        reserved_at_60: 32,
    }
    /// QUERY_CONG_PARAMS output.
    query_cong_params_out[272] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 64,
        congestion_parameters: 2048,
    }
    /// QUERY_CONG_STATISTICS input.
    query_cong_statistics_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        clear: 1, reserved_at_41: 31,
        reserved_at_60: 32,
    }
    /// QUERY_CONG_STATISTICS output.
    query_cong_statistics_out[272] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 64,
        rp_cur_flows: 32,
        sum_flows: 32,
        rp_cnp_ignored: 64,
        rp_cnp_handled: 64,
        reserved_at_140: 256,
        time_stamp: 64,
        accumulators_period: 32,
        np_ecn_marked_roce_packets: 64,
        np_cnp_sent: 64,
        reserved_at_320: 1376,
    }
    /// Parameters of a notification point of RoCEv2.
    cong_control_r_roce_ecn_np[256] {
        reserved_at_0: 160,
        min_time_between_cnps: 32,
        reserved_at_c0: 18, cnp_dscp: 6, reserved_at_d8: 4, cnp_prio_mode: 1, cnp_802p_prio: 3,
        reserved_at_e0: 1824,
    }
    /// Parameters of a reaction point of RoCEv2.
    cong_control_r_roce_ecn_rp[256] {
        reserved_at_0: 100,
        clamp_tgt_rate: 1, reserved_at_65: 3, clamp_tgt_rate_after_time_inc: 1, reserved_at_69: 23,
        reserved_at_80: 32,
        rpg_time_reset: 32,
        rpg_byte_reset: 32,
        rpg_threshold: 32,
        rpg_max_rate: 32,
        rpg_ai_rate: 32,
        rpg_hai_rate: 32,
        rpg_gd: 32,
        rpg_min_dec_fac: 32,
        rpg_min_rate: 32,
        reserved_at_1c0: 224,
        rate_to_set_on_first_cnp: 32,
        dce_tcp_g: 32,
        dce_tcp_rtt: 32,
        rate_reduce_monitor_period: 32,
        reserved_at_320: 32,
        initial_alpha_value: 32,
        reserved_at_360: 1184,
    }
}
