//! The demo: two Interface Adapters connect two Endpoints over RoCEv2 or InfiniBand and move data,
//! nothing faked in between.
//!
//! Each act leaves a row: what was done, how often, how long it took, and what it cost at the
//! device's edge (BAR stores, DMA accesses). Contents are verified byte for byte on the side that
//! received them; the first thing that is not as it should be ends the demo with an error.

mod acts;
mod environment;
mod options;
mod report;
mod run;
mod stage;
pub(crate) mod table;

pub use acts::all;
pub use environment::{Environment, Tally};
pub use options::{Link, Options};
pub use report::{Report, Row};
pub use run::{Run, depth};

use anyhow::Result;

/// Runs all acts.
///
/// # Errors
/// The first thing that was not as it should be.
pub fn run(options: &Options) -> Result<Report> {
    stage::run(options)
}
