//! The two profiles: what each capability block says before cards and open facts change it.

use super::{BLOCK, kind};
use crate::config::{Config, Personality, Profile};
use crate::ifc::Field;
use crate::ifc::caps::{
    atomic_caps as at, cmd_hca_cap as g, eth_caps as eth, flow_table_nic_cap as ft,
    flow_table_prop_layout as ftp, roce_cap as ro,
};
use std::collections::BTreeMap;

type Values = &'static [(Field, u32)];

/// Both profiles.
const COMMON: Values = &[
    (g::port_type, 1),
    (g::num_ports, 1),
    (g::cqe_version, 1),
    (g::rc, 1),
    (g::uc, 1),
    (g::ud, 1),
    (g::xrc, 1),
    (g::atomic, 1),
    (g::roce, 1),
    (g::eth_net_offloads, 1),
    (g::nic_flow_table, 1),
    (g::log_bf_reg_size, 9),
    (g::log_pg_sz, 12),
    (g::uar_sz, 5),
    (g::max_wqe_sz_sq, 1024),
    (g::max_wqe_sz_rq, 512),
    (g::log_max_msg, 30),
    (g::log_max_ra_req_qp, 4),
    (g::log_max_ra_res_qp, 4),
    (g::log_max_wq_sz, 15),
    (g::max_indirection, 4),
    (g::log_max_mrw_sz, 64),
    (g::log_max_klm_list_size, 16),
    (g::local_ca_ack_delay, 16),
    (g::cq_oi, 1),
    (g::cq_moderation, 1),
    (g::roce_rw_supported, 1),
    (g::device_frequency_mhz, 275),
    (g::device_frequency_khz, 275_000),
    (g::gid_table_size, 4),
    (g::vport_counters, 1),
    (g::log_max_flow_counter_bulk, 4),
    (g::max_flow_counter_15_0, 0xffff),
];

const BIG: Values = &[
    (g::log_max_qp, 23),
    (g::log_max_qp_sz, 15),
    (g::log_max_cq, 24),
    (g::log_max_cq_sz, 22),
    (g::log_max_eq, 8),
    (g::log_max_eq_sz, 22),
    (g::log_max_mkey, 24),
    (g::log_max_srq, 23),
    (g::log_max_srq_sz, 15),
    (g::log_max_pd, 24),
    (g::log_max_xrcd, 24),
    (g::log_max_rq, 23),
    (g::log_max_sq, 23),
    (g::log_max_tir, 23),
    (g::log_max_tis, 23),
    (g::log_max_rmp, 23),
    (g::log_max_rqt, 16),
    (g::log_max_rqt_size, 9),
    (g::log_max_transport_domain, 16),
    (g::max_wqe_sz_sq_dc, 256),
    (g::max_qp_cnt, 255),
    (g::disable_local_lb_uc, 1),
    (g::disable_local_lb_mc, 1),
    (g::log_max_mcg, 21),
    (g::max_qp_mcg, 48),
    (g::out_of_seq_cnt, 1),
    (g::retransmission_q_counters, 1),
    (g::enhanced_error_q_counters, 1),
    (g::pkey_table_size, 5),
    (g::cmdif_checksum, 3),
    (g::cq_resize, 1),
    (g::cq_period_mode_modify, 1),
    (g::cq_period_start_from_cqe, 1),
    (g::scqe_break_moderation, 1),
    (g::block_lb_mc, 1),
    (g::apm, 1),
    (g::qkv, 1),
    (g::pkv, 1),
    (g::end_pad, 1),
    (g::cc_query_allowed, 1),
    (g::bf, 1),
    (g::compact_address_vector, 1),
    (g::basic_cyclic_rcv_wqe, 1),
    (g::log_max_stride_sz_rq, 9),
    (g::log_min_stride_sz_rq, 4),
    (g::log_max_stride_sz_sq, 6),
    (g::log_min_stride_sz_sq, 6),
    (g::log_max_vlan_list, 12),
    (g::log_max_current_mc_list, 14),
    (g::log_max_current_uc_list, 10),
    (g::log_max_l2_table, 16),
    (g::log_uar_page_sz, 8),
    (g::log_max_bsf_list_size, 16),
    (g::log_max_ra_req_dc, 4),
    (g::log_max_ra_res_dc, 4),
    (g::stat_rate_support, 1),
    (g::sctr_data_cqe, 1),
    (g::cqe_compression, 1),
    (g::cqe_compression_timeout, 8),
    (g::cqe_compression_max_num, 16),
    (g::relaxed_ordering_write, 1),
    (g::relaxed_ordering_read, 1),
    (g::relaxed_ordering_write_umr, 1),
    (g::relaxed_ordering_read_umr, 1),
];

const SMALL: Values = &[
    (g::log_max_eq, 7),
    (g::log_max_eq_sz, 16),
    (g::log_max_qp, 10),
    (g::log_max_cq, 10),
    (g::log_max_mkey, 12),
    (g::log_max_pd, 8),
    (g::log_max_xrcd, 8),
    (g::log_max_srq, 8),
    (g::log_max_qp_sz, 12),
    (g::log_max_srq_sz, 12),
    (g::log_max_cq_sz, 14),
    (g::log_max_rq, 8),
    (g::log_max_sq, 8),
    (g::log_max_tir, 8),
    (g::log_max_tis, 8),
    (g::log_max_rmp, 8),
    (g::log_max_rqt, 6),
    (g::log_max_rqt_size, 7),
    (g::log_max_transport_domain, 4),
    (g::log_max_stride_sz_rq, 9),
    (g::log_max_vlan_list, 3),
    (g::log_max_current_mc_list, 3),
    (g::log_max_current_uc_list, 3),
    (g::umr_modify_entity_size_disabled, 1),
];

/// Outer headers that a flow entry can match.
const FIELDS: [u8; 4] = [0xff, 0x0f, 0xfe, 0x00];

fn fill(block: &mut [u8], values: Values) {
    for (field, value) in values {
        field.set(block, *value);
    }
}

/// The maximum blocks of the profile that the configuration names.
pub(super) fn blocks(config: &Config) -> BTreeMap<u16, Vec<u8>> {
    let big = config.profile == Profile::Big;
    let mut general = vec![0; BLOCK];
    fill(&mut general, COMMON);
    fill(&mut general, if big { BIG } else { SMALL });
    if config.umr {
        g::imaicl.set(&mut general, 1);
        g::umr_extended_translation_offset.set(&mut general, u32::from(big));
    }
    if config.personality == Personality::Pf {
        // The eswitch itself is not modelled; what the physical function says of itself is.
        g::vport_group_manager.set(&mut general, u32::from(big));
    }
    let mut ethernet = vec![0; BLOCK];
    fill(
        &mut ethernet,
        &[
            (eth::csum_cap, 1),
            (eth::vlan_cap, 1),
            (eth::max_lso_cap, 18),
            (eth::self_lb_en_modifiable, 1),
            (eth::wqe_inline_mode, 1),
            (eth::rss_ind_tbl_cap, 7),
        ],
    );
    let mut atomic = vec![0; BLOCK];
    // Compare and swap, fetch and add, of 8 bytes; none of the masked ones.
    at::atomic_operations.set(&mut atomic, 3);
    at::atomic_size_qp.set(&mut atomic, 8);
    at::supported_atomic_req_8B_endianness_mode_1.set(&mut atomic, 1);
    // Modes that may be set; the power-on mode is 0, below.
    at::atomic_req_8B_endianness_mode.set(&mut atomic, 1);
    let mut roce = vec![0; BLOCK];
    ro::l3_type.set(&mut roce, 7);
    ro::roce_version.set(&mut roce, if big { 7 } else { 5 });
    ro::r_roce_dest_udp_port.set(&mut roce, 4791);
    ro::r_roce_min_src_udp_port.set(&mut roce, 0xc000);
    ro::r_roce_max_src_udp_port.set(&mut roce, 0xffff);
    ro::roce_address_table_size.set(&mut roce, if big { 256 } else { 32 });
    ro::fl_rc_qp_when_roce_enabled.set(&mut roce, 1);
    let mut flow = vec![0; BLOCK];
    for kind in [ft::nic_receive, ft::nic_transmit] {
        let to = kind.bytes_mut(&mut flow);
        ftp::ft_support.set(to, 1);
        ftp::flow_counter.set(to, 1);
        // MACs, Ethertype, IP version, priority, CFI and VLAN, TTL; addresses, fragment,
        // protocol, ECN, DSCP, ports, TCP flags.
        ftp::ft_field_support.bytes_mut(to)[..4].copy_from_slice(&FIELDS);
        ftp::ft_field_bitmask_support.bytes_mut(to)[..4].copy_from_slice(&FIELDS);
        ftp::flow_modify_en.set(to, 1);
        ftp::modify_root.set(to, 1);
        ftp::identified_miss_table_mode.set(to, 1);
        ftp::flow_table_modify.set(to, 1);
        ftp::log_max_ft_size.set(to, 16);
        ftp::max_ft_level.set(to, if big { 255 } else { 64 });
        ftp::log_max_ft_num.set(to, 9);
        ftp::log_max_destination.set(to, 4);
        ftp::log_max_flow.set(to, if big { 25 } else { 16 });
    }
    BTreeMap::from([
        (kind::GENERAL, general),
        (kind::ETHERNET, ethernet),
        (kind::ATOMIC, atomic),
        (kind::ROCE, roce),
        (kind::FLOW_TABLE, flow),
    ])
}
