//! The two notations of the interface against each other: the driver's absolute bit positions, the
//! model's ordered lists.
//!
//! They were written apart, from the same public facts. For every field that both name, a one walks
//! through it: set by the driver's accessor and read by the model's, and back, alone in an
//! otherwise empty layout. What only one of them names stands in `data/layouts-one-side.txt`, with
//! a reason, and in that file only: a field renamed on one side turns up here as two that are
//! missing from the list.
//!
//! `seeded/pairs.rs` has the pairs of layouts.

use std::collections::{BTreeMap, BTreeSet};

use hca_mlx5::prm::{
    caps, cmd, cq, eq, flow, hca_vport, mkey, pages, qp, reg, roce, sq, tir, tis, vport,
};
use mlx5_model::ifc;
use pairs::{ALIASES, NARROWER, common, layout, read, table, theirs, write};

#[path = "../seeded/pairs.rs"]
mod pairs;
#[test]
fn sizes_agree() {
    for pair in table() {
        let layout = layout(pair.theirs);
        let rest = layout.bytes - pair.at;
        match pair.part {
            false => assert_eq!(pair.ours.size, rest, "{} is {}", pair.ours.name, pair.theirs),
            true => assert!(pair.ours.size < rest, "{} begins {}", pair.ours.name, pair.theirs),
        }
    }
}

#[test]
fn positions_and_widths_agree() {
    let mut fields = 0;
    for pair in table() {
        for (ours, path, field) in common(&pair) {
            let here = format!("{}.{} and {}.{path}", pair.ours.name, ours.name, pair.theirs);
            assert_eq!(ours.width, field.width, "{here}: width");
            assert_eq!(ours.first + 8 * pair.at, field.bit, "{here}: position");
            fields += 1;
        }
    }
    assert!(fields > 330, "{fields} fields known to both");
}

#[test]
fn ones_set_by_the_driver_walk_through_the_model() {
    for pair in table() {
        for (ours, path, field) in common(&pair) {
            for bit in 0..ours.width {
                let value = 1_u128 << bit;
                let mut bytes = vec![0; pair.at];
                bytes.extend((pair.ours.set)(ours.name, value).unwrap());
                let here = format!("{}.{} bit {bit}", pair.ours.name, ours.name);
                assert_eq!(read(field, &bytes), value, "{here}");
                let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
                assert_eq!(ones, 1, "{here} sets others too");
                // And no other field of the model's sees it, but those that contain it.
                for (other, seen) in layout(pair.theirs).leaves() {
                    let apart =
                        seen.bit + seen.width <= field.bit || field.bit + field.width <= seen.bit;
                    assert!(!apart || read(seen, &bytes) == 0, "{here}: {path} shows in {other}");
                }
            }
        }
    }
}

#[test]
fn ones_set_by_the_model_walk_through_the_driver() {
    for pair in table() {
        for (ours, path, field) in common(&pair) {
            for bit in 0..field.width {
                let value = 1_u128 << bit;
                let mut bytes = vec![0; layout(pair.theirs).bytes];
                write(field, &mut bytes, value);
                let here = format!("{}.{path} bit {bit}", pair.theirs);
                assert_eq!((pair.ours.get)(&bytes[pair.at..], ours.name), Some(value), "{here}");
                for other in pair.ours.fields.iter().filter(|other| other.name != ours.name) {
                    assert_eq!(
                        (pair.ours.get)(&bytes[pair.at..], other.name),
                        Some(0),
                        "{here}: {}",
                        other.name
                    );
                }
            }
        }
    }
}

#[test]
fn all_ones_and_none_go_both_ways() {
    for pair in table() {
        for (ours, path, field) in common(&pair) {
            let all = if ours.width == 128 { u128::MAX } else { (1 << ours.width) - 1 };
            let mut bytes = vec![0xff; layout(pair.theirs).bytes];
            assert_eq!((pair.ours.get)(&bytes[pair.at..], ours.name), Some(all), "{path}");
            write(field, &mut bytes, 0);
            assert_eq!((pair.ours.get)(&bytes[pair.at..], ours.name), Some(0), "{path}");
        }
    }
}

#[test]
fn aliases_and_narrower_fields_are_needed_each() {
    for (ours, name, path, why) in ALIASES.iter().filter(|alias| alias.3 != "itself") {
        let pair = table().into_iter().find(|pair| pair.ours.name == *ours).unwrap();
        assert!(pair.ours.fields.iter().any(|field| field.name == *name), "{ours}.{name}");
        assert!(
            layout(pair.theirs).field(name).is_none(),
            "{ours}.{name} is no alias: {path}, {why}"
        );
    }
    for (ours, name, _) in NARROWER {
        let pair = table().into_iter().find(|pair| pair.ours.name == *ours).unwrap();
        let field = pair.ours.fields.iter().find(|field| field.name == *name).unwrap();
        assert!(theirs(&pair, name).unwrap().1.width > field.width, "{ours}.{name} is as wide");
    }
}

#[test]
fn work_requests_and_completions_agree() {
    assert_eq!(pairs::disagreements(), Vec::<String>::new());
}

// ---- frames: heads, and where contexts and lists stand in them ----

/// Places in messages: the driver's constant, the model's layout and field.
const PLACES: &[(usize, &str, &str)] = &[
    (caps::FLOW_TABLE_NIC_RECEIVE, "flow_table_nic_cap", "nic_receive"),
    (cq::CONTEXT_AT, "create_cq_in", "cqc"),
    (cq::CONTEXT_AT, "query_cq_out", "cqc"),
    (eq::EQ_CONTEXT, "create_eq_in", "eq_context_entry"),
    (eq::EQ_CONTEXT, "query_eq_out", "eq_context_entry"),
    (eq::CREATE_EQ_PAGES, "create_eq_in", "pas"),
    (eq::EQE_DATA, "eqe", "event_data"),
    (flow::MATCH, "create_flow_group_in", "match_criteria"),
    (flow::FLOW_CONTEXT, "set_fte_in", "flow_context"),
    (flow::FLOW_MATCH - flow::FLOW_CONTEXT, "flow_context", "match_value"),
    (0, "fte_match_param", "outer_headers"),
    (hca_vport::MAD_AT, "mad_ifc_in", "mad"),
    (hca_vport::ANSWER, "query_hca_vport_context_out", "hca_vport_context"),
    (hca_vport::ANSWER, "modify_hca_vport_context_in", "hca_vport_context"),
    (hca_vport::ANSWER, "query_hca_vport_gid_out", "gid"),
    (mkey::CONTEXT_AT, "create_mkey_in", "memory_key_mkey_entry"),
    (mkey::ACTUAL_SIZE_AT, "create_mkey_in", "translations_octword_actual_size"),
    (mkey::TRANSLATION_AT, "create_mkey_in", "klm_pas_mtt"),
    (pages::ManagePagesIn::SIZE, "manage_pages_in", "pas"),
    (pages::ManagePagesOut::SIZE, "manage_pages_out", "pas"),
    (qp::CONTEXT_AT, "qp_in", "qpc"),
    (qp::CONTEXT_AT, "query_qp_out", "qpc"),
    (qp::PRIMARY_PATH_AT, "qpc", "primary_address_path"),
    (0x110, "create_cq_in", "pas"),
    (0x110, "qp_in", "pas"),
    (reg::CONTENTS, "access_register_in", "register_data"),
    (reg::CONTENTS, "access_register_out", "register_data"),
    (roce::ROCE_ADDRESS, "set_roce_address_in", "roce_address"),
    (roce::ROCE_ADDRESS, "query_roce_address_out", "roce_address"),
    (sq::SQ_CONTEXT, "sq_in", "sqc"),
    (sq::SQ_CONTEXT, "rq_in", "rqc"),
    (sq::SQ_CONTEXT, "rmp_in", "rmpc"),
    (sq::SQ_WQ, "sqc", "wq"),
    (sq::SQ_WQ, "rmpc", "wq"),
    (sq::SQ_WQ, "rqc", "wq"),
    (sq::SQ_PAGES, "sq_in", "pas"),
    (sq::SQ_PAGES, "rq_in", "pas"),
    (sq::SQ_PAGES, "rmp_in", "pas"),
    (tir::TIR_CONTEXT, "tir_in", "tirc"),
    (tis::TIS_CONTEXT, "tis_in", "tisc"),
    (vport::QUERIED_CONTEXT, "query_nic_vport_context_out", "nic_vport_context"),
    (vport::MODIFIED_CONTEXT, "modify_nic_vport_context_in", "nic_vport_context"),
    (0x100, "nic_vport_context", "current_uc_mac_address"),
    (0x18, "create_flow_table_in", "flow_table_context"),
];

/// Lengths of whole messages.
const LENGTHS: &[(usize, &str)] = &[
    (flow::CREATE_FLOW_GROUP_IN, "create_flow_group_in"),
    (flow::FLOW_DESTINATIONS, "set_fte_in"),
    (hca_vport::CONTEXT_OUT, "query_hca_vport_context_out"),
    (hca_vport::CONTEXT_OUT, "modify_hca_vport_context_in"),
    (hca_vport::MAD_IFC, "mad_ifc_in"),
    (qp::TRANSITION, "qp_in"),
    (tir::CREATE_TIR_IN, "tir_in"),
    (tis::CREATE_TIS_IN, "tis_in"),
    (vport::QUERY_OUT, "query_nic_vport_context_out"),
    (vport::MODIFY_IN, "modify_nic_vport_context_in"),
    (eq::EQE_SIZE, "eqe"),
    (caps::BLOCK, "cmd_hca_cap"),
];

#[test]
fn contexts_and_lists_stand_at_the_same_place_in_their_messages() {
    for &(at, name, field) in PLACES {
        assert_eq!(layout(name).field(field).unwrap().bit, 8 * at, "{name}.{field}");
    }
    for &(length, name) in LENGTHS {
        assert_eq!(layout(name).bytes, length, "{name}");
    }
}

/// A field of a message that is its head's.
fn of_head(frame: &str, entry: &ifc::Entry) -> bool {
    let head = match (frame.ends_with("_in"), frame.ends_with("_out")) {
        (true, _) => cmd::InputHead::FIELDS,
        (_, true) => cmd::OutputHead::FIELDS,
        _ => return false,
    };
    head.iter().any(|ours| {
        let same = ours.name == entry.name && ours.name != "number";
        let number = ours.name == "number" && entry.name == "number" && entry.field.bit == 64;
        if same {
            assert_eq!((ours.first, ours.width), (entry.field.bit, entry.field.width), "{frame}");
        }
        same || number
    })
}

#[test]
fn every_message_of_the_model_begins_with_the_head_the_driver_writes() {
    let mut heads = 0;
    for frame in ifc::all() {
        heads += frame.entries.iter().filter(|entry| of_head(frame.name, entry)).count();
    }
    assert!(heads > 120, "{heads}");
}

// ---- words of event queue entries and work requests ----

#[test]
fn event_queue_entries_agree() {
    use ifc::eq::eqe;
    for bit in 0..8 {
        let mut bytes = [0; 64];
        eqe::event_type.set(&mut bytes, 1 << bit);
        let word =
            |bytes: &[u8; 64], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(eq::EqeHead(word(&bytes, 0)).event_type(), 1 << bit);
        assert_eq!(eq::EqeHead(word(&bytes, 0)).event_sub_type(), 0);
        let mut bytes = [0; 64];
        eqe::event_sub_type.set(&mut bytes, 1 << bit);
        assert_eq!(eq::EqeHead(word(&bytes, 0)).event_sub_type(), 1 << bit);
        let mut bytes = [0; 64];
        eqe::signature.set(&mut bytes, 1 << bit);
        assert_eq!(eq::EqeTail(word(&bytes, 60)).signature(), 1 << bit);
        assert!(!eq::EqeTail(word(&bytes, 60)).owner());
    }
    let mut bytes = [0; 64];
    bytes[60..].copy_from_slice(&{
        let mut tail = eq::EqeTail(0);
        tail.set_owner(true);
        tail.0.to_be_bytes()
    });
    assert_eq!(eqe::owner.get(&bytes), 1);
    bytes[..4].copy_from_slice(&{
        let mut head = eq::EqeHead(0);
        head.set_event_type(0xa5);
        head.set_event_sub_type(0x3c);
        head.0.to_be_bytes()
    });
    assert_eq!((eqe::event_type.get(&bytes), eqe::event_sub_type.get(&bytes)), (0xa5, 0x3c));
}

#[test]
fn event_types_have_the_same_numbers() {
    use eq::EventType as Ours;
    use mlx5_model::event as theirs;
    let table = [
        (Ours::Completion, theirs::COMPLETION),
        (Ours::PathMigrated, theirs::PATH_MIGRATED),
        (Ours::CommunicationEstablished, theirs::COMM_ESTABLISHED),
        (Ours::SendQueueDrained, theirs::SQ_DRAINED),
        (Ours::CqError, theirs::CQ_ERROR),
        (Ours::WqCatastrophic, theirs::WQ_CATASTROPHIC),
        (Ours::PathMigrationFailed, theirs::PATH_MIGRATION_FAILED),
        (Ours::InternalError, theirs::INTERNAL_ERROR),
        (Ours::PortChange, theirs::PORT_CHANGE),
        (Ours::Command, theirs::COMMAND),
        (Ours::PageRequest, theirs::PAGE_REQUEST),
        (Ours::NicVportChange, theirs::NIC_VPORT_CHANGE),
        (Ours::WqInvalidRequest, theirs::WQ_INVALID_REQUEST),
        (Ours::WqAccessError, theirs::WQ_ACCESS_ERROR),
        (Ours::SrqCatastrophic, theirs::SRQ_CATASTROPHIC),
        (Ours::LastWqe, theirs::LAST_WQE_REACHED),
        (Ours::SrqLimit, theirs::SRQ_LIMIT),
        (Ours::PortModule, theirs::PORT_MODULE),
    ];
    for (ours, number) in table {
        assert_eq!(ours as u8, number, "{ours:?}");
        assert_eq!(Ours::from_code(number), Some(ours));
    }
}

#[test]
fn the_words_of_a_window_bind_agree() {
    use hca_mlx5::prm::wqe::{UmrHead, UmrKey};
    use ifc::mkey::{mkc, umr_ctrl};
    let bytes = UmrHead::bind(0xa5c3).word().to_be_bytes();
    assert_eq!(umr_ctrl::flags.get(&bytes), 0x90, "inline, and the offset counts");
    assert_eq!(umr_ctrl::translation_octwords.get(&bytes), 0xa5c3);
    assert_eq!(umr_ctrl::translation_offset_15_0.get(&bytes), 0);

    /// One bit of the key segment: how the driver sets it, where the model has it.
    type Bit = (fn(&mut UmrKey), ifc::Field);
    let bits: [Bit; 6] = [
        (|key| key.set_free(true), mkc::free),
        (|key| key.set_a(true), mkc::a),
        (|key| key.set_rw(true), mkc::rw),
        (|key| key.set_rr(true), mkc::rr),
        (|key| key.set_lw(true), mkc::lw),
        (|key| key.set_lr(true), mkc::lr),
    ];
    for (set, field) in bits {
        let mut key = UmrKey::default();
        set(&mut key);
        assert_eq!(key.word(), 1 << (63 - field.bit));
    }
    let mut key = UmrKey::default();
    key.set_qpn(0xab_cdef);
    key.set_mkey_7_0(0x5a);
    let bytes = key.word().to_be_bytes();
    assert_eq!((mkc::qpn.get(&bytes), mkc::mkey_7_0.get(&bytes)), (0xab_cdef, 0x5a));
}

// ---- what only one side names ----

/// `side layout` to the names of its fields.
type Names = BTreeMap<String, BTreeSet<String>>;

fn one_sided() -> Names {
    let mut names = Names::new();
    // Fields of the model that any pair covers, by layout.
    let mut covered: BTreeMap<&str, Vec<ifc::Field>> = BTreeMap::new();
    for pair in table() {
        let common = common(&pair);
        for ours in pair.ours.fields {
            if !common.iter().any(|(known, ..)| known.name == ours.name) {
                names
                    .entry(format!("driver {}", pair.ours.name))
                    .or_default()
                    .insert(ours.name.into());
            }
        }
        covered.entry(pair.theirs).or_default().extend(common.into_iter().map(|(.., field)| field));
    }
    for layout in ifc::all() {
        let seen = covered.get(layout.name).map_or(&[][..], Vec::as_slice);
        for entry in layout.entries.iter().filter(|entry| !entry.name.starts_with("reserved")) {
            let (first, last) = (entry.field.bit, entry.field.bit + entry.field.width);
            let shared =
                seen.iter().any(|field| field.bit < last && first < field.bit + field.width);
            let placed = PLACES.iter().any(|place| (place.1, place.2) == (layout.name, entry.name));
            if !shared && !placed && !of_head(layout.name, entry) {
                names
                    .entry(format!("model {}", layout.name))
                    .or_default()
                    .insert(entry.name.into());
            }
        }
    }
    names
}

/// The list: `side layout: reason` and, indented below it, names.
fn listed() -> Names {
    dat_tests::reasons::names(include_str!("../../data/layouts-one-side.txt"))
}

#[test]
fn names_known_to_one_side_only_are_listed_with_a_reason() {
    let (found, listed) = (one_sided(), listed());
    let mut wrong = Vec::new();
    for key in found.keys().chain(listed.keys()).collect::<BTreeSet<_>>() {
        let none = BTreeSet::new();
        let (found, listed) = (found.get(key).unwrap_or(&none), listed.get(key).unwrap_or(&none));
        let new: Vec<_> = found.difference(listed).map(String::as_str).collect();
        let gone: Vec<_> = listed.difference(found).map(String::as_str).collect();
        if !new.is_empty() || !gone.is_empty() {
            wrong.push(format!(
                "{key}\n    not listed: {}\n    listed: {}",
                new.join(" "),
                gone.join(" ")
            ));
        }
    }
    assert!(wrong.is_empty(), "names of one side only:\n{}", wrong.join("\n"));
}
