//! Which of two subnet managers has the subnet (IBTA volume 1, 14.4.1).

use core::cmp::Reverse;

use dat_core::Instant;

use super::datagram::{Destination, Source};
use super::params::{POLL_INTERVAL, POLLS};
use super::ports::Side;
use super::request::Step;
use super::{State, SubnetManager};
use crate::prm::mad::{Mad, MadHeader, class, method, status};
use crate::prm::put;
use crate::prm::smp::{self, SmInfo, SmpHeader, sm_control, sm_state};

impl SubnetManager {
    pub(super) fn sm_info(&self) -> SmInfo<[u8; 24]> {
        let mut info = SmInfo::new();
        info.set_guid(self.port(Side::Own).guid);
        info.set_act_count(self.activity);
        info.set_priority(self.config.priority);
        info.set_state(self.sm_state());
        info
    }

    /// Whether another manager precedes this one.
    fn precedes(&self, other: &SmInfo<[u8; 24]>) -> bool {
        let rank = |info: &SmInfo<[u8; 24]>| (info.priority(), Reverse(info.guid()));
        rank(other) > rank(&self.sm_info())
    }

    /// Decides after both ports are known, with the manager at the other end if one runs there.
    pub(super) fn elect(&mut self, now: Instant, other: Option<&SmInfo<[u8; 24]>>) {
        let precedes = other.is_some_and(|other| self.precedes(other));
        let runs = |other: &&SmInfo<[u8; 24]>| {
            if self.state == State::Master {
                // One that discovers finds this one by itself.
                precedes && matches!(other.state(), sm_state::STANDBY | sm_state::MASTER)
            } else {
                other.state() == sm_state::MASTER
                    || precedes && other.state() != sm_state::NOT_ACTIVE
            }
        };
        match (other.filter(runs), self.state) {
            (Some(_), State::Master) => self.begin(now, Step::HandOver),
            (Some(other), _) => self.stand_by(now, other.guid()),
            (None, _) => {
                self.become_master();
                self.configure(now);
            }
        }
    }

    fn become_master(&mut self) {
        if self.state != State::Master {
            self.state = State::Master;
            self.groups.clear();
            for side in Side::ALL {
                self.port_mut(side).has_reregistered = false;
            }
        }
    }

    fn stand_by(&mut self, now: Instant, master: u64) {
        self.state = State::Standby { master };
        self.request = None;
        self.groups.clear();
        self.missed = 0;
        self.wake = Some(now + POLL_INTERVAL);
    }

    /// What the master says of itself, or nothing.
    pub(super) fn polled(&mut self, now: Instant, master: Option<&SmInfo<[u8; 24]>>) {
        let is_lost = match master {
            Some(info) if info.state() == sm_state::MASTER => {
                self.state = State::Standby { master: info.guid() };
                self.missed = 0;
                false
            }
            // It is no master, and never will be before this one.
            Some(info) if !self.precedes(info) || info.state() == sm_state::NOT_ACTIVE => true,
            _ => {
                self.missed = self.missed.saturating_add(1);
                self.missed >= POLLS
            }
        };
        if is_lost {
            self.state = State::Discovering;
            self.start_sweep(now);
        } else {
            self.wake = Some(now + POLL_INTERVAL);
        }
    }

    /// Get and Set(SMInfo) of the manager at the other end.
    pub(super) fn answer_sm_info(&mut self, now: Instant, from: Source, mad: &Mad) {
        if self.port(Side::Own).guid == 0 {
            // Without a GUID it would precede all others.
            return;
        }
        let (is_set, control) = (MadHeader(mad).method() == method::SET, MadHeader(mad).attr_mod());
        let is_allowed = !is_set
            || matches!(
                (control, self.state),
                (
                    sm_control::HANDOVER,
                    State::Master
                        | State::Standby { .. }
                        | State::Discovering
                        | State::Unanswered(_)
                ) | (sm_control::ACKNOWLEDGE, State::Master)
                    | (sm_control::DISABLE, State::Standby { .. })
                    | (sm_control::STANDBY, State::NotActive)
                    | (sm_control::DISCOVER, State::Standby { .. })
            );
        let sender = SmInfo::read(mad, smp::DATA);
        let mut answer = *mad;
        MadHeader(&mut answer).set_method(method::GET_RESP);
        let mut header = SmpHeader(&mut answer);
        header.set_status(if is_allowed { status::SUCCESS } else { status::INVALID_FIELD });
        put(&mut answer, smp::DATA, &[0; smp::DATA_LEN]);
        put(&mut answer, smp::DATA, &self.sm_info().0);
        let to = if MadHeader(mad).mgmt_class() == class::SUBNET_DIRECTED {
            let Some(to) = self.return_by_route(&mut answer) else {
                self.counters.malformed += 1;
                return;
            };
            to
        } else {
            Destination::Management { lid: from.lid }
        };
        self.push(to, &answer);
        if is_set && is_allowed {
            self.control(now, control, sender.guid());
        }
    }

    /// Turns a directed route of one hop round: the first step of the way back is done (IBTA volume
    /// 1, C14-13).
    fn return_by_route(&self, mad: &mut Mad) -> Option<Destination> {
        let mut header = SmpHeader(&mut *mad);
        if header.hop_cnt() != 1 || header.direction() {
            return None;
        }
        header.set_direction(true);
        header.set_hop_ptr(1);
        put(mad, smp::RETURN_PATH + 1, &[self.config.port]);
        Some(Destination::Directed)
    }

    /// Does what the manager at the other end says.
    fn control(&mut self, now: Instant, control: u32, sender: u64) {
        match control {
            sm_control::HANDOVER => {
                self.become_master();
                self.begin(now, Step::Acknowledge);
            }
            sm_control::ACKNOWLEDGE => self.stand_by(now, sender),
            sm_control::DISABLE => {
                self.state = State::NotActive;
                self.request = None;
                self.wake = None;
            }
            sm_control::STANDBY => self.stand_by(now, sender),
            _ => self.start_sweep(now),
        }
    }
}
