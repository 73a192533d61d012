//! One operation at a time, each timed: to and fro by sends, which the client starts; to and fro by
//! writes that are polled for, which the server starts; or reads.

use std::time::Instant;

use dat_core::DtoOperation;
use hca_mlx5::platform::Fence;
use vfio_host::{Host, Nic};

use super::super::super::failure::Failure;
use super::super::super::out::{Out, progress};
use super::super::super::traffic::histogram::Histogram;
use super::super::ends::interrupted;
use super::super::link::{LinkEvent, Links};
use super::{Ran, SENDS, Table};

/// Looks at memory between two looks at everything else.
const LOOKS: u32 = 256;

impl<'p, H: Host> Table<'p, H> {
    fn ran(&self, start: Instant, times: &Histogram) -> Ran {
        Ran {
            operations: Some(self.plan.iters),
            seconds: Some(start.elapsed().as_secs_f64()),
            latency: times.latency(),
        }
    }

    /// Sends, each the answer to one.
    pub(super) fn send_in_turn(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        out: Out,
    ) -> Result<Ran, Failure> {
        let plan = self.plan;
        let bar = progress(out, plan.iters, plan.test.program());
        let mut times = Histogram::new();
        let (mut sent, mut done, mut received) = (0, 0, 0);
        // The client starts; the side that receives sends next.
        let mut pending = u64::from(plan.client);
        let start = Instant::now();
        let mut last = start;
        loop {
            // A send that nobody acknowledged yet keeps its place.
            while pending > 0 && sent < plan.iters && sent - done < u64::from(SENDS) {
                last = Instant::now();
                self.links.send(nic, 0, self.outward(0, sent), sent)?;
                sent += 1;
                pending -= 1;
            }
            if sent == plan.iters && done == plan.iters && received == plan.iters {
                break;
            }
            match self.links.next_event(nic, "the next message")? {
                LinkEvent::Done(link, dto) if dto.operation == DtoOperation::Receive => {
                    if plan.client {
                        times.add(last.elapsed() / 2);
                    }
                    self.received(nic, link, received, dto.len)?;
                    received += 1;
                    pending += 1;
                    bar.inc(1);
                }
                LinkEvent::Done(..) => done += 1,
                LinkEvent::Asked(cr) => Links::refuse(nic, cr),
                LinkEvent::Up | LinkEvent::Over => {}
            }
        }
        bar.finish_and_clear();
        Ok(self.ran(start, &times))
    }

    /// Writes, each the answer to one. The last byte of each counts; whoever waits looks at it.
    /// Here the server starts.
    pub(super) fn write_in_turn(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        out: Out,
    ) -> Result<Ran, Failure> {
        let plan = self.plan;
        let bar = progress(out, plan.iters, plan.test.program());
        let mut times = Histogram::new();
        let start = Instant::now();
        let mut last = None;
        for number in 1..=plan.iters {
            // Of the number, as much as a byte has.
            let [.., count] = number.to_be_bytes();
            if plan.client {
                self.until_written(nic, count, last, &mut times)?;
            }
            last = Some(Instant::now());
            self.near.store(plan.size - 1, &[count]);
            let (piece, far) = (self.outward(0, 0), self.far(0, 0));
            self.links.write(nic, 0, piece, &far)?;
            while self.completed(nic)?.is_none() {}
            if !plan.client {
                self.until_written(nic, count, last, &mut times)?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(self.ran(start, &times))
    }

    /// Waits for the write with this count, and times it from this side's last.
    fn until_written(
        &mut self,
        nic: &mut Nic<'_, 'p, H>,
        count: u8,
        last: Option<Instant>,
        times: &mut Histogram,
    ) -> Result<(), Failure> {
        let limit = self.links.timeout;
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                let mut byte = [0];
                self.open.load(self.plan.size - 1, &mut byte);
                if byte == [count] {
                    nic.host().fence(Fence::AfterOwnership);
                    if let Some(last) = last {
                        times.add(last.elapsed() / 2);
                    }
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            interrupted("the peer's next write")?;
            self.links.watch(nic)?;
            if start.elapsed() > limit {
                return Err(Failure::new(format!(
                    "{}'s next write did not come within {} s",
                    self.links.peer,
                    limit.as_secs_f64()
                ))
                .remedy(format!(
                    "give the same -n and -s on both sides; is it {}? --timeout gives it more time",
                    self.plan.test.program()
                )));
            }
            std::thread::yield_now();
        }
    }

    /// Whether the memory that was polled is as it should be: zeros up to the counter, and nothing
    /// behind it.
    pub(super) fn polled(&self) -> Result<(), Failure> {
        if !self.plan.verify {
            return Ok(());
        }
        let mut now = vec![0; self.before.len()];
        self.open.load(0, &mut now);
        let end = self.plan.size - 1;
        let wrong = now.iter().zip(&self.before).enumerate().position(|(at, (now, before))| {
            if at < end { *now != 0 } else { at > end && now != before }
        });
        match wrong {
            None => Ok(()),
            Some(at) => Err(self.misplaced(0, at)),
        }
    }

    /// Reads, one after the other.
    pub(super) fn read_each(&mut self, nic: &mut Nic<'_, 'p, H>, out: Out) -> Result<Ran, Failure> {
        let plan = self.plan;
        let bar = progress(out, plan.iters, plan.test.program());
        let mut times = Histogram::new();
        let start = Instant::now();
        for number in 0..plan.iters {
            let begun = Instant::now();
            let piece = self.near.local(self.inward(0, number), plan.size);
            let far = self.far(0, number);
            self.links.read(nic, 0, piece, &far)?;
            while self.completed(nic)?.is_none() {}
            times.add(begun.elapsed());
            self.read(0, number)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(self.ran(start, &times))
    }
}
