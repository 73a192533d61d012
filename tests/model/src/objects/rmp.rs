//! Shared receive queues: receive memory pools, and XRC SRQs as far as stock drivers create one.
//!
//! A linked-list pool begins each entry with a next segment; software links free entries and counts
//! them in the doorbell record, the device follows the links. The limit event fires once per
//! ARM_RQ. No XRC transport exists, so an XRC SRQ is a number with references and nothing more.

use super::wq::{Side, Wq};
use super::wqe;
use crate::bus::Bus;
use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::ifc::cmd::{head_in, head_out};
use crate::ifc::wq::{rmp_in, rmpc};
use crate::transport::host::{RecvWqe, Syndrome};

/// One shared receive queue.
#[derive(Debug)]
pub(crate) struct Rmp {
    wq: Option<Wq>,
    /// Slot of the next entry of a linked list.
    next: u16,
    /// Low water mark; 0 when not armed.
    limit: u16,
}

/// CREATE_RMP.
pub(crate) fn create(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let context = rmp_in::rmpc.bytes(input);
    if rmpc::state.get(context) != 1 {
        return Err(Status::BadParam.because(0x90_c001));
    }
    let wq = Wq::new(
        hca,
        rmpc::wq.bytes(context),
        rmp_in::pas.tail(input),
        Side::Receive,
    )?;
    let number = hca.objects.srq_numbers.take()?;
    hca.ids.pd.hold(wq.pd)?;
    hca.objects.rmps.insert(
        number,
        Rmp {
            wq: Some(wq),
            next: 0,
            limit: 0,
        },
    );
    head_out::number.set(output, number);
    Ok(())
}

/// CREATE_XRC_SRQ.
pub(crate) fn create_xrc(hca: &mut Hca, _input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = hca.objects.srq_numbers.take()?;
    hca.objects.rmps.insert(
        number,
        Rmp {
            wq: None,
            next: 0,
            limit: 0,
        },
    );
    head_out::number.set(output, number);
    Ok(())
}

/// DESTROY_RMP, DESTROY_XRC_SRQ: refused while a QP uses it.
pub(crate) fn destroy(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = head_in::number.get(input) & 0xff_ffff;
    hca.objects.srq_numbers.free(number)?;
    if let Some(Rmp { wq: Some(wq), .. }) = hca.objects.rmps.remove(&number) {
        hca.ids.pd.release(wq.pd);
    }
    Ok(())
}

/// ARM_RQ with op_mod 1: arms the limit event of a shared queue.
pub(crate) fn arm(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let number = head_in::number.get(input) & 0xff_ffff;
    let limit = head_in::word_c.get(input) as u16;
    let rmp = hca
        .objects
        .rmps
        .get_mut(&number)
        .ok_or(Status::BadResource.because(0x70_3001))?;
    rmp.limit = limit;
    Ok(())
}

/// A receive, or the slot of one that cannot be read.
type Taken = Result<RecvWqe, (u16, Syndrome)>;

impl Rmp {
    /// Takes the next receive; the flag says that the limit event is due.
    pub(crate) fn take(&mut self, bus: &mut Bus) -> (Option<Taken>, bool) {
        let Some(wq) = &mut self.wq else {
            return (None, false);
        };
        if wq.head == wq.producer
            && let Err(complaint) = wq.refresh(bus)
        {
            bus.complain(format!("shared receive queue: {complaint}"));
            return (None, false);
        }
        if wq.head == wq.producer {
            return (None, false);
        }
        let linked = wq.kind == 0;
        let slot = if linked {
            self.next
        } else {
            wq.head & (wq.size() - 1) as u16
        };
        let mut entry = vec![0; 1 << wq.log_stride];
        let taken = match wq.read(bus, slot, 0, &mut entry) {
            Err(()) => Err((slot, Syndrome::LocalProtection)),
            Ok(()) if linked => {
                self.next = u16::from_be_bytes([entry[2], entry[3]]) & (wq.size() - 1) as u16;
                Ok(wqe::parse_recv(slot, entry.get(16..).unwrap_or(&[])))
            }
            Ok(()) => Ok(wqe::parse_recv(slot, &entry)),
        };
        wq.head = wq.head.wrapping_add(1);
        let left = wq.producer.wrapping_sub(wq.head);
        let due = self.limit != 0 && left < self.limit;
        if due {
            self.limit = 0;
        }
        (Some(taken), due)
    }
}
