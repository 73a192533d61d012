//! The stage in process: two models, two adapters, one thread and no real time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Wall};

use anyhow::{Context, Result, anyhow};
use dat_core::{Evd, Event, Ia, Instant};
use hca_mlx5::cmd::dump::{Dump, Observer};
use mlx5_model::wire::Wire;
use mlx5_model::wire::impair::Rates;
use mlx5_model::wire::pcap::{LinkType, Tap};

use super::environment::{Environment, Tally};
use super::run::{Run, depth};
use super::{Link, Options, Report, Row, acts};
use crate::host::inproc::{Memory, Slot, lock};
use crate::pair::{Driver, Pair, Room, Stage};

/// Writes each command's dump to a file.
struct Trace {
    out: Mutex<BufWriter<File>>,
}

impl Observer for Trace {
    fn command(&self, dump: &Dump<'_>) {
        // The file's errors come out when it is closed.
        let _ = write!(lock(&self.out), "{dump}");
    }
}

/// A capture file that can be asked for its errors at the end.
#[derive(Clone)]
struct Capture(Arc<Mutex<BufWriter<File>>>);

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        lock(&self.0).flush()
    }
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}

/// Brings both sides up, runs all acts, and takes everything down.
pub(super) fn run(options: &Options) -> Result<Report> {
    let depth = depth(options.size);
    let arena = (options.size * depth * 2).div_ceil(4096) + 2048;
    let link = match options.link {
        Link::Eth => Stage::default(),
        Link::Ib => Stage::infiniband(),
    };
    let stage = Stage {
        memory: Memory { arena, ..Memory::default() },
        mtu: Some(options.mtu),
        ipv6: options.ipv6,
        vlan: options.vlan,
        rates: Rates { drop: (options.loss * 10.0).round() as u32, ..Rates::default() },
        seed: options.seed,
        ..link
    };
    let capture = match &options.pcap {
        Some(path) => Some(Capture(Arc::new(Mutex::new(create(path)?)))),
        None => None,
    };
    let trace = match &options.trace {
        Some(path) => Some(Trace { out: Mutex::new(create(path)?) }),
        None => None,
    };
    let clock = mlx5_model::wire::ModelClock::default();
    let kind = match options.link {
        Link::Eth => LinkType::Ethernet,
        Link::Ib => LinkType::InfiniBandErf,
    };
    let mut failed = None;
    let (world, slots) = stage.plug_with(&clock, &mut |side, wire| match &capture {
        Some(capture) if side == 0 => {
            match Tap::of_link(kind, wire, capture.clone(), clock.clone()) {
                Ok(tap) => Box::new(tap) as Box<dyn Wire + Send>,
                Err(error) => {
                    failed = Some(error);
                    Box::new(mlx5_model::wire::switch::cable().0)
                }
            }
        }
        _ => wire,
    });
    if let Some(error) = failed {
        return Err(anyhow!(error).context("cannot write the capture file"));
    }

    let observer = trace.as_ref().map(|trace| trace as &(dyn Observer + Sync));
    let mut rooms = [Box::new(Room::new()), Box::new(Room::new())];
    let [room_a, room_b] = &mut rooms;
    let (start, from) = (Wall::now(), world.now());
    let a = stage.open(&slots[0], room_a, 0, observer).map_err(|e| anyhow!("HCA a: {e}"))?;
    let b = stage.open(&slots[1], room_b, 1, None).map_err(|e| anyhow!("HCA b: {e}"))?;
    let mut report = Report::default();
    let held = slots[0].views().pages_out();
    let mut row = Row {
        act: "bring-up of two HCAs".into(),
        operations: 2,
        seconds: start.elapsed().as_secs_f64(),
        ..Row::default()
    };
    let tally = tally(&slots.each_ref()) - Tally { time: from, ..Tally::default() };
    row.charge(&tally);
    row.result = format!(
        "{} commands and {held} firmware pages ({} MiB) each",
        row.commands / 2,
        held / 256
    );
    report.rows.push(row);

    let pair = Pair { world, slots: [&slots[0], &slots[1]], ias: [a, b], stage };
    let mut run = Run { env: pair, options, report, depth };
    acts::all(&mut run)?;
    let mut report = run.finish()?;

    let (mut sent, mut got) = (0, 0);
    for slot in &slots {
        let hca = slot.hca();
        report.complaints.extend(hca.complaints().iter().cloned());
        let stats = hca.stats();
        report.retransmitted += stats.retransmissions;
        sent += stats.frames_out;
        got += stats.frames_in;
        let left = slot.views().pages_out();
        if left != 0 || slot.in_use() != 0 {
            return Err(anyhow!(
                "{left} firmware pages and {} bytes of memory were not given back",
                slot.in_use()
            ));
        }
    }
    report.lost = if options.loss > 0.0 { sent.saturating_sub(got) } else { 0 };
    drop(slots);
    if let Some(mut capture) = capture {
        capture.flush().context("the capture file is not complete")?;
    }
    if let Some(trace) = trace {
        lock(&trace.out).flush().context("the trace file is not complete")?;
    }
    Ok(report)
}

/// Returns the counts of the models.
fn tally(slots: &[&Slot; 2]) -> Tally {
    let mut sum = Tally { time: slots[0].world().now(), ..Tally::default() };
    for slot in slots {
        let hca = slot.hca();
        let stats = hca.stats();
        sum.mmio_stores += stats.mmio_stores;
        sum.dma_reads += stats.dma_reads;
        sum.dma_writes += stats.dma_writes;
        sum.commands += stats.commands.values().sum::<u64>();
    }
    sum
}

impl<'s> Environment<'s> for Pair<'s> {
    type Platform = Slot;
    type Driver = Driver<'s>;

    fn ia(&mut self, side: usize) -> &mut Ia<'s, Driver<'s>> {
        &mut self.ias[side]
    }

    fn platform(&self, side: usize) -> &'s Slot {
        self.slots[side]
    }

    fn address(&self, side: usize) -> IpAddr {
        self.stage.address(side)
    }

    fn now(&self) -> Instant {
        self.now()
    }

    fn first(&mut self, of: &[(usize, Evd)], limit: Duration) -> Result<Option<(usize, Event)>> {
        Ok(self.until(limit, |pair| {
            of.iter().find_map(|&(side, evd)| Some((side, pair.ias[side].evd_dequeue(evd).ok()?)))
        }))
    }

    fn tally(&self) -> Tally {
        tally(&self.slots)
    }
}
