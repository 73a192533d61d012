//! Memory of queues: one piece of the arena each, its ring first and its doorbell record behind, in a cache line of its
//! own.
//!
//! A ring no longer than a page lies inside one page; a longer one starts on a page. So a small queue takes no more of
//! the arena than it needs, and every ring's place in its first page can be told to the device.

use dat_core::provider::{Fault, FaultKind};

use super::ring::Record;
use crate::device::Device;
use crate::mem::pages::{MAX_PAGES, PageList};
use crate::platform::{Platform, Span};
use crate::words::fault;

/// Bytes of a cache line, which a doorbell record has to itself.
pub(crate) const LINE: usize = 64;
const PAGE: usize = 4096;

/// Where the page list starts in CREATE_CQ and CREATE_QP alike.
pub(crate) const PAGES_AT: usize = 0x110;
/// A create message: everything up to the page list, and the longest page list.
pub(crate) type Message = [u8; PAGES_AT + 8 * MAX_PAGES];
/// One without content.
pub(crate) const MESSAGE: Message = [0; PAGES_AT + 8 * MAX_PAGES];

/// Zeroed memory for rings of `len` bytes together (a multiple of 64) and one doorbell record, for a queue that the device
/// writes.
pub(crate) fn take<P: Platform>(platform: &P, len: usize) -> Result<Span, Fault> {
    taken(len, |len, align| platform.alloc(len, align))
}

/// The same for a queue that the device only reads: it is told of work there, and says elsewhere what became of it.
pub(crate) fn take_read_only<P: Platform>(platform: &P, len: usize) -> Result<Span, Fault> {
    taken(len, |len, align| platform.alloc_read_only(len, align))
}

fn taken(len: usize, alloc: impl FnOnce(usize, usize) -> Option<Span>) -> Result<Span, Fault> {
    let align = len
        .checked_next_power_of_two()
        .unwrap_or(PAGE)
        .clamp(LINE, PAGE);
    let len = len.checked_add(LINE);
    len.and_then(|len| alloc(len, align)).ok_or(fault!(
        Resources,
        "queue memory",
        "the arena is full",
        "make the arena larger, or the queues smaller"
    ))
}

/// Gives memory back after a command that failed with `fault`; at the teardown, if the device may still come to use it.
pub(crate) fn give_up<P: Platform>(device: &mut Device<'_, P>, memory: Span, fault: &Fault) {
    match fault.kind() {
        FaultKind::Resources
        | FaultKind::BadParameter
        | FaultKind::BadState
        | FaultKind::Unsupported
        | FaultKind::Unreachable => device.platform().free(memory),
        FaultKind::Timeout | FaultKind::Gone | FaultKind::Nonsense => device.disown(memory),
    }
}

/// What to say when the platform finds no entries in a span of its own.
pub(crate) const fn unseen() -> Fault {
    fault!(
        Nonsense,
        "queue memory",
        "the platform finds no entries in memory of its own arena"
    )
}

/// Device address of a doorbell record.
pub(crate) fn record_address<P: Platform>(platform: &P, record: Record) -> Result<u64, Fault> {
    let (iova, _) = platform.iova(record.first()).ok_or(fault!(
        Nonsense,
        "queue memory",
        "the platform knows no device address for memory of its own arena"
    ))?;
    Ok(iova)
}

/// The message with `list` in it, cut to its length.
pub(crate) fn with_pages<'m, P: Platform>(
    platform: &P,
    message: &'m mut Message,
    list: &PageList,
) -> &'m mut [u8] {
    list.write(platform, message, PAGES_AT);
    let len = PAGES_AT.saturating_add(8 * list.count);
    message.get_mut(..len).unwrap_or_default()
}
