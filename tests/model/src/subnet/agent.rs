//! The subnet management agent: answers to SMPs.

use super::node::Node;
use super::port::CAPABILITY_SM;
use super::smp::{Smp, attribute, method, status};
use crate::ifc::subnet::{port_info, smp as layout};

/// Bit of a method: an answer.
const RESPONSE: u8 = 0x80;

/// Where a packet came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The port by which it came; 0 when the node made it itself.
    pub port: u8,
    /// The SLID of its frame.
    pub slid: u16,
}

impl Node {
    /// Whether a packet is for a subnet manager, not for the agent: an answer, a trap, what a
    /// directed route brings back, or SMInfo where a subnet manager runs (IBTA volume 1, 14.2.2 and
    /// 14.4).
    #[must_use]
    pub fn is_for_manager(&self, smp: &Smp, from: u8) -> bool {
        let has_manager = self
            .port(self.management_port(from))
            .is_some_and(|port| port.get(port_info::capability_mask) & CAPABILITY_SM != 0);
        let method = smp.method();
        method & RESPONSE != 0
            || smp.is_directed() && smp.returns()
            || method == method::TRAP
            || smp.attribute() == attribute::SM_INFO && has_manager
    }

    /// The agent's answer to a packet; `None` where there is none: a wrong M_Key, a repressed trap,
    /// a packet that is for a manager.
    pub fn answer(&mut self, smp: &Smp, from: Source) -> Option<Smp> {
        if !smp.is_of_class() || self.is_for_manager(smp, from.port) {
            return None;
        }
        let versions = (smp.get(layout::base_version), smp.get(layout::class_version));
        if versions != (1, 1) {
            return Some(smp.answer(status::VERSION));
        }
        if !matches!(smp.method(), method::GET | method::SET | method::TRAP_REPRESS) {
            return Some(smp.answer(status::METHOD));
        }
        if !self.admits(self.management_port(from.port), smp, from.slid) {
            return None;
        }
        let result = match smp.method() {
            method::TRAP_REPRESS => {
                self.repress(smp);
                return None;
            }
            method::SET => self.set_attribute(smp, from.port),
            _ => Ok(()),
        };
        let data = result.and_then(|()| self.get_attribute(smp, from.port));
        Some(match data {
            Ok(data) => {
                let mut answer = smp.answer(0);
                answer.data_mut().copy_from_slice(&data);
                answer
            }
            Err(status) => smp.answer(status),
        })
    }
}
