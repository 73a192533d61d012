//! A channel adapter or a switch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::cause::Cause;
use super::notice::Trap;
use super::port::{Physical, Port, State};
use super::switch::Switch;
use crate::host::Nanos;
use crate::ifc::subnet::port_info;

/// What a node says of itself (IBTA volume 1, 14.2.5.2 and 14.2.5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// GUID of the node; ports of a channel adapter add their number.
    pub node_guid: u64,
    /// GUID of the enclosure.
    pub system_guid: u64,
    /// NodeDescription, of which 64 bytes are used.
    pub description: String,
    /// OUI of the vendor.
    pub vendor_id: u32,
    /// Device as the vendor numbers it.
    pub device_id: u16,
}

/// A node with its ports. Its owner moves its frames: [`Node::arrive`], [`Node::next_frame`].
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) identity: Identity,
    pub(super) ports: BTreeMap<u8, Port>,
    /// Forwarding tables of a switch.
    pub(super) switch: Option<Switch>,
    /// Traps that no manager has repressed yet.
    pub(super) traps: Vec<Trap>,
    pub(super) next_tid: u64,
    pub(super) now: Nanos,
    /// Ports that must train again.
    pub(super) retrain: BTreeSet<u8>,
    /// Frames for the cables, by port.
    pub(super) outbox: VecDeque<(u8, Vec<u8>)>,
    /// Frames for the node's own queue pairs.
    pub(super) inboxes: BTreeMap<u8, VecDeque<Vec<u8>>>,
    pub(super) drops: BTreeMap<(u8, Cause), u64>,
    /// SMPs for the agent are given to queue pair 0: software answers them.
    pub(super) agent_in_software: bool,
}

impl Node {
    /// A channel adapter with `ports` ports, from 1.
    #[must_use]
    pub fn channel_adapter(identity: Identity, ports: u8) -> Self {
        let guid = identity.node_guid;
        let new = |n: u8| (n, Port::new(guid.wrapping_add(n.into()), false));
        Self::new(identity, (1..=ports).map(new).collect(), None)
    }

    /// A switch with `ports` external ports, from 1, and the management port 0.
    #[must_use]
    pub fn switch(identity: Identity, ports: u8) -> Self {
        let guid = identity.node_guid;
        let new = |n: u8| (n, Port::new(guid, n == 0));
        Self::new(identity, (0..=ports).map(new).collect(), Some(Switch::default()))
    }

    fn new(identity: Identity, ports: BTreeMap<u8, Port>, switch: Option<Switch>) -> Self {
        Self {
            identity,
            ports,
            switch,
            traps: Vec::new(),
            next_tid: 0,
            now: 0,
            retrain: BTreeSet::new(),
            outbox: VecDeque::new(),
            inboxes: BTreeMap::new(),
            drops: BTreeMap::new(),
            agent_in_software: false,
        }
    }

    /// What the node says of itself.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether this is a switch.
    #[must_use]
    pub fn is_switch(&self) -> bool {
        self.switch.is_some()
    }

    /// Number of external ports.
    #[must_use]
    pub fn external_ports(&self) -> u8 {
        self.ports.keys().next_back().copied().unwrap_or(0)
    }

    /// A port by number.
    #[must_use]
    pub fn port(&self, number: u8) -> Option<&Port> {
        self.ports.get(&number)
    }

    /// The port whose LID and M_Key count for packets that come by port `from`: that port, or port 0
    /// of a switch.
    #[must_use]
    pub fn management_port(&self, from: u8) -> u8 {
        if self.is_switch() { 0 } else { from }
    }

    /// Lets time pass: leases of M_Keys end, traps become due again.
    pub fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        for port in self.ports.values_mut() {
            if port.lease_ends.is_some_and(|end| end <= self.now) {
                port.lease_ends = None;
                port_info::m_key_protect_bits.set(&mut port.info, 0);
            }
        }
    }

    /// Whether a port trains when there is a cable: no manager has switched it off.
    #[must_use]
    pub fn wants_link(&self, number: u8) -> bool {
        self.port(number).is_some_and(Port::wants_link)
    }

    /// A port whose link must go down and, if both ends want it, train again: its manager asked for
    /// it. To be taken after every call that lets frames in.
    pub fn take_retrain(&mut self) -> Option<u8> {
        self.retrain.pop_first()
    }

    /// The link of a port is trained, or lost.
    pub fn set_link(&mut self, number: u8, is_up: bool) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        let state = if is_up { State::Init } else { State::Down };
        if is_up {
            port.set_physical(Physical::LinkUp);
        } else if port.physical() == Physical::LinkUp {
            port.set_physical(Physical::Polling);
        }
        if port.state() != state {
            port.set_state(state);
            self.note_state_change();
        }
    }

    /// A frame that is no subnet management packet came while the port was armed: the other end is
    /// active, so this one becomes so (IBTA volume 1, 7.2).
    pub(super) fn activate(&mut self, number: u8) {
        if let Some(port) = self.ports.get_mut(&number) {
            if port.state() == State::Armed {
                port.set_state(State::Active);
                self.note_state_change();
            }
        }
    }

    /// Lets software answer what is for the agent: it waits as it came for [`Node::receive`].
    pub fn leave_agent_to_software(&mut self, leaves: bool) {
        self.agent_in_software = leaves;
    }

    /// Gives a port its GUID.
    pub fn set_port_guid(&mut self, number: u8, guid: u64) {
        if let Some(port) = self.ports.get_mut(&number) {
            port.guids[0] = guid;
        }
    }

    /// Changes the NodeDescription.
    pub fn set_description(&mut self, text: String) {
        self.identity.description = text;
    }

    /// When [`Node::advance`] wants to be called: a lease ends or a trap is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let leases = self.ports.values().filter_map(|port| port.lease_ends);
        leases.chain(self.next_trap()).min()
    }

    /// Counts a datagram with a wrong Q_Key.
    pub fn count_q_key(&mut self, number: u8) {
        if let Some(port) = self.ports.get_mut(&number) {
            port.count(port_info::q_key_violations);
        }
    }

    /// Sets or clears bits of a port's capability mask, as an SM or CM on it begins and ends, and
    /// reports that.
    pub fn set_capability(&mut self, number: u8, bits: u32, is_on: bool) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        let old = port.get(port_info::capability_mask);
        let new = if is_on { old | bits } else { old & !bits };
        if new != old {
            port_info::capability_mask.set(&mut port.info, new);
            self.raise_144(number);
        }
    }
}
