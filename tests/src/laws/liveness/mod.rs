//! Liveness: whatever was accepted ends, with its event.
//!
//! An episode connects up to six Endpoints of each side, with Event Dispatchers merged in any way
//! and of any length, and runs a random program of posts, dequeues, disconnects, resets, frees and
//! new connections. At a random step the program stops. From then on the consumer of each side does
//! one thing only ([`Ending`](ending::Ending)); every connection that was to end must end
//! within [`DEADLINE`](ending::DEADLINE), with its events in the order of the manual pages
//! ([`check`]). One episode in six runs [`steady`] traffic instead.
//!
//! Rules that a [`Violation`](super::Violation) names:
//!
//! | rule | statement |
//! |---|---|
//! | `stuck`, `stuck-send` | an accepted disconnect or connect never ends; `stuck-send` while a send is outstanding |
//! | `peer-stuck` | the end of a connection does not arrive at the peer |
//! | `lost-terminal`, `lost-established` | the event never comes though the Endpoint's state says that it has been generated |
//! | `lost-terminal-freed`, `lost-terminal-reset` | the same, and the Endpoint was freed or reset afterwards |
//! | `established-order` | Established precedes the completions of its connection (same Event Dispatcher) |
//! | `terminal-order` | the terminal event follows the completions of its connection (same Event Dispatcher) |
//! | `connection-order` | events of one connection of an Endpoint precede those of the next |
//! | `completion-order`, `lost-completion`, `unknown-completion` | in posting order, each exactly once |
//! | `bind-completion` | the same for a bind whose RMR was freed |
//! | `idle`, `idle-undequeued` | idle flags of `dat_ep_get_status(3)`: everything dequeued, or completed and not dequeued |
//! | `starved` | an event comes although another Endpoint's completions keep coming |
//! | `resize` | a resize below the number of events held is refused |
//! | `software`, `overflow`, `free` | software events in order; no overflow of what fits; every free succeeds |

mod act;
mod check;
mod ending;
mod post;
mod setup;
mod state;
mod steady;

use super::rng::Rng;
use super::{Episode, Outcome};
use crate::conformance::{Adapters, Side};
use state::Program;

/// Runs one episode.
pub fn episode<S: Side>(ias: &mut Adapters<'_, S>, episode: Episode) -> Outcome {
    let mut rng = Rng::new(episode.seed);
    let steady = rng.percent(16);
    let length =
        if rng.percent(70) { 30 + rng.below(150) as u64 } else { 150 + rng.below(500) as u64 };
    let length = length.min(episode.cut);
    let mut program = Program::new(ias, rng, episode.verbose);
    let mut done = 0;
    let check =
        if steady { program.steady(length, &mut done) } else { program.random(length, &mut done) };
    Outcome { steps: program.steps, program: done, check }
}
