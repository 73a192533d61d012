//! Completion queues: context and command frames.

layouts! {
    /// Completion queue context.
    cqc[64] {
        status: 4, reserved_at_4: 2, dbr_umem_valid: 1, apu_cq: 1, cqe_sz: 3, cc: 1,
        reserved_at_c: 1, scqe_break_moderation_en: 1, oi: 1, cq_period_mode: 2, cqe_comp_en: 1,
        mini_cqe_res_format: 2, st: 4, reserved_at_18: 6, cqe_compression_layout: 2,
        dbr_umem_id: 32, reserved_at_40: 20, page_offset: 6, reserved_at_5a: 9, log_cq_size: 5, uar_page: 24,
        reserved_at_80: 4, cq_period: 12, cq_max_count: 16, c_eqn_or_apu_element: 32,
        reserved_at_c0: 3, log_page_size: 5, reserved_at_c8: 64, last_notified_index: 24,
        reserved_at_120: 8, last_solicit_index: 24, reserved_at_140: 8, consumer_counter: 24,
        reserved_at_160: 8, producer_counter: 24, reserved_at_180: 64, dbr_addr: 64,
    }
    /// CREATE_CQ and MODIFY_CQ, both with a page list behind.
    create_cq_in[272] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, field_select: 32,
        cqc: cqc, cq_umem_offset: 64, cq_umem_id: 32, cq_umem_valid: 1, reserved_at_2e1: 1439,
        pas: 0,
    }
    /// QUERY_CQ.
    query_cq_out[272] {
        status: 8, reserved_at_8: 24, syndrome: 32, reserved_at_40: 64, cqc: cqc,
        reserved_at_280: 1536, pas: 0,
    }
}
