//! What a test is told with at its end: the tool's lines for people, and values for programs.

use serde::Serialize;

use super::super::super::traffic::histogram::{Histogram, Latency};
use super::performance::Measured;
use super::transaction::Ran;
use super::wire::{Performance, Transaction};

/// What is told of a transaction test.
#[derive(Debug, Serialize)]
pub(super) struct Transacted {
    pub(super) peer: String,
    threads: u32,
    endpoints_per_thread: u32,
    iterations: u32,
    verified: bool,
    operations: u64,
    seconds: f64,
    sent_bytes: u64,
    received_bytes: u64,
    rdma_read_bytes: u64,
    rdma_written_bytes: u64,
}

impl Transacted {
    pub(super) fn new(peer: String, command: &Transaction, ran: &Ran) -> Self {
        Self {
            peer,
            threads: command.threads,
            endpoints_per_thread: command.eps,
            iterations: command.iterations,
            verified: command.validate,
            operations: ran.operations,
            seconds: ran.time.as_secs_f64(),
            sent_bytes: ran.sent,
            received_bytes: ran.received,
            rdma_read_bytes: ran.read,
            rdma_written_bytes: ran.written,
        }
    }

    /// Contents were verified.
    pub(super) fn verified(&self) -> bool {
        self.verified
    }

    /// In a few words.
    pub(super) fn brief(&self) -> String {
        let verified = if self.verified { ", verified" } else { "" };
        format!(
            "{} iterations over {} times {} connections{verified}",
            self.iterations, self.threads, self.endpoints_per_thread
        )
    }

    /// The tool's lines. Here 1 MB is a million bytes.
    pub(super) fn lines(&self) -> String {
        let seconds = self.seconds;
        let mut text = format!(
            "----- Stats ---- : {} threads, {} EPs\n\
             Total WQE        : {:>10.2} WQE/Sec\n\
             Total Time       : {seconds:>10.2} sec\n",
            self.threads,
            self.endpoints_per_thread,
            float(self.operations) / seconds
        );
        for (name, bytes) in [
            ("Send      ", self.sent_bytes),
            ("Recv      ", self.received_bytes),
            ("RDMA Read ", self.rdma_read_bytes),
            ("RDMA Write", self.rdma_written_bytes),
        ] {
            let megabytes = float(bytes) / 1e6;
            text.push_str(&format!(
                "Total {name} : {megabytes:>10.2} MB - {:>10.2} MB/Sec\n",
                megabytes / seconds
            ));
        }
        text
    }
}

/// What is told of a performance test.
#[derive(Debug, Serialize)]
pub(super) struct Performed {
    pub(super) peer: String,
    polling: bool,
    operation: &'static str,
    operations: u32,
    segment_bytes: u32,
    segments: u32,
    pipeline: u32,
    seconds: f64,
    bytes: u64,
    cpu_percent: Option<f64>,
    latency_us: Option<Latency>,
    post_us: Option<Latency>,
    reap_us: Option<Latency>,
}

impl Performed {
    pub(super) fn new(peer: String, command: &Performance, measured: &Measured) -> Self {
        let each = u64::from(command.size) * u64::from(command.segments);
        Self {
            peer,
            polling: command.poll,
            operation: command.transfer.name(),
            operations: command.iterations,
            segment_bytes: command.size,
            segments: command.segments,
            pipeline: measured.pipeline,
            seconds: measured.time.as_secs_f64(),
            bytes: each * u64::from(command.iterations),
            cpu_percent: measured.busy,
            latency_us: Histogram::latency(&measured.latency),
            post_us: Histogram::latency(&measured.posts),
            reap_us: Histogram::latency(&measured.reaps),
        }
    }

    /// The tool's lines. Here 1 MB is 1048576 bytes.
    pub(super) fn lines(&self) -> String {
        let Self { operation, operations, segment_bytes, segments, pipeline, seconds, .. } = self;
        let mode = if self.polling { "polling" } else { "blocking" };
        let busy = self.cpu_percent.unwrap_or(0.0);
        let megabytes = float(self.bytes) / f64::from(1 << 20);
        let rate = f64::from(*operations) / seconds;
        let bandwidth = megabytes / seconds;
        let mean = |times: &Option<Latency>| times.map_or(0.0, |times| times.mean);
        let rule = "-".repeat(69);
        let side = "-".repeat(25);
        format!(
            "{side} Statistics {side}\n    \
                 Mode                 : {mode}\n    \
                 Operation Type       : {operation}\n    \
                 Number of Operations : {operations}\n    \
                 Segment Size         : {segment_bytes}\n    \
                 Number of Segments   : {segments}\n    \
                 Pipeline Length      : {pipeline}\n\n    \
                 Total Time           : {seconds:.2} sec\n    \
                 Total Data Exchanged : {megabytes:.2} MB\n    \
                 CPU Utilization      : {busy:.2}\n    \
                 Operation Throughput : {rate:.2} ops/sec\n    \
                 Bandwidth            : {bandwidth:.2} MB/sec\n\n\
             Latency\n{}\n\
             Time Per Post\n{}\n\
             Time Per Reap\n{}\n\
             NOTE: 1 MB = 1024 KB = 1048576 B\n{rule}\n\
             raw: {operation}, {operations}, {segment_bytes}, {segments}, {pipeline}, {busy:.2}, {rate:.2}, \
             {bandwidth:.2}, {:.2}, {:.2}, {:.2}\n{rule}\n",
            times(&self.latency_us),
            times(&self.post_us),
            times(&self.reap_us),
            mean(&self.latency_us),
            mean(&self.post_us),
            mean(&self.reap_us)
        )
    }
}

fn times(times: &Option<Latency>) -> String {
    let Latency { mean, max, min, .. } = times.unwrap_or_default();
    format!(
        "    Arithmetic mean      : {mean:.2} us\n    \
             maximum              : {max:.2} us\n    \
             minimum              : {min:.2} us\n"
    )
}

#[expect(clippy::cast_precision_loss, reason = "figures to look at")]
fn float(number: u64) -> f64 {
    number as f64
}
