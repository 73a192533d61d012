//! Frames on an InfiniBand link: LRH, GRH, the transport headers, payload, ICRC and VCRC.
//!
//! [`link::check`] is what every port does with a frame, [`packet::Packet::parse`] what the port
//! does that the frame is for. Flow control packets do not exist here: the wire of the model has
//! no credits. Reference: IBTA volume 1, chapters 7 to 9.

pub mod crc;
pub mod grh;
pub mod lid;
pub mod link;
pub mod lrh;
pub mod packet;

pub use grh::Grh;
pub use link::BadLink;
pub use lrh::{Lrh, Next};
pub use packet::{Malformed, Packet};

/// The virtual lane of subnet management packets (IBTA volume 1, 7.6).
pub const VL_MANAGEMENT: u8 = 15;

#[cfg(test)]
mod tests;
