//! The demo on real hosts, and the least that can be done with a device.

use std::time::Instant as Wall;

use anyhow::{Result, anyhow};
use dat_core::CloseFlag;
use hca_mlx5::Config;
use vfio_host::{Host, Nic, NicStorage};

use super::hosts::{Part, two};
use super::sides::{Sides, net, rooms};
use crate::demo::{self, Options, Report, Run};

/// The acts of the demo.
pub(super) struct Demo {
    pub(super) options: Options,
}

/// Runs the acts and prints their table.
pub(super) fn demo<H: Host>(hosts: &mut [H; 2], options: &Options) -> Result<Report> {
    let start = Wall::now();
    let mut rooms = rooms();
    let env = Sides::open(hosts, &mut rooms)?;
    let up = start.elapsed();
    let mut run = Run { env, options, report: Report::default(), depth: demo::depth(options.size) };
    demo::all(&mut run)?;
    let sleeps = run.env.sleeps;
    let report = run.finish()?;
    print!("{report}");
    println!(
        "@@demo up in {:.2} s, {} acts, all contents verified, {sleeps} sleeps",
        up.as_secs_f64(),
        report.rows.len()
    );
    Ok(report)
}

impl Part for Demo {
    fn run<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        demo(two(hosts)?, &self.options).map(drop)
    }
}

/// Brings devices up and closes them.
pub(super) struct Open;

impl Part for Open {
    fn run<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        for host in hosts {
            let mut room = Box::new(NicStorage::new());
            let mut nic = Nic::open(host, room.parts(), net(0), &Config::default())
                .map_err(|error| anyhow!("{error}"))?;
            println!("@@open {}", nic.host().name());
            nic.close(CloseFlag::Graceful).map_err(|error| anyhow!("close: {error}"))?;
        }
        Ok(())
    }
}
