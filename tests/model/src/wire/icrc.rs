//! The invariant CRC of RoCE: CRC-32 of Ethernet over what no router may change.
//!
//! Eight bytes of ones stand for the absent LRH. Every field a router or switch may rewrite
//! counts as ones. Nothing of the Ethernet header and no VLAN tag is covered.
//! Reference: IBTA volume 1, annex A17.3.3.

use crate::ifc::Field;
use crate::ifc::packet::{bth, ipv4, ipv6, udp};

/// Length of the ICRC.
pub const ICRC_LEN: usize = 4;

/// The four bytes that belong behind `datagram`: an IP packet from its version nibble up to,
/// but without, the ICRC itself. `l3` is the length of the IP header, `l4` that of the UDP header:
/// 0 behind a GRH.
///
/// Anything too short to have the masked fields simply has fewer of them: the result is then
/// meaningless, but never a panic.
#[must_use]
pub fn icrc(datagram: &[u8], l3: usize, l4: usize) -> [u8; ICRC_LEN] {
    let split = (l3 + l4 + bth::BYTES).min(datagram.len());
    let (head, tail) = datagram.split_at(split);
    // The longest head is IPv6, UDP and BTH; one that is longer (IPv4 options) is copied to the heap.
    let mut short = [0; ipv6::BYTES + udp::BYTES + bth::BYTES];
    let mut long = Vec::new();
    let masked = match short.get_mut(..split) {
        Some(short) => short,
        None => {
            long.resize(split, 0);
            &mut long
        }
    };
    masked.copy_from_slice(head);
    let mut ones = |base: usize, fields: &[Field]| {
        let bytes = masked.get_mut(base..).unwrap_or_default();
        for field in fields {
            field.set(bytes, u32::MAX);
        }
    };
    if ipv4::version.get(head) == 6 {
        ones(0, &[ipv6::traffic_class, ipv6::flow_label, ipv6::hop_limit]);
    } else {
        ones(0, &[ipv4::tos, ipv4::ttl, ipv4::header_checksum]);
    }
    if l4 != 0 {
        ones(l3, &[udp::checksum]);
    }
    ones(l3 + l4, &[bth::congestion_resv8a]);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[0xff; 8]);
    crc.update(masked);
    crc.update(tail);
    crc.finalize().to_le_bytes()
}
