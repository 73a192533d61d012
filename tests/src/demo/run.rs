//! A run of the demo's acts, and the row of each.

use std::time::{Duration, Instant as Wall};

use anyhow::{Context, Result, anyhow};

use super::environment::Environment;
use super::{Options, Report, Row};

/// Everything takes less time than this, or it has failed.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// A demo under way.
#[derive(Debug)]
pub struct Run<'o, G> {
    /// Adapters and clock.
    pub env: G,
    /// Options of the command line.
    pub options: &'o Options,
    /// The rows so far.
    pub report: Report,
    /// Transfers in flight in the bulk part.
    pub depth: usize,
}

/// Transfers of `size` bytes in flight in the bulk part.
#[must_use]
pub fn depth(size: usize) -> usize {
    ((4 << 20) / size).clamp(1, 16)
}

/// What an act did.
pub(super) struct Done {
    pub(super) operations: u64,
    pub(super) size: u64,
    pub(super) result: String,
}

impl Done {
    pub(super) fn new(operations: u64, size: u64, result: impl Into<String>) -> Self {
        Self { operations, size, result: result.into() }
    }
}

impl<'s, G: Environment<'s>> Run<'_, G> {
    /// Runs one act and adds its row.
    pub(super) fn act(
        &mut self,
        name: &str,
        run: impl FnOnce(&mut Self) -> Result<Done>,
    ) -> Result<()> {
        let (before, start) = (self.env.tally(), Wall::now());
        let done = run(self).with_context(|| format!("act \"{name}\""))?;
        let mut row = Row {
            act: name.into(),
            operations: done.operations,
            size: done.size,
            seconds: start.elapsed().as_secs_f64(),
            result: done.result,
            ..Row::default()
        };
        row.charge(&(self.env.tally() - before));
        self.report.rows.push(row);
        Ok(())
    }

    /// Closes both adapters, which must have nothing left.
    pub fn finish(mut self) -> Result<Report> {
        self.act("close of both adapters", |run| {
            for side in 0..2 {
                let now = run.env.now();
                run.env
                    .ia(side)
                    .close(now, dat_core::CloseFlag::Graceful)
                    .map_err(|e| anyhow!("closing side {side}: {e}"))?;
            }
            Ok(Done::new(2, 0, "all objects, pages and memory given back"))
        })?;
        Ok(self.report)
    }
}
