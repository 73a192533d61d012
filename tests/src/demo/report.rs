//! The report at the end of the demo.

use std::fmt;

use serde::Serialize;

use super::environment::Tally;

/// One act.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// Name of the act.
    pub act: String,
    /// How often.
    pub operations: u64,
    /// Bytes of one operation.
    pub size: u64,
    /// Seconds of wall time.
    pub seconds: f64,
    /// Milliseconds of model time.
    pub model_ms: f64,
    /// BAR stores of both sides.
    pub mmio_stores: u64,
    /// DMA reads of both devices.
    pub dma_reads: u64,
    /// DMA writes of both devices.
    pub dma_writes: u64,
    /// Device commands of both sides.
    pub commands: u64,
    /// Its result, in words.
    pub result: String,
}

impl Row {
    pub(super) fn charge(&mut self, tally: &Tally) {
        self.model_ms = tally.time as f64 / 1e6;
        self.mmio_stores = tally.mmio_stores;
        self.dma_reads = tally.dma_reads;
        self.dma_writes = tally.dma_writes;
        self.commands = tally.commands;
    }

    fn per(&self, what: u64) -> f64 {
        what as f64 / self.operations.max(1) as f64
    }

    /// Megabytes of payload per second of wall time.
    #[must_use]
    pub fn megabytes(&self) -> f64 {
        let bytes = self.operations * self.size;
        if self.seconds > 0.0 { bytes as f64 / self.seconds / 1e6 } else { 0.0 }
    }
}

/// All acts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// In order.
    pub rows: Vec<Row>,
    /// Frames the wire lost.
    pub lost: u64,
    /// Packets the devices sent again.
    pub retransmitted: u64,
    /// Complaints of the devices about the drivers.
    pub complaints: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<34} {:>6} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8}  result",
            "act", "ops", "bytes", "wall ms", "model ms", "MB/s", "MMIO/op", "DMA r/op", "DMA w/op"
        )?;
        for row in &self.rows {
            let rate = match row.size {
                0 => String::new(),
                _ => format!("{:.1}", row.megabytes()),
            };
            let size = if row.size == 0 { String::new() } else { row.size.to_string() };
            writeln!(
                f,
                "{:<34} {:>6} {size:>9} {:>9.2} {:>9.2} {rate:>8} {:>8.1} {:>8.1} {:>8.1}  {}",
                row.act,
                row.operations,
                row.seconds * 1e3,
                row.model_ms,
                row.per(row.mmio_stores),
                row.per(row.dma_reads),
                row.per(row.dma_writes),
                row.result
            )?;
        }
        if self.lost != 0 || self.retransmitted != 0 {
            writeln!(
                f,
                "the wire lost {} frames; {} packets were sent again",
                self.lost, self.retransmitted
            )?;
        }
        for complaint in &self.complaints {
            writeln!(f, "the device complains: {complaint}")?;
        }
        writeln!(f, "all contents verified on both sides")
    }
}
