//! The RoCE address table.

/// One source address: what SET_ROCE_ADDRESS stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoceAddress {
    /// The GID; IPv4 in the last four bytes (the other twelve as the driver wrote them).
    pub(crate) gid: [u8; 16],
    /// Source MAC of frames.
    pub(crate) mac: [u8; 6],
    /// VLAN to tag with.
    pub(crate) vlan: Option<u16>,
    /// IPv4 rather than IPv6 (RoCEv2).
    pub(crate) ipv4: bool,
    /// RoCEv2 rather than v1.
    pub(crate) v2: bool,
}

/// All entries.
#[derive(Debug, Default)]
pub(crate) struct RoceTable {
    entries: Vec<Option<RoceAddress>>,
}

impl RoceTable {
    /// The entry, if one was set.
    pub(crate) fn get(&self, index: u32) -> Option<&RoceAddress> {
        self.entries.get(index as usize)?.as_ref()
    }
}
