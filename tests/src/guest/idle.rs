//! Interrupts: a waiter sleeps, and an eventfd ends the sleep.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::Parser;
use dat_core::{DtoEvent, DtoStatus, Event};
use rustix::time::{ClockId, clock_gettime};
use vfio_host::Host;

use super::hosts::{Part, two};
use super::sides::{Sides, rooms};
use crate::demo::table::{NONE, Table, local, remote};
use crate::demo::{self, Environment, Options, Report, Run};

/// How long is waited for nothing.
const NOTHING: Duration = Duration::from_secs(2);
/// CPU time that this may cost: timers of the adapters, under emulation.
const COST: Duration = Duration::from_millis(200);
/// Requests one by one, each with its own sleep.
const REQUESTS: u64 = 32;
/// Sleeps of one request at the most: its interrupt, and what else the two adapters have to do
/// meanwhile.
const SLEEPS: u64 = 6;

/// Waits.
pub(super) struct Idle;

/// CPU time of this process.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Interrupts that side 0 has taken.
fn interrupts<H: Host>(sides: &Sides<'_, '_, H>) -> u64 {
    let wakeups = sides.nics[0].host().wakeups();
    (0..usize::from(sides.nics[0].host().vectors())).map(|vector| wakeups.interrupts(vector)).sum()
}

impl Part for Idle {
    fn run<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        let options = Options::try_parse_from(["demo", "--json"])?;
        let mut rooms = rooms();
        let mut run = Run {
            env: Sides::open(two(hosts)?, &mut rooms)?,
            options: &options,
            report: Report::default(),
            depth: demo::depth(options.size),
        };
        let table = Table::set(&mut run)?;
        table.connect(&mut run)?;
        let [a, b] = &table.sides;
        let dto = a.dto;
        // Long enough that the waiter is asleep when it is done.
        let size = options.size * run.depth;

        let before = (spent(), run.env.sleeps);
        let nothing = run.env.first(&[(0, dto)], NOTHING)?;
        let (cost, sleeps) = (spent() - before.0, run.env.sleeps - before.1);
        ensure!(nothing.is_none(), "an event nobody caused: {nothing:?}");
        ensure!(
            cost < COST,
            "waiting {NOTHING:?} for nothing took {cost:?} of CPU time in {sleeps} sleeps: somebody polls"
        );

        let before = (interrupts(&run.env), run.env.sleeps);
        for n in 0..REQUESTS {
            let (from, to) = (local(&a.bulk_lmr, 0, size), remote(&b.bulk_lmr, 0, size));
            run.env
                .ia(0)
                .ep_post_rdma_write(a.ep, &from, n, &to, NONE)
                .map_err(|error| anyhow!("post_rdma_write {n}: {error}"))?;
            let (_, event) = run
                .env
                .first(&[(0, dto)], Duration::from_secs(5))?
                .ok_or_else(|| anyhow!("request {n} did not complete"))?;
            ensure!(
                matches!(event, Event::Dto(DtoEvent { cookie, status: DtoStatus::Success, .. }) if cookie == n),
                "request {n} ended as {event:?}"
            );
        }
        let (raised, slept) = (interrupts(&run.env) - before.0, run.env.sleeps - before.1);
        ensure!(raised >= REQUESTS / 2, "{REQUESTS} requests raised {raised} interrupts");
        ensure!(
            slept <= SLEEPS * REQUESTS,
            "{REQUESTS} requests took {slept} sleeps: somebody polls"
        );
        table.free(&mut run)?;
        run.finish()?;
        println!(
            "@@idle {NOTHING:?} of waiting took {} ms of CPU; {REQUESTS} requests, {raised} interrupts, {slept} sleeps",
            cost.as_millis()
        );
        Ok(())
    }
}
