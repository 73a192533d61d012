//! The catalogue of faults: what can go wrong in the device, on the bus, on the wire and in the host,
//! struck in each phase of a consumer's work.
//!
//! A [`Row`] is a fault; a cell is a row in one [`Phase`]. [`cell::run`] opens an adapter on the
//! model in process, in virtual time, lets the fault strike in that phase, goes on to the end,
//! notes what the consumer sees, and then opens, connects and moves data anew. A cell fails if it
//! hangs, panics, leaks, breaks a rule of DAT, or loses more than its row says. [`process`] does
//! the same with processes over vfio-user, for what only a process meets.
//!
//! * [`rows`] - the catalogue; [`what`] - kinds of faults; [`arm`] - how each is made to strike.
//! * [`machine`] - a host with all seams where a fault strikes; [`consumer`], [`events`], [`program`] -
//!   its consumer.
//! * [`cell`] - one cell; [`page`] - `docs/faults.md`.

pub mod arm;
pub mod cell;
pub mod child;
pub mod consumer;
pub mod events;
pub mod machine;
pub mod page;
pub mod process;
pub mod program;
pub mod rows;
pub mod what;

pub use what::{Loss, Phase, Row, What};
