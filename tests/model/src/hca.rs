//! The device: its parts, and the calls from outside.

use crate::bus::{Bus, Mangle};
use crate::caps::Caps;
use crate::cmd::{CommandHook, CommandQueue, Refusal, engine};
use crate::config::Config;
use crate::congestion::Congestion;
use crate::eq::{Event, EventQueues, kind};
use crate::facts::OpenFact;
use crate::host::{DmaError, HostMemory, Nanos};
use crate::ib::IbPort;
use crate::link::Link;
use crate::numbers::Ids;
use crate::objects::{self, Objects};
use crate::pages::Pages;
use crate::reg_access::PortRegisters;
use crate::regs::{ConfigSpace, Msix, Registers, UarLatch};
use crate::relaxed::Order;
use crate::replay::Recording;
use crate::roce::RoceTable;
use crate::stats::Stats;
use crate::traffic_counters::TrafficCounters;
use crate::transport::host::QpEvent;
use crate::vport::Vport;
use crate::watch::Observer;
use crate::wire::Wire;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// One mlx5 function, plugged into a host's memory and a wire.
pub struct Hca {
    /// The configuration that it was built with; never changes.
    pub(crate) config: Config,
    /// DMA, interrupts, time, books.
    pub(crate) bus: Bus,
    /// The cable.
    pub(crate) wire: Box<dyn Wire + Send>,
    /// PCI configuration space.
    pub(crate) pci: ConfigSpace,
    /// Initialization segment, health, MSI-X table.
    pub(crate) regs: Registers,
    /// First half of a split doorbell.
    pub(crate) latch: UarLatch,
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
    /// NIC vport context and link.
    pub(crate) vport: Vport,
    /// Training of the link.
    pub(crate) link: Link,
    /// The InfiniBand port, if it is one.
    pub(crate) ib: Option<IbPort>,
    /// Registers reached by ACCESS_REG.
    pub(crate) port: PortRegisters,
    /// RoCE address table.
    pub(crate) roce: RoceTable,
    /// Congestion control of RoCE.
    pub(crate) congestion: Congestion,
    /// Traffic of port and vport.
    pub(crate) traffic: TrafficCounters,
    /// Queues, keys, steering: everything with a number.
    pub(crate) objects: Objects,
}

impl core::fmt::Debug for Hca {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hca").field("config", &self.config).field("bus", &self.bus).finish()
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
        let msix = Msix::new(config.vectors, config.msix_in_bar);
        let caps = Caps::new(&config);
        let mut bus = Bus::new(memory, rng, msix);
        bus.relaxed.order = Order::of(&config.facts);
        bus.writes_queues = config.facts.on(OpenFact::QueueWrites);
        for name in Caps::unknown_names(&config) {
            bus.complain(format!("configured capability {name}: no such name"));
        }
        let objects = Objects::new(&caps, &config.facts);
        let mut hca = Self {
            bus,
            wire,
            pci: ConfigSpace::new(&config),
            regs: Registers::after_reset(0, config.init_time),
            latch: UarLatch::default(),
            cmd: CommandQueue::default(),
            ids: Ids::new(&caps),
            eqs: EventQueues::new(caps.eq_limit(), &config.facts),
            ib: IbPort::new(&config, &caps),
            caps,
            pages: Pages::default(),
            vport: Vport::new(&config),
            port: PortRegisters::new(&config),
            roce: RoceTable::default(),
            congestion: Congestion::default(),
            traffic: TrafficCounters::default(),
            objects,
            link: Link::default(),
            config,
        };
        hca.train_link();
        hca.follow_link();
        hca
    }

    /// What a recorded card said, if the device is one.
    pub(crate) fn recording(&self) -> Option<&Recording> {
        self.config.recording.as_deref()
    }

    /// Refuses what the recorded card refused.
    pub(crate) fn refused_before(
        &self,
        opcode: u16,
        op_mod: u16,
        register: u16,
    ) -> Result<(), Refusal> {
        let refused =
            |recording: &Recording| recording.refused.get(&(opcode, op_mod, register)).copied();
        self.recording().and_then(refused).map_or(Ok(()), Err)
    }

    /// Function level reset: every object, page and command is forgotten, nothing more is read or
    /// written, configuration space is back to power-on. Hardware-like, the function answers
    /// nothing for a while; then `initializing` reads 1 for the configured time.
    pub fn flr(&mut self) {
        self.pci = ConfigSpace::new(&self.config);
        self.bus.reset(Msix::new(self.config.vectors, self.config.msix_in_bar));
        self.reset_function();
    }

    /// Resets the function behind the BAR; part of both kinds of reset.
    pub(crate) fn reset_function(&mut self) {
        self.bus.stats.resets += 1;
        let gone = if self.config.hardware_like { 50_000_000 } else { 0 };
        let back = self.bus.now + gone;
        let slow = self.config.facts.value(OpenFact::Flr).unwrap_or(0);
        self.regs = Registers::after_reset(back, back + self.config.init_time.max(slow));
        self.cmd.reset();
        self.caps = Caps::new(&self.config);
        self.pages = Pages::default();
        let cable = self.vport.cable;
        self.vport = Vport::new(&self.config);
        self.vport.cable = cable;
        self.port = PortRegisters::new(&self.config);
        self.link = Link::default();
        self.train_link();
        self.drop_objects();
        self.reset_ib();
    }

    /// Forgets every object: what a teardown leaves of the function's contexts.
    pub(crate) fn drop_objects(&mut self) {
        self.latch = UarLatch::default();
        self.ids = Ids::new(&self.caps);
        self.eqs = EventQueues::new(self.caps.eq_limit(), &self.config.facts);
        self.roce = RoceTable::default();
        self.objects = Objects::new(&self.caps, &self.config.facts);
    }

    /// Does everything due at `now`; says when it wants to be called next. A dead device does
    /// nothing.
    pub fn step(&mut self, now: Nanos) -> Option<Nanos> {
        self.bus.now = self.bus.now.max(now);
        if self.regs.dead() {
            return None;
        }
        if self.bus.relaxed.due().is_some_and(|due| due <= self.bus.now) {
            self.bus.push_relaxed();
        }
        // Before commands, which may change the queues.
        objects::ring_begun(self, None);
        let link = self.step_link();
        let subnet = self.step_ib();
        let commands = engine::step(self);
        let objects = objects::step(self);
        let events = self.eqs.step(&mut self.bus);
        let payload = self.bus.relaxed.due();
        [link, subnet, commands, objects, events, payload].into_iter().flatten().min()
    }

    /// The firmware falls: syndrome in the health buffer, counter stopped, no answer to anything
    /// until a reset.
    pub fn die(&mut self, syndrome: u8) {
        self.regs.die(self.bus.now, syndrome);
    }

    /// The owner of the physical function gives this virtual one its MAC and GUIDs, for good.
    pub fn give_address(&mut self) {
        self.config.addressed = true;
        self.vport.give_address(self.config.mac);
    }

    /// Puts any event into the queue subscribed to it, or, with a number, into that queue.
    pub fn inject_event(&mut self, eqn: Option<u8>, event: &Event) {
        match eqn {
            Some(eqn) => self.eqs.post(&mut self.bus, u32::from(eqn), event),
            None => self.raise(event),
        }
    }

    /// A queue pair fails by itself, and the device reports it by an event: of that kind, or as
    /// catastrophic.
    pub fn fail_queue_pair(&mut self, qpn: u32, kind: u8) {
        let event = match kind {
            kind::WQ_INVALID_REQUEST => QpEvent::InvalidRequest,
            kind::WQ_ACCESS_ERROR => QpEvent::AccessError,
            _ => QpEvent::Catastrophic,
        };
        objects::fail(self, qpn, event);
    }

    /// Sees every command from now on; `None` takes it away.
    pub fn set_command_hook(&mut self, hook: Option<Box<dyn CommandHook>>) {
        self.cmd.set_hook(hook);
    }

    /// Commands taken since construction; the number the hook's next command will have.
    pub fn commands(&self) -> u64 {
        self.cmd.count()
    }

    /// Posts an asynchronous event to the EQ subscribed to its kind.
    pub(crate) fn raise(&mut self, event: &Event) {
        self.eqs.raise(&mut self.bus, event);
    }

    /// Returns the device's counters.
    pub fn stats(&self) -> &Stats {
        &self.bus.stats
    }

    /// Returns how many objects the driver has made and not destroyed: queues of all kinds,
    /// completion queues, keys.
    pub fn live(&self) -> [usize; 3] {
        self.objects.live()
    }

    /// Returns the driver's faults that silicon would not report, in words, in order.
    pub fn complaints(&self) -> &[String] {
        self.bus.complaints()
    }

    /// MSI-X vectors that fired since the last call.
    pub fn interrupts(&mut self) -> Vec<u16> {
        self.bus.take_interrupts()
    }

    /// A DMA read that nothing asked for: what a broken or hostile device would try. Not in the
    /// books.
    pub fn dma_read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        let memory = self.bus.memory().ok_or(DmaError::BusMasterOff)?;
        memory.read(iova, buf)
    }

    /// A DMA write that nothing asked for. Not in the books.
    pub fn dma_write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaError> {
        let memory = self.bus.memory().ok_or(DmaError::BusMasterOff)?;
        memory.write(iova, bytes)
    }

    /// Lets `observer` see what passes between driver and device, from now on; any number may.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.bus.observe(observer);
    }

    /// Lets `mangle` see and change every DMA write by kind; `None` takes it away.
    pub fn set_mangle(&mut self, mangle: Option<Mangle>) {
        self.bus.set_mangle(mangle);
    }
}
