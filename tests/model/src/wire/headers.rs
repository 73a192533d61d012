//! BTH and the extended transport headers: the part of a packet that RoCE and InfiniBand share.
//!
//! Reference: IBTA volume 1, 9.2 and 9.3.

use super::bytes::{Reader, push_u24};
use super::opcode::{self, Opcode, Service};
use crate::ifc::packet as layout;

/// Bytes of a BTH.
pub const BTH_LEN: usize = 12;

/// Base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Transport service.
    pub service: Service,
    /// Operation.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// Migration state; sent as 1, as a QP without alternate path does.
    pub migrated: bool,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Destination QP.
    pub dest_qp: u32,
    /// The sender wants an acknowledgement.
    pub ack_req: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length of the whole transfer.
    pub len: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to store, or to add.
    pub swap_add: u64,
    /// Value to match.
    pub compare: u64,
}

/// ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Kind and value.
    pub syndrome: u8,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Q_Key.
    pub qkey: u32,
    /// Source QP.
    pub src_qp: u32,
}

/// The extended headers of a packet; which are present follows from the opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// The shared receive queue an XRC request is for.
    pub xrc_srqn: Option<u32>,
    /// Remote address and length.
    pub reth: Option<Reth>,
    /// Atomic operands.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// The old value in an ATOMIC ACK.
    pub atomic_ack: Option<u64>,
    /// Datagram addressing.
    pub deth: Option<Deth>,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Key to invalidate.
    pub ieth: Option<u32>,
}

/// Why there is no BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadBth {
    /// Fewer bytes than a BTH.
    Short,
    /// Opcode reserved or of a service not implemented.
    Opcode(u8),
}

impl Bth {
    /// Appends the header; `pad` is the padding behind the payload.
    pub(crate) fn push(&self, out: &mut Vec<u8>, pad: u8) {
        out.push(opcode::join(self.service, self.opcode));
        out.push(u8::from(self.solicited) << 7 | u8::from(self.migrated) << 6 | pad << 4);
        out.extend_from_slice(&self.pkey.to_be_bytes());
        out.push(u8::from(self.fecn) << 7 | u8::from(self.becn) << 6);
        push_u24(out, self.dest_qp);
        out.push(u8::from(self.ack_req) << 7);
        push_u24(out, self.psn);
    }

    /// The BTH, PadCnt and TVer.
    pub(crate) fn parse(r: &mut Reader<'_>) -> Result<(Self, usize, u8), BadBth> {
        let raw: [u8; BTH_LEN] = r.array().ok_or(BadBth::Short)?;
        let [op, flags, p0, p1, cn, q0, q1, q2, ack, s0, s1, s2] = raw;
        let (service, opcode) = opcode::split(op).map_err(BadBth::Opcode)?;
        let bth = Self {
            service,
            opcode,
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pkey: u16::from_be_bytes([p0, p1]),
            fecn: cn & 0x80 != 0,
            becn: cn & 0x40 != 0,
            dest_qp: u32::from_be_bytes([0, q0, q1, q2]),
            ack_req: ack & 0x80 != 0,
            psn: u32::from_be_bytes([0, s0, s1, s2]),
        };
        Ok((bth, usize::from(flags >> 4 & 3), flags & 0x0f))
    }
}

impl Extended {
    /// Appends the headers that are present, in the order of IBTA.
    pub(crate) fn push(&self, out: &mut Vec<u8>) {
        if let Some(srqn) = self.xrc_srqn {
            out.push(0);
            push_u24(out, srqn);
        }
        if let Some(deth) = self.deth {
            out.extend_from_slice(&deth.qkey.to_be_bytes());
            out.push(0);
            push_u24(out, deth.src_qp);
        }
        if let Some(reth) = self.reth {
            out.extend_from_slice(&reth.va.to_be_bytes());
            out.extend_from_slice(&reth.rkey.to_be_bytes());
            out.extend_from_slice(&reth.len.to_be_bytes());
        }
        if let Some(atomic) = self.atomic {
            out.extend_from_slice(&atomic.va.to_be_bytes());
            out.extend_from_slice(&atomic.rkey.to_be_bytes());
            out.extend_from_slice(&atomic.swap_add.to_be_bytes());
            out.extend_from_slice(&atomic.compare.to_be_bytes());
        }
        if let Some(aeth) = self.aeth {
            let mut header = [0; layout::aeth::BYTES];
            layout::aeth::msn.set(&mut header, aeth.msn);
            layout::aeth::syndrome.set(&mut header, u32::from(aeth.syndrome));
            out.extend_from_slice(&header);
        }
        if let Some(old) = self.atomic_ack {
            out.extend_from_slice(&old.to_be_bytes());
        }
        if let Some(imm) = self.imm {
            out.extend_from_slice(&imm.to_be_bytes());
        }
        if let Some(rkey) = self.ieth {
            out.extend_from_slice(&rkey.to_be_bytes());
        }
    }

    /// The extended headers `opcode` calls for.
    pub(crate) fn parse(r: &mut Reader<'_>, service: Service, opcode: Opcode) -> Option<Self> {
        let has = opcode.headers();
        let mut x = Self::default();
        if service == Service::Xrc && !opcode.is_response() {
            x.xrc_srqn = Some(r.u32()? & 0xff_ffff);
        }
        if has.deth {
            let qkey = r.u32()?;
            x.deth = Some(Deth { qkey, src_qp: r.u32()? & 0xff_ffff });
        }
        if has.reth {
            x.reth = Some(Reth { va: r.u64()?, rkey: r.u32()?, len: r.u32()? });
        }
        if has.atomic {
            x.atomic = Some(AtomicEth {
                va: r.u64()?,
                rkey: r.u32()?,
                swap_add: r.u64()?,
                compare: r.u64()?,
            });
        }
        if has.aeth {
            let header: [u8; layout::aeth::BYTES] = r.array()?;
            x.aeth = Some(Aeth {
                syndrome: layout::aeth::syndrome.get(&header) as u8,
                msn: layout::aeth::msn.get(&header),
            });
        }
        if has.atomic_ack {
            x.atomic_ack = Some(r.u64()?);
        }
        if has.imm {
            x.imm = Some(r.u32()?);
        }
        if has.ieth {
            x.ieth = Some(r.u32()?);
        }
        Some(x)
    }
}

/// The padding that brings `len` to a multiple of 4.
pub(crate) fn pad_count(len: usize) -> u8 {
    match len % 4 {
        1 => 3,
        2 => 2,
        3 => 1,
        _ => 0,
    }
}
