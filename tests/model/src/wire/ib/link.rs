//! What a port checks of every frame before it looks further.

use super::crc::{VCRC_LEN, vcrc};
use super::lrh::{LRH_LEN, Lrh, Next};
use crate::wire::bytes::Reader;

/// The least length of a raw packet in words (IBTA volume 1, 7.7).
const LEAST_RAW: u16 = 5;
/// The least length of a packet with a BTH: LRH, BTH, ICRC.
const LEAST_IBA: u16 = 6;
/// What may stand beside the payload in a frame, without the VCRC (IBTA volume 1, 7.7).
const LARGEST_HEADERS: usize = 124;

/// Why a port throws a frame away (IBTA volume 1, 7.4, data packet check).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum BadLink {
    /// Shorter than an LRH and a VCRC.
    #[error("frame shorter than its local route header")]
    Short,
    /// Variant CRC wrong.
    #[error("frame with a wrong VCRC")]
    Vcrc,
    /// Link version other than 0.
    #[error("frame of another link version")]
    Version,
    /// The length of the LRH is not that of the frame, or too small for what follows.
    #[error("frame of another length than its local route header says")]
    Length,
}

/// Checks the VCRC, the link version and the length of a frame.
pub fn check(frame: &[u8]) -> Result<Lrh, BadLink> {
    let body = frame.len().checked_sub(VCRC_LEN).filter(|len| *len >= LRH_LEN);
    let (body, crc) = frame.split_at(body.ok_or(BadLink::Short)?);
    if vcrc(body) != *crc {
        return Err(BadLink::Vcrc);
    }
    let (lrh, version, words) = Lrh::parse(&mut Reader::new(body)).ok_or(BadLink::Short)?;
    if version != 0 {
        return Err(BadLink::Version);
    }
    let least = match lrh.next {
        Next::RawEther | Next::RawIpv6 => LEAST_RAW,
        Next::Bth | Next::Grh => LEAST_IBA,
    };
    if words < least || usize::from(words) * 4 != body.len() {
        return Err(BadLink::Length);
    }
    Ok(lrh)
}

/// Puts an intact frame on another virtual lane: the VCRC is made anew, the ICRC stays.
pub fn set_vl(frame: &mut [u8], vl: u8) {
    let Some(len) = frame.len().checked_sub(VCRC_LEN) else { return };
    let (body, crc) = frame.split_at_mut(len);
    if let Some(lane) = body.first_mut() {
        *lane = vl << 4 | *lane & 0xf;
    }
    crc.copy_from_slice(&vcrc(body));
}

/// Whether a link whose MTU is `mtu` bytes carries the frame.
#[must_use]
pub fn fits(frame: &[u8], mtu: usize) -> bool {
    frame.len() <= mtu + LARGEST_HEADERS + VCRC_LEN
}
