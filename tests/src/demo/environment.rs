//! Environment of the demo's acts: two adapters, a clock, and a wait for events.

use std::net::IpAddr;
use std::ops::Sub;
use std::time::Duration;

use anyhow::Result;
use dat_core::provider::Provider;
use dat_core::{Evd, Event, Ia, Instant};
use hca_mlx5::platform::Platform;

/// What the devices of both sides did so far; zeros where the environment cannot inspect them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Nanoseconds of the devices' own time.
    pub time: u64,
    /// BAR stores.
    pub mmio_stores: u64,
    /// DMA reads.
    pub dma_reads: u64,
    /// DMA writes.
    pub dma_writes: u64,
    /// Commands.
    pub commands: u64,
}

impl Sub for Tally {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            time: self.time - before.time,
            mmio_stores: self.mmio_stores - before.mmio_stores,
            dma_reads: self.dma_reads - before.dma_reads,
            dma_writes: self.dma_writes - before.dma_writes,
            commands: self.commands - before.commands,
        }
    }
}

/// Two sides, each with an adapter of its own.
pub trait Environment<'s> {
    /// Where the adapters' memory is.
    type Platform: Platform + 's;
    /// What the adapters are opened on.
    type Driver: Provider + 's;

    /// The adapter of a side.
    fn ia(&mut self, side: usize) -> &mut Ia<'s, Self::Driver>;
    /// The platform of a side.
    fn platform(&self, side: usize) -> &'s Self::Platform;
    /// The network address of a side.
    fn address(&self, side: usize) -> IpAddr;
    /// The time, as the adapters take it.
    fn now(&self) -> Instant;
    /// The first event of any of these Event Dispatchers (side and handle), and the side it came
    /// from; none if nothing comes within `limit`. Both adapters are driven meanwhile.
    ///
    /// # Errors
    /// A device is lost.
    fn first(&mut self, of: &[(usize, Evd)], limit: Duration) -> Result<Option<(usize, Event)>>;
    /// What the devices did.
    fn tally(&self) -> Tally;
}
