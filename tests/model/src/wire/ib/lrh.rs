//! The local route header.

use crate::wire::bytes::Reader;

/// Bytes of an LRH.
pub const LRH_LEN: usize = 8;

/// Link next header: what stands behind the LRH (IBTA volume 1, 7.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Next {
    /// A raw packet with an EtherType.
    RawEther = 0,
    /// A raw packet with an IPv6 header.
    RawIpv6 = 1,
    /// A BTH: the packet stays in the subnet.
    Bth = 2,
    /// A GRH, then a BTH.
    Grh = 3,
}

/// Local route header (IBTA volume 1, 7.7) without the packet length, which follows from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lrh {
    /// Virtual lane, 4 bits.
    pub vl: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// What follows.
    pub next: Next,
    /// Destination LID.
    pub dlid: u16,
    /// Source LID.
    pub slid: u16,
}

impl Lrh {
    /// Appends the header of a packet of `words` four-byte words, LRH and ICRC included.
    pub(super) fn push(&self, out: &mut Vec<u8>, words: u16) {
        out.push(self.vl << 4);
        out.push(self.sl << 4 | self.next as u8);
        out.extend_from_slice(&self.dlid.to_be_bytes());
        out.extend_from_slice(&(words & 0x7ff).to_be_bytes());
        out.extend_from_slice(&self.slid.to_be_bytes());
    }

    /// The header, the link version and the length in words. Reserved bits are ignored.
    pub(super) fn parse(r: &mut Reader<'_>) -> Option<(Self, u8, u16)> {
        let [lane, level] = r.array()?;
        let dlid = r.u16()?;
        let words = r.u16()? & 0x7ff;
        let slid = r.u16()?;
        let next = match level & 3 {
            0 => Next::RawEther,
            1 => Next::RawIpv6,
            2 => Next::Bth,
            _ => Next::Grh,
        };
        Some((Self { vl: lane >> 4, sl: level >> 4, next, dlid, slid }, lane & 0xf, words))
    }
}
