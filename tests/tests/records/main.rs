//! Whole runs of the driver on the model: the demo, and its frames and commands beside recorded
//! ones. `cargo xtask mutants` leaves them out.

mod demo;
mod fields;
mod trace;
