//! The command interface: entry queue, mailboxes, dispatch.

pub(crate) mod engine;
mod latency;
mod mailbox;
pub(crate) mod status;
pub(crate) mod table;

pub(crate) use engine::CommandQueue;
pub use engine::{CommandHook, Verdict};
pub(crate) use status::Refusal;
pub use status::Status;

use crate::hca::Hca;

/// Runs a command. It gets the whole input message, mailboxes joined, at least as long as the table
/// says; and the output buffer, zeroed, as long as the driver declared (at least as long as the
/// table says). Handlers write their answer from byte 8 on; status and syndrome belong to the
/// engine.
pub(crate) type Handler = fn(&mut Hca, &[u8], &mut [u8]) -> Result<(), Refusal>;

/// From which stage of bring-up on a command is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Any time the command interface runs.
    Always,
    /// After ENABLE_HCA.
    Enabled,
    /// After INIT_HCA.
    Running,
}

/// One row of the dispatch table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// The PRM's number.
    pub opcode: u16,
    /// The PRM's name.
    pub name: &'static str,
    /// Least input length in bytes.
    pub input: usize,
    /// Least output length in bytes.
    pub output: usize,
    /// Accepted from here on.
    pub(crate) stage: Stage,
    /// Does it.
    pub(crate) run: Handler,
}

/// How far bring-up is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FunctionState {
    /// Before ENABLE_HCA, after DISABLE_HCA.
    #[default]
    Off,
    /// Between ENABLE_HCA and INIT_HCA, and after TEARDOWN_HCA.
    Enabled,
    /// After INIT_HCA.
    Running,
}
