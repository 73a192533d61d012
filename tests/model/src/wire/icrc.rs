//! The invariant CRC of RoCE v2: CRC-32 of Ethernet over what no router may change.
//!
//! Eight bytes of ones stand for the absent LRH. Every field a router or switch may rewrite
//! counts as ones. Nothing of the Ethernet header and no VLAN tag is covered.
//! Reference: IBTA volume 1, annex A17.3.3.

/// Length of the ICRC.
pub const ICRC_LEN: usize = 4;

/// UDP header length.
const UDP_LEN: usize = 8;

/// The four bytes that belong behind `datagram`: an IP packet from its version nibble up to,
/// but without, the ICRC itself. `l3` is the length of the IP header.
///
/// Anything too short to have the masked fields simply has fewer of them: the result is then
/// meaningless, but never a panic.
#[must_use]
pub fn icrc(datagram: &[u8], l3: usize) -> [u8; ICRC_LEN] {
    let bth = l3 + UDP_LEN;
    let split = (bth + 12).min(datagram.len());
    let (head, tail) = datagram.split_at(split);
    let mut masked = head.to_vec();
    let mut ones = |at: usize| {
        if let Some(byte) = masked.get_mut(at) {
            *byte = 0xff;
        }
    };
    if head.first().is_some_and(|b| b >> 4 == 6) {
        // Traffic class and flow label share bytes 0 to 3 with the version, which stays.
        for at in 1..4 {
            ones(at);
        }
        ones(7);
    } else {
        for at in [1, 8, 10, 11] {
            ones(at);
        }
    }
    for at in [l3 + 6, l3 + 7, bth + 4] {
        ones(at);
    }
    if head.first().is_some_and(|b| b >> 4 == 6)
        && let Some(byte) = masked.first_mut()
    {
        *byte |= 0x0f;
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[0xff; 8]);
    crc.update(&masked);
    crc.update(tail);
    crc.finalize().to_le_bytes()
}
