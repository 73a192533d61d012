//! The two checksums of a frame.
//!
//! Both follow IBTA volume 1, 7.8: the least significant bit of a byte enters first, the register
//! begins as ones, the remainder is complemented and leaves with its highest term first. So both
//! are reflected CRCs that stand in the frame with their low byte first. The tests compare them
//! with the sample packet of that section and with frames that hardware captured.

use crc::{Algorithm, Crc};

use super::grh::GRH_LEN;
use super::lrh::{LRH_LEN, Next};
use crate::wire::headers::BTH_LEN;
use crate::wire::icrc::{ICRC_LEN, icrc as icrc_of_grh};

/// Length of the VCRC.
pub const VCRC_LEN: usize = 2;

/// CRC-16 with the generator 0x100b (IBTA volume 1, 7.8.2).
const VCRC: Crc<u16> = Crc::<u16>::new(&Algorithm {
    width: 16,
    poly: 0x100b,
    init: 0xffff,
    refin: true,
    refout: true,
    xorout: 0xffff,
    check: 0x0a3d,
    residue: 0x556f,
});

/// The variant CRC of a frame from the LRH up to and with the ICRC.
#[must_use]
pub fn vcrc(frame: &[u8]) -> [u8; VCRC_LEN] {
    VCRC.checksum(frame).to_le_bytes()
}

/// The invariant CRC of a frame from the LRH up to, but without, the ICRC (IBTA volume 1, 7.8.1).
///
/// In a local packet the VL counts as ones, and Resv8a of the BTH (the congestion bits among it).
/// In a global packet the whole LRH does, and the GRH's traffic class, flow label and hop limit:
/// the ICRC of RoCE v1.
#[must_use]
pub fn icrc(frame: &[u8], next: Next) -> [u8; ICRC_LEN] {
    if next == Next::Grh {
        return icrc_of_grh(frame.get(LRH_LEN..).unwrap_or_default(), GRH_LEN, 0);
    }
    let split = (LRH_LEN + BTH_LEN).min(frame.len());
    let (head, tail) = frame.split_at(split);
    let mut masked = [0; LRH_LEN + BTH_LEN];
    let masked = &mut masked[..split];
    masked.copy_from_slice(head);
    for (at, ones) in [(0, 0xf0), (LRH_LEN + 4, 0xff)] {
        if let Some(byte) = masked.get_mut(at) {
            *byte |= ones;
        }
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(masked);
    crc.update(tail);
    crc.finalize().to_le_bytes()
}
