//! Fuzz targets: what a device, a peer, a file or a program may supply, as bytes.
//!
//! [`TARGETS`] lists them. Each is a module with `run`, which takes any bytes and returns: it
//! panics where the code under test breaks a promise, and keeps nothing from one call to the next.
//! Where bytes have structure, `run` reads a program of steps from them by `arbitrary`.
//! `corpus/TARGET` holds inputs that together reach what a target is known to reach;
//! `tests/corpus.rs` replays them all. `cargo xtask fuzz` searches for more.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    reason = "test code: a panic here is a finding"
)]

mod input;
mod lone;
mod world;

pub mod answers;
pub mod calls;
pub mod capabilities;
pub mod completions;
pub mod config_space;
pub mod dat_conf;
pub mod ethernet;
pub mod events;
pub mod extension;
pub mod frames;
pub mod infiniband;
pub mod liar;
pub mod mads;
pub mod neighbours;
pub mod packets;
pub mod pcap;
pub mod replays;
pub mod reports;
pub mod segment;
pub mod subnet;
pub mod subnet_manager;
pub mod vfio_client;
pub mod vfio_server;
pub mod work_requests;

// The device that the model's own tests have speaks of its modules so.
use mlx5_model::{transport, wire};

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// What supplies the bytes, and what takes them.
    pub about: &'static str,
    /// Runs it on one input.
    pub run: fn(&[u8]),
}

macro_rules! targets {
    ($($name:ident: $about:expr;)*) => {
        /// All targets.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), about: $about, run: $name::run },)*];
    };
}

targets! {
    answers: "a device's answers to commands, while the driver is brought up and down";
    calls: "a C program's calls into the uDAPL provider";
    capabilities: "a device's answers to queries of what it is";
    completions: "a device's completion queue entries into an adapter";
    config_space: "configuration space into the host's reader; accesses to the model's registers";
    dat_conf: "parameters of a line of dat.conf into the provider";
    ethernet: "frames of the link into a whole host";
    events: "a device's event queue entries into the driver";
    extension: "a C program's use of the provider's own extension, between two adapters";
    frames: "a peer's frames into the model's parser";
    infiniband: "frames of the link, and a subnet administrator's answers, into a driver's port";
    liar: "a platform's memory, pages, registers and time into the driver";
    mads: "a peer's connection datagrams into the connection manager";
    neighbours: "frames of the link into ARP and Neighbor Discovery";
    packets: "a peer's packets into a queue pair of the model";
    pcap: "frames into a capture, and back";
    replays: "reports and recordings of cards into the model";
    reports: "a report of hw-test that is continued";
    segment: "a device's initialization segment into the driver";
    subnet: "frames of an InfiniBand link into the model's nodes";
    subnet_manager: "management datagrams into the built-in subnet manager";
    vfio_client: "messages of a vfio-user server into the client";
    vfio_server: "messages of a vfio-user client into the model's server";
    work_requests: "bytes of work requests into the model";
}

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
