//! Pages for the firmware: giving what it asks for, taking back what it no longer needs.
//!
//! PRM chapter "Memory". The firmware keeps its tables in 4 KiB pages of host memory, tens of MiB
//! of them on a real card. It says how many before the capabilities are read, before INIT_HCA and,
//! by events, while running. They come from the platform's reserve, never from the arena; this
//! driver keeps their number and not their addresses.
//!
//! A page given stays the device's until it is taken back by command or the function is reset. A
//! card may answer a take with fewer pages than asked, or none, for a while: that means "not yet".

pub(crate) mod ledger;

#[cfg(test)]
mod tests;

use core::time::Duration;

use dat_core::Instant;
use dat_core::fault;
use dat_core::provider::{Fault, FaultKind};

use crate::device::eq::PageRequest;
use crate::device::{Device, health};
use crate::platform::Platform;
use crate::prm;
use crate::prm::cmd::{InputHead, Opcode};
use crate::prm::object;
use crate::prm::pages::{ManagePagesIn, ManagePagesOut, Need, PageOp, QueryPagesOut};

/// Pages of one MANAGE_PAGES command: what the eight mailboxes of a capability block also carry. A
/// card takes a large request in several commands.
pub(crate) const BATCH: usize = 512;

/// A take is given up after so long without a single page, and [`EMPTY_ANSWERS`].
const NO_PROGRESS: Duration = Duration::from_secs(5);
/// However many come, the take of a teardown ends after so long, and [`NO_PROGRESS`] more for each
/// batch: a firmware that lets go of one page at a time must not hold the caller for hours.
const WHOLE_TAKE: Duration = Duration::from_secs(120);
/// Empty answers in a row before a take is given up for want of progress: one command of real
/// firmware may take seconds by itself, so that time alone would stop a firmware that is only slow.
const EMPTY_ANSWERS: u32 = 8;

/// Bytes of a MANAGE_PAGES message of a whole batch.
const MESSAGE: usize = ManagePagesIn::SIZE + 8 * BATCH;

impl<P: Platform> Device<'_, P> {
    /// Asks what the firmware needs now and gives it.
    pub(crate) fn satisfy(&mut self, need: Need) -> Result<(), Fault> {
        let mut output = QueryPagesOut::new();
        let mut input = self.own_function();
        self.exec(Opcode::QueryPages, need as u16, 0, &mut input.0, &mut output.0)?;
        // The reply names the function as the firmware sees it, which on a VF is not 0.
        self.pages.function_id = output.function_id();
        // Negative means that it has pages to spare; they come back at teardown.
        match u32::try_from(0_i32.wrapping_add_unsigned(output.num_pages())) {
            Ok(count @ 1..) => self.give_pages(count),
            Ok(0) | Err(_) => Ok(()),
        }
    }

    /// Answers a page request event. On a failure the firmware is notified that it gets no pages.
    /// Pages that it has not given back at `end` stay with it until the teardown.
    pub(crate) fn answer(&mut self, request: PageRequest, end: Instant) -> Result<(), Fault> {
        let own = request.function_id == self.pages.function_id
            && request.embedded_cpu == self.pages.embedded_cpu;
        match u32::try_from(request.count) {
            // Pages of another function would have to come back by that function's number: nobody
            // here knows it.
            Ok(_) if !own => self.cannot_give(request.function_id, request.embedded_cpu),
            Ok(0) => Ok(()),
            Ok(count) => self.give_pages(count),
            Err(_) if !own => Ok(()),
            // No more than it was given, whatever it says.
            Err(_) => self.take_pages(request.count.unsigned_abs().min(self.pages.given), end),
        }
    }

    /// Gives `count` pages, or says that it cannot: the firmware waits for the one or the other,
    /// also where it has refused the pages that it asked for (FreeBSD `mlx5_give_pages`).
    fn give_pages(&mut self, count: u32) -> Result<(), Fault> {
        let given = self.give(count);
        // Not if a command went without an answer.
        if given.is_err_and(|fault| fault.status != 0 || fault.kind == FaultKind::Resources) {
            self.cannot_give(self.pages.function_id, self.pages.embedded_cpu)?;
        }
        given
    }

    /// Gives `count` pages, a batch at a time.
    fn give(&mut self, count: u32) -> Result<(), Fault> {
        let short =
            |fault: Fault| fault.of(object::PAGES, count).during(Opcode::ManagePages.name());
        if self.pages.given.checked_add(count).is_none_or(|total| total > self.pages.budget) {
            return Err(short(fault!(
                Resources,
                "",
                "the firmware asks for more pages than the budget allows",
                "raise the page budget, or lower log_max_qp so that the firmware needs less",
            )));
        }
        let mut left = count;
        while left > 0 {
            let mut addresses = [0u64; BATCH];
            let want = BATCH.min(left as usize);
            let wanted = addresses.get_mut(..want).unwrap_or(&mut []);
            let got = self.platform.pages_take(wanted).min(want);
            let batch = wanted.get(..got).unwrap_or(&[]);
            // The firmware cannot use a page at address 0; a platform that hands one out is short
            // of it.
            if got < want || batch.contains(&0) {
                self.platform.pages_return(batch);
                return Err(short(fault!(
                    Resources,
                    "",
                    "the platform's firmware reserve is used up",
                    "enlarge the firmware reserve",
                )));
            }
            if let Err(fault) = self.give_batch(batch) {
                // Refused: they are still ours. Without an answer they may be the device's.
                if fault.status != 0 {
                    self.platform.pages_return(batch);
                }
                return Err(fault);
            }
            let got = u32::try_from(got).unwrap_or(0);
            self.pages.given += got;
            left -= got;
        }
        Ok(())
    }

    fn give_batch(&mut self, batch: &[u64]) -> Result<(), Fault> {
        let mut input = [0; MESSAGE];
        self.page_head(batch.len()).write(&mut input, 0);
        for (at, address) in (ManagePagesIn::SIZE..).step_by(8).zip(batch) {
            prm::put(&mut input, at, &address.to_be_bytes());
        }
        let used = input.get_mut(..ManagePagesIn::SIZE + 8 * batch.len()).unwrap_or(&mut []);
        let mut output = ManagePagesOut::new();
        self.exec(Opcode::ManagePages, PageOp::Give as u16, 0, used, &mut output.0)
    }

    /// Tells the firmware not to wait.
    fn cannot_give(&mut self, function_id: u16, embedded_cpu: bool) -> Result<(), Fault> {
        let mut input = ManagePagesIn::new();
        input.set_function_id(function_id);
        input.set_embedded_cpu_function(embedded_cpu);
        let mut output = ManagePagesOut::new();
        self.exec(Opcode::ManagePages, PageOp::CannotGive as u16, 0, &mut input.0, &mut output.0)
    }

    /// Takes back all that was given.
    pub(crate) fn take_all_pages(&mut self) -> Result<(), Fault> {
        let given = self.pages.given;
        let batches = given / u32::try_from(BATCH).unwrap_or(1);
        let end = health::clock(self.platform) + WHOLE_TAKE + NO_PROGRESS * batches;
        self.take_pages(given, end)
    }

    /// Takes `count` pages back, waiting as long as some come, and no longer than to `end`.
    fn take_pages(&mut self, count: u32, end: Instant) -> Result<(), Fault> {
        let platform = self.platform;
        let mut left = count;
        let mut deadline = health::clock(platform) + NO_PROGRESS;
        let mut empty = 0;
        while left > 0 {
            let want = BATCH.min(left as usize);
            let mut input = self.page_head(want);
            let mut output = [0; MESSAGE];
            let used = output.get_mut(..ManagePagesOut::SIZE + 8 * want).unwrap_or(&mut []);
            self.exec(Opcode::ManagePages, PageOp::Take as u16, 0, &mut input.0, used)?;
            // The device says how many; no more than there was room for.
            let said = ManagePagesOut(&output).output_num_entries() as usize;
            let got = said.min(want);
            let mut known = 0;
            for at in (ManagePagesOut::SIZE..).step_by(8).take(got) {
                known +=
                    platform.pages_return(&[u64::from_be_bytes(prm::take(&output, at))]).min(1);
            }
            self.pages.given =
                self.pages.given.saturating_sub(u32::try_from(known).unwrap_or(u32::MAX));
            left = left.saturating_sub(u32::try_from(got).unwrap_or(u32::MAX));
            if known < got || said > want {
                return Err(fault!(
                    Nonsense,
                    "",
                    "the device gives back pages it never had",
                    "reset the device before its memory is used again"
                )
                .of(object::PAGES, u32::try_from(said).unwrap_or(u32::MAX))
                .during(Opcode::ManagePages.name()));
            }
            let now = health::clock(platform);
            if got > 0 {
                deadline = now + NO_PROGRESS;
                empty = 0;
            } else {
                empty += 1;
            }
            let stuck = now >= deadline && empty >= EMPTY_ANSWERS;
            if left > 0 && (stuck || now >= end) {
                return Err(fault!(
                    Timeout,
                    "",
                    "the firmware keeps pages it was asked to give back",
                    "an object still uses them; destroy all before closing, or reset the device"
                )
                .of(object::PAGES, left)
                .during(Opcode::ManagePages.name()));
            }
            if got == 0 {
                platform.relax();
            }
        }
        Ok(())
    }

    /// The head of a command about this function itself.
    fn own_function(&self) -> InputHead<[u8; 16]> {
        let mut input = InputHead::new();
        input.set_embedded_cpu_function(self.pages.embedded_cpu);
        input
    }

    /// ENABLE_HCA or DISABLE_HCA.
    pub(crate) fn run_switch(&mut self, op: Opcode) -> Result<(), Fault> {
        self.run(op, 0, &mut self.own_function().0)
    }

    fn page_head(&self, count: usize) -> ManagePagesIn<[u8; 16]> {
        let mut head = ManagePagesIn::new();
        head.set_function_id(self.pages.function_id);
        head.set_embedded_cpu_function(self.pages.embedded_cpu);
        head.set_input_num_entries(u32::try_from(count).unwrap_or(0));
        head
    }
}
