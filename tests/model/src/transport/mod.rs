//! The transport: RC, UD and GSI engines between work requests and RoCE v2 frames.
//!
//! One [`Engine`] stands in each QP object. It is sans-IO: work, packets and time come in by
//! calls, everything else goes out by [`Host`]. It knows nothing of WQE and CQE layouts,
//! memory keys or commands. Reference: IBTA volume 1, chapter 9; annex A17 (RoCE v2).

pub mod host;

use crate::cmd::Command;
use crate::hca::Hca;
use crate::host::Nanos;

/// State of the engines beyond the queue contexts.
#[derive(Debug, Default)]
pub(crate) struct Transport {}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[];

/// Takes frames off the wire, runs the queues and their timers; says when next.
pub(crate) fn step(_hca: &mut Hca) -> Option<Nanos> {
    None
}
