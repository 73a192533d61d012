//! Layouts against the reference: bit positions by hand, and the capabilities of a real card.

use std::collections::BTreeSet;
use std::vec::Vec;

use super::caps::*;
use super::cmd::*;
use super::eq::*;
use super::pages::*;
use super::reg::*;
use super::roce::*;
use super::vport::*;
use super::*;

/// Bytes from words as a dump prints them.
fn bytes<const N: usize>(words: &str) -> [u8; N] {
    let mut all = [0; N];
    let digits: Vec<u8> = words.bytes().filter(u8::is_ascii_hexdigit).collect();
    for (byte, pair) in all.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    all
}

/// General capabilities (greatest) of a ConnectX-4 with firmware 14.12.1220, from the kernel log of
/// its bring-up.
const CONNECTX4_GENERAL_MAX: &str = "
    00000000 00000000 00000000 00000000 0f0f0017 00170000 00160018 16180008
    04401010 00040004 00040004 e0000004 40ff0005 c7100101 1e000000 00010001
    c006cc0e e2fa030f 0005000c a0090000 00000400 00000200 00000100 00000030
    00000015 10180018 00000000 17171717 97100900 09040606 0000000f 800c0e0a
    00000000 00000000 00000000 00000000 10000008 00000000 00000113 00000000
    00000000 00000000 00000000 00000000 00000000 00000001 00080010 00000000";

#[test]
fn general_capabilities_of_a_real_card() {
    let cap = GeneralCap(bytes::<256>(CONNECTX4_GENERAL_MAX));
    assert_eq!(
        (cap.log_max_qp(), cap.log_max_qp_sz(), cap.log_max_srq_sz(), cap.log_max_srq()),
        (23, 15, 15, 23)
    );
    assert_eq!(
        (cap.log_max_cq(), cap.log_max_cq_sz(), cap.log_max_eq(), cap.log_max_eq_sz()),
        (24, 22, 8, 22)
    );
    assert_eq!(
        (cap.log_max_mkey(), cap.log_max_pd(), cap.log_max_transport_domain()),
        (24, 24, 16)
    );
    assert_eq!(
        (cap.log_max_rq(), cap.log_max_sq(), cap.log_max_tir(), cap.log_max_tis()),
        (23, 23, 23, 23)
    );
    assert_eq!((cap.log_max_rmp(), cap.log_max_rqt(), cap.log_max_rqt_size()), (23, 16, 9));
    assert_eq!(
        (cap.max_wqe_sz_sq(), cap.max_wqe_sz_rq(), cap.max_wqe_sz_sq_dc()),
        (1024, 512, 256)
    );
    assert_eq!(
        (cap.log_max_ra_req_qp(), cap.log_max_ra_res_qp(), cap.max_indirection()),
        (4, 4, 4)
    );
    assert_eq!(
        (cap.log_max_mrw_sz(), cap.log_max_klm_list_size(), cap.log_max_msg()),
        (64, 16, 30)
    );
    assert_eq!((cap.gid_table_size(), cap.pkey_table_size(), cap.max_qp_cnt()), (4, 5, 255));
    assert_eq!(
        (cap.local_ca_ack_delay(), cap.port_type(), cap.num_ports(), cap.cqe_version()),
        (16, 1, 1, 1)
    );
    assert_eq!(
        (cap.cmdif_checksum(), cap.uar_sz(), cap.log_pg_sz(), cap.log_bf_reg_size()),
        (3, 5, 12, 9)
    );
    assert_eq!(
        (cap.log_max_stride_sz_rq(), cap.log_min_stride_sz_rq(), cap.log_max_wq_sz()),
        (9, 4, 15)
    );
    assert_eq!(
        (cap.log_max_vlan_list(), cap.log_max_current_mc_list(), cap.log_max_current_uc_list()),
        (12, 14, 10)
    );
    assert_eq!(
        (cap.log_max_l2_table(), cap.log_uar_page_sz(), cap.device_frequency_mhz()),
        (16, 8, 275)
    );
    for on in [
        cap.striding_rq(),
        cap.wq_signature(),
        cap.sctr_data_cqe(),
        cap.eth_net_offloads(),
        cap.roce(),
        cap.atomic(),
        cap.cq_oi(),
        cap.cq_resize(),
        cap.cq_moderation(),
        cap.qkv(),
        cap.pkv(),
        cap.xrc(),
        cap.ud(),
        cap.uc(),
        cap.rc(),
        cap.bf(),
        cap.basic_cyclic_rcv_wqe(),
        cap.nic_flow_table(),
        cap.eswitch_manager(),
        cap.vport_group_manager(),
        cap.cqe_compression(),
    ] {
        assert!(on);
    }
    assert!(!cap.imaicl(), "no memory windows on that firmware");
    assert!(!cap.roce_rw_supported() && !cap.fast_teardown() && !cap.ib_virt() && !cap.uar_4k());
}

#[test]
fn setting_current_values_as_linux_did_gives_the_bytes_linux_sent() {
    // SET_HCA_CAP of the same trace differs from the current block in these fields only.
    let mut cap = GeneralCap(bytes::<256>(CONNECTX4_GENERAL_MAX));
    cap.set_log_max_qp(17);
    cap.set_pkey_table_size(0);
    cap.set_cmdif_checksum(0);
    cap.set_log_uar_page_sz(0);
    cap.set_gid_table_size(0);
    assert_eq!(cap.0[0x10..0x14], bytes::<4>("0f0f0011"));
    assert_eq!(cap.0[0x2c..0x34], bytes::<8>("e0000000 40ff0000"));
    assert_eq!(cap.0[0x40..0x44], bytes::<4>("c0060c0e"));
    assert_eq!(cap.0[0x90..0x94], bytes::<4>("10000000"));
}

#[test]
fn other_capabilities_of_a_real_card() {
    let ethernet = EthernetCap(bytes::<32>("e8725903"));
    assert!(ethernet.csum_cap() && ethernet.vlan_cap() && ethernet.lro_cap());
    assert_eq!(
        (ethernet.max_lso_cap(), ethernet.wqe_inline_mode(), ethernet.rss_ind_tbl_cap()),
        (18, 1, 9)
    );
    assert_eq!(ethernet.multi_pkt_send_wqe(), 1);

    let atomic =
        AtomicCap(bytes::<32>("00000000 00000000 00000000 00000000 0000000f 0000003c 0000003c"));
    assert_eq!(
        (atomic.atomic_operations(), atomic.atomic_size_qp(), atomic.atomic_size_dc()),
        (0xf, 0x3c, 0x3c)
    );

    let roce = RoceCap(bytes::<32>(
        "40000000 00000000 00000000 00000000 00070007 000012b7 ffffc000 00000100",
    ));
    assert_eq!((roce.l3_type(), roce.roce_version(), roce.r_roce_dest_udp_port()), (7, 7, 4791));
    assert_eq!((roce.r_roce_min_src_udp_port(), roce.r_roce_max_src_udp_port()), (0xc000, 0xffff));
    assert_eq!(roce.roce_address_table_size(), 256);
    assert!(!roce.sw_r_roce_src_udp_port());

    let mut block = [0; 0x80];
    put(
        &mut block,
        FLOW_TABLE_NIC_RECEIVE,
        &bytes::<24>("c8000000 100000ff 00000000 00000009 0000000a 00000019"),
    );
    let receive = FlowTableCap::read(&block, FLOW_TABLE_NIC_RECEIVE);
    assert!(receive.ft_support() && receive.modify_root());
    assert_eq!(
        (receive.log_max_ft_size(), receive.max_ft_level(), receive.log_max_ft_num()),
        (16, 255, 9)
    );
    assert_eq!((receive.log_max_destination(), receive.log_max_flow()), (10, 25));
}

#[test]
fn dumped_commands_of_a_real_card_read_back() {
    // MANAGE_PAGES as sent to it: six boot pages.
    let entry = CommandEntry(bytes::<64>(
        "07000000 00000040 00000007 ab0e8000 01080000 00000001 00000000 00000006
         00000000 00000000 00000000 00000000 00000000 00000000 00000010 05800001",
    ));
    assert_eq!((entry.kind(), entry.input_length(), entry.input_mailbox()), (7, 64, 0x7_ab0e_8000));
    assert_eq!(
        (entry.output_length(), entry.token(), entry.signature(), entry.ownership()),
        (16, 5, 0x80, true)
    );
    let inline = entry.command_input_inline().to_be_bytes();
    assert_eq!(
        (InputHead(inline).opcode(), InputHead(inline).op_mod()),
        (Opcode::ManagePages.code(), PageOp::Give as u16)
    );
    assert_eq!(ManagePagesIn(inline).input_num_entries(), 6);
    assert_eq!(!entry.0.iter().fold(0, |a, b| a ^ b), 0, "its signature holds");
    // QUERY_ISSI's answer: its last word is in the first mailbox.
    let mut answer = QueryIssiOut::new();
    put(&mut answer.0, 0x6c, &[0, 0, 0, 2]);
    assert_eq!(answer.supported_issi_dw0(), 2);
    let trailer = BlockTrailer(bytes::<64>(
        "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
         00000000 00000000 00000000 00000000 00000007 ab121000 00000001 00070000",
    ));
    assert_eq!((trailer.next(), trailer.block_number(), trailer.token()), (0x7_ab12_1000, 1, 7));
}

#[test]
fn layouts_have_the_manual_s_sizes() {
    let sizes = [
        (CommandEntry::SIZE, 64),
        (BlockTrailer::SIZE, 64),
        (InputHead::SIZE, 16),
        (OutputHead::SIZE, 16),
        (InitHcaIn::SIZE, 32),
        (QueryIssiOut::SIZE, 112),
        (EqContext::SIZE, 64),
        (CreateEqIn::SIZE, 272),
        (NicVportContext::SIZE, 256),
        (RoceAddress::SIZE, 32),
        (QueryPagesOut::SIZE, 16),
        (ManagePagesIn::SIZE, 16),
        (Pmtu::SIZE, 16),
        (Paos::SIZE, 16),
        (BLOCK_DATA + BlockTrailer::SIZE, 576),
        (FlowTableCap::SIZE, 64),
    ];
    for (ours, manual) in sizes {
        assert_eq!(ours, manual);
    }
}

/// Sets each field to all ones, alone: exactly its bits are set, it reads back, and no two fields
/// share a bit.
macro_rules! walk {
    ($($layout:ident),*) => {
        $(
            let size = $layout::SIZE;
            let mut owner = std::vec![""; 8 * size];
            for field in $layout::FIELDS {
                for bit in field.first..field.first + field.width {
                    assert_eq!(owner[bit], "", "{} overlaps in {}", field.name, stringify!($layout));
                    owner[bit] = field.name;
                }
            }
            let names: BTreeSet<_> = $layout::FIELDS.iter().map(|field| field.name).collect();
            assert_eq!(names.len(), $layout::FIELDS.len(), "{}", stringify!($layout));
        )*
    };
}

#[test]
fn no_two_fields_of_a_layout_overlap_or_share_a_name() {
    walk!(
        CommandEntry,
        BlockTrailer,
        InputHead,
        OutputHead,
        InitHcaIn,
        TeardownHcaIn,
        TeardownHcaOut,
        QueryIssiOut,
        SetIssiIn,
        EqContext,
        CreateEqIn,
        QueryPagesOut,
        ManagePagesIn,
        ManagePagesOut,
        GeneralCap,
        RoceCap,
        AtomicCap,
        EthernetCap,
        FlowTableCap,
        QueryVportStateOut,
        ModifyVportStateIn,
        ModifyNicVportIn,
        NicVportContext,
        RoceAddressIn,
        RoceAddress,
        AccessRegIn,
        Pmtu,
        Paos
    );
}

fn set_bits(bytes: &[u8]) -> Vec<usize> {
    (0..8 * bytes.len()).filter(|bit| bytes[bit / 8] >> (7 - bit % 8) & 1 == 1).collect()
}

#[test]
fn setters_touch_their_bits_and_getters_see_them() {
    let mut eq = EqContext::new();
    eq.set_log_eq_size(0x1f);
    // Dword 0x0c, bits 28..24: five bits from 8 * 0x0c + 31 - 28.
    assert_eq!(set_bits(&eq.0), [99, 100, 101, 102, 103]);
    assert_eq!((eq.log_eq_size(), eq.uar_page()), (31, 0));
    eq.set_uar_page(0xabcdef);
    assert_eq!(eq.0[0x0c..0x10], [0x1f, 0xab, 0xcd, 0xef]);
    eq.set_log_eq_size(0);
    assert_eq!((eq.0[0x0c], eq.uar_page()), (0, 0xabcdef));
    let mut eq = EqContext::new();
    eq.set_ec(true);
    eq.set_oi(true);
    eq.set_intr(0xfff);
    assert_eq!(eq.0[..4], [0, 6, 0, 0]);
    assert_eq!(eq.0[0x14..0x18], [0, 0, 0x0f, 0xff]);
    let mut vport = NicVportContext::new();
    vport.set_permanent_address(0x1122_3344_5566);
    vport.set_mtu(0x1234);
    vport.set_roce_en(true);
    assert_eq!(vport.0[0xf4..0xfc], [0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66]);
    assert_eq!((vport.0[0x26], vport.0[0x27], vport.0[3]), (0x12, 0x34, 1));
    let mut roce = RoceAddress::new();
    roce.set_source_l3_address(0xff);
    roce.set_vlan_id(0xabc);
    roce.set_vlan_valid(true);
    roce.set_source_mac_47_32(0x1122);
    roce.set_roce_version(2);
    roce.set_roce_l3_type(1);
    assert_eq!(roce.0[15..20], [0xff, 0x1a, 0xbc, 0x11, 0x22]);
    assert_eq!(roce.0[0x18..0x1c], [0, 0, 1, 2]);
}

#[test]
fn event_entry_words_read_as_the_manual_s_bytes() {
    // byte 1 type, byte 3 sub type; byte 0x3e signature, 0x3f owner.
    let head = EqeHead(u32::from_be_bytes([0xaa, 0x0b, 0xbb, 0x04]));
    assert_eq!((head.event_type(), head.event_sub_type()), (0x0b, 4));
    let tail = EqeTail(u32::from_be_bytes([0, 0, 0x5a, 1]));
    assert_eq!((tail.signature(), tail.owner()), (0x5a, true));
    let mut doorbell = EqDoorbell::default();
    doorbell.set_eqn(0x12);
    doorbell.set_consumer_index(0x34_5678);
    assert_eq!(doorbell.0, 0x1234_5678);
    for code in 0..=255 {
        if let Some(event_type) = EventType::from_code(code) {
            assert_eq!(event_type as u8, code);
        }
    }
    assert_eq!(EventType::PageRequest.bit(), 0x800);
}

#[test]
fn opcodes_and_their_names_are_one_to_one() {
    let mut names = BTreeSet::new();
    for op in Opcode::ALL {
        assert_eq!(Opcode::from_code(op.code()), Some(*op));
        assert!(names.insert(op.name()), "{}", op.name());
    }
    assert_eq!(Opcode::from_code(0), None);
    for pair in Opcode::ALL.windows(2) {
        assert!(pair[0].code() < pair[1].code());
    }
}

#[test]
fn put_and_take_stay_inside() {
    let mut message = [0; 8];
    put(&mut message, 6, &[1, 2, 3]);
    put(&mut message, 9, &[4]);
    put(&mut message, usize::MAX, &[4]);
    assert_eq!(message, [0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(take::<4>(&message, 6), [1, 2, 0, 0]);
    assert_eq!(take::<4>(&message, 100), [0; 4]);
    assert_eq!(EqContext::read(&message, 4).0[..4], [0, 0, 1, 2]);
}

// ---- management datagrams ----

/// Fields against a table that counts 32-bit words, and bits in them from the top, as Linux's
/// `sa_query.c` does.
fn assert_table(fields: &[Field], table: &[(&str, usize, usize, usize)]) {
    let found: Vec<_> =
        fields.iter().map(|f| (f.name, f.first / 32, f.first % 32, f.width)).collect();
    assert_eq!(found, table);
}

#[test]
fn records_are_as_in_the_tables_of_sa_query() {
    assert_table(
        sa::PathRecord::FIELDS,
        &[
            ("service_id", 0, 0, 64),
            ("dgid", 2, 0, 128),
            ("sgid", 6, 0, 128),
            ("dlid", 10, 0, 16),
            ("slid", 10, 16, 16),
            ("raw_traffic", 11, 0, 1),
            ("flow_label", 11, 4, 20),
            ("hop_limit", 11, 24, 8),
            ("traffic_class", 12, 0, 8),
            ("reversible", 12, 8, 1),
            ("numb_path", 12, 9, 7),
            ("pkey", 12, 16, 16),
            ("qos_class", 13, 0, 12),
            ("sl", 13, 12, 4),
            ("mtu_selector", 13, 16, 2),
            ("mtu", 13, 18, 6),
            ("rate_selector", 13, 24, 2),
            ("rate", 13, 26, 6),
            ("packet_lifetime_selector", 14, 0, 2),
            ("packet_lifetime", 14, 2, 6),
            ("preference", 14, 8, 8),
        ],
    );
    assert_table(
        sa::McMemberRecord::FIELDS,
        &[
            ("mgid", 0, 0, 128),
            ("port_gid", 4, 0, 128),
            ("qkey", 8, 0, 32),
            ("mlid", 9, 0, 16),
            ("mtu_selector", 9, 16, 2),
            ("mtu", 9, 18, 6),
            ("traffic_class", 9, 24, 8),
            ("pkey", 10, 0, 16),
            ("rate_selector", 10, 16, 2),
            ("rate", 10, 18, 6),
            ("packet_lifetime_selector", 10, 24, 2),
            ("packet_lifetime", 10, 26, 6),
            ("sl", 11, 0, 4),
            ("flow_label", 11, 4, 20),
            ("hop_limit", 11, 24, 8),
            ("scope", 12, 0, 4),
            ("join_state", 12, 4, 4),
            ("proxy_join", 12, 8, 1),
        ],
    );
}

/// Fields against the running sum of the sizes of a C structure's members, in bytes.
fn assert_members(fields: &[Field], start: usize, members: &[(&str, usize)]) {
    let mut at = start;
    for (name, bytes) in members {
        if !name.is_empty() {
            let field = fields.iter().find(|field| field.name == *name).unwrap();
            assert_eq!((field.first, field.width), (8 * at, 8 * bytes), "{name}");
        }
        at += bytes;
    }
}

#[test]
fn headers_are_as_in_the_structures_of_ib_mad() {
    let header = [
        ("base_version", 1),
        ("mgmt_class", 1),
        ("class_version", 1),
        ("method", 1),
        ("status", 2),
        ("class_specific", 2),
        ("tid", 8),
        ("attr_id", 2),
        ("", 2),
        ("attr_mod", 4),
    ];
    assert_members(mad::MadHeader::FIELDS, 0, &header);
    let rmpp = [
        ("rmpp_version", 1),
        ("rmpp_type", 1),
        ("", 1),
        ("rmpp_status", 1),
        ("seg_num", 4),
        ("paylen_newwin", 4),
        ("sm_key", 8),
        ("attr_offset", 2),
        ("", 2),
        ("comp_mask", 8),
    ];
    assert_members(sa::SaHeader::FIELDS, 24, &rmpp);
    assert_members(
        mad::ClassPortInfo::FIELDS,
        8,
        &[
            ("redirect_gid", 16),
            ("", 4),
            ("redirect_lid", 2),
            ("redirect_pkey", 2),
            ("", 4),
            ("redirect_qkey", 4),
            ("trap_gid", 16),
            ("", 4),
            ("trap_lid", 2),
            ("trap_pkey", 2),
            ("", 4),
            ("trap_qkey", 4),
        ],
    );
    let inform = [
        ("gid", 16),
        ("lid_range_begin", 2),
        ("lid_range_end", 2),
        ("", 2),
        ("is_generic", 1),
        ("subscribe", 1),
        ("notice_type", 2),
        ("trap_num", 2),
        ("qpn", 3),
    ];
    assert_members(mad::InformInfo::FIELDS, 0, &inform);
}
