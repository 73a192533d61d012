//! Event queues.

use crate::bus::{Bus, Wrote};
use crate::cmd::{Command, Refusal, Stage, Status};
use crate::hca::Hca;
use crate::ifc::cmd::head_in;
use crate::ifc::eq::{create_eq_in, create_eq_out, eqc, eqe, gen_eqe_in, query_eq_out};
use crate::numbers::Numbers;
use crate::queue_memory::QueueMemory;
use std::collections::BTreeMap;

/// Event types, as the EQE's type byte and the mask bit say them.
#[expect(missing_docs, reason = "the names are the PRM's")]
pub mod kind {
    pub const COMPLETION: u8 = 0x00;
    pub const PATH_MIGRATED: u8 = 0x01;
    pub const COMM_ESTABLISHED: u8 = 0x02;
    pub const SQ_DRAINED: u8 = 0x03;
    pub const CQ_ERROR: u8 = 0x04;
    pub const WQ_CATASTROPHIC: u8 = 0x05;
    pub const PATH_MIGRATION_FAILED: u8 = 0x07;
    pub const INTERNAL_ERROR: u8 = 0x08;
    pub const PORT_CHANGE: u8 = 0x09;
    pub const COMMAND: u8 = 0x0a;
    pub const PAGE_REQUEST: u8 = 0x0b;
    pub const NIC_VPORT_CHANGE: u8 = 0x0d;
    pub const WQ_INVALID_REQUEST: u8 = 0x10;
    pub const WQ_ACCESS_ERROR: u8 = 0x11;
    pub const SRQ_CATASTROPHIC: u8 = 0x12;
    pub const LAST_WQE_REACHED: u8 = 0x13;
    pub const SRQ_LIMIT: u8 = 0x14;
    pub const PORT_MODULE: u8 = 0x16;
    pub const GENERAL: u8 = 0x22;
}

/// One event before it has a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Type byte.
    pub kind: u8,
    /// Sub-type byte.
    pub sub: u8,
    /// Data, byte 0x20 of the entry on.
    pub data: [u8; 28],
}

impl Event {
    /// An event with its data all zero.
    pub const fn new(kind: u8, sub: u8) -> Self {
        Self { kind, sub, data: [0; 28] }
    }

    /// The same with a big-endian word of data at `offset`.
    #[must_use]
    pub fn with(mut self, offset: usize, word: u32) -> Self {
        if let Some(to) = self.data.get_mut(offset..offset + 4) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        self
    }

    /// Completion on a CQ.
    pub fn completion(cqn: u32) -> Self {
        Self::new(kind::COMPLETION, 0).with(0x18, cqn)
    }

    /// A CQ that fell: 1 overrun, 2 access violation.
    pub fn cq_error(cqn: u32, syndrome: u8) -> Self {
        let mut event = Self::new(kind::CQ_ERROR, 0).with(0, cqn);
        event.data[0x0b] = syndrome;
        event
    }

    /// Something about a work queue: `queue` 0 QP, 1 RQ, 2 SQ.
    pub fn queue(kind: u8, queue: u8, number: u32) -> Self {
        let mut event = Self::new(kind, 0).with(0x18, number);
        event.data[0x14] = queue;
        event
    }

    fn bytes(&self) -> [u8; 64] {
        let mut out = [0; 64];
        eqe::event_type.set(&mut out, u32::from(self.kind));
        eqe::event_sub_type.set(&mut out, u32::from(self.sub));
        eqe::event_data.bytes_mut(&mut out).copy_from_slice(&self.data);
        out
    }
}

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
}

/// All event queues of the function.
#[derive(Debug)]
pub(crate) struct EventQueues {
    numbers: Numbers,
    live: BTreeMap<u32, Eq>,
}

impl EventQueues {
    /// None yet; numbers below `limit`, from the first that a real card gave.
    pub(crate) fn new(limit: u32) -> Self {
        Self { numbers: Numbers::new(0x10, limit, 0x30_1000), live: BTreeMap::new() }
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
        self.live.values().any(|eq| eq.wants(kind))
    }

    /// Posts an asynchronous event to the queue subscribed to its kind; lost when there is none.
    pub(crate) fn raise(&mut self, bus: &mut Bus, event: &Event) {
        if let Some((&eqn, eq)) = self.live.iter_mut().find(|(_, eq)| eq.wants(event.kind)) {
            eq.post(bus, eqn, event);
        }
    }

    /// Posts to one queue whatever its mask: completions, and what GEN_EQE asks for.
    pub(crate) fn post(&mut self, bus: &mut Bus, eqn: u32, event: &Event) {
        if let Some(eq) = self.live.get_mut(&eqn) {
            eq.post(bus, eqn, event);
        }
    }

    /// Where the next event will stand, counted as the consumer index is.
    pub(crate) fn position(&self, eqn: u32) -> u32 {
        self.live.get(&eqn).map_or(0, |eq| eq.producer)
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
        let wrote = match self.memory.at(byte) {
            Some((iova, _)) => bus.write(Wrote::Eqe, iova, &entry),
            None => Ok(()),
        };
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
        armed: hca.config.eq_created_armed,
        fired: false,
        failed: false,
    };
    hca.eqs.live.insert(eqn, eq);
    create_eq_out::eq_number.set(output, eqn);
    Ok(())
}

fn destroy(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let eqn = head_in::number.get(input) & 0xff;
    hca.eqs.numbers.free(eqn)?;
    if let Some(eq) = hca.eqs.live.remove(&eqn) {
        hca.ids.uar.release(eq.uar);
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
