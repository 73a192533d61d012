//! Reading and writing a queue's ring across its pages.

use crate::bus::{Bus, Wrote};
use crate::host::DmaError;
use crate::queue_memory::QueueMemory;

/// Fills the bytes from a byte of the ring on: [`read`] or [`peek`].
pub(crate) type Reader = fn(&mut Bus, &QueueMemory, u64, &mut [u8]) -> Result<(), DmaError>;

/// Fills `out` from byte `at` of the ring on.
pub(crate) fn read(
    bus: &mut Bus,
    ring: &QueueMemory,
    at: u64,
    out: &mut [u8],
) -> Result<(), DmaError> {
    by_pieces(ring, at, out, |iova, piece| {
        bus.read(iova, piece)?;
        if bus.writes_queues { bus.write(Wrote::Other, iova, piece) } else { Ok(()) }
    })
}

/// The same, without the books: the device does not read.
pub(crate) fn peek(
    bus: &mut Bus,
    ring: &QueueMemory,
    at: u64,
    out: &mut [u8],
) -> Result<(), DmaError> {
    let memory = bus.memory().ok_or(DmaError::BusMasterOff)?;
    by_pieces(ring, at, out, |iova, piece| memory.read(iova, piece))
}

/// Fills `out` from byte `at` of a queue of `size` bytes on, wrapping at its end. The queue begins
/// at byte `start` of the ring.
pub(crate) fn read_wrapping(
    bus: &mut Bus,
    reader: Reader,
    ring: &QueueMemory,
    (start, size): (u64, u64),
    at: u64,
    out: &mut [u8],
) -> Result<(), DmaError> {
    let mut at = at & (size - 1);
    let mut rest = out;
    while !rest.is_empty() {
        let n = rest.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
        let (piece, behind) = rest.split_at_mut(n);
        reader(bus, ring, start + at, piece)?;
        (rest, at) = (behind, 0);
    }
    Ok(())
}

fn by_pieces(
    ring: &QueueMemory,
    at: u64,
    out: &mut [u8],
    mut fill: impl FnMut(u64, &mut [u8]) -> Result<(), DmaError>,
) -> Result<(), DmaError> {
    let mut done = 0;
    while done < out.len() {
        let (iova, room) = ring.at(at + done as u64).ok_or(DmaError::Refused(0))?;
        let n = (out.len() - done).min(usize::try_from(room).unwrap_or(usize::MAX));
        fill(iova, &mut out[done..done + n])?;
        done += n;
    }
    Ok(())
}

/// Writes one entry, which never crosses a page.
pub(crate) fn write_entry(
    bus: &mut Bus,
    kind: Wrote,
    ring: &QueueMemory,
    at: u64,
    entry: &[u8],
) -> Result<(), DmaError> {
    let (iova, _) = ring.at(at).ok_or(DmaError::Refused(0))?;
    bus.write(kind, iova, entry)
}
