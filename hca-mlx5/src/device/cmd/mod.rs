//! The command queue: commands carried through an entry and its mailboxes, each with a deadline.
//!
//! One at a time, but for steps of queue pairs, several of which are on their way together, and for
//! pages that the firmware asks for while it holds a command back: they are given by a command in
//! another slot, as Linux keeps one for that.
//!
//! PRM chapter "Command interface". The truth about a command is the ownership bit of its entry;
//! command events (EQE type 0x0a) only say that somebody should look there, may get lost and may
//! come for nothing: each merely ends a sleep of the host early. The queue they come in is this
//! one's from its creation to the return to polling; it is read to its end after each command, so
//! that none can overrun it, and armed before each sleep, so that the next event wakes again.
//!
//! Most commands come back soon. Until [`BRISK`] has passed the host is asked to spin, and until
//! [`UNEXAMINED`] has passed no register of health is read: a load from the device takes as long as many
//! an answer, and behind a socket it is a message and its reply.
//!
//! Signatures are computed although cards ignore them by default.
//!
//! A command that does not come back in time keeps its slot and its mailboxes for good: the device
//! may still write there, and a second command in the same slot would be answered by the first
//! one's reply. So at most as many commands may time out as the device has slots.
//!
//! It does not retry or reset.

pub mod dump;
pub(crate) mod mailbox;
pub(crate) mod status;

#[cfg(test)]
mod tests;

use core::time::Duration;

use dat_core::Instant;
use dat_core::fault;
use dat_core::provider::{Activity, Fault, Hook};

use self::dump::{Direction, Dump, Observer};
pub use self::mailbox::MAX_MESSAGE;
use self::mailbox::{Chain, Pool, Tail, signature};
use self::status::{about, not_delivered, refused};
use crate::device::eq::EventQueue;
use crate::device::{health, page_list};
use crate::platform::{Fence, Platform, Reach, Span};
use crate::prm;
use crate::prm::cmd::{CommandEntry, HEAD, InputHead, Opcode, OutputHead, TRANSPORT_PCI};
use crate::prm::error::status as command_status;
use crate::prm::init_seg::{self, CommandQueueWord, TimeLimit};
use crate::prm::object;

/// Time limit of a command where the device names none.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a command is waited for without a sleep: less than falling asleep and waking cost.
const BRISK: Duration = Duration::from_micros(20);
/// How long a command is waited for without a look at the device's health.
const UNEXAMINED: Duration = Duration::from_millis(1);

/// Bytes of the page that holds the entries.
const PAGE: usize = 4096;

/// The queue.
pub(crate) struct CommandQueue<'p, P: Platform> {
    platform: &'p P,
    page: Span,
    log_stride: u32,
    /// Slots that may be used, a bit each; a lost one never comes back.
    free: u32,
    lost: u32,
    token: u8,
    pool: Pool,
    timeout: Duration,
    observer: Option<&'p (dyn Observer + Sync)>,
    hook: Option<Hook<'p>>,
    dead: Option<Fault>,
    /// Where command events come in; none while commands are polled for.
    events: Option<EventQueue>,
}

/// One command on its way.
#[derive(Debug)]
pub(crate) struct Flight {
    op: Opcode,
    number: u32,
    deadline: Instant,
    slot: u32,
    token: u8,
    input: Chain,
    output: Chain,
}

impl<'p, P: Platform> CommandQueue<'p, P> {
    /// Takes the memory, learns the geometry and tells the device where the queue is. The device
    /// must not be initializing.
    pub(crate) fn new(
        platform: &'p P,
        timeout: Option<Duration>,
        observer: Option<&'p (dyn Observer + Sync)>,
    ) -> Result<Self, Fault> {
        let word = CommandQueueWord(health::read(platform, init_seg::CMDQ_ADDR_L_SZ));
        let (log_size, log_stride) =
            (u32::from(word.log_cmdq_size()), u32::from(word.log_cmdq_stride()));
        if log_size > 5 || log_stride < 6 || log_size + log_stride > 12 {
            return Err(fault!(
                Nonsense,
                "command queue",
                "the device offers a queue that does not fit a page",
                "is this an mlx5 device? if so, reset it"
            )
            .of(object::GEOMETRY_WORD, word.0));
        }
        let page = platform.alloc(PAGE, PAGE, Reach::ReadWrite).ok_or_else(|| {
            fault!(Resources, "command queue", "no room in the arena", "enlarge the arena")
        })?;
        let Some(address) = page_list::page(platform, page.offset) else {
            platform.free(page);
            return Err(fault!(
                BadParameter,
                "command queue",
                "the arena is not page aligned for the device",
                "map the arena in whole, aligned pages"
            ));
        };
        let pool = match Pool::new(platform) {
            Ok(pool) => pool,
            Err(fault) => {
                platform.free(page);
                return Err(fault);
            }
        };
        let mut queue = Self {
            platform,
            page,
            log_stride,
            free: u32::MAX >> (32 - (1 << log_size)),
            lost: 0,
            token: 0,
            pool,
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            observer,
            hook: None,
            dead: None,
            events: None,
        };
        if timeout.is_none() {
            queue.timeout = device_timeout(platform).unwrap_or(DEFAULT_TIMEOUT);
        }
        // ORDER: the zeroed page precedes the address that lets the device look at it. High word
        // first: the low word commits.
        platform.fence(Fence::BeforeDoorbell);
        let [high, low] = [(address >> 32) as u32, (address & 0xffff_f000) as u32];
        health::write(platform, init_seg::CMDQ_ADDR_H, high);
        health::write(platform, init_seg::CMDQ_ADDR_L_SZ, low);
        platform.fence(Fence::AfterDoorbell);
        Ok(queue)
    }

    /// Gives the memory back, unless a lost command still owns some of it. Only after the device
    /// has been stopped.
    pub(crate) fn release(&mut self) {
        if self.lost == 0 {
            self.platform.free(self.page);
            self.pool.release(self.platform);
        }
        self.kill(fault!(BadState, "command queue", "the device is closed", "open it anew"));
    }

    /// Whether another command with so long an input may be on its way, and one of the longest
    /// besides.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.free.count_ones() >= 2 && self.pool.has_room(len.saturating_sub(HEAD))
    }

    /// A command has been given up since bring-up: the device may still write to host memory.
    pub(crate) fn lost_any(&self) -> bool {
        self.lost != 0
    }

    /// What sees every command by its name.
    pub(crate) fn set_hook(&mut self, hook: Option<Hook<'p>>) {
        self.hook = hook;
    }

    /// The token of the next command. A random one tells this driver instance from the previous one.
    pub(crate) fn set_token(&mut self, token: u8) {
        self.token = token;
    }

    /// From now on the events in `events` wake a wait for a command.
    pub(crate) fn use_events(&mut self, events: EventQueue) {
        self.events = Some(events);
        self.read_events();
    }

    /// From now on commands are polled for. Gives the event queue back, to be destroyed.
    pub(crate) fn use_polling(&mut self) -> Option<EventQueue> {
        self.events.take()
    }

    /// Reads all command events. Returns whether there were any.
    pub(crate) fn read_events(&mut self) -> bool {
        self.events.as_mut().is_some_and(|events| events.read_out(self.platform))
    }

    /// From now on every command fails with `fault`, at once.
    #[inline(never)]
    pub(crate) fn kill(&mut self, fault: Fault) {
        self.dead.get_or_insert(fault);
    }

    /// Why the device is lost, if it is.
    pub(crate) fn dead(&self) -> Option<Fault> {
        self.dead
    }

    /// Takes memory for input of `len` bytes, as much of it as there is. Returns the longest message
    /// from now on, which is [`MAX_MESSAGE`] at least. One longer than that can be on its way.
    pub(crate) fn lengthen(&mut self, len: usize) -> usize {
        self.pool.lengthen(self.platform, len)
    }

    /// Gives the memory for long messages back.
    pub(crate) fn shorten(&mut self) {
        self.pool.shorten(self.platform);
    }

    /// Sends a command; see [`crate::device::Device::exec`]. Its answer has the length of `output`.
    pub(crate) fn send(
        &mut self,
        op: Opcode,
        op_mod: u16,
        number: u32,
        input: &mut [u8],
        tail: &dyn Tail,
        output: &[u8],
    ) -> Result<Flight, Fault> {
        if let Some(dead) = self.dead {
            return Err(about(dead, op, number));
        }
        let mut head = InputHead(&mut *input);
        head.set_opcode(op.code());
        head.set_op_mod(op_mod);
        let flight = self.start(op, number, input, tail, output)?;
        self.show(op, Direction::Input, &flight, input);
        // ORDER: entry and mailboxes precede the doorbell that makes the device read them.
        self.platform.fence(Fence::BeforeDoorbell);
        health::write(self.platform, init_seg::CMD_DOORBELL, 1 << flight.slot);
        self.platform.fence(Fence::AfterDoorbell);
        Ok(flight)
    }

    /// Fills the entry and the mailboxes.
    fn start(
        &mut self,
        op: Opcode,
        number: u32,
        input: &[u8],
        tail: &dyn Tail,
        output: &[u8],
    ) -> Result<Flight, Fault> {
        let about = |fault| about(fault, op, number);
        let (Some((inline, input_rest)), Some((_, output_rest))) =
            (input.split_first_chunk::<HEAD>(), output.split_first_chunk::<HEAD>())
        else {
            return Err(about(fault!(BadParameter, "", "a message without its head")));
        };
        let len = input.len().saturating_add(tail.len());
        if len > self.pool.longest() || output.len() > MAX_MESSAGE {
            return Err(about(fault!(BadParameter, "", "the message does not fit the mailboxes",)));
        }
        if self.free == 0 {
            return Err(about(fault!(
                Resources,
                "",
                "every command slot is held by a command that never came back",
                "reset the device",
            )));
        }
        let chains = self.pool.take(len - HEAD).and_then(|input_chain| {
            match self.pool.take(output_rest.len()) {
                Some(output_chain) => Some((input_chain, output_chain)),
                None => {
                    self.pool.give(input_chain);
                    None
                }
            }
        });
        let Some((input_chain, output_chain)) = chains else {
            return Err(about(fault!(
                Resources,
                "",
                "the mailboxes are held by commands that never came back",
                "reset the device",
            )));
        };
        let slot = self.free.trailing_zeros();
        self.free &= !(1 << slot);
        self.token = self.token.checked_add(1).unwrap_or(1);
        let token = self.token;
        self.pool.write(self.platform, input_chain, token, input_rest, tail);
        self.pool.write(self.platform, output_chain, token, &[], &());

        let mut entry = CommandEntry::new();
        entry.set_kind(TRANSPORT_PCI);
        entry.set_input_length(u32::try_from(len).unwrap_or(u32::MAX));
        entry.set_input_mailbox(self.pool.chain_address(self.platform, input_chain));
        entry.set_command_input_inline(u128::from_be_bytes(*inline));
        entry.set_output_mailbox(self.pool.chain_address(self.platform, output_chain));
        entry.set_output_length(u32::try_from(output.len()).unwrap_or(u32::MAX));
        entry.set_token(token);
        entry.set_ownership(true);
        entry.set_signature(signature(&entry.0));
        self.platform.memory().write_bytes(self.entry(slot), &entry.0);
        let deadline = health::clock(self.platform) + self.timeout;
        let (input, output) = (input_chain, output_chain);
        Ok(Flight { op, number, deadline, slot, token, input, output })
    }

    /// Whether the device has handed the entry back. It never will after an error.
    pub(crate) fn poll(&mut self, flight: &Flight) -> Result<bool, Fault> {
        let platform = self.platform;
        let tail = self.entry(flight.slot) + CommandEntry::SIZE - 4;
        // The clock before the entry: a host that slept through the deadline still finds an answer
        // that is there.
        let now = health::clock(platform);
        if u32::from_be(platform.memory().load32(tail)) & 1 == 0 {
            // ORDER: the load that saw ownership precedes those of the output.
            platform.fence(Fence::AfterOwnership);
            return Ok(true);
        }
        let fault = if let Some(dead) = self.dead {
            dead
        } else if let Some(fault) = self.sign(now, flight) {
            self.kill(fault);
            fault
        } else if now < flight.deadline {
            return Ok(false);
        } else if flight.op == Opcode::EnableHca {
            fault!(
                Timeout,
                "",
                "no answer before the deadline",
                "the first command failed: can the device reach host memory? look at IOMMU, bus mastering and the arena's mapping",
            )
        } else {
            fault!(
                Timeout,
                "",
                "no answer before the deadline",
                "the firmware hangs; reset the device",
            )
        };
        // The slot and both chains stay taken: nothing may be put where the device might still
        // write.
        self.lost |= 1 << flight.slot;
        let fault = about(fault, flight.op, flight.number);
        self.report(flight, Some(fault));
        Err(fault)
    }

    /// Whether the command has been under way for less than `span`.
    fn is_younger(&self, now: Instant, flight: &Flight, span: Duration) -> bool {
        now + self.timeout < flight.deadline + span
    }

    /// Why the device is lost, if it is. A reset by somebody else leaves no syndrome: that is looked
    /// for when the command has taken a second.
    fn sign(&self, now: Instant, flight: &Flight) -> Option<Fault> {
        if self.is_younger(now, flight, UNEXAMINED) {
            None
        } else if self.is_younger(now, flight, health::PERIOD) {
            health::verdict(self.platform)
        } else {
            health::examine(self.platform)
        }
    }

    /// Lets time pass for a command that has not come back: see [`CommandQueue::sleep`] for when it
    /// has taken long.
    pub(crate) fn relax(&mut self, flight: &Flight) {
        if self.is_younger(health::clock(self.platform), flight, BRISK) {
            self.platform.pause();
        } else {
            self.sleep();
        }
    }

    /// Sleeps until the device may have done something. What it did since the last look at an entry
    /// ends the sleep, or there is none.
    pub(crate) fn sleep(&mut self) {
        if self.read_events() {
            return;
        }
        if let Some(events) = &mut self.events {
            events.arm(self.platform);
        }
        self.platform.relax();
    }

    /// Reads the answer and gives slot and mailboxes back.
    pub(crate) fn finish(&mut self, flight: &Flight, output: &mut [u8]) -> Result<(), Fault> {
        let done = self.read_answer(flight, output);
        self.report(flight, done.err());
        done
    }

    fn read_answer(&mut self, flight: &Flight, output: &mut [u8]) -> Result<(), Fault> {
        let (op, number) = (flight.op, flight.number);
        self.read_events();
        let mut entry = CommandEntry::new();
        self.platform.memory().read_bytes(self.entry(flight.slot), &mut entry.0);
        prm::put(output, 0, &entry.command_output_inline().to_be_bytes());
        if let Some(rest) = output.get_mut(HEAD..) {
            self.pool.read(self.platform, flight.output, rest);
        }
        self.show(op, Direction::Output, flight, output);
        self.free |= 1 << flight.slot;
        self.pool.give(flight.input);
        self.pool.give(flight.output);
        if entry.token() != flight.token {
            let fault = fault!(
                Nonsense,
                "",
                "the answer carries another command's token",
                "reset the device"
            );
            return Err(about(fault, op, number));
        }
        if entry.status() != 0 {
            return Err(not_delivered(op, number, entry.status()));
        }
        let head = OutputHead(&*output);
        if head.status() != command_status::OK {
            return Err(refused(op, number, head.status(), head.syndrome()));
        }
        Ok(())
    }

    fn report(&self, flight: &Flight, fault: Option<Fault>) {
        if let Some(hook) = self.hook {
            let Flight { op, number, .. } = *flight;
            let (operation, object) = (op.name(), op.object());
            hook(&Activity::Command { operation, object, number, fault });
        }
    }

    fn entry(&self, slot: u32) -> usize {
        self.page.offset + ((slot as usize) << self.log_stride)
    }

    fn show(&self, op: Opcode, direction: Direction, flight: &Flight, message: &[u8]) {
        let Some(observer) = self.observer else { return };
        let mut entry = [0; CommandEntry::SIZE];
        self.platform.memory().read_bytes(self.entry(flight.slot), &mut entry);
        let chain = match direction {
            Direction::Input => flight.input,
            Direction::Output => flight.output,
        };
        let block = |number: usize| self.pool.block(self.platform, chain, number);
        observer.command(&Dump { opcode: op, direction, entry, message, block: &block });
    }
}

/// The time limit the device asks for, if it takes part in that at all.
fn device_timeout<P: Platform>(platform: &P) -> Option<Duration> {
    if health::read(platform, init_seg::CMD_Q_INIT_TO) == 0 {
        return None;
    }
    TimeLimit(health::read(platform, init_seg::CMD_EXEC_TO)).duration()
}
