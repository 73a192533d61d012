//! Layouts against the published sizes and offsets.

use mlx5_model::ifc::{Field, Layout, all};

fn layout(name: &str) -> Layout {
    *all().iter().find(|layout| layout.name == name).unwrap()
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = all().iter().map(|layout| layout.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn totals() {
    for (name, bytes) in [
        ("create_eq_in", 272),
        ("create_eq_out", 16),
        ("query_eq_out", 272),
        ("gen_eqe_in", 80),
        ("eqc", 64),
        ("init_hca_in", 32),
        ("query_issi_out", 112),
        ("query_adapter_out", 272),
        ("query_special_contexts_out", 32),
        ("set_driver_version_in", 80),
        ("modify_nic_vport_context_in", 512),
        ("query_nic_vport_context_out", 272),
        ("set_roce_address_in", 48),
        ("query_roce_address_out", 48),
        ("query_q_counter_in", 32),
        ("query_q_counter_out", 256),
        ("query_vport_counter_out", 528),
        ("mad_ifc_in", 272),
        ("cmd_entry", 64),
        ("cmd_mailbox", 576),
    ] {
        assert_eq!(layout(name).bytes, bytes, "{name}");
    }
}

/// Reserved names carry their bit offset, as in the kernel's header: a second count of every width.
#[test]
fn reserved_names_say_their_offset() {
    let mut checked = 0;
    for layout in all() {
        for entry in layout.entries {
            if let Some(hex) = entry.name.strip_prefix("reserved_at_") {
                let bit = usize::from_str_radix(hex, 16).unwrap();
                assert_eq!(bit, entry.field.bit, "{}.{}", layout.name, entry.name);
                checked += 1;
            }
        }
    }
    assert!(checked > 100);
}

/// `off[hi:lo] name` lists of the interface, dword by dword, for the layouts of the shell.
const MAP: &[(&str, &str)] = &[
    (
        "eqc",
        "00[31:28] status · 00[18:18] ec · 00[17:17] oi · 00[11:8] st · 08[11:6] page_offset · \
         0c[28:24] log_eq_size · 0c[23:0] uar_page · 14[11:0] intr · 18[28:24] log_page_size · \
         28[23:0] consumer_counter · 2c[23:0] producer_counter",
    ),
    (
        "query_pages_out",
        "08[31:31] embedded_cpu_function · 08[15:0] function_id · 0c[31:0] num_pages",
    ),
    (
        "manage_pages_in",
        "08[31:31] embedded_cpu_function · 08[15:0] function_id · 0c[31:0] input_num_entries",
    ),
    ("manage_pages_out", "08[31:0] output_num_entries"),
    ("query_issi_out", "08[15:0] current_issi · 6c[31:0] supported_issi_dw0"),
    ("set_issi_in", "08[15:0] current_issi"),
    (
        "query_special_contexts_out",
        "08[31:0] dump_fill_mkey · 0c[31:0] resd_lkey · 10[31:0] null_mkey · \
         14[31:0] terminate_scatter_list_mkey · 18[31:0] repeated_mkey",
    ),
    (
        "roce_addr_layout",
        "10[28:28] vlan_valid · 10[27:16] vlan_id · 10[15:0] source_mac_47_32 · \
         14[31:0] source_mac_31_0 · 18[11:8] roce_l3_type · 18[7:0] roce_version",
    ),
    ("set_roce_address_in", "08[31:16] roce_address_index · 08[3:0] vhca_port_num"),
    (
        "nic_vport_context",
        "00[26:24] min_wqe_inline_mode · 00[2:2] disable_mc_local_lb · 00[1:1] disable_uc_local_lb · \
         00[0:0] roce_en · 04[31:31] arm_change_event · 04[4:4] event_on_mtu · \
         04[0:0] event_on_uc_address_change · 24[15:0] mtu · 68[31:16] qkey_violation_counter · \
         f0[31:31] promisc_uc · f0[30:30] promisc_mc · f0[29:29] promisc_all · \
         f0[26:24] allowed_list_type · f0[11:0] allowed_list_size",
    ),
    (
        "modify_nic_vport_context_in",
        "08[31:31] other_vport · 08[15:0] vport_number · 0c[1:1] field_select.roce_en · \
         0c[2:2] field_select.addresses_list · 0c[3:3] field_select.permanent_address · \
         0c[4:4] field_select.promisc · 0c[5:5] field_select.change_event · \
         0c[6:6] field_select.mtu · 0c[7:7] field_select.min_inline · \
         0c[8:8] field_select.port_guid · 0c[9:9] field_select.node_guid · \
         0c[10:10] field_select.disable_mc_local_lb · 0c[11:11] field_select.disable_uc_local_lb · \
         100[0:0] nic_vport_context.roce_en",
    ),
    ("query_vport_state_out", "0c[7:4] admin_state · 0c[3:0] state"),
    (
        "ptys_reg",
        "00[23:16] local_port · 00[2:0] proto_mask · 08[31:0] ext_eth_proto_capability · \
         0c[31:0] eth_proto_capability · 10[31:16] ib_link_width_capability · \
         14[31:0] ext_eth_proto_admin · 18[31:0] eth_proto_admin · 20[31:0] ext_eth_proto_oper · \
         24[31:0] eth_proto_oper · 28[15:0] ib_proto_oper · 2c[3:0] connector_type",
    ),
    ("pmtu_reg", "04[31:16] max_mtu · 08[31:16] admin_mtu · 0c[31:16] oper_mtu"),
    ("paos_reg", "00[11:8] admin_status · 00[3:0] oper_status · 04[31:31] ase · 04[1:0] e"),
    ("ppcnt_reg", "00[23:16] local_port · 00[5:0] grp"),
    (
        "pvlc_reg",
        "00[23:16] local_port · 04[3:0] vl_hw_cap · 08[3:0] vl_admin · 0c[3:0] vl_operational",
    ),
    ("access_register_in", "08[15:0] register_id · 0c[31:0] argument"),
    (
        "cmd_hca_cap",
        "10[23:16] log_max_qp_sz · 10[4:0] log_max_qp · 18[23:16] log_max_cq_sz · 18[4:0] log_max_cq · \
         1c[31:24] log_max_eq_sz · 1c[21:16] log_max_mkey · 1c[4:4] fast_teardown · 1c[3:0] log_max_eq · \
         20[31:24] max_indirection · 20[15:15] force_teardown · 28[21:16] log_max_ra_req_qp · \
         28[5:0] log_max_ra_res_qp · 2c[15:0] gid_table_size · 30[15:0] pkey_table_size · \
         34[31:31] vport_group_manager · 34[25:25] nic_flow_table · 34[9:8] port_type · \
         34[7:0] num_ports · 38[28:24] log_max_msg · 3c[3:0] cqe_version · 40[15:14] cmdif_checksum · \
         40[3:3] eth_net_offloads · 40[2:2] roce · 40[1:1] atomic · 44[31:31] cq_oi · 44[14:14] imaicl · \
         44[3:3] xrc · 44[0:0] rc · 48[31:31] uar_4k · 48[21:16] uar_sz · 48[7:0] log_pg_sz · \
         4c[31:31] bf · 4c[25:25] mkey_by_name · 4c[20:16] log_bf_reg_size · 50[15:0] max_wqe_sz_sq · \
         64[20:16] log_max_pd · 6c[28:24] log_max_rq · 74[30:30] roce_rw_supported · \
         78[4:0] log_max_wq_sz · 7c[4:0] log_max_current_uc_list · 90[15:0] log_uar_page_sz · \
         98[31:0] device_frequency_mhz · a4[31:0] num_of_uars_per_page · c0[1:1] sw_owner_id",
    ),
    (
        "roce_cap",
        "00[27:27] sw_r_roce_src_udp_port · 10[19:16] l3_type · 10[7:0] roce_version · \
         14[15:0] r_roce_dest_udp_port · 18[31:16] r_roce_max_src_udp_port · \
         18[15:0] r_roce_min_src_udp_port · 1c[15:0] roce_address_table_size",
    ),
    (
        "atomic_caps",
        "10[15:0] atomic_operations · 14[15:0] atomic_size_qp · 18[15:0] atomic_size_dc",
    ),
    (
        "eth_caps",
        "00[31:31] csum_cap · 00[30:30] vlan_cap · 00[20:16] max_lso_cap · \
         00[13:12] wqe_inline_mode · 00[11:8] rss_ind_tbl_cap",
    ),
    (
        "flow_table_nic_cap",
        "40[31:31] nic_receive.ft_support · 44[29:24] nic_receive.log_max_ft_size · \
         44[7:0] nic_receive.max_ft_level · 4c[7:0] nic_receive.log_max_ft_num · \
         54[7:0] nic_receive.log_max_flow · 100[31:31] nic_transmit.ft_support",
    ),
    (
        "cmd_entry",
        "04[31:0] input_length · 38[31:0] output_length · 3c[31:24] token · 3c[23:16] signature · \
         3c[7:1] delivery_status · 3c[0:0] ownership",
    ),
    ("cmd_mailbox", "238[31:0] block_number · 23c[23:16] token · 23c[7:0] signature"),
];

#[test]
fn offsets_by_dword_and_bit_range() {
    let mut checked = 0;
    for (name, list) in MAP {
        let layout = layout(name);
        for item in list.split(" · ") {
            let (place, field) = item.trim().split_once(' ').unwrap();
            let (offset, range) = place.trim_end_matches(']').split_once('[').unwrap();
            let (hi, lo) = range.split_once(':').unwrap();
            let offset = usize::from_str_radix(offset, 16).unwrap();
            let (hi, lo): (usize, usize) = (hi.parse().unwrap(), lo.parse().unwrap());
            let expected = Field::at(offset * 8 + 31 - hi, hi - lo + 1);
            assert_eq!(layout.field(field), Some(expected), "{name}.{field}");
            checked += 1;
        }
    }
    assert!(checked > 130);
}

#[test]
fn every_leaf_can_be_set_and_read_alone() {
    for layout in all() {
        for (name, field) in layout.leaves() {
            let mut bytes = vec![0; layout.bytes];
            field.set64(&mut bytes, u64::MAX);
            let ones: u32 = bytes.iter().map(|b| b.count_ones()).sum();
            assert_eq!(ones as usize, field.width.min(64), "{}.{name}", layout.name);
            let mask = if field.width >= 64 { u64::MAX } else { (1 << field.width) - 1 };
            assert_eq!(field.get64(&bytes), mask, "{}.{name}", layout.name);
        }
    }
}

#[test]
fn short_slices_read_zero_and_take_nothing() {
    for layout in all() {
        for (_, field) in layout.leaves() {
            assert_eq!(field.get64(&[]), 0);
            field.set64(&mut [], 1);
            assert!(field.bytes(&[]).is_empty() && field.tail(&[]).is_empty());
        }
    }
}
