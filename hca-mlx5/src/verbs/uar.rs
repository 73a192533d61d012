//! Doorbell registers: which queue rings where.
//!
//! PRM "User access region (UAR)". BlueFlame writes whole blocks, so two threads on one register
//! would shuffle theirs: where blocks reach the pages whole and the device has BlueFlame,
//! each queue pair gets a register of its own, up to four of a page, and pages are taken
//! as needed and kept. Everywhere else, and when the pages run out, all queues share the first
//! register of the driver's own page: a doorbell of 8 bytes is one bus write and needs no more.

use dat_core::provider::Fault;
use heapless::Vec;

use crate::data::send::{Doorbell, UAR_DOORBELLS};
use crate::device::{Device, Uar};
use crate::platform::{Blocks, Platform};

/// Doorbell pages taken at most.
const PAGES: usize = 64;
/// Bytes of a page's register area.
const AREA: usize = 0x800;

/// A register that one queue pair has to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    page: u8,
    bit: u8,
}

#[derive(Debug)]
struct Page {
    uar: Uar,
    taken: u8,
}

/// The pages taken for BlueFlame.
#[derive(Debug, Default)]
pub(crate) struct Doorbells {
    pages: Vec<Page, PAGES>,
}

/// Bytes of a register to which whole requests are written; none if only doorbells are.
pub(crate) fn register_size<P: Platform>(device: &Device<'_, P>) -> Option<usize> {
    let caps = &device.caps().general;
    let size = 1_usize.checked_shl(caps.log_bf_reg_size().into())?;
    let whole = device.config.blocks != Blocks::Words && caps.bf();
    (whole && (128..=AREA).contains(&size)).then_some(size)
}

impl Doorbells {
    /// A place to ring for a new queue pair.
    pub(crate) fn take<P: Platform>(
        &mut self,
        device: &mut Device<'_, P>,
    ) -> Result<(Uar, Doorbell, Option<Register>), Fault> {
        let own = self.take_own(device)?;
        let uar = device.uar();
        let shared = Doorbell::shared(uar.offset, device.config.blocks);
        Ok(own.unwrap_or((uar, shared, None)))
    }

    fn take_own<P: Platform>(
        &mut self,
        device: &mut Device<'_, P>,
    ) -> Result<Option<(Uar, Doorbell, Option<Register>)>, Fault> {
        let Some(size) = register_size(device) else {
            return Ok(None);
        };
        let registers = u8::try_from(AREA / size).unwrap_or(u8::MAX).min(4);
        let full = (1_u8 << registers) - 1;
        if self.pages.iter().all(|page| page.taken == full) && !self.pages.is_full() {
            match device.alloc_uar() {
                Ok(uar) => drop(self.pages.push(Page { uar, taken: 0 })),
                // The device has no more of them.
                Err(fault) if fault.status != 0 => return Ok(None),
                Err(fault) => return Err(fault),
            }
        }
        let mut pages = self.pages.iter_mut().enumerate();
        let Some((index, page)) = pages.find(|(_, page)| page.taken != full) else {
            return Ok(None);
        };
        let bit = u8::try_from(page.taken.trailing_ones()).unwrap_or(0);
        page.taken |= 1 << bit;
        let register = page.uar.offset + UAR_DOORBELLS + size * usize::from(bit);
        let doorbell = Doorbell { register, half: size / 2, blocks: device.config.blocks };
        Ok(Some((
            page.uar,
            doorbell,
            Some(Register { page: u8::try_from(index).unwrap_or(u8::MAX), bit }),
        )))
    }

    /// Gives a register back.
    pub(crate) fn give(&mut self, register: Option<Register>) {
        if let Some(Register { page, bit }) = register {
            if let Some(page) = self.pages.get_mut(usize::from(page)) {
                page.taken &= !(1 << bit);
            }
        }
    }

    /// Gives all pages back.
    pub(crate) fn close<P: Platform>(&mut self, device: &mut Device<'_, P>) {
        while let Some(page) = self.pages.pop() {
            // A page that the device keeps ends with its teardown.
            let _ = device.dealloc_uar(page.uar);
        }
    }
}

#[cfg(test)]
mod tests;
