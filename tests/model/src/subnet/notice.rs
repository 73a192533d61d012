//! Traps: what an agent reports without being asked.

use super::node::Node;
use super::port::State;
use super::smp::{Smp, attribute, method};
use crate::host::Nanos;
use crate::ifc::Field;
use crate::ifc::subnet::{notice, port_info, smp, trap_128, trap_144, trap_256};

/// Kinds of notices (IBTA volume 1, 13.4.8.2).
const URGENT: u32 = 1;
const SECURITY: u32 = 2;
const INFORMATIONAL: u32 = 4;
/// The least that this agent lets pass between two traps: a quarter of a second.
const TRAP_INTERVAL: Nanos = 250_000_000;

/// A trap that is sent until a manager represses it (IBTA volume 1, 13.4.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// The packet; its destination is the LID of the master subnet manager.
    pub smp: Smp,
    /// The port whose trap it is.
    pub port: u8,
    /// When it is sent next; at the end of time never.
    due: Nanos,
}

impl Node {
    /// Takes note of a change of a link's state that no SMP asked for (IBTA volume 1, 14.2.5.4,
    /// PortStateChange), and reports it as trap 128.
    pub(super) fn note_state_change(&mut self) {
        let Some(switch) = &mut self.switch else { return };
        switch.port_state_change = true;
        let lid = self.port(0).map_or(0, |port| port.lid());
        let mut details = [0; trap_128::BYTES];
        trap_128::lid.set(&mut details, lid.into());
        self.raise(0, URGENT, 128, &details);
    }

    /// The capability mask of a port changed.
    pub(super) fn raise_144(&mut self, number: u8) {
        let Some(port) = self.port(number) else { return };
        let mut details = [0; trap_144::BYTES];
        trap_144::lid.set(&mut details, port.lid().into());
        trap_144::capability_mask.set(&mut details, port.get(port_info::capability_mask));
        self.raise(number, INFORMATIONAL, 144, &details);
    }

    /// An SMP had a wrong M_Key.
    pub(super) fn raise_256(&mut self, number: u8, bad: &Smp, slid: u16) {
        let mut details = [0; trap_256::BYTES];
        for (field, value) in [
            (trap_256::lid, slid.into()),
            (trap_256::method, bad.method().into()),
            (trap_256::attr_id, bad.attribute().into()),
            (trap_256::attr_mod, bad.modifier()),
        ] {
            field.set(&mut details, value);
        }
        trap_256::m_key.set64(&mut details, bad.m_key());
        if bad.is_directed() {
            let hops = bad.get(smp::hop_count);
            let path = trap_256::dr_return_path.bytes_mut(&mut details);
            let most = path.len() as u32;
            for (place, port) in path.iter_mut().zip(bad.return_path()).take(hops as usize) {
                *place = *port;
            }
            trap_256::dr_slid.set(&mut details, bad.get(smp::dr_slid));
            trap_256::dr_notice.set(&mut details, 1);
            trap_256::dr_path_truncated.set(&mut details, (hops > most).into());
            trap_256::dr_hop_count.set(&mut details, hops.min(most));
        }
        self.raise(number, SECURITY, 256, &details);
    }

    /// Makes a trap due. A port sends none before it is active and knows the master subnet manager
    /// (IBTA volume 1, 14.3, o14-3.2.1); a newer trap of one number replaces the older.
    fn raise(&mut self, number: u8, kind: u32, trap: u32, details: &[u8]) {
        let producer = if self.is_switch() { 2 } else { 1 };
        let Some(port) = self.port(number) else { return };
        if port.state() != State::Active || port.lid() == 0 || port.master_sm_lid() == 0 {
            return;
        }
        let lid = port.lid();
        self.next_tid += 1;
        let mut packet = Smp::request(method::TRAP, attribute::NOTICE, 0, self.next_tid);
        let data = packet.data_mut();
        let fields: [(Field, u32); 5] = [
            (notice::is_generic, 1),
            (notice::notice_type, kind),
            (notice::producer_type, producer),
            (notice::trap_number, trap),
            (notice::issuer_lid, lid.into()),
        ];
        for (field, value) in fields {
            field.set(data, value);
        }
        for (place, byte) in notice::details.bytes_mut(data).iter_mut().zip(details) {
            *place = *byte;
        }
        let is_same = |other: &Trap| {
            other.port == number && notice::trap_number.get(other.smp.data()) == trap
        };
        self.traps.retain(|other| !is_same(other));
        self.traps.push(Trap { smp: packet, port: number, due: self.now });
    }

    /// The traps that are due now, of ports that are active; each is due again after the subnet's
    /// timeout of its port (PortInfo.SubnetTimeOut: 4.096 us times a power of two), or later: the
    /// timeout is the least that may pass between two (IBTA volume 1, 13.4.9).
    pub fn due_traps(&mut self) -> Vec<Trap> {
        let mut due = Vec::new();
        for trap in &mut self.traps {
            let Some(port) = self.ports.get(&trap.port) else { continue };
            if port.state() == State::Active && trap.due <= self.now && trap.due != Nanos::MAX {
                let timeout: Nanos = 4096 << port.get(port_info::subnet_time_out);
                trap.due = self.now.saturating_add(timeout.max(TRAP_INTERVAL));
                due.push(*trap);
            }
        }
        due
    }

    /// When a trap is due next.
    pub(super) fn next_trap(&self) -> Option<Nanos> {
        let is_active =
            |trap: &&Trap| self.port(trap.port).is_some_and(|port| port.state() == State::Active);
        self.traps.iter().filter(is_active).map(|trap| trap.due).min()
    }

    /// A manager has seen a trap.
    pub(super) fn repress(&mut self, packet: &Smp) {
        let tid = smp::tid.get64(&packet.0);
        self.traps.retain(|trap| smp::tid.get64(&trap.smp.0) != tid);
    }
}
