//! Scripts and records of commands.

use crate::cmd::{CommandHook, Status, Verdict};
use std::sync::{Arc, Mutex};

/// Which commands a rule means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The n-th of the device, from 0.
    Nth(u64),
    /// That one and all after it.
    From(u64),
    /// Every command of an opcode.
    Opcode(u16),
    /// The k-th of an opcode, from 0, counted since the script was given to the device.
    OpcodeNth(u16, u64),
}

/// A list of rules; the first that fits decides, everything else runs.
#[derive(Clone, Debug, Default)]
pub struct Script {
    rules: Vec<(When, Verdict)>,
    seen: Vec<u16>,
}

impl Script {
    /// No rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// One rule more.
    #[must_use]
    pub fn on(mut self, when: When, verdict: Verdict) -> Self {
        self.rules.push((when, verdict));
        self
    }

    /// Chosen commands are refused with a status.
    #[must_use]
    pub fn refuse(self, when: When, status: Status) -> Self {
        self.on(when, Verdict::Refuse { status: status as u8, syndrome: 0x00de_ad00 })
    }

    /// From the n-th command on, nothing is answered.
    #[must_use]
    pub fn mute_from(self, n: u64) -> Self {
        self.on(When::From(n), Verdict::Mute)
    }
}

impl CommandHook for Script {
    fn command(&mut self, nth: u64, opcode: u16, _input: &[u8]) -> Verdict {
        let earlier = self.seen.iter().filter(|seen| **seen == opcode).count() as u64;
        self.seen.push(opcode);
        let fits = |when: &When| match *when {
            When::Nth(n) => nth == n,
            When::From(n) => nth >= n,
            When::Opcode(op) => opcode == op,
            When::OpcodeNth(op, k) => opcode == op && earlier == k,
        };
        self.rules.iter().find(|(when, _)| fits(when)).map_or(Verdict::Run, |(_, v)| *v)
    }
}

/// One command as the device saw and answered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The opcode.
    pub opcode: u16,
    /// Whole input.
    pub input: Vec<u8>,
    /// Whole output, of the declared length.
    pub output: Vec<u8>,
}

impl core::fmt::Display for Record {
    /// The form in which the stock driver dumps its mailboxes: offset and four words a line.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = crate::cmd::table::find(self.opcode).map_or("unknown", |row| row.name);
        for (bytes, side) in [(&self.input, "INPUT"), (&self.output, "OUTPUT")] {
            writeln!(f, "dump command {name}({:#x}) {side}", self.opcode)?;
            for (line, row) in bytes.chunks(16).enumerate() {
                write!(f, "{:03x}:", line * 16)?;
                for word in row.chunks(4) {
                    write!(f, " ")?;
                    word.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// Records every command; clones share one list. May carry a script inside.
#[derive(Clone, Default)]
pub struct Log {
    records: Arc<Mutex<Vec<Record>>>,
    script: Script,
}

impl core::fmt::Debug for Log {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Log").field("script", &self.script).finish_non_exhaustive()
    }
}

impl Log {
    /// Records what `script` lets happen.
    pub fn new(script: Script) -> Self {
        Self { records: Arc::default(), script }
    }

    /// Returns the records so far.
    pub fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

impl CommandHook for Log {
    fn command(&mut self, nth: u64, opcode: u16, input: &[u8]) -> Verdict {
        self.script.command(nth, opcode, input)
    }

    fn completed(&mut self, _nth: u64, opcode: u16, input: &[u8], output: &[u8]) {
        let record = Record { opcode, input: input.to_vec(), output: output.to_vec() };
        self.records.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(record);
    }
}
