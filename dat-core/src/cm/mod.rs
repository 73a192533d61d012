//! The InfiniBand connection manager (CM), as RoCEv2 and the RDMA IP CM service speak it.

mod calls;
mod event;
mod params;
mod slot;
pub mod wire;

pub use event::{Cause, CmError, CmEvent, Counters, Reply, Request, Transmit};
pub use params::{AcceptParams, Config, ConnId, ConnectParams, QpTerms, ack_timeout, code_time};
pub use slot::Slot;
pub use wire::{Reason, ServiceId};

/// The connection manager: a table of connections, bytes in, bytes out.
#[derive(Debug)]
pub struct Cm<'s> {
    slots: &'s mut [Slot],
    config: Config,
    seed: [u64; 2],
}

impl<'s> Cm<'s> {
    /// A connection manager over these slots, at most 65,536 of them. `seed` makes its comm IDs and PSNs unpredictable:
    /// give it 128 bits of the platform's entropy.
    pub fn new(slots: &'s mut [Slot], config: Config, seed: [u64; 2]) -> Self {
        Self {
            slots,
            config,
            seed,
        }
    }
}
