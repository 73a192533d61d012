//! The interface against notations of others: Linux's headers and mstflint's register tables, the
//! newest that a distribution has.
//!
//! `cargo xtask layouts` fetches both and names them in two variables; without them only the
//! readers are tested. The model's layouts are compared field by field: name, first bit, width. The
//! driver's agree with the model's by `model::layouts`; what only the driver has is compared here.
//! Every difference stands in `data/layouts-others.txt` with a reason, names only: nothing of what
//! is fetched is kept.
#![expect(clippy::print_stdout, clippy::panic, reason = "test code: a panic here is a failed test")]

mod adb;
mod header;
#[path = "../seeded/pairs.rs"]
#[expect(dead_code, reason = "the walks of ones are not for here")]
mod pairs;

use std::collections::{BTreeMap, BTreeSet};

use mlx5_model::ifc;

use adb::Tables;
use header::Header;

/// A field of a notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    name: String,
    /// From the most significant bit of the first byte.
    bit: usize,
    width: usize,
}

impl Item {
    fn meets(&self, other: &Self) -> bool {
        self.bit < other.bit + other.width.max(1) && other.bit < self.bit + self.width.max(1)
    }

    fn same_bits(&self, other: &Self) -> bool {
        (self.bit, self.width) == (other.bit, other.width)
    }
}

/// Layouts of the model that have other names in the header, or several there.
const STRUCTURES: &[(&str, &[&str])] = &[
    ("cmd_entry", &["mlx5_cmd_layout"]),
    ("cmd_mailbox", &["mlx5_cmd_prot_block"]),
    ("cqe", &["mlx5_cqe64"]),
    ("eqe", &["mlx5_eqe"]),
    ("err_cqe", &["mlx5_err_cqe"]),
    ("umr_ctrl", &["mlx5_wqe_umr_ctrl_seg"]),
    ("wqe_atomic", &["mlx5_wqe_atomic_seg"]),
    ("wqe_av", &["mlx5_av"]),
    ("wqe_ctrl", &["mlx5_wqe_ctrl_seg"]),
    ("wqe_data", &["mlx5_wqe_data_seg"]),
    ("wqe_eth", &["mlx5_wqe_eth_seg"]),
    ("wqe_inline", &["mlx5_wqe_inline_seg"]),
    ("wqe_raddr", &["mlx5_wqe_raddr_seg"]),
    ("wqe_srq_next", &["mlx5_wqe_srq_next_seg"]),
    ("wqe_xrc", &["mlx5_wqe_xrc_seg"]),
    ("eth_caps", &["per_protocol_networking_offload_caps"]),
    ("flow_object_in", &["destroy_flow_table_in", "destroy_flow_group_in", "delete_fte_in"]),
    ("head_in", &["query_adapter_in"]),
    ("head_out", &["alloc_pd_out"]),
    ("mcg_in", &["attach_to_mcg_in", "detach_from_mcg_in"]),
    (
        "qp_in",
        &["create_qp_in", "rst2init_qp_in", "init2rtr_qp_in", "rtr2rts_qp_in", "rts2rts_qp_in"],
    ),
    ("rmp_in", &["create_rmp_in", "modify_rmp_in"]),
    ("rq_in", &["create_rq_in", "modify_rq_in"]),
    ("rqt_in", &["create_rqt_in", "modify_rqt_in"]),
    ("sq_in", &["create_sq_in", "modify_sq_in"]),
    ("srq_in", &["create_srq_in"]),
    ("tir_in", &["create_tir_in", "modify_tir_in"]),
    ("tis_in", &["create_tis_in", "modify_tis_in"]),
    ("xrc_srq_in", &["create_xrc_srq_in"]),
];
/// Registers of the model in the register tables.
const REGISTERS: &[(&str, &str)] = &[
    ("mcia_reg", "mcia_ext"),
    ("paos_reg", "paos_reg_ext"),
    ("pmlp_reg", "pmlp_reg_ext"),
    ("pmtu_reg", "pmtu_reg_ext"),
    ("ppcnt_reg", "ppcnt_reg_ext"),
    ("ptys_reg", "ptys_reg_ext"),
];
/// Fields that only the driver has: its layout and name, and the header's structure and path.
const DRIVER: &[(&str, &str, &str, &str)] = &[
    ("InputHead", "embedded_cpu_function", "enable_hca_in", "embedded_cpu_function"),
    ("ModifyQueueIn", "queue_state", "modify_sq_in", "sq_state"),
];

/// Bits, command queue and completions, work requests.
const HEADERS: &[&str] = &["LAYOUTS_IFC", "LAYOUTS_DEVICE", "LAYOUTS_QP"];

/// `SOURCE VERB LAYOUT` to names.
type Differences = BTreeMap<String, BTreeSet<String>>;

/// Adds how one layout differs; returns how many fields are the same.
fn compare(
    source: &str,
    layout: &str,
    ours: &[Item],
    theirs: &[Item],
    found: &mut Differences,
) -> usize {
    let named = |item: &&Item| !["reserved", "rsvd"].iter().any(|r| item.name.starts_with(r));
    let mut note = |verb: &str, name: String| {
        found.entry(format!("{source} {verb} {layout}")).or_default().insert(name);
    };
    let mut same = 0;
    for our in ours.iter().filter(named) {
        let mut by_name = theirs.iter().filter(|their| their.name == our.name).peekable();
        if by_name.peek().is_some() {
            match by_name.any(|their| their.same_bits(our)) {
                true => same += 1,
                false => note("moves", our.name.clone()),
            }
        } else if let Some(their) =
            theirs.iter().filter(named).find(|their| their.same_bits(our) && our.width > 0)
        {
            note("renames", format!("{}={}", our.name, their.name));
        } else {
            note("lacks", our.name.clone());
        }
    }
    for their in theirs.iter().filter(named) {
        if !ours.iter().filter(named).any(|our| our.meets(their)) {
            note("adds", their.name.clone());
        }
    }
    same
}

fn items_of(layout: &ifc::Layout) -> Vec<Item> {
    let item = |entry: &ifc::Entry| Item {
        name: entry.name.into(),
        bit: entry.field.bit,
        width: entry.field.width,
    };
    layout.entries.iter().map(item).collect()
}

/// The list: `SOURCE VERB LAYOUT: reason` and, indented below it, names.
fn listed(source: &str) -> Differences {
    let mut names = dat_tests::reasons::names(include_str!("../../data/layouts-others.txt"));
    names.retain(|key, _| key.split(' ').next() == Some(source));
    names
}

/// Fails where what is found and what is listed differ.
fn judge(source: &str, found: &Differences) {
    let (none, listed) = (BTreeSet::new(), listed(source));
    let mut wrong = Vec::new();
    for key in found.keys().chain(listed.keys()).collect::<BTreeSet<_>>() {
        let (found, listed) = (found.get(key).unwrap_or(&none), listed.get(key).unwrap_or(&none));
        let join = |one: &BTreeSet<String>, other: &BTreeSet<String>| {
            one.difference(other).map(String::as_str).collect::<Vec<_>>().join(" ")
        };
        let (new, gone) = (join(found, listed), join(listed, found));
        if !new.is_empty() || !gone.is_empty() {
            wrong.push(format!("{key}\n    not listed: {new}\n    listed, not so: {gone}"));
        }
    }
    assert!(wrong.is_empty(), "differences:\n{}", wrong.join("\n"));
}

/// The texts that variables name, one after the other; `None` where they are not set.
fn fetched(variables: &[&str]) -> Option<String> {
    let mut all = String::new();
    for variable in variables {
        let Some(path) = std::env::var_os(variable) else {
            println!("skipped: {variable} is not set; `cargo xtask layouts` sets it");
            return None;
        };
        let text = std::fs::read_to_string(&path);
        all.push_str(&text.unwrap_or_else(|error| panic!("{}: {error}", path.to_string_lossy())));
    }
    Some(all)
}

#[test]
fn the_kernel_has_the_same_layouts() {
    let Some(text) = fetched(HEADERS) else { return };
    let header = Header::parse(&text);
    let (mut found, mut same, mut layouts) = (Differences::new(), 0, 0);
    for layout in ifc::all() {
        let own = [layout.name];
        let names = STRUCTURES.iter().find(|one| one.0 == layout.name);
        let structures: Vec<_> = names
            .map_or(&own[..], |one| one.1)
            .iter()
            .filter_map(|name| header.items(name))
            .collect();
        if structures.is_empty() {
            found.entry("header absent layouts".into()).or_default().insert(layout.name.into());
            continue;
        }
        layouts += 1;
        same +=
            compare("header", layout.name, &items_of(&layout), &structures.concat(), &mut found);
    }
    println!("header: {same} fields of {layouts} layouts are the same");
    judge("header", &found);
    assert!(same > 1050, "{same} fields in common");
}

#[test]
fn the_kernel_has_what_only_the_driver_has() {
    let Some(text) = fetched(HEADERS) else { return };
    let header = Header::parse(&text);
    for pair in pairs::table() {
        let common = pairs::common(&pair);
        for ours in pair.ours.fields {
            if common.iter().any(|(known, ..)| known.name == ours.name) {
                continue;
            }
            let here = format!("{}.{}", pair.ours.name, ours.name);
            let known = DRIVER.iter().find(|one| (one.0, one.1) == (pair.ours.name, ours.name));
            let (.., structure, path) = known.unwrap_or_else(|| panic!("{here} is not in DRIVER"));
            let theirs = header.field(structure, path).expect(path);
            assert_eq!((theirs.bit, theirs.width), (ours.first, ours.width), "{here}");
        }
    }
}

#[test]
fn the_register_tables_have_the_same_layouts() {
    let Some(text) = fetched(&["LAYOUTS_REGISTERS"]) else { return };
    let tables = Tables::parse(&text);
    let (mut found, mut same) = (Differences::new(), 0);
    for (register, node) in REGISTERS {
        let theirs = tables.items(node).unwrap_or_else(|| panic!("no node {node}"));
        let ours = items_of(&pairs::layout(register));
        same += compare("registers", register, &ours, &theirs, &mut found);
    }
    println!("register tables: {same} fields of {} registers are the same", REGISTERS.len());
    judge("registers", &found);
    assert!(same > 45, "{same} fields in common");
}

#[test]
fn every_kind_of_difference_is_seen() {
    let item = |name: &str, bit, width| Item { name: name.into(), bit, width };
    let ours = [
        item("same", 0, 4),
        item("wider", 4, 4),
        item("named", 8, 8),
        item("ours", 16, 8),
        item("reserved_at_18", 24, 40),
    ];
    let theirs = [
        item("same", 0, 4),
        item("wider", 4, 5),
        item("otherwise", 8, 8),
        item("reserved_at_10", 16, 8),
        item("theirs", 32, 1),
    ];
    let mut found = Differences::new();
    assert_eq!(compare("x", "y", &ours, &theirs, &mut found), 1);
    let first = |names: &BTreeSet<String>| names.iter().next().unwrap().clone();
    let found: Vec<_> = found.iter().map(|(key, names)| (key.clone(), first(names))).collect();
    let expected = [
        ("x adds y", "theirs"),
        ("x lacks y", "ours"),
        ("x moves y", "wider"),
        ("x renames y", "named=otherwise"),
    ];
    assert_eq!(found, expected.map(|(key, name)| (key.to_owned(), name.to_owned())));
}
