//! Personalities made of recordings: the report of a card's user, or a recorded bring-up.
//!
//! [`Replay::read`] takes two kinds of file. A report is a JSON object on each line, which
//! `dat hw-test` writes; a recording is the text that `watch::trace` reads, in either form. Both
//! come from other people's machines by mail: a line that says what no card says is an error that
//! names line and field, and what is kept of a file is bounded.
//!
//! Of each question the first answer counts, which is the card's before software changed anything.
//! What a file does not answer is taken from the nearest of the model's [cards](crate::cards), and
//! [`Replay::lacks`] has a line for each such answer.

mod bounds;
mod gather;
mod report;
mod segments;
mod sources;

use crate::caps::Blocks;
use crate::cmd::Refusal;
use crate::config::Config;
use crate::host::Nanos;
use crate::ifc::Field;
pub use crate::watch::trace::BadLine;
use gather::Gather;
pub(crate) use segments::geometry;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

/// Largest file: the report of a whole test is a hundredth of it.
const LARGEST: usize = 32 << 20;

/// What a file says of a card, as the parts of the device answer it.
#[derive(Debug, Default)]
pub struct Recording {
    /// Capabilities: what the card could do.
    pub(crate) max: Blocks,
    /// Capabilities: what it was set to.
    pub(crate) current: Blocks,
    /// Answer to QUERY_ADAPTER.
    pub(crate) adapter: Option<Vec<u8>>,
    /// Interface versions.
    pub(crate) issi: Option<u32>,
    /// NIC vport context.
    pub(crate) vport: Option<Vec<u8>>,
    /// Registers: what was asked of each, and what it said.
    pub(crate) registers: BTreeMap<u16, (Vec<u8>, Vec<u8>)>,
    /// Questions that the card refused, by opcode, modifier and register.
    pub(crate) refused: BTreeMap<(u16, u16, u16), Refusal>,
    /// Mean time of each kind of command, by opcode and modifier.
    pub(crate) latencies: BTreeMap<(u16, u16), Nanos>,
    /// The initialization segment.
    pub(crate) segment: Option<Vec<u8>>,
    /// Configuration space.
    pub(crate) pci: Option<Vec<u8>>,
}

impl Recording {
    /// A field of a register, if the card was asked for it.
    pub(crate) fn register(&self, id: u32, field: Field) -> Option<u32> {
        let (_, answer) = self.registers.get(&u16::try_from(id).ok()?)?;
        Some(field.get(answer))
    }

    /// What a register said when it was asked the same.
    pub(crate) fn answer(&self, id: u32, asked: &[u8]) -> Option<&[u8]> {
        let (before, answer) = self.registers.get(&u16::try_from(id).ok()?)?;
        let same = asked.iter().zip(before).all(|(a, b)| a == b);
        same.then_some(answer.as_slice())
    }

    /// A big-endian word of the initialization segment.
    pub(crate) fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.segment.as_ref()?.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_be_bytes(*bytes))
    }
}

/// Why a file is no personality.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is larger than any recording.
    #[error("more than {LARGEST} bytes: no recording of a card is so large")]
    Large,
    /// A line of it is wrong.
    #[error(transparent)]
    Line(#[from] BadLine),
}

/// A personality made of a file.
#[derive(Clone, Debug)]
pub struct Replay {
    config: Config,
    source: String,
    lacks: Vec<String>,
}

impl Replay {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or a line of it is wrong.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path)?;
        let most = file.take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
        if most > LARGEST {
            return Err(ReplayError::Large);
        }
        Ok(Self::read(&bytes)?)
    }

    /// Reads the contents of a file.
    ///
    /// # Errors
    ///
    /// Names the first line that is wrong, and its field.
    pub fn read(bytes: &[u8]) -> Result<Self, BadLine> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let good = &bytes[..error.valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            BadLine::new(line, "text", "not UTF-8")
        })?;
        let mut gather = Gather::default();
        if text.trim_start().starts_with('{') {
            report::read(text, &mut gather)?;
        } else {
            gather.recording(text)?;
        }
        gather.finish()
    }

    /// A device that answers as the file says.
    #[must_use]
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// What the file is of.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Each answer that the file lacks, with what the model gives instead; and what the file says
    /// and the model does not have.
    #[must_use]
    pub fn lacks(&self) -> &[String] {
        &self.lacks
    }

    /// The whole in words: a line for the source, then one for each answer that it lacks.
    #[must_use]
    pub fn describe(&self) -> String {
        let lines = [&self.source].into_iter().chain(&self.lacks);
        lines.map(|line| format!("{line}\n")).collect()
    }

    fn new(config: Config, recording: Recording, source: String, lacks: Vec<String>) -> Self {
        let config = Config { recording: Some(Arc::new(recording)), ..config };
        Self { config, source, lacks }
    }
}
