//! The global route header.

use crate::wire::bytes::Reader;

/// Bytes of a GRH.
pub const GRH_LEN: usize = 40;
/// Next header of a GRH: a BTH (IBTA volume 1, 8.3).
const NEXT_IBA: u8 = 0x1b;

/// A GID: subnet prefix and GUID.
pub type Gid = [u8; 16];

/// Global route header (IBTA volume 1, 8.3) without version, payload length and next header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// Traffic class.
    pub tclass: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source GID.
    pub sgid: Gid,
    /// Destination GID.
    pub dgid: Gid,
}

impl Grh {
    /// Appends the header; `len` counts the bytes behind it up to and with the ICRC.
    pub(super) fn push(&self, out: &mut Vec<u8>, len: u16) {
        let word = 6 << 28 | u32::from(self.tclass) << 20 | self.flow_label & 0xf_ffff;
        out.extend_from_slice(&word.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&[NEXT_IBA, self.hop_limit]);
        out.extend_from_slice(&self.sgid);
        out.extend_from_slice(&self.dgid);
    }

    /// The header and its payload length; `None` also of another version or next header.
    pub(super) fn parse(r: &mut Reader<'_>) -> Option<(Self, u16)> {
        let word = r.u32()?;
        let len = r.u16()?;
        let [next, hop_limit] = r.array()?;
        let grh = Self {
            tclass: u8::try_from(word >> 20 & 0xff).ok()?,
            flow_label: word & 0xf_ffff,
            hop_limit,
            sgid: r.array()?,
            dgid: r.array()?,
        };
        (word >> 28 == 6 && next == NEXT_IBA).then_some((grh, len))
    }
}
