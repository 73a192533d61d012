//! A function reset in the midst of traffic: everything posted comes back, and the device can be
//! used again.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::Parser;
use dat_core::{CloseFlag, DtoEvent, DtoStatus, Event};
use vfio_host::Host;

use super::hosts::{Part, two};
use super::parts::demo;
use super::sides::{Sides, rooms};
use crate::demo::table::{NONE, Table, local, remote};
use crate::demo::{Environment, Options, Report, Run, depth};

/// Requests under way when it happens.
const LOAD: u64 = 48;
/// Within which everything that was posted has come back.
const LIMIT: Duration = Duration::from_secs(20);

/// The reset, and the demo after it.
pub(super) struct Flr;

impl Part for Flr {
    fn run<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        let hosts = two(hosts)?;
        let options = Options::try_parse_from(["demo", "--json", "--count", "8"])?;
        let (good, flushed, end) = struck(hosts, &options)?;
        for host in hosts.iter_mut() {
            host.renew().map_err(|error| anyhow!("renew: {error}"))?;
        }
        demo(hosts, &options)?;
        println!(
            "@@flr {good} of {LOAD} writes done, {flushed} flushed, {end}; then the demo again"
        );
        Ok(())
    }
}

/// Traffic, and a reset within. How many requests succeeded, how many were flushed, and how the
/// Endpoint ended.
fn struck<H: Host>(hosts: &[H; 2], options: &Options) -> Result<(u64, u64, &'static str)> {
    let mut rooms = rooms();
    let mut run = Run {
        env: Sides::open(hosts, &mut rooms)?,
        options,
        report: Report::default(),
        depth: depth(options.size),
    };
    let table = Table::set(&mut run)?;
    table.connect(&mut run)?;
    let [a, b] = &table.sides;
    let size = options.size;
    for n in 0..LOAD {
        let at = (n as usize % run.depth) * size;
        run.env
            .ia(0)
            .ep_post_rdma_write(
                a.ep,
                &local(&a.bulk_lmr, at, size),
                n,
                &remote(&b.bulk_lmr, at, size),
                NONE,
            )
            .map_err(|error| anyhow!("post_rdma_write {n}: {error}"))?;
        if n == LOAD / 2 {
            hosts[0].reset().map_err(|error| anyhow!("reset: {error}"))?;
        }
    }
    let (mut good, mut flushed, mut end) = (0, 0, None);
    while good + flushed < LOAD || end.is_none() {
        let (_, event) = run.env.first(&[(0, a.dto), (0, a.conn)], LIMIT)?.ok_or_else(|| {
            anyhow!("{good} writes done, {flushed} flushed, end {end:?}, and then nothing")
        })?;
        match event {
            Event::Dto(DtoEvent { cookie, status, .. }) => {
                ensure!(cookie == good + flushed, "request {cookie} came back out of order");
                match status {
                    DtoStatus::Success if flushed == 0 => good += 1,
                    DtoStatus::Success => anyhow::bail!("success behind a failure"),
                    _ => flushed += 1,
                }
            }
            Event::Broken(_) => end = Some("connection broken"),
            Event::Disconnected(_) => end = Some("disconnected"),
            other => anyhow::bail!("{other:?} after the reset"),
        }
    }
    ensure!(flushed > 0, "the reset struck nothing");
    let mut said = Vec::new();
    for side in 0..2 {
        let now = run.env.now();
        // A driver whose device was taken from under it says so.
        if let Err(error) = run.env.ia(side).close(now, CloseFlag::Abrupt) {
            said.push(format!("side {side}: {error}"));
        }
    }
    for own in table.sides {
        own.small.release();
        own.bulk.release();
    }
    // Its host keeps the driver from the registers after a reset, so they read as all ones; a
    // driver whose device was reset behind its host's back finds that its queues are not known
    // any more.
    let lost = ["reads as all ones", "has been reset"];
    ensure!(
        said.len() == 1 && lost.iter().any(|words| said[0].contains(words)),
        "the driver says of the reset: {said:?}"
    );
    Ok((good, flushed, end.unwrap_or_default()))
}
