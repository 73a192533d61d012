//! Timing: blocks of operations, the median block, as a ratio to the limit in the same run.

use std::time::Instant;

/// Nanoseconds per operation, over many blocks.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Time {
    /// Median block.
    pub median: f64,
    /// Tenth percentile.
    pub p10: f64,
    /// Ninetieth percentile.
    pub p90: f64,
}

/// Operations of one block.
pub const BLOCK: usize = 512;

/// Times `block`, which does `ops` operations; `prepare` runs before each and `after` behind it, outside the clock.
pub fn time<S>(
    state: &mut S,
    blocks: usize,
    ops: usize,
    mut prepare: impl FnMut(&mut S),
    mut block: impl FnMut(&mut S),
    mut after: impl FnMut(&mut S),
) -> Time {
    let mut spans = Vec::with_capacity(blocks);
    for _ in 0..blocks / 10 {
        prepare(state);
        block(state);
        after(state);
    }
    for _ in 0..blocks {
        prepare(state);
        let start = Instant::now();
        block(state);
        spans.push(start.elapsed().as_nanos() as f64 / ops as f64);
        after(state);
    }
    spans.sort_unstable_by(f64::total_cmp);
    let at = |part: usize| spans[(spans.len() - 1) * part / 100];
    Time {
        median: at(50),
        p10: at(10),
        p90: at(90),
    }
}
