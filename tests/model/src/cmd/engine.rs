//! Command slots over time: doorbell, fetch, execution, answer, event.
//!
//! Slots run independently of each other. A command takes effect when it is fetched and is answered
//! after the latency the configuration asks for, so answers of different slots may overtake each
//! other. The answer is output bytes first, ownership bit after, command event last, as on silicon;
//! the event comes for polled commands too, provided the event queue existed at the doorbell.

use super::latency::latency;
use super::mailbox::{self, Delivered, Message};
use super::{FunctionState, Stage, Status, table};
use crate::eq::{Event, kind};
use crate::hca::Hca;
use crate::host::Nanos;
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::pages::manage_pages_in;
use crate::ifc::regs::access_register_in;
use crate::pages::Shortage;
use crate::replay::geometry;
use crate::stats::Refused;
use crate::watch::Seen;
use rand::Rng;
use std::collections::BTreeSet;

/// Decision of a hook about a command about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it run.
    Run,
    /// Answer with this status and syndrome instead of running it.
    Refuse {
        /// Status byte.
        status: u8,
        /// Syndrome word.
        syndrome: u32,
    },
    /// Fail the transport with this delivery status.
    Undelivered(u8),
    /// Never run it and never answer.
    Mute,
    /// Run it, answer that much later.
    Late(Nanos),
    /// Run it and clear the ownership bit, but post no event.
    NoEvent,
}

/// Sees every command; the one place where a test interferes with the command interface.
pub trait CommandHook: Send {
    /// The `nth` command since construction, from 0, is about to run.
    fn command(&mut self, nth: u64, opcode: u16, input: &[u8]) -> Verdict;

    /// It ran, or was refused; `output` is what will be written, cut to the declared length.
    fn completed(&mut self, _nth: u64, _opcode: u16, _input: &[u8], _output: &[u8]) {}
}

/// State of a command slot.
#[derive(Debug)]
enum Phase {
    /// The device has not looked yet.
    Fetch,
    /// It waits for pages.
    Stalled(Message),
    /// It has run; this goes back.
    Answer(Delivered),
}

#[derive(Debug)]
struct Job {
    slot: u32,
    due: Nanos,
    event: bool,
    phase: Phase,
}

/// State of the command interface.
#[derive(Default)]
pub(crate) struct CommandQueue {
    /// Address of the command page; none until its low half was written.
    pub(crate) base: Option<u64>,
    /// High half as last written.
    pub(crate) high: u32,
    /// How far bring-up is.
    pub(crate) state: FunctionState,
    /// Interface version chosen by SET_ISSI.
    pub(crate) issi: u16,
    jobs: Vec<Job>,
    /// A command runs at this moment.
    running: bool,
    events: Vec<(Nanos, u32)>,
    dead: BTreeSet<u32>,
    count: u64,
    hook: Option<Box<dyn CommandHook>>,
}

impl core::fmt::Debug for CommandQueue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CommandQueue")
            .field("base", &self.base)
            .field("state", &self.state)
            .finish()
    }
}

/// The command whose refusals are recorded by register.
const ACCESS_REG: u16 = 0x805;
/// The command after which commands that wait for pages may go on.
const MANAGE_PAGES: u16 = 0x108;
/// What a card said of a user context that it does not know. There are none here: the device has no
/// CREATE_UCTX.
const NO_CONTEXT: u32 = 0x76_555f;
/// log2 of the number of slots, where no recording says otherwise.
pub(crate) const LOG_SIZE: u32 = 5;
/// log2 of the distance between slots, the same.
pub(crate) const LOG_STRIDE: u32 = 6;

impl CommandQueue {
    pub(crate) fn set_hook(&mut self, hook: Option<Box<dyn CommandHook>>) {
        self.hook = hook;
    }

    /// Back to power-on; the hook and the count survive, being the test's.
    pub(crate) fn reset(&mut self) {
        *self = Self { hook: self.hook.take(), count: self.count, ..Self::default() };
    }

    /// Whether a command is in flight.
    pub(crate) fn busy(&self) -> bool {
        self.running || !self.jobs.is_empty()
    }

    /// Commands executed since construction.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

impl Hca {
    /// How many command slots there are and how far apart, as logarithms.
    pub(crate) fn slots(&self) -> (u32, u32) {
        let segment = self.recording().and_then(|recording| recording.segment.as_deref());
        segment.and_then(geometry).unwrap_or((LOG_SIZE, LOG_STRIDE))
    }
}

/// A store to the command doorbell.
pub(crate) fn doorbell(hca: &mut Hca, vector: u32) {
    hca.bus.stats.command_doorbells += 1;
    if hca.cmd.base.is_none() {
        hca.bus.complain("command doorbell before the command page was set");
        return;
    }
    let event = hca.eqs.subscribed(kind::COMMAND);
    for slot in (0..1 << hca.slots().0).filter(|slot| vector >> slot & 1 != 0) {
        if hca.cmd.dead.contains(&slot) || hca.cmd.jobs.iter().any(|job| job.slot == slot) {
            hca.bus.complain(format!("command slot {slot} rung while the device owns it"));
            continue;
        }
        let due = hca.bus.now;
        hca.cmd.jobs.push(Job { slot, due, event, phase: Phase::Fetch });
    }
}

/// Runs what is due; says when next.
pub(crate) fn step(hca: &mut Hca) -> Option<Nanos> {
    if hca.regs.dead() {
        return None;
    }
    while let Some(at) = hca.cmd.jobs.iter().position(|job| job.due <= hca.bus.now) {
        let job = hca.cmd.jobs.remove(at);
        match job.phase {
            Phase::Fetch => fetch(hca, job.slot, job.event),
            Phase::Stalled(message) => {
                hca.cmd.running = true;
                stalled(hca, job.slot, job.event, message);
                hca.cmd.running = false;
            }
            Phase::Answer(delivered) => answer(hca, job.slot, job.event, &delivered),
        }
    }
    if hca.cmd.jobs.is_empty() {
        hca.release_page_events();
    }
    events(hca);
    let jobs = hca.cmd.jobs.iter().map(|job| job.due).filter(|due| *due != Nanos::MAX);
    jobs.chain(hca.cmd.events.iter().map(|event| event.0)).min()
}

fn fetch(hca: &mut Hca, slot: u32, event: bool) {
    let Some(base) = hca.cmd.base else { return };
    let entry = base + (u64::from(slot) << hca.slots().1);
    let in_flight: Vec<u64> = hca
        .cmd
        .jobs
        .iter()
        .filter_map(|job| match &job.phase {
            Phase::Answer(delivered) => Some(delivered.blocks.iter().copied()),
            Phase::Stalled(message) => Some(message.blocks.iter().copied()),
            Phase::Fetch => None,
        })
        .flatten()
        .collect();
    let message = match mailbox::fetch(hca, entry) {
        Ok(Some(message)) => message,
        Ok(None) => return,
        Err(error) => {
            // Silicon hangs here, and its driver sees ENABLE_HCA time out.
            hca.bus.complain(format!("command slot {slot}: {error}"));
            hca.cmd.dead.insert(slot);
            return;
        }
    };
    match message {
        Err(refused) => {
            let after = latency(hca, 0, 0);
            respond(hca, slot, event, after, refused);
        }
        Ok(message) => {
            if message.blocks.iter().any(|block| in_flight.contains(block)) {
                hca.bus
                    .complain(format!("command slot {slot}: a mailbox is still owned by another"));
            }
            let opcode = head_in::opcode.get(&message.input) as u16;
            if hca.cmd.jobs.iter().any(|job| !matches!(job.phase, Phase::Fetch)) {
                *hca.bus.stats.commands_beside.entry(opcode).or_default() += 1;
            }
            hca.cmd.running = true;
            let waits = hca.cmd.state == FunctionState::Running;
            match if waits { hca.shortage(opcode) } else { Shortage::None } {
                Shortage::None => run(hca, slot, event, &message, None),
                Shortage::Refuse => run(hca, slot, event, &message, Some(NO_PAGES)),
                Shortage::Stall => {
                    let phase = Phase::Stalled(message);
                    hca.cmd.jobs.push(Job { slot, due: Nanos::MAX, event, phase });
                }
            }
            hca.cmd.running = false;
        }
    }
}

/// Answer of a command for which there are no pages.
const NO_PAGES: Verdict =
    Verdict::Refuse { status: Status::NoResources as u8, syndrome: 0x10_8010 };

/// A command that waited for pages: they came, or the driver said that none will.
fn stalled(hca: &mut Hca, slot: u32, event: bool, message: Message) {
    let refused = hca.pages_refused();
    run(hca, slot, event, &message, refused.then_some(NO_PAGES));
}

/// Runs a whole message past the hook, or answers as `fixed` says.
fn run(hca: &mut Hca, slot: u32, event: bool, message: &Message, fixed: Option<Verdict>) {
    let mut event = event;
    let entry = message.entry;
    let mut delivered = Delivered { entry, ..Delivered::default() };
    let opcode = head_in::opcode.get(&message.input) as u16;
    crate::objects::write_completions(hca);
    let nth = hca.cmd.count;
    hca.cmd.count += 1;
    *hca.bus.stats.commands.entry(opcode).or_default() += 1;
    let mut hook = hca.cmd.hook.take();
    let asked = hook.as_mut().map(|hook| hook.command(nth, opcode, &message.input));
    let verdict = fixed.or(asked).unwrap_or(Verdict::Run);
    let mut output = vec![0; message.output_length];
    match verdict {
        Verdict::Run | Verdict::Late(_) | Verdict::NoEvent => {
            output = execute(hca, opcode, &message.input, message.output_length);
        }
        Verdict::Refuse { status, syndrome } => {
            head_out::status.set(&mut output, u32::from(status));
            head_out::syndrome.set(&mut output, syndrome);
        }
        Verdict::Undelivered(status) => delivered.status = status,
        Verdict::Mute => {}
    }
    if let Some(hook) = &mut hook {
        hook.completed(nth, opcode, &message.input, &output);
    }
    hca.bus.show(&Seen::Command { opcode, input: &message.input, output: &output });
    hca.cmd.hook = hook;
    let extra = match verdict {
        Verdict::Mute => {
            hca.cmd.dead.insert(slot);
            return;
        }
        Verdict::Late(by) => by,
        Verdict::NoEvent => {
            event = false;
            0
        }
        Verdict::Run | Verdict::Refuse { .. } | Verdict::Undelivered(_) => 0,
    };
    delivered.output = output;
    delivered.out_blocks.clone_from(&message.out_blocks);
    delivered.blocks.clone_from(&message.blocks);
    let op_mod = head_in::op_mod.get(&message.input);
    let due = latency(hca, opcode, op_mod) + extra;
    respond(hca, slot, event, due, delivered);
    if opcode == MANAGE_PAGES && manage_pages_in::op_mod.get(&message.input) != 2 {
        resume(hca);
    }
}

/// Lets the commands go on that wait for pages, once there are enough or will be none.
fn resume(hca: &mut Hca) {
    if hca.pages.satisfied() || hca.pages_refused() {
        let now = hca.bus.now;
        let waiting = |job: &&mut Job| matches!(job.phase, Phase::Stalled(_));
        hca.cmd.jobs.iter_mut().filter(waiting).for_each(|job| job.due = now);
    }
}

/// Answers after a time, unless the command page was moved meanwhile.
fn respond(hca: &mut Hca, slot: u32, event: bool, after: Nanos, delivered: Delivered) {
    if hca.cmd.base.is_some() {
        let due = hca.bus.now + after;
        hca.cmd.jobs.push(Job { slot, due, event, phase: Phase::Answer(delivered) });
    }
}

/// Runs one command; the answer is as long as the driver declared.
fn execute(hca: &mut Hca, opcode: u16, input: &[u8], length: usize) -> Vec<u8> {
    let mut output = vec![0; length];
    let row = table::find(opcode);
    let result = match row {
        None => Err(Status::BadOp.because(u32::from(opcode) << 12 | 0xb0)),
        Some(row) if input.len() < row.input => {
            Err(Status::BadInputLength.because(u32::from(opcode) << 12 | 0xb1))
        }
        Some(row) if !hca.cmd.state.allows(row.stage) => {
            Err(Status::BadSysState.because(u32::from(opcode) << 12 | 0xb2))
        }
        Some(_) if head_in::uid.is_set(input) => Err(Status::BadParam.because(NO_CONTEXT)),
        Some(row) => {
            if length < row.output {
                hca.bus.complain(format!(
                    "{}: output of {length} bytes declared, the answer has {}",
                    row.name, row.output
                ));
            }
            output.resize(length.max(row.output), 0);
            let result = (row.run)(hca, input, &mut output);
            if result.is_ok() {
                hca.grow(opcode);
            }
            result
        }
    };
    if let Err(refusal) = result {
        let register = if opcode == ACCESS_REG {
            access_register_in::register_id.get(input) as u16
        } else {
            0
        };
        let refused = Refused {
            opcode,
            op_mod: head_in::op_mod.get(input) as u16,
            register,
            status: refusal.status,
            syndrome: refusal.syndrome,
        };
        *hca.bus.stats.refused.entry(refused).or_default() += 1;
        output.fill(0);
        head_out::status.set(&mut output, u32::from(refusal.status));
        head_out::syndrome.set(&mut output, refusal.syndrome);
    }
    output.truncate(length);
    output
}

fn answer(hca: &mut Hca, slot: u32, event: bool, delivered: &Delivered) {
    if let Err(error) = mailbox::answer(&mut hca.bus, delivered) {
        hca.bus.complain(format!("command slot {slot}: {error}"));
        hca.cmd.dead.insert(slot);
        return;
    }
    if event {
        let gap = if hca.config.hardware_like { hca.bus.rng.random_range(0..200_000) } else { 0 };
        hca.cmd.events.push((hca.bus.now + gap, 1 << slot));
    }
}

/// Command events due by now leave as one, with all their slots in it.
fn events(hca: &mut Hca) {
    let now = hca.bus.now;
    let due = hca.cmd.events.iter().filter(|(at, _)| *at <= now);
    let slots = due.fold(0, |acc, (_, bits)| acc | bits);
    hca.cmd.events.retain(|(at, _)| *at > now);
    if slots != 0 {
        hca.eqs.raise(&mut hca.bus, &Event::new(kind::COMMAND, 0).with(0, slots));
    }
}

impl FunctionState {
    /// Whether a command of this stage is accepted.
    pub(crate) fn allows(self, stage: Stage) -> bool {
        match stage {
            Stage::Always => true,
            Stage::Enabled => self != Self::Off,
            Stage::Running => self == Self::Running,
        }
    }
}
