//! Capabilities: what the card could do (maximum), and what it is set to (current).
//!
//! The big profile is what a ConnectX-4 with firmware 14.12.1220 said of itself in a recorded
//! bring-up, except for features this model does not have (striding receive queues,
//! the embedded switch), which it does not claim, and for a writable RoCE switch and
//! memory windows, which later firmware has, and relaxed ordering, which later cards have; the small one is the least with
//! which stock Linux brings up a RoCE interface. SET_HCA_CAP is checked as firmware checks it:
//! no bit where the maximum has none, no value above the maximum, and only before INIT_HCA.

mod facts;
mod profile;

pub(crate) use facts::decides;

use crate::cards::{self, Card};
use crate::cmd::{Command, FunctionState, Refusal, Stage, Status};
use crate::config::{Config, LinkLayer};
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::ifc::caps::{atomic_caps as at, cmd_hca_cap as g, roce_cap as ro};
use crate::ifc::cmd::head_in;
use crate::ifc::{Field, Layout};
use std::collections::BTreeMap;

/// Capability block numbers.
pub(crate) mod kind {
    pub(crate) const GENERAL: u16 = 0;
    pub(crate) const ETHERNET: u16 = 1;
    pub(crate) const ATOMIC: u16 = 3;
    pub(crate) const ROCE: u16 = 4;
    pub(crate) const FLOW_TABLE: u16 = 7;
}

/// Bytes of a block in the commands.
const BLOCK: usize = 4096;
/// Least bytes of a block that is set: as many as the block had in drivers of the Connect-IB's time,
/// which bring later cards up with it as well (Linux 3.11 `mlx5_hca_cap`; iPXE's golan to this day).
const LEAST_SET: usize = 256;

/// Blocks by type number.
pub(crate) type Blocks = BTreeMap<u16, Vec<u8>>;

/// What the card could do, and what it is set to.
#[derive(Debug)]
pub(crate) struct Caps {
    max: Blocks,
    current: Blocks,
}

/// Fields of the general block that SET_HCA_CAP may change.
const SETTABLE: &[Field] = &[
    g::log_max_qp,
    g::log_max_cq,
    g::log_max_mkey,
    g::pkey_table_size,
    g::cmdif_checksum,
    g::log_uar_page_sz,
    g::uar_4k,
    g::drain_sigerr,
    g::cache_line_128byte,
    g::num_vhca_ports,
    g::mkey_by_name,
    g::dct,
    g::roce,
    g::release_all_pages,
    g::log_max_current_uc_list,
];

impl Caps {
    pub(crate) fn new(config: &Config) -> Self {
        let max = profile::blocks(config);
        let mut current = max.clone();
        if let Some(atomic) = current.get_mut(&kind::ATOMIC) {
            at::atomic_req_8B_endianness_mode.set(atomic, 0);
        }
        if let Some(general) = current.get_mut(&kind::GENERAL) {
            let log_max_qp = g::log_max_qp.get(general).min(14);
            g::log_max_qp.set(general, log_max_qp);
            g::pkey_table_size.set(general, 0);
            g::cmdif_checksum.set(general, 0);
            g::log_uar_page_sz.set(general, 0);
            g::gid_table_size.set(general, 0);
        }
        let mut caps = Self { max, current };
        for cap in config.card.into_iter().flat_map(Card::caps) {
            let field = cards::layout(cap.block).field(cap.name);
            let pair = [(&mut caps.max, cap.max), (&mut caps.current, cap.current)];
            for (blocks, value) in pair {
                if let (Some(field), Some(block)) = (field, blocks.get_mut(&cap.block)) {
                    field.set(block, value);
                }
            }
        }
        if let Some(recording) = &config.recording {
            caps.max.extend(recording.max.clone());
            caps.current.extend(recording.current.clone());
        }
        for (name, value) in &config.general_caps {
            if let Some((kind, field)) = named(name) {
                for blocks in [&mut caps.max, &mut caps.current] {
                    if let Some(block) = blocks.get_mut(&kind) {
                        field.set(block, *value);
                    }
                }
            }
        }
        let ib_virt = !config.facts.on(OpenFact::IbVirt);
        facts::apply(&config.facts, ib_virt, &mut caps.max, &mut caps.current);
        if config.link == LinkLayer::InfiniBand {
            for blocks in [&mut caps.max, &mut caps.current] {
                facts::make_infiniband(blocks, ib_virt);
            }
        }
        caps
    }

    /// Names given in a configuration that no capability has.
    pub(crate) fn unknown_names(config: &Config) -> impl Iterator<Item = &'static str> + '_ {
        config.general_caps.iter().map(|(name, _)| *name).filter(|name| named(name).is_none())
    }

    /// A field of the current general block.
    pub(crate) fn general(&self, field: Field) -> u32 {
        self.current(kind::GENERAL, field)
    }

    /// A field of any current block.
    pub(crate) fn current(&self, block: u16, field: Field) -> u32 {
        self.current.get(&block).map_or(0, |b| field.get(b))
    }

    /// EQ numbers end here.
    pub(crate) fn eq_limit(&self) -> u32 {
        1 << self.general(g::log_max_eq).min(8)
    }
}

/// The field of a name: of the general block, or of another with its layout's name before it.
fn named(name: &str) -> Option<(u16, Field)> {
    let block = |kind: u16| {
        let layout = cards::layout(kind);
        let path = name.strip_prefix(layout.name)?.strip_prefix('.')?;
        Some((kind, layout.field(path)?))
    };
    let kinds = [kind::GENERAL, kind::ETHERNET, kind::ATOMIC, kind::ROCE, kind::FLOW_TABLE];
    let general = g::LAYOUT.field(name).map(|field| (kind::GENERAL, field));
    general.or_else(|| kinds.into_iter().find_map(block))
}

/// Whether SET_HCA_CAP may change a field of a block; the others keep their value.
fn settable(block: u16, field: Field) -> bool {
    match block {
        kind::GENERAL => SETTABLE.contains(&field),
        kind::ATOMIC => field == at::atomic_req_8B_endianness_mode,
        _ => true,
    }
}

/// The layout of a block, for the check of what is set.
fn layout(block: u16) -> Option<Layout> {
    match block {
        kind::GENERAL => Some(g::LAYOUT),
        kind::ATOMIC => Some(at::LAYOUT),
        kind::ROCE => Some(ro::LAYOUT),
        _ => None,
    }
}

fn query(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let op_mod = head_in::op_mod.get(input) as u16;
    hca.refused_before(0x100, op_mod, 0)?;
    let blocks = if op_mod & 1 == 1 { &hca.caps.current } else { &hca.caps.max };
    let announced = match op_mod >> 1 {
        kind::ETHERNET => hca.caps.general(g::eth_net_offloads) != 0,
        kind::ATOMIC => hca.caps.general(g::atomic) != 0,
        kind::FLOW_TABLE => hca.caps.general(g::nic_flow_table) != 0,
        _ => true,
    };
    let block = blocks.get(&(op_mod >> 1)).filter(|_| announced);
    let block = block.ok_or(Status::BadParam.because(0x5a_dd95))?;
    output[16..16 + BLOCK].copy_from_slice(block);
    Ok(())
}

fn set(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    if hca.cmd.state == FunctionState::Running {
        return Err(Status::BadSysState.because(0x10_9001));
    }
    let block = (head_in::op_mod.get(input) >> 1) as u16;
    let (Some(layout), Some(max), Some(current)) =
        (layout(block), hca.caps.max.get(&block), hca.caps.current.get(&block))
    else {
        return Err(Status::BadParam.because(0x10_9002));
    };
    // What a short block does not reach keeps its value.
    let given = &input[16..input.len().min(16 + BLOCK)];
    let wanted = &[given, &current[given.len()..]].concat();
    if block == kind::GENERAL && wanted == max && max != current {
        // Built from the maximum instead of the current block.
        return Err(Status::BadParam.because(0));
    }
    let mut next = current.clone();
    let mut ignored = Vec::new();
    for (name, field) in layout.leaves() {
        let (want, limit, now) = (field.get64(wanted), field.get64(max), field.get64(current));
        if want == now {
            continue;
        }
        if block == kind::ATOMIC && !settable(block, field) {
            // Stock Linux sends this block empty but for the mode.
            continue;
        }
        if limit == 0 {
            return Err(Status::BadParam.because(0x53_7801));
        }
        if want > limit {
            return Err(Status::BadParam.because(0x10_9003));
        }
        if !settable(block, field) {
            ignored.push(name);
            continue;
        }
        field.set64(&mut next, want);
    }
    hca.caps.current.insert(block, next);
    if !ignored.is_empty() {
        hca.bus.complain(format!("SET_HCA_CAP changes read-only fields: {}", ignored.join(", ")));
    }
    Ok(())
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        opcode: 0x100,
        name: "QUERY_HCA_CAP",
        input: 8,
        output: 16 + BLOCK,
        stage: Stage::Enabled,
        run: query,
    },
    Command {
        opcode: 0x109,
        name: "SET_HCA_CAP",
        input: 16 + LEAST_SET,
        output: 16,
        stage: Stage::Enabled,
        run: set,
    },
];
