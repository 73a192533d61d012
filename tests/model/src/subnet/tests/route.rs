//! The directed route hop by hop.

use proptest::prelude::*;

use super::*;
use crate::ifc::Field;
use crate::subnet::route::{Step, step};
use crate::subnet::smp::attribute;

fn packet(path: &[u8]) -> Smp {
    get(attribute::NODE_INFO, 0).directed(path)
}

fn with(mut smp: Smp, fields: &[(Field, u32)]) -> Smp {
    for (field, value) in fields {
        smp.set(*field, *value);
    }
    smp
}

#[test]
fn a_packet_goes_through_a_switch_and_back() {
    let mut smp = packet(&[1, 4]);
    assert_eq!(step(&mut smp, false, 0), Step::Port(1));
    assert_eq!(smp.get(layout::hop_pointer), 1);
    assert_eq!(step(&mut smp, true, 3), Step::Port(4));
    assert_eq!((smp.get(layout::hop_pointer), smp.return_path()[1]), (2, 3));
    assert_eq!(step(&mut smp, false, 1), Step::Here);
    assert_eq!((smp.get(layout::hop_pointer), smp.return_path()[2]), (3, 1));
    let mut answer = smp.answer(0);
    assert!(answer.returns());
    assert_eq!(step(&mut answer, false, 0), Step::Port(1));
    assert_eq!(step(&mut answer, true, 4), Step::Port(3));
    assert_eq!(step(&mut answer, false, 1), Step::Here);
    assert_eq!(answer.get(layout::hop_pointer), 0);
}

#[test]
fn a_route_of_no_hops_stays_here() {
    let mut smp = packet(&[]);
    assert_eq!(step(&mut smp, false, 0), Step::Here);
    let mut answer = smp.answer(0);
    assert_eq!(step(&mut answer, false, 0), Step::Here);
}

#[test]
fn parts_by_lid_begin_and_end_at_switches_only() {
    let at_the_end = [(layout::hop_pointer, 1), (layout::dr_dlid, 5)];
    assert_eq!(step(&mut with(packet(&[1]), &at_the_end), true, 2), Step::Lid(5));
    assert_eq!(step(&mut with(packet(&[1]), &at_the_end), false, 1), Step::Discard);
    let back = [(layout::direction, 1), (layout::hop_pointer, 1), (layout::dr_slid, 6)];
    assert_eq!(step(&mut with(packet(&[1]), &back), true, 2), Step::Lid(6));
    assert_eq!(step(&mut with(packet(&[1]), &back), false, 1), Step::Discard);
    // The LID routed a packet to the switch where its directed part begins.
    assert_eq!(step(&mut packet(&[3]), true, 2), Step::Port(3));
    assert_eq!(step(&mut packet(&[3]), false, 1), Step::Discard);
    // Behind the directed part.
    assert_eq!(step(&mut with(packet(&[1]), &[(layout::hop_pointer, 2)]), false, 1), Step::Here);
}

#[test]
fn what_does_not_fit_is_discarded() {
    let far = packet(&[1, 2, 3]);
    for (fields, is_switch) in [
        (vec![(layout::hop_pointer, 1)], false),
        (vec![(layout::hop_pointer, 5)], true),
        (vec![(layout::hop_count, 64)], true),
        (vec![(layout::hop_count, 255), (layout::hop_pointer, 255)], true),
        (vec![(layout::direction, 1), (layout::hop_pointer, 2)], false),
        (vec![(layout::direction, 1), (layout::hop_pointer, 5)], true),
    ] {
        let mut smp = with(far, &fields);
        assert_eq!(step(&mut smp, is_switch, 2), Step::Discard, "{fields:?}");
    }
}

proptest! {
    /// Over a chain of switches a packet leaves by the ports of its path, and its answer by the
    /// ports through which it came.
    #[test]
    fn an_answer_takes_the_way_back(hops in prop::collection::vec((1_u8..=36, 1_u8..=36), 0..=63)) {
        let path: Vec<u8> = hops.iter().map(|(exit, _)| *exit).collect();
        let mut smp = packet(&path);
        let mut from = 0;
        for (exit, entry) in &hops {
            prop_assert_eq!(step(&mut smp, true, from), Step::Port(*exit));
            from = *entry;
        }
        prop_assert_eq!(step(&mut smp, false, from), Step::Here);
        let mut answer = smp.answer(0);
        for (_, entry) in hops.iter().rev() {
            prop_assert_eq!(step(&mut answer, true, 0), Step::Port(*entry));
        }
        prop_assert_eq!(step(&mut answer, false, 1), Step::Here);
    }

    #[test]
    fn no_bytes_are_too_wrong(bytes in prop::collection::vec(any::<u8>(), 256), is_switch: bool, from: u8) {
        let mut smp = Smp(bytes.try_into().unwrap());
        let before = smp.get(layout::hop_pointer);
        step(&mut smp, is_switch, from);
        prop_assert!(smp.get(layout::hop_pointer).abs_diff(before) <= 1);
    }
}
