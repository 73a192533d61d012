//! The subnet management interface of a node: SMPs on their way, and those that have arrived.

use super::agent::Source;
use super::cause::Cause;
use super::node::Node;
use super::route::{self, Step};
use super::smp::Smp;
use crate::ifc::subnet::smp as layout;
use crate::wire::ib::Packet;
use crate::wire::ib::lid::{self, Kind, PERMISSIVE};

impl Node {
    /// Sends an SMP by a port, as the node's subnet manager would: along its route, or to `dlid`.
    pub fn submit(&mut self, from: u8, mut smp: Smp, dlid: u16) {
        if self.port(from).is_none() {
            return;
        }
        let source = Source { port: 0, slid: PERMISSIVE };
        if smp.is_directed() {
            let step = route::step(&mut smp, self.is_switch(), 0);
            let is_own_port = self.is_switch() || step == Step::Port(from);
            let step = if is_own_port || step == Step::Here { step } else { Step::Discard };
            self.follow(from, source, smp, step, PERMISSIVE);
        } else {
            let slid = self.management(from).map_or(0, |port| port.lid());
            self.send_by_lid(from, smp, dlid, slid);
        }
    }

    /// A frame on the management lane reaches the node on its way, or its destination.
    pub(super) fn deliver_smp(&mut self, at: u8, frame: &[u8]) -> Result<(), Cause> {
        let packet = Packet::parse(frame).map_err(Cause::Malformed)?;
        let mut smp = Smp(*packet.subnet_mad().ok_or(Cause::NotSubnetManagement)?);
        if !smp.is_of_class() {
            return Err(Cause::NotSubnetManagement);
        }
        let (slid, dlid) = (packet.lrh.slid, packet.lrh.dlid);
        if dlid != PERMISSIVE && !self.has_lid(at, dlid) {
            return Err(Cause::NotMine);
        }
        if self.agent_in_software {
            self.put_in_inbox(self.management_port(at), frame.to_vec());
            return Ok(());
        }
        let step = match smp.is_directed() {
            // Only the maker of a packet has the hop pointer 0, or the LID routed what was before.
            true if dlid == PERMISSIVE
                && !smp.returns()
                && smp.get(layout::hop_pointer) == 0
                && smp.get(layout::hop_count) != 0 =>
            {
                Step::Discard
            }
            true => route::step(&mut smp, self.is_switch(), at),
            false => Step::Here,
        };
        self.follow(at, Source { port: at, slid }, smp, step, dlid);
        Ok(())
    }

    /// Does what a directed route says next. `dlid` is the destination LID that the packet had.
    fn follow(&mut self, at: u8, source: Source, smp: Smp, step: Step, dlid: u16) {
        match step {
            Step::Discard => self.drop(at, Cause::Route),
            Step::Port(exit) => {
                if self.port(exit).is_some() && exit != 0 {
                    let frame = Packet::management(PERMISSIVE, PERMISSIVE, &smp.0).build();
                    self.transmit(exit, frame);
                } else {
                    self.drop(at, Cause::Route);
                }
            }
            Step::Lid(lid) => {
                let slid = self.management(at).map_or(0, |port| port.lid());
                self.send_by_lid(at, smp, lid, slid);
            }
            Step::Here => self.take_smp(at, source, smp, dlid),
        }
    }

    /// Gives an SMP to the manager or to the agent.
    fn take_smp(&mut self, at: u8, source: Source, smp: Smp, dlid: u16) {
        let own = self.management_port(at);
        if self.is_for_manager(&smp, at) {
            let frame = Packet::management(dlid, source.slid, &smp.0).build();
            return self.put_in_inbox(own, frame);
        }
        // What a channel adapter's manager asks of its own port came by no other.
        let port = if source.port == 0 { own } else { source.port };
        let Some(mut answer) = self.answer(&smp, Source { port, ..source }) else {
            return self.drop(own, Cause::NotAnswered);
        };
        let is_directed_to_here =
            answer.is_directed() && answer.get(layout::dr_dlid) == u32::from(PERMISSIVE);
        if is_directed_to_here {
            let step = route::step(&mut answer, self.is_switch(), 0);
            self.follow(at, Source { port: 0, slid: PERMISSIVE }, answer, step, PERMISSIVE);
        } else {
            // The part by LID: back to where the request came from (IBTA volume 1, 14.2.2).
            self.send_by_lid(at, answer, source.slid, dlid);
        }
    }

    /// Sends an SMP to a LID: by the port of a channel adapter, as the tables of a switch say, or to
    /// the node itself.
    fn send_by_lid(&mut self, from: u8, mut smp: Smp, dlid: u16, slid: u16) {
        if self.has_lid(from, dlid) {
            let step = match smp.is_directed() {
                true => route::step(&mut smp, self.is_switch(), 0),
                false => Step::Here,
            };
            return self.follow(from, Source { port: 0, slid }, smp, step, dlid);
        }
        let exit = match self.is_switch() {
            true => self.exits(dlid, 0).map(|exits| exits.first().copied()),
            false => Ok(Some(from)),
        };
        match exit {
            Ok(Some(port)) if lid::kind(dlid) == Kind::Unicast => {
                let frame = Packet::management(dlid, slid, &smp.0).build();
                self.transmit(port, frame);
            }
            Ok(_) => self.drop(from, Cause::DlidMapping),
            Err(why) => self.drop(from, why),
        }
    }

    /// Sends the traps that are due.
    pub(super) fn send_traps(&mut self) {
        for trap in self.due_traps() {
            let Some(port) = self.management(trap.port) else { continue };
            let (slid, dlid) = (port.lid(), port.master_sm_lid());
            self.send_by_lid(trap.port, trap.smp, dlid, slid);
        }
    }
}
