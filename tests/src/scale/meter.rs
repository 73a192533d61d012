//! The measured function, and what it measured.

use std::hint::black_box;
use std::time::Instant;

use crate::bench::host::model;

/// Calls `op`. Callgrind counts from its entry to its return, and dumps what it has counted: one
/// dump for each line that [`Meter::run`] prints, in that order.
#[inline(never)]
pub fn measured(op: &mut dyn FnMut()) {
    op();
    // So that the call is no jump.
    black_box(());
}

/// Measures.
#[derive(Debug, Default)]
pub struct Meter {
    /// Name of each measured call, and its nanoseconds without the model's, in their order.
    pub ran: Vec<(&'static str, f64)>,
}

impl Meter {
    /// Measures one call of a case.
    pub fn run<T>(&mut self, case: &'static str, op: impl FnOnce() -> T) -> T {
        let (mut op, mut out) = (Some(op), None);
        let mut once = || out = op.take().map(|op| op());
        let (start, outside) = (Instant::now(), model::spent());
        model::measure(true);
        measured(&mut once);
        model::measure(false);
        let outside = (model::spent() - outside) as f64;
        let nanoseconds = start.elapsed().as_nanos() as f64 - outside;
        self.ran.push((case, nanoseconds));
        out.unwrap()
    }
}
