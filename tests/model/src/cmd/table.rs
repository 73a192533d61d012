//! The dispatch table: every command of every part of the device.

use super::Command;
use crate::{caps, eq, function, objects, pages, reg_access, roce, vport};

/// The rows, part by part.
const PARTS: &[&[Command]] = &[
    function::COMMANDS,
    function::NUMBER_COMMANDS,
    caps::COMMANDS,
    pages::COMMANDS,
    eq::COMMANDS,
    vport::COMMANDS,
    roce::COMMANDS,
    reg_access::COMMANDS,
    objects::COMMANDS,
];

/// The row of an opcode.
pub(crate) fn find(opcode: u16) -> Option<&'static Command> {
    PARTS
        .iter()
        .copied()
        .flatten()
        .find(|row| row.opcode == opcode)
}

/// Every row.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    PARTS.iter().copied().flatten()
}
