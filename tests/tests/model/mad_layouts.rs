//! Subnet management in the driver's notation against the model's: the same places and widths under
//! the same names, but for those that the two take from different headers.

use hca_mlx5::prm::{Field, mad, smp};
use mlx5_model::ifc::{Layout, subnet};

/// Driver's name and model's name of one field: Linux spells it one way, IBTA the other.
const ALIASES: &[(&str, &str)] = &[
    ("hop_ptr", "hop_pointer"),
    ("hop_cnt", "hop_count"),
    ("mkey", "m_key"),
    ("sys_guid", "system_image_guid"),
    ("lin_cap", "linear_fdb_cap"),
    ("rand_cap", "random_fdb_cap"),
    ("mcast_cap", "multicast_fdb_cap"),
    ("lin_top", "linear_fdb_top"),
    ("def_port", "default_port"),
    ("def_mcast_pri_port", "default_multicast_primary_port"),
    ("def_mcast_not_port", "default_multicast_not_primary_port"),
    ("enforce_cap", "partition_enforcement_cap"),
    ("mcast_top", "multicast_fdb_top"),
    ("sm_lid", "master_sm_lid"),
    ("cap_mask", "capability_mask"),
    ("mkey_lease_period", "m_key_lease_period"),
    ("port_phys_state", "port_physical_state"),
    ("link_down_default", "link_down_default_state"),
    ("mkey_protect", "m_key_protect_bits"),
    ("mkey_violations", "m_key_violations"),
    ("pkey_violations", "p_key_violations"),
    ("qkey_violations", "q_key_violations"),
    ("client_rereg", "client_reregister"),
    ("mcast_pkey_trap_suppr", "multicast_pkey_trap_suppression"),
    ("subnet_timeout", "subnet_time_out"),
    ("link_roundtrip_latency", "link_round_trip_latency"),
    ("cap_mask2", "capability_mask2"),
    ("state", "sm_state"),
    ("trap_num", "trap_number"),
];

/// Details of traps, which the model has as layouts of their own, and the status of LID-routed
/// packets, which has the bit of the direction.
const OURS_ONLY: &[&str] = &["switch_lid", "lid", "new_capability_mask", "gid"];

fn compare(ours: &[Field], theirs: &Layout, ours_only: &[&str]) -> usize {
    let leaves = theirs.leaves();
    let mut compared = 0;
    for field in ours.iter().filter(|field| !ours_only.contains(&field.name)) {
        let alias = ALIASES.iter().find(|alias| alias.0 == field.name);
        let name = alias.map_or(field.name, |alias| alias.1);
        let found = leaves.iter().find(|leaf| leaf.0 == name);
        let found = found.map(|(_, leaf)| (leaf.bit, leaf.width));
        assert_eq!(Some((field.first, field.width)), found, "{}.{name}", theirs.name);
        compared += 1;
    }
    compared
}

#[test]
fn both_notations_of_subnet_management_agree() {
    let header: Vec<Field> = mad::MadHeader::FIELDS.to_vec();
    let mut compared = compare(&header, &subnet::smp::LAYOUT, &["status", "class_specific"]);
    for (ours, theirs, ours_only) in [
        (smp::SmpHeader::FIELDS, &subnet::smp::LAYOUT, &[][..]),
        (smp::NodeInfo::FIELDS, &subnet::node_info::LAYOUT, &[]),
        (smp::SwitchInfo::FIELDS, &subnet::switch_info::LAYOUT, &[]),
        (smp::PortInfo::FIELDS, &subnet::port_info::LAYOUT, &[]),
        (smp::SmInfo::FIELDS, &subnet::sm_info::LAYOUT, &[]),
        (mad::Notice::FIELDS, &subnet::notice::LAYOUT, OURS_ONLY),
    ] {
        compared += compare(ours, theirs, ours_only);
    }
    assert!(compared > 90, "{compared}");
    let places = [("data", smp::DATA), ("initial_path", smp::INITIAL_PATH)];
    for (name, at) in places.into_iter().chain([("return_path", smp::RETURN_PATH)]) {
        assert_eq!(subnet::smp::LAYOUT.field(name).unwrap().bit, 8 * at, "{name}");
    }
}
