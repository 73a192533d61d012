//! The dispatch table: every command of every part of the device.

use super::Command;
use crate::{
    caps, congestion, counters, eq, function, ib, objects, pages, reg_access, roce, vport,
};

/// The rows, part by part.
const PARTS: &[&[Command]] = &[
    function::COMMANDS,
    function::NUMBER_COMMANDS,
    caps::COMMANDS,
    counters::COMMANDS,
    congestion::COMMANDS,
    pages::COMMANDS,
    eq::COMMANDS,
    vport::COMMANDS,
    ib::COMMANDS,
    roce::COMMANDS,
    reg_access::COMMANDS,
    objects::COMMANDS,
];

/// The row of an opcode.
pub(crate) fn find(opcode: u16) -> Option<&'static Command> {
    PARTS.iter().copied().flatten().find(|row| row.opcode == opcode)
}

#[cfg(test)]
mod tests {
    use super::PARTS;
    use std::collections::BTreeSet;

    #[test]
    fn no_opcode_has_two_rows() {
        let mut seen = BTreeSet::new();
        for row in PARTS.iter().copied().flatten() {
            assert!(seen.insert(row.opcode), "{:#x} {}", row.opcode, row.name);
        }
    }
}
