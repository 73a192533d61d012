//! An attacker on the wire, in the device, or at the other end of the vfio-user socket, against the
//! whole driver: each test is an attack, and passes if the attack fails.
//!
//! The attacker can put any frame on the link of a side and has read the standards. Where a test
//! gives it more, such as the communication IDs of a connection, it does so to change one field at
//! a time: what is compared then is what a blind attacker has to guess.
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

mod blind;
mod device;
mod flood;
mod forged;
mod infiniband;
mod keys;
mod mads;
mod neighbour;
mod proxy;
mod server;
mod shared;
mod stage;
mod storm;
mod table;
