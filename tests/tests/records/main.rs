//! Whole runs of the driver on the model: the demo, its frames and commands beside recorded ones,
//! and a million replays. `cargo xtask mutants` leaves them out.

mod demo;
mod fields;
mod replays;
mod trace;
