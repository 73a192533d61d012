//! Port and system registers reached by ACCESS_REG.

layouts! {
    /// ACCESS_REG input.
    access_register_in[16] {
        opcode: 16, reserved_at_10: 16,
        reserved_at_20: 16, op_mod: 16,
        reserved_at_40: 16, register_id: 16,
        argument: 32,
        register_data: 0,
    }
    /// ACCESS_REG output.
    access_register_out[16] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        reserved_at_40: 64,
        register_data: 0,
    }
    /// Port type and speed.
    ptys_reg[64] {
        reserved_at_0: 1, an_disable_admin: 1, an_disable_cap: 1, reserved_at_3: 5,
        local_port: 8, reserved_at_10: 13, proto_mask: 3,
        an_status: 4, reserved_at_24: 12, data_rate_oper: 16,
        ext_eth_proto_capability: 32,
        eth_proto_capability: 32,
        ib_link_width_capability: 16, ib_proto_capability: 16,
        ext_eth_proto_admin: 32,
        eth_proto_admin: 32,
        ib_link_width_admin: 16, ib_proto_admin: 16,
        ext_eth_proto_oper: 32,
        eth_proto_oper: 32,
        ib_link_width_oper: 16, ib_proto_oper: 16,
        reserved_at_160: 28, connector_type: 4,
        eth_proto_lp_advertise: 32,
        reserved_at_1a0: 96,
    }
    /// Capabilities of an InfiniBand port. PortInfo's mask is the first word, which Linux calls
    /// `caps_127_96` (`mlx5_set_port_caps`).
    pcap_reg[20] {
        reserved_at_0: 8, local_port: 8, reserved_at_10: 16,
        port_capability_mask: 32,
        reserved_at_40: 96,
    }
    /// Port MTU.
    pmtu_reg[16] {
        reserved_at_0: 8, local_port: 8, reserved_at_10: 16,
        max_mtu: 16, reserved_at_30: 16,
        admin_mtu: 16, reserved_at_50: 16,
        oper_mtu: 16, reserved_at_70: 16,
    }
    /// Port administrative and operational status.
    paos_reg[16] {
        swid: 8, local_port: 8, reserved_at_10: 4, admin_status: 4, reserved_at_18: 4,
        oper_status: 4,
        ase: 1, ee: 1, reserved_at_22: 28, e: 2,
        reserved_at_40: 64,
    }
    /// Port counters.
    ppcnt_reg[256] {
        swid: 8, local_port: 8, pnat: 2, reserved_at_12: 8, grp: 6,
        clr: 1, reserved_at_21: 28, prio_tc: 3,
        counter_set: 1984,
    }
    /// Virtual lanes.
    pvlc_reg[16] {
        reserved_at_0: 8, local_port: 8, reserved_at_10: 16,
        reserved_at_20: 28, vl_hw_cap: 4,
        reserved_at_40: 28, vl_admin: 4,
        reserved_at_60: 28, vl_operational: 4,
    }
    /// Access to the memory of the cable's module.
    mcia_reg[64] {
        l: 1, reserved_at_1: 7, module: 8, reserved_at_10: 8, status: 8,
        i2c_device_address: 8, page_number: 8, device_address: 16,
        reserved_at_40: 16, size: 16,
        reserved_at_60: 32,
        data: 384,
    }
    /// Lane to module mapping.
    pmlp_reg[64] {
        rxtx: 1, reserved_at_1: 7, local_port: 8, reserved_at_10: 8, width: 8,
        lane0_module_mapping: 32,
        lane1_module_mapping: 32,
        lane2_module_mapping: 32,
        lane3_module_mapping: 32,
        reserved_at_a0: 352,
    }
}
