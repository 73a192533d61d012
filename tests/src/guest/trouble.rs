//! Traffic until something goes wrong: the message that a user gets, and how soon.

use std::fmt::Write;
use std::time::{Duration, Instant as Wall};

use anyhow::{Result, bail};
use clap::Parser;
use dat_core::{DtoEvent, DtoStatus, Event};
use vfio_host::Host;

use super::ground::{Sides, rooms};
use super::hosts::{Part, two};
use crate::demo::table::{NONE, Table, local, remote};
use crate::demo::{Ground, Options, Play, Report, depth};

/// Longest life without trouble.
const LONGEST: Duration = Duration::from_secs(120);
/// A completion takes less.
const LIMIT: Duration = Duration::from_secs(20);

/// Writes until something goes wrong.
pub(super) struct Trouble;

impl Part for Trouble {
    fn play<H: Host>(&self, hosts: &mut [H]) -> Result<()> {
        let hosts = two(hosts)?;
        let options = Options::try_parse_from(["demo", "--json"])?;
        let mut rooms = rooms();
        let mut play = Play {
            ground: Sides::open(hosts, &mut rooms)?,
            options: &options,
            report: Report::default(),
            depth: depth(options.size),
        };
        let table = Table::set(&mut play)?;
        table.connect(&mut play)?;
        println!("@@traffic");
        let start = Wall::now();
        let mut what = until_trouble(&mut play, &table);
        // Why, in the driver's words: it refuses whatever is asked of a lost device.
        for side in 0..2 {
            if let Err(error) = play.ground.ia(side).pz_create() {
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

fn until_trouble<'s, G: Ground<'s>>(play: &mut Play<'_, G>, table: &Table<'s, G>) -> String {
    let [a, b] = &table.sides;
    let start = Wall::now();
    for n in 0.. {
        if start.elapsed() > LONGEST {
            break;
        }
        let posted = play.ground.ia(0).ep_post_rdma_write(
            a.ep,
            &local(&a.lmr, 0, 4096),
            n,
            &remote(&b.lmr, 0, 4096),
            NONE,
        );
        if let Err(error) = posted {
            return format!("post_rdma_write: {error}");
        }
        let event = play.ground.first(&[(0, a.dto), (0, a.conn), (1, b.conn)], LIMIT);
        match event {
            Ok(Some((_, Event::Dto(DtoEvent { status: DtoStatus::Success, .. })))) => {}
            Ok(Some((side, event))) => return format!("side {side}: {event:?}"),
            Ok(None) => return format!("nothing for {} s", LIMIT.as_secs()),
            Err(error) => return format!("{error:#}"),
        }
    }
    "none".into()
}
