//! Records of answers, and what requests ask of them.

use crate::prm::put;
use crate::prm::sa::{self, selector};
use crate::prm::smp::P_KEY_FULL_MEMBER;

/// Unit of `attr_offset`.
pub(super) const UNIT: usize = 8;

/// Records of an answer, or the status that refuses the request.
pub(super) type Reply = Result<Records, u16>;

/// Records of one size, as many as fit into one datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records {
    pub(super) bytes: [u8; sa::DATA_LEN],
    /// From one to the next.
    pub(super) stride: usize,
    pub(super) count: usize,
}

impl Records {
    /// None yet, of `size` bytes each.
    pub(super) const fn new(size: usize) -> Self {
        Self { bytes: [0; sa::DATA_LEN], stride: size.next_multiple_of(UNIT), count: 0 }
    }

    /// One.
    pub(super) fn one(record: &[u8]) -> Self {
        let mut records = Self::new(record.len());
        put(&mut records.bytes, 0, record);
        records.count = 1;
        records
    }

    /// Adds one where it fits.
    pub(super) fn add(&mut self, record: &[u8]) -> Result<(), u16> {
        let at = self.count * self.stride;
        if at + record.len() > self.bytes.len() {
            return Err(sa::status::TOO_MANY_RECORDS);
        }
        put(&mut self.bytes, at, record);
        self.count += 1;
        Ok(())
    }

    /// For a Get, which asks for exactly one.
    pub(super) fn only_one(self) -> Reply {
        match self.count {
            0 => Err(sa::status::NO_RECORDS),
            1 => Ok(self),
            _ => Err(sa::status::TOO_MANY_RECORDS),
        }
    }
}

/// Whether two P_Keys are of one partition.
pub(super) fn is_of_partition(one: u16, other: u16) -> bool {
    (one ^ other) & !P_KEY_FULL_MEMBER == 0
}

/// Whether a value is as a selector asks.
pub(super) fn satisfies<T: PartialOrd>(chosen: u8, value: &T, asked: &T) -> bool {
    match chosen {
        selector::GREATER => value > asked,
        selector::LESS => value < asked,
        selector::EXACTLY => value == asked,
        _ => true,
    }
}
