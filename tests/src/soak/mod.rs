//! A soak: connections come, move data and go for as long as wanted, while things go wrong.
//!
//! It runs in rounds. A round opens two adapters on two models in this process and churns
//! connections under faults ([`churn`]), then does the same in small through vfio-user in real time
//! ([`served`]), and ends with a [`Sample`] of what this process and the devices hold. At the end
//! [`judge`] says whether any of it has grown; [`chart`] draws it.
//!
//! Three long runs stand beside it: [`unplug`] lets devices leave the bus, [`lossy`] moves data over
//! a bad wire, [`entries`] lets a device write any completions and events.

pub mod chart;
pub mod churn;
pub mod entries;
pub mod judge;
pub mod lossy;
mod sample;
mod served;
pub mod unplug;

use std::fmt;
use std::time::{Duration, Instant};

use crate::laws::rng::Rng;
pub use sample::Sample;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// For so long.
    pub time: Duration,
    /// Seed of every random choice.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One for each round.
    pub samples: Vec<Sample>,
    /// Connections that were made, used and ended.
    pub connections: u64,
    /// Faults that struck.
    pub faults: u64,
    /// How long it took.
    pub time: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64().max(1e-3);
        writeln!(
            f,
            "{} connections in {seconds:.0} s, {:.0} a second, {} faults, {} samples",
            self.connections,
            self.connections as f64 / seconds,
            self.faults,
            self.samples.len()
        )?;
        for (n, name) in sample::NAMES.iter().enumerate() {
            let values = || judge::after_warm_up(&self.samples).iter().map(|s| s.values[n]);
            let (first, last) = (values().next(), values().next_back());
            let (least, most) = (values().min(), values().max());
            let number = |value: Option<u64>| value.unwrap_or_default();
            writeln!(
                f,
                "  {name}: {} after the warm-up, {} at the end, {} to {} between",
                number(first),
                number(last),
                number(least),
                number(most)
            )?;
        }
        Ok(())
    }
}

/// Rounds of a run, unless it is so long that one would take more than [`LONGEST`].
const ROUNDS: u32 = 20;
/// The longest round.
const LONGEST: Duration = Duration::from_secs(10);

/// Runs for the time of the plan.
///
/// # Panics
/// If anything is not as it should be, but for growth.
#[must_use]
pub fn run(plan: &Plan) -> Report {
    let mut report = Report::default();
    let mut rng = Rng::new(plan.seed);
    let (start, round) = (Instant::now(), (plan.time / ROUNDS).min(LONGEST));
    let server = served::Served::start();
    while start.elapsed() < plan.time {
        let held = churn::round(rng.next(), Instant::now() + round, &mut report);
        let mapped = server.round(rng.next(), &mut report);
        report.samples.push(Sample::take(start.elapsed(), report.connections, held, mapped));
    }
    report.time = start.elapsed();
    report
}
