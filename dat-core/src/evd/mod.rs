//! Event Dispatchers: dat_evd_*(3).
//!
//! One Event Dispatcher takes any mix of streams. Completions come straight from its completion
//! queue; all other events come through a ring that the control half fills. The rules of order are
//! the reaper's, see [`EvdReaper`].
//!
//! What wakes somebody (a wait, a CNO, an upcall) is found by looking, in `count` and `arrival`;
//! nothing of it is on the way of an event that is merely dequeued.

mod absorb;
mod arrival;
mod chain;
mod clear_unwaitable;
mod count;
mod create;
mod dequeue;
mod disable;
mod enable;
mod finish;
mod follow;
mod free;
mod kcreate;
mod modify_cno;
mod modify_upcall;
mod post_se;
mod query;
mod reaper;
mod resize;
mod set_unwaitable;
mod wait;

pub use kcreate::{Upcall, UpcallPolicy};
pub use modify_upcall::UpcallFlag;
pub use query::EvdParam;
pub use reaper::EvdReaper;
pub use wait::EvdWait;

pub(crate) use absorb::{known, look_through};
pub(crate) use finish::untold;
pub(crate) use kcreate::Upcalls;
pub(crate) use reaper::Reaper;

use crate::counters::EvdTally;
use crate::flags::EvdFlags;
use crate::handle::Cno;
use crate::provider::{Cq, Provider};

/// What the control half knows of one Event Dispatcher.
#[derive(Debug)]
pub(crate) struct EvdControl<P: Provider> {
    pub(crate) flags: EvdFlags,
    /// Events the consumer may count on.
    pub(crate) qlen: u32,
    /// Events the ring takes.
    pub(crate) ring: u32,
    pub(crate) cq: Option<Cq>,
    /// Streams attached: directions and connections of Endpoints, service points.
    pub(crate) streams: u32,
    /// The device announced completions, and the consumer has not asked.
    pub(crate) notified: bool,
    /// The same, and who listens has not been told.
    pub(crate) announced: bool,
    pub(crate) cno: Option<Cno>,
    /// Arrivals trigger the CNO.
    pub(crate) enabled: bool,
    pub(crate) unwaitable: bool,
    /// Instead of a CNO and waits: kDAPL.
    pub(crate) upcalls: Option<Upcalls<P>>,
    pub(crate) tally: EvdTally,
}
