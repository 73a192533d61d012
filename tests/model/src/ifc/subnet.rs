//! Subnet management packets and their attributes.
//!
//! IBTA volume 1, 13.4 (MAD header), 14.2.1 (SMP formats) and 14.2.5 (attributes); Linux
//! `struct ib_smp`, `ib_port_info`, `ib_node_info`; opensm `ib_port_info_t`, `ib_switch_info_t`,
//! `ib_sm_info_t`, `ib_mad_notice_attr_t`.

layouts! {
    /// An SMP. `direction` and the hop fields are those of the directed route; `class_specific` is
    /// 0 where the LID routes.
    smp[256] {
        base_version: 8, mgmt_class: 8, class_version: 8, method: 8,
        direction: 1, status: 15, hop_pointer: 8, hop_count: 8,
        tid: 64,
        attr_id: 16, reserved_at_90: 16, attr_mod: 32,
        m_key: 64,
        dr_slid: 16, dr_dlid: 16, reserved_at_120: 224,
        data: 512, initial_path: 512, return_path: 512,
    }
    /// Any other management datagram without segmentation.
    gmp[256] {
        base_version: 8, mgmt_class: 8, class_version: 8, method: 8,
        status: 16, reserved_at_30: 16,
        tid: 64,
        attr_id: 16, reserved_at_90: 16, attr_mod: 32,
        reserved_at_c0: 320,
        data: 1536,
    }
    /// ClassPortInfo.
    class_port_info[72] {
        base_version: 8, class_version: 8, capability_mask: 16,
        capability_mask2: 27, resp_time_value: 5,
        reserved_at_40: 512,
    }
    /// PortCounters.
    port_counters[48] {
        reserved_at_0: 8, port_select: 8, counter_select: 16,
        symbol_error_counter: 16, link_error_recovery_counter: 8, link_downed_counter: 8,
        port_rcv_errors: 16, port_rcv_remphys_errors: 16,
        port_rcv_switch_relay_errors: 16, port_xmit_discards: 16,
        port_xmit_constraint_errors: 8, port_rcv_constraint_errors: 8, counter_select2: 8,
        link_overrun_errors: 8,
        reserved_at_a0: 16, vl15_dropped: 16,
        port_xmit_data: 32, port_rcv_data: 32, port_xmit_packets: 32, port_rcv_packets: 32,
        port_xmit_wait: 32, reserved_at_160: 32,
    }
    /// PortCountersExtended.
    port_counters_ext[72] {
        reserved_at_0: 8, port_select: 8, counter_select: 16, reserved_at_20: 32,
        port_xmit_data: 64, port_rcv_data: 64, port_xmit_packets: 64, port_rcv_packets: 64,
        port_unicast_xmit_packets: 64, port_unicast_rcv_packets: 64,
        port_multicast_xmit_packets: 64, port_multicast_rcv_packets: 64,
    }
    /// NodeInfo.
    node_info[40] {
        base_version: 8, class_version: 8, node_type: 8, num_ports: 8,
        system_image_guid: 64, node_guid: 64, port_guid: 64,
        partition_cap: 16, device_id: 16, revision: 32,
        local_port_num: 8, vendor_id: 24,
    }
    /// SwitchInfo.
    switch_info[20] {
        linear_fdb_cap: 16, random_fdb_cap: 16, multicast_fdb_cap: 16, linear_fdb_top: 16,
        default_port: 8, default_multicast_primary_port: 8, default_multicast_not_primary_port: 8,
        lifetime_value: 5, port_state_change: 1, optimized_sl_to_vl: 2,
        lids_per_port: 16, partition_enforcement_cap: 16,
        inbound_enforcement_cap: 1, outbound_enforcement_cap: 1, filter_raw_inbound_cap: 1,
        filter_raw_outbound_cap: 1, enhanced_port_0: 1, reserved_at_85: 11,
        multicast_fdb_top: 16,
    }
    /// PortInfo.
    port_info[64] {
        m_key: 64, gid_prefix: 64, lid: 16, master_sm_lid: 16, capability_mask: 32,
        diag_code: 16, m_key_lease_period: 16,
        local_port_num: 8, link_width_enabled: 8, link_width_supported: 8, link_width_active: 8,
        link_speed_supported: 4, port_state: 4, port_physical_state: 4, link_down_default_state: 4,
        m_key_protect_bits: 2, reserved_at_112: 3, lmc: 3,
        link_speed_active: 4, link_speed_enabled: 4,
        neighbor_mtu: 4, master_sm_sl: 4, vl_cap: 4, init_type: 4,
        vl_high_limit: 8, vl_arb_high_cap: 8, vl_arb_low_cap: 8,
        init_type_reply: 4, mtu_cap: 4, vl_stall_count: 3, hoq_lifetime: 5,
        operational_vls: 4, partition_enforcement_inbound: 1, partition_enforcement_outbound: 1,
        filter_raw_inbound: 1, filter_raw_outbound: 1,
        m_key_violations: 16, p_key_violations: 16, q_key_violations: 16,
        guid_cap: 8, client_reregister: 1, multicast_pkey_trap_suppression: 2, subnet_time_out: 5,
        reserved_at_1a0: 3, resp_time_value: 5, local_phy_errors: 4, overrun_errors: 4,
        max_credit_hint: 16, reserved_at_1c0: 8, link_round_trip_latency: 24,
        capability_mask2: 16, link_speed_ext_active: 4, link_speed_ext_supported: 4,
        reserved_at_1f8: 3, link_speed_ext_enabled: 5,
    }
    /// SMInfo.
    sm_info[21] { guid: 64, sm_key: 64, act_count: 32, priority: 4, sm_state: 4 }
    /// Notice, of a generic trap.
    notice[64] {
        is_generic: 1, notice_type: 7, producer_type: 24, trap_number: 16, issuer_lid: 16,
        toggle: 1, count: 15, details: 432,
    }
    /// Details of trap 128: the state of a link of a switch changed.
    trap_128[2] { lid: 16 }
    /// Details of trap 144: the capability mask of a port changed.
    trap_144[14] {
        reserved_at_0: 16, lid: 16, reserved_at_20: 15, other_local_changes: 1,
        capability_mask: 32, change_flags: 16, capability_mask2: 16,
    }
    /// Details of trap 256: a wrong M_Key.
    trap_256[54] {
        reserved_at_0: 16, lid: 16, dr_slid: 16, method: 8, reserved_at_38: 8,
        attr_id: 16, attr_mod: 32, m_key: 64, reserved_at_b0: 8,
        dr_notice: 1, dr_path_truncated: 1, dr_hop_count: 6, dr_return_path: 240,
    }
}
