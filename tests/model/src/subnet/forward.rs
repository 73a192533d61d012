//! Where a switch sends a frame (IBTA volume 1, 18.2.4).

use super::cause::Cause;
use super::node::Node;
use super::switch::MULTICAST_CAP;
use crate::wire::ib::lid::{self, FIRST_MULTICAST, Kind};

impl Node {
    /// The ports by which a frame for `dlid` leaves a switch; 0 is its management port. `from` is
    /// the port by which it came.
    pub(super) fn exits(&self, dlid: u16, from: u8) -> Result<Vec<u8>, Cause> {
        let switch = self.switch.as_ref().ok_or(Cause::NotMine)?;
        match lid::kind(dlid) {
            Kind::Reserved => Err(Cause::LidZero),
            Kind::Permissive => Err(Cause::PermissiveLid),
            Kind::Unicast if self.port(0).is_some_and(|port| port.has_lid(dlid)) => Ok(vec![0]),
            Kind::Unicast => match switch.port_of(dlid) {
                Some(port) if !self.ports.contains_key(&port) => Err(Cause::DlidMapping),
                Some(port) if port == from && port != 0 => Err(Cause::Looping),
                Some(port) => Ok(vec![port]),
                None => Err(Cause::DlidMapping),
            },
            Kind::Multicast => {
                let group = dlid - FIRST_MULTICAST;
                let (primary, other) = switch.default_multicast;
                let is_exit = |port: &u8| match group < MULTICAST_CAP {
                    true => switch.has_port(group, *port),
                    false => *port != 0 && *port == if from == primary { other } else { primary },
                };
                let members = self.ports.keys().copied().filter(is_exit).collect::<Vec<_>>();
                if members.is_empty() {
                    return Err(Cause::DlidMapping);
                }
                Ok(members.into_iter().filter(|port| *port != from).collect())
            }
        }
    }
}
