//! Receive-side scaling: the hash of a packet, which picks the receive queue and is reported in
//! the completion.
//!
//! PRM: TIR context, RX hash. Toeplitz over the selected fields in the order source address,
//! destination address, source port, destination port; or the XOR of their bytes with its bits in
//! reverse. The low bits of the result index the table of queues.

use super::ethernet::Headers;
use crate::ifc::wq::tirc;

const KEY_BYTES: usize = 40;
const TOEPLITZ: u32 = 2;
const INVERTED_XOR8: u32 = 1;

/// Headers and function of a TIR's hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hashing {
    function: u32,
    symmetric: bool,
    key: Vec<u8>,
    selector: u32,
}

/// A packet's hash: result and type as the completion has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hash {
    /// The result.
    pub(crate) result: u32,
    /// Hashed headers: bits 3:2 layer 3 (1 IPv4, 2 IPv6), bits 7:6 layer 4 (1 TCP, 2 UDP).
    pub(crate) kind: u8,
}

/// Bits of the field selector.
mod select {
    pub(super) const SOURCE: u32 = 1;
    pub(super) const DESTINATION: u32 = 2;
    pub(super) const SOURCE_PORT: u32 = 4;
    pub(super) const DESTINATION_PORT: u32 = 8;
    pub(super) const PORTS: u32 = SOURCE_PORT | DESTINATION_PORT;
}

impl Hashing {
    /// From a TIR context.
    pub(crate) fn of(context: &[u8]) -> Self {
        Self {
            function: tirc::rx_hash_fn.get(context),
            symmetric: tirc::rx_hash_symmetric.is_set(context),
            key: tirc::rx_hash_toeplitz_key.bytes(context).to_vec(),
            selector: tirc::rx_hash_field_selector_outer.get(context),
        }
    }

    /// The hash of a packet; zero of what has none of the selected fields.
    pub(crate) fn hash(&self, headers: &Headers, frame: &[u8]) -> Hash {
        let (from, size, l3) = match headers.ip_version {
            4 => (headers.l3 + 12, 4, 1),
            6 => (headers.l3 + 8, 16, 2),
            _ => return Hash::default(),
        };
        let piece = |at: usize, n: usize| frame.get(at..at + n).unwrap_or(&[]);
        let mut source = piece(from, size);
        let mut destination = piece(from + size, size);
        let (mut source_port, mut destination_port) = match headers.l4 {
            Some(at) => (piece(at, 2), piece(at + 2, 2)),
            None => (&[][..], &[][..]),
        };
        if self.symmetric {
            if source > destination {
                core::mem::swap(&mut source, &mut destination);
            }
            if source_port > destination_port {
                core::mem::swap(&mut source_port, &mut destination_port);
            }
        }
        let mut input = Vec::with_capacity(36);
        for (bit, bytes) in [
            (select::SOURCE, source),
            (select::DESTINATION, destination),
            (select::SOURCE_PORT, source_port),
            (select::DESTINATION_PORT, destination_port),
        ] {
            if self.selector & bit != 0 {
                input.extend_from_slice(bytes);
            }
        }
        if input.is_empty() {
            return Hash::default();
        }
        let l4 = match (headers.l4, self.selector & select::PORTS) {
            (None, _) | (_, 0) => 0,
            (Some(_), _) if headers.is_tcp() => 1,
            (Some(_), _) => 2,
        };
        let result = match self.function {
            TOEPLITZ => toeplitz(&self.key, &input),
            INVERTED_XOR8 => {
                let folded = input.iter().fold(0u8, |acc, byte| acc ^ byte);
                u32::from(folded.reverse_bits())
            }
            _ => return Hash::default(),
        };
        Hash { result, kind: (l3 << 2) | (l4 << 6) }
    }
}

/// The Toeplitz hash: for every bit set in the input, the 32 bits of the key that begin at its
/// place.
fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |at: usize| {
        let byte = key.get(at / 8).copied().unwrap_or(0);
        u32::from(byte >> (7 - at % 8)) & 1
    };
    let mut window = (0..32).fold(0, |acc, at| (acc << 1) | bit(at));
    let mut result = 0;
    for (at, byte) in input.iter().enumerate().take(KEY_BYTES) {
        for k in 0..8 {
            if byte >> (7 - k) & 1 != 0 {
                result ^= window;
            }
            window = (window << 1) | bit(at * 8 + k + 32);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::toeplitz;

    /// The key and vectors that Microsoft publishes for verification of RSS.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn toeplitz_agrees_with_published_vectors() {
        for (source, destination, ports, of_addresses, of_all) in [
            ([66, 9, 149, 187], [161, 142, 100, 80], [2794u16, 1766], 0x323e_8fc2, 0x51cc_c178),
            ([199, 92, 111, 2], [65, 69, 140, 83], [14230, 4739], 0xd718_262a, 0xc626_b0ea),
            ([24, 19, 198, 95], [12, 22, 207, 184], [12898, 38024], 0xd2d0_a5de, 0x5c2b_394a),
        ] {
            let mut input = [source, destination].concat();
            assert_eq!(toeplitz(&KEY, &input), of_addresses);
            for port in ports {
                input.extend(port.to_be_bytes());
            }
            assert_eq!(toeplitz(&KEY, &input), of_all);
        }
    }
}
