//! The most that one [`service`](crate::Device::service) of the driver does, however fast the
//! device or a peer writes. What is left waits, and the next deadline says that there is more.

use core::time::Duration;

/// Entries read from one event queue.
pub(crate) const EVENTS: usize = 64;
/// Page requests answered.
pub(crate) const PAGE_REQUESTS: usize = 8;
/// No answer to a page request begins later, and no pages are waited for.
pub(crate) const ANSWERS: Duration = Duration::from_secs(5);
/// A request for pages is waited for so long after a command was refused for want of resources.
pub(crate) const PAGE_EVENT: Duration = Duration::from_millis(10);
/// A command that is refused so is tried again, after the firmware has got what it asked for, at
/// most so often.
pub(crate) const FEEDS: usize = 4;
/// Completions taken from QP1's receive queue, of which each may be a datagram.
pub(crate) const DATAGRAMS: u16 = 512;
/// Completions taken from the raw Ethernet port, of which each may be a frame; and frames sent.
pub(crate) const FRAMES: usize = 128;
/// Requests to the port's own agent that came by QP0, each a command.
pub(crate) const AGENT: usize = 8;
/// Entries of no known kind that one poll of a completion queue skips.
pub(crate) const NONSENSE: u32 = 64;
/// Least time between two attempts to start QP1 anew: a few commands each.
pub(crate) const RESTART: Duration = Duration::from_millis(10);
