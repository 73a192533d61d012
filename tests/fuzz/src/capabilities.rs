//! What a device says of itself: capability pages, interface versions, adapter, port and vport.
//! The target `answers`, with answers to queries changed only, so that more of them are used.

/// QUERY_HCA_CAP, QUERY_ADAPTER, QUERY_PAGES, QUERY_ISSI, QUERY_VPORT_STATE,
/// QUERY_NIC_VPORT_CONTEXT, QUERY_ROCE_ADDRESS, QUERY_SPECIAL_CONTEXTS, ACCESS_REG.
const QUERIES: [u16; 9] = [0x100, 0x101, 0x107, 0x10a, 0x750, 0x754, 0x760, 0x203, 0x805];

/// Runs the target.
pub fn run(data: &[u8]) {
    crate::answers::with(data, |opcode| QUERIES.contains(&opcode));
}
