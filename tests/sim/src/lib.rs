//! A world from one number.
//!
//! Two to eight hosts, each the whole driver over a device model of its own, on one switch, in
//! virtual time and one thread. A seed gives a [`script`](script::Script): which hosts and links
//! there are, what their consumers do, and what goes wrong. Beside the consumers stands an oracle
//! that knows every byte, every completion and every connection event that may come. The same seed
//! gives the same trace, byte for byte; a seed that fails is cut down to the steps that it needs
//! ([`shrink`]).
//!
//! | rule | statement |
//! |---|---|
//! | `bytes`, `message`, `immediate`, `length`, `operation` | what arrives is what was sent, in order, once |
//! | `lost-message` | a message that was acknowledged is received |
//! | `memory` | memory that a peer reaches holds what its requests put there, all other memory what its host put there |
//! | `unknown-completion`, `completion-order`, `lost-completion` | every completion once, in order |
//! | `terminal-order`, `connection-event`, `lost-event` | each connection begins once and ends once, after its completions |
//! | `failed`, `broken`, `rejected` | nothing fails that no fault and no call excuses |
//! | `key` | a context comes back after 255 others and never before |
//! | `idle` | an Endpoint is idle when all that it posted has completed, and not before |
//! | `credits` | an Endpoint takes no more requests than it was made for |
//! | `prompt` | a message without a receive arrives soon after there is one |
//! | `pool` | a Shared Receive Queue takes as many messages as it has receives |
//! | `refused`, `late` | a request that must fail does |
//! | `request` | a connection request comes once |
//! | `datagram` | a datagram arrives as it was sent, or not at all |
//! | `call`, `open`, `close` | no call fails without a reason |
//! | `leak`, `stray`, `complaint` | memory is given back, none of others is written, and the device has nothing to complain of |
//! | `lost-device` | a device that is lost gives everything back |
//! | `liveness` | without faults everything under way ends in time |
//! | `wake` | what comes for a host that sleeps wakes it |
//! | `drain` | a graceful disconnect lets requests complete |
//! | `recovery` | when faults are over, every link connects and carries messages |
//! | `panic` | nothing panics |
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a failed test with a line number"
)]

pub mod aim;
mod datagram;
mod end;
pub mod faults;
mod grant;
mod judge;
mod memory;
mod open;
pub mod oracle;
mod program;
mod request;
pub mod run;
pub mod script;
pub mod shrink;
mod strike;
pub mod trace;
mod wake;
pub mod weights;
pub mod world;
