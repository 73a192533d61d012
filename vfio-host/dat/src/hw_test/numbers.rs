//! Step 11: what only a card can say: latency and rate of operations, and of doorbells.

use std::time::{Duration, Instant};

use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::super::traffic::adapter::next;
use super::Run;
use super::events::percentiles;
use super::pair::{PLAIN, Pair, ending};
use super::queue_pair::{Op, link, moves, with};
use super::report::{Finding, fail, micros};
use super::watch::Mode;

/// Rounds of a latency.
const ROUNDS: usize = 300;
/// How long a rate is measured.
const SPAN: Duration = Duration::from_millis(500);
/// Requests in flight.
const DEPTH: u64 = 32;

pub(super) fn run<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, run: &Run<'_>) -> Result<(), Failure> {
    link(nic, run, 11)?;
    run.watch.set(Mode::Off);
    for (op, name) in [(Op::Send, "send"), (Op::Write, "write"), (Op::Read, "read")] {
        run.report.check(11, &format!("latency.{name}"), || {
            with(nic, run, |nic, pair| {
                let mut times = Vec::with_capacity(ROUNDS);
                for number in 0..ROUNDS {
                    let start = Instant::now();
                    moves(nic, pair, op, 64, number)?;
                    times.push(micros(start));
                }
                Ok(percentiles(
                    run.report,
                    &format!("{name} of 64 bytes, by interrupt"),
                    &mut times,
                ))
            })
        })?;
    }
    for len in [8, 1 << 16] {
        run.report.check(11, &format!("rate.write.{len}"), || {
            with(nic, run, |nic, pair| rate(nic, run, pair, len))
        })?;
    }
    run.report.check(11, "doorbell", || {
        with(nic, run, |nic, pair| {
            let start = Instant::now();
            for cookie in 0..DEPTH {
                let far = pair.far(0x8000, 8);
                nic.ep_post_rdma_write(pair.eps[0], &[pair.local(0, 8)], cookie, &far, PLAIN)?;
            }
            let each = micros(start) / DEPTH as f64;
            for _ in 0..DEPTH {
                pair.done(nic, 0)?;
            }
            run.report.number("post with doorbell", each, "us");
            Ok(format!("{each:.2} us for a post with its doorbell"))
        })
    })?;
    Ok(())
}

/// Writes with many in flight, polled for.
fn rate<'p, H: Host>(
    nic: &mut Nic<'_, 'p, H>,
    run: &Run<'_>,
    pair: &Pair<'p, H>,
    len: usize,
) -> Finding {
    let (start, mut posted, mut done) = (Instant::now(), 0_u64, 0_u64);
    let far = pair.far(1 << 20, len);
    while start.elapsed() < SPAN || done < posted {
        while posted < done + DEPTH && start.elapsed() < SPAN {
            nic.ep_post_rdma_write(pair.eps[0], &[pair.local(0, len)], posted, &far, PLAIN)?;
            posted += 1;
        }
        match next(nic, pair.evds[0], Duration::from_secs(5), true)?.as_ref().and_then(ending) {
            Some((dat_core::DtoStatus::Success, _)) => done += 1,
            other => return fail(format!("{other:?} after {done} writes")),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let (each, bytes) = (done as f64 / seconds, (done as f64 * len as f64) / seconds / 1e6);
    run.report.number(&format!("writes of {len} bytes"), each.round(), "1/s");
    run.report.number(&format!("bandwidth of {len} bytes"), bytes.round(), "MB/s");
    Ok(format!("{each:.0}/s, {bytes:.0} MB/s"))
}
