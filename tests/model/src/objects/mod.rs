//! Queues, keys, steering: everything that has a number and a context.

use crate::cmd::Command;
use crate::hca::Hca;
use crate::host::Nanos;

/// All objects of the function.
#[derive(Debug, Default)]
pub(crate) struct Objects {}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[];

/// A store of 8 to 64 bytes into a UAR's BlueFlame registers (0x800 and up).
pub(crate) fn send_doorbell(_hca: &mut Hca, _uar: u32, _offset: usize, _bytes: &[u8]) {}

/// A 64-bit store to a UAR's CQ doorbell: arm word and CQ number.
pub(crate) fn cq_arm(_hca: &mut Hca, _uar: u32, _word: u32, _cqn: u32) {}

/// Does what is due; says when next.
pub(crate) fn step(_hca: &mut Hca) -> Option<Nanos> {
    None
}
