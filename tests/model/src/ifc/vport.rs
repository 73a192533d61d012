//! NIC vport context, vport state, RoCE address table.

layouts! {
    /// A MAC address in 8 bytes.
    mac_address_layout[8] {
        reserved_at_0: 16, mac_addr_47_32: 16,
        mac_addr_31_0: 32,
    }
    /// NIC vport context.
    nic_vport_context[256] {
        reserved_at_0: 5, min_wqe_inline_mode: 3, reserved_at_8: 21, disable_mc_local_lb: 1,
        disable_uc_local_lb: 1, roce_en: 1,
        arm_change_event: 1, reserved_at_21: 26, event_on_mtu: 1, event_on_promisc_change: 1,
        event_on_vlan_change: 1, event_on_mc_address_change: 1, event_on_uc_address_change: 1,
        reserved_at_40: 240, mtu: 16,
        system_image_guid: 64,
        port_guid: 64,
        node_guid: 64,
        reserved_at_200: 320,
        qkey_violation_counter: 16, reserved_at_350: 1072,
        promisc_uc: 1, promisc_mc: 1, promisc_all: 1, reserved_at_783: 2, allowed_list_type: 3,
        reserved_at_788: 12, allowed_list_size: 12,
        permanent_address: mac_address_layout,
        reserved_at_7e0: 32,
        current_uc_mac_address: 0,
    }
    /// Which parts a modify names.
    modify_nic_vport_field_select[4] {
        reserved_at_0: 18, affiliation: 1, reserved_at_13: 1, disable_uc_local_lb: 1,
        disable_mc_local_lb: 1, node_guid: 1,
        port_guid: 1, min_inline: 1, mtu: 1, change_event: 1, promisc: 1, permanent_address: 1,
        addresses_list: 1, roce_en: 1, reserved_at_1f: 1,
    }
    /// MODIFY_NIC_VPORT_CONTEXT input.
    modify_nic_vport_context_in[512] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        other_vport: 1, reserved_at_41: 15, vport_number: 16,
        field_select: modify_nic_vport_field_select,
        reserved_at_80: 1920,
        nic_vport_context: nic_vport_context,
    }
    /// QUERY_NIC_VPORT_CONTEXT input.
    query_nic_vport_context_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        other_vport: 1, reserved_at_41: 15, vport_number: 16,
        reserved_at_60: 5, allowed_list_type: 3, reserved_at_68: 24,
    }
    /// QUERY_NIC_VPORT_CONTEXT output.
    query_nic_vport_context_out[272] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 64,
        nic_vport_context: nic_vport_context,
    }
    /// QUERY_VPORT_STATE input.
    query_vport_state_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        other_vport: 1, reserved_at_41: 15, vport_number: 16,
        reserved_at_60: 32,
    }
    /// QUERY_VPORT_STATE output.
    query_vport_state_out[16] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 32,
        reserved_at_60: 24, admin_state: 4, state: 4,
    }
    /// MODIFY_VPORT_STATE input.
    modify_vport_state_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        other_vport: 1, reserved_at_41: 15, vport_number: 16,
        reserved_at_60: 24, admin_state: 4, reserved_at_7c: 4,
    }
    /// HCA vport context.
    hca_vport_context[512] {
        field_select: 32, reserved_at_20: 224,
        sm_virt_aware: 1, has_smi: 1, has_raw: 1, grh_required: 1, reserved_at_104: 12,
        port_physical_state: 4, vport_state_policy: 4, port_state: 4, vport_state: 4,
        reserved_at_120: 32,
        system_image_guid: 64,
        port_guid: 64,
        node_guid: 64,
        cap_mask1: 32, cap_mask1_field_select: 32, cap_mask2: 32, cap_mask2_field_select: 32,
        reserved_at_280: 128,
        lid: 16, reserved_at_310: 4, init_type_reply: 4, lmc: 3, subnet_timeout: 5,
        sm_lid: 16, sm_sl: 4, reserved_at_334: 12,
        qkey_violation_counter: 16, pkey_violation_counter: 16,
        reserved_at_360: 3232,
    }
    /// QUERY_HCA_VPORT_CONTEXT input.
    query_hca_vport_context_in[16] {
        opcode: 16, uid: 16,
        reserved_at_20: 16, op_mod: 16,
        other_vport: 1, reserved_at_41: 11, port_num: 4, vport_number: 16,
        reserved_at_60: 32,
    }
    /// QUERY_HCA_VPORT_CONTEXT output.
    query_hca_vport_context_out[528] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 64,
        hca_vport_context: hca_vport_context,
    }
    /// MODIFY_HCA_VPORT_CONTEXT input.
    modify_hca_vport_context_in[528] {
        opcode: 16, uid: 16,
        reserved_at_20: 16, op_mod: 16,
        other_vport: 1, reserved_at_41: 11, port_num: 4, vport_number: 16,
        reserved_at_60: 32,
        hca_vport_context: hca_vport_context,
    }
    /// QUERY_HCA_VPORT_GID input.
    query_hca_vport_gid_in[16] {
        opcode: 16, uid: 16,
        reserved_at_20: 16, op_mod: 16,
        other_vport: 1, reserved_at_41: 11, port_num: 4, vport_number: 16,
        reserved_at_60: 16, gid_index: 16,
    }
    /// QUERY_HCA_VPORT_GID output, with one GID of as many as it has room for.
    query_hca_vport_gid_out[32] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 32, gids_num: 16, reserved_at_70: 16,
        gid: 128,
    }
    /// One entry of the RoCE address table.
    roce_addr_layout[32] {
        source_l3_address: 128,
        reserved_at_80: 3, vlan_valid: 1, vlan_id: 12, source_mac_47_32: 16,
        source_mac_31_0: 32,
        reserved_at_c0: 20, roce_l3_type: 4, roce_version: 8,
        reserved_at_e0: 32,
    }
    /// SET_ROCE_ADDRESS input.
    set_roce_address_in[48] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        roce_address_index: 16, reserved_at_50: 12, vhca_port_num: 4,
        reserved_at_60: 32,
        roce_address: roce_addr_layout,
    }
    /// QUERY_ROCE_ADDRESS input.
    query_roce_address_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        roce_address_index: 16, reserved_at_50: 12, vhca_port_num: 4,
        reserved_at_60: 32,
    }
    /// QUERY_ROCE_ADDRESS output.
    query_roce_address_out[48] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 64,
        roce_address: roce_addr_layout,
    }
}
