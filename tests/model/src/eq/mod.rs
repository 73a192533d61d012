//! Event queues.

mod event;

pub use event::{Event, kind};

use crate::bus::{Bus, Wrote};
use crate::cmd::{Command, Refusal, Stage, Status};
use crate::facts::{Facts, OpenFact};
use crate::hca::Hca;
use crate::host::{DmaError, Nanos};
use crate::ifc::cmd::head_in;
use crate::ifc::eq::{create_eq_in, create_eq_out, eqc, eqe, gen_eqe_in, query_eq_out};
use crate::numbers::Numbers;
use crate::queue_memory::QueueMemory;
use crate::table::{Deadlines, Set, Table};
use rand::Rng;
use std::collections::{BTreeSet, VecDeque};

/// When events reach their ring.
#[derive(Clone, Copy, Debug)]
enum Order {
    AtOnce,
    /// Those of all queues together, every [`BURST`].
    Bursts,
    /// Each queue after a time of its own, up to [`LATEST`].
    Reordered,
}

/// 100 microseconds.
const BURST: Nanos = 100_000;
/// 2 milliseconds.
const LATEST: Nanos = 2_000_000;

/// One event queue.
#[derive(Debug)]
struct Eq {
    memory: QueueMemory,
    context: [u8; 64],
    log_size: u32,
    uar: u32,
    vector: u16,
    mask: [u64; 4],
    ignore_overrun: bool,
    consumer: u32,
    producer: u32,
    armed: bool,
    fired: bool,
    failed: bool,
    /// Events on their way to the ring, and when they reach it.
    pending: VecDeque<Event>,
    reach_at: Nanos,
}

/// All event queues of the function.
#[derive(Debug)]
pub(crate) struct EventQueues {
    numbers: Numbers,
    order: Order,
    live: Table<u32, Eq>,
    /// Kinds of events, each with the queues subscribed to it.
    subscriptions: Set<(u8, u32)>,
    /// When the queues with pending events write them.
    due: Deadlines,
}

impl EventQueues {
    /// None yet; numbers below `limit`, from the first that a real card gave.
    pub(crate) fn new(limit: u32, facts: &Facts) -> Self {
        let order = match facts.value(OpenFact::EqeOrder) {
            None => Order::AtOnce,
            Some(1) => Order::Bursts,
            Some(_) => Order::Reordered,
        };
        Self {
            numbers: Numbers::new(0x10, limit, 0x30_1000),
            order,
            live: Table::default(),
            subscriptions: Set::default(),
            due: Deadlines::default(),
        }
    }

    /// How many are alive.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// A CQ begins to refer to an EQ.
    pub(crate) fn hold(&mut self, eqn: u32) -> Result<(), Refusal> {
        self.numbers.hold(eqn)
    }

    /// A CQ is gone.
    pub(crate) fn release(&mut self, eqn: u32) {
        self.numbers.release(eqn);
    }

    /// Whether an event of that kind would reach anybody.
    pub(crate) fn subscribed(&self, kind: u8) -> bool {
        self.subscriber(kind).is_some()
    }

    /// The queue subscribed to a kind of event: of several the one with the lowest number.
    fn subscriber(&self, kind: u8) -> Option<u32> {
        let queues = (kind, 0)..=(kind, u32::MAX);
        self.subscriptions.range(queues).next().map(|(_, eqn)| eqn)
    }

    /// Posts an asynchronous event to the queue subscribed to its kind; lost when there is none.
    pub(crate) fn raise(&mut self, bus: &mut Bus, event: &Event) {
        if let Some(eqn) = self.subscriber(event.kind) {
            self.post(bus, eqn, event);
        }
    }

    /// Posts to one queue whatever its mask: completions, and what GEN_EQE asks for.
    pub(crate) fn post(&mut self, bus: &mut Bus, eqn: u32, event: &Event) {
        if let Some(eq) = self.live.get_mut(&eqn) {
            eq.accept(bus, eqn, event, self.order);
            self.due.set(eqn, (!eq.pending.is_empty()).then_some(eq.reach_at));
        }
    }

    /// Writes the events that have been on their way long enough; says when the next is due.
    pub(crate) fn step(&mut self, bus: &mut Bus) -> Option<Nanos> {
        if matches!(self.order, Order::AtOnce) {
            return None;
        }
        let due: BTreeSet<u32> = self.due.due(bus.now).collect();
        for eqn in due {
            self.due.set(eqn, None);
            if let Some(eq) = self.live.get_mut(&eqn) {
                for event in core::mem::take(&mut eq.pending) {
                    eq.post(bus, eqn, &event);
                }
            }
        }
        self.due.next()
    }

    /// Where the next event will stand, counted as the consumer index is.
    pub(crate) fn position(&self, eqn: u32) -> u32 {
        self.live
            .get(&eqn)
            .map_or(0, |eq| eq.producer.wrapping_add(eq.pending.len() as u32) & 0xff_ffff)
    }

    /// Whether software has said that it read the event that stood at a position.
    pub(crate) fn has_read(&self, eqn: u32, position: u32) -> bool {
        self.live.get(&eqn).is_some_and(|eq| {
            let beyond = eq.consumer.wrapping_sub(position) & 0xff_ffff;
            beyond != 0 && beyond < 0x80_0000
        })
    }

    /// A store to the EQ doorbells of a UAR: number in the top byte, consumer index below.
    pub(crate) fn doorbell(&mut self, bus: &mut Bus, uar: u32, word: u32, arm: bool) {
        bus.stats.eq_doorbells += 1;
        let eqn = word >> 24;
        let Some(eq) = self.live.get_mut(&eqn) else {
            bus.complain(format!("EQ doorbell {word:#010x} on UAR {uar:#x}: no EQ {eqn:#x}"));
            return;
        };
        if eq.uar != uar {
            bus.complain(format!("EQ {eqn:#x} rung on UAR {uar:#x}, created with {:#x}", eq.uar));
            return;
        }
        let unread = eq.producer.wrapping_sub(word) & 0xff_ffff;
        if unread > 1 << eq.log_size && !eq.ignore_overrun {
            bus.complain(format!(
                "EQ {eqn:#x}: consumer index {:#x} is not behind producer {:#x}",
                word & 0xff_ffff,
                eq.producer & 0xff_ffff
            ));
        }
        eq.consumer = word & 0xff_ffff;
        if arm {
            eq.fired = false;
            eq.armed = true;
            if unread != 0 {
                eq.fire(bus);
            }
        }
    }
}

impl Eq {
    fn wants(&self, kind: u8) -> bool {
        (self.mask[usize::from(kind >> 6)] >> (kind & 63)) & 1 != 0
    }

    fn fire(&mut self, bus: &mut Bus) {
        self.armed = false;
        self.fired = true;
        bus.interrupt(self.vector);
    }

    /// Takes an event, which reaches the ring at once or later, in order.
    fn accept(&mut self, bus: &mut Bus, eqn: u32, event: &Event, order: Order) {
        let reach_at = match order {
            Order::AtOnce => return self.post(bus, eqn, event),
            Order::Bursts => (bus.now / BURST + 1) * BURST,
            Order::Reordered => bus.now + bus.rng.random_range(0..LATEST),
        };
        if self.pending.is_empty() {
            self.reach_at = reach_at;
        }
        self.pending.push_back(*event);
    }

    fn post(&mut self, bus: &mut Bus, eqn: u32, event: &Event) {
        if self.failed {
            return;
        }
        let size = 1u32 << self.log_size;
        let unread = self.producer.wrapping_sub(self.consumer) & 0xff_ffff;
        if unread >= size && !self.ignore_overrun {
            self.failed = true;
            bus.complain(format!("EQ {eqn:#x} overrun: {unread} entries unread"));
            return;
        }
        let mut entry = event.bytes();
        eqe::owner.set(&mut entry, (self.producer >> self.log_size) & 1);
        let byte = u64::from(self.producer & (size - 1)) * 64;
        let place = self.memory.at(byte).ok_or(DmaError::Refused(byte));
        let wrote = place.and_then(|(iova, _)| bus.write(Wrote::Eqe, iova, &entry));
        if let Err(error) = wrote {
            self.failed = true;
            bus.complain(format!("EQ {eqn:#x}: {error}"));
            return;
        }
        bus.stats.eqes += 1;
        self.producer = self.producer.wrapping_add(1) & 0xff_ffff;
        if self.armed {
            self.fire(bus);
        }
    }

    fn state(&self) -> u32 {
        match (self.armed, self.fired) {
            (true, _) => 0x9,
            (false, true) => 0xa,
            (false, false) => 0,
        }
    }
}

fn create(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context: [u8; 64] = create_eq_in::eq_context_entry
        .bytes(input)
        .try_into()
        .map_err(|_| Status::BadInputLength.because(0x30_1010))?;
    let log_size = eqc::log_eq_size.get(&context);
    if log_size > hca.caps.general(crate::ifc::caps::cmd_hca_cap::log_max_eq_sz) {
        return Err(Status::BadParam.because(0x30_1011));
    }
    let uar = eqc::uar_page.get(&context);
    if !hca.ids.uar.contains(uar) {
        return Err(Status::BadResource.because(0x30_1012));
    }
    let vector = eqc::intr.get(&context) as u16;
    if vector >= hca.config.vectors {
        return Err(Status::BadParam.because(0x30_1013));
    }
    let memory = QueueMemory::new(
        create_eq_in::pas.tail(input),
        eqc::log_page_size.get(&context),
        eqc::page_offset.get(&context),
        64 << log_size,
    )
    .ok_or(Status::BadInputLength.because(0x30_1014))?;
    let mut mask = [0; 4];
    for (word, bytes) in mask.iter_mut().zip(create_eq_in::event_bitmask.bytes(input).chunks(8)) {
        *word = bytes.iter().fold(0, |acc, &b| (acc << 8) | u64::from(b));
    }
    hca.check_not_firmware("CREATE_EQ", create_eq_in::pas.tail(input));
    let eqn = hca.eqs.numbers.take()?;
    hca.ids.uar.hold(uar)?;
    let eq = Eq {
        memory,
        context,
        log_size,
        uar,
        vector,
        mask,
        ignore_overrun: eqc::oi.is_set(&context),
        consumer: 0,
        producer: 0,
        armed: hca.config.facts.on(OpenFact::EqCreated),
        fired: false,
        failed: false,
        pending: VecDeque::new(),
        reach_at: 0,
    };
    for kind in (0..=u8::MAX).filter(|kind| eq.wants(*kind)) {
        hca.eqs.subscriptions.insert((kind, eqn));
    }
    hca.eqs.live.insert(eqn, eq);
    create_eq_out::eq_number.set(output, eqn);
    Ok(())
}

fn destroy(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let eqn = head_in::number.get(input) & 0xff;
    hca.eqs.numbers.free(eqn)?;
    if let Some(eq) = hca.eqs.live.remove(&eqn) {
        hca.ids.uar.release(eq.uar);
        hca.eqs.due.set(eqn, None);
        for kind in (0..=u8::MAX).filter(|kind| eq.wants(*kind)) {
            hca.eqs.subscriptions.remove(&(kind, eqn));
        }
    }
    Ok(())
}

fn query(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let eqn = head_in::number.get(input) & 0xff;
    let eq = hca.eqs.live.get(&eqn).ok_or(Status::BadResource.because(0x30_3001))?;
    let context = query_eq_out::eq_context_entry.bytes_mut(output);
    context.copy_from_slice(&eq.context[..context.len()]);
    eqc::status.set(context, if eq.failed { 0xa } else { 0 });
    eqc::st.set(context, eq.state());
    eqc::consumer_counter.set(context, eq.consumer);
    eqc::producer_counter.set(context, eq.producer);
    for (to, word) in query_eq_out::event_bitmask.bytes_mut(output).chunks_mut(8).zip(eq.mask) {
        to.copy_from_slice(&word.to_be_bytes()[..to.len()]);
    }
    Ok(())
}

/// GEN_EQE: software asks for an entry of its own making; a self-test of ring and interrupt.
fn generate(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let eqn = gen_eqe_in::eq_number.get(input);
    if !hca.eqs.numbers.contains(eqn) {
        return Err(Status::BadResource.because(0x30_4001));
    }
    let armed = hca.eqs.live.get(&eqn).is_some_and(|eq| eq.armed);
    if !armed && hca.config.facts.on(OpenFact::GenEqe) {
        return Ok(());
    }
    let entry = gen_eqe_in::eqe.bytes(input);
    let mut event =
        Event::new(eqe::event_type.get(entry) as u8, eqe::event_sub_type.get(entry) as u8);
    let data = eqe::event_data.bytes(entry);
    event.data[..data.len()].copy_from_slice(data);
    hca.eqs.post(&mut hca.bus, eqn, &event);
    Ok(())
}

/// The commands handled here.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        opcode: 0x301,
        name: "CREATE_EQ",
        input: 280,
        output: 16,
        stage: Stage::Running,
        run: create,
    },
    Command {
        opcode: 0x302,
        name: "DESTROY_EQ",
        input: 16,
        output: 16,
        stage: Stage::Running,
        run: destroy,
    },
    Command {
        opcode: 0x303,
        name: "QUERY_EQ",
        input: 16,
        output: 272,
        stage: Stage::Running,
        run: query,
    },
    Command {
        opcode: 0x304,
        name: "GEN_EQE",
        input: 80,
        output: 16,
        stage: Stage::Running,
        run: generate,
    },
];
