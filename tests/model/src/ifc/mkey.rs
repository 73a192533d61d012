//! Memory keys: context and command frames, and the control segment that edits a key.

layouts! {
    /// Memory key context; the same bytes are the mkey segment of a UMR work request.
    mkc[64] {
        reserved_at_0: 1, free: 1, reserved_at_2: 1, access_mode_4_2: 3, reserved_at_6: 7,
        relaxed_ordering_write: 1, reserved_at_e: 1, small_fence_on_rdma_read_response: 1,
        umr_en: 1, a: 1, rw: 1, rr: 1, lw: 1, lr: 1, access_mode_1_0: 2, reserved_at_18: 2,
        ma_translation_mode: 2, reserved_at_1c: 4, qpn: 24, mkey_7_0: 8, reserved_at_40: 32,
        length64: 1, bsf_en: 1, sync_umr: 1, reserved_at_63: 2, expected_sigerr_count: 1,
        reserved_at_66: 1, en_rinval: 1, pd: 24, start_addr: 64, len: 64, bsf_octword_size: 32,
        reserved_at_120: 96, crossing_target_vhca_id: 16, reserved_at_190: 16,
        translations_octword_size: 32, reserved_at_1c0: 25, relaxed_ordering_read: 1,
        log_page_size: 6, reserved_at_1e0: 32,
    }
    /// CREATE_MKEY.
    create_mkey_in[272] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, number: 32, pg_access: 1,
        mkey_umem_valid: 1, data_direct: 1, reserved_at_63: 29, memory_key_mkey_entry: mkc,
        reserved_at_280: 128, translations_octword_actual_size: 32, mkey_umem_id: 32,
        mkey_umem_offset: 64, reserved_at_380: 1280,
        klm_pas_mtt: 0,
    }
    /// QUERY_MKEY.
    query_mkey_out[304] {
        status: 8, reserved_at_8: 24, syndrome: 32, reserved_at_40: 64,
        memory_key_mkey_entry: mkc, reserved_at_280: 1792,
    }
    /// UMR control segment.
    umr_ctrl[48] {
        flags: 8, reserved_at_8: 24, translation_octwords: 16, translation_offset_15_0: 16,
        mkey_mask: mkey_mask, translation_offset_47_16: 32, reserved_at_a0: 224,
    }
    /// Which fields of the key segment a UMR takes over.
    mkey_mask[8] {
        reserved_at_0: 16, relaxed_ordering_read: 1, reserved_at_11: 4, page_size_5: 1,
        reserved_at_16: 12, free: 1, reserved_at_23: 3, relaxed_ordering_write: 1,
        reserved_at_27: 1, small_fence: 1, reserved_at_29: 1, a: 1, rw: 1, rr: 1, lw: 1, lr: 1,
        reserved_at_2f: 2, qpn: 1, key: 1, reserved_at_33: 4, en_rinval: 1, pd: 1,
        start_addr: 1, reserved_at_3a: 4, page_size: 1, len: 1,
    }
}
