//! The device: its parts, and the calls from outside.

use crate::bus::{Bus, Mangle};
use crate::caps::Caps;
use crate::cmd::{CommandHook, CommandQueue};
use crate::config::Config;
use crate::eq::{Event, EventQueues};
use crate::host::{HostMemory, Nanos};
use crate::numbers::Ids;
use crate::objects::Objects;
use crate::pages::Pages;
use crate::regs::{ConfigSpace, Registers};
use crate::roce::RoceTable;
use crate::stats::Stats;
use crate::transport::Transport;
use crate::vport::Vport;
use crate::wire::Wire;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// One mlx5 function, plugged into a host's memory and a wire.
pub struct Hca {
    /// What it was built as; never changes.
    pub(crate) config: Config,
    /// DMA, interrupts, time, books.
    pub(crate) bus: Bus,
    /// The cable.
    pub(crate) wire: Box<dyn Wire + Send>,
    /// PCI configuration space.
    pub(crate) pci: ConfigSpace,
    /// Initialization segment, health, MSI-X table.
    pub(crate) regs: Registers,
    /// Command interface.
    pub(crate) cmd: CommandQueue,
    /// Plain number spaces: UAR, PD, TD, XRCD, counters.
    pub(crate) ids: Ids,
    /// Capabilities, as set.
    pub(crate) caps: Caps,
    /// Firmware pages.
    pub(crate) pages: Pages,
    /// Event queues.
    pub(crate) eqs: EventQueues,
    /// NIC vport context and port registers.
    pub(crate) vport: Vport,
    /// RoCE address table.
    pub(crate) roce: RoceTable,
    /// Queues, keys, steering: everything with a number.
    pub(crate) objects: Objects,
    /// Transport engines.
    pub(crate) transport: Transport,
}

impl core::fmt::Debug for Hca {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hca")
            .field("config", &self.config)
            .field("bus", &self.bus)
            .finish()
    }
}

impl Hca {
    /// A device just powered up, plugged into memory and a wire.
    pub fn new(
        config: Config,
        memory: Box<dyn HostMemory + Send>,
        wire: Box<dyn Wire + Send>,
    ) -> Self {
        let rng = SmallRng::seed_from_u64(config.seed);
        Self {
            bus: Bus::new(memory, rng),
            wire,
            pci: ConfigSpace::default(),
            regs: Registers::default(),
            cmd: CommandQueue::default(),
            ids: Ids::default(),
            caps: Caps::new(&config),
            pages: Pages::default(),
            eqs: EventQueues::new(256),
            vport: Vport::new(&config),
            roce: RoceTable::default(),
            objects: Objects::default(),
            transport: Transport::default(),
            config,
        }
    }

    /// Posts an asynchronous event to the EQ subscribed to its kind.
    pub(crate) fn raise(&mut self, event: &Event) {
        self.eqs.raise(&mut self.bus, event);
    }

    /// Posts a completion event for a CQ to its EQ.
    pub(crate) fn completion_event(&mut self, eqn: u32, cqn: u32) {
        self.eqs.post(&mut self.bus, eqn, &Event::completion(cqn));
    }

    /// What the device counted.
    pub fn stats(&self) -> &Stats {
        &self.bus.stats
    }

    /// What silicon would let pass although it is wrong, in words, in order.
    pub fn complaints(&self) -> &[String] {
        self.bus.complaints()
    }

    /// MSI-X vectors that fired since the last call.
    pub fn interrupts(&mut self) -> Vec<u16> {
        self.bus.take_interrupts()
    }

    /// Lets `mangle` see and change every DMA write by kind; `None` takes it away.
    pub fn set_mangle(&mut self, mangle: Option<Mangle>) {
        self.bus.set_mangle(mangle);
    }

    /// Does everything due at `now`; says when it wants to be called next.
    pub fn step(&mut self, now: Nanos) -> Option<Nanos> {
        self.bus.now = self.bus.now.max(now);
        [crate::objects::step(self), crate::transport::step(self)]
            .into_iter()
            .flatten()
            .min()
    }
}
