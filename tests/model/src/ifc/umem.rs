//! User memory: pages that queues and keys name by a number instead of listing them.

layouts! {
    /// Description of the memory, with its list of pages behind.
    umem[32] {
        reserved_at_0: 128, ats: 1, reserved_at_81: 26, log_page_size: 5, page_offset: 32,
        num_of_mtt: 64, mtt: 0,
    }
    /// CREATE_UMEM.
    create_umem_in[48] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, reserved_at_40: 64, umem: umem,
    }
    /// One page of the list.
    mtt[8] { ptag_63_32: 32, ptag_31_8: 24, reserved_at_38: 6, wr_en: 1, rd_en: 1 }
}
