//! The benchmarks: definitions, the limit they are measured against, and the host they run on.
//!
//! Three figures per case. Instructions, of the functions in [`loops`] and all they call, counted
//! by callgrind while the device is away: the gate. Time, as a multiple of the [`limit`] loop in
//! the same run. And what the device did per operation, counted by the model while it is there.
//! Beside them what [`registration`] of memory costs.
//! `cargo xtask bench` runs them all and prints one table.

pub mod cases;
pub mod economy;
pub mod golden;
pub mod host;
pub mod hostile;
pub mod limit;
pub mod loops;
pub mod measure;
pub mod puppet;
pub mod registration;
pub mod sizes;
pub mod stage;
pub mod threads;
