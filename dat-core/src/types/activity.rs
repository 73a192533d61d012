//! What an adapter and its driver do, for a log: commands, connections, repeated messages, faults.
//!
//! The provider is given a [`Hook`] when it is made, and the adapter reports by
//! [`Provider::report`](crate::provider::Provider::report). Posts, completions and polls report
//! nothing, so a hook costs the data path nothing; without one a control call costs a branch.

use core::fmt;
use core::net::IpAddr;

use crate::types::ep_state::EpState;
use crate::types::fault::Fault;
use crate::types::handle::Ep;

/// Sees every [`Activity`], in the call that causes it. It must not call the adapter.
pub type Hook<'p> = &'p (dyn Fn(&Activity) + Sync);

/// One thing that an adapter or its driver has done or met. Prints as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// The device has answered a command, or has not.
    Command {
        /// Its name.
        operation: &'static str,
        /// The kind of object that it concerns, empty if none.
        object: &'static str,
        /// The object's number.
        number: u32,
        /// Why it failed, if it did.
        fault: Option<Fault>,
    },
    /// The adapter is open, with this address.
    Opened(IpAddr),
    /// The adapter is closed.
    Closed,
    /// The link went down (`false`) or up (`true`).
    Link(bool),
    /// An Endpoint changed its state: it connects, is connected, ends, was reset.
    State {
        /// The Endpoint.
        ep: Ep,
        /// Its state before.
        from: EpState,
        /// Its state now.
        to: EpState,
    },
    /// A peer asked for a connection, and a service point has the request.
    Requested {
        /// The peer.
        remote: IpAddr,
        /// The port of the service point; 0 if it has another number.
        port: u16,
    },
    /// A peer asked for a connection and was refused without the program.
    Refused {
        /// The peer.
        remote: IpAddr,
        /// The port that it asked for; 0 for another number.
        port: u16,
        /// The reason it was given.
        reason: &'static str,
    },
    /// A datagram of the connection manager was sent, or has come.
    Datagram {
        /// This side sent it.
        sent: bool,
        /// This side's address.
        local: IpAddr,
        /// The peer's.
        remote: IpAddr,
        /// Its name, as REQ.
        message: &'static str,
        /// All of it (IBTA vol. 1, 13.4: a MAD).
        mad: [u8; 256],
    },
    /// A message of the connection manager was repeated: its answer did not come in time.
    Repeated {
        /// The message.
        message: &'static str,
        /// The peer.
        remote: IpAddr,
    },
    /// A connection ended by an error on this side.
    Broken {
        /// The Endpoint.
        ep: Ep,
        /// The cause.
        fault: Fault,
    },
    /// The device reports trouble, and goes on.
    Warning(Fault),
    /// The device is lost: the adapter has to be closed.
    Lost(Fault),
}

/// How much an [`Activity`] matters, in the steps that logs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The adapter, or a connection, is lost.
    Error,
    /// Something failed, and the adapter goes on.
    Warning,
    /// A change that a program's user may want to see.
    Info,
    /// The steps behind it.
    Debug,
}

impl Activity {
    /// How much it matters.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Lost(_) | Self::Broken { .. } => Severity::Error,
            Self::Warning(_)
            | Self::Refused { .. }
            | Self::Repeated { .. }
            | Self::Link(false)
            | Self::Command { fault: Some(_), .. } => Severity::Warning,
            Self::Opened(_)
            | Self::Closed
            | Self::Link(true)
            | Self::State { .. }
            | Self::Requested { .. } => Severity::Info,
            Self::Command { fault: None, .. } | Self::Datagram { .. } => Severity::Debug,
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { fault: Some(fault), .. } => fault.fmt(f),
            Self::Command { operation, object: "", .. } => f.write_str(operation),
            Self::Command { operation, object, number, .. } => {
                write!(f, "{object} {number:#x}: {operation}")
            }
            Self::Opened(addr) => write!(f, "the adapter is open as {addr}"),
            Self::Closed => f.write_str("the adapter is closed"),
            Self::Link(up) => write!(f, "the link is {}", if *up { "up" } else { "down" }),
            Self::State { ep, from, to } => write!(f, "EP {}: {from:?} to {to:?}", ep.index()),
            Self::Requested { remote, port } => write!(f, "{remote} asks for port {port}"),
            Self::Refused { remote, port, reason } => {
                write!(f, "{remote} asks for port {port}: refused, {reason}")
            }
            Self::Datagram { sent, remote, message, .. } => {
                let way = if *sent { "to" } else { "from" };
                write!(f, "{message} {way} {remote}")
            }
            Self::Repeated { message, remote } => {
                write!(f, "{message} to {remote} is repeated: no answer yet")
            }
            Self::Broken { ep, fault } => write!(f, "EP {}: broken: {fault}", ep.index()),
            Self::Warning(fault) => write!(f, "the device warns: {fault}"),
            Self::Lost(fault) => write!(f, "the device is lost: {fault}"),
        }
    }
}
