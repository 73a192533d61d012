//! Whether anything grew.
//!
//! The first quarter of the samples is warm-up. Of the rest, what adapters hold must be the same in
//! each sample. For what the whole process holds, where an allocator and threads come and go, the
//! line of least squares through the samples must not rise by more than [`Bound`] says from the
//! first to the last.

use super::Report;
use super::sample::{LOOSE, NAMES, Sample};

/// What the line may rise by, from the first sample after the warm-up to the last.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Of its mean.
    pub percent: f64,
    /// At least.
    pub least: f64,
}

/// For resident KiB, descriptors, mappings.
pub const BOUNDS: [Bound; LOOSE] = [
    Bound { percent: 3.0, least: 2048.0 },
    Bound { percent: 0.0, least: 0.5 },
    Bound { percent: 3.0, least: 4.0 },
];

/// Samples that are needed to judge.
pub const LEAST: usize = 8;

/// What is not flat, in words; nothing if all is.
#[must_use]
pub fn faults(report: &Report) -> Vec<String> {
    let samples = after_warm_up(&report.samples);
    if samples.len() < LEAST {
        return vec![format!("{} samples after the warm-up; {LEAST} are needed", samples.len())];
    }
    let mut faults = Vec::new();
    for (n, name) in NAMES.iter().enumerate() {
        let values: Vec<f64> = samples.iter().map(|sample| sample.values[n] as f64).collect();
        let first = values[0];
        match BOUNDS.get(n) {
            Some(bound) => {
                let (mean, rise) = line(&values);
                let most = bound.least.max(mean * bound.percent / 100.0);
                if rise > most {
                    faults.push(format!("{name}: rises by {rise:.1}; {most:.1} is the most"));
                }
            }
            None => {
                if let Some(other) = values.iter().find(|value| **value != first) {
                    faults.push(format!("{name}: {first} after the warm-up, then {other}"));
                }
            }
        }
    }
    faults
}

/// The samples after the warm-up.
#[must_use]
pub fn after_warm_up(samples: &[Sample]) -> &[Sample] {
    &samples[samples.len() / 4..]
}

/// Mean of the values, and by how much the line of least squares through them rises.
#[must_use]
pub fn line(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    let (mut up, mut along) = (0.0, 0.0);
    for (n, value) in values.iter().enumerate() {
        let x = n as f64 - middle;
        up += x * (value - mean);
        along += x * x;
    }
    (mean, if along == 0.0 { 0.0 } else { up / along * (count - 1.0) })
}
