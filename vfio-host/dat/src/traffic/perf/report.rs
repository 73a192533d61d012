//! What a measurement found, as text, CSV and JSON. `docs/dat-perf.schema.json` describes the last.

use std::fmt;

use serde::Serialize;

use super::super::super::out::table;
use super::super::hello::Kind;
use super::super::histogram::{Histogram, Latency};
use super::super::view::View;

/// All measurements of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) peer: String,
    pub(super) test: Kind,
    /// Of each connection.
    pub(super) depth: u16,
    /// In each direction.
    pub(super) connections: u8,
    /// As many connections move data the other way; figures are sums.
    pub(super) bidirectional: bool,
    /// One for each size or rate.
    pub(super) runs: Vec<Measured>,
}

/// Operations of one size, at one rate.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) size: u32,
    /// Operations that were to be posted in a second; `None` for as many as there was room for.
    pub(super) rate: Option<u32>,
    /// Number of operations, all verified.
    pub(super) count: u64,
    pub(super) seconds: f64,
    pub(super) operations_per_second: f64,
    /// Payload only; `None` for binds, which move no data.
    pub(super) megabytes_per_second: Option<f64>,
    /// From the post to the completion, with what waits before it in the queue.
    pub(super) latency_us: Option<Latency>,
    /// Of this side, all threads.
    pub(super) cpu_us_per_operation: f64,
    /// What the peer saw meanwhile; `None` if it has no clock.
    pub(super) at_peer: Option<AtPeer>,
}

/// The same operations as their peer saw them. With more than one connection the rate is the sum.
#[derive(Debug, Serialize)]
pub(super) struct AtPeer {
    /// Number of operations that it verified, until the last of them.
    pub(super) count: u64,
    /// The longest of the connections.
    pub(super) seconds: f64,
    pub(super) operations_per_second: f64,
    /// Of the peer, all threads, also for other tests at the time.
    pub(super) cpu_us_per_operation: f64,
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
impl Measured {
    /// Makes one of operations that move `size` bytes, or none, of what each side saw and of how
    /// long they took.
    pub(super) fn new(
        size: u32,
        moves: bool,
        own: View,
        peers: &[View],
        times: &Histogram,
    ) -> Self {
        let rate = rate(&own);
        Self {
            size,
            rate: None,
            count: own.done,
            seconds: own.time.as_secs_f64(),
            operations_per_second: rate,
            megabytes_per_second: moves.then(|| rate * f64::from(size) / 1e6),
            latency_us: times.latency(),
            cpu_us_per_operation: own.cpu.as_secs_f64() * 1e6 / own.done.max(1) as f64,
            at_peer: AtPeer::new(peers),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
impl AtPeer {
    fn new(views: &[View]) -> Option<Self> {
        let seconds = views.iter().map(|view| view.time.as_secs_f64()).fold(0.0, f64::max);
        if seconds == 0.0 {
            return None;
        }
        let count: u64 = views.iter().map(|view| view.done).sum();
        // Each connection has the CPU time of the same process.
        let cpu: f64 = views.iter().map(|view| view.cpu.as_secs_f64()).sum();
        let cpu = cpu / views.len().max(1) as f64;
        Some(Self {
            count,
            seconds,
            operations_per_second: views.iter().map(rate).sum(),
            cpu_us_per_operation: cpu * 1e6 / count.max(1) as f64,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn rate(view: &View) -> f64 {
    view.done as f64 / view.time.as_secs_f64().max(1e-9)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, test, runs, .. } = self;
        let (test, depth) = (test.name(), self.flight());
        if let [run] = runs.as_slice() {
            let Measured { size, count, seconds, operations_per_second, .. } = run;
            writeln!(
                f,
                "{test} with {peer}: {count} operations of {size} bytes, {depth}, all verified"
            )?;
            write!(f, "{seconds:.3} s, {operations_per_second:.0} operations/s")?;
            if let Some(rate) = run.megabytes_per_second {
                write!(f, ", {rate:.1} MB/s")?;
            }
            writeln!(f, ", {:.2} us of CPU each", run.cpu_us_per_operation)?;
            if let Some(AtPeer { count, seconds, operations_per_second, cpu_us_per_operation }) =
                &run.at_peer
            {
                writeln!(
                    f,
                    "at the peer {count} in {seconds:.3} s, {operations_per_second:.0} operations/s, {cpu_us_per_operation:.2} us of CPU each"
                )?;
            }
            if let Some(Latency { median, p90, p99, p999, max, .. }) = run.latency_us {
                writeln!(
                    f,
                    "latency p50 {median:.1} us, p90 {p90:.1} us, p99 {p99:.1} us, p99.9 {p999:.1} us, max {max:.1} us"
                )?;
            }
            return Ok(());
        }
        writeln!(f, "{test} with {peer}: {depth}, all verified")?;
        let head = [
            "bytes",
            "wanted/s",
            "operations/s",
            "MB/s",
            "p50 us",
            "p90 us",
            "p99 us",
            "p99.9 us",
            "max us",
            "CPU us",
            "peer's CPU us",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(runs.iter().map(Measured::cells));
        f.write_str(&table(&rows))
    }
}

impl Report {
    /// Returns whether only the rate differs.
    pub(super) fn is_of_rates(&self) -> bool {
        matches!(self.runs.as_slice(), [one, two, ..] if one.rate != two.rate)
    }

    /// Returns what is in flight, as text.
    pub(super) fn flight(&self) -> String {
        let mut text = format!("{} in flight", self.depth);
        if self.connections > 1 {
            text.push_str(&format!(" on each of {} connections", self.connections));
        }
        if self.bidirectional {
            text.push_str(", in both directions");
        }
        text
    }

    /// Returns a line of names, and one for each size.
    pub(super) fn csv(&self) -> String {
        let mut text = String::from(
            "test,connections,bidirectional,depth,bytes,rate,operations_per_second,megabytes_per_second,p50_us,p90_us,p99_us,p99.9_us,max_us,cpu_us,peer_cpu_us,count,seconds\n",
        );
        for run in &self.runs {
            let Measured { count, seconds, .. } = run;
            let cells = run.cells().join(",");
            let test = self.test.name();
            let Self { connections, bidirectional, depth, .. } = self;
            text.push_str(&format!(
                "{test},{connections},{bidirectional},{depth},{cells},{count},{seconds:.6}\n"
            ));
        }
        text
    }
}

impl Measured {
    fn cells(&self) -> Vec<String> {
        let rate = self.megabytes_per_second.map_or_else(String::new, |rate| format!("{rate:.1}"));
        let latency = self.latency_us.unwrap_or_default();
        let Latency { median, p90, p99, p999, max, .. } = latency;
        let wanted = self.rate.map_or_else(String::new, |rate| rate.to_string());
        let mut cells =
            vec![self.size.to_string(), wanted, format!("{:.0}", self.operations_per_second), rate];
        cells.extend([median, p90, p99, p999, max].map(|time| format!("{time:.1}")));
        cells.push(format!("{:.2}", self.cpu_us_per_operation));
        let peer = self.at_peer.as_ref();
        cells.push(
            peer.map_or_else(String::new, |peer| format!("{:.2}", peer.cpu_us_per_operation)),
        );
        cells
    }
}
