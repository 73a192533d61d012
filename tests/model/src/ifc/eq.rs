//! Event queues.

layouts! {
    /// Event queue context.
    eqc[64] {
        status: 4, reserved_at_4: 9, ec: 1, oi: 1, reserved_at_f: 5, st: 4, reserved_at_18: 8,
        reserved_at_20: 32,
        reserved_at_40: 20, page_offset: 6, reserved_at_5a: 6,
        reserved_at_60: 3, log_eq_size: 5, uar_page: 24,
        reserved_at_80: 32,
        reserved_at_a0: 20, intr: 12,
        reserved_at_c0: 3, log_page_size: 5, reserved_at_c8: 24,
        reserved_at_e0: 96,
        reserved_at_140: 8, consumer_counter: 24,
        reserved_at_160: 8, producer_counter: 24,
        reserved_at_180: 128,
    }
    /// Event queue entry.
    eqe[64] {
        reserved_at_0: 8, event_type: 8, reserved_at_10: 8, event_sub_type: 8,
        reserved_at_20: 224,
        event_data: 224,
        reserved_at_1e0: 16, signature: 8, reserved_at_1f8: 7, owner: 1,
    }
    /// CREATE_EQ input.
    create_eq_in[272] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        reserved_at_40: 64,
        eq_context_entry: eqc,
        reserved_at_280: 64,
        event_bitmask: 256,
        reserved_at_3c0: 1216,
        pas: 0,
    }
    /// CREATE_EQ output.
    create_eq_out[16] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 24, eq_number: 8,
        reserved_at_60: 32,
    }
    /// QUERY_EQ output.
    query_eq_out[272] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 64,
        eq_context_entry: eqc,
        reserved_at_280: 64,
        event_bitmask: 64,
        reserved_at_300: 1408,
        pas: 0,
    }
    /// GEN_EQE input.
    gen_eqe_in[80] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        reserved_at_40: 24, eq_number: 8,
        reserved_at_60: 32,
        eqe: eqe,
    }
}
