//! The connection manager: its messages against recorded bytes, and two of it against each other
//! over a virtual link with loss, duplication, reordering, delay and time under the test's control.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that goes wrong here has failed, which is all it has to say"
)]

mod disconnect;
mod duplicates;
mod foreign;
mod handshake;
mod loss;
mod mra;
mod pair;
mod random;
mod reject;
mod sidr;
mod slots;
mod stale;
mod subnet;
mod times;
mod wire;
