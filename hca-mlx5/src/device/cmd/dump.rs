//! Commands as mlx5_core prints them.
//!
//! With `dyndbg="module mlx5_core +p"` the Linux driver writes every command's queue entry and
//! mailbox blocks to the kernel log. [`Dump`] prints the same lines, without the log's own prefix,
//! so that a run of this driver, a run of Linux and a run on a real card can be held against each
//! other with `diff`.
//!
//! An [`Observer`] handed over at bring-up sees each command twice: after its messages are in place
//! and before the doorbell, and after the device has handed the entry back. Without one, a command
//! costs one branch more.

use core::fmt;

use super::mailbox::BLOCK_SIZE;
use crate::prm::cmd::{BLOCK_DATA, CommandEntry, Opcode};

/// Which half of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Sent by the driver.
    Input,
    /// Answered by the device.
    Output,
}

/// Sees every command.
pub trait Observer {
    /// Called with each half of each command.
    fn command(&self, dump: &Dump<'_>);
}

/// One half of one command, as it stands in memory.
pub struct Dump<'a> {
    /// Which command.
    pub opcode: Opcode,
    /// Which half.
    pub direction: Direction,
    /// The queue entry.
    pub entry: [u8; CommandEntry::SIZE],
    /// The message, head included, but without the list of a memory key, which [`Dump::bytes`] has.
    pub message: &'a [u8],
    pub(super) block: &'a dyn Fn(usize) -> Option<[u8; BLOCK_SIZE]>,
}

impl Dump<'_> {
    /// The whole message.
    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        let entry = CommandEntry(&self.entry);
        let (inline, len) = match self.direction {
            Direction::Input => (entry.command_input_inline(), entry.input_length()),
            Direction::Output => (entry.command_output_inline(), entry.output_length()),
        };
        let blocks = (0..).map_while(|index| self.block(index));
        let data = blocks.flat_map(|block| block.into_iter().take(BLOCK_DATA));
        inline.to_be_bytes().into_iter().chain(data).take(usize::try_from(len).unwrap_or(0))
    }

    /// The mailbox block number `index` of the message: 512 bytes of data and 64 of trailer.
    #[must_use]
    pub fn block(&self, index: usize) -> Option<[u8; BLOCK_SIZE]> {
        (self.block)(index)
    }
}

impl fmt::Debug for Dump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dump")
            .field("opcode", &self.opcode)
            .field("direction", &self.direction)
            .field("length", &self.message.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Dump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Input => "INPUT",
            Direction::Output => "OUTPUT",
        };
        writeln!(f, "dump command {}({:#x}) {direction}", self.opcode.name(), self.opcode.code())?;
        hexdump(f, 0, &self.entry)?;
        let mut offset = self.entry.len();
        let mut index = 0;
        while let Some(block) = self.block(index) {
            writeln!(f, "command block:")?;
            hexdump(f, offset, &block)?;
            offset += block.len();
            index += 1;
        }
        Ok(())
    }
}

fn hexdump(f: &mut fmt::Formatter<'_>, offset: usize, bytes: &[u8]) -> fmt::Result {
    for (at, line) in (offset..).step_by(16).zip(bytes.chunks(16)) {
        write!(f, "{at:03x}:")?;
        for word in line.chunks(4) {
            f.write_str(" ")?;
            for byte in word {
                write!(f, "{byte:02x}")?;
            }
        }
        writeln!(f)?;
    }
    writeln!(f)
}
