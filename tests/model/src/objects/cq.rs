//! Completion queues: the ring, its overrun check and its arm state.
//!
//! An entry is one write in ascending order, so the byte that holds opcode and owner becomes
//! visible last. Payload is always written before this file is called. An event fires when the CQ
//! is armed and an entry beyond the consumer index named in the arm word exists, at once or as
//! moderation has it (`moderation.rs`).

use super::buffer;
use super::compress::{self, ARRAY, Compression};
use super::cqe::{CQE_BYTES, Cqe, CqeOpcode};
use super::moderation::Moderation;
use super::umem::Uses;
use crate::bus::{Bus, Wrote};
use crate::host::Nanos;
use crate::queue_memory::QueueMemory;

/// Completions for which a CQ is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    /// Nothing.
    No,
    /// Any completion.
    Any,
    /// A solicited completion or an error.
    Solicited,
    /// An event was sent; waits for the next arm.
    Fired,
}

/// Why a CQ takes no more entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CqFault {
    /// The ring is full and `oi` is clear.
    Overrun = 1,
    /// The ring cannot be written.
    AccessViolation = 2,
}

/// Result of posting an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// Written; no event.
    Silent,
    /// Written, and the CQ's EQ gets a completion event.
    Event,
    /// Lost, and the CQ just went to error: CQ error event, its queues to error.
    Fault(CqFault),
    /// Lost: the CQ was in error before.
    Dead,
}

/// One completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    /// Number.
    pub(crate) cqn: u32,
    /// EQ of its completion events.
    pub(crate) eqn: u32,
    /// UAR page whose doorbell arms it.
    pub(crate) uar: u32,
    /// log2 of the entries.
    pub(crate) log_size: u32,
    /// Distance of two entries: 64 or 128 bytes.
    pub(crate) stride: u64,
    /// Collapsed: every entry goes to slot 0.
    pub(crate) collapsed: bool,
    /// Ignore overrun.
    pub(crate) oi: bool,
    /// Bus address of the doorbell record.
    pub(crate) dbr: u64,
    /// The ring.
    pub(crate) ring: QueueMemory,
    /// The umems of both.
    pub(crate) uses: Uses,
    /// Compression of completions, if it is on.
    pub(crate) compression: Option<Compression>,
    /// When events are raised.
    pub(crate) moderation: Moderation,
    /// Producer index, free running; the completions of an open session are counted.
    pub(crate) producer: u32,
    /// Consumer index as last read or armed, 24 bits.
    pub(crate) consumer: u32,
    /// Producer index of the newest entry that counts as solicited, plus one.
    pub(crate) last_solicited: u32,
    /// Producer index at the last event.
    pub(crate) last_notified: u32,
    /// Arm state.
    pub(crate) armed: Armed,
    /// Sequence number of the arm that fired last.
    pub(crate) fired_sn: Option<u8>,
    /// Where in its EQ the last event went.
    pub(crate) event_at: u32,
    /// Sequence number of the present arm.
    pub(crate) sn: u8,
    /// Why it takes no entries.
    pub(crate) fault: Option<CqFault>,
    /// The context as the driver gave it, for QUERY_CQ.
    pub(crate) context: Vec<u8>,
}

/// 24-bit distance from `b` up to `a`.
const fn ahead(a: u32, b: u32) -> u32 {
    a.wrapping_sub(b) & 0xff_ffff
}

impl Cq {
    /// Entries.
    pub(crate) const fn size(&self) -> u32 {
        1 << self.log_size
    }

    fn full(&mut self, bus: &mut Bus) -> bool {
        if self.oi {
            return false;
        }
        if ahead(self.producer, self.consumer) < self.size() {
            return false;
        }
        if let Ok(ci) = bus.read_be32(self.dbr) {
            self.consumer = ci & 0xff_ffff;
        }
        ahead(self.producer, self.consumer) >= self.size()
    }

    /// Takes one entry of a queue: writes it, or holds it back in a session.
    pub(crate) fn post(&mut self, bus: &mut Bus, queue: u32, cqe: &Cqe) -> Posted {
        if self.fault.is_some() {
            return Posted::Dead;
        }
        let joins = self.compression.as_ref().is_none_or(|session| session.takes(queue, cqe));
        let full = self.full(bus);
        if (full || !joins) && self.end_session(bus).is_err() {
            return Posted::Fault(CqFault::AccessViolation);
        }
        if full {
            return self.fail(CqFault::Overrun);
        }
        let index = self.producer;
        self.producer = index.wrapping_add(1);
        let solicited = cqe.counts_as_solicited();
        if solicited {
            self.last_solicited = self.producer;
        }
        self.moderation.completed(bus.now, self.unannounced() == 1);
        let only = self.armed == Armed::Solicited;
        let asks = self.armed == Armed::Any || only && solicited;
        let breaks = solicited && self.moderation.solicited_breaks(only);
        let fires = self.ask(bus.now, asks, breaks);
        let held = match &mut self.compression {
            None => false,
            Some(session) => session.hold(&mut bus.rng, bus.now, queue, cqe),
        };
        let ends = fires || self.compression.as_ref().is_some_and(Compression::is_full);
        let written = match (held, ends) {
            (false, _) => self.write_alone(bus, index, cqe),
            (true, true) => self.end_session(bus),
            (true, false) => Ok(()),
        };
        if written.is_err() {
            return self.fail(CqFault::AccessViolation);
        }
        bus.stats.cqes += 1;
        if fires {
            self.fire(bus.now);
            Posted::Event
        } else {
            Posted::Silent
        }
    }

    /// Completions since the last event.
    const fn unannounced(&self) -> u32 {
        self.producer.wrapping_sub(self.last_notified)
    }

    /// Asks moderation for an event, if `asks`; true when that or the one that waits is raised now.
    fn ask(&mut self, now: Nanos, asks: bool, breaks: bool) -> bool {
        if asks {
            self.moderation.ask();
        }
        asks && breaks || self.moderation.raises(now, self.unannounced())
    }

    /// Raises the event that waits, if moderation lets it.
    pub(crate) fn raise(&mut self, now: Nanos) -> bool {
        let raises = self.fault.is_none() && self.moderation.raises(now, self.unannounced());
        if raises {
            self.fire(now);
        }
        raises
    }

    /// When the open session of compressed entries ends, if there is one.
    pub(crate) fn session_due(&self) -> Option<Nanos> {
        self.compression.as_ref().and_then(Compression::due)
    }

    /// When the event that waits is raised, if there is one.
    pub(crate) fn event_due(&self) -> Option<Nanos> {
        self.moderation.due().filter(|_| self.fault.is_none())
    }

    /// Writes what an open session holds: arrays first, the title last. One entry alone is written
    /// as it is.
    pub(crate) fn end_session(&mut self, bus: &mut Bus) -> Result<(), CqFault> {
        let session = self.compression.as_mut().map(Compression::take).unwrap_or_default();
        let Some(first) = session.first() else {
            return Ok(());
        };
        let start = self.producer.wrapping_sub(session.len() as u32);
        if session.len() == 1 {
            return self.write_alone(bus, start, first);
        }
        bus.stats.cqes_compressed += session.len() as u64;
        for (nth, minis) in session.chunks(ARRAY).enumerate() {
            // The first array follows the title, the others lie at multiples of eight.
            let index = start.wrapping_add((nth * ARRAY).max(1) as u32);
            let lap = u8::from(self.lap(index));
            let array = self.compression.as_ref().map(|format| format.array(minis, lap));
            if let Some(array) = array {
                self.write_slot(bus, index, &array)?;
            }
        }
        self.write(bus, start, compress::title(&session, first))
    }

    /// Whether an index is of an odd lap.
    const fn lap(&self, index: u32) -> bool {
        (index >> self.log_size) & 1 == 1
    }

    /// Writes an entry that is not compressed, payload first.
    fn write_alone(&mut self, bus: &mut Bus, index: u32, cqe: &Cqe) -> Result<(), CqFault> {
        let wide = self.stride > CQE_BYTES as u64;
        if let Some(payload) = cqe.encode_before().filter(|_| wide) {
            let at = self.offset_of(index) - CQE_BYTES as u64;
            self.write_at(bus, Wrote::Payload, at, &payload)?;
        }
        self.write(bus, index, cqe.encode(wide))
    }

    /// Writes an entry with its owner bit.
    fn write(
        &mut self,
        bus: &mut Bus,
        index: u32,
        mut bytes: [u8; CQE_BYTES],
    ) -> Result<(), CqFault> {
        bytes[CQE_BYTES - 1] |= u8::from(self.lap(index));
        self.write_slot(bus, index, &bytes)
    }

    fn write_slot(
        &mut self,
        bus: &mut Bus,
        index: u32,
        bytes: &[u8; CQE_BYTES],
    ) -> Result<(), CqFault> {
        self.write_at(bus, Wrote::Cqe, self.offset_of(index), bytes)
    }

    /// Offset of the entry of an index in the ring. Of a 128-byte entry the second half is the
    /// entry proper.
    fn offset_of(&self, index: u32) -> u64 {
        let slot = if self.collapsed { 0 } else { index & (self.size() - 1) };
        u64::from(slot) * self.stride + (self.stride - CQE_BYTES as u64)
    }

    fn write_at(
        &mut self,
        bus: &mut Bus,
        kind: Wrote,
        at: u64,
        bytes: &[u8; CQE_BYTES],
    ) -> Result<(), CqFault> {
        buffer::write_entry(bus, kind, &self.ring, at, bytes).map_err(|_| {
            self.fault = Some(CqFault::AccessViolation);
            CqFault::AccessViolation
        })
    }

    /// Moves to another ring. An entry that says so ends the old one; what is there and not
    /// consumed software carries over itself. The index runs on, the resize entry counted.
    /// False when the old ring has no room for that entry, or the new one none for what is
    /// outstanding.
    pub(crate) fn resize(
        &mut self,
        bus: &mut Bus,
        ring: QueueMemory,
        log_size: u32,
        stride: u64,
    ) -> bool {
        if let Ok(ci) = bus.read_be32(self.dbr) {
            self.consumer = ci & 0xff_ffff;
        }
        let outstanding = ahead(self.producer, self.consumer);
        if self.fault.is_some() || outstanding >= self.size() || outstanding + 1 > 1 << log_size {
            return false;
        }
        // The entry is not a completion: no event is raised.
        let armed = core::mem::replace(&mut self.armed, Armed::No);
        let written = self.post(bus, 0, &Cqe::new(CqeOpcode::ResizeCq, 0));
        self.armed = armed;
        if written != Posted::Silent {
            return false;
        }
        (self.ring, self.log_size, self.stride) = (ring, log_size, stride);
        true
    }

    fn fail(&mut self, fault: CqFault) -> Posted {
        self.fault = Some(fault);
        Posted::Fault(fault)
    }

    fn fire(&mut self, now: Nanos) {
        self.moderation.raised(now);
        self.armed = Armed::Fired;
        self.fired_sn = Some(self.sn);
        self.last_notified = self.producer;
    }

    /// The arm doorbell. True when the event fires at once; an error is a complaint, the doorbell
    /// is then without effect. `event_read`: software has read the last event.
    pub(crate) fn arm(&mut self, now: Nanos, word: u32, event_read: bool) -> Result<bool, String> {
        let sn = u8::try_from((word >> 28) & 3).unwrap_or(0);
        if word >> 30 != 0 {
            return Err(format!("CQ {:#x}: reserved bits in arm word {word:#x}", self.cqn));
        }
        if self.fired_sn == Some(sn) {
            // Of an event that is still on its way software cannot know: the arm is stale, and
            // nothing is lost, because it will find the event and arm again.
            if !event_read {
                return Ok(false);
            }
            return Err(format!(
                "CQ {:#x}: armed again with sequence number {sn} after its event; \
                 the number must change with every event",
                self.cqn
            ));
        }
        let solicited = word & (1 << 24) != 0;
        let ci = word & 0xff_ffff;
        self.sn = sn;
        self.consumer = ci;
        self.armed = if solicited { Armed::Solicited } else { Armed::Any };
        // The newest entry that counts must lie beyond the consumer index.
        let is_beyond = |newest| newest != 0 && ahead(newest, ci).wrapping_sub(1) < 0x7f_ffff;
        let newest = if solicited { self.last_solicited } else { self.producer };
        let asks = is_beyond(newest) && self.fault.is_none();
        let breaks = self.moderation.arm_at_once
            || is_beyond(self.last_solicited) && self.moderation.solicited_breaks(solicited);
        self.moderation.cancel();
        let fires = self.ask(now, asks, breaks);
        if fires {
            self.fire(now);
        }
        Ok(fires)
    }

    /// `cqc.status`.
    pub(crate) const fn status_code(&self) -> u32 {
        match self.fault {
            None => 0,
            Some(CqFault::Overrun) => 9,
            Some(CqFault::AccessViolation) => 0xa,
        }
    }

    /// `cqc.st`.
    pub(crate) const fn state_code(&self) -> u32 {
        match self.armed {
            Armed::No => 0,
            Armed::Solicited => 6,
            Armed::Any => 9,
            Armed::Fired => 0xa,
        }
    }
}
