//! The demo on real hosts, and the least that can be done with a device.

use std::time::Instant as Wall;

use anyhow::{Result, anyhow};
use dat_core::CloseFlag;
use hca_mlx5::Config;
use vfio_host::{Host, Nic, NicStorage};

use super::ground::{Sides, net, rooms};
use super::hosts::{Part, two};
use crate::demo::{self, Options, Play, Report};

/// The acts of the demo.
pub(super) struct Demo {
    pub(super) options: Options,
}

/// Plays the acts and prints their table.
pub(super) fn demo<H: Host>(hosts: &mut [H; 2], options: &Options) -> Result<Report> {
    let start = Wall::now();
    let mut rooms = rooms();
    let ground = Sides::open(hosts, &mut rooms)?;
    let up = start.elapsed();
    let mut play =
        Play { ground, options, report: Report::default(), depth: demo::depth(options.size) };
    demo::all(&mut play)?;
    let sleeps = play.ground.sleeps;
    let report = play.finish()?;
    print!("{report}");
    println!(
        "@@demo up in {:.2} s, {} acts, all contents verified, {sleeps} sleeps",
        up.as_secs_f64(),
        report.rows.len()
    );
    Ok(report)
}

impl Part for Demo {
    fn play<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        demo(two(hosts)?, &self.options).map(drop)
    }
}

/// Brings devices up and closes them.
pub(super) struct Open;

impl Part for Open {
    fn play<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        for host in hosts {
            let mut room = Box::new(NicStorage::new());
            let nic = Nic::open(host, room.parts(), net(0), &Config::default())
                .map_err(|error| anyhow!("{error}"))?;
            println!("@@open {}", nic.host().name());
            nic.close(CloseFlag::Graceful).map_err(|error| anyhow!("close: {error}"))?;
        }
        Ok(())
    }
}
