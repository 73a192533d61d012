//! The table of cards.

use super::{Cap, Card};
use crate::config::Personality;
use crate::facts::OpenFact as F;

/// Evidence.
const RECORDED: &str = "a recorded bring-up by Linux, firmware 14.12.1220";
const DUMP: &str = "a card's own word: saeedtx/mlx5ctl, README";
const IDS: &str = "device table of Linux mlx5_core";
const CX4LX: &str = "ibv_devinfo in openucx/ucx issue 9724";
const CX5: &str = "ibv_devinfo in open-mpi/ompi pull request 6137";
const CX6: &str = "ibv_devinfo in openucx/ucx issue 8229";
const CX7: &str = "ROCm/rocm-xio pull request 100";
const BF2: &str = "ibv_devinfo in openucx/ucx issue 10541";
const CX4_IB: &str = "ibv_devinfo in openucx/ucx issue 7613";
const CX6_IB: &str = "lspci in openshift/sriov-network-operator issue 635";
const CX6_IB_FIRMWARE: &str = "ibstat of a virtual function in Mellanox/network-operator issue 249";
const CX7_IB: &str = "k8snetworkplumbingwg/sriov-network-operator issue 1046";
const TINYGRAD: &str = "tinygrad on a ConnectX-6";
/// Firmware of early 2022 has `umem_uid_0`, 16.32 as the first of a ConnectX-5.
const CALADAN: &str = "README of Caladan: from firmware 16.32 on";
const GUESSED_CALADAN: &str = "guessed, from the README of Caladan on a ConnectX-5";
const SNABB: &str = "Snabb connectx.lua";
const GUESSED: &str = "guessed";
const GUESSED_CX6: &str = "guessed, from a ConnectX-6";
const GUESSED_DX: &str = "guessed, from a ConnectX-6 Dx";

const GENERAL: u16 = 0;
const ETHERNET: u16 = 1;
const ROCE: u16 = 4;

const fn cap(block: u16, name: &'static str, value: u32, evidence: &'static str) -> Cap {
    Cap { block, name, max: value, current: value, evidence }
}

/// Off at power-on, for software to switch on.
const fn settable(block: u16, name: &'static str, max: u32, evidence: &'static str) -> Cap {
    Cap { block, name, max, current: 0, evidence }
}

/// Set by software to less than the maximum: devinfo shows what Linux made of it.
const fn log_max_qp(max: u32, evidence: &'static str) -> Cap {
    Cap { block: GENERAL, name: "log_max_qp", max, current: 14, evidence }
}

/// Relaxed ordering, and whether a UMR may change it.
const fn relaxed_ordering(value: u32, evidence: &'static str, umr: &'static str) -> [Cap; 4] {
    [
        cap(GENERAL, "relaxed_ordering_write", value, evidence),
        cap(GENERAL, "relaxed_ordering_read", value, evidence),
        cap(GENERAL, "relaxed_ordering_write_umr", value, umr),
        cap(GENERAL, "relaxed_ordering_read_umr", value, umr),
    ]
}

const NOT_RELAXED: &[Cap] = &relaxed_ordering(0, RECORDED, RECORDED);
const NOT_RELAXED_LX: &[Cap] = &relaxed_ordering(0, GUESSED, GUESSED);
const RELAXED: &[Cap] = &relaxed_ordering(1, GUESSED_DX, GUESSED);
const RELAXED_DX: &[Cap] = &relaxed_ordering(1, DUMP, GUESSED);

/// Queues and keys in user memory without a user context.
const fn umem_uid_0(value: u32, evidence: &'static str) -> [Cap; 1] {
    [cap(GENERAL, "umem_uid_0", value, evidence)]
}

const NO_UMEM: &[Cap] = &umem_uid_0(0, GUESSED_CALADAN);
const UMEM: &[Cap] = &umem_uid_0(1, GUESSED_CALADAN);

/// What a ConnectX-6 Dx says of itself, of what the model has.
const DX: &[Cap] = &[
    log_max_qp(17, DUMP),
    cap(GENERAL, "log_max_srq_sz", 15, DUMP),
    cap(GENERAL, "log_max_qp_sz", 15, DUMP),
    cap(GENERAL, "log_max_srq", 23, DUMP),
    cap(GENERAL, "uplink_follow", 0, DUMP),
    cap(GENERAL, "log_max_cq_sz", 22, DUMP),
    cap(GENERAL, "log_max_cq", 24, DUMP),
    cap(GENERAL, "log_max_eq_sz", 22, DUMP),
    cap(GENERAL, "log_max_mkey", 24, DUMP),
    cap(GENERAL, "log_max_eq", 7, DUMP),
    cap(GENERAL, "max_indirection", 4, DUMP),
    cap(GENERAL, "fixed_buffer_size", 1, DUMP),
    cap(GENERAL, "log_max_mrw_sz", 64, DUMP),
    cap(GENERAL, "log_max_bsf_list_size", 16, DUMP),
    cap(GENERAL, "log_max_klm_list_size", 16, DUMP),
    cap(GENERAL, "log_max_ra_req_qp", 4, DUMP),
    cap(GENERAL, "log_max_ra_res_qp", 4, DUMP),
    cap(GENERAL, "max_qp_cnt", 127, DUMP),
    cap(GENERAL, "local_ca_ack_delay", 16, DUMP),
    cap(GENERAL, "dtor", 1, DUMP),
    cap(GENERAL, "log_max_msg", 30, DUMP),
    cap(GENERAL, "cqe_version", 1, DUMP),
    cap(GENERAL, "imaicl", 1, DUMP),
    cap(GENERAL, "umem_uid_0", 1, DUMP),
    cap(GENERAL, "uar_4k", 0, DUMP),
    cap(GENERAL, "uar_sz", 5, DUMP),
    cap(GENERAL, "log_pg_sz", 12, DUMP),
    cap(GENERAL, "max_wqe_sz_sq", 1024, DUMP),
    cap(GENERAL, "max_wqe_sz_rq", 512, DUMP),
    cap(GENERAL, "max_wqe_sz_sq_dc", 256, DUMP),
    cap(GENERAL, "max_qp_mcg", 240, DUMP),
    cap(GENERAL, "log_max_mcg", 21, DUMP),
    cap(GENERAL, "log_max_transport_domain", 16, DUMP),
    cap(GENERAL, "log_max_pd", 23, DUMP),
    cap(GENERAL, "log_max_xrcd", 24, DUMP),
    cap(GENERAL, "log_max_rq", 23, DUMP),
    cap(GENERAL, "log_max_sq", 23, DUMP),
    cap(GENERAL, "log_max_tir", 16, DUMP),
    cap(GENERAL, "log_max_tis", 23, DUMP),
    cap(GENERAL, "log_max_rmp", 23, DUMP),
    cap(GENERAL, "log_max_rqt", 20, DUMP),
    cap(GENERAL, "cqe_compression", 1, DUMP),
    cap(ETHERNET, "csum_cap", 1, DUMP),
    cap(ETHERNET, "vlan_cap", 1, DUMP),
    cap(ETHERNET, "max_lso_cap", 18, DUMP),
    cap(ETHERNET, "rss_ind_tbl_cap", 11, DUMP),
    cap(ROCE, "fl_rc_qp_when_roce_disabled", 1, DUMP),
    cap(ROCE, "fl_rc_qp_when_roce_enabled", 1, DUMP),
    settable(ROCE, "sw_r_roce_src_udp_port", 1, DUMP),
];

/// Capabilities of the ConnectX-6 Dx that the model has not got.
pub(crate) const LEFT_OUT: &[&str] = &[
    "dct",
    "device_memory",
    "dump_fill_mkey",
    "eswitch_manager",
    "event_cap",
    "fast_teardown",
    "force_teardown",
    "hca_cap_2",
    "lag_master",
    "lro_cap",
    "mcam_reg",
    "multi_pkt_send_wqe",
    "null_mkey",
    "pcam_reg",
    "pg",
    "qcam_reg",
    "qos",
    "release_all_pages",
    "reg_umr_sq",
    "sho",
    "striding_rq",
    "swp",
    "ts_cqe_to_dest_cqn",
    "uctx_cap",
    "vhca_resource_manager",
];

/// Time limits of a ConnectX-6 Dx, raw.
const LIMITS: &[u32] = &[
    0,
    0x2000_0002,
    0,
    0,
    0,
    0x2000_0002,
    0x2000_003c,
    0x2000_003c,
    0x2000_0002,
    0x2000_0002,
    0x2000_000a,
    0x2000_0005,
    0x2000_0005,
    0x2000_0078,
];

/// Facts that a ConnectX-6 Dx decides.
const DX_FACTS: &[(F, &str, &str)] = &[
    (F::UmrFence, "1", DUMP),
    (F::UmrEntitySize, "0", DUMP),
    (F::UmrAtomic, "0", DUMP),
    (F::UmrIndirect, "0", DUMP),
    (F::InlineMode, "not-required", DUMP),
    (F::BfSize, "9", DUMP),
    (F::QpTsFormat, "0", DUMP),
    (F::SqTsFormat, "0", GUESSED),
    (F::RqTsFormat, "0", GUESSED),
    (F::L3Type, "7", DUMP),
    (F::RoceVersion, "5", DUMP),
    (F::RoceTable, "255", DUMP),
    (F::InitPages, "8000", GUESSED_CX6),
    (F::PortMtu, "4220", GUESSED_CX6),
];

/// A card with both kinds of time, guessed like a ConnectX-6 Dx.
const LATER_FACTS: &[(F, &str, &str)] = &[
    (F::UmrFence, "1", GUESSED_DX),
    (F::InlineMode, "not-required", GUESSED_DX),
    (F::QpTsFormat, "2", GUESSED),
    (F::SqTsFormat, "2", GUESSED),
    (F::RqTsFormat, "2", GUESSED),
    (F::L3Type, "7", GUESSED_DX),
    (F::RoceVersion, "5", GUESSED_DX),
    (F::RoceTable, "255", GUESSED_DX),
    (F::InitPages, "8000", GUESSED_CX6),
    (F::PortMtu, "4220", GUESSED_CX6),
];

/// Capabilities of those.
const LATER: &[Cap] = &[
    settable(ROCE, "sw_r_roce_src_udp_port", 1, GUESSED_DX),
    cap(GENERAL, "dtor", 1, GUESSED_DX),
    cap(GENERAL, "log_max_eq", 7, GUESSED_DX),
    cap(GENERAL, "log_max_pd", 23, GUESSED_DX),
    cap(GENERAL, "fixed_buffer_size", 1, GUESSED_DX),
];

const BASE: Card = Card {
    name: "connectx-4",
    device_id: (0x1013, IDS),
    firmware: ((14, 12, 1220), RECORDED),
    personality: Personality::Pf,
    regular_pages: (0, RECORDED),
    time_limits: (&[], ""),
    caps: &[NOT_RELAXED, &umem_uid_0(0, RECORDED)],
    facts: &[],
};

/// A card like a ConnectX-6 Dx, as far as anybody knows.
const AFTER_DX: Card = Card {
    regular_pages: (0, GUESSED),
    time_limits: (LIMITS, GUESSED_DX),
    facts: LATER_FACTS,
    ..BASE
};

/// Every card.
pub const CARDS: &[Card] = &[
    BASE,
    Card {
        name: "connectx-4lx",
        device_id: (0x1015, IDS),
        firmware: ((14, 32, 1010), CX4LX),
        regular_pages: (0, GUESSED),
        caps: &[
            NOT_RELAXED_LX,
            UMEM,
            &[log_max_qp(17, CX4LX), cap(GENERAL, "log_max_qp_sz", 15, CX4LX)],
        ],
        ..BASE
    },
    Card {
        name: "connectx-5",
        device_id: (0x1017, IDS),
        firmware: ((16, 23, 1020), CX5),
        regular_pages: (0, GUESSED),
        caps: &[
            RELAXED,
            &umem_uid_0(0, CALADAN),
            &[
                log_max_qp(18, CX5),
                cap(GENERAL, "log_max_qp_sz", 15, CX5),
                cap(GENERAL, "log_max_cq", 24, CX5),
                cap(GENERAL, "log_max_cq_sz", 22, CX5),
                cap(GENERAL, "log_max_pd", 24, CX5),
            ],
        ],
        facts: &[(F::UmrFence, "0", GUESSED), (F::InlineMode, "not-required", GUESSED)],
        ..BASE
    },
    Card {
        name: "connectx-6",
        device_id: (0x101b, IDS),
        firmware: ((20, 29, 1016), CX6),
        regular_pages: (0, GUESSED),
        caps: &[
            RELAXED,
            NO_UMEM,
            &[
                log_max_qp(18, CX6),
                cap(GENERAL, "log_max_qp_sz", 15, CX6),
                settable(ROCE, "sw_r_roce_src_udp_port", 1, TINYGRAD),
            ],
        ],
        facts: &[
            (F::InitPages, "8000", TINYGRAD),
            (F::PortMtu, "4220", TINYGRAD),
            (F::EnableLive, "taken", TINYGRAD),
            (F::UmrFence, "1", GUESSED_DX),
            (F::InlineMode, "not-required", GUESSED_DX),
            (F::RoceVersion, "5", GUESSED_DX),
            (F::RoceTable, "255", GUESSED_DX),
        ],
        ..BASE
    },
    Card {
        name: "connectx-6dx",
        device_id: (0x101d, IDS),
        firmware: ((22, 31, 1014), GUESSED),
        regular_pages: (0, GUESSED),
        time_limits: (LIMITS, DUMP),
        caps: &[RELAXED_DX, DX],
        facts: DX_FACTS,
        ..BASE
    },
    Card {
        name: "connectx-7",
        device_id: (0x1021, IDS),
        firmware: ((28, 43, 1014), CX7),
        regular_pages: (-5, SNABB),
        caps: &[RELAXED, LATER, UMEM, &[log_max_qp(23, GUESSED)]],
        ..AFTER_DX
    },
    Card {
        name: "connectx-8",
        device_id: (0x1023, IDS),
        firmware: ((40, 43, 1014), GUESSED),
        caps: &[RELAXED, LATER, UMEM, &[log_max_qp(23, GUESSED)]],
        ..AFTER_DX
    },
    Card {
        name: "bluefield2",
        device_id: (0xa2d6, IDS),
        firmware: ((24, 35, 3502), BF2),
        caps: &[
            RELAXED,
            LATER,
            UMEM,
            &[
                log_max_qp(17, BF2),
                cap(GENERAL, "log_max_qp_sz", 15, BF2),
                cap(GENERAL, "log_max_pd", 23, BF2),
                cap(GENERAL, "log_max_srq", 23, BF2),
                cap(GENERAL, "log_max_srq_sz", 15, BF2),
                cap(GENERAL, "log_max_mcg", 21, BF2),
                cap(GENERAL, "max_qp_mcg", 240, BF2),
                cap(GENERAL, "local_ca_ack_delay", 16, BF2),
            ],
        ],
        ..AFTER_DX
    },
    Card {
        name: "bluefield3",
        device_id: (0xa2dc, IDS),
        firmware: ((32, 43, 1014), GUESSED),
        caps: &[RELAXED, LATER, UMEM, &[log_max_qp(18, GUESSED)]],
        ..AFTER_DX
    },
    // VPI cards that are set to InfiniBand, or that were sold so.
    Card {
        name: "connectx-4-ib",
        firmware: ((12, 28, 2006), CX4_IB),
        caps: &[
            NOT_RELAXED,
            NO_UMEM,
            &[log_max_qp(18, CX4_IB), cap(GENERAL, "log_max_qp_sz", 15, CX4_IB)],
        ],
        facts: &[(F::PortType, "infiniband", CX4_IB)],
        ..BASE
    },
    Card {
        name: "connectx-6-ib",
        device_id: (0x101b, CX6_IB),
        firmware: ((20, 28, 4000), CX6_IB_FIRMWARE),
        regular_pages: (0, GUESSED),
        caps: &[RELAXED, NO_UMEM, &[log_max_qp(18, GUESSED_CX6)]],
        facts: &[
            (F::PortType, "infiniband", CX6_IB),
            (F::InitPages, "8000", TINYGRAD),
            (F::UmrFence, "1", GUESSED_DX),
        ],
        ..BASE
    },
    Card {
        name: "connectx-7-ib",
        device_id: (0x1021, CX7_IB),
        firmware: ((28, 43, 1014), GUESSED),
        regular_pages: (-5, GUESSED),
        caps: &[RELAXED, LATER, UMEM, &[log_max_qp(23, GUESSED)]],
        facts: &[
            (F::PortType, "infiniband", CX7_IB),
            (F::UmrFence, "1", GUESSED_DX),
            (F::InitPages, "8000", GUESSED_CX6),
        ],
        ..AFTER_DX
    },
    Card {
        name: "vf",
        device_id: (0x101e, IDS),
        firmware: ((22, 31, 1014), GUESSED),
        personality: Personality::Vf,
        regular_pages: (0, GUESSED),
        time_limits: (LIMITS, GUESSED_DX),
        caps: &[RELAXED_DX, DX],
        facts: &[
            (F::UmrFence, "1", GUESSED_DX),
            (F::InlineMode, "not-required", GUESSED_DX),
            (F::RoceVersion, "5", GUESSED_DX),
            (F::RoceTable, "16", GUESSED),
            (F::InitPages, "8000", GUESSED_CX6),
        ],
    },
];
