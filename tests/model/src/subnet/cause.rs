//! Causes of dropped frames.

use crate::wire::ib::{BadLink, Malformed};

/// Why a frame was dropped. Names as in PortRcvErrorDetails and PortXmitDiscardDetails (IBTA volume
/// 1, 16.1.4) where these have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Wrong on the link.
    Link(BadLink),
    /// Wrong at its destination.
    Malformed(Malformed),
    /// The port does not send or receive this in its state.
    Inactive,
    /// To LID 0.
    LidZero,
    /// To the permissive LID, but no subnet management packet.
    PermissiveLid,
    /// To a LID that is not the port's.
    NotMine,
    /// To a LID without a port in the forwarding table.
    DlidMapping,
    /// Its service level has no virtual lane at the output port.
    VlMapping,
    /// The output port is the one by which it came.
    Looping,
    /// Passed too many links.
    Lifetime,
    /// Longer than the next port takes.
    NeighborMtu,
    /// Of a partition that the port is not in.
    PKey,
    /// On the management lane, but no subnet management packet.
    NotSubnetManagement,
    /// For queue pair 0, but not on the management lane.
    QpZero,
    /// For a queue pair that is not there.
    NoQueuePair,
    /// To a multicast LID, but of no group that a queue pair is attached to.
    NoGroup,
    /// Its GRH names another port.
    Gid,
    /// Its directed route does not fit.
    Route,
    /// The agent does not answer it: a wrong M_Key, or a method without an answer.
    NotAnswered,
    /// Too many frames wait at the port.
    InboxFull,
}
