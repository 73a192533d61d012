//! One card in one slot, and the driver brought up on it alone: the rig of the bring-up,
//! mute-device and fault tests.
//!
//! [`Rig`] is the slot; [`Watched`](crate::host::watched::Watched) stands between it and the
//! driver, changes what registers read, and ends a test whose driver asks the same question for
//! ever; [`journey()`] makes and destroys one of everything the provider has.

mod journey;

use std::sync::Arc;
use std::time::Duration;

use dat_core::Instant;
use dat_core::cm::QpTerms;
use dat_core::provider::{Class, Mtu, Net};
use hca_mlx5::platform::{Blocks, Clock};
use hca_mlx5::{Config, Mlx5};
use mlx5_model::faults::Script;
use mlx5_model::wire::switch::{self, Port};
use mlx5_model::{CommandHook, Config as Card, Hca};

use crate::host::inproc::{Memory, Slot, World};

pub use journey::{Step, journey, small_queue_pair};

/// The driver under test, with tables of a size that a test can fill.
pub type Driver<'p, P> = Mlx5<'p, P, 16, 16, 32>;

/// PCI command register: memory and bus master enable.
const PCI_COMMAND: (usize, [u8; 2]) = (4, [6, 0]);

/// One card in one slot.
pub struct Rig {
    /// Time.
    pub world: Arc<World>,
    /// The slot with the card.
    pub slot: Slot,
    /// The far end of the card's cable; nobody reads it.
    pub peer: Port,
}

impl std::fmt::Debug for Rig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rig").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl Rig {
    /// A card with the usual memory.
    #[must_use]
    pub fn new(card: Card) -> Self {
        Self::with(card, Memory::default())
    }

    /// A card with memory to choose.
    #[must_use]
    pub fn with(card: Card, memory: Memory) -> Self {
        let world = World::new();
        let (wire, peer) = switch::cable();
        let seed = card.seed;
        let slot =
            Slot::plug(&world, memory, seed, |memory| Hca::new(card, memory, Box::new(wire)));
        let rig = Self { world, slot, peer };
        rig.enable();
        rig
    }

    /// A card of few firmware pages: for tests that open it hundreds of times.
    #[must_use]
    pub fn light() -> Self {
        Self::new(light())
    }

    /// Switches memory decoding and bus mastering on, as the host does before the driver.
    pub fn enable(&self) {
        self.slot.hca().config_write(PCI_COMMAND.0, &PCI_COMMAND.1);
    }

    /// Resets a function that the host does not trust any more. All memory is the host's own again.
    pub fn reset(&self) {
        self.slot.hca().set_command_hook(None);
        self.slot.hca().set_mangle(None);
        self.slot.hca().flr();
        self.slot.reclaim();
        self.enable();
    }

    /// Sends each command past `script`, whose counts start here.
    pub fn script(&self, make: impl FnOnce(u64, Script) -> Script) {
        let mut hca = self.slot.hca();
        let next = hca.commands();
        hca.set_command_hook(Some(Box::new(make(next, Script::new()))));
    }

    /// Puts any hook on the commands.
    pub fn hook(&self, hook: Option<Box<dyn CommandHook>>) {
        self.slot.hca().set_command_hook(hook);
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.slot.now())
    }

    /// Lets time pass.
    pub fn pass(&self, span: Duration) {
        let end = self.now() + span;
        while self.now() < end {
            self.world.turn();
        }
    }

    /// Memory that the device holds at this moment.
    #[must_use]
    pub fn taken(&self) -> Taken {
        Taken { arena: self.slot.in_use(), pages: self.slot.views().pages_out() }
    }

    /// Fails with the card's complaints, if it has any.
    ///
    /// # Panics
    /// If it has.
    pub fn content(&self) {
        let complaints = self.slot.hca().complaints().to_vec();
        assert!(complaints.is_empty(), "the card complains: {complaints:#?}");
    }
}

/// Memory that is given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Arena bytes handed out.
    pub arena: usize,
    /// Firmware pages handed out.
    pub pages: usize,
}

/// A card that asks for few pages, so that bring-up is short.
#[must_use]
pub fn light() -> Card {
    Card { init_pages: Some(40), ..Card::default() }
}

/// Returns the configuration of the driver over a slot; its random numbers are fixed.
#[must_use]
pub fn usual<'p>() -> Config<'p> {
    Config { entropy: [1; 32], blocks: Blocks::Combined, ..Config::default() }
}

/// The same with a command time limit that keeps a thousand timeouts short.
#[must_use]
pub fn patience<'p>() -> Config<'p> {
    Config {
        command_timeout: Some(Duration::from_millis(50)),
        init_timeout: Duration::from_millis(500),
        ..usual()
    }
}

/// Address of the card in the tests.
#[must_use]
pub fn net() -> Net {
    Net::new("192.168.7.1".parse().unwrap(), 24)
}

/// Terms of a connection to a peer that does not exist.
#[must_use]
pub fn absent_peer() -> QpTerms {
    QpTerms {
        remote_qpn: 0x123,
        rq_psn: 100,
        sq_psn: 100,
        mtu: Mtu::B1024,
        responder_resources: 4,
        initiator_depth: 4,
        retry_count: 2,
        rnr_retry: 2,
        ack_timeout: 14,
        class: Class::default(),
    }
}
