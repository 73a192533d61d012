//! Traffic until something goes wrong: the message that a user gets, and how soon.

use std::fmt::Write;
use std::time::{Duration, Instant as Wall};

use anyhow::{Result, bail};
use clap::Parser;
use dat_core::{DtoEvent, DtoStatus, Event};
use vfio_host::Host;

use super::hosts::{Part, two};
use super::sides::{Sides, rooms};
use crate::demo::table::{NONE, Table, local, remote};
use crate::demo::{Environment, Options, Report, Run, depth};

/// Time limit for the trouble to come.
const LONGEST: Duration = Duration::from_secs(120);
/// A completion takes less.
const LIMIT: Duration = Duration::from_secs(20);

/// Writes until something goes wrong.
pub(super) struct Trouble;

impl Part for Trouble {
    fn run<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        let hosts = two(hosts)?;
        let options = Options::try_parse_from(["demo", "--json"])?;
        let mut rooms = rooms();
        let mut run = Run {
            env: Sides::open(hosts, &mut rooms)?,
            options: &options,
            report: Report::default(),
            depth: depth(options.size),
        };
        let table = Table::set(&mut run)?;
        table.connect(&mut run)?;
        println!("@@traffic");
        let start = Wall::now();
        let mut what = until_trouble(&mut run, &table);
        // The driver's reason: every call on a lost device is refused with it.
        for side in 0..2 {
            if let Err(error) = run.env.ia(side).pz_create() {
                let _ = write!(what, "; side {side}: {error}");
            }
        }
        for host in hosts.iter() {
            if let Some(trouble) = host.trouble() {
                let _ = write!(what, "; {}: {trouble}", host.name());
            }
        }
        println!("@@trouble {what}");
        if start.elapsed() > LONGEST {
            bail!("nothing went wrong");
        }
        Ok(())
    }
}

fn until_trouble<'s, G: Environment<'s>>(run: &mut Run<'_, G>, table: &Table<'s, G>) -> String {
    let [a, b] = &table.sides;
    let start = Wall::now();
    for n in 0.. {
        if start.elapsed() > LONGEST {
            break;
        }
        let posted = run.env.ia(0).ep_post_rdma_write(
            a.ep,
            &local(&a.lmr, 0, 4096),
            n,
            &remote(&b.lmr, 0, 4096),
            NONE,
        );
        if let Err(error) = posted {
            return format!("post_rdma_write: {error}");
        }
        let event = run.env.first(&[(0, a.dto), (0, a.conn), (1, b.conn)], LIMIT);
        match event {
            Ok(Some((_, Event::Dto(DtoEvent { status: DtoStatus::Success, .. })))) => {}
            Ok(Some((side, event))) => return format!("side {side}: {event:?}"),
            Ok(None) => return format!("nothing for {} s", LIMIT.as_secs()),
            Err(error) => return format!("{error:#}"),
        }
    }
    "none".into()
}
