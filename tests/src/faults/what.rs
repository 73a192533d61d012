//! Faults as values.

use mlx5_model::host::Nanos;
use mlx5_model::wire::impair::Fault as Frame;
use mlx5_model::{Event, Hca, Verdict, Wrote};

use crate::host::watched::Ask;

/// A microsecond.
pub const US: Nanos = 1_000;
/// A millisecond.
pub const MS: Nanos = 1_000_000;
/// A second.
pub const S: Nanos = 1_000_000_000;

/// What a consumer is doing when a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Opens the adapter, makes its objects, takes the first connection.
    BringUp,
    /// Connects, as the active side and as the passive one.
    Connecting,
    /// Sends, writes and reads, with requests outstanding; registers memory; connects once more.
    Traffic,
    /// Disconnects, frees, closes the adapter.
    Closing,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::BringUp, Self::Connecting, Self::Traffic, Self::Closing];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BringUp => "bring-up",
            Self::Connecting => "connecting",
            Self::Traffic => "in traffic",
            Self::Closing => "closing",
        }
    }
}

/// The most that a fault may take from a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// Nothing but time.
    Nothing,
    /// The call or the connection that it strikes.
    Connection,
    /// The adapter, with all its connections.
    Adapter,
}

impl Loss {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Connection => "the call or the connection that it strikes",
            Self::Adapter => "the adapter",
        }
    }
}

/// Which of many of a kind are struck: so many, from the n-th of the phase on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The first, from 0.
    pub from: u64,
    /// How many.
    pub count: u64,
}

/// The n-th.
#[must_use]
pub const fn nth(from: u64) -> Pick {
    Pick { from, count: 1 }
}

/// So many, from the n-th on.
#[must_use]
pub const fn some(from: u64, count: u64) -> Pick {
    Pick { from, count }
}

/// All.
#[must_use]
pub const fn all() -> Pick {
    Pick { from: 0, count: u64::MAX }
}

/// Numbers of the objects that the driver has, for events about them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    /// A queue pair of the consumer's, if there is one.
    pub qpn: Option<u32>,
    /// Firmware pages that the device holds.
    pub pages: u32,
}

/// What becomes of the interrupts of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// They do not arrive.
    Lost,
    /// They arrive although nothing happened.
    Spurious,
    /// They arrive this much later.
    Late(Nanos),
}

/// What goes wrong. Functions are given what there was, and return what there is instead.
#[derive(Clone, Copy)]
pub enum What {
    /// Commands, of one opcode or of any, have this answer.
    Commands(Pick, Option<u16>, Verdict),
    /// DMA writes of a kind are changed; one that becomes empty is lost.
    Writes(Pick, Wrote, fn(&mut Vec<u8>)),
    /// Events that nobody caused: the queue, if not the one subscribed to it.
    Events(fn(Numbers) -> Vec<(Option<u8>, Event)>),
    /// Registers read otherwise, where the function gives another value.
    Registers(Pick, fn(usize, u32) -> u32),
    /// Register writes do not arrive.
    Stores(Pick),
    /// Something happens to the device just before a register write.
    Step(u64, fn(&mut Hca)),
    /// Frames from one side or from both (`None`) are disturbed, of those that the function
    /// chooses.
    Frames(Pick, Option<usize>, fn(&[u8]) -> bool, Frame),
    /// In place of such frames these arrive.
    Instead(Pick, Option<usize>, fn(&[u8]) -> bool, fn(&[u8]) -> Vec<Vec<u8>>),
    /// Nothing passes the cable for a while; with `true` the port says so.
    Unplugged(Nanos, bool),
    /// Interrupts of the phase.
    Vectors(Pick, Interrupts),
    /// The host has none of what the driver asks for.
    Grants(Pick, Ask),
    /// The IOMMU refuses all reads (`true`) or writes of the device for a while.
    Refused(bool, Nanos),
    /// All clocks jump.
    Jump(Nanos),
    /// The host's process does not run for a while.
    Pause(Nanos),
    /// The consumer finds its host so late that the device was reset meanwhile.
    Suspend(Nanos),
}

impl core::fmt::Debug for What {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("What")
    }
}

/// A fault of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub is: &'static str,
    /// The most that it may take.
    pub loses: Loss,
    /// What goes wrong.
    pub what: What,
    /// Phases in which it cannot strike, and why.
    pub never: &'static [(Phase, &'static str)],
}

impl Row {
    /// A fault that can strike in every phase.
    #[must_use]
    pub const fn new(name: &'static str, is: &'static str, loses: Loss, what: What) -> Self {
        Self { name, is, loses, what, never: &[] }
    }

    /// The same, but not in these phases.
    #[must_use]
    pub const fn never(self, never: &'static [(Phase, &'static str)]) -> Self {
        Self { never, ..self }
    }

    /// Why it cannot strike in a phase.
    #[must_use]
    pub fn why_not(&self, phase: Phase) -> Option<&'static str> {
        self.never.iter().find(|(never, _)| *never == phase).map(|(_, why)| *why)
    }
}
