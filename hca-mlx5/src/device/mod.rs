//! The device: bring-up, commands, event queues, pages, health, port and teardown.
//!
//! [`Device::open`] (`boot.rs`) brings a device up and [`Device::close`] (`teardown.rs`) ends it.
//! In between, `Device::exec` runs commands, and [`Device::service`] reads events, answers page
//! requests and watches health. Nothing here knows of queues, memory keys or Ethernet: the floors
//! above make those with commands.
//!
//! * [`cmd`] - the command queue: commands, several at a time, with mailboxes and a deadline.
//! * [`eq`] - event queues and what their entries mean.
//! * `pages` - 4 KiB pages that the firmware asks for; [`page_list`] - memory as a list of pages.
//! * `health` - whether the device is alive; `port`, `counters`, `congestion` - its port, what it
//!   counts, and how it takes congestion.

mod boot;
pub mod cmd;
mod config;
mod congestion;
mod counters;
pub mod eq;
pub(crate) mod health;
mod ib;
pub(crate) mod in_flight;
pub(crate) mod key_rest;
pub mod page_list;
pub(crate) mod pages;
mod port;
#[cfg(test)]
pub(crate) mod scripted;
pub mod survey;
mod teardown;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use congestion::Congestion;
pub use ib::{IbPort, P_KEYS, PortState};
pub(crate) use in_flight::{Begun, FLIGHTS};

use core::fmt;

use dat_core::Instant;
use dat_core::fault;
use dat_core::provider::{Fault, FaultKind, LinkType, Random};
use heapless::{Deque, Vec};

use crate::data::work;
use crate::device::cmd::mailbox::Tail;
use crate::device::cmd::{CommandQueue, Flight};
use crate::device::eq::{Decoded, Event, EventQueue, PageRequest};
use crate::device::health::{Monitor, Sign};
use crate::device::key_rest::KeyRest;
use crate::device::pages::ledger::Ledger;
use crate::platform::{Platform, Span};
use crate::prm::caps::{
    ATOMIC_8_BYTES, ATOMIC_ANSWERS_AS_HOST, ATOMIC_OPERATIONS, AtomicCap, EthernetCap,
    FlowTableCap, GeneralCap, RoceCap,
};
use crate::prm::cmd::{InputHead, Opcode, OutputHead};
use crate::prm::error::status;
use crate::prm::object;
use crate::prm::pages::Need;

/// Of several steps that are all tried, the first failure is the one to tell.
#[inline(never)]
pub(crate) fn note(first: &mut Result<(), Fault>, result: Result<(), Fault>) {
    if first.is_ok() {
        *first = result;
    }
}

/// Whether an optional step was done; a refusal is an answer too, anything else a failure.
#[inline(never)]
pub(crate) fn optional(result: Result<(), Fault>) -> Result<bool, Fault> {
    match result {
        Ok(()) => Ok(true),
        Err(fault) if fault.status != 0 => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Gives memory back after a command that failed with `fault`; at the teardown, if the device may
/// still come to use it.
pub(crate) fn give_up<P: Platform>(device: &mut Device<'_, P>, memory: Span, fault: &Fault) {
    match fault.kind {
        FaultKind::Resources
        | FaultKind::BadParameter
        | FaultKind::BadState
        | FaultKind::Unsupported
        | FaultKind::Unreachable => device.platform().free(memory),
        FaultKind::Timeout | FaultKind::Gone | FaultKind::Nonsense => device.disown(memory),
    }
}

/// A page of doorbells in BAR 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uar {
    /// Its number, for contexts.
    pub number: u32,
    /// Offset of its page in BAR 0, for doorbells.
    pub offset: usize,
}

/// Capabilities of the device: current values, by the manual's names.
#[derive(Clone, Copy, Debug, Default)]
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
    /// Receive flow tables; likewise.
    pub flow_nic_receive: FlowTableCap<[u8; 64]>,
}

impl Caps {
    /// Both atomics on 8 bytes exist, and answer in the order of the host. Which of its two orders
    /// the device takes for that of a big-endian host, no public driver says.
    pub(crate) fn has_atomics(&self) -> bool {
        let atomic = &self.atomic;
        cfg!(target_endian = "little")
            && self.general.atomic()
            && atomic.atomic_operations() & ATOMIC_OPERATIONS == ATOMIC_OPERATIONS
            && atomic.atomic_size_qp() & ATOMIC_8_BYTES != 0
            && atomic.atomic_req_8b_endianness_mode() == ATOMIC_ANSWERS_AS_HOST
    }
}

/// Identity of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// MAC of the port.
    pub mac: [u8; 6],
    /// The device has given it; otherwise it is a random one, new with each bring-up.
    pub mac_given: bool,
    /// Node GUID; made from the MAC where the device has none.
    pub node_guid: u64,
    /// Largest frame the port carries, headers included.
    pub frame_size: u16,
    /// How many bytes of a raw Ethernet frame must stand in the WQE: 0 none, 1 layer 2, 2 layer 3,
    /// 3 layer 4.
    pub min_wqe_inline_mode: u8,
    /// Firmware revision: major, minor, sub-minor.
    pub firmware: (u16, u16, u16),
}

/// How far bring-up has come; teardown starts from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Nothing of it is the device's any more.
    Closed,
    /// It knows the command page.
    CommandQueue,
    /// ENABLE_HCA is done; from here on it may hold pages.
    Enabled,
    /// INIT_HCA is done.
    Initialized,
    /// The doorbell page is taken.
    Doorbells,
    /// The event queues run.
    Running,
}

/// Place of the queue of page requests among the event queues.
const PAGE_EVENTS: usize = 1;
/// Place of that of completions.
pub(crate) const COMPLETION_EVENTS: usize = 2;

/// Events that wait to be read.
const EVENTS: usize = 64;
/// Pieces of memory that wait for the teardown.
const DISOWNED: usize = 64;

/// The device, up and running.
pub struct Device<'p, P: Platform> {
    pub(crate) platform: &'p P,
    pub(crate) config: Config<'p>,
    pub(crate) random: Random,
    /// Keys whose index may come again.
    pub(crate) key_rest: KeyRest,
    pub(crate) queue: CommandQueue<'p, P>,
    pub(crate) stage: Stage,
    pub(crate) pages: Ledger,
    pub(crate) caps: Caps,
    pub(crate) identity: Identity,
    pub(crate) uar: Uar,
    /// Link layer of the port.
    pub(crate) link: LinkType,
    /// InfiniBand: entry of the P_Key table that queue pairs start with.
    pub(crate) pkey_index: u16,
    /// The number in the last answer that had one.
    pub(crate) answered: u32,
    /// Where queue pairs count.
    pub(crate) counter_set: Option<u8>,
    /// Those of asynchronous events, of page requests ([`PAGE_EVENTS`]) and of completions
    /// ([`COMPLETION_EVENTS`]).
    pub(crate) event_queues: Vec<EventQueue, 3>,
    pub(crate) monitor: Monitor,
    pub(crate) events: Deque<Event, EVENTS>,
    pub(crate) requests: Deque<PageRequest, { work::PAGE_REQUESTS }>,
    /// The last service left something behind.
    pub(crate) more: bool,
    /// Memory of what would not be destroyed.
    pub(crate) disowned: Vec<Span, DISOWNED>,
    /// [`Event::Dead`] has been queued.
    pub(crate) loss_reported: bool,
}

impl<P: Platform> fmt::Debug for Device<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("stage", &self.stage)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Device<'p, P> {
    /// The host.
    pub(crate) fn platform(&self) -> &'p P {
        self.platform
    }

    /// Returns the device's capabilities.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Returns the port's identity.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the link layer of the port.
    #[must_use]
    pub fn link(&self) -> LinkType {
        self.link
    }

    /// Pages the firmware holds.
    #[must_use]
    pub fn firmware_pages(&self) -> u32 {
        self.pages.given()
    }

    /// Runs one command. `input` and `output` are whole messages, 16-byte heads included, variable
    /// tails allowed (at most [`cmd::MAX_MESSAGE`] bytes each); this fills in the opcode
    /// and `op_mod`, carries both through the mailboxes and turns a status other than 0 into a
    /// fault about the object of that number (0 if there is none yet).
    ///
    /// A firmware that is out of memory says so and asks for pages by an event, which may come a
    /// little later, or by what QUERY_PAGES says: it gets them, and the command is tried once more;
    /// up to [`work::FEEDS`] times, as it may ask for more than it asked for first.
    ///
    /// A command that does not come back ends the device: every later one fails at once. Otherwise
    /// each step of undoing what was made would wait for a deadline of its own, for hours where
    /// there is much.
    pub(crate) fn exec(
        &mut self,
        op: Opcode,
        op_mod: u16,
        number: u32,
        input: &mut [u8],
        output: &mut [u8],
    ) -> Result<(), Fault> {
        self.exec_long(op, op_mod, number, input, &(), output)
    }

    /// The same with a tail of the input, of any length that the mailboxes have (`Pool::lengthen`).
    pub(crate) fn exec_long(
        &mut self,
        op: Opcode,
        op_mod: u16,
        number: u32,
        input: &mut [u8],
        tail: &dyn Tail,
        output: &mut [u8],
    ) -> Result<(), Fault> {
        for _ in 0..work::FEEDS {
            let held = self.pages.given();
            let result = self.carry(op, op_mod, number, input, tail, output);
            let lacks = result.is_err_and(|fault| fault.status == status::NO_RESOURCES);
            if op == Opcode::ManagePages || !lacks || !self.relieve(op, held) {
                return self.judge(op, result);
            }
        }
        let result = self.carry(op, op_mod, number, input, tail, output);
        self.judge(op, result)
    }

    /// Gives the firmware the pages that it lacks for a command. Whether it holds more than `held`,
    /// what it held before the command.
    fn relieve(&mut self, op: Opcode, held: u32) -> bool {
        self.feed();
        if self.pages.given() == held && op != Opcode::QueryPages {
            let _ = self.satisfy(Need::Regular);
            self.await_request(held);
        }
        // What it asked for may have come while it waited.
        self.pages.given() > held
    }

    /// What a command has come to. One that did not come back ends the device.
    fn judge(&mut self, op: Opcode, result: Result<(), Fault>) -> Result<(), Fault> {
        if result.is_err_and(|fault| fault.kind == FaultKind::Timeout) {
            let hangs = fault!(
                Gone,
                "",
                "a command never came back: the firmware hangs",
                "reset the device"
            )
            .during(op.name());
            self.queue.kill(hangs);
        }
        result
    }

    /// Sends a command and waits for its answer. Meanwhile the firmware gets the pages that it asks
    /// for: it may hold the command back until they come.
    fn carry(
        &mut self,
        op: Opcode,
        op_mod: u16,
        number: u32,
        input: &mut [u8],
        tail: &dyn Tail,
        output: &mut [u8],
    ) -> Result<(), Fault> {
        let flight = self.queue.send(op, op_mod, number, input, tail, output)?;
        self.await_answer(op, &flight, output)
    }

    fn await_answer(
        &mut self,
        op: Opcode,
        flight: &Flight,
        output: &mut [u8],
    ) -> Result<(), Fault> {
        let from = self.config.withhold_pages.map(|span| health::clock(self.platform) + span);
        while !self.queue.poll(flight)? {
            let due = from.is_none_or(|from| health::clock(self.platform) >= from);
            if op != Opcode::ManagePages && due {
                self.feed();
            }
            self.queue.relax(flight);
        }
        self.queue.finish(flight, output)
    }

    /// Waits until the firmware has asked for pages by an event and holds more than `held`; not
    /// long, as it may lack something else.
    fn await_request(&mut self, held: u32) {
        let end = health::clock(self.platform) + work::PAGE_EVENT;
        while self.stage == Stage::Running
            && self.pages.given() <= held
            && !self.lost()
            && health::clock(self.platform) < end
        {
            self.queue.sleep();
            self.feed();
        }
    }

    /// A command without `op_mod` and with a 16-byte answer, about object `number`: most of them.
    #[inline(never)]
    pub(crate) fn run(&mut self, op: Opcode, number: u32, input: &mut [u8]) -> Result<(), Fault> {
        let mut output = OutputHead::new();
        self.exec(op, 0, number, input, &mut output.0)?;
        self.answered = output.number();
        Ok(())
    }

    /// The same where it has 16 bytes and says nothing but the number: most destroys.
    #[inline(never)]
    pub(crate) fn end(&mut self, op: Opcode, number: u32) -> Result<(), Fault> {
        let mut input = InputHead::new();
        input.set_number(number);
        self.run(op, number, &mut input.0)
    }

    /// As [`Device::run`], to make an object. Returns the number in the answer.
    // Inline, as is the next: the number comes back beside a result that travels in registers.
    #[inline(always)]
    pub(crate) fn make(&mut self, op: Opcode, input: &mut [u8]) -> Result<u32, Fault> {
        self.run(op, 0, input)?;
        Ok(self.answered)
    }

    /// As [`Device::end`], for most allocations. Returns the number in the answer.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, op: Opcode) -> Result<u32, Fault> {
        self.end(op, 0)?;
        Ok(self.answered)
    }

    /// The doorbell page that every queue may use.
    pub(crate) fn uar(&self) -> Uar {
        self.uar
    }

    /// Another doorbell page.
    pub(crate) fn alloc_uar(&mut self) -> Result<Uar, Fault> {
        let number = self.allocate(Opcode::AllocUar)?;
        // 24 bits of 4 KiB pages: no overflow where usize has 64 bits; where it has 32, the BAR is
        // shorter anyway.
        let offset = (number as usize).saturating_mul(4096);
        if offset.checked_add(4096).is_none_or(|end| end > self.platform.bar_len()) {
            self.end(Opcode::DeallocUar, number)?;
            return Err(fault!(
                Nonsense,
                "",
                "the doorbell page lies outside the BAR",
                "map the whole of BAR 0"
            )
            .of(object::UAR, number)
            .during(Opcode::AllocUar.name()));
        }
        Ok(Uar { number, offset })
    }

    /// Gives a doorbell page back.
    pub(crate) fn dealloc_uar(&mut self, uar: Uar) -> Result<(), Fault> {
        self.end(Opcode::DeallocUar, uar.number)
    }

    /// A new protection domain.
    pub(crate) fn alloc_pd(&mut self) -> Result<u32, Fault> {
        self.allocate(Opcode::AllocPd)
    }

    /// Gives it back.
    pub(crate) fn dealloc_pd(&mut self, pd: u32) -> Result<(), Fault> {
        self.end(Opcode::DeallocPd, pd)
    }

    /// Number of the event queue that completion queues name in `c_eqn`.
    pub(crate) fn completion_eqn(&self) -> u8 {
        self.event_queues.get(COMPLETION_EVENTS).map_or(0, EventQueue::number)
    }

    /// Takes over memory of an object that the device would not let go of: the arena's again when
    /// the teardown has ended all objects. What there is no room to remember stays taken.
    #[inline(never)]
    pub(crate) fn disown(&mut self, memory: Span) {
        let _ = self.disowned.push(memory);
    }

    /// The device is lost: no command reaches it any more.
    pub(crate) fn lost(&self) -> bool {
        self.queue.dead().is_some()
    }

    /// The next event; call until `None` after [`Device::service`].
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Device::service`] wants to be called again even if nothing interrupts.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        match self.queue.dead() {
            // What waits for the user is his to read first.
            None if self.more && (self.events.is_empty() || !self.requests.is_empty()) => {
                Instant::ZERO
            }
            None => self.monitor.due(),
            // A command found it: at once, to tell.
            Some(_) if !self.loss_reported => Instant::ZERO,
            Some(_) => Instant::NEVER,
        }
    }

    /// Does what is due: health, event queues, page requests. Bounded work per call. `completed` is
    /// called for each completion event that is read, with the number of its queue.
    pub fn service(&mut self, now: Instant, completed: impl FnMut(u32)) {
        if self.queue.dead().is_none() {
            let sign = self.monitor.tick(self.platform, now);
            if let Some(Sign::Lost(fault)) = sign {
                self.queue.kill(fault);
            } else {
                if let Some(Sign::Warning(fault)) = sign {
                    // Lost if nobody reads what is there before it.
                    let _ = self.events.push_back(Event::Warning(fault));
                }
                self.collect(completed);
                self.answer_requests();
                self.arm_events();
            }
        }
        // It may also have been a command, here or elsewhere, that found the device lost.
        if let Some(fault) = self.queue.dead() {
            if !self.loss_reported && self.events.push_back(Event::Dead(fault)).is_ok() {
                self.loss_reported = true;
            }
        }
    }

    /// Arms all event queues. One that was not read to its end fires at once.
    pub(crate) fn arm_events(&mut self) {
        self.queue.read_events();
        for queue in &mut self.event_queues {
            queue.arm(self.platform);
        }
    }

    /// Gives the firmware the pages it has asked for. Completions wait: who has queues of them is
    /// not here.
    fn feed(&mut self) {
        for place in 0..COMPLETION_EVENTS {
            self.read_events(place, &mut |_| {});
        }
        self.answer_requests();
    }

    /// Moves what the event queues hold to where it waits.
    fn collect(&mut self, mut completed: impl FnMut(u32)) {
        self.more = false;
        for place in 0..=COMPLETION_EVENTS {
            self.read_events(place, &mut completed);
        }
    }

    /// The same of one of them.
    fn read_events(&mut self, place: usize, completed: &mut dyn FnMut(u32)) {
        let Some(queue) = self.event_queues.get_mut(place) else { return };
        let mut internal = false;
        let for_the_user = place != PAGE_EVENTS;
        for left in (0..=work::EVENTS).rev() {
            // Page requests do not wait for the user. One entry is kept for the event that the
            // device is lost.
            let unread = for_the_user && self.events.len() + 1 >= EVENTS;
            if left == 0 || unread || self.requests.is_full() {
                self.more = true;
                break;
            }
            let Some(decoded) = queue.next(self.platform) else {
                break;
            };
            match decoded {
                // One in the wrong queue is nothing that was asked for.
                Decoded::Event(event) => {
                    if let Event::Completion { cqn } = event {
                        completed(cqn);
                    }
                    if for_the_user {
                        let _ = self.events.push_back(event);
                    }
                }
                Decoded::Pages(request) => {
                    let _ = self.requests.push_back(request);
                }
                Decoded::Internal => internal = true,
                // Command events have a queue of their own; the rest nobody asked for.
                Decoded::Command(_) | Decoded::Other { .. } => {}
            }
        }
        if internal {
            if let Some(fault) = health::examine(self.platform) {
                self.queue.kill(fault);
            }
        }
    }

    fn answer_requests(&mut self) {
        let end = health::clock(self.platform) + work::ANSWERS;
        while let Some(request) = self.requests.pop_front() {
            // The firmware was answered that it gets no pages; its next refusal says so.
            let _ = self.answer(request, end);
            if health::clock(self.platform) >= end {
                self.more |= !self.requests.is_empty();
                break;
            }
        }
    }
}
