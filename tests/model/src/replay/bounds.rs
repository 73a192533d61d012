//! What a card can say of itself: the least and the most of each size.
//!
//! Wide bounds: they are to find a file that was forged or damaged, not a card that is unusual.

use crate::caps::kind::{ATOMIC, ETHERNET, FLOW_TABLE, GENERAL, ROCE};
use crate::ifc::Field;
use crate::ifc::caps::{
    atomic_caps as at, cmd_hca_cap as g, eth_caps as eth, flow_table_nic_cap as ft,
    flow_table_prop_layout as ftp, roce_cap as ro,
};
use crate::ifc::regs::{paos_reg, pmtu_reg};
use crate::reg_access::id;
use crate::watch::trace::BadLine;

/// Field, name, least, most.
type Bound = (u16, Field, &'static str, u32, u32);

macro_rules! bounds {
    ($($block:ident $layout:ident { $($field:ident $least:literal $most:literal),* $(,)? })*) => {
        &[$($(($block, $layout::$field, stringify!($field), $least, $most),)*)*]
    };
}

/// Numbers are of 24 bits, rings of as many entries as fit into a queue's memory.
const BOUNDS: &[Bound] = bounds! {
    GENERAL g {
        log_max_srq_sz 0 24, log_max_qp_sz 1 24, log_max_qp 1 24, log_max_srq 0 24,
        log_max_cq_sz 1 24, log_max_cq 1 24, log_max_eq_sz 1 24, log_max_mkey 1 24,
        log_max_eq 1 8, max_indirection 0 64, log_max_mrw_sz 0 64, log_max_klm_list_size 0 32,
        log_max_ra_req_qp 0 12, log_max_ra_res_qp 0 12, port_type 0 2, num_ports 1 8,
        cqe_version 0 3, uar_sz 0 12, log_pg_sz 12 30, log_bf_reg_size 0 12,
        max_wqe_sz_sq 64 8192, max_wqe_sz_rq 16 8192, log_max_pd 1 24,
        log_max_transport_domain 0 24, log_max_xrcd 0 24, log_max_rq 0 24, log_max_sq 0 24,
        log_max_tir 0 24, log_max_tis 0 24, log_max_rmp 0 24, log_max_rqt 0 24,
        log_max_rqt_size 0 20, log_max_vlan_list 0 16, log_max_current_mc_list 0 20,
        log_max_current_uc_list 0 20, log_max_l2_table 0 24, log_max_mcg 0 24,
    }
    ETHERNET eth { max_lso_cap 0 24, wqe_inline_mode 0 2 }
    ATOMIC at { atomic_req_8B_endianness_mode 0 1, atomic_size_qp 0 4096 }
    ROCE ro { l3_type 0 15, roce_version 1 15, roce_address_table_size 1 8192 }
};

/// Of a kind of flow table.
const TABLE: &[Bound] = bounds! {
    FLOW_TABLE ftp { log_max_ft_size 0 32, log_max_ft_num 0 32, log_max_flow 0 32 }
};

/// Most pages that a firmware asks for: 16 GiB.
pub(super) const PAGES: i64 = 4 << 20;
/// Longest time that something takes, in microseconds: ten minutes.
pub(super) const TIME: u64 = 600_000_000;

/// Fails with the first field of a capability block that no card has.
pub(super) fn check(line: usize, block: u16, which: &str, bytes: &[u8]) -> Result<(), BadLine> {
    let bad = |name: &str, what: String| Err(BadLine::new(line, format!("out: {name}"), what));
    if bytes.iter().all(|byte| *byte == 0xff) {
        return bad(&format!("capabilities {block:#x}"), format!("all ones ({which})"));
    }
    // What a card does not have it may answer with nothing.
    if block != GENERAL && bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let ports = (ro::r_roce_min_src_udp_port.get(bytes), ro::r_roce_max_src_udp_port.get(bytes));
    if block == ROCE && ports.0 > ports.1 {
        let what = format!("{} ({which}), above the maximum {}", ports.0, ports.1);
        return bad("roce_cap.r_roce_min_src_udp_port", what);
    }
    let tables: &[Field] =
        if block == FLOW_TABLE { &[ft::nic_receive, ft::nic_transmit] } else { &[] };
    let own = BOUNDS.iter().filter(|bound| bound.0 == block).map(|bound| (bound, bound.1));
    let inner = tables
        .iter()
        .flat_map(|table| TABLE.iter().map(move |bound| (bound, bound.1.within(*table))));
    for ((_, _, name, least, most), field) in own.chain(inner) {
        let value = field.get(bytes);
        if !(*least..=*most).contains(&value) {
            let name = format!("{}.{name}", crate::cards::layout(block).name);
            return bad(&name, format!("{value} ({which}): a card has {least} to {most}"));
        }
    }
    Ok(())
}

/// Fails with the first field of a port's register that no card has.
pub(super) fn check_register(line: usize, register: u16, body: &[u8]) -> Result<(), BadLine> {
    let bad = |field: &str, value: u32| {
        Err(BadLine::new(line, format!("out: {field}"), format!("{value}: no port has that")))
    };
    match u32::from(register) {
        id::PMTU => {
            let (most, set) = (pmtu_reg::max_mtu.get(body), pmtu_reg::admin_mtu.get(body));
            if most < 1500 {
                return bad("pmtu_reg.max_mtu", most);
            }
            if !(68..=most).contains(&set) {
                return bad("pmtu_reg.admin_mtu", set);
            }
        }
        id::PAOS if !(1..=4).contains(&paos_reg::admin_status.get(body)) => {
            return bad("paos_reg.admin_status", paos_reg::admin_status.get(body));
        }
        _ => {}
    }
    Ok(())
}

/// Fails where a size is set to more than the card can do.
pub(super) fn check_set(
    line: usize,
    block: u16,
    max: &[u8],
    current: &[u8],
) -> Result<(), BadLine> {
    for (_, field, name, ..) in BOUNDS.iter().filter(|bound| bound.0 == block) {
        let sizes = name.starts_with("log_max") || name.ends_with("_size");
        let (most, set) = (field.get(max), field.get(current));
        if sizes && set > most {
            let name = format!("out: {}.{name}", crate::cards::layout(block).name);
            return Err(BadLine::new(
                line,
                name,
                format!("set to {set}, above its maximum {most}"),
            ));
        }
    }
    Ok(())
}
