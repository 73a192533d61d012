//! Memory of queues: one piece of the arena each, its ring first and its doorbell record behind, in
//! a cache line of its own.
//!
//! A ring no longer than a page lies inside one page; a longer one starts on a page. So a small
//! queue takes no more of the arena than it needs, and the device can be given every ring's
//! offset in its first page.

use dat_core::fault;
use dat_core::provider::Fault;

use crate::data::ring::Record;
use crate::device::page_list::{MAX_PAGES, PageList};
use crate::platform::{Platform, Reach, Span};

/// Bytes of a cache line, which a doorbell record has to itself.
pub(crate) const LINE: usize = 64;
const PAGE: usize = 4096;

/// Where the page list starts in CREATE_CQ and CREATE_QP alike.
pub(crate) const PAGES_AT: usize = 0x110;
/// A create message: everything up to the page list, and the longest page list.
pub(crate) type Message = [u8; PAGES_AT + 8 * MAX_PAGES];
/// One without content.
pub(crate) const MESSAGE: Message = [0; PAGES_AT + 8 * MAX_PAGES];

/// Zeroed memory for rings of `len` bytes together (a multiple of 64) and one doorbell record. The
/// device only reads a queue of work: it says elsewhere what became of that.
pub(crate) fn take<P: Platform>(platform: &P, len: usize, reach: Reach) -> Result<Span, Fault> {
    let (len, align) = room(len);
    platform.alloc(len, align, reach).ok_or(FULL)
}

const FULL: Fault = fault!(
    Resources,
    "queue memory",
    "the arena is full",
    "make the arena larger, or the queues smaller"
);

/// Bytes of rings of `len` bytes and their record, and what they are aligned to.
#[inline(never)]
fn room(len: usize) -> (usize, usize) {
    let align = len.checked_next_power_of_two().unwrap_or(PAGE).clamp(LINE, PAGE);
    // There is no arena of that size.
    (len.saturating_add(LINE), align)
}

/// Returns the fault for a platform that finds no entries in a span of its own.
pub(crate) const fn unseen() -> Fault {
    fault!(Nonsense, "queue memory", "the platform finds no entries in memory of its own arena")
}

/// Device address of a doorbell record.
#[inline(never)]
pub(crate) fn record_address<P: Platform>(platform: &P, record: Record) -> Result<u64, Fault> {
    let (iova, _) = platform.iova(record.first()).ok_or(fault!(
        Nonsense,
        "queue memory",
        "the platform knows no device address for memory of its own arena"
    ))?;
    Ok(iova)
}

/// Where a ring is, as a queue's context and its message say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    /// `page_offset` of the context.
    pub(crate) offset: u8,
    /// `log_page_size` of the context.
    pub(crate) log_size: u8,
    /// Bytes of the message.
    len: usize,
}

impl Pages {
    /// Those of a ring, whose list goes into `message`.
    #[inline(never)]
    pub(crate) fn of<P: Platform>(
        platform: &P,
        ring: Span,
        message: &mut Message,
    ) -> Result<Self, Fault> {
        let list = PageList::queue(platform, ring)?;
        list.write(platform, 0, message.get_mut(PAGES_AT..).unwrap_or_default());
        let (offset, log_size) = list.queue_geometry();
        Ok(Self { offset, log_size, len: PAGES_AT.saturating_add(8 * list.count) })
    }

    /// The message, cut to its length.
    pub(crate) fn cut<'m>(&self, message: &'m mut Message) -> &'m mut [u8] {
        message.get_mut(..self.len).unwrap_or_default()
    }
}
