//! Entries, mailboxes, order and time.

use crate::host::Nanos;

/// What a hook decides about a command about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it run.
    Run,
    /// Answer with this status and syndrome instead of running it.
    Refuse {
        /// Status byte.
        status: u8,
        /// Syndrome word.
        syndrome: u32,
    },
    /// Fail the transport with this delivery status.
    Undelivered(u8),
    /// Never answer.
    Mute,
    /// Run it, answer that much later.
    Late(Nanos),
    /// Run it and clear the ownership bit, but post no event.
    NoEvent,
}

/// Sees every command; the one place where a test interferes with the command interface.
pub trait CommandHook: Send {
    /// The `nth` command since construction, from 0, is about to run.
    fn command(&mut self, nth: u64, opcode: u16, input: &[u8]) -> Verdict;

    /// It ran; `output` is what will be written.
    fn completed(&mut self, _nth: u64, _opcode: u16, _input: &[u8], _output: &[u8]) {}
}

/// State of the command interface.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {}
