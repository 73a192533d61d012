//! Commands that are sent now and waited for later, so that several are on their way.

use dat_core::provider::Fault;
use heapless::Vec;

use crate::device::Device;
use crate::device::cmd::Flight;
use crate::device::cmd::mailbox::Tail;
use crate::platform::Platform;
use crate::prm::cmd::{HEAD, InputHead, Opcode, OutputHead};
use crate::prm::error::status;

/// Commands that are on their way at the same time.
pub(crate) const FLIGHTS: usize = 8;

/// A command on its way.
#[derive(Debug)]
pub(crate) struct Begun {
    op: Opcode,
    /// Pages that the firmware held before it.
    held: u32,
    flight: Flight,
}

impl<P: Platform> Device<'_, P> {
    /// Sends a command with a 16-byte answer, and does not wait for it. None if it has to wait for
    /// others: a slot and mailboxes are kept for what the firmware may ask for meanwhile.
    pub(crate) fn begin(
        &mut self,
        op: Opcode,
        number: u32,
        input: &mut [u8],
        tail: &dyn Tail,
    ) -> Result<Option<Begun>, Fault> {
        if !self.queue.has_room(input.len().saturating_add(tail.len())) {
            return Ok(None);
        }
        let held = self.pages.given();
        let flight = self.queue.send(op, 0, number, input, tail, &[0; HEAD])?;
        Ok(Some(Begun { op, held, flight }))
    }

    /// Waits for the answer to a command that was begun. Returns the number in it. None if the
    /// firmware refused it for want of pages that it has now: it is to be sent again.
    pub(crate) fn complete(&mut self, begun: &Begun) -> Option<Result<u32, Fault>> {
        let mut output = OutputHead::new();
        let result = self.await_answer(begun.op, &begun.flight, &mut output.0);
        let lacks = result.is_err_and(|fault| fault.status == status::NO_RESOURCES);
        let again = lacks && self.relieve(begun.op, begun.held);
        (!again).then(|| self.judge(begun.op, result).map(|()| output.number()))
    }

    /// Sends a command as [`Device::end`] does, and does not wait for it.
    pub(crate) fn begin_end(&mut self, op: Opcode, number: u32) -> Result<Option<Begun>, Fault> {
        let mut input = InputHead::new();
        input.set_number(number);
        self.begin(op, number, &mut input.0, &())
    }

    /// Waits for its answer; sends it if there was no room, or anew if it lacked pages.
    pub(crate) fn finish_end(
        &mut self,
        op: Opcode,
        number: u32,
        begun: Option<Begun>,
    ) -> Result<(), Fault> {
        match begun.and_then(|begun| self.complete(&begun)) {
            Some(answer) => answer.map(drop),
            None => self.end(op, number),
        }
    }

    /// As [`Device::end`], of several objects at the same time: those whose result is none yet.
    #[inline(never)]
    pub(crate) fn end_each(&mut self, op: Opcode, all: &mut [(u32, Option<Result<(), Fault>>)]) {
        for some in all.chunks_mut(FLIGHTS) {
            let mut flights = Vec::<_, FLIGHTS>::new();
            for (index, (number, ended)) in some.iter_mut().enumerate() {
                if ended.is_some() {
                    continue;
                }
                match self.begin_end(op, *number) {
                    Ok(flight) => drop(flights.push((index, flight))),
                    Err(fault) => *ended = Some(Err(fault)),
                }
            }
            for (index, flight) in &mut flights {
                if let Some((number, ended)) = some.get_mut(*index) {
                    *ended = Some(self.finish_end(op, *number, flight.take()));
                }
            }
        }
    }
}

/// The first few things, as many as go together. (`collect` panics where there are more.)
pub(crate) fn few<T>(all: impl Iterator<Item = T>) -> Vec<T, FLIGHTS> {
    let mut some = Vec::new();
    for one in all.take(FLIGHTS) {
        let _ = some.push(one);
    }
    some
}
