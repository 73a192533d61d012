//! Configuration of a raw Ethernet port, and its sizes.

use crate::net::neigh::Mac;

/// Longest frame sent or received, without frame check sequence.
pub const FRAME_MAX: usize = 256;
/// Most MACs it can receive besides its own.
pub const GROUPS_MAX: usize = 7;

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;
/// Configuration of a port.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// Protection domain of the key.
    pub pd: u32,
    /// Key of the port's memory, addressed by device address: the reserved one, or a
    /// physical-address one of `pd`.
    pub lkey: u32,
    /// It is the reserved one.
    pub reserved: bool,
    /// MACs to receive besides the port's own, at most [`GROUPS_MAX`]: broadcast and the multicast
    /// groups.
    pub groups: &'a [Mac],
    /// The VLAN it is on.
    pub vlan: Option<u16>,
}
