//! Host memory that refuses.

use crate::host::{DmaError, HostMemory};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Which ranges are refused; shared between a test and the memory it handed over.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<Ranges>>);

#[derive(Debug, Default)]
struct Ranges {
    reads: Vec<Range<u64>>,
    writes: Vec<Range<u64>>,
    refused: u64,
}

impl Refusals {
    fn with<T>(&self, f: impl FnOnce(&mut Ranges) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Reads that touch the range fail from now on.
    pub fn reads(&self, range: Range<u64>) {
        self.with(|r| r.reads.push(range));
    }

    /// Writes that touch the range fail from now on.
    pub fn writes(&self, range: Range<u64>) {
        self.with(|r| r.writes.push(range));
    }

    /// Everything passes again.
    pub fn clear(&self) {
        self.with(|r| *r = Ranges { refused: r.refused, ..Ranges::default() });
    }

    /// Accesses refused so far.
    pub fn count(&self) -> u64 {
        self.with(|r| r.refused)
    }

    fn check(&self, iova: u64, length: usize, write: bool) -> Result<(), DmaError> {
        let end = iova.saturating_add(length as u64);
        self.with(|r| {
            let ranges = if write { &r.writes } else { &r.reads };
            if ranges.iter().any(|range| range.start < end && iova < range.end) {
                r.refused += 1;
                return Err(DmaError::Refused(iova));
            }
            Ok(())
        })
    }
}

/// Memory behind an IOMMU with opinions.
#[derive(Debug)]
pub struct Refusing<M> {
    inner: M,
    refusals: Refusals,
}

impl<M> Refusing<M> {
    /// Wraps `inner`; what is refused is said through `refusals`.
    pub fn new(inner: M, refusals: Refusals) -> Self {
        Self { inner, refusals }
    }
}

impl<M: HostMemory> HostMemory for Refusing<M> {
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        self.refusals.check(iova, buf.len(), false)?;
        self.inner.read(iova, buf)
    }

    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        self.refusals.check(iova, buf.len(), true)?;
        self.inner.write(iova, buf)
    }
}
