//! Steering: match sets, and the walk through tables.

use super::super::ethernet::{Headers, sum};
use super::super::flow::{
    Counters, Destination, Entry, Group, MATCH_BYTES, Steering, Table, Verdict, action,
};
use crate::ifc::Field;
use crate::ifc::flow::fte_match_set_lyr_2_4 as lyr;
use crate::table::visits;

/// A UDP/IPv4 frame with correct checksums.
pub(super) fn udp(dmac: [u8; 6], dport: u16, vlan: Option<u16>) -> Vec<u8> {
    let mut f = dmac.to_vec();
    f.extend([2, 0, 0, 0, 0, 0x77]);
    if let Some(tci) = vlan {
        f.extend([0x81, 0]);
        f.extend(tci.to_be_bytes());
    }
    f.extend([8, 0]);
    f.extend([0x45, 0xb8, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    f.extend(0x1111u16.to_be_bytes());
    f.extend(dport.to_be_bytes());
    f.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    let headers = Headers::of(&f).unwrap();
    headers.offload(&mut f, 0xc0);
    f
}

fn set(frame: &[u8]) -> [u8; lyr::BYTES] {
    Headers::of(frame).unwrap().match_set(frame)
}

fn group(start: u32, end: u32, enable: u32, fields: &[Field]) -> Group {
    let mut mask = vec![0; MATCH_BYTES];
    for field in fields {
        field.set(&mut mask, u32::MAX);
    }
    Group::new(start, end, enable, mask)
}

fn entry(group: u32, action: u32, to: &[Destination], fields: &[(Field, u32)]) -> Entry {
    let mut value = vec![0; MATCH_BYTES];
    for (field, v) in fields {
        field.set(&mut value, *v);
    }
    Entry { group, value, action, to: to.to_vec(), tag: 0, counters: Vec::new() }
}

fn one(groups: &[Group], entries: Vec<(u32, Entry)>, miss: Option<u32>) -> Table {
    let mut table = Table::new(0, 0, 4, miss);
    (1..).zip(groups.iter().cloned()).for_each(|(number, group)| table.add_group(number, group));
    for (index, entry) in entries {
        table.set_entry(index, entry);
    }
    table
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn walk(steering: &Steering, kind: u32, frame: &[u8]) -> Verdict {
    steering.walk(kind, &set(frame), &mut Counters::default(), 0)
}
const FORWARD: u32 = action::FORWARD;

#[test]
fn the_match_set_of_a_tagged_datagram() {
    let set = set(&udp(MAC, 4791, Some(0x6123)));
    for (field, value) in [
        (lyr::dmac_47_16, 0x0200_0000),
        (lyr::dmac_15_0, 1),
        (lyr::smac_15_0, 0x77),
        (lyr::ethertype, 0x0800),
        (lyr::cvlan_tag, 1),
        (lyr::first_vid, 0x123),
        (lyr::first_prio, 3),
        (lyr::ip_version, 4),
        (lyr::ip_protocol, 17),
        (lyr::ip_dscp, 46),
        (lyr::ttl_hoplimit, 64),
        (lyr::udp_dport, 4791),
        (lyr::tcp_dport, 0),
    ] {
        assert_eq!(field.get(&set), value, "{field:?}");
    }
    assert_eq!(lyr::dst_ipv4_dst_ipv6.get64(&set), 0x0a00_0002);
}

#[test]
fn fragments_and_short_headers_have_no_ports() {
    let mut frame = udp(MAC, 4791, None);
    frame[20] = 0x20;
    assert_eq!(lyr::udp_dport.get(&set(&frame)), 0);
    assert_eq!(lyr::frag.get(&set(&frame)), 1);
    let mut frame = udp(MAC, 4791, None);
    frame[17] = 24;
    assert_eq!(lyr::udp_dport.get(&set(&frame)), 0);
}

#[test]
fn checksums_are_seen_and_made() {
    let frame = udp(MAC, 1, None);
    let headers = Headers::of(&frame).unwrap();
    assert_eq!(headers.verdict(&frame), 7);
    assert_eq!(headers.kinds(&frame), 0x28);
    for (at, good) in [(24, 1), (45, 3)] {
        let mut broken = frame.clone();
        broken[at] ^= 1;
        assert_eq!(Headers::of(&broken).unwrap().verdict(&broken), good, "byte {at}");
    }
    assert_eq!(sum(&[0xff, 0xff, 0, 1]), 1);
    assert_eq!(sum(&[1]), 0x100);
}

#[test]
fn without_a_root_everything_is_dropped() {
    assert!(walk(&Steering::default(), 0, &udp(MAC, 1, None)).is_empty());
}

#[test]
fn exact_match_under_the_groups_mask() {
    let mut steering = Steering::default();
    let dmac = [lyr::dmac_47_16, lyr::dmac_15_0];
    let table = one(
        &[group(0, 3, 1, &dmac)],
        vec![(
            0,
            entry(1, FORWARD, &[Destination::Tir(9)], &[(dmac[0], 0x0200_0000), (dmac[1], 1)]),
        )],
        None,
    );
    let id = steering.add_table(table);
    steering.roots.insert(0, id);
    assert_eq!(walk(&steering, 0, &udp(MAC, 1, None)), [(9, 0)]);
    assert!(walk(&steering, 0, &udp([2, 0, 0, 0, 0, 2], 1, None)).is_empty());
    assert!(walk(&steering, 1, &udp(MAC, 1, None)).is_empty(), "another table type");
}

#[test]
fn a_mask_that_is_not_enabled_does_not_count() {
    let mut steering = Steering::default();
    let table = one(
        &[group(0, 3, 0, &[lyr::ethertype])],
        vec![(2, entry(1, FORWARD, &[Destination::Tir(9)], &[(lyr::ethertype, 0x1234)]))],
        None,
    );
    let id = steering.add_table(table);
    steering.roots.insert(0, id);
    assert_eq!(walk(&steering, 0, &udp(MAC, 1, None)), [(9, 0)]);
}

#[test]
fn groups_count_in_index_order() {
    let mut steering = Steering::default();
    let mut groups = vec![group(4, 7, 0, &[]), group(0, 3, 1, &[lyr::ethertype])];
    let entries = |first: u32| {
        vec![
            (4, entry(1, FORWARD, &[Destination::Tir(1)], &[])),
            (first, entry(2, FORWARD, &[Destination::Tir(2)], &[(lyr::ethertype, 0x800)])),
        ]
    };
    let id = steering.add_table(one(&groups, entries(0), None));
    steering.roots.insert(0, id);
    assert_eq!(walk(&steering, 0, &udp(MAC, 1, None)), [(2, 0)]);
    (groups[1].start, groups[1].end) = (8, 11);
    let id = steering.add_table(one(&groups, entries(8), None));
    steering.roots.insert(0, id);
    assert_eq!(walk(&steering, 0, &udp(MAC, 1, None)), [(1, 0)]);
}

#[test]
fn tables_lead_to_tables_by_entry_and_by_miss() {
    let mut steering = Steering::default();
    let any = |to| one(&[group(0, 0, 0, &[])], vec![(0, entry(1, FORWARD, &[to], &[]))], None);
    let last = steering.add_table(any(Destination::Tir(5)));
    let middle = steering.add_table(any(Destination::Table(last)));
    let empty = steering.add_table(one(&[], vec![], Some(middle)));
    steering.roots.insert(0, empty);
    assert_eq!(walk(&steering, 0, &udp(MAC, 1, None)), [(5, 0)]);
    for id in [last, middle, empty] {
        assert!(steering.table_in_use(id));
    }
}

#[test]
fn drop_wins_and_loops_end() {
    let mut steering = Steering::default();
    let bits = action::DROP | FORWARD;
    let table =
        one(&[group(0, 0, 0, &[])], vec![(0, entry(1, bits, &[Destination::Tir(5)], &[]))], None);
    let id = steering.add_table(table);
    steering.roots.insert(0, id);
    assert!(walk(&steering, 0, &udp(MAC, 1, None)).is_empty());
    let round = one(
        &[group(0, 0, 0, &[])],
        vec![(0, entry(1, FORWARD, &[Destination::Table(2)], &[]))],
        None,
    );
    let id = steering.add_table(round);
    steering.roots.insert(0, id);
    assert!(walk(&steering, 0, &udp(MAC, 1, None)).is_empty());
}

#[test]
fn sending_passes_unless_it_is_dropped() {
    let mut steering = Steering::default();
    let passes = |steering: &Steering, dport: u16| {
        let mut counters = Counters::default();
        steering.passes(1, &set(&udp(MAC, dport, None)), &mut counters, 0)
    };
    assert!(passes(&steering, 7), "without a table");
    let table = |bits, to: &[Destination]| {
        let mut table = one(
            &[group(0, 3, 1, &[lyr::udp_dport])],
            vec![(0, entry(1, bits, to, &[(lyr::udp_dport, 7)]))],
            None,
        );
        table.kind = 1;
        table
    };
    let last = steering.add_table(table(action::DROP, &[]));
    let root = steering.add_table(table(FORWARD, &[Destination::Table(last)]));
    steering.roots.insert(1, root);
    assert!(!passes(&steering, 7), "dropped in the second table");
    assert!(passes(&steering, 8), "matches nothing");
    steering.roots.insert(0, last);
    assert!(walk(&steering, 0, &udp(MAC, 7, None)).is_empty());
}

#[test]
fn a_lookup_costs_the_same_in_a_long_table() {
    let [few, many] = [1, 10_000].map(|count| {
        let entries = (0..count).map(|nth| {
            (nth, entry(1, FORWARD, &[Destination::Tir(nth)], &[(lyr::dst_ipv4_dst_ipv6, nth)]))
        });
        let groups = [group(0, count, 1, &[lyr::dst_ipv4_dst_ipv6])];
        let mut steering = Steering::default();
        let id = steering.add_table(one(&groups, entries.collect(), None));
        steering.roots.insert(0, id);
        let before = visits();
        assert!(walk(&steering, 0, &udp(MAC, 1, None)).is_empty());
        visits() - before
    });
    assert!(2 * many <= 3 * few, "{few} looks beside one entry, {many} beside 10,000");
}
