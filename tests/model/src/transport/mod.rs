//! Transport engines.

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
