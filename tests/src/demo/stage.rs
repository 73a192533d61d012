//! Bringing the stage up, and the books of each act.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Wall};

use anyhow::{Context, Result, anyhow};
use hca_mlx5::cmd::dump::{Dump, Observer};
use mlx5_model::Stats;
use mlx5_model::wire::Wire;
use mlx5_model::wire::impair::Rates;
use mlx5_model::wire::pcap::Tap;

use super::{Options, Report, Row};
use crate::host::inproc::{Memory, lock};
use crate::pair::{Pair, Room, Stage};

/// Everything takes less model time than this, or it has failed.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

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

/// The stage of one demo.
pub(super) struct Play<'s, 'o> {
    pub(super) pair: Pair<'s>,
    pub(super) options: &'o Options,
    pub(super) report: Report,
    pub(super) depth: usize,
}

/// Transfers in flight in the bulk part.
fn depth(size: usize) -> usize {
    ((4 << 20) / size).clamp(1, 16)
}

/// Brings both sides up, plays, and takes everything down.
pub(super) fn play(
    options: &Options,
    acts: impl FnOnce(&mut Play<'_, '_>) -> Result<()>,
) -> Result<Report> {
    let depth = depth(options.size);
    let arena = (options.size * depth * 2).div_ceil(4096) + 2048;
    let stage = Stage {
        memory: Memory {
            arena,
            ..Memory::default()
        },
        mtu: Some(options.mtu),
        ipv6: options.ipv6,
        vlan: options.vlan,
        rates: Rates {
            drop: (options.loss * 10.0).round() as u32,
            ..Rates::default()
        },
        seed: options.seed,
        ..Stage::default()
    };
    let capture = match &options.pcap {
        Some(path) => Some(Capture(Arc::new(Mutex::new(create(path)?)))),
        None => None,
    };
    let trace = match &options.trace {
        Some(path) => Some(Trace {
            out: Mutex::new(create(path)?),
        }),
        None => None,
    };
    let clock = mlx5_model::wire::ModelClock::default();
    let mut failed = None;
    let (world, slots) = stage.plug_with(&clock, &mut |side, wire| match &capture {
        Some(capture) if side == 0 => match Tap::new(wire, capture.clone(), clock.clone()) {
            Ok(tap) => Box::new(tap) as Box<dyn Wire + Send>,
            Err(error) => {
                failed = Some(error);
                Box::new(mlx5_model::wire::switch::cable().0)
            }
        },
        _ => wire,
    });
    if let Some(error) = failed {
        return Err(anyhow!(error).context("cannot write the capture file"));
    }

    let observer = trace.as_ref().map(|trace| trace as &(dyn Observer + Sync));
    let mut rooms = [Box::new(Room::new()), Box::new(Room::new())];
    let [room_a, room_b] = &mut rooms;
    let (start, from) = (Wall::now(), world.now());
    let a = stage
        .open(&slots[0], room_a, 0, observer)
        .map_err(|e| anyhow!("HCA a: {e}"))?;
    let b = stage
        .open(&slots[1], room_b, 1, None)
        .map_err(|e| anyhow!("HCA b: {e}"))?;
    let mut report = Report::default();
    let held = slots[0].views().pages_out();
    let mut row = Row {
        act: "bring-up of two HCAs".into(),
        operations: 2,
        seconds: start.elapsed().as_secs_f64(),
        model_ms: (world.now() - from) as f64 / 1e6,
        ..Row::default()
    };
    let stats = slots.each_ref().map(|slot| slot.hca().stats().clone());
    charge(&mut row, &stats, &[Stats::default(), Stats::default()]);
    row.result = format!(
        "{} commands and {held} firmware pages ({} MiB) each",
        row.commands / 2,
        held / 256
    );
    report.rows.push(row);

    let pair = Pair {
        world,
        slots: [&slots[0], &slots[1]],
        ias: [a, b],
        stage,
    };
    let mut play = Play {
        pair,
        options,
        report,
        depth,
    };
    acts(&mut play)?;
    let mut report = play.finish()?;

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
    report.lost = if options.loss > 0.0 {
        sent.saturating_sub(got)
    } else {
        0
    };
    drop(slots);
    if let Some(mut capture) = capture {
        capture
            .flush()
            .context("the capture file is not complete")?;
    }
    if let Some(trace) = trace {
        lock(&trace.out)
            .flush()
            .context("the trace file is not complete")?;
    }
    Ok(report)
}

fn charge(row: &mut Row, now: &[Stats; 2], before: &[Stats; 2]) {
    for (now, before) in now.iter().zip(before) {
        row.mmio_stores += now.mmio_stores - before.mmio_stores;
        row.dma_reads += now.dma_reads - before.dma_reads;
        row.dma_writes += now.dma_writes - before.dma_writes;
        row.commands += now.commands.values().sum::<u64>() - before.commands.values().sum::<u64>();
    }
}

/// What an act did.
pub(super) struct Done {
    pub(super) operations: u64,
    pub(super) size: u64,
    pub(super) result: String,
}

impl Done {
    pub(super) fn new(operations: u64, size: u64, result: impl Into<String>) -> Self {
        Self {
            operations,
            size,
            result: result.into(),
        }
    }
}

impl Play<'_, '_> {
    fn stats(&self) -> [Stats; 2] {
        self.pair.slots.map(|slot| slot.hca().stats().clone())
    }

    /// Plays one act and keeps its books.
    pub(super) fn act(
        &mut self,
        name: &str,
        play: impl FnOnce(&mut Self) -> Result<Done>,
    ) -> Result<()> {
        let (before, from, start) = (self.stats(), self.pair.world.now(), Wall::now());
        let done = play(self).with_context(|| format!("act \"{name}\""))?;
        let mut row = Row {
            act: name.into(),
            operations: done.operations,
            size: done.size,
            seconds: start.elapsed().as_secs_f64(),
            model_ms: (self.pair.world.now() - from) as f64 / 1e6,
            result: done.result,
            ..Row::default()
        };
        charge(&mut row, &self.stats(), &before);
        self.report.rows.push(row);
        Ok(())
    }

    /// Closes both adapters, which must have nothing left.
    fn finish(mut self) -> Result<Report> {
        self.act("close of both adapters", |play| {
            for side in 0..2 {
                let now = play.pair.now();
                play.pair.ias[side]
                    .close(now, dat_core::CloseFlag::Graceful)
                    .map_err(|e| anyhow!("closing side {side}: {e}"))?;
            }
            Ok(Done::new(2, 0, "all objects, pages and memory given back"))
        })?;
        Ok(self.report)
    }
}
