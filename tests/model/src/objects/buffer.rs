//! Reading and writing a queue's ring across its pages.

use crate::bus::{Bus, Wrote};
use crate::host::DmaError;
use crate::queue_memory::QueueMemory;

/// Fills `out` from byte `at` of the ring on.
pub(crate) fn read(
    bus: &mut Bus,
    ring: &QueueMemory,
    at: u64,
    out: &mut [u8],
) -> Result<(), DmaError> {
    let mut done = 0;
    while done < out.len() {
        let (iova, room) = ring.at(at + done as u64).ok_or(DmaError::Refused(0))?;
        let n = (out.len() - done).min(usize::try_from(room).unwrap_or(usize::MAX));
        bus.read(iova, &mut out[done..done + n])?;
        if bus.writes_queues {
            bus.write(Wrote::Other, iova, &out[done..done + n])?;
        }
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
