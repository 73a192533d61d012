//! Commands as text: written as mlx5_core dumps them, and read back from that form and from a
//! compact one.
//!
//! With `dyndbg="module mlx5_core +p"` the Linux driver prints each command's queue entry and
//! mailbox blocks into the kernel log. [`Tracer`] writes the same lines for any driver on the
//! model. It sees messages, not memory: pointers, tokens and signatures are zero. [`read`] takes
//! such lines out of whatever stands before them in a log, and the compact form too: `in OPCODE
//! LENGTH OFFSET:WORD ...`, one line for each half, only words that are not zero, which is what
//! [`compact`] makes.

use super::messages::{Half, name};
use super::{Observer, Seen};
use crate::cmd::table;
use crate::ifc::cmd::{cmd_entry, cmd_mailbox};
use std::fmt::{self, Write as _};
use std::io;

/// Bytes of a message in the queue entry itself.
const INLINE: usize = 16;
/// Bytes of a message in one mailbox block.
const BLOCK: usize = 512;

/// One command: what was sent and what came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Its number.
    pub opcode: u16,
    /// All of its input.
    pub input: Vec<u8>,
    /// All of the answer; empty if none was recorded.
    pub output: Vec<u8>,
}

impl Command {
    /// Its name: [`name`].
    #[must_use]
    pub fn name(&self) -> String {
        name(self.opcode, &self.input)
    }
}

impl fmt::Display for Command {
    /// The driver's own form, both halves.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = table::find(self.opcode).map_or("unknown command opcode", |row| row.name);
        for (half, message, word) in
            [(Half::Input, &self.input, "INPUT"), (Half::Output, &self.output, "OUTPUT")]
        {
            writeln!(f, "dump command {name}({:#x}) {word}", self.opcode)?;
            hexdump(f, 0, &self.entry(half))?;
            let mut at = cmd_entry::BYTES;
            let rest = message.get(INLINE..).unwrap_or_default();
            for (n, data) in rest.chunks(BLOCK).enumerate() {
                let mut block = [0; cmd_mailbox::BYTES];
                for (to, from) in block.iter_mut().zip(data) {
                    *to = *from;
                }
                cmd_mailbox::block_number.set(&mut block, n as u32);
                writeln!(f, "command block:")?;
                hexdump(f, at, &block)?;
                at += block.len();
            }
        }
        Ok(())
    }
}

impl Command {
    /// The queue entry, with what a message says of it.
    fn entry(&self, half: Half) -> [u8; cmd_entry::BYTES] {
        let mut entry = [0; cmd_entry::BYTES];
        cmd_entry::transport.set(&mut entry, 7);
        cmd_entry::input_length.set(&mut entry, self.input.len() as u32);
        cmd_entry::output_length.set(&mut entry, self.output.len() as u32);
        let copy = |to: &mut [u8], from: &[u8]| {
            for (to, from) in to.iter_mut().zip(from) {
                *to = *from;
            }
        };
        copy(cmd_entry::input.bytes_mut(&mut entry), &self.input);
        match half {
            Half::Input => cmd_entry::ownership.set(&mut entry, 1),
            Half::Output => copy(cmd_entry::output.bytes_mut(&mut entry), &self.output),
        }
        entry
    }
}

fn hexdump(f: &mut fmt::Formatter<'_>, offset: usize, bytes: &[u8]) -> fmt::Result {
    for (at, line) in (offset..).step_by(16).zip(bytes.chunks(16)) {
        write!(f, "{at:03x}:")?;
        for word in line.chunks(4) {
            f.write_str(" ")?;
            word.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        writeln!(f)?;
    }
    writeln!(f)
}

/// Writes every command to a file or the like.
#[derive(Debug)]
pub struct Tracer<W: io::Write + Send>(W);

impl<W: io::Write + Send> Tracer<W> {
    /// Writes to `out`. A write that fails is lost: the device has nobody to tell.
    pub const fn new(out: W) -> Self {
        Self(out)
    }
}

impl<W: io::Write + Send> Observer for Tracer<W> {
    fn saw(&mut self, seen: &Seen<'_>) {
        if let Seen::Command { opcode, input, output } = *seen {
            let command = Command { opcode, input: input.to_vec(), output: output.to_vec() };
            // In one piece: others may write to the same file.
            let text = command.to_string();
            let _ = self.0.write_all(text.as_bytes());
        }
    }
}

/// A half being read.
struct Dump {
    opcode: u16,
    half: Half,
    bytes: Vec<u8>,
}

impl Dump {
    /// The message in an entry and its blocks.
    fn message(&self, line: usize) -> Message {
        let (inline, length) = match self.half {
            Half::Input => (cmd_entry::input, cmd_entry::input_length),
            Half::Output => (cmd_entry::output, cmd_entry::output_length),
        };
        let length = length.declared(&self.bytes) as usize;
        let mut message =
            self.bytes.get(inline.byte()..inline.byte() + INLINE).unwrap_or_default().to_vec();
        let blocks = self.bytes.get(cmd_entry::BYTES..).unwrap_or_default();
        for block in blocks.chunks(cmd_mailbox::BYTES) {
            message.extend_from_slice(block.get(..BLOCK).unwrap_or(block));
        }
        message.truncate(length);
        Message { line, half: self.half, opcode: self.opcode, length, bytes: message }
    }
}

/// A line of a recording that cannot be read, or says what no card says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {field}: {what}")]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// The field of it.
    pub field: String,
    /// What is wrong.
    pub what: String,
}

impl BadLine {
    pub(crate) fn new(line: usize, field: impl Into<String>, what: impl Into<String>) -> Self {
        Self { line, field: field.into(), what: what.into() }
    }
}

/// One half of a command, with the line at which it begins.
pub(crate) struct Message {
    pub(crate) line: usize,
    pub(crate) half: Half,
    pub(crate) opcode: u16,
    /// Length as declared.
    pub(crate) length: usize,
    /// The bytes that are there, up to that length.
    pub(crate) bytes: Vec<u8>,
}

/// Longest message of the compact form: the largest command is a list of pages of 100 KiB.
const LONGEST: usize = 1 << 20;

/// Commands of a text in either form, in order of their inputs.
///
/// # Errors
///
/// Says which line is wrong.
pub fn read(text: &str) -> Result<Vec<Command>, BadLine> {
    let mut commands: Vec<Command> = Vec::new();
    messages(text, |message| {
        take(message, &mut commands);
        Ok(())
    })?;
    Ok(commands)
}

/// Gives each half of a command to `each`, in order.
pub(crate) fn messages(
    text: &str,
    mut each: impl FnMut(Message) -> Result<(), BadLine>,
) -> Result<(), BadLine> {
    let mut dump: Option<(usize, Dump)> = None;
    for (line, text) in (1..).zip(text.lines()) {
        if let Some((_, rest)) = text.split_once("dump command ") {
            if let Some((line, dump)) = dump.take() {
                each(dump.message(line))?;
            }
            let opcode = rest
                .split_once("(0x")
                .and_then(|(_, digits)| digits.split_once(')'))
                .and_then(|(digits, _)| u16::from_str_radix(digits, 16).ok())
                .ok_or_else(|| BadLine::new(line, "opcode", "not in (0x...)"))?;
            let half = if rest.ends_with("OUTPUT") { Half::Output } else { Half::Input };
            dump = Some((line, Dump { opcode, half, bytes: Vec::new() }));
        } else if let Some((_, dump)) = &mut dump {
            dump.bytes.extend(words(text).unwrap_or_default());
        } else if text.starts_with("in ") || text.starts_with("out ") {
            each(compact_line(line, text)?)?;
        }
    }
    dump.map_or(Ok(()), |(line, dump)| each(dump.message(line)))
}

/// The four words of a line of a dump, whatever stands before it.
fn words(line: &str) -> Option<Vec<u8>> {
    let line = line.rsplit("] ").next().unwrap_or(line);
    let (at, words) = line.split_once(": ")?;
    usize::from_str_radix(at.trim(), 16).ok()?;
    let mut bytes = Vec::new();
    for word in words.split_whitespace() {
        let word = u32::from_str_radix(word, 16).ok()?;
        bytes.extend(word.to_be_bytes());
    }
    Some(bytes)
}

/// An answer belongs to the first command of its number that has none.
fn take(message: Message, commands: &mut Vec<Command>) {
    let Message { opcode, bytes, .. } = message;
    match message.half {
        Half::Input => commands.push(Command { opcode, input: bytes, output: Vec::new() }),
        Half::Output => {
            let asked = commands
                .iter_mut()
                .find(|command| command.opcode == opcode && command.output.is_empty());
            if let Some(command) = asked {
                command.output = bytes;
            }
        }
    }
}

fn compact_line(line: usize, text: &str) -> Result<Message, BadLine> {
    let bad = |field: &str, what: &str| BadLine::new(line, field, what);
    let mut words = text.split_whitespace();
    let half = match words.next() {
        Some("in") => Half::Input,
        _ => Half::Output,
    };
    let opcode = words.next().and_then(|word| u16::from_str_radix(word, 16).ok());
    let opcode = opcode.ok_or_else(|| bad("opcode", "not a number of 16 bits"))?;
    let length: Option<usize> = words.next().and_then(|word| word.parse().ok());
    let length = length.filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| bad("length", "not a number of bytes up to 1048576"))?;
    let mut bytes = vec![0; length];
    for word in words {
        let (at, value) = word.split_once(':').ok_or_else(|| bad(word, "not OFFSET:WORD"))?;
        let at = usize::from_str_radix(at, 16).map_err(|_| bad(word, "no offset"))?;
        let value = u32::from_str_radix(value, 16).map_err(|_| bad(word, "no word"))?;
        let to = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>());
        *to.ok_or_else(|| bad(word, "beyond the message's length"))? = value.to_be_bytes();
    }
    Ok(Message { line, half, opcode, length, bytes })
}

/// The compact form: without the lists of pages, which are one machine's.
#[must_use]
pub fn compact(commands: &[Command]) -> String {
    let mut out = String::new();
    for command in commands {
        for (half, message) in [(Half::Input, &command.input), (Half::Output, &command.output)] {
            let _ = write!(out, "{} {:x} {}", half.word(), command.opcode, message.len());
            let end = pages_at(command.opcode);
            for (n, word) in message.chunks(4).enumerate() {
                let value = word.iter().fold(0, |sum: u32, byte| sum << 8 | u32::from(*byte));
                if value != 0 && n * 4 < end {
                    let _ = write!(out, " {:x}:{value:08x}", n * 4);
                }
            }
            out.push('\n');
        }
    }
    out
}

/// The byte of a message from which on it is a list of pages.
const fn pages_at(opcode: u16) -> usize {
    match opcode {
        0x108 => 16,
        0x200 | 0x301 | 0x400 | 0x500 | 0x904 | 0x908 | 0x90c => 0x110,
        _ => usize::MAX,
    }
}
