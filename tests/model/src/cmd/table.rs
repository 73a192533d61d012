//! The dispatch table: every command of every part of the device.

use super::Command;
use crate::{eq, objects, transport};

/// The row of an opcode.
pub(crate) fn find(opcode: u16) -> Option<&'static Command> {
    [eq::COMMANDS, objects::COMMANDS, transport::COMMANDS]
        .into_iter()
        .flatten()
        .find(|row| row.opcode == opcode)
}
