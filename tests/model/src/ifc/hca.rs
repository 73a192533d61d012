//! Function-wide commands: enable, init, teardown, ISSI, capabilities, adapter, special contexts.

layouts! {
    /// ENABLE_HCA input.
    enable_hca_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        embedded_cpu_function: 1, reserved_at_41: 15, function_id: 16,
        reserved_at_60: 32,
    }
    /// DISABLE_HCA input.
    disable_hca_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        embedded_cpu_function: 1, reserved_at_41: 15, function_id: 16,
        reserved_at_60: 32,
    }
    /// INIT_HCA input.
    init_hca_in[32] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        reserved_at_40: 32,
        reserved_at_60: 2, sw_vhca_id: 14, reserved_at_70: 16,
        sw_owner_id: 128,
    }
    /// TEARDOWN_HCA input.
    teardown_hca_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        reserved_at_40: 16, profile: 16,
        reserved_at_60: 32,
    }
    /// TEARDOWN_HCA output.
    teardown_hca_out[16] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 63, force_state: 1,
    }
    /// QUERY_ISSI output.
    query_issi_out[112] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 16, current_issi: 16,
        reserved_at_60: 160,
        reserved_at_100: 608,
        supported_issi_dw0: 32,
    }
    /// SET_ISSI input.
    set_issi_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        reserved_at_40: 16, current_issi: 16,
        reserved_at_60: 32,
    }
    /// QUERY_HCA_CAP input.
    query_hca_cap_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        other_function: 1, reserved_at_41: 15, function_id: 16,
        reserved_at_60: 32,
    }
    /// QUERY_ADAPTER output.
    query_adapter_out[272] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 64,
        query_adapter_struct: 2048,
    }
    /// Output of QUERY_ADAPTER.
    query_adapter_param_block[256] {
        reserved_at_0: 192,
        reserved_at_c0: 8, ieee_vendor_id: 24,
        reserved_at_e0: 16, vsd_vendor_id: 16,
        vsd: 1664,
        vsd_contd_psid: 128,
    }
    /// QUERY_SPECIAL_CONTEXTS output.
    query_special_contexts_out[32] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        dump_fill_mkey: 32,
        resd_lkey: 32,
        null_mkey: 32,
        terminate_scatter_list_mkey: 32,
        repeated_mkey: 32,
        reserved_at_e0: 32,
    }
    /// SET_DRIVER_VERSION input.
    set_driver_version_in[80] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        reserved_at_40: 64,
        driver_version: 512,
    }
    /// ALLOC_UAR output.
    alloc_uar_out[16] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 8, uar: 24,
        reserved_at_60: 32,
    }
    /// ALLOC_PD output.
    alloc_pd_out[16] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 8, pd: 24,
        reserved_at_60: 32,
    }
}
