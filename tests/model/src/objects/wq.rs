//! The work queue inside an SQ, RQ or RMP: ring, stride, doorbell record.

use super::buffer;
use super::umem::{self, Place, Uses};
use crate::bus::Bus;
use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::ifc::wq::wq;
use crate::queue_memory::QueueMemory;

/// Which half of the doorbell record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The first word: RQ, RMP.
    Receive,
    /// The second word: SQ.
    Send,
}

/// A work queue.
#[derive(Clone, Debug)]
pub(crate) struct Wq {
    /// Linked list (0) or cyclic (1).
    pub(crate) kind: u32,
    /// Protection domain.
    pub(crate) pd: u32,
    /// log2 of the entries.
    pub(crate) log_size: u32,
    /// log2 of an entry's bytes.
    pub(crate) log_stride: u32,
    /// Bus address of the doorbell record's pair.
    pub(crate) dbr: u64,
    /// The umems of ring and record.
    pub(crate) uses: Uses,
    side: Side,
    ring: QueueMemory,
    /// Entries posted, as the record said last.
    pub(crate) producer: u16,
    /// Next entry to take.
    pub(crate) head: u16,
}

/// Geometry of a work queue, from any of the contexts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Linked list (0) or cyclic (1).
    pub(crate) kind: u32,
    pub(crate) pd: u32,
    pub(crate) log_size: u32,
    pub(crate) log_stride: u32,
    pub(crate) log_page_size: u32,
    pub(crate) page_offset: u32,
    pub(crate) dbr: u64,
    /// The umems of ring and record, and the offset in that of the ring.
    pub(crate) uses: Uses,
    pub(crate) umem_offset: u64,
}

impl Wq {
    /// From a context's work queue and the page list behind it; takes no reference.
    pub(crate) fn new(hca: &Hca, context: &[u8], pas: &[u8], side: Side) -> Result<Self, Refusal> {
        let kind = wq::wq_type.get(context);
        // Striding queues (2, 3) are not offered.
        if kind > 1 || wq::wq_signature.is_set(context) {
            return Err(Status::BadParam.because(0x90_4010));
        }
        let shape = Shape {
            kind,
            pd: wq::pd.get(context),
            log_size: wq::log_wq_sz.get(context),
            log_stride: wq::log_wq_stride.get(context),
            log_page_size: wq::log_wq_pg_sz.get(context),
            page_offset: wq::page_offset.get(context),
            dbr: wq::dbr_addr.get64(context),
            uses: Uses {
                ring: umem::named(wq::wq_umem_valid, wq::wq_umem_id, context),
                record: umem::named(wq::dbr_umem_valid, wq::dbr_umem_id, context),
            },
            umem_offset: wq::wq_umem_offset.get64(context),
        };
        Self::of_shape(hca, shape, pas, side)
    }

    /// From the numbers themselves; takes no reference.
    pub(crate) fn of_shape(
        hca: &Hca,
        shape: Shape,
        pas: &[u8],
        side: Side,
    ) -> Result<Self, Refusal> {
        let Shape { kind, pd, log_size, log_stride, log_page_size, page_offset, uses, .. } = shape;
        if log_size > 15 || !(4..=9).contains(&log_stride) {
            return Err(Status::BadParam.because(0x90_4012));
        }
        if side == Side::Send && (log_stride != 6 || kind != 1) {
            return Err(Status::BadParam.because(0x90_4013));
        }
        // A receive queue may have none (stock Linux's drop queue, which nothing is posted to):
        // domain 0 owns no key.
        let none = pd == 0 && side == Side::Receive;
        if !none && !hca.ids.pd.contains(pd) {
            return Err(Status::BadResource.because(0x90_4014));
        }
        let askew = Status::BadParam.because(0x90_4015);
        let dbr = umem::record(hca, uses.record, shape.dbr, 4, askew)?;
        let umem = uses.ring.map(|number| (number, shape.umem_offset));
        let place = Place { umem, list: pas, log_page_size, page_offset };
        let short = Status::BadInputLength.because(0x90_4016);
        let ring = place.ring(hca, 1 << (log_size + log_stride), umem::READ, short)?;
        Ok(Self { kind, pd, log_size, log_stride, dbr, uses, side, ring, producer: 0, head: 0 })
    }

    /// Entries.
    pub(crate) const fn size(&self) -> u32 {
        1 << self.log_size
    }

    /// Forgets everything posted.
    pub(crate) fn reset(&mut self) {
        self.producer = 0;
        self.head = 0;
    }

    /// Reads the doorbell record; says whether it is sane.
    pub(crate) fn refresh(&mut self, bus: &mut Bus) -> Result<(), String> {
        let at = match self.side {
            Side::Receive => self.dbr,
            // One driver passes the address of the second word itself, and cards take it.
            Side::Send => self.dbr | 4,
        };
        let Ok(word) = bus.read_be32(at) else {
            return Ok(());
        };
        let posted = (word as u16).wrapping_sub(self.head);
        if u32::from(posted) > self.size() {
            return Err(format!(
                "doorbell record {word:#x} runs {posted} ahead of {:#x}, the queue has {}",
                self.head,
                self.size()
            ));
        }
        self.producer = word as u16;
        Ok(())
    }

    /// Reads entry `index`, wrapping at the ring's end.
    pub(crate) fn read(&self, bus: &mut Bus, index: u16, out: &mut [u8]) -> Result<(), ()> {
        self.read_by(bus, buffer::read, index, out)
    }

    /// The same, by DMA or without the books.
    pub(crate) fn read_by(
        &self,
        bus: &mut Bus,
        reader: buffer::Reader,
        index: u16,
        out: &mut [u8],
    ) -> Result<(), ()> {
        let size = 1 << (self.log_size + self.log_stride);
        let at = u64::from(index) << self.log_stride;
        buffer::read_wrapping(bus, reader, &self.ring, (0, size), at, out).map_err(|_| ())
    }
}
