//! A subnet manager for tests: discovers by directed route, assigns LIDs, programs the linear
//! table, brings ports to Active.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::ifc::subnet::{node_info, port_info, switch_info};
use crate::subnet::smp::attribute;
use crate::subnet::{End, Fabric};
use crate::wire::ib::{Packet, lid};

/// What was found at the end of a path.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: Vec<u8>,
    pub(super) is_switch: bool,
    pub(super) ports: u8,
    pub(super) lid: u16,
    /// Port of the switch by which the path leaves it.
    exit: Option<u8>,
}

pub(super) struct Manager {
    pub(super) at: End,
    pub(super) nodes: BTreeMap<u64, Found>,
    tid: u64,
}

impl Manager {
    pub(super) fn new(at: End) -> Self {
        Self { at, nodes: BTreeMap::new(), tid: 0 }
    }

    /// Sends a request along a path and takes its answer.
    pub(super) fn ask(&mut self, fabric: &mut Fabric, mut smp: Smp, path: &[u8]) -> Option<Smp> {
        self.tid += 1;
        layout::tid.set64(&mut smp.0, self.tid);
        fabric.submit(self.at, smp.directed(path), lid::PERMISSIVE);
        self.take_answer(fabric)
    }

    /// The same by LID.
    pub(super) fn ask_lid(&mut self, fabric: &mut Fabric, mut smp: Smp, dlid: u16) -> Option<Smp> {
        self.tid += 1;
        layout::tid.set64(&mut smp.0, self.tid);
        fabric.submit(self.at, smp, dlid);
        self.take_answer(fabric)
    }

    fn take_answer(&self, fabric: &mut Fabric) -> Option<Smp> {
        while let Some(frame) = fabric.receive(self.at) {
            let smp = Smp(*Packet::parse(&frame).unwrap().subnet_mad().unwrap());
            if smp.method() == method::GET_RESP && layout::tid.get64(&smp.0) == self.tid {
                return Some(smp);
            }
        }
        None
    }

    /// Finds every node, breadth first.
    pub(super) fn discover(&mut self, fabric: &mut Fabric) {
        let mut paths = VecDeque::from([vec![]]);
        let mut next_lid = 1;
        while let Some(path) = paths.pop_front() {
            let answer = self.ask(fabric, get(attribute::NODE_INFO, 0), &path).unwrap();
            let data = answer.data();
            let guid = node_info::node_guid.get64(data);
            if self.nodes.contains_key(&guid) {
                continue;
            }
            let is_switch = node_info::node_type.get(data) == 2;
            let ports = node_info::num_ports.get(data) as u8;
            let own_port = node_info::local_port_num.get(data) as u8;
            let exits = if is_switch { 1..=ports } else { own_port..=own_port };
            for port in exits.filter(|_| is_switch || path.is_empty()) {
                let info = self.ask(fabric, get(attribute::PORT_INFO, port.into()), &path).unwrap();
                if port_info::port_state.get(info.data()) > 1 {
                    paths.push_back([path.as_slice(), &[port]].concat());
                }
            }
            let exit = path.last().copied().filter(|_| path.len() > 1);
            let found = Found { path, is_switch, ports, lid: next_lid, exit };
            self.nodes.insert(guid, found);
            next_lid += 1;
        }
    }

    /// Sets fields of a port's PortInfo; returns the status.
    pub(super) fn set_port(
        &mut self,
        fabric: &mut Fabric,
        path: &[u8],
        port: u8,
        fields: &[(crate::ifc::Field, u32)],
    ) -> u16 {
        let read = self.ask(fabric, get(attribute::PORT_INFO, port.into()), path).unwrap();
        let mut smp = set_to(&read);
        let states = [(port_info::port_state, 0), (port_info::port_physical_state, 0)];
        for (field, value) in states.iter().chain(fields) {
            field.set(smp.data_mut(), *value);
        }
        self.ask(fabric, smp, path).unwrap().status()
    }

    /// Assigns LIDs and programs the linear tables of a fabric with one switch.
    pub(super) fn assign(&mut self, fabric: &mut Fabric) {
        let own = self.nodes.values().find(|node| node.path.is_empty()).unwrap().lid;
        let nodes: Vec<_> =
            self.nodes.values().map(|n| (n.path.clone(), n.is_switch, n.ports, n.lid)).collect();
        let mut table = [255; 64];
        for node in self.nodes.values() {
            table[usize::from(node.lid)] = if node.is_switch { 0 } else { node.exit.unwrap_or(0) };
        }
        let switch = nodes.iter().find(|node| node.1).unwrap().0.clone();
        // The switch says by which port the manager is reached.
        let info = self.ask(fabric, get(attribute::NODE_INFO, 0), &switch).unwrap();
        table[usize::from(own)] = node_info::local_port_num.get(info.data()) as u8;
        for (path, is_switch, ports, lid) in &nodes {
            let mtu = (port_info::neighbor_mtu, 4);
            let fields =
                [(port_info::lid, (*lid).into()), (port_info::master_sm_lid, own.into()), mtu];
            assert_eq!(self.set_port(fabric, path, 0, &fields), 0);
            for port in 1..=if *is_switch { *ports } else { 0 } {
                assert_eq!(self.set_port(fabric, path, port, &[mtu]), 0);
            }
        }
        let mut smp = set_to(&self.ask(fabric, get(attribute::SWITCH_INFO, 0), &switch).unwrap());
        switch_info::linear_fdb_top.set(smp.data_mut(), 63);
        assert_eq!(self.ask(fabric, smp, &switch).unwrap().status(), 0);
        let mut smp = set_to(&get(attribute::LINEAR_FORWARDING, 0));
        smp.data_mut().copy_from_slice(&table);
        assert_eq!(self.ask(fabric, smp, &switch).unwrap().status(), 0);
    }

    /// Brings every port with a link to a state, unless it is there or beyond.
    pub(super) fn set_states(&mut self, fabric: &mut Fabric, state: u32) {
        let nodes: Vec<_> =
            self.nodes.values().map(|n| (n.path.clone(), n.is_switch, n.ports)).collect();
        for (path, is_switch, ports) in nodes {
            let ports = if is_switch { 1..=ports } else { 0..=0 };
            for port in ports {
                let read = self.ask(fabric, get(attribute::PORT_INFO, port.into()), &path).unwrap();
                if (2..state).contains(&port_info::port_state.get(read.data())) {
                    let fields = [(port_info::port_state, state)];
                    assert_eq!(self.set_port(fabric, &path, port, &fields), 0);
                }
            }
        }
    }

    /// The LID of the node with that GUID.
    pub(super) fn lid(&self, guid: u64) -> u16 {
        self.nodes[&guid].lid
    }

    pub(super) fn bring_up(&mut self, fabric: &mut Fabric) {
        self.discover(fabric);
        self.assign(fabric);
        self.set_states(fabric, 3);
        self.set_states(fabric, 4);
    }
}
