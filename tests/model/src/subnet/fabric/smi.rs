//! The subnet management interface of every node: SMPs on their way, and those that have arrived.

use super::{Cause, End, Fabric, Source};
use crate::ifc::subnet::smp as layout;
use crate::subnet::route::{self, Step};
use crate::subnet::smp::Smp;
use crate::wire::ib::Packet;
use crate::wire::ib::lid::{self, Kind, PERMISSIVE};

impl Fabric {
    /// A frame on the management lane reaches a node on its way, or its destination.
    pub(super) fn deliver_smp(&mut self, end: End, frame: &[u8]) -> Result<(), Cause> {
        let packet = Packet::parse(frame).map_err(Cause::Malformed)?;
        let mut smp = Smp(*packet.subnet_mad().ok_or(Cause::NotSubnetManagement)?);
        if !smp.is_of_class() {
            return Err(Cause::NotSubnetManagement);
        }
        let (slid, dlid) = (packet.lrh.slid, packet.lrh.dlid);
        if dlid != PERMISSIVE && !self.management(end).has_lid(dlid) {
            return Err(Cause::NotMine);
        }
        let is_switch = self.node(end.node).is_switch();
        let step = match smp.is_directed() {
            // Only the maker of a packet has the hop pointer 0, or the LID routed what was before.
            true if dlid == PERMISSIVE
                && !smp.returns()
                && smp.get(layout::hop_pointer) == 0
                && smp.get(layout::hop_count) != 0 =>
            {
                Step::Discard
            }
            true => route::step(&mut smp, is_switch, end.port),
            false => Step::Here,
        };
        self.follow(end, Source { port: end.port, slid }, smp, step, dlid);
        Ok(())
    }

    /// Does what a directed route says next. `dlid` is the destination LID that the packet had.
    pub(super) fn follow(&mut self, at: End, source: Source, smp: Smp, step: Step, dlid: u16) {
        match step {
            Step::Discard => self.drop(at, Cause::Route),
            Step::Port(exit) => {
                let out = End { port: exit, ..at };
                if self.port(out).is_some() && exit != 0 {
                    let frame = Packet::management(PERMISSIVE, PERMISSIVE, &smp.0).build();
                    self.transmit(out, frame, 0);
                } else {
                    self.drop(at, Cause::Route);
                }
            }
            Step::Lid(lid) => {
                let slid = self.management(at).lid();
                self.send_by_lid(at, smp, lid, slid);
            }
            Step::Here => self.take_smp(at, source, smp, dlid),
        }
    }

    /// Gives an SMP to the manager or to the agent of a node.
    fn take_smp(&mut self, at: End, source: Source, smp: Smp, dlid: u16) {
        let node = &mut self.nodes[at.node.0];
        let is_switch = node.is_switch();
        let own = End { port: node.management_port(at.port), ..at };
        if node.is_for_manager(&smp, at.port) {
            let frame = Packet::management(dlid, source.slid, &smp.0).build();
            if let Err(why) = self.put_in_inbox(own, frame) {
                self.drop(own, why);
            }
            return;
        }
        // What a channel adapter's manager asks of its own port came by no other.
        let port = if source.port == 0 { own.port } else { source.port };
        let Some(mut answer) = node.answer(&smp, Source { port, ..source }) else {
            return self.drop(own, Cause::NotAnswered);
        };
        while let Some(number) = self.nodes[at.node.0].retrain.pop_first() {
            self.train(End { port: number, ..at });
        }
        let is_directed_to_here =
            answer.is_directed() && answer.get(layout::dr_dlid) == u32::from(PERMISSIVE);
        if is_directed_to_here {
            let step = route::step(&mut answer, is_switch, 0);
            self.follow(at, Source { port: 0, slid: PERMISSIVE }, answer, step, PERMISSIVE);
        } else {
            // The part by LID: back to where the request came from (IBTA volume 1, 14.2.2).
            self.send_by_lid(at, answer, source.slid, dlid);
        }
    }

    /// Sends an SMP to a LID: by the port of a channel adapter, as the tables of a switch say, or to
    /// the node itself.
    pub(super) fn send_by_lid(&mut self, from: End, mut smp: Smp, dlid: u16, slid: u16) {
        let is_switch = self.node(from.node).is_switch();
        if self.management(from).has_lid(dlid) {
            let step = match smp.is_directed() {
                true => route::step(&mut smp, is_switch, 0),
                false => Step::Here,
            };
            return self.follow(from, Source { port: 0, slid }, smp, step, dlid);
        }
        let exit = match is_switch {
            true => self.node(from.node).exits(dlid, 0).map(|exits| exits.first().copied()),
            false => Ok(Some(from.port)),
        };
        match exit {
            Ok(Some(port)) if lid::kind(dlid) == Kind::Unicast => {
                let frame = Packet::management(dlid, slid, &smp.0).build();
                self.transmit(End { port, ..from }, frame, 0);
            }
            Ok(_) => self.drop(from, Cause::DlidMapping),
            Err(why) => self.drop(from, why),
        }
    }
}
