//! Flow steering: match sets, tables, groups and entries.

layouts! {
    /// Outer headers that an entry compares.
    fte_match_set_lyr_2_4[64] {
        smac_47_16: 32, smac_15_0: 16, ethertype: 16, dmac_47_16: 32, dmac_15_0: 16,
        first_prio: 3, first_cfi: 1, first_vid: 12, ip_protocol: 8, ip_dscp: 6, ip_ecn: 2,
        cvlan_tag: 1, svlan_tag: 1, frag: 1, ip_version: 4, tcp_flags: 9, tcp_sport: 16,
        tcp_dport: 16, l4_type: 2, reserved_at_c2: 14, ipv4_ihl: 4, reserved_at_d4: 4,
        ttl_hoplimit: 8, udp_sport: 16, udp_dport: 16, src_ipv4_src_ipv6: 128,
        dst_ipv4_dst_ipv6: 128,
    }
    /// All a group may compare.
    fte_match_param[512] {
        outer_headers: fte_match_set_lyr_2_4, misc_parameters: 512,
        inner_headers: fte_match_set_lyr_2_4, misc_parameters_2: 512, reserved_at_800: 2048,
    }
    /// One destination.
    dest_format_struct[8] {
        destination_type: 8, destination_id: 24, reserved_at_20: 1, packet_reformat: 1,
        reserved_at_22: 6, destination_table_type: 8, reserved_at_30: 16,
    }
    /// Match values and actions of an entry, with the destinations behind.
    flow_context[768] {
        push_vlan: 32, group_id: 32, reserved_at_40: 8, flow_tag: 24, reserved_at_60: 16,
        action: 16, extended_destination: 1, reserved_at_81: 1, flow_source: 2,
        reserved_at_84: 4, destination_list_size: 24, reserved_at_a0: 8,
        flow_counter_list_size: 24, packet_reformat_id: 32, modify_header_id: 32,
        reserved_at_100: 256, match_value: fte_match_param, execute_aso: 256,
        reserved_at_1300: 1280,
    }
    /// A table.
    flow_table_context[40] {
        reserved_at_0: 4, table_miss_action: 4, level: 8, reserved_at_10: 8, log_size: 8,
        reserved_at_20: 8, table_miss_id: 24, reserved_at_40: 256,
    }
    /// SET_FLOW_TABLE_ROOT.
    set_flow_table_root_in[64] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, reserved_at_40: 64, table_type: 8,
        reserved_at_88: 32, table_id: 24, reserved_at_c0: 8, underlay_qpn: 24,
        reserved_at_e0: 288,
    }
    /// CREATE_FLOW_TABLE.
    create_flow_table_in[64] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, reserved_at_40: 64, table_type: 8,
        reserved_at_88: 56, flow_table_context: flow_table_context,
    }
    /// CREATE_FLOW_GROUP.
    create_flow_group_in[1024] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, reserved_at_40: 64, table_type: 8,
        reserved_at_88: 4, group_type: 4, reserved_at_90: 24, table_id: 24, reserved_at_c0: 32,
        start_flow_index: 32, reserved_at_100: 32, end_flow_index: 32, reserved_at_140: 16,
        match_definer_id: 16, reserved_at_160: 152, match_criteria_enable: 8,
        match_criteria: fte_match_param, reserved_at_1200: 3584,
    }
    /// SET_FLOW_TABLE_ENTRY.
    set_fte_in[832] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, reserved_at_40: 64, table_type: 8,
        reserved_at_88: 32, table_id: 24, ignore_flow_level: 1, reserved_at_c1: 23,
        modify_enable_mask: 8, reserved_at_e0: 32, flow_index: 32, reserved_at_120: 224,
        flow_context: flow_context,
    }
    /// One counter of an entry, behind its destinations.
    flow_counter_list[8] {
        flow_counter_id: 32, reserved_at_20: 32,
    }
    /// ALLOC_FLOW_COUNTER.
    alloc_flow_counter_in[16] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, reserved_at_40: 51,
        flow_counter_bulk_log_size: 5, flow_counter_bulk: 8,
    }
    /// ALLOC_FLOW_COUNTER output.
    alloc_flow_counter_out[16] {
        status: 8, reserved_at_8: 24, syndrome: 32, flow_counter_id: 32, reserved_at_60: 32,
    }
    /// DEALLOC_FLOW_COUNTER.
    dealloc_flow_counter_in[16] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, flow_counter_id: 32,
        reserved_at_60: 32,
    }
    /// QUERY_FLOW_COUNTER.
    query_flow_counter_in[32] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, reserved_at_40: 128, clear: 1,
        reserved_at_c1: 15, num_of_counters: 16, flow_counter_id: 32,
    }
    /// QUERY_FLOW_COUNTER output: a counter each.
    query_flow_counter_out[16] {
        status: 8, reserved_at_8: 24, syndrome: 32, reserved_at_40: 64, flow_statistics: 0,
    }
    /// SET_L2_TABLE_ENTRY, DELETE_L2_TABLE_ENTRY.
    set_l2_table_entry_in[64] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, reserved_at_40: 104,
        table_index: 24, reserved_at_c0: 51, vlan_valid: 1, vlan: 12, mac_address: 64,
        reserved_at_140: 192,
    }
    /// DESTROY_FLOW_TABLE, DESTROY_FLOW_GROUP, DELETE_FLOW_TABLE_ENTRY: which table, group, entry.
    flow_object_in[64] {
        opcode: 16, uid: 16, reserved_at_20: 16, op_mod: 16, reserved_at_40: 64, table_type: 8,
        reserved_at_88: 32, table_id: 24, group_id: 32, reserved_at_e0: 32, flow_index: 32,
        reserved_at_120: 224,
    }
}
