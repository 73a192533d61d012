//! What a measurement found, as text, CSV and JSON. `docs/dat-perf.schema.json` describes the last.

use std::fmt;

use serde::Serialize;

use super::super::super::out::table;
use super::super::hello::Kind;
use super::super::histogram::Latency;

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
    /// One for each size.
    pub(super) runs: Vec<Measured>,
}

/// Operations of one size.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) size: u32,
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
            "operations/s",
            "MB/s",
            "p50 us",
            "p90 us",
            "p99 us",
            "p99.9 us",
            "max us",
            "CPU us",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(runs.iter().map(Measured::cells));
        f.write_str(&table(&rows))
    }
}

impl Report {
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
            "test,connections,bidirectional,depth,bytes,operations_per_second,megabytes_per_second,p50_us,p90_us,p99_us,p99.9_us,max_us,cpu_us,count,seconds\n",
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
        let mut cells =
            vec![self.size.to_string(), format!("{:.0}", self.operations_per_second), rate];
        cells.extend([median, p90, p99, p999, max].map(|time| format!("{time:.1}")));
        cells.push(format!("{:.2}", self.cpu_us_per_operation));
        cells
    }
}
