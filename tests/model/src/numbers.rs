//! Numbers that the device hands out, and their references.
//!
//! The firmware refuses to destroy what something else refers to; every kind of object does that
//! the same way, so it is done here once.

use crate::caps::Caps;
use crate::cmd::{Refusal, Status};
use crate::ifc::caps::cmd_hca_cap as cap;
use crate::table::Table;

/// One number space: allocated numbers, each with a count of references.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: u32,
    live: Table<u32, u32>,
    /// Ranges of free numbers that do not touch each other: the first of each, and the one behind
    /// its last.
    free: Table<u32, u32>,
    what: u32,
    /// A number that is freed is handed out at once.
    reuses: bool,
}

impl Numbers {
    /// Numbers from `first` up to and excluding `limit`; `what` marks the syndromes of this space.
    pub(crate) fn new(first: u32, limit: u32, what: u32) -> Self {
        let free = (first < limit).then_some((first, limit)).into_iter().collect();
        Self { next: first, live: Table::default(), free, what, reuses: false }
    }

    /// The same, where the number that was freed last is the next.
    pub(crate) fn reusing(self, reuses: bool) -> Self {
        Self { reuses, ..self }
    }

    /// The next free number; a freed one is not handed out again before the space wrapped, or at
    /// once.
    pub(crate) fn take(&mut self) -> Result<u32, Refusal> {
        let around = self.free.range(..=self.next).next_back();
        let (start, end) = around
            .filter(|(_, end)| **end > self.next)
            .or_else(|| self.free.range(self.next..).next())
            .or_else(|| self.free.range(..).next())
            .map(|(start, end)| (start, *end))
            .ok_or(Status::ExceedLimit.because(self.what | 1))?;
        let n = if (start..end).contains(&self.next) { self.next } else { start };
        self.free.remove(&start);
        for (start, end) in [(start, n), (n + 1, end)] {
            if start < end {
                self.free.insert(start, end);
            }
        }
        self.next = n + 1;
        self.live.insert(n, 0);
        Ok(n)
    }

    /// Numbers that name something.
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    /// Whether it names something.
    pub(crate) fn contains(&self, n: u32) -> bool {
        self.live.contains_key(&n)
    }

    /// One more reference; refused when it names nothing.
    pub(crate) fn hold(&mut self, n: u32) -> Result<(), Refusal> {
        let count = self.live.get_mut(&n).ok_or(Status::BadResource.because(self.what | 2))?;
        *count += 1;
        Ok(())
    }

    /// One reference less.
    pub(crate) fn release(&mut self, n: u32) {
        if let Some(count) = self.live.get_mut(&n) {
            *count = count.saturating_sub(1);
        }
    }

    /// Takes the number back; refused while it is referred to or names nothing.
    pub(crate) fn free(&mut self, n: u32) -> Result<(), Refusal> {
        match self.live.get(&n) {
            None => Err(Status::BadResource.because(self.what | 3)),
            Some(0) => {
                self.live.remove(&n);
                let mut range = (n, n + 1);
                let before = self.free.range(..n).next_back();
                if let Some((start, _)) = before.filter(|(_, end)| **end == n) {
                    range.0 = start;
                }
                if let Some(end) = self.free.remove(&(n + 1)) {
                    range.1 = end;
                }
                self.free.insert(range.0, range.1);
                if self.reuses {
                    self.next = n;
                }
                Ok(())
            }
            Some(_) => Err(Status::BadResourceState.because(self.what | 4)),
        }
    }

    /// How many are live.
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }
}

/// The plain number spaces: things without a context.
#[derive(Debug)]
pub(crate) struct Ids {
    /// User access regions; the number is the page of the BAR.
    pub(crate) uar: Numbers,
    /// Protection domains.
    pub(crate) pd: Numbers,
    /// Transport domains.
    pub(crate) td: Numbers,
    /// XRC domains.
    pub(crate) xrcd: Numbers,
    /// Queue counters.
    pub(crate) counter: Numbers,
}

impl Ids {
    /// Spaces as large as the capabilities say.
    pub(crate) fn new(caps: &Caps) -> Self {
        let end = |field| 1 << caps.general(field).min(24);
        Self {
            // The first number a real card gave; the pages of the BAR end the space.
            uar: Numbers::new(0x10, 0x2000, 0x80_2000),
            pd: Numbers::new(1, end(cap::log_max_pd), 0x80_0000),
            td: Numbers::new(1, end(cap::log_max_transport_domain), 0x81_6000),
            xrcd: Numbers::new(1, end(cap::log_max_xrcd), 0x80_e000),
            counter: Numbers::new(1, 256, 0x77_1000),
        }
    }
}
