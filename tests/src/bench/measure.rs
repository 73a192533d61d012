//! Timing: blocks of operations, the median block; the best of several rounds counts, as a ratio to
//! the limit in the same run.

use std::time::Instant;

/// Operations of one block.
pub const BLOCK: usize = 512;

/// Nanoseconds per operation, in the median of blocks of `ops` operations, each done by `block`;
/// `prepare` runs before each and `after` behind it, outside the clock.
pub fn time<S>(
    state: &mut S,
    blocks: usize,
    ops: usize,
    mut prepare: impl FnMut(&mut S),
    mut block: impl FnMut(&mut S),
    mut after: impl FnMut(&mut S),
) -> f64 {
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
    spans[(spans.len() - 1) / 2]
}
