//! Safety: nothing freed is reached.
//!
//! Side B has memory, cut into units. It registers blocks of units, binds windows of both types
//! over them, and frees, resets and reuses all of it in any order. Side A fires RDMA writes and
//! reads at every context that it ever learned, and at contexts with another low byte, through
//! several connected Endpoints. A connection that breaks is made anew.
//!
//! A unit is *exposed* while a living registration with remote privileges or a living window covers
//! it and an Endpoint leads there. Exposed units hold public bytes; side A writes nothing but
//! public bytes. In the moment in which a unit stops being exposed (the call has returned) it is
//! filled with secret bytes. From then on it must not change, and no read of side A may return a
//! secret byte.
//!
//! Rules that a [`Violation`](super::Violation) names:
//!
//! | rule | statement |
//! |---|---|
//! | `written` | a remote write changed memory that is not exposed |
//! | `read` | a remote read returned bytes of memory that is not exposed |
//! | `bind-completion` | the completion of a bind that is not suppressed comes exactly once, even if its RMR is freed |
//! | `bad-input` | a freed handle or a context of an earlier registration is refused |
//! | `free` | `rmr_free`, `ep_free` and `ep_reset` succeed in the states in which the pages allow them |

mod memory;
mod program;
mod traffic;

use super::rng::Rng;
use super::{Episode, Outcome};
use crate::conformance::{Adapters, Side};
use program::Program;

/// Runs one episode.
pub fn episode<S: Side>(ias: &mut Adapters<'_, S>, episode: Episode) -> Outcome {
    let mut rng = Rng::new(episode.seed);
    let length = 60 + rng.below(400) as u64;
    let length = length.min(episode.cut);
    let mut program = Program::new(ias, rng, episode.verbose);
    let mut done = 0;
    let check = program.run(length, &mut done);
    Outcome { steps: program.steps, program: done, check }
}
