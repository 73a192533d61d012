//! Looking on: what passes between a driver and the device, for notes and traces.
//!
//! An [`Observer`] given to [`crate::Hca::observe`] is shown every command with its answer, every
//! work request taken and every completion and event written. It changes nothing and the device
//! knows nothing of it; without one, a completion costs one look at an empty list more.
//!
//! * [`Fields`] notes which field of which layout was ever set, and to what.
//! * [`Tracer`] writes commands in the form in which mlx5_core dumps them.
//! * [`trace`] reads such a text back, [`diff`] compares two of them field by field.
//!
//! `messages` knows which layouts a command is made of. What the layouts do not name shows up as
//! unnamed bits: nothing that a driver sends is passed over in silence.

pub mod diff;
mod fields;
mod messages;
pub mod trace;

pub use fields::Fields;
pub use messages::{Half, Leaf, Means, leaves, name};
pub use trace::Tracer;

/// Content of a send queue, where its work requests do not say it themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// Messages of a connection, or edits of keys.
    Messages,
    /// Messages of an extended connection, each with the number of a shared receive queue.
    Xrc,
    /// Datagrams, each with an address vector.
    Datagrams,
    /// Ethernet frames.
    Frames,
}

/// Something that passed between driver and device.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A command that was carried out, or refused.
    Command {
        /// Its number.
        opcode: u16,
        /// All of its input.
        input: &'a [u8],
        /// The answer, of the declared length.
        output: &'a [u8],
    },
    /// A send work request, as long as its DS says.
    Send {
        /// Content of its queue.
        kind: Sends,
        /// All of it.
        bytes: &'a [u8],
    },
    /// A receive work request, as long as its stride.
    Receive {
        /// All of it.
        bytes: &'a [u8],
    },
    /// A receive work request of a shared queue.
    Shared {
        /// It begins with the number of the next.
        linked: bool,
        /// All of it.
        bytes: &'a [u8],
    },
    /// A completion as written.
    Completion {
        /// The entry.
        bytes: &'a [u8],
    },
    /// An event as written.
    Event {
        /// The entry.
        bytes: &'a [u8],
    },
}

/// Sees what passes.
pub trait Observer: Send {
    /// Called for each thing, in order.
    fn saw(&mut self, seen: &Seen<'_>);
}

#[cfg(test)]
mod tests;
