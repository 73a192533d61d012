//! Frames of an attacker: whoever can put frames on the link, and has read the standards.
//!
//! Everything here is built from the published layouts (IBTA volume 1, chapter 12; RFC 826, 4861),
//! byte by byte, without the driver's own words: a field that the driver reads in the wrong place
//! must not be forged in the same wrong place.

pub mod frame;
pub mod honest;
pub mod ib;
pub mod mad;
pub mod storm;

pub use frame::{Nd, arp, datagram, nd, roce};
pub use mad::{Cm, Mad};

/// A MAC that belongs to no honest station.
pub const EVIL: [u8; 6] = [0x02, 0x66, 0x66, 0x66, 0x66, 0x66];

/// The MAC of an honest side of a [`Stage`](crate::pair::Stage).
#[must_use]
pub const fn station(side: usize) -> [u8; 6] {
    [0x02, 0xc9, 0x03, 0, 0, 1 + side as u8]
}
