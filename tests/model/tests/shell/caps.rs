//! Capability query and set.

use crate::rig::{Rig, cmd};
use mlx5_model::{Config, Profile};

fn block(rig: &mut Rig, kind: u16, current: bool) -> Vec<u8> {
    rig.ok(&cmd(0x100, kind << 1 | u16::from(current), 16), 4112).out[16..].to_vec()
}

fn set(rig: &mut Rig, kind: u16, bytes: &[u8]) -> (u8, u32) {
    let mut input = cmd(0x109, kind << 1, 4112);
    input[16..].copy_from_slice(bytes);
    rig.status(&input, 16)
}

fn enabled(config: Config) -> Rig {
    let mut rig = Rig::new(config);
    rig.enable();
    rig
}

/// Drivers of the Connect-IB's time set a block of 256 bytes.
#[test]
fn a_short_block_leaves_the_rest_as_it_was() {
    let mut rig = enabled(Config::default());
    let before = block(&mut rig, 0, true);
    let mut input = cmd(0x109, 0, 16 + 256);
    input[16..].copy_from_slice(&before[..256]);
    input[16 + 0x13] = 17;
    assert_eq!(rig.status(&input, 16).0, 0);
    let mut after = before;
    after[0x13] = 17;
    assert_eq!(block(&mut rig, 0, true), after);
    input.truncate(16 + 252);
    assert_eq!(rig.status(&input, 16).0, 0x50);
}

/// Bytes of the general block where the recorded card had its values.
#[test]
fn big_profile_says_what_the_recorded_card_said() {
    let mut rig = enabled(Config::default());
    let max = block(&mut rig, 0, false);
    assert_eq!(max[0x13] & 0x1f, 23, "log_max_qp");
    assert_eq!(max[0x11], 15, "log_max_qp_sz");
    assert_eq!(max[0x1b] & 0x1f, 24, "log_max_cq");
    assert_eq!((max[0x1c], max[0x1f] & 0xf), (22, 8), "log_max_eq_sz, log_max_eq");
    assert_eq!(max[0x36] & 3, 1, "Ethernet port");
    assert_eq!(max[0x37], 1, "one port");
    assert_eq!(max[0x40 + 2] >> 6, 3, "cmdif_checksum");
    assert_eq!(max[0x43] & 6, 6, "roce, atomic");
    assert_eq!(max[0x49] & 0x3f, 5, "uar_sz");
    assert_eq!(max[0x4d] & 0x1f, 9, "log_bf_reg_size");
    assert_eq!(max[0x50..0x54], [0, 0, 4, 0], "max_wqe_sz_sq 1024");
    assert_eq!(max[0x46] & 0x40, 0x40, "imaicl, of the umr switch");
    let current = block(&mut rig, 0, true);
    assert_eq!(current[0x13] & 0x1f, 14, "log_max_qp before it is set");
    assert_eq!(current[0x42] >> 6, 0, "checksums off");
}

#[test]
fn windows_are_a_switch() {
    let mut rig = enabled(Config { umr: false, ..Config::default() });
    assert_eq!(block(&mut rig, 0, true)[0x46] & 0x40, 0);
}

#[test]
fn roce_block() {
    for (profile, size) in [(Profile::Big, [1, 0]), (Profile::Small, [0, 32])] {
        let mut rig = enabled(Config { profile, ..Config::default() });
        let roce = block(&mut rig, 4, true);
        assert_eq!(roce[0x16..0x18], 4791u16.to_be_bytes());
        assert_eq!(roce[0x18..0x1c], [0xff, 0xff, 0xc0, 0]);
        assert_eq!(roce[0x1e..0x20], size);
    }
}

#[test]
fn the_byte_order_of_atomics_is_all_that_can_be_set_of_them() {
    let mut rig = enabled(Config::default());
    let before = block(&mut rig, 3, true);
    assert_eq!(before[8] >> 6, 0, "big-endian at power-on");
    let mut wanted = vec![0; before.len()];
    wanted[8] = 1 << 6;
    assert_eq!(set(&mut rig, 3, &wanted).0, 0);
    let mut after = before;
    after[8] |= 1 << 6;
    assert_eq!(block(&mut rig, 3, true), after);
}

#[test]
fn unannounced_types_answer_bad_parameter() {
    let mut rig = enabled(Config::default());
    assert_eq!(rig.status(&cmd(0x100, 0x40, 16), 4112), (3, 0x5a_dd95));
}

#[test]
fn set_values_are_read_back() {
    let mut rig = enabled(Config::default());
    let mut current = block(&mut rig, 0, true);
    current[0x13] = current[0x13] & !0x1f | 12;
    assert_eq!(set(&mut rig, 0, &current).0, 0);
    assert_eq!(block(&mut rig, 0, true), current);
    assert_eq!(block(&mut rig, 0, false)[0x13] & 0x1f, 23, "maximum untouched");
    assert_eq!(rig.hca.complaints(), [""; 0]);
}

#[test]
fn refusals_of_set() {
    let mut rig = enabled(Config::default());
    let current = block(&mut rig, 0, true);
    let max = block(&mut rig, 0, false);
    assert_eq!(set(&mut rig, 0, &max), (3, 0), "built from the maximum");
    let mut more = current.clone();
    more[0x13] = more[0x13] & !0x1f | 24;
    assert_eq!(set(&mut rig, 0, &more).0, 3, "above the maximum");
    let mut bit = current.clone();
    bit[0x34] |= 0x20;
    assert_eq!(set(&mut rig, 0, &bit), (3, 0x53_7801), "ib_virt, which is not there");
    assert_eq!(set(&mut rig, 9, &current).0, 3, "a type that is not there");
    assert_eq!(block(&mut rig, 0, true), current, "nothing of it stuck");
}

#[test]
fn a_read_only_field_is_kept_and_complained_of() {
    let mut rig = enabled(Config::default());
    let mut current = block(&mut rig, 0, true);
    current[0x43] &= !0x02;
    assert_eq!(set(&mut rig, 0, &current).0, 0);
    assert_eq!(block(&mut rig, 0, true)[0x43] & 2, 2);
    assert!(rig.complained_of("read-only fields: atomic"));
}

#[test]
fn not_after_init() {
    let mut rig = Rig::quick();
    rig.init();
    let current = block(&mut rig, 0, true);
    assert_eq!(set(&mut rig, 0, &current).0, 4);
}

/// The maximum block of the recorded card, ConnectX-4 with firmware 14.12.1220, by name.
const RECORDED: &str = "log_max_srq_sz 15 log_max_qp_sz 15 log_max_qp 23 log_max_srq 23 \
    log_max_cq_sz 22 log_max_cq 24 log_max_eq_sz 22 log_max_mkey 24 log_max_eq 8 max_indirection 4 \
    log_max_mrw_sz 64 log_max_bsf_list_size 16 log_max_klm_list_size 16 log_max_ra_req_dc 4 \
    log_max_ra_res_dc 4 log_max_ra_req_qp 4 log_max_ra_res_qp 4 end_pad 1 gid_table_size 4 \
    max_qp_cnt 255 pkey_table_size 5 vport_group_manager 1 nic_flow_table 1 local_ca_ack_delay 16 \
    port_type 1 num_ports 1 log_max_msg 30 stat_rate_support 1 cqe_version 1 \
    compact_address_vector 1 cmdif_checksum 3 eth_net_offloads 1 roce 1 atomic 1 cq_oi 1 cq_resize 1 \
    cq_moderation 1 block_lb_mc 1 apm 1 qkv 1 pkv 1 xrc 1 ud 1 uc 1 rc 1 uar_sz 5 log_pg_sz 12 bf 1 \
    log_bf_reg_size 9 max_wqe_sz_sq 1024 max_wqe_sz_rq 512 max_wqe_sz_sq_dc 256 \
    log_max_transport_domain 16 log_max_pd 24 log_max_xrcd 24 log_max_rq 23 log_max_sq 23 \
    log_max_tir 23 log_max_tis 23 basic_cyclic_rcv_wqe 1 log_max_rmp 23 log_max_rqt 16 \
    log_max_rqt_size 9 log_max_stride_sz_rq 9 log_min_stride_sz_rq 4 log_max_stride_sz_sq 6 \
    log_min_stride_sz_sq 6 log_max_wq_sz 15 log_max_vlan_list 12 log_max_current_mc_list 14 \
    log_max_current_uc_list 10 log_max_l2_table 16 log_uar_page_sz 8 device_frequency_mhz 275 \
    fast_teardown 0 force_teardown 0 driver_version 0 drain_sigerr 0 uar_4k 0 hca_cap_2 0 ib_virt 0";

#[test]
fn the_recorded_card_by_name() {
    let mut rig = enabled(Config::default());
    let max = block(&mut rig, 0, false);
    let layout = mlx5_model::ifc::caps::cmd_hca_cap::LAYOUT;
    let words: Vec<_> = RECORDED.split_whitespace().collect();
    for pair in words.chunks(2) {
        let field = layout.field(pair[0]).unwrap();
        assert_eq!(field.get(&max), pair[1].parse::<u32>().unwrap(), "{}", pair[0]);
    }
    assert!(words.len() > 150);
}

#[test]
fn single_capabilities_can_be_configured() {
    let general_caps = vec![("fast_teardown", 1), ("imaicl", 0), ("no_such_thing", 1)];
    let mut rig = enabled(Config { general_caps, ..Config::default() });
    let current = block(&mut rig, 0, true);
    assert_eq!(current[0x1f] & 0x10, 0x10);
    assert_eq!(current[0x46] & 0x40, 0);
    assert!(rig.complained_of("no_such_thing"));
}
