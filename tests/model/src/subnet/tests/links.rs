//! States of links as cables are plugged and pulled, and what is reported of it.

use super::fabric::Net;
use super::*;
use crate::ifc::subnet::{notice, port_info, switch_info};
use crate::subnet::Cause;
use crate::subnet::port::{Physical, State};
use crate::subnet::smp::attribute;
use crate::wire::ib::Packet;

/// The number of a trap that waits at the manager's port.
fn trap(net: &mut Net) -> Option<u32> {
    let frame = net.fabric.receive(net.ends[0])?;
    let smp = Smp(*Packet::parse(&frame).unwrap().subnet_mad().unwrap());
    (smp.method() == method::TRAP).then(|| notice::trap_number.get(smp.data()))
}

fn has_changed(net: &mut Net) -> bool {
    let read = net.manager.ask(&mut net.fabric, get(attribute::SWITCH_INFO, 0), &[1]).unwrap();
    switch_info::port_state_change.is_set(read.data())
}

/// Clears PortStateChange and what waits.
fn clear(net: &mut Net) {
    let read = net.manager.ask(&mut net.fabric, get(attribute::SWITCH_INFO, 0), &[1]).unwrap();
    net.manager.ask(&mut net.fabric, set_to(&read), &[1]).unwrap();
    while net.fabric.receive(net.ends[0]).is_some() {}
}

#[test]
fn a_cable_brings_both_ends_to_init() {
    let mut net = Net::cabled();
    for end in [net.ends[1], net.switch_end(3)] {
        assert_eq!(net.state(end), State::Init);
        let port = net.fabric.node(end.node).port(end.port).unwrap();
        assert_eq!(port.physical(), Physical::LinkUp);
    }
    assert_eq!(net.state(net.switch_end(1)), State::Down);
    net.fabric.disconnect(net.ends[1]);
    for end in [net.ends[1], net.switch_end(3)] {
        assert_eq!(net.state(end), State::Down);
    }
}

#[test]
fn only_management_passes_before_a_link_is_active() {
    let mut net = Net::cabled();
    net.manager.discover(&mut net.fabric);
    net.manager.assign(&mut net.fabric);
    let packet = net.datagram(0, net.lid(1), b"x").build();
    net.fabric.send(net.ends[0], packet.clone());
    assert_eq!(net.fabric.dropped(net.ends[0], Cause::Inactive), 1);
    net.manager.set_states(&mut net.fabric, 3);
    net.fabric.send(net.ends[0], packet.clone());
    assert_eq!(net.fabric.dropped(net.ends[0], Cause::Inactive), 2);
    // Once the sender and the switch's output are active, a frame activates what is armed.
    let up = [(port_info::port_state, 4)];
    for (path, port) in [(&[][..], 0), (&[1][..], 3)] {
        assert_eq!(net.manager.set_port(&mut net.fabric, path, port, &up), 0);
    }
    net.fabric.send(net.ends[0], packet);
    assert!(net.fabric.receive(net.ends[1]).is_some());
    assert_eq!(net.state(net.switch_end(2)), State::Active);
    assert_eq!(net.state(net.ends[1]), State::Active);
}

#[test]
fn a_switch_reports_links_that_come_and_go() {
    let mut net = Net::active();
    clear(&mut net);
    assert!(!has_changed(&mut net));
    let (end, peer) = (net.ends[2], net.switch_end(4));
    net.fabric.disconnect(end);
    assert_eq!(trap(&mut net), Some(128));
    assert!(has_changed(&mut net));
    clear(&mut net);
    net.fabric.advance(1_000_000_000);
    assert_eq!(trap(&mut net), Some(128), "nobody repressed it");
    net.fabric.connect(end, peer);
    assert_eq!(net.state(end), State::Init);
    let packet = net.datagram(0, net.lid(2), b"x").build();
    net.fabric.send(net.ends[0], packet);
    assert_eq!(net.fabric.dropped(peer, Cause::Inactive), 1);
    for state in [3, 4] {
        net.manager.set_states(&mut net.fabric, state);
    }
    assert_eq!([net.state(end), net.state(peer)], [State::Active; 2]);
}

#[test]
fn a_manager_bounces_and_disables_a_link() {
    let mut net = Net::active();
    let (end, peer) = (net.ends[2], net.switch_end(4));
    let down = [(port_info::port_state, 1)];
    assert_eq!(net.manager.set_port(&mut net.fabric, &[1], 4, &down), 0);
    assert_eq!([net.state(end), net.state(peer)], [State::Init; 2]);
    let disable = [(port_info::port_state, 1), (port_info::port_physical_state, 3)];
    assert_eq!(net.manager.set_port(&mut net.fabric, &[1], 4, &disable), 0);
    assert_eq!([net.state(end), net.state(peer)], [State::Down; 2]);
    let poll = [(port_info::port_state, 1), (port_info::port_physical_state, 2)];
    assert_eq!(net.manager.set_port(&mut net.fabric, &[1], 4, &poll), 0);
    assert_eq!([net.state(end), net.state(peer)], [State::Init; 2]);
}

#[test]
fn adapters_report_their_capabilities_to_the_manager() {
    let mut net = Net::active();
    clear(&mut net);
    let node = net.ends[3].node;
    net.fabric.node_mut(node).set_capability(1, 1 << 16, true);
    net.fabric.advance(1);
    assert_eq!(trap(&mut net), Some(144));
}
