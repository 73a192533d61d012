//! Whole packets with a BTH, built and parsed.

use super::crc::{VCRC_LEN, icrc, vcrc};
use super::link::{self, BadLink};
use super::{Grh, Lrh, Next, VL_MANAGEMENT, lid};
use crate::wire::bytes::Reader;
use crate::wire::headers::{BadBth, Bth, Deth, Extended, pad_count};
use crate::wire::icrc::ICRC_LEN;
use crate::wire::opcode::{Opcode, Service};

/// The P_Key that a port has before a subnet manager sets any: of the default partition, full
/// member (IBTA volume 1, 10.9).
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;

/// A packet with a BTH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Local route header; its `next` follows from `grh` when the packet is built.
    pub lrh: Lrh,
    /// Global route header.
    pub grh: Option<Grh>,
    /// BTH.
    pub bth: Bth,
    /// Extended headers.
    pub ext: Extended,
    /// Payload without padding.
    pub payload: Vec<u8>,
}

/// Why the port that a frame is for throws it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Malformed {
    /// Already wrong on the link.
    #[error(transparent)]
    Link(#[from] BadLink),
    /// A raw packet, which channel adapters of the model do not take.
    #[error("raw packet")]
    Raw,
    /// GRH of another version, next header or length.
    #[error("packet with an inconsistent global route header")]
    Grh,
    /// Ends within its transport headers or its padding.
    #[error("packet that ends within its headers")]
    Truncated,
    /// Invariant CRC wrong.
    #[error("packet with a wrong ICRC")]
    Icrc,
    /// Transport version other than 0.
    #[error("packet of another transport version")]
    Version,
    /// Opcode reserved or of a service not implemented.
    #[error("opcode {0:#04x} not known")]
    Opcode(u8),
}

impl From<BadBth> for Malformed {
    fn from(why: BadBth) -> Self {
        match why {
            BadBth::Short => Self::Truncated,
            BadBth::Opcode(byte) => Self::Opcode(byte),
        }
    }
}

impl Packet {
    /// A datagram with a MAD from queue pair 0 to queue pair 0, on VL 15 (IBTA volume 1, 14.2.1).
    #[must_use]
    pub fn management(dlid: u16, slid: u16, mad: &[u8; MAD_LEN]) -> Self {
        Self {
            lrh: Lrh { vl: VL_MANAGEMENT, sl: 0, next: Next::Bth, dlid, slid },
            grh: None,
            bth: Bth {
                service: Service::Ud,
                opcode: Opcode::UdSendOnly,
                solicited: false,
                migrated: false,
                pkey: DEFAULT_PKEY,
                fecn: false,
                becn: false,
                dest_qp: 0,
                ack_req: false,
                psn: 0,
            },
            ext: Extended { deth: Some(Deth { qkey: 0, src_qp: 0 }), ..Extended::default() },
            payload: mad.to_vec(),
        }
    }

    /// The MAD of a datagram from queue pair 0 to queue pair 0 without a GRH.
    #[must_use]
    pub fn subnet_mad(&self) -> Option<&[u8; MAD_LEN]> {
        let deth = self.ext.deth?;
        let is_smp = self.lrh.vl == VL_MANAGEMENT
            && self.grh.is_none()
            && self.bth.opcode == Opcode::UdSendOnly
            && (self.bth.dest_qp, deth.src_qp) == (0, 0)
            && lid::kind(self.lrh.dlid) != lid::Kind::Multicast;
        self.payload.as_slice().try_into().ok().filter(|_| is_smp)
    }

    /// The bytes of the global route header, if there is one.
    #[must_use]
    pub fn grh_bytes(&self) -> Option<[u8; super::grh::GRH_LEN]> {
        self.grh?;
        self.build().get(super::lrh::LRH_LEN..)?.first_chunk().copied()
    }

    /// The frame: headers, payload, zero padding, ICRC and VCRC. A length beyond what the LRH can
    /// say is cut to its eleven bits.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let pad = pad_count(self.payload.len());
        let mut transport = Vec::with_capacity(40 + self.payload.len());
        self.bth.push(&mut transport, pad);
        self.ext.push(&mut transport);
        transport.extend_from_slice(&self.payload);
        transport.extend(std::iter::repeat_n(0, usize::from(pad)));
        let behind_grh = transport.len() + ICRC_LEN;
        let grh_len = if self.grh.is_some() { super::grh::GRH_LEN } else { 0 };
        let words = (super::lrh::LRH_LEN + grh_len + behind_grh) / 4;
        let next = if self.grh.is_some() { Next::Grh } else { Next::Bth };
        let mut frame = Vec::with_capacity(words * 4 + VCRC_LEN);
        Lrh { next, ..self.lrh }.push(&mut frame, words as u16);
        if let Some(grh) = &self.grh {
            grh.push(&mut frame, behind_grh as u16);
        }
        frame.extend_from_slice(&transport);
        let crc = icrc(&frame, next);
        frame.extend_from_slice(&crc);
        let crc = vcrc(&frame);
        frame.extend_from_slice(&crc);
        frame
    }

    /// Checks and parses a frame.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let lrh = link::check(frame)?;
        if matches!(lrh.next, Next::RawEther | Next::RawIpv6) {
            return Err(Malformed::Raw);
        }
        let len = frame.len().checked_sub(ICRC_LEN + VCRC_LEN).ok_or(Malformed::Truncated)?;
        let (body, crcs) = frame.split_at_checked(len).ok_or(Malformed::Truncated)?;
        let mut r = Reader::new(body);
        r.array::<{ super::lrh::LRH_LEN }>().ok_or(Malformed::Truncated)?;
        let grh = match lrh.next {
            Next::Grh => {
                let (grh, len) = Grh::parse(&mut r).ok_or(Malformed::Grh)?;
                if usize::from(len) != r.rest().len() + ICRC_LEN {
                    return Err(Malformed::Grh);
                }
                Some(grh)
            }
            Next::Bth | Next::RawEther | Next::RawIpv6 => None,
        };
        let (bth, pad, version) = Bth::parse(&mut r)?;
        if !crcs.starts_with(&icrc(body, lrh.next)) {
            return Err(Malformed::Icrc);
        }
        if version != 0 {
            return Err(Malformed::Version);
        }
        let ext = Extended::parse(&mut r, bth.service, bth.opcode).ok_or(Malformed::Truncated)?;
        let len = r.rest().len().checked_sub(pad).ok_or(Malformed::Truncated)?;
        let payload = r.rest().get(..len).ok_or(Malformed::Truncated)?.to_vec();
        Ok(Self { lrh, grh, bth, ext, payload })
    }
}

/// The P_Key of an intact frame; raw packets have none.
#[must_use]
pub fn p_key(frame: &[u8]) -> Option<u16> {
    let mut r = Reader::new(frame);
    let (lrh, ..) = Lrh::parse(&mut r)?;
    match lrh.next {
        Next::RawEther | Next::RawIpv6 => return None,
        Next::Grh => drop(Grh::parse(&mut r)?),
        Next::Bth => {}
    }
    let [_, _, high, low] = r.array()?;
    Some(u16::from_be_bytes([high, low]))
}
