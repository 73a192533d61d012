//! Two laws of the Interface Adapter, as property tests over random programs.
//!
//! * [`liveness`]: from any reachable state, every disconnect, reset and free that was accepted
//!   ends within its deadline, with its event, whatever little the consumer does afterwards.
//! * [`safety`]: after `rmr_free`, `lmr_free`, `ep_free` or `ep_reset` returned success, no remote
//!   operation touches memory through the freed context or Endpoint.
//!
//! Programs are written from the manual pages against [`dat_core::Ia`] and run on any
//! [`Side`](crate::conformance::Side): the loop provider and the driver over the device model. A
//! run is a row of short episodes, each on two new adapters and each from a seed of its own, so
//! that an episode that fails can be repeated alone. [`run`] starts episodes and cuts the failing
//! one down to the fewest steps that still fail.
//!
//! A step is one call of the consumer: a post, a control call, a dequeue that gave an event, or a
//! call of the progress engine that the program chose to make. What an episode polls while it waits
//! for an end is not counted.

use dat_core::{Ep, Event};

pub mod liveness;
pub mod rng;
pub mod run;
pub mod safety;

pub use run::{Failure, Law, Plan, Provider, Report};

/// A statement of a manual page that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the rule, for counting.
    pub rule: &'static str,
    /// The violation, in words.
    pub text: String,
}

/// Nothing, or the rule that was violated.
pub type Check = Result<(), Violation>;

/// A violation of `rule`.
pub fn violation<T>(rule: &'static str, text: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { rule, text: text.into() })
}

/// The Endpoint of an event that begins or ends a connection.
#[must_use]
pub const fn connection_of(event: &Event) -> Option<Ep> {
    if let Event::Established(ep)
    | Event::PeerRejected(ep)
    | Event::NonPeerRejected(ep)
    | Event::AcceptCompletionError(ep)
    | Event::Disconnected(ep)
    | Event::Broken(ep)
    | Event::TimedOut(ep)
    | Event::Unreachable(ep) = event
    {
        Some(*ep)
    } else {
        None
    }
}

/// Parameters of an episode.
#[derive(Clone, Copy, Debug)]
pub struct Episode {
    /// Seed of all its choices.
    pub seed: u64,
    /// Steps of its program at most; what follows the program is not counted.
    pub cut: u64,
    /// Print every call to stderr.
    pub verbose: bool,
}

/// Result of an episode.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Calls made in all.
    pub steps: u64,
    /// Steps of its program.
    pub program: u64,
    /// Whether the law held.
    pub check: Check,
}
