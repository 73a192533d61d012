//! The course of a measurement: when it begins and ends, and what is shown until then.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::super::super::args::Perf;
use super::super::super::failure::Failure;
use super::super::super::out::{Out, progress};
use super::super::view::{View, Watch};
use super::run::Phase;

/// One measurement in time.
pub(super) struct Course {
    out: Out,
    bar: ProgressBar,
    /// Lines are not for a result of lines.
    lines: Option<Lines>,
    size: u32,
    watch: Watch,
    phase: Phase,
    /// When the warm-up ends, and when all does.
    warm: Option<Instant>,
    stop: Option<Instant>,
    begin: View,
    end: Option<View>,
}

impl Course {
    /// Begins one of `all` operations of `size` bytes, or of a time.
    pub(super) fn new(perf: &Perf, out: Out, size: u32, all: u64) -> Self {
        let start = Instant::now();
        let warm = perf.warmup.map(|warmup| start + warmup);
        Self {
            out,
            bar: progress(out, all, perf.kind.name()),
            lines: perf.interval.filter(|_| !perf.csv).map(|interval| Lines::new(interval, size)),
            size,
            watch: Watch::start(),
            phase: if warm.is_some() { Phase::Warming } else { Phase::Measuring },
            warm,
            stop: perf.duration.map(|duration| warm.unwrap_or(start) + duration),
            begin: View::default(),
            end: None,
        }
    }

    /// Shows how far it is, and returns the phase that it is in.
    pub(super) fn look(&mut self, completed: u64) -> Result<Phase, Failure> {
        self.bar.set_position(completed);
        if let Some(lines) = &mut self.lines {
            lines.show(completed, self.out)?;
        }
        if due(&mut self.warm) {
            self.begin = self.watch.now(completed);
            self.phase = Phase::Measuring;
        } else if due(&mut self.stop) {
            self.end = Some(self.watch.now(completed));
            self.phase = Phase::Stopping;
        }
        Ok(self.phase)
    }

    /// The failure of a measurement that Ctrl-C ended.
    pub(super) fn interrupted(&self, done: u64) -> Failure {
        Failure::new(format!("interrupted after {done} operations of {} bytes", self.size))
    }

    /// Ends it, and returns what this side saw.
    pub(super) fn finish(self, completed: u64) -> View {
        self.bar.finish_and_clear();
        self.end.unwrap_or_else(|| self.watch.now(completed)).since(self.begin)
    }
}

/// Whether a time has come, once.
fn due(time: &mut Option<Instant>) -> bool {
    time.take_if(|time| *time <= Instant::now()).is_some()
}

/// Prints a line for each interval.
struct Lines {
    interval: Duration,
    size: u32,
    start: Instant,
    /// Since when, and since which operation.
    last: (Instant, u64),
}

impl Lines {
    fn new(interval: Duration, size: u32) -> Self {
        let start = Instant::now();
        Self { interval, size, start, last: (start, 0) }
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn show(&mut self, completed: u64, out: Out) -> Result<(), Failure> {
        let (now, (since, before)) = (Instant::now(), self.last);
        if now - since < self.interval {
            return Ok(());
        }
        self.last = (now, completed);
        let rate = (completed - before) as f64 / (now - since).as_secs_f64();
        let [from, to] = [since, now].map(|time| (time - self.start).as_secs_f64());
        let megabytes = rate * f64::from(self.size) / 1e6;
        out.say(&format!("{from:7.2}-{to:<7.2} s  {rate:12.0} operations/s  {megabytes:10.1} MB/s"))
    }
}
