//! Firmware pages.

layouts! {
    /// QUERY_PAGES input.
    query_pages_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        embedded_cpu_function: 1, reserved_at_41: 15, function_id: 16,
        reserved_at_60: 32,
    }
    /// QUERY_PAGES output.
    query_pages_out[16] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        embedded_cpu_function: 1, reserved_at_41: 15, function_id: 16,
        num_pages: 32,
    }
    /// MANAGE_PAGES input.
    manage_pages_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        embedded_cpu_function: 1, reserved_at_41: 15, function_id: 16,
        input_num_entries: 32,
        pas: 0,
    }
    /// MANAGE_PAGES output.
    manage_pages_out[16] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        output_num_entries: 32,
        reserved_at_60: 32,
        pas: 0,
    }
}
