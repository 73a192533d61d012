//! A device model of an NVIDIA mlx5 HCA.
//!
//! The whole function as software sees it through PCI: configuration space, the initialization
//! segment, the command interface, firmware pages, event queues, queue objects, memory keys and
//! a RoCEv2 or InfiniBand port. It is written from public facts (the interface header of the stock Linux driver,
//! the PRM as far as it is public, what open drivers say of real cards) and knows nothing of any
//! driver it is used to test.
//!
//! A test owns an [`Hca`], gives it memory ([`host::HostMemory`]) and a wire ([`wire::Wire`]),
//! pokes its BAR and configuration space, and calls [`Hca::step`] to let time pass. Nothing happens
//! outside those calls: no thread, no clock, no hidden state. With feature `vfio-user`, module
//! `server` does all that for another process or a guest, in real time. The model never panics on
//! anything a driver or a wire gives it; what silicon would let pass although it is wrong ends up
//! in [`Hca::complaints`], and what it refused, unknown commands and registers among it, in
//! [`Stats::refused`].
//!
//! Not modelled: the embedded switch, SR-IOV management, ODP, TLS/IPsec/MACsec, DC transport,
//! tag matching, sub-functions, software steering.
#![forbid(unsafe_code)]
#![recursion_limit = "1024"]
#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "hardware registers are truncated by design; every index is masked or checked first"
)]

mod bus;
mod caps;
pub mod cards;
mod cmd;
mod config;
mod congestion;
mod counters;
mod eq;
pub mod facts;
pub mod faults;
mod function;
mod hca;
pub mod host;
mod ib;
pub mod ifc;
mod link;
mod module;
mod numbers;
mod objects;
mod pages;
mod ppcnt;
#[cfg(feature = "vfio-user")]
pub mod program;
mod queue_memory;
mod reg_access;
mod regs;
mod relaxed;
pub mod replay;
mod roce;
#[cfg(feature = "vfio-user")]
pub mod server;
mod stats;
pub mod subnet;
mod table;
mod traffic_counters;
pub mod transport;
mod vport;
pub mod watch;
pub mod wire;

pub use bus::{Mangle, Wrote};
pub use cards::Card;
pub use cmd::{CommandHook, Status, Verdict};
pub use config::{Config, LinkLayer, Personality, Profile};
pub use eq::{Event, kind as event};
pub use facts::{Facts, OpenFact, UnknownFact};
pub use hca::Hca;
pub use stats::{Refused, Stats};
