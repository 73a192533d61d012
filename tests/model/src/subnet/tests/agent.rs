//! Attributes, statuses, states, M_Keys and traps of one node.

use proptest::prelude::*;

use super::*;
use crate::ifc::Field;
use crate::ifc::subnet::{node_info, notice, port_info, switch_info, trap_144};
use crate::subnet::agent::Source;
use crate::subnet::port::{CAPABILITY_CM, CAPABILITY_SM, State};
use crate::subnet::smp::{attribute, status};

const HERE: Source = Source { port: 1, slid: 3 };
const SECOND: u64 = 1_000_000_000;

fn switch() -> Node {
    Node::switch(identity(0x5000, "switch"), 4)
}

fn ask(node: &mut Node, smp: &Smp) -> Smp {
    node.answer(smp, HERE).unwrap()
}

/// Reads PortInfo, changes it, writes it; the status.
fn set_port(node: &mut Node, port: u32, fields: &[(Field, u32)]) -> u16 {
    let mut smp = set_to(&ask(node, &get(attribute::PORT_INFO, port)));
    // What a manager does not mean to change.
    let base = [(port_info::lid, 9), (port_info::master_sm_lid, 3)];
    let states = [(port_info::port_state, 0), (port_info::port_physical_state, 0)];
    for (field, value) in base.iter().chain(&states).chain(fields) {
        field.set(smp.data_mut(), *value);
    }
    ask(node, &smp).status()
}

#[test]
fn nodes_say_what_they_are() {
    let answer = ask(&mut adapter(0x10), &get(attribute::NODE_INFO, 0));
    assert_eq!((answer.method(), answer.status(), answer.returns()), (0x81, 0, false));
    let numbers = [node_info::node_type, node_info::num_ports, node_info::local_port_num];
    assert_eq!(numbers.map(|field| field.get(answer.data())), [1, 1, 1]);
    assert_eq!(node_info::port_guid.get64(answer.data()), 0x11);
    let answer = ask(&mut switch(), &get(attribute::NODE_INFO, 0).directed(&[1]));
    assert!(answer.returns());
    assert_eq!(numbers.map(|field| field.get(answer.data())), [2, 4, 1]);
    assert_eq!(node_info::port_guid.get64(answer.data()), 0x5000);
    let answer = ask(&mut switch(), &get(attribute::NODE_DESCRIPTION, 0));
    assert_eq!(answer.data()[..7], *b"switch\0");
}

#[test]
fn what_is_not_supported_has_its_status() {
    let node = &mut adapter(0x10);
    let mut status_of = |smp: &Smp| ask(node, smp).status();
    for attribute in [
        attribute::SWITCH_INFO,
        attribute::LINEAR_FORWARDING,
        attribute::MULTICAST_FORWARDING,
        attribute::SM_INFO,
        attribute::NOTICE,
        0x1a,
        0xff90,
    ] {
        assert_eq!(status_of(&get(attribute, 0)), status::ATTRIBUTE, "{attribute:#x}");
    }
    let set = Smp::request(method::SET, attribute::NODE_INFO, 0, 1);
    assert_eq!(status_of(&set), status::ATTRIBUTE);
    assert_eq!(status_of(&Smp::request(3, attribute::NODE_INFO, 0, 1)), status::METHOD);
    let mut old = get(attribute::NODE_INFO, 0);
    old.set(layout::class_version, 2);
    assert_eq!(status_of(&old), status::VERSION);
    for (attribute, modifier) in [
        (attribute::NODE_INFO, 1),
        (attribute::PORT_INFO, 2),
        (attribute::PORT_INFO, 256),
        (attribute::P_KEY_TABLE, 4),
        (attribute::GUID_INFO, 1),
        (attribute::VL_ARBITRATION, 0),
        (attribute::VL_ARBITRATION, 2 << 16),
        (attribute::SL_TO_VL, 1 << 16),
    ] {
        assert_eq!(status_of(&get(attribute, modifier)), status::INVALID, "{attribute:#x}");
    }
    for (attribute, modifier) in [
        (attribute::LINEAR_FORWARDING, 768),
        (attribute::LINEAR_FORWARDING, u32::MAX),
        (attribute::MULTICAST_FORWARDING, 32),
        (attribute::MULTICAST_FORWARDING, 1 << 28),
        (attribute::PORT_INFO, 5),
        (attribute::P_KEY_TABLE, 5 << 16),
        (attribute::SL_TO_VL, 5),
    ] {
        let answer = ask(&mut switch(), &get(attribute, modifier));
        assert_eq!(answer.status(), status::INVALID, "{attribute:#x} {modifier:#x}");
    }
}

#[test]
fn packets_for_a_manager_are_not_answered() {
    let mut node = adapter(0x10);
    for method in [method::GET_RESP, method::TRAP, 0x86] {
        let smp = Smp::request(method, attribute::NODE_INFO, 0, 1);
        assert!(node.is_for_manager(&smp, 1));
        assert_eq!(node.answer(&smp, HERE), None);
    }
    node.set_capability(1, CAPABILITY_SM, true);
    assert_eq!(node.answer(&get(attribute::SM_INFO, 0), HERE), None);
    assert_eq!(node.answer(&get(attribute::NODE_INFO, 0), Source { port: 2, slid: 0 }), None);
}

#[test]
fn ports_rise_state_by_state() {
    let mut node = adapter(0x10);
    let state = |node: &Node| node.port(1).unwrap().state();
    let up = |n| [(port_info::port_state, n)];
    for n in [2, 3, 4, 5] {
        assert_eq!(set_port(&mut node, 0, &up(n)), status::INVALID);
    }
    node.set_link(1, true);
    assert_eq!(state(&node), State::Init);
    assert_eq!(set_port(&mut node, 0, &up(4)), status::INVALID);
    assert_eq!(set_port(&mut node, 0, &up(3)), 0);
    assert_eq!(set_port(&mut node, 1, &up(3)), 0);
    assert_eq!(state(&node), State::Armed);
    assert_eq!(set_port(&mut node, 0, &up(4)), 0);
    assert_eq!(state(&node), State::Active);
    assert_eq!(set_port(&mut node, 0, &up(3)), status::INVALID);
    assert_eq!(set_port(&mut node, 0, &[(port_info::port_physical_state, 5)]), status::INVALID);
    assert_eq!(state(&node), State::Active);
    assert_eq!(set_port(&mut node, 0, &up(1)), 0);
    assert!(node.retrain.contains(&1));
    let disable = [(port_info::port_state, 1), (port_info::port_physical_state, 3)];
    assert_eq!(set_port(&mut node, 0, &disable), 0);
    assert!(!node.port(1).unwrap().wants_link());
}

#[test]
fn values_that_are_not_valid_change_nothing() {
    let mut node = adapter(0x10);
    assert_eq!(set_port(&mut node, 0, &[]), 0);
    for bad in [
        (port_info::lid, 0),
        (port_info::lid, 0xc000),
        (port_info::lid, 0xffff),
        (port_info::master_sm_lid, 0),
        (port_info::neighbor_mtu, 0),
        (port_info::neighbor_mtu, 6),
        (port_info::operational_vls, 5),
        (port_info::link_width_enabled, 4),
        (port_info::link_speed_enabled, 8),
        (port_info::link_down_default_state, 3),
    ] {
        let fields = [(port_info::hoq_lifetime, 7), bad];
        assert_eq!(set_port(&mut node, 0, &fields), status::INVALID, "{bad:?}");
        assert_eq!(node.port(1).unwrap().get(port_info::hoq_lifetime), 0);
    }
    let all = [(port_info::link_width_enabled, 0xff), (port_info::link_speed_enabled, 15)];
    assert_eq!(set_port(&mut node, 0, &all), 0);
    assert_eq!(node.port(1).unwrap().get(port_info::link_width_enabled), 3);
    // External ports of a switch have no LID: what stands there is not looked at.
    assert_eq!(set_port(&mut switch(), 2, &[(port_info::lid, 0)]), 0);
    // A channel adapter's other port cannot be set by this one.
    let mut two = Node::channel_adapter(identity(0x20, ""), 2);
    assert_eq!(set_port(&mut two, 2, &[]), status::INVALID);
}

#[test]
fn tables_keep_what_was_set() {
    let tables = |ports: u32| {
        vec![
            (attribute::P_KEY_TABLE, 3 | ports << 16),
            (attribute::SL_TO_VL, ports << 8 | ports),
            (attribute::VL_ARBITRATION, 1 << 16 | ports),
            (attribute::VL_ARBITRATION, 3 << 16 | ports),
        ]
    };
    let forwarding = [
        (attribute::LINEAR_FORWARDING, 767),
        (attribute::MULTICAST_FORWARDING, 31),
        (attribute::MULTICAST_FORWARDING, 0),
    ];
    for (mut node, tables) in
        [(adapter(0x10), tables(0)), (switch(), [tables(4), forwarding.to_vec()].concat())]
    {
        for (attribute, modifier) in tables {
            let mut smp = set_to(&get(attribute, modifier));
            for (byte, n) in smp.data_mut().iter_mut().zip(1..) {
                *byte = n & 7;
            }
            let answer = ask(&mut node, &smp);
            assert_eq!(answer.status(), 0);
            let len = match attribute {
                attribute::SL_TO_VL => 8,
                attribute::VL_ARBITRATION => 16,
                _ => 64,
            };
            assert_eq!(answer.data()[..len], smp.data()[..len], "{attribute:#x}");
            assert_eq!(ask(&mut node, &get(attribute, modifier)).data(), answer.data());
        }
    }
    let mut node = adapter(0x10);
    let mut smp = set_to(&get(attribute::GUID_INFO, 0));
    smp.data_mut().fill(1);
    let answer = ask(&mut node, &smp);
    assert_eq!(answer.data()[..8], 0x11_u64.to_be_bytes());
    assert_eq!(answer.data()[8..], [1; 56]);
    let mut smp = set_to(&ask(&mut switch(), &get(attribute::SWITCH_INFO, 0)));
    switch_info::linear_fdb_top.set(smp.data_mut(), 0xc000);
    assert_eq!(ask(&mut switch(), &smp).status(), status::INVALID);
}

fn with_key(mut smp: Smp, key: u64) -> Smp {
    layout::m_key.set64(&mut smp.0, key);
    smp
}

/// An adapter with M_Key 42, protected by `bits`, with a lease of 10 seconds.
fn protected(bits: u32) -> Node {
    let mut node = adapter(0x10);
    let mut smp = set_to(&ask(&mut node, &get(attribute::PORT_INFO, 0)));
    let data = smp.data_mut();
    port_info::m_key.set64(data, 42);
    for (field, value) in [
        (port_info::lid, 9),
        (port_info::master_sm_lid, 3),
        (port_info::port_state, 0),
        (port_info::port_physical_state, 0),
        (port_info::m_key_protect_bits, bits),
        (port_info::m_key_lease_period, 10),
    ] {
        field.set(data, value);
    }
    assert_eq!(ask(&mut node, &smp).status(), 0);
    node
}

#[test]
fn an_m_key_protects_by_its_level() {
    let read = get(attribute::PORT_INFO, 0);
    for (bits, key_read) in [(0, Some(42)), (1, Some(0)), (2, None), (3, None)] {
        let mut node = protected(bits);
        let seen = node.answer(&read, HERE);
        assert_eq!(seen.map(|smp| port_info::m_key.get64(smp.data())), key_read);
        let own = ask(&mut node, &with_key(read, 42));
        assert_eq!(port_info::m_key.get64(own.data()), 42);
        let before = node.port(1).unwrap().get(port_info::m_key_violations);
        assert_eq!(before, u32::from(bits >= 2));
        assert_eq!(node.answer(&with_key(set_to(&own), 41), HERE), None);
        assert_eq!(node.port(1).unwrap().get(port_info::m_key_violations), before + 1);
    }
}

#[test]
fn a_lease_ends_unless_the_manager_comes_back() {
    let read = get(attribute::PORT_INFO, 0);
    let mut node = protected(2);
    assert_eq!(node.answer(&read, HERE), None);
    node.advance(9 * SECOND);
    assert_eq!(node.answer(&read, HERE), None);
    assert!(node.answer(&with_key(read, 42), HERE).is_some());
    node.advance(20 * SECOND);
    assert_eq!(node.answer(&read, HERE), None);
    node.advance(30 * SECOND);
    assert!(node.answer(&read, HERE).is_some());
}

#[test]
fn traps_are_sent_until_they_are_repressed() {
    let mut node = protected(0);
    node.set_capability(1, CAPABILITY_CM, true);
    assert!(node.due_traps().is_empty(), "a port that is not active has none");
    node.set_link(1, true);
    for state in [3, 4] {
        let read = ask(&mut node, &with_key(get(attribute::PORT_INFO, 0), 42));
        let mut smp = with_key(set_to(&read), 42);
        port_info::port_state.set(smp.data_mut(), state);
        port_info::port_physical_state.set(smp.data_mut(), 0);
        assert_eq!(ask(&mut node, &smp).status(), 0);
    }
    node.set_capability(1, CAPABILITY_CM, false);
    let trap = node.due_traps()[0].smp;
    assert_eq!((trap.method(), notice::trap_number.get(trap.data())), (method::TRAP, 144));
    assert_eq!(notice::issuer_lid.get(trap.data()), 9);
    let details = notice::details.bytes(trap.data());
    assert_eq!(trap_144::lid.get(details), 9);
    assert_eq!(trap_144::capability_mask.get(details) & CAPABILITY_CM, 0);
    assert!(node.due_traps().is_empty());
    node.advance(SECOND);
    assert_eq!(node.due_traps()[0].smp, trap);
    let mut repress = trap;
    repress.set(layout::method, method::TRAP_REPRESS.into());
    assert_eq!(node.answer(&with_key(repress, 42), HERE), None);
    node.advance(2 * SECOND);
    assert!(node.due_traps().is_empty());
    // A wrong key is reported with the packet that had it.
    assert_eq!(node.answer(&with_key(repress, 1).directed(&[1]), HERE), None);
    let trap = node.due_traps()[0].smp;
    assert_eq!(notice::trap_number.get(trap.data()), 256);
}

proptest! {
    #[test]
    fn any_packet_has_an_answer_or_none(
        mut bytes in prop::collection::vec(any::<u8>(), 256),
        header in (prop::sample::select(vec![1_u8, 2, 5, 7]), 0_u16..0x33, any::<bool>()),
        modifier in prop_oneof![0_u32..300, any::<u32>(), (0_u32..5).prop_map(|n| n << 16)],
        port in 0_u8..6,
    ) {
        let (method, attribute, is_directed) = header;
        bytes[..4].copy_from_slice(&[1, if is_directed { 0x81 } else { 1 }, 1, method]);
        let mut smp = Smp(bytes.try_into().unwrap());
        smp.set(layout::attr_id, attribute.into());
        smp.set(layout::attr_mod, modifier);
        for mut node in [adapter(0x10), switch()] {
            for _ in 0..2 {
                if let Some(answer) = node.answer(&smp, Source { port, slid: 1 }) {
                    prop_assert_eq!(answer.method(), method::GET_RESP);
                    prop_assert_eq!(layout::tid.get64(&answer.0), layout::tid.get64(&smp.0));
                    prop_assert_eq!(answer.returns(), is_directed);
                }
                node.advance(u64::MAX);
                node.due_traps();
            }
        }
    }
}
