//! The two ports.

use super::params::SUBNET_PREFIX;
use crate::prm::mad::FIRST_MULTICAST_LID;
use crate::prm::smp::{self, PortInfo};

/// One of the two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Our port: its agent, in the device.
    Own,
    /// The port at the other end of the cable.
    Peer,
}

impl Side {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Own, Self::Peer];

    pub(super) const fn index(self) -> usize {
        match self {
            Self::Own => 0,
            Self::Peer => 1,
        }
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Own => Self::Peer,
            Self::Peer => Self::Own,
        }
    }
}

/// A port as a sweep found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) guid: u64,
    pub(super) info: PortInfo<[u8; smp::DATA_LEN]>,
    /// Its clients have registered at this manager or were asked to.
    pub(super) has_reregistered: bool,
    /// This sweep has set its LID and the like.
    pub(super) was_assigned: bool,
}

impl Port {
    pub(super) const NONE: Self =
        Self { guid: 0, info: PortInfo::new(), has_reregistered: false, was_assigned: false };

    pub(super) fn gid(&self) -> u128 {
        u128::from(SUBNET_PREFIX) << 64 | u128::from(self.guid)
    }

    /// Its LID, where it has one that a manager may leave as it is.
    pub(super) fn unicast_lid(&self) -> Option<u16> {
        Some(self.info.lid()).filter(|lid| (1..FIRST_MULTICAST_LID).contains(lid))
    }
}
