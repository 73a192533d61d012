//! Where datagrams come from and go to.

use super::ports::Side;
use crate::prm::mad::Mad;

/// Which queue pair a datagram came by, or leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// QP0, subnet management.
    Smi,
    /// QP1, general services.
    Gsi,
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The queue pair it came by.
    pub interface: Interface,
    /// With QP0: an answer or a trap of the own port's agent, or what came by the cable.
    pub side: Side,
    /// The source LID.
    pub lid: u16,
    /// The source queue pair number.
    pub qpn: u32,
}

/// Where a datagram goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the own port's agent (MAD_IFC); its answer is an input from [`Side::Own`].
    Agent,
    /// By QP0 and the cable, to the permissive LID. The directed route has its first step done.
    Directed,
    /// By QP0 to a LID.
    Management {
        /// The LID.
        lid: u16,
    },
    /// By QP1 to a LID, which may be the own one.
    General {
        /// The LID.
        lid: u16,
        /// The queue pair number.
        qpn: u32,
    },
}

/// A datagram that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) to: Destination,
    pub(super) mad: Mad,
}
