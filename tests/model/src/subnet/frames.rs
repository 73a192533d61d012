//! Frames through a node: in at a port, out by another one, to the node's own queue pairs.

use super::cause::Cause;
use super::node::Node;
use super::port::{Port, State};
use crate::ifc::Field;
use crate::ifc::subnet::port_info;
use crate::wire::ib::lid::{self, Kind, PERMISSIVE};
use crate::wire::ib::{Packet, VL_MANAGEMENT, link, packet};

/// Frames that wait at a port before more are dropped.
const INBOX_DEPTH: usize = 1 << 12;

impl Node {
    /// A frame comes out of the cable of a port. What leaves the node because of it is taken by
    /// [`Node::next_frame`], what is for its queue pairs by [`Node::receive`].
    pub fn arrive(&mut self, port: u8, frame: Vec<u8>) {
        if let Err(why) = self.pass(port, frame) {
            self.drop(port, why);
        }
    }

    /// Sends a frame of the node's own queue pairs by a port.
    pub fn send(&mut self, port: u8, frame: Vec<u8>) {
        let Some(lanes) = self.port(port).map(Port::lanes) else { return };
        let vl = lane_of(&frame);
        if vl != VL_MANAGEMENT && vl >= lanes {
            return self.drop(port, Cause::VlMapping);
        }
        self.transmit(port, frame);
    }

    /// Takes a frame of the node's own queue pairs that is for this very port of a channel adapter.
    pub fn loop_back(&mut self, port: u8, frame: &[u8]) {
        let outcome = if lane_of(frame) == VL_MANAGEMENT {
            self.deliver_smp(port, frame)
        } else if self.port(port).is_none_or(|port| port.state() != State::Active) {
            Err(Cause::Inactive)
        } else {
            self.deliver(port, frame)
        };
        if let Err(why) = outcome {
            self.drop(port, why);
        }
    }

    /// The next frame for the cable of a port, traps that are due among them.
    pub fn next_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        if self.outbox.is_empty() {
            self.send_traps();
        }
        self.outbox.pop_front()
    }

    /// The next frame for the queue pairs of a port: port 0 of a switch, the port by which it came
    /// of a channel adapter.
    pub fn receive(&mut self, port: u8) -> Option<Vec<u8>> {
        self.inboxes.get_mut(&port)?.pop_front()
    }

    /// Frames dropped at a port for one cause.
    #[must_use]
    pub fn dropped(&self, port: u8, why: Cause) -> u64 {
        self.drops.get(&(port, why)).copied().unwrap_or(0)
    }

    /// Frames dropped, by port and cause.
    pub fn drops(&self) -> impl Iterator<Item = (u8, Cause, u64)> + '_ {
        self.drops.iter().map(|((port, why), count)| (*port, *why, *count))
    }

    /// Counts from zero again.
    pub fn clear_drops(&mut self) {
        self.drops.clear();
    }

    /// Counts a dropped frame.
    pub(crate) fn drop(&mut self, port: u8, why: Cause) {
        *self.drops.entry((port, why)).or_default() += 1;
    }

    /// The port whose LIDs count for packets at port `at`.
    pub(super) fn management(&self, at: u8) -> Option<&Port> {
        self.port(self.management_port(at))
    }

    /// Whether `lid` is one of the node's for packets at port `at`.
    pub(super) fn has_lid(&self, at: u8, lid: u16) -> bool {
        self.management(at).is_some_and(|port| port.has_lid(lid))
    }

    /// Hands a frame to the cable of a port, if the port's state lets it.
    pub(super) fn transmit(&mut self, exit: u8, frame: Vec<u8>) {
        let is_management = lane_of(&frame) == VL_MANAGEMENT;
        let least = if is_management { State::Init } else { State::Active };
        let verdict = match self.port(exit) {
            Some(port) if port.state() >= least => {
                match is_management || link::fits(&frame, port.neighbor_mtu()) {
                    true => Ok(()),
                    false => Err(Cause::NeighborMtu),
                }
            }
            _ => Err(Cause::Inactive),
        };
        match verdict {
            Ok(()) => self.outbox.push_back((exit, frame)),
            Err(why) => self.drop(exit, why),
        }
    }

    fn pass(&mut self, at: u8, frame: Vec<u8>) -> Result<(), Cause> {
        let lrh = link::check(&frame).map_err(Cause::Link)?;
        let state = self.port(at).map_or(State::Down, Port::state);
        let is_management = lrh.vl == VL_MANAGEMENT;
        if state < if is_management { State::Init } else { State::Armed } {
            return Err(Cause::Inactive);
        }
        if !is_management {
            self.activate(at);
        }
        let exits = if !self.is_switch() {
            vec![at]
        } else if is_management && lrh.dlid == PERMISSIVE {
            vec![0]
        } else {
            self.exits(lrh.dlid, at)?
        };
        if !is_management && self.is_switch() {
            self.enforce(at, &frame, port_info::partition_enforcement_inbound)?;
        }
        let own = self.management_port(at);
        for exit in exits {
            if exit != own {
                self.relay(at, exit, frame.clone());
            } else if is_management {
                self.deliver_smp(at, &frame)?;
            } else {
                self.deliver(own, &frame)?;
            }
        }
        Ok(())
    }

    /// Sends a frame on by another port of a switch.
    fn relay(&mut self, from: u8, exit: u8, mut frame: Vec<u8>) {
        if lane_of(&frame) != VL_MANAGEMENT {
            let Some(port) = self.port(exit) else { return };
            let vl = port.lane(from, frame.get(1).map_or(0, |byte| byte >> 4));
            let verdict = match vl < port.lanes() {
                true => self.enforce(exit, &frame, port_info::partition_enforcement_outbound),
                false => Err(Cause::VlMapping),
            };
            if let Err(why) = verdict {
                return self.drop(exit, why);
            }
            link::set_vl(&mut frame, vl);
        }
        self.transmit(exit, frame);
    }

    /// Checks the partition of a frame where a switch port enforces it (IBTA volume 1, 18.2.4).
    fn enforce(&mut self, at: u8, frame: &[u8], which: Field) -> Result<(), Cause> {
        let port = self.port(at).filter(|port| port.get(which) != 0);
        let is_foreign =
            port.zip(packet::p_key(frame)).is_some_and(|(port, p_key)| !port.is_member(p_key));
        if is_foreign { Err(self.count_p_key(at)) } else { Ok(()) }
    }

    /// Counts a frame of a foreign partition.
    pub(crate) fn count_p_key(&mut self, at: u8) -> Cause {
        if let Some(port) = self.ports.get_mut(&at) {
            port.count(port_info::p_key_violations);
        }
        Cause::PKey
    }

    /// A frame that is no subnet management packet reaches its destination.
    fn deliver(&mut self, own: u8, frame: &[u8]) -> Result<(), Cause> {
        let packet = Packet::parse(frame).map_err(Cause::Malformed)?;
        let port = self.port(own).ok_or(Cause::NotMine)?;
        match lid::kind(packet.lrh.dlid) {
            Kind::Reserved => return Err(Cause::LidZero),
            Kind::Permissive => return Err(Cause::PermissiveLid),
            Kind::Unicast if !port.has_lid(packet.lrh.dlid) => return Err(Cause::NotMine),
            Kind::Unicast | Kind::Multicast => {}
        }
        if packet.bth.dest_qp == 0 {
            return Err(Cause::QpZero);
        }
        if !port.is_member(packet.bth.pkey) {
            return Err(self.count_p_key(own));
        }
        self.put_in_inbox(own, frame.to_vec());
        Ok(())
    }

    pub(super) fn put_in_inbox(&mut self, port: u8, frame: Vec<u8>) {
        let inbox = self.inboxes.entry(port).or_default();
        if inbox.len() < INBOX_DEPTH {
            inbox.push_back(frame);
        } else {
            self.drop(port, Cause::InboxFull);
        }
    }
}

/// The virtual lane of a frame.
fn lane_of(frame: &[u8]) -> u8 {
    frame.first().map_or(0, |byte| byte >> 4)
}
