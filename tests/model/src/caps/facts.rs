//! Capabilities that open facts change.

use super::{Blocks, kind};
use crate::facts::{Facts, OpenFact};
use crate::ifc::Field;
use crate::ifc::caps::{cmd_hca_cap as g, eth_caps as eth, roce_cap as ro};

/// Facts that are the value of one field.
const FIELDS: &[(OpenFact, u16, Field)] = &[
    (OpenFact::QpTsFormat, kind::ROCE, ro::qp_ts_format),
    (OpenFact::SqTsFormat, kind::GENERAL, g::sq_ts_format),
    (OpenFact::RqTsFormat, kind::GENERAL, g::rq_ts_format),
    (OpenFact::UmrEntitySize, kind::GENERAL, g::umr_modify_entity_size_disabled),
    (OpenFact::UmrAtomic, kind::GENERAL, g::umr_modify_atomic_disabled),
    (OpenFact::UmrIndirect, kind::GENERAL, g::umr_indirect_mkey_disabled),
    (OpenFact::UmrFence, kind::GENERAL, g::umr_fence),
    (OpenFact::CqeVersion, kind::GENERAL, g::cqe_version),
    (OpenFact::CacheLine, kind::GENERAL, g::cache_line_128byte),
    (OpenFact::InlineMode, kind::ETHERNET, eth::wqe_inline_mode),
    (OpenFact::BfSize, kind::GENERAL, g::log_bf_reg_size),
    (OpenFact::RoceVersion, kind::ROCE, ro::roce_version),
    (OpenFact::L3Type, kind::ROCE, ro::l3_type),
    (OpenFact::RoceTable, kind::ROCE, ro::roce_address_table_size),
    (OpenFact::AckDelay, kind::GENERAL, g::local_ca_ack_delay),
    (OpenFact::Uar4k, kind::GENERAL, g::uar_4k),
    (OpenFact::RoceUdpPort, kind::ROCE, ro::sw_r_roce_src_udp_port),
    (OpenFact::UplinkFollow, kind::GENERAL, g::uplink_follow),
    (OpenFact::FixedBuffer, kind::GENERAL, g::fixed_buffer_size),
    (OpenFact::EswitchManager, kind::GENERAL, g::eswitch_manager),
    (OpenFact::SwOwnerId, kind::GENERAL, g::sw_owner_id),
    (OpenFact::VhcaPorts, kind::GENERAL, g::num_vhca_ports),
    (OpenFact::CqResize, kind::GENERAL, g::cq_resize),
    (OpenFact::FastTeardown, kind::GENERAL, g::fast_teardown),
];

/// Of these the present value is 0 at power-on: software switches them on.
const OFF_AT_POWER_ON: &[OpenFact] = &[OpenFact::Uar4k, OpenFact::RoceUdpPort];

/// The block that says what a fact says, if one does.
pub(crate) fn decides(fact: OpenFact) -> Option<u16> {
    if fact == OpenFact::PortType {
        return Some(kind::GENERAL);
    }
    FIELDS.iter().find(|(of, ..)| *of == fact).map(|(_, block, _)| *block)
}

/// Changes the blocks as the facts say.
pub(super) fn apply(facts: &Facts, ib_virt: bool, max: &mut Blocks, current: &mut Blocks) {
    let set = |blocks: &mut Blocks, block: u16, field: Field, value: u32| {
        if let Some(bytes) = blocks.get_mut(&block) {
            field.set(bytes, value);
        }
    };
    for (fact, block, field) in FIELDS {
        let Some(value) = facts.value(*fact) else {
            continue;
        };
        // Beyond the field's width is what the fact says besides.
        let value = value as u32 & ((1 << field.width.min(31)) - 1);
        set(max, *block, *field, value);
        let off = OFF_AT_POWER_ON.contains(fact);
        set(current, *block, *field, if off { 0 } else { value });
    }
    for blocks in [max, current] {
        if facts.on(OpenFact::BfSize) {
            let bf = facts.value(OpenFact::BfSize) != Some(0);
            set(blocks, kind::GENERAL, g::bf, u32::from(bf));
        }
        if facts.on(OpenFact::PortType) {
            make_infiniband(blocks, ib_virt);
        }
    }
}

/// Changes blocks to those of a port that speaks InfiniBand: nothing of Ethernet, no raw send queue
/// (where there is one, Linux tests write combining with it in a protection domain of Ethernet's),
/// tables of 128 P_Keys and 8 GIDs (codes 0). No public text shows the blocks of a card with such a port whole.
pub(super) fn make_infiniband(blocks: &mut Blocks, ib_virt: bool) {
    let Some(general) = blocks.get_mut(&kind::GENERAL) else { return };
    for (field, value) in [
        (g::port_type, 0),
        (g::roce, 0),
        (g::eth_net_offloads, 0),
        (g::nic_flow_table, 0),
        (g::log_max_sq, 0),
        (g::gid_table_size, 0),
        (g::pkey_table_size, 0),
        (g::ib_virt, u32::from(ib_virt)),
    ] {
        field.set(general, value);
    }
}
