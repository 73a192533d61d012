//! A subnet manager (SM) and subnet administration (SA) for two ports: one of ours, and the port of
//! another channel adapter at the other end of its cable.
//!
//! Without a subnet manager a port stays in the Init state and has no LID. A fabric with a switch
//! has one that computes routes, such as OpenSM; two hosts back to back need none of that, only
//! LIDs, states, paths and groups. This manager does that, and leaves every other fabric alone
//! ([`State::Switch`]).
//!
//! It does no input or output and reads no clock. Datagrams go in by [`SubnetManager::input`] and
//! come out by [`SubnetManager::poll_transmit`]; [`SubnetManager::next_deadline`] says when
//! [`SubnetManager::advance`] is to be called.
//!
//! ```text
//!  link up -> sweep: NodeInfo and PortInfo of the own port (hop 0), of the other end (hop 1)
//!             the other end is no channel adapter          -> Switch: nothing more is done
//!             a manager there is master, or precedes       -> Standby: its SMInfo is polled
//!             otherwise                                    -> Master: LIDs, then Armed, then Active
//!  Master     sweeps again now and then; answers as SA
//!  Standby    sweeps when the master is silent, or hands over
//! ```
//!
//! Which of two managers precedes is the specification's: the higher priority, then the lower port
//! GUID (IBTA volume 1, 14.4.1). So this one, of priority 0, is a standby of any with a priority,
//! and of every one that was master before.
//!
//! The other end is trusted with what a cable gives it: the link. What it sends is checked for
//! form, and counts only by the side it came from: it cannot answer for the own port.

mod datagram;
mod election;
mod groups;
mod members;
mod params;
mod paths;
mod ports;
mod rates;
mod records;
mod request;
mod sa;
mod sweep;

#[cfg(test)]
mod tests;

use dat_core::Instant;
use heapless::Deque;

use crate::prm::mad::{self, MAD_LEN, Mad, MadHeader, class, is_unicast, method};
use crate::prm::smp::{self, SmpHeader, attribute, port_state, sm_state};
use datagram::Answer;
use groups::Groups;
use params::{ANSWERS, TRAP_DELAY};
use ports::Port;
use request::{Request, Step};

pub use datagram::{Destination, Interface, Source};
pub use groups::BROADCAST_MGID;
pub use params::{Config, SUBNET_PREFIX};
pub use ports::Side;

/// What the manager is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The port has no link.
    Down,
    /// It looks at the other end.
    Discovering,
    /// Another subnet manager has the subnet; this one is silent until that one is lost.
    Standby {
        /// Its port GUID.
        master: u64,
    },
    /// It has the subnet.
    Master,
    /// Another subnet manager has disabled this one.
    NotActive,
    /// There is a switch or a router at the other end: the fabric needs a real subnet manager.
    Switch,
    /// A port does not answer, or refuses its settings: an M_Key of an earlier manager may protect
    /// it.
    Unanswered(Side),
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that were no answer to a request and no valid request.
    pub malformed: u64,
    /// Requests to the SA from other LIDs than those of the two ports.
    pub unknown_requesters: u64,
    /// Answers that found no free slot.
    pub dropped_answers: u64,
    /// Requests of the SA that were refused.
    pub refused: u64,
    /// Traps.
    pub traps: u64,
}

/// The subnet manager.
#[derive(Debug)]
pub struct SubnetManager {
    config: Config,
    state: State,
    ports: [Port; 2],
    request: Option<Request>,
    /// When the next sweep or poll begins.
    wake: Option<Instant>,
    /// A trap came while a sweep was under way: another one follows.
    sweeps_again: bool,
    /// Set(PortInfo) sent in this sweep.
    changes: u8,
    /// Polls that the master did not answer.
    missed: u8,
    next_tid: u64,
    /// SMInfo.ActCount.
    activity: u32,
    groups: Groups,
    answers: Deque<Answer, ANSWERS>,
    counters: Counters,
}

impl SubnetManager {
    /// A manager of a port without a link: see [`SubnetManager::link_changed`].
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            state: State::Down,
            ports: [Port::NONE; 2],
            request: None,
            wake: Some(Instant::ZERO),
            sweeps_again: false,
            changes: 0,
            missed: 0,
            next_tid: config.first_tid,
            activity: 0,
            groups: Groups::new(),
            answers: Deque::new(),
            counters: Counters {
                malformed: 0,
                unknown_requesters: 0,
                dropped_answers: 0,
                refused: 0,
                traps: 0,
            },
        }
    }

    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether the port is to say that a subnet manager runs behind it (PortInfo, IsSM).
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.state != State::Switch
    }

    /// The LID of a port, while this manager is master and has set it.
    #[must_use]
    pub fn lid(&self, side: Side) -> Option<u16> {
        let port = self.port(side);
        port.unicast_lid().filter(|_| self.state == State::Master)
    }

    /// Both ports are active, by this manager.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == State::Master
            && self.ports.iter().all(|port| port.info.port_state() == port_state::ACTIVE)
    }

    /// The SA answers: both ports have their LIDs and can take packets, and the answers leave by the
    /// own port. The other port asks as soon as it is active, which is before this manager knows.
    fn serves(&self) -> bool {
        let states = self.ports.each_ref().map(|port| port.info.port_state());
        self.state == State::Master
            && matches!(states, [port_state::ACTIVE, port_state::ARMED | port_state::ACTIVE])
    }

    /// The port's link has come up (to the Init state) or has gone down.
    pub fn link_changed(&mut self, now: Instant, is_up: bool) {
        if is_up {
            self.start_sweep(now);
        } else {
            self.lose_link(now);
        }
    }

    /// Does what is due at `now`: repeats a request, gives it up, begins a sweep.
    pub fn advance(&mut self, now: Instant) {
        if let Some(request) = &mut self.request {
            if request.expire(now) {
                return;
            }
            let step = request.step;
            self.request = None;
            self.fail(now, step);
        } else if self.wake.is_some_and(|wake| wake <= now) {
            if matches!(self.state, State::Standby { .. }) {
                self.begin(now, Step::Poll);
            } else {
                self.start_sweep(now);
            }
        }
    }

    /// When [`SubnetManager::advance`] is to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.request.as_ref().map_or(self.wake, |request| Some(request.due))
    }

    /// The next datagram to send, written to `mad`; call until `None` after any other call.
    pub fn poll_transmit(&mut self, now: Instant, mad: &mut Mad) -> Option<Destination> {
        let to = match self.answers.pop_front() {
            Some(answer) => {
                *mad = answer.mad;
                answer.to
            }
            None => self.emit_request(now, mad)?,
        };
        self.activity = self.activity.wrapping_add(1);
        Some(to)
    }

    /// Takes a datagram that came in.
    pub fn input(&mut self, now: Instant, from: Source, mad: &[u8]) {
        let header = MadHeader(mad);
        let is_known = match (from.interface, header.mgmt_class()) {
            (Interface::Smi, class::SUBNET_LID | class::SUBNET_DIRECTED) => {
                header.class_version() == smp::CLASS_VERSION
            }
            (Interface::Gsi, class::SUBNET_ADMINISTRATION) => true,
            _ => false,
        };
        let valid = <&Mad>::try_from(mad)
            .ok()
            .filter(|_| is_known && header.base_version() == mad::BASE_VERSION);
        match (valid, from.interface) {
            (Some(mad), Interface::Smi) => self.input_smp(now, from, mad),
            (Some(mad), Interface::Gsi) => self.input_sa(from, mad),
            (None, _) => self.counters.malformed += 1,
        }
    }

    fn input_smp(&mut self, now: Instant, from: Source, mad: &Mad) {
        let header = MadHeader(mad);
        match (header.method(), header.attr_id()) {
            (method::GET_RESP, _) => self.take_response(now, from.side, mad),
            (method::GET | method::SET, attribute::SM_INFO) if from.side == Side::Peer => {
                self.answer_sm_info(now, from, mad);
            }
            (method::TRAP, attribute::NOTICE) => self.take_trap(now, from, mad),
            _ => self.counters.malformed += 1,
        }
    }

    /// Represses a trap, and looks what has changed.
    fn take_trap(&mut self, now: Instant, from: Source, mad: &Mad) {
        if self.state != State::Master {
            return;
        }
        self.counters.traps += 1;
        let mut answer = *mad;
        MadHeader(&mut answer).set_method(method::TRAP_REPRESS);
        let to = if from.side == Side::Own || Some(from.lid) == self.lid(Side::Own) {
            Destination::Agent
        } else {
            Destination::Management { lid: from.lid }
        };
        self.push(to, &answer);
        if self.request.is_some() {
            self.sweeps_again = true;
        } else {
            self.wake = Instant::sooner(self.wake, Some(now + TRAP_DELAY));
        }
    }

    fn port(&self, side: Side) -> &Port {
        let [own, peer] = &self.ports;
        match side {
            Side::Own => own,
            Side::Peer => peer,
        }
    }

    fn port_mut(&mut self, side: Side) -> &mut Port {
        let [own, peer] = &mut self.ports;
        match side {
            Side::Own => own,
            Side::Peer => peer,
        }
    }

    fn push(&mut self, to: Destination, mad: &Mad) {
        // Nobody can be answered at such a LID.
        if let Destination::Management { lid } | Destination::General { lid, .. } = to {
            if !is_unicast(lid) {
                self.counters.malformed += 1;
                return;
            }
        }
        if self.answers.push_back(Answer { to, mad: *mad }).is_err() {
            self.counters.dropped_answers += 1;
        }
    }

    /// What an SMP of this manager begins with.
    fn smp(method: u8, attr_id: u16, attr_mod: u32, tid: u64) -> Mad {
        let mut mad = [0; MAD_LEN];
        let mut header = MadHeader(&mut mad);
        header.set_base_version(mad::BASE_VERSION);
        header.set_class_version(smp::CLASS_VERSION);
        header.set_mgmt_class(class::SUBNET_DIRECTED);
        header.set_method(method);
        header.set_attr_id(attr_id);
        header.set_attr_mod(attr_mod);
        header.set_tid(tid);
        let mut header = SmpHeader(&mut mad);
        header.set_dr_slid(mad::PERMISSIVE_LID);
        header.set_dr_dlid(mad::PERMISSIVE_LID);
        mad
    }

    /// SMInfo.State.
    fn sm_state(&self) -> u8 {
        match self.state {
            State::Down | State::Discovering | State::Unanswered(_) => sm_state::DISCOVERING,
            State::Standby { .. } => sm_state::STANDBY,
            State::Master => sm_state::MASTER,
            State::NotActive | State::Switch => sm_state::NOT_ACTIVE,
        }
    }
}
