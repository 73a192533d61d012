//! The model over vfio-user: a client of other origin (the `vfio_user` crate's) as referee, and a
//! raw one for what that one cannot say.
#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that goes out of bounds should fail"
)]

mod clients;
mod commands;
mod device;
mod dma;
mod interrupts;
mod program;
mod rig;
