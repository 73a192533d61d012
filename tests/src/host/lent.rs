//! Memory outside the arena that a program lends to the device.
//!
//! It is one piece for the device, at addresses of its own, and both sides see the same bytes: what
//! the fences of the driver are for is modelled in the arena.

use dat_core::provider::Region;

use super::views::PAGE;

/// CPU address of the first byte that is lent. Not the address of any real memory.
const LENT: u64 = 0x6000_0000_0000;
/// Its device address.
const FAR: u64 = 0x100_0000_0000;
/// Bytes at each end of a sparse piece that are there.
pub(super) const ENDS: usize = 2 * PAGE;

/// All that is lent.
#[derive(Debug, Default)]
pub(super) struct Lent {
    pieces: Vec<Piece>,
    /// Where the next one begins. Pages between two pieces belong to nobody.
    end: u64,
}

/// Memory that is lent in one piece.
#[derive(Debug)]
struct Piece {
    addr: u64,
    iova: u64,
    len: u64,
    /// The bytes that are there, and where they begin in it.
    bytes: Vec<(u64, Vec<u8>)>,
}

impl Piece {
    fn bytes(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        self.bytes.iter_mut().find_map(|(start, bytes)| {
            let at = usize::try_from(at.checked_sub(*start)?).ok()?;
            bytes.get_mut(at..at.checked_add(len)?)
        })
    }
}

impl Lent {
    /// Lends so many zeroed bytes.
    pub(super) fn lend(&mut self, len: usize) -> Region {
        self.add(len as u64, 0, vec![(0, vec![0; len])])
    }

    /// Lends so many bytes, of which only [`ENDS`] at each end are there: the device reaches no
    /// others. Its addresses differ by `shift` from what they would be, which is those of the CPU
    /// modulo 2^40.
    pub(super) fn lend_ends(&mut self, len: u64, shift: u64) -> Region {
        let ends = [0, len - ENDS as u64];
        self.add(len, shift, ends.map(|at| (at, vec![0; ENDS])).to_vec())
    }

    fn add(&mut self, len: u64, shift: u64, bytes: Vec<(u64, Vec<u8>)>) -> Region {
        let start = self.end;
        self.end += len.next_multiple_of(PAGE as u64) + PAGE as u64 + shift;
        self.pieces.push(Piece { addr: LENT + start, iova: FAR + start + shift, len, bytes });
        Region { addr: LENT + start, len }
    }

    /// Takes a piece back.
    pub(super) fn take_back(&mut self, region: Region) {
        self.pieces.retain(|piece| piece.addr != region.addr);
    }

    /// The device address of memory that is lent.
    pub(super) fn iova(&mut self, region: Region) -> Option<u64> {
        self.pieces.iter().find_map(|piece| {
            let at = region.addr.checked_sub(piece.addr)?;
            (at.checked_add(region.len)? <= piece.len).then_some(piece.iova + at)
        })
    }

    /// The bytes at a device address.
    pub(super) fn far(&mut self, iova: u64, len: usize) -> Option<&mut [u8]> {
        self.pieces.iter_mut().find_map(|piece| piece.bytes(iova.checked_sub(piece.iova)?, len))
    }

    /// The bytes at a CPU address.
    pub(super) fn near(&mut self, addr: u64, len: usize) -> Option<&mut [u8]> {
        self.pieces.iter_mut().find_map(|piece| piece.bytes(addr.checked_sub(piece.addr)?, len))
    }
}
