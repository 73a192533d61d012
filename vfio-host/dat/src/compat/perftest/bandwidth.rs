//! As many operations as fit are kept under way, on all connections, until all are done.

use std::time::Instant;

use dat_core::DtoOperation;
use dat_core::provider::Atomic;
use vfio_host::{Host, Nic};

use super::super::super::failure::Failure;
use super::super::super::out::{Out, progress};
use super::super::args::AtomicKind;
use super::super::link::{LinkEvent, Links};
use super::{Ran, Table, Verb};

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    posted: u64,
    done: u64,
}

/// What the words of the other side held before the first atomic, for each slot of a connection.
type Words = Vec<u64>;

impl<'p, H: Host> Table<'p, H> {
    /// A client's operations.
    pub(super) fn call(&mut self, nic: &mut Nic<'_, 'p, H>, out: Out) -> Result<Ran, Failure> {
        let plan = self.plan;
        let mut depth = u64::from(plan.depth);
        if plan.verb == Verb::Atomic {
            // What is compared with must be known.
            depth = depth.min(self.slots.count());
        }
        let mut state = vec![Progress::default(); plan.connections];
        let mut words: Vec<Words> = vec![Words::new(); plan.connections];
        let bar = progress(out, plan.all(), plan.test.program());
        let start = Instant::now();
        let mut left = plan.all();
        while left > 0 {
            for (link, (state, words)) in state.iter_mut().zip(&words).enumerate() {
                while state.posted < plan.iters && state.posted - state.done < depth {
                    self.post(nic, link, state.posted, words)?;
                    state.posted += 1;
                }
            }
            let Some(link) = self.completed(nic)? else {
                continue;
            };
            if let (Some(state), Some(words)) = (state.get_mut(link), words.get_mut(link)) {
                self.landed(link, state.done, words)?;
                state.done += 1;
                left -= 1;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(Ran {
            operations: Some(plan.all()),
            seconds: Some(start.elapsed().as_secs_f64()),
            latency: None,
        })
    }

    /// The connection whose oldest request has been done.
    pub(super) fn completed(&mut self, nic: &mut Nic<'_, 'p, H>) -> Result<Option<usize>, Failure> {
        match self.links.next_event(nic, "the end of an operation")? {
            LinkEvent::Done(link, dto) if dto.operation != DtoOperation::Receive => Ok(Some(link)),
            LinkEvent::Asked(cr) => {
                Links::refuse(nic, cr);
                Ok(None)
            }
            LinkEvent::Done(..) | LinkEvent::Up | LinkEvent::Over => Ok(None),
        }
    }

    /// Posts operation `number` of a connection.
    fn post(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        link: usize,
        number: u64,
        words: &Words,
    ) -> Result<(), Failure> {
        let far = self.far(link, number);
        match self.plan.verb {
            Verb::Send => {
                let piece = self.outward(link, number);
                self.links.send(nic, link, piece, number)
            }
            Verb::Write => {
                let piece = self.outward(link, number);
                self.links.write(nic, link, piece, &far)
            }
            Verb::Read => {
                let piece = self.near.local(self.inward(link, number), self.plan.size);
                self.links.read(nic, link, piece, &far)
            }
            Verb::Atomic => {
                let piece = self.near.local(self.inward(link, number), self.plan.size);
                let atomic = match self.plan.atomic {
                    AtomicKind::FetchAndAdd => Atomic::FetchAdd(1),
                    // The first finds out what is there and changes nothing; the others count on.
                    AtomicKind::CmpAndSwap => match self.expected(number, words) {
                        Some(compare) => Atomic::CmpSwap { compare, swap: compare.wrapping_add(1) },
                        None => Atomic::CmpSwap { compare: 0, swap: 0 },
                    },
                };
                self.links.atomic(nic, link, piece, &far, atomic)
            }
        }
    }

    /// What atomic `number` should find, once that is known.
    fn expected(&self, number: u64, words: &Words) -> Option<u64> {
        let first = words.get(self.slots.of(number)).copied()?;
        let round = number.checked_div(self.slots.count()).unwrap_or(0);
        let grown = match self.plan.atomic {
            AtomicKind::FetchAndAdd => round,
            AtomicKind::CmpAndSwap => round.saturating_sub(1),
        };
        Some(first.wrapping_add(grown))
    }

    /// Operation `number` is done: what it brought is verified.
    fn landed(&mut self, link: usize, number: u64, words: &mut Words) -> Result<(), Failure> {
        match self.plan.verb {
            Verb::Send | Verb::Write => Ok(()),
            Verb::Read => self.read(link, number),
            Verb::Atomic => {
                let mut word = [0; 8];
                self.near.load(self.inward(link, number), &mut word);
                let found = u64::from_ne_bytes(word);
                match self.expected(number, words) {
                    Some(wanted) if wanted != found => Err(Failure::new(format!(
                        "atomic {number} on connection {link} found {found:#x} instead of {wanted:#x}"
                    ))
                    .remedy("somebody else changes that memory, or one of the two adapters counts wrongly: try two of a kind")),
                    Some(_) => Ok(()),
                    None => {
                        words.push(found);
                        Ok(())
                    }
                }
            }
        }
    }

    /// What read `number` brought has to be what an earlier one brought from there.
    pub(super) fn read(&mut self, link: usize, number: u64) -> Result<(), Failure> {
        if !self.plan.verify {
            return Ok(());
        }
        let at = self.inward(link, number);
        let mut bytes = vec![0; self.plan.size];
        self.near.load(at, &mut bytes);
        // What does not come is not taken for what came last.
        self.near.store(at, &vec![!0; self.plan.size]);
        self.same(link, number, &bytes)
    }

    pub(super) fn same(&mut self, link: usize, number: u64, bytes: &[u8]) -> Result<(), Failure> {
        let slot = self.slots.of(number);
        let differs = self.seen.get_mut(link).and_then(|seen| seen.differs(slot, bytes));
        match differs {
            None => Ok(()),
            Some(at) => Err(Failure::new(format!(
                "operation {number} on connection {link} brought other contents than an earlier one, from byte {at} on"
            ))
            .remedy("-V wants a peer without -l and --flows; else one of the two adapters moved them wrongly: try two of a kind")),
        }
    }

    /// Posts all receives.
    pub(super) fn receive_all(&mut self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        let count = u64::from(self.plan.places).min(self.plan.iters);
        for link in 0..self.plan.connections {
            for number in 0..count {
                self.receive(nic, link, number)?;
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        link: usize,
        number: u64,
    ) -> Result<(), Failure> {
        let piece = self.open.local(self.inward(link, number), self.plan.size);
        self.links.recv(nic, link, piece, number)
    }

    /// Message `number` of a connection is there: verified, and its place free for another.
    pub(super) fn received(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        link: usize,
        number: u64,
        len: u32,
    ) -> Result<(), Failure> {
        let size = self.plan.size;
        if len as usize != size {
            return Err(Failure::new(format!(
                "{} sent {len} bytes instead of {size}",
                self.links.peer
            ))
            .remedy("give the same -s on both sides"));
        }
        if self.plan.verify {
            let at = self.inward(link, number);
            let mut bytes = vec![0; size];
            self.open.load(at, &mut bytes);
            self.same(link, number, &bytes)?;
            self.open.store(at, &vec![!0; size]);
        }
        let next = number + u64::from(self.plan.places);
        if next < self.plan.iters {
            self.receive(nic, link, next)?;
        }
        Ok(())
    }

    /// A server's messages.
    pub(super) fn count(&mut self, nic: &mut Nic<'_, 'p, H>, out: Out) -> Result<Ran, Failure> {
        let plan = self.plan;
        let mut received = vec![0; plan.connections];
        let bar = progress(out, plan.all(), plan.test.program());
        let mut left = plan.all();
        let mut start = None;
        while left > 0 {
            let (link, dto) = match self.links.next_event(nic, "the next message")? {
                LinkEvent::Done(link, dto) if dto.operation == DtoOperation::Receive => (link, dto),
                LinkEvent::Asked(cr) => {
                    Links::refuse(nic, cr);
                    continue;
                }
                LinkEvent::Done(..) | LinkEvent::Up | LinkEvent::Over => continue,
            };
            start.get_or_insert_with(Instant::now);
            let number = received.get(link).copied().unwrap_or(0);
            self.received(nic, link, number, dto.len)?;
            if let Some(received) = received.get_mut(link) {
                *received += 1;
            }
            left -= 1;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(Ran {
            operations: Some(plan.all()),
            seconds: start.map(|start| start.elapsed().as_secs_f64()),
            latency: None,
        })
    }
}
