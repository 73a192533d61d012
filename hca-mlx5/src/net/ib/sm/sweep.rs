//! The sweep: one request at a time, to the own port's agent and through the cable.

use dat_core::Instant;

use super::datagram::Destination;
use super::params::{
    CHANGES, RESPONSE_TIME, RETRIES, SUBNET_PREFIX, SUBNET_TIMEOUT, SWEEP_INTERVAL, TRAP_DELAY,
};
use super::ports::{Port, Side};
use super::request::{Request, Step};
use super::{State, SubnetManager};
use crate::prm::mad::{Mad, MadHeader, method, status};
use crate::prm::put;
use crate::prm::smp::{
    self, NodeInfo, PortInfo, SmInfo, SmpHeader, capability, node_type, physical_state, port_state,
};

impl SubnetManager {
    pub(super) fn begin(&mut self, now: Instant, step: Step) {
        self.next_tid = self.next_tid.wrapping_add(1);
        let tid = self.next_tid;
        self.wake = None;
        self.request = Some(Request { step, tid, due: now, is_queued: true, retries: RETRIES });
    }

    /// Ends a sweep.
    pub(super) fn rest(&mut self, now: Instant) {
        let again = core::mem::take(&mut self.sweeps_again);
        self.wake = Some(now + if again { TRAP_DELAY } else { SWEEP_INTERVAL });
    }

    pub(super) fn start_sweep(&mut self, now: Instant) {
        if self.state == State::NotActive {
            return;
        }
        // A port without a link, or at a switch, is in that state until the sweep finds another.
        if !matches!(self.state, State::Master | State::Switch | State::Down) {
            self.state = State::Discovering;
        }
        self.changes = 0;
        for port in &mut self.ports {
            port.was_assigned = false;
        }
        self.begin(now, Step::Node(Side::Own));
    }

    pub(super) fn lose_link(&mut self, now: Instant) {
        self.state = State::Down;
        self.request = None;
        self.ports = [Port::NONE; 2];
        self.groups.clear();
        self.rest(now);
    }

    /// The request to send, if one waits.
    pub(super) fn emit_request(&mut self, now: Instant, mad: &mut Mad) -> Option<Destination> {
        let request = self.request.as_mut().filter(|request| request.is_queued)?;
        request.is_queued = false;
        request.due = now + RESPONSE_TIME;
        let Request { step, tid, .. } = *request;
        let (attr_id, control) = step.what();
        let method = if control.is_some() { method::SET } else { method::GET };
        *mad = Self::smp(method, attr_id, control.unwrap_or(0), tid);
        match step {
            Step::Assign(side) => put(mad, smp::DATA, &self.assignment(side).0),
            Step::Arm(side) => put(mad, smp::DATA, &self.change(side, port_state::ARMED).0),
            Step::Activate(side) => put(mad, smp::DATA, &self.change(side, port_state::ACTIVE).0),
            Step::HandOver | Step::Acknowledge => put(mad, smp::DATA, &self.sm_info().0),
            Step::Node(_) | Step::Port(_) | Step::Manager | Step::Poll => {}
        }
        if step.side() == Side::Own {
            return Some(Destination::Agent);
        }
        // One hop, by the own port; the first step is the sender's (IBTA volume 1, C14-9).
        let mut header = SmpHeader(&mut *mad);
        header.set_hop_cnt(1);
        header.set_hop_ptr(1);
        put(mad, smp::INITIAL_PATH + 1, &[self.config.port]);
        Some(Destination::Directed)
    }

    pub(super) fn take_response(&mut self, now: Instant, side: Side, mad: &Mad) {
        let header = MadHeader(mad);
        let request = self.request.filter(|request| {
            !request.is_queued
                && request.tid == header.tid()
                && request.step.side() == side
                && request.step.what().0 == header.attr_id()
        });
        let Some(Request { step, .. }) = request else {
            self.counters.malformed += 1;
            return;
        };
        self.request = None;
        // The bit of the direction is no status.
        if SmpHeader(mad).status() == status::SUCCESS {
            self.done(now, step, mad);
        } else {
            self.fail(now, step);
        }
    }

    fn done(&mut self, now: Instant, step: Step, mad: &Mad) {
        match step {
            Step::Node(side) => self.found_node(now, side, &NodeInfo::read(mad, smp::DATA)),
            Step::Port(side) => self.found_port(now, side, PortInfo::read(mad, smp::DATA)),
            Step::Assign(side) => {
                let port = self.port_mut(side);
                port.info.load(mad, smp::DATA);
                port.has_reregistered = true;
                port.was_assigned = true;
                self.configure(now);
            }
            Step::Arm(side) | Step::Activate(side) => {
                self.port_mut(side).info.load(mad, smp::DATA);
                self.configure(now);
            }
            Step::Manager => self.elect(now, Some(&SmInfo::read(mad, smp::DATA))),
            Step::Poll => self.polled(now, Some(&SmInfo::read(mad, smp::DATA))),
            // This one is master until the other acknowledges.
            Step::HandOver => self.configure(now),
            Step::Acknowledge => self.start_sweep(now),
        }
    }

    /// A request failed: no answer, or a status.
    pub(super) fn fail(&mut self, now: Instant, step: Step) {
        match step {
            Step::Poll => self.polled(now, None),
            Step::Acknowledge => self.start_sweep(now),
            // A manager that does not answer does not run, whatever its port says.
            Step::Manager => self.elect(now, None),
            Step::HandOver => self.configure(now),
            Step::Node(_) | Step::Port(_) | Step::Assign(_) | Step::Arm(_) | Step::Activate(_) => {
                if !matches!(self.state, State::Master | State::Switch) {
                    self.state = State::Unanswered(step.side());
                }
                self.rest(now);
            }
        }
    }

    fn found_node(&mut self, now: Instant, side: Side, node: &NodeInfo<[u8; 40]>) {
        let guid = node.port_guid();
        if side == Side::Peer && node.node_type() != node_type::CHANNEL_ADAPTER {
            self.lose_link(now);
            self.state = State::Switch;
            return;
        }
        // A plug that connects a port with itself is no subnet.
        if guid == 0 || guid == self.port(side.other()).guid {
            if side == Side::Peer {
                self.state = State::Unanswered(side);
                return self.rest(now);
            }
            self.ports = [Port::NONE; 2];
        }
        if self.port(side).guid != guid {
            *self.port_mut(side) = Port { guid, ..Port::NONE };
            self.groups.leave_all(side);
        }
        self.begin(now, Step::Port(side));
    }

    fn found_port(&mut self, now: Instant, side: Side, info: PortInfo<[u8; smp::DATA_LEN]>) {
        let port = self.port_mut(side);
        port.info = info;
        if info.port_state() == port_state::INIT {
            // Its link has been down, and what it had joined is over.
            port.has_reregistered = false;
            self.groups.leave_all(side);
        }
        match side {
            Side::Own if info.port_state() == port_state::DOWN => self.lose_link(now),
            Side::Own => {
                if self.state == State::Down {
                    self.state = State::Discovering;
                }
                self.begin(now, Step::Node(Side::Peer));
            }
            Side::Peer if info.cap_mask() & capability::SM != 0 => self.begin(now, Step::Manager),
            Side::Peer => self.elect(now, None),
        }
    }

    /// Does the next change that the ports need; the sweep ends where there is none.
    pub(super) fn configure(&mut self, now: Instant) {
        let first = |is_needed: fn(&Self, Side) -> bool, [first, second]: [Side; 2]| {
            [first, second].into_iter().find(|side| is_needed(self, *side))
        };
        let outward = [Side::Peer, Side::Own];
        let step = first(|manager, side| !manager.is_assigned(side), outward)
            .map(Step::Assign)
            .or_else(|| {
                first(|manager, side| manager.is_in(side, port_state::INIT), outward).map(Step::Arm)
            })
            // The own port first: a port asks the SA as soon as it is active, and the answer
            // leaves by the own one.
            .or_else(|| {
                first(|manager, side| manager.is_in(side, port_state::ARMED), Side::ALL)
                    .map(Step::Activate)
            });
        let Some(step) = step else { return self.rest(now) };
        self.changes = self.changes.saturating_add(1);
        if self.changes > CHANGES {
            // It answers well and does not do it.
            return self.rest(now);
        }
        self.begin(now, step);
    }

    fn is_in(&self, side: Side, state: u8) -> bool {
        self.port(side).info.port_state() == state
    }

    /// LIDs: those the ports have, where they are valid and differ, so that connections survive a
    /// change of the master.
    fn lids(&self) -> [u16; 2] {
        let free = |taken| if taken == 1 { 2 } else { 1 };
        match self.ports.each_ref().map(Port::unicast_lid) {
            [Some(own), Some(peer)] if own != peer => [own, peer],
            [Some(own), _] => [own, free(own)],
            [None, Some(peer)] => [free(peer), peer],
            [None, None] => [1, 2],
        }
    }

    fn is_assigned(&self, side: Side) -> bool {
        let (port, wanted) = (self.port(side), self.assignment(side));
        let info = &port.info;
        let fields = |info: &PortInfo<[u8; smp::DATA_LEN]>| {
            (info.lid(), info.lmc(), info.sm_lid(), info.master_sm_sl(), info.gid_prefix())
        };
        let links = |info: &PortInfo<[u8; smp::DATA_LEN]>| {
            (info.neighbor_mtu(), info.operational_vls(), info.subnet_timeout())
        };
        port.was_assigned
            || port.has_reregistered
                && fields(info) == fields(&wanted)
                && (info.port_state() != port_state::INIT || links(info) == links(&wanted))
    }

    /// PortInfo as it is to be, with its state as it is.
    fn assignment(&self, side: Side) -> PortInfo<[u8; smp::DATA_LEN]> {
        let mut info = self.change(side, port_state::NO_CHANGE);
        let [own, _] = self.lids();
        let [first, second] = self.ports.map(|port| (port.info.mtu_cap(), port.info.vl_cap()));
        info.set_lid(self.lids().get(side.index()).copied().unwrap_or(own));
        info.set_lmc(0);
        info.set_sm_lid(own);
        info.set_master_sm_sl(0);
        info.set_gid_prefix(SUBNET_PREFIX);
        info.set_subnet_timeout(SUBNET_TIMEOUT);
        info.set_client_rereg(
            self.port(side).info.cap_mask() & capability::CLIENT_REREGISTER != 0
                && !self.port(side).has_reregistered,
        );
        // What both take; of an active link neither changes.
        if self.port(side).info.port_state() == port_state::INIT {
            info.set_neighbor_mtu(first.0.min(second.0).clamp(1, 5));
            info.set_operational_vls(first.1.min(second.1).clamp(1, 5));
        }
        info
    }

    /// PortInfo as the port has it, with another state.
    fn change(&self, side: Side, state: u8) -> PortInfo<[u8; smp::DATA_LEN]> {
        let mut info = self.port(side).info;
        info.set_port_state(state);
        info.set_port_phys_state(physical_state::NO_CHANGE);
        // Zero changes nothing.
        info.set_link_width_enabled(0);
        info.set_link_speed_enabled(0);
        info.set_link_speed_ext_enabled(0);
        info.set_link_down_default(0);
        info.set_client_rereg(false);
        info.set_mkey(0);
        info.set_mkey_protect(0);
        info.set_mkey_lease_period(0);
        info
    }
}
