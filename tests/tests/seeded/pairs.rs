//! Layouts of the driver and where they stand in the model's, and what a walk of ones through both
//! finds.
//!
//! Two tests share them: `layouts` wants no disagreement, `seeded` wants one for each bug that is
//! planted.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "test code: a panic here is a failed test"
)]

use hca_mlx5::prm::hca_vport;
use hca_mlx5::prm::{
    Field as OurField, caps, cmd, congestion, counters, cq, cqe, eq, flow, mkey, pages, qp, reg,
    roce, rq, sq, tir, tis, vport, wqe,
};
use mlx5_model::ifc;

/// A layout of the driver, with its accessors by name.
pub(crate) struct Ours {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) fields: &'static [OurField],
    /// Value of a field in bytes.
    pub(crate) get: fn(&[u8], &str) -> Option<u128>,
    /// Bytes with only that field set.
    pub(crate) set: fn(&str, u128) -> Option<Vec<u8>>,
}

/// A driver's layout and where it stands in the model's.
pub(crate) struct Pair {
    pub(crate) ours: Ours,
    pub(crate) theirs: &'static str,
    /// Byte of the model's layout at which the driver's begins.
    pub(crate) at: usize,
    /// The driver's layout ends before the model's; where not set, both have the same size.
    pub(crate) part: bool,
}

macro_rules! ours {
    ($module:ident :: $type:ident) => {{
        const SIZE: usize = $module::$type::SIZE;
        Ours {
            name: stringify!($type),
            size: SIZE,
            fields: $module::$type::FIELDS,
            get: |bytes, name| $module::$type::read(bytes, 0).field(name),
            set: |name, value| {
                let mut layout = $module::$type::new();
                layout.set_field(name, value).then(|| layout.0.to_vec())
            },
        }
    }};
}

macro_rules! pairs {
    ($($module:ident :: $type:ident $relation:ident $theirs:ident $(+ $at:literal)?;)*) => {
        vec![$(Pair {
            ours: ours!($module::$type),
            theirs: stringify!($theirs),
            at: 0 $(+ $at)?,
            part: pairs!(@part $relation),
        }),*]
    };
    (@part is) => { false };
    (@part begins) => { true };
}

pub(crate) fn table() -> Vec<Pair> {
    pairs! {
        caps::GeneralCap begins cmd_hca_cap;
        caps::RoceCap begins roce_cap;
        caps::AtomicCap begins atomic_caps;
        caps::EthernetCap begins eth_caps;
        caps::FlowTableCap is flow_table_prop_layout;
        cmd::CommandEntry is cmd_entry;
        cmd::BlockTrailer is cmd_mailbox + 512;
        cmd::InputHead is head_in;
        cmd::OutputHead is head_out;
        cmd::InitHcaIn is init_hca_in;
        cmd::TeardownHcaIn is teardown_hca_in;
        cmd::TeardownHcaOut is teardown_hca_out;
        cmd::QueryIssiOut is query_issi_out;
        cmd::SetIssiIn is set_issi_in;
        congestion::QueryCongestionIn is query_cong_status_in;
        congestion::QueryCongestionStatusOut is query_cong_status_out;
        congestion::NotificationPoint begins cong_control_r_roce_ecn_np;
        counters::QueryQCounterIn is query_q_counter_in;
        counters::QueryQCounterOut begins query_q_counter_out;
        counters::TrafficCounter is traffic_counter;
        cq::CqContext is cqc;
        eq::EqContext is eqc;
        eq::CreateEqIn is create_eq_in;
        flow::CreateFlowTableIn is create_flow_table_in;
        flow::SetFlowTableRootIn is set_flow_table_root_in;
        flow::DestroyFlowIn is flow_object_in;
        flow::DeleteFlowEntryIn is flow_object_in;
        flow::CreateFlowGroupIn begins create_flow_group_in;
        flow::MatchL2 begins fte_match_set_lyr_2_4;
        flow::SetFteIn begins set_fte_in;
        flow::FlowContext begins flow_context;
        flow::Destination is dest_format_struct;
        flow::L2TableEntryIn is set_l2_table_entry_in;
        hca_vport::QueryHcaVportIn is query_hca_vport_gid_in;
        hca_vport::HcaVportContext is hca_vport_context;
        hca_vport::MadIfcIn begins mad_ifc_in;
        hca_vport::AttachToMcgIn is mcg_in;
        mkey::MkeyContext is mkc;
        pages::QueryPagesOut is query_pages_out;
        pages::ManagePagesIn is manage_pages_in;
        pages::ManagePagesOut is manage_pages_out;
        qp::QpContext is qpc;
        qp::AddressPath is ads;
        reg::AccessRegIn is access_register_in;
        reg::Pmtu is pmtu_reg;
        reg::Paos is paos_reg;
        roce::RoceAddressIn begins set_roce_address_in;
        roce::RoceAddress is roce_addr_layout;
        rq::RqContext begins rqc;
        rq::RmpContext begins rmpc;
        sq::WqContext is wq;
        sq::SqContext begins sqc;
        sq::ModifyQueueIn begins sq_in;
        sq::ModifyQueueIn begins rq_in;
        sq::ModifyQueueIn begins rmp_in;
        tir::TirContext is tirc;
        tis::TisContext is tisc;
        vport::QueryVportStateOut is query_vport_state_out;
        vport::ModifyNicVportIn begins modify_nic_vport_context_in;
        vport::NicVportContext is nic_vport_context;
    }
}

/// The same field under two names: the driver's layout and name, the model's path, and why they
/// differ.
pub(crate) const ALIASES: &[(&str, &str, &str, &str)] = &[
    ("QueryHcaVportIn", "index", "gid_index", "one layout for the three queries"),
    ("CommandEntry", "kind", "transport", "the PRM says `type`, which neither language allows"),
    ("CommandEntry", "command_input_inline", "input", "the model drops what goes without saying"),
    ("CommandEntry", "command_output_inline", "output", "likewise"),
    (
        "CommandEntry",
        "status",
        "delivery_status",
        "the model tells it from the command's own status",
    ),
    ("AtomicCap", "atomic_req_8b_endianness_mode", "atomic_req_8B_endianness_mode", "likewise"),
    (
        "AtomicCap",
        "supported_atomic_req_8b_endianness_mode_1",
        "supported_atomic_req_8B_endianness_mode_1",
        "Rust spells methods in lower case",
    ),
    ("TeardownHcaOut", "state", "force_state", "Linux renamed it"),
    ("FlowTableCap", "modify_root", "modify_root", "itself"),
];

/// Driver's fields that are the first or last bits of a wider one of the model's, with the reason.
pub(crate) const NARROWER: &[(&str, &str, &str)] = &[
    (
        "InputHead",
        "number",
        "object numbers have 24 bits; the rest of the dword is other commands' flags",
    ),
    ("OutputHead", "number", "likewise"),
    ("CreateEqIn", "event_bitmask", "64 of 256 bits: no event type above 63 exists"),
    ("ModifyQueueIn", "number", "24 bits; the top four of the dword are the state it is in"),
];

pub(crate) fn layout(name: &str) -> ifc::Layout {
    let found = ifc::all().into_iter().filter(|layout| layout.name == name).collect::<Vec<_>>();
    assert_eq!(found.len(), 1, "{name} is in the model {} times", found.len());
    found[0]
}

/// The model's field for one of the driver's: by alias, at the top level, or as the one leaf with
/// that last name.
pub(crate) fn theirs(pair: &Pair, name: &str) -> Option<(String, ifc::Field)> {
    let layout = layout(pair.theirs);
    if let Some((_, _, path, _)) = ALIASES.iter().find(|a| (a.0, a.1) == (pair.ours.name, name)) {
        return Some((String::from(*path), layout.field(path).unwrap()));
    }
    let name = match name.strip_prefix("select_") {
        Some(rest) => format!("field_select.{rest}"),
        None => String::from(name),
    };
    if let Some(field) = layout.field(&name) {
        return Some((name, field));
    }
    let end = format!(".{name}");
    let mut leaves = layout.leaves().into_iter().filter(|(path, _)| path.ends_with(&end));
    let found = leaves.next();
    assert!(leaves.next().is_none(), "{}: {name} is several fields", pair.theirs);
    found
}

pub(crate) fn narrower(pair: &Pair, name: &str) -> bool {
    NARROWER.iter().any(|n| (n.0, n.1) == (pair.ours.name, name))
}

/// The model's value of a field of any width.
pub(crate) fn read(field: ifc::Field, bytes: &[u8]) -> u128 {
    if field.width <= 64 {
        return field.get64(bytes).into();
    }
    let high = ifc::Field::at(field.bit, field.width - 64);
    u128::from(high.get64(bytes)) << 64 | u128::from(field.get64(bytes))
}

pub(crate) fn write(field: ifc::Field, bytes: &mut [u8], value: u128) {
    if field.width > 64 {
        let high = ifc::Field::at(field.bit, field.width - 64);
        high.set64(bytes, (value >> 64) as u64);
    }
    field.set64(bytes, value as u64);
}

/// The part of the model's field that is the driver's, where that is narrower.
fn cut(pair: &Pair, ours: &OurField, field: ifc::Field) -> ifc::Field {
    if ours.width == field.width || !narrower(pair, ours.name) {
        return field;
    }
    // A number lies at the low end of its dword, the event mask's first word at the high end of it.
    let bit = match ours.name {
        "number" => field.bit + field.width - ours.width,
        _ => field.bit,
    };
    ifc::Field::at(bit, ours.width)
}

/// Pairs of fields known to both.
pub(crate) fn common(pair: &Pair) -> Vec<(&'static OurField, String, ifc::Field)> {
    let known = |ours: &'static OurField| {
        let (path, field) = theirs(pair, ours.name)?;
        Some((ours, path, cut(pair, ours, field)))
    };
    pair.ours.fields.iter().filter_map(known).collect()
}

/// Where a one that either side sets is not where the other looks for it; empty when both agree.
pub(crate) fn disagreements() -> Vec<String> {
    let mut found = words();
    for pair in table() {
        let rest = layout(pair.theirs).bytes - pair.at;
        let whole = pair.ours.size == rest;
        if whole == pair.part || pair.ours.size > rest {
            found.push(format!("size of {}", pair.theirs));
        }
        for (ours, path, field) in common(&pair) {
            for bit in 0..ours.width.min(field.width) {
                let value = 1_u128 << bit;
                let mut driver = vec![0; pair.at];
                driver.extend((pair.ours.set)(ours.name, value).unwrap());
                let mut model = vec![0; layout(pair.theirs).bytes];
                write(field, &mut model, value);
                let seen = (pair.ours.get)(&model[pair.at..], ours.name);
                if read(field, &driver) != value || seen != Some(value) {
                    found.push(format!("{}.{path} bit {bit}", pair.theirs));
                }
            }
        }
    }
    found
}

/// A field of a work request: the driver's bytes with a value in it, and the model's field.
type Sent = (&'static str, fn(u64) -> Vec<u8>, ifc::Field);
/// A field of an entry that the device writes: the model's field, and what the driver reads of the
/// entry.
type Got = (&'static str, ifc::Field, fn(&[u8; 64]) -> u64);

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn word(entry: &[u8; 64], at: usize) -> u32 {
    u32::from_be_bytes(entry[at..at + 4].try_into().unwrap())
}

/// The control segment with one thing set.
fn control(
    head: impl FnOnce(&mut wqe::CtrlHead),
    tail: impl FnOnce(&mut wqe::CtrlTail),
) -> Vec<u8> {
    let (mut first, mut second) = (wqe::CtrlHead::default(), wqe::CtrlTail::default());
    head(&mut first);
    tail(&mut second);
    bytes(&[first.word(), second.word()])
}

/// An address vector with one thing set.
fn vector(set: impl FnOnce(&mut wqe::Av)) -> Vec<u8> {
    let mut av = wqe::Av::default();
    set(&mut av);
    bytes(&av.words())
}

/// The head of a UMR with this mask.
fn umr(head: u64, mask: u64) -> Vec<u8> {
    bytes(&[head, mask, 0, 0, 0, 0])
}

/// Work requests and completions have no accessors by name: what both sides say of them, one by
/// one.
fn words() -> Vec<String> {
    use ifc::cqe::{cqe as plain, err_cqe};
    use ifc::eq::eqe;
    use ifc::mkey::{mkey_mask, umr_ctrl};
    use ifc::wqe::{wqe_av, wqe_ctrl, wqe_data, wqe_raddr};
    let masked = |field: ifc::Field| field.within(umr_ctrl::mkey_mask);
    let sent: [Sent; 29] = [
        ("opmod", |v| control(|c| c.set_opmod(v as u8), |_| ()), wqe_ctrl::opmod),
        ("wqe_index", |v| control(|c| c.set_wqe_index(v as u16), |_| ()), wqe_ctrl::wqe_index),
        ("opcode", |v| control(|c| c.set_opcode(v as u8), |_| ()), wqe_ctrl::opcode),
        ("qpn", |v| control(|c| c.set_qpn(v as u32), |_| ()), wqe_ctrl::qpn),
        ("ds", |v| control(|c| c.set_ds(v as u8), |_| ()), wqe_ctrl::ds),
        ("fence", |v| control(|_| (), |c| c.set_fence(v as u8)), wqe_ctrl::fm),
        ("ce", |v| control(|_| (), |c| c.set_ce(v as u8)), wqe_ctrl::ce),
        ("se", |v| control(|_| (), |c| c.set_se(v as u8)), wqe_ctrl::se),
        ("immediate", |v| control(|_| (), |c| c.set_immediate(v as u32)), wqe_ctrl::imm),
        ("remote address", |v| bytes(&wqe::remote(v, 0)), wqe_raddr::raddr),
        ("rkey", |v| bytes(&wqe::remote(0, v as u32)), wqe_raddr::rkey),
        ("address", |v| bytes(&wqe::data(v, 0, 0)), wqe_data::addr),
        ("lkey", |v| bytes(&wqe::data(0, 0, v as u32)), wqe_data::lkey),
        ("byte count", |v| bytes(&wqe::data(0, v as u32, 0)), wqe_data::byte_count),
        ("q_key", |v| vector(|a| a.qkey = v as u32), wqe_av::qkey),
        ("destination qpn", |v| vector(|a| a.dqpn = v as u32), wqe_av::dqpn),
        ("source port", |v| vector(|a| a.rlid_udp_sport = v as u16), wqe_av::rlid_udp_sport),
        ("tclass", |v| vector(|a| a.tclass = v as u8), wqe_av::tclass),
        ("hop limit", |v| vector(|a| a.hop_limit = v as u8), wqe_av::hop_limit),
        ("source index", |v| vector(|a| a.source_index = v as u8), wqe_av::src_addr_index),
        ("flow label", |v| vector(|a| a.flow_label = v as u32), wqe_av::flow_label),
        ("mask len", |v| umr(0, v * wqe::mask::LEN), masked(mkey_mask::len)),
        ("mask start", |v| umr(0, v * wqe::mask::START), masked(mkey_mask::start_addr)),
        ("mask key", |v| umr(0, v * wqe::mask::KEY), masked(mkey_mask::key)),
        ("mask qpn", |v| umr(0, v * wqe::mask::QPN), masked(mkey_mask::qpn)),
        ("mask rr", |v| umr(0, v * wqe::mask::RR), masked(mkey_mask::rr)),
        ("mask rw", |v| umr(0, v * wqe::mask::RW), masked(mkey_mask::rw)),
        ("mask a", |v| umr(0, v * wqe::mask::A), masked(mkey_mask::a)),
        ("mask free", |v| umr(0, v * wqe::mask::FREE), masked(mkey_mask::free)),
    ];
    let got: [Got; 10] = [
        ("byte_cnt", plain::byte_cnt, |e| word(e, cqe::BYTE_CNT_AT).into()),
        ("user_index", plain::srqn_user_index, |e| {
            cqe::Index::from_word(word(e, cqe::INDEX_AT)).user_index().into()
        }),
        ("wqe_counter", plain::wqe_counter, |e| {
            cqe::Owner::from_word(word(e, cqe::OWNER_AT)).wqe_counter().into()
        }),
        ("opcode", plain::opcode, |e| {
            cqe::Owner::from_word(word(e, cqe::OWNER_AT)).opcode().into()
        }),
        ("solicited", plain::se, |e| {
            cqe::Owner::from_word(word(e, cqe::OWNER_AT)).solicited().into()
        }),
        ("owner", plain::owner, |e| cqe::Owner::from_word(word(e, cqe::OWNER_AT)).owner().into()),
        ("syndrome", err_cqe::syndrome, |e| {
            cqe::Cause::from_word(word(e, cqe::CAUSE_AT)).syndrome().into()
        }),
        ("vendor syndrome", err_cqe::vendor_err_synd, |e| {
            cqe::Cause::from_word(word(e, cqe::CAUSE_AT)).vendor_err_synd().into()
        }),
        ("event type", eqe::event_type, |e| eq::EqeHead(word(e, 0)).event_type().into()),
        ("event sub type", eqe::event_sub_type, |e| {
            eq::EqeHead(word(e, 0)).event_sub_type().into()
        }),
    ];
    let mut found = Vec::new();
    for (what, set, field) in sent {
        for bit in 0..field.width {
            if field.get64(&set(1 << bit)) != 1 << bit {
                found.push(format!("{what} bit {bit}"));
            }
        }
    }
    for (what, field, get) in got {
        for bit in 0..field.width {
            let mut entry = [0; 64];
            field.set64(&mut entry, 1 << bit);
            if get(&entry) != 1 << bit {
                found.push(format!("{what} bit {bit}"));
            }
        }
    }
    found
}
