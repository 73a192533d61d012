//! Memory outside the arena that a program lends to the device.
//!
//! It is one piece for the device, at addresses of its own, and both sides see the same bytes: what
//! the fences of the driver are for is modelled in the arena.

use std::collections::BTreeMap;

use dat_core::provider::Region;

use super::views::PAGE;

/// CPU address of the first byte that is lent. Not the address of any real memory.
const LENT: u64 = 0x6000_0000_0000;
/// Its device address.
const FAR: u64 = 0x100_0000_0000;

/// All that is lent.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// The bytes of each piece, by where it begins.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Where the next one begins. Pages between two pieces belong to nobody.
    end: u64,
}

impl Lent {
    /// Lends so many zeroed bytes.
    pub(super) fn lend(&mut self, len: usize) -> Region {
        let start = self.end;
        self.end += (len.next_multiple_of(PAGE) + PAGE) as u64;
        self.pieces.insert(start, vec![0; len]);
        Region { addr: LENT + start, len: len as u64 }
    }

    /// Takes a piece back.
    pub(super) fn take_back(&mut self, region: Region) {
        self.pieces.remove(&region.addr.wrapping_sub(LENT));
    }

    /// The device address of memory that is lent.
    pub(super) fn iova(&mut self, region: Region) -> Option<u64> {
        let at = region.addr.checked_sub(LENT)?;
        self.bytes(at, usize::try_from(region.len).ok()?)?;
        Some(FAR + at)
    }

    /// The bytes at a device address.
    pub(super) fn far(&mut self, iova: u64, len: usize) -> Option<&mut [u8]> {
        self.bytes(iova.checked_sub(FAR)?, len)
    }

    /// The bytes at a CPU address.
    pub(super) fn near(&mut self, addr: u64, len: usize) -> Option<&mut [u8]> {
        self.bytes(addr.checked_sub(LENT)?, len)
    }

    fn bytes(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let (start, bytes) = self.pieces.range_mut(..=at).next_back()?;
        let at = usize::try_from(at - start).ok()?;
        bytes.get_mut(at..at.checked_add(len)?)
    }
}
