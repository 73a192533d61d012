//! Layouts of the two parts of each command, and the meaning of their fields for comparisons of
//! runs.

use crate::cmd::table;
use crate::ifc::{
    Field, Layout, caps, counters, cq, eq, flow, hca, mkey, pages, qp, regs, vport, wq,
};

/// Half of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// Sent by the driver.
    Input,
    /// Answered by the device.
    Output,
}

impl Half {
    /// `in` or `out`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Input => "in",
            Self::Output => "out",
        }
    }
}

/// Why the value of a field says nothing when two runs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// It does say something.
    Value,
    /// An address of one machine's memory.
    Address,
    /// A number that the device gave to an object, or an object's owner chose for it.
    Handle,
    /// Chosen at random, or the time of day.
    Random,
    /// An identity: MAC, GID, GUID.
    Identity,
}

impl Means {
    /// In the notes, instead of values.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Address => "address",
            Self::Handle => "handle",
            Self::Random => "random",
            Self::Identity => "identity",
        }
    }

    /// The rule: by the last part of a field's name.
    #[must_use]
    pub fn of(path: &str) -> Self {
        // A mask only names fields.
        if path.contains("mkey_mask.") || path.contains("field_select.") {
            return Self::Value;
        }
        let name = path.rsplit('.').next().unwrap_or(path);
        let name = name.split('[').next().unwrap_or(name);
        match name {
            "pas" | "klm_pas_mtt" | "dbr_addr" | "start_addr" | "addr" | "raddr" => Self::Address,
            "pd"
            | "cqn"
            | "cqn_snd"
            | "cqn_rcv"
            | "uar_page"
            | "c_eqn_or_apu_element"
            | "qpn"
            | "number"
            | "word_c"
            | "lkey"
            | "rkey"
            | "transport_domain"
            | "tis_num_0"
            | "inline_rqn"
            | "indirect_table"
            | "table_id"
            | "group_id"
            | "table_miss_id"
            | "destination_id"
            | "remote_qpn"
            | "srqn_rmpn_xrqn"
            | "xrcd"
            | "rmpn"
            | "rmsn"
            | "counter_set_id"
            | "user_index"
            | "srqn_user_index"
            | "dqpn"
            | "rq_num"
            | "uar"
            | "resd_lkey"
            | "null_mkey"
            | "eq_number"
            | "underlay_qpn"
            | "imm_inval_pkey"
            | "wqe_counter"
            | "event_data"
            | "wqe_index"
            | "number_of_object"
            | "sw_vhca_id"
            | "flow_index" => Self::Handle,
            "next_send_psn"
            | "next_rcv_psn"
            | "mkey_7_0"
            | "signature"
            | "timestamp"
            | "udp_sport"
            | "rlid_udp_sport"
            | "flow_label"
            | "token"
            | "sw_owner_id"
            | "rx_hash_toeplitz_key"
            | "imm"
            | "check_sum"
            | "rss_hash_result" => Self::Random,
            "rgid_rip"
            | "rgid"
            | "rmac"
            | "rmac_47_32"
            | "rmac_31_0"
            | "source_l3_address"
            | "source_mac_47_32"
            | "source_mac_31_0"
            | "mac_addr_47_32"
            | "mac_addr_31_0"
            | "mac_address"
            | "current_uc_mac_address"
            | "node_guid"
            | "port_guid"
            | "system_image_guid"
            | "dmac_47_16"
            | "dmac_15_0"
            | "smac_47_16"
            | "smac_15_0"
            | "src_ipv4_src_ipv6"
            | "dst_ipv4_dst_ipv6" => Self::Identity,
            _ => Self::Value,
        }
    }
}

/// A layout, and the byte of the message at which it begins.
pub(super) struct Part {
    /// Prefix of the names of its fields.
    pub(super) prefix: String,
    pub(super) layout: &'static Layout,
    pub(super) at: usize,
}

fn part(layout: &'static Layout, at: usize) -> Part {
    Part { prefix: String::new(), layout, at }
}

/// Rows of one frame: opcodes, input, output.
type Row = (&'static [u16], Option<&'static Layout>, Option<&'static Layout>);

/// Frames of more than a head. Commands that are not here have heads only.
const FRAMES: &[Row] = &[
    (&[0x100], Some(&hca::query_hca_cap_in::LAYOUT), None),
    (&[0x101], None, Some(&hca::query_adapter_out::LAYOUT)),
    (&[0x102], Some(&hca::init_hca_in::LAYOUT), None),
    (&[0x103], Some(&hca::teardown_hca_in::LAYOUT), Some(&hca::teardown_hca_out::LAYOUT)),
    (&[0x104], Some(&hca::enable_hca_in::LAYOUT), None),
    (&[0x105], Some(&hca::disable_hca_in::LAYOUT), None),
    (&[0x107], Some(&pages::query_pages_in::LAYOUT), Some(&pages::query_pages_out::LAYOUT)),
    (&[0x108], Some(&pages::manage_pages_in::LAYOUT), Some(&pages::manage_pages_out::LAYOUT)),
    (&[0x10a], None, Some(&hca::query_issi_out::LAYOUT)),
    (&[0x10b], Some(&hca::set_issi_in::LAYOUT), None),
    (&[0x10d], Some(&hca::set_driver_version_in::LAYOUT), None),
    (&[0x200], Some(&mkey::create_mkey_in::LAYOUT), None),
    (&[0x201], None, Some(&mkey::query_mkey_out::LAYOUT)),
    (&[0x203], None, Some(&hca::query_special_contexts_out::LAYOUT)),
    (&[0x301], Some(&eq::create_eq_in::LAYOUT), Some(&eq::create_eq_out::LAYOUT)),
    (&[0x303], None, Some(&eq::query_eq_out::LAYOUT)),
    (&[0x304], Some(&eq::gen_eqe_in::LAYOUT), None),
    (&[0x400, 0x403], Some(&cq::create_cq_in::LAYOUT), None),
    (&[0x402], None, Some(&cq::query_cq_out::LAYOUT)),
    (&[0x500, 0x502, 0x503, 0x504, 0x505, 0x506, 0x508, 0x50e], Some(&qp::qp_in::LAYOUT), None),
    (&[0x50b], None, Some(&qp::query_qp_out::LAYOUT)),
    (&[0x50d], Some(&counters::mad_ifc_in::LAYOUT), None),
    (&[0x700], Some(&wq::srq_in::LAYOUT), None),
    (&[0x705], Some(&wq::xrc_srq_in::LAYOUT), None),
    (
        &[0x750],
        Some(&vport::query_vport_state_in::LAYOUT),
        Some(&vport::query_vport_state_out::LAYOUT),
    ),
    (&[0x751], Some(&vport::modify_vport_state_in::LAYOUT), None),
    (
        &[0x754],
        Some(&vport::query_nic_vport_context_in::LAYOUT),
        Some(&vport::query_nic_vport_context_out::LAYOUT),
    ),
    (&[0x755], Some(&vport::modify_nic_vport_context_in::LAYOUT), None),
    (
        &[0x760],
        Some(&vport::query_roce_address_in::LAYOUT),
        Some(&vport::query_roce_address_out::LAYOUT),
    ),
    (&[0x761], Some(&vport::set_roce_address_in::LAYOUT), None),
    (
        &[0x762],
        Some(&vport::query_hca_vport_context_in::LAYOUT),
        Some(&vport::query_hca_vport_context_out::LAYOUT),
    ),
    (&[0x763], Some(&vport::modify_hca_vport_context_in::LAYOUT), None),
    (
        &[0x764],
        Some(&vport::query_hca_vport_gid_in::LAYOUT),
        Some(&vport::query_hca_vport_gid_out::LAYOUT),
    ),
    (&[0x765], Some(&counters::query_hca_vport_pkey_in::LAYOUT), None),
    (&[0x770], None, Some(&counters::query_vport_counter_out::LAYOUT)),
    (
        &[0x773],
        Some(&counters::query_q_counter_in::LAYOUT),
        Some(&counters::query_q_counter_out::LAYOUT),
    ),
    (&[0x800], None, Some(&hca::alloc_pd_out::LAYOUT)),
    (&[0x802], None, Some(&hca::alloc_uar_out::LAYOUT)),
    (&[0x805], Some(&regs::access_register_in::LAYOUT), Some(&regs::access_register_out::LAYOUT)),
    (&[0x829, 0x82b], Some(&flow::set_l2_table_entry_in::LAYOUT), None),
    (&[0x900, 0x901], Some(&wq::tir_in::LAYOUT), None),
    (&[0x904, 0x905], Some(&wq::sq_in::LAYOUT), None),
    (&[0x907], None, Some(&wq::sq_in::LAYOUT)),
    (&[0x908, 0x909], Some(&wq::rq_in::LAYOUT), None),
    (&[0x90b], None, Some(&wq::rq_in::LAYOUT)),
    (&[0x90c, 0x90d], Some(&wq::rmp_in::LAYOUT), None),
    (&[0x912, 0x913], Some(&wq::tis_in::LAYOUT), None),
    (&[0x916, 0x917], Some(&wq::rqt_in::LAYOUT), None),
    (&[0x92f], Some(&flow::set_flow_table_root_in::LAYOUT), None),
    (&[0x930], Some(&flow::create_flow_table_in::LAYOUT), None),
    (&[0x931, 0x934, 0x938], Some(&flow::flow_object_in::LAYOUT), None),
    (&[0x933], Some(&flow::create_flow_group_in::LAYOUT), None),
    (&[0x936], Some(&flow::set_fte_in::LAYOUT), None),
];

/// A capability block, by the type in the operation modifier.
const CAPABILITIES: &[(u16, &Layout)] = &[
    (0, &caps::cmd_hca_cap::LAYOUT),
    (1, &caps::eth_caps::LAYOUT),
    (3, &caps::atomic_caps::LAYOUT),
    (4, &caps::roce_cap::LAYOUT),
    (7, &caps::flow_table_nic_cap::LAYOUT),
];

/// A register, by its number.
const REGISTERS: &[(u16, &Layout)] = &[
    (0x5003, &regs::pmtu_reg::LAYOUT),
    (0x5004, &regs::ptys_reg::LAYOUT),
    (0x5006, &regs::paos_reg::LAYOUT),
    (0x5008, &regs::ppcnt_reg::LAYOUT),
    (0x500f, &regs::pvlc_reg::LAYOUT),
    (0x5002, &regs::pmlp_reg::LAYOUT),
];

/// Bytes of a message's head.
const HEAD: usize = 16;

fn half_word(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_be_bytes)
}

fn op_mod(input: &[u8]) -> u16 {
    half_word(input, 6)
}

/// Name of a command in notes and comparisons: the PRM's name, and the modifier or register where
/// those make it another command.
#[must_use]
pub fn name(opcode: u16, input: &[u8]) -> String {
    let name = table::find(opcode)
        .map_or_else(|| format!("command_{opcode:#x}"), |row| String::from(row.name));
    match opcode {
        0x100 | 0x107..=0x109 => format!("{name}/{:x}", op_mod(input)),
        0x805 => format!("{name}/{:x}/{:x}", half_word(input, 10), op_mod(input)),
        _ => name,
    }
}

/// The layouts of one half; what stands first has the say where two overlap.
pub(super) fn parts(opcode: u16, input: &[u8], half: Half) -> Vec<Part> {
    use crate::ifc::cmd::{head_in, head_out};
    let mut parts = Vec::new();
    let block = |list: &'static [(u16, &'static Layout)], key: u16| {
        let (_, layout) = list.iter().find(|(known, _)| *known == key)?;
        Some(part(layout, HEAD))
    };
    match (opcode, half) {
        (0x100, Half::Output) | (0x109, Half::Input) => {
            parts.extend(block(CAPABILITIES, op_mod(input) >> 1));
        }
        (0x805, _) => parts.extend(block(REGISTERS, half_word(input, 10))),
        (0x101, Half::Output) => parts.push(part(&hca::query_adapter_param_block::LAYOUT, HEAD)),
        (0x936, Half::Input) => {
            let end = flow::set_fte_in::BYTES;
            let list = input.len().saturating_sub(end) / flow::dest_format_struct::BYTES;
            parts.extend((0..list.min(64)).map(|n| Part {
                prefix: "destination[].".into(),
                layout: &flow::dest_format_struct::LAYOUT,
                at: end + n * flow::dest_format_struct::BYTES,
            }));
        }
        _ => {}
    }
    let frame = FRAMES.iter().find(|row| row.0.contains(&opcode)).and_then(|row| match half {
        Half::Input => row.1,
        Half::Output => row.2,
    });
    parts.extend(frame.map(|layout| part(layout, 0)));
    parts.push(match half {
        Half::Input => part(&head_in::LAYOUT, 0),
        Half::Output => part(&head_out::LAYOUT, 0),
    });
    parts
}

/// One field that is set: its path, and up to 64 bits of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Dotted path inside the message; `bits at DWORD.BIT` (hexadecimal byte offset, bit of the
    /// dword) for what no layout names.
    pub path: String,
    /// The value; of a wide field its last 64 bits that are not zero.
    pub value: u64,
}

/// Adds all fields of a layout that are not zero, by path, and marks the bits that have a name.
pub(super) fn set(
    prefix: &str,
    layout: &Layout,
    at: usize,
    bytes: &[u8],
    seen: &mut [bool],
    out: &mut Vec<Leaf>,
) {
    let fields = layout.leaves();
    for (path, field) in fields {
        if field.width == 0 {
            continue;
        }
        let place = field.within(Field::at(at * 8, 0));
        let bits = place.bit..(place.bit + place.width).min(seen.len());
        if bits.is_empty() || seen[bits.clone()].iter().any(|bit| *bit) {
            continue;
        }
        seen[bits].fill(true);
        let value = value(place, bytes);
        if value != 0 {
            out.push(Leaf { path: format!("{prefix}{path}"), value });
        }
    }
}

/// Up to 64 bits of a field: the last that are not zero.
fn value(field: Field, bytes: &[u8]) -> u64 {
    let mut end = field.bit + field.width;
    while end > field.bit {
        let first = end.saturating_sub(64).max(field.bit);
        let value = Field::at(first, end - first).declared(bytes);
        if value != 0 {
            return value;
        }
        end = first;
    }
    0
}

/// The list behind a frame, if it ends with one: name and byte.
fn list(layout: &Layout) -> Option<(&'static str, usize)> {
    let last = layout.entries.last()?;
    if let Some(inner) = last.inner {
        let (name, at) = list(inner)?;
        return Some((name, last.field.byte() + at));
    }
    (last.field.width == 0).then(|| (last.name, last.field.byte()))
}

/// Every field of one half of a command that is not zero.
#[must_use]
pub fn leaves(opcode: u16, input: &[u8], message: &[u8], half: Half) -> Vec<Leaf> {
    let mut out = Vec::new();
    let mut seen = vec![false; message.len() * 8];
    let parts = parts(opcode, input, half);
    for part in &parts {
        set(&part.prefix, part.layout, part.at, message, &mut seen, &mut out);
    }
    // A list has no end of its own: what lies behind the frame and belongs to nothing else is its.
    for (name, at) in
        parts.iter().filter_map(|part| list(part.layout).map(|(name, at)| (name, part.at + at)))
    {
        let rest = seen.get_mut(at * 8..).unwrap_or_default();
        if name == "register_data" || rest.iter().all(|bit| *bit) {
            continue;
        }
        rest.fill(true);
        if let Some(word) = message.get(at..).and_then(|list| {
            list.chunks(8).find_map(|word| {
                let value = Field::at(0, word.len() * 8).declared(word);
                (value != 0).then_some(value)
            })
        }) {
            out.push(Leaf { path: format!("{name}[]"), value: word });
        }
    }
    unnamed_bits(message, &seen, &mut out);
    out
}

/// Appends the bits that are set and have no name, dword by dword.
pub(super) fn unnamed_bits(bytes: &[u8], seen: &[bool], out: &mut Vec<Leaf>) {
    for (n, bit) in seen.iter().enumerate() {
        let byte = bytes.get(n / 8).copied().unwrap_or(0);
        if !bit && byte & (0x80 >> (n % 8)) != 0 {
            out.push(Leaf { path: format!("bits at {:#x}.{}", n / 32 * 4, 31 - n % 32), value: 1 });
        }
    }
}
