//! Work requests: from the bytes of a ring to what the transport carries out.
//!
//! A send WQE arrives here as `DS * 16` bytes already joined at the ring's end, so this file knows
//! no ring. It never trusts a length: what does not parse is a local QP operation or length error
//! of that WQE. PRM: send WQE construction; segment formats.
//!
//! Not here: the Ethernet segment (`ethernet.rs`), the meaning of UMR segments (`umr.rs`).

use crate::config::LinkLayer;
use crate::function::TERMINATE_MKEY;
use crate::ifc::wqe::{wqe_atomic, wqe_av, wqe_ctrl, wqe_data, wqe_inline, wqe_raddr, wqe_xrc};
use crate::transport::host::{
    BadWqe, DataSegment, Datagram, Fence, GlobalPath, IbPath, Operation, Path, Payload, QpKind,
    RecvWqe, RemoteAddress, RocePath, SendWqe, Syndrome, Trailer, UmrWqe,
};
use std::net::{IpAddr, Ipv6Addr};

/// Bytes of a WQE basic block.
pub(crate) const WQEBB: usize = 64;
/// Most basic blocks in one WQE.
pub(crate) const MAX_WQEBBS: u16 = 16;
/// The key that ends a receive's scatter list where no special one is offered.
const TERMINATE_LKEY: u32 = 0x100;

const NOP: u8 = 0x00;
const SEND_INVAL: u8 = 0x01;
const RDMA_WRITE: u8 = 0x08;
const RDMA_WRITE_IMM: u8 = 0x09;
const SEND: u8 = 0x0a;
const SEND_IMM: u8 = 0x0b;
const RDMA_READ: u8 = 0x10;
const ATOMIC_CS: u8 = 0x11;
const ATOMIC_FA: u8 = 0x12;
const LOCAL_INVAL: u8 = 0x1b;
const UMR: u8 = 0x25;

/// The 16 bytes every send WQE begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    /// Opcode.
    pub(crate) opcode: u8,
    /// Opcode modifier.
    pub(crate) opmod: u8,
    /// Index of the first basic block.
    pub(crate) index: u16,
    /// Number of the queue.
    pub(crate) qpn: u32,
    /// Size in 16-byte units, this segment included.
    pub(crate) ds: u8,
    /// Fence mode.
    pub(crate) fence: u8,
    /// When a completion is written.
    pub(crate) completion: u8,
    /// Solicited event.
    pub(crate) solicited: bool,
    /// Immediate, key to invalidate, UMR target, TIS.
    pub(crate) imm: u32,
}

impl Control {
    /// Reads the segment.
    pub(crate) fn parse(bytes: &[u8; 16]) -> Self {
        Self {
            opmod: wqe_ctrl::opmod.get(bytes) as u8,
            index: wqe_ctrl::wqe_index.get(bytes) as u16,
            opcode: wqe_ctrl::opcode.get(bytes) as u8,
            qpn: wqe_ctrl::qpn.get(bytes),
            ds: wqe_ctrl::ds.get(bytes) as u8,
            fence: wqe_ctrl::fm.get(bytes) as u8,
            completion: wqe_ctrl::ce.get(bytes) as u8,
            solicited: wqe_ctrl::se.is_set(bytes),
            imm: wqe_ctrl::imm.get(bytes),
        }
    }

    /// Basic blocks of the WQE, at least one.
    pub(crate) fn bbs(&self) -> u16 {
        u16::from(self.ds).div_ceil(4).max(1)
    }

    /// Whether success makes a completion.
    pub(crate) const fn signaled(&self) -> bool {
        self.completion >= 2
    }
}

/// Parses a send WQE of `bytes` (all of its DS) for a QP of that kind on a port of that kind.
pub(crate) fn parse_send(bytes: &[u8], kind: QpKind, link: LinkLayer) -> Result<SendWqe, BadWqe> {
    let head: [u8; 16] = bytes.first_chunk().copied().ok_or(BadWqe {
        syndrome: Syndrome::LocalQpOperation,
        bbs: 1,
        opcode: 0,
    })?;
    let control = Control::parse(&head);
    let bad = |syndrome| BadWqe { syndrome, bbs: control.bbs(), opcode: control.opcode };
    let mut rest = bytes.get(16..).unwrap_or(&[]);
    let mut av = None;
    let sends = matches!(control.opcode, SEND | SEND_IMM | SEND_INVAL);
    if matches!(kind, QpKind::Ud | QpKind::Gsi | QpKind::Smi) && sends {
        let segment = rest.get(..48).ok_or(bad(Syndrome::LocalQpOperation))?;
        av = Some(datagram(segment, link).map_err(bad)?);
        rest = &rest[48..];
    }
    let mut xrc_srqn = None;
    let remote =
        matches!(control.opcode, RDMA_WRITE | RDMA_WRITE_IMM | RDMA_READ | ATOMIC_CS | ATOMIC_FA);
    if kind == QpKind::XrcInitiator && (sends || remote) {
        let segment = rest.get(..16).ok_or(bad(Syndrome::LocalQpOperation))?;
        xrc_srqn = Some(wqe_xrc::xrc_srqn.get(segment));
        rest = &rest[16..];
    }
    if !allowed(control.opcode, kind) {
        return Err(bad(Syndrome::LocalQpOperation));
    }
    let operation = operation(&control, rest).map_err(bad)?;
    Ok(SendWqe {
        index: control.index,
        bbs: control.bbs(),
        opcode: control.opcode,
        signaled: control.signaled(),
        fence: match control.fence {
            0 => Fence::None,
            1 => Fence::InitiatorSmall,
            2 => Fence::Fence,
            4 => Fence::SmallAndFence,
            // 3, and the undefined values: the safe reading.
            _ => Fence::Strong,
        },
        solicited: control.solicited,
        operation,
        av,
        xrc_srqn,
    })
}

fn allowed(opcode: u8, kind: QpKind) -> bool {
    match kind {
        QpKind::Rc | QpKind::XrcInitiator => true,
        QpKind::Uc => matches!(
            opcode,
            NOP | SEND | SEND_IMM | RDMA_WRITE | RDMA_WRITE_IMM | UMR | LOCAL_INVAL
        ),
        QpKind::XrcTarget => false,
        QpKind::Ud | QpKind::Gsi | QpKind::Smi => matches!(opcode, NOP | SEND | SEND_IMM),
        QpKind::RegUmr => matches!(opcode, NOP | UMR | LOCAL_INVAL),
    }
}

fn operation(control: &Control, rest: &[u8]) -> Result<Operation, Syndrome> {
    Ok(match control.opcode {
        NOP => Operation::Nop,
        SEND => Operation::Send { trailer: Trailer::None, data: parse_payload(rest)? },
        SEND_IMM => {
            Operation::Send { trailer: Trailer::Imm(control.imm), data: parse_payload(rest)? }
        }
        SEND_INVAL => Operation::Send {
            trailer: Trailer::Invalidate(control.imm),
            data: parse_payload(rest)?,
        },
        RDMA_WRITE | RDMA_WRITE_IMM => {
            let (remote, data) = remote(rest)?;
            let imm = (control.opcode == RDMA_WRITE_IMM).then_some(control.imm);
            Operation::Write { remote, imm, data: parse_payload(data)? }
        }
        RDMA_READ => {
            let (remote, data) = remote(rest)?;
            Operation::Read { remote, into: pointers(data)? }
        }
        ATOMIC_CS | ATOMIC_FA => {
            let (remote, data) = remote(rest)?;
            let operands = data.get(..16).ok_or(Syndrome::LocalQpOperation)?;
            let into = pointers(&data[16..])?;
            if into.iter().map(|s| u64::from(s.len)).sum::<u64>() != 8 {
                return Err(Syndrome::LocalLength);
            }
            let (first, second) =
                (wqe_atomic::swap_add.get64(operands), wqe_atomic::compare.get64(operands));
            if control.opcode == ATOMIC_CS {
                Operation::CompareSwap { remote, swap: first, compare: second, into }
            } else {
                Operation::FetchAdd { remote, add: first, into }
            }
        }
        LOCAL_INVAL => Operation::LocalInvalidate(control.imm),
        UMR => Operation::Umr(UmrWqe {
            mkey: control.imm,
            fence: control.fence,
            segments: rest.to_vec(),
        }),
        _ => return Err(Syndrome::LocalQpOperation),
    })
}

fn remote(rest: &[u8]) -> Result<(RemoteAddress, &[u8]), Syndrome> {
    let segment = rest.get(..16).ok_or(Syndrome::LocalQpOperation)?;
    let remote = RemoteAddress {
        va: wqe_raddr::raddr.get64(segment),
        rkey: wqe_raddr::rkey.get(segment),
        pool: None,
    };
    Ok((remote, &rest[16..]))
}

/// One data pointer; a count of zero means 2 GiB to the hardware.
fn pointer(segment: &[u8]) -> DataSegment {
    let count = wqe_data::byte_count.get(segment);
    DataSegment {
        len: if count == 0 { 1 << 31 } else { count },
        lkey: wqe_data::lkey.get(segment),
        addr: wqe_data::addr.get64(segment),
    }
}

/// Data pointers to the end of the WQE; inline data is no place to write to.
fn pointers(rest: &[u8]) -> Result<Vec<DataSegment>, Syndrome> {
    rest.chunks(16)
        .map(|segment| {
            if segment.len() < 16 || wqe_data::inline.is_set(segment) {
                Err(Syndrome::LocalQpOperation)
            } else {
                Ok(pointer(segment))
            }
        })
        .collect()
}

/// The message of a SEND or WRITE: pointers, or inline data. Inline data followed by pointers
/// failed now and then on silicon; here it always does.
pub(crate) fn parse_payload(rest: &[u8]) -> Result<Payload, Syndrome> {
    if !wqe_inline::inline.is_set(rest) {
        return pointers(rest).map(Payload::Segments);
    }
    let mut bytes = Vec::new();
    let mut left = rest;
    while !left.is_empty() {
        if left.len() < wqe_inline::BYTES || !wqe_inline::inline.is_set(left) {
            return Err(Syndrome::LocalLength);
        }
        let len = wqe_inline::byte_count.get(left) as usize;
        let data = left.get(4..4 + len).ok_or(Syndrome::LocalLength)?;
        bytes.extend_from_slice(data);
        left = left.get((4 + len).next_multiple_of(16)..).unwrap_or(&[]);
    }
    Ok(Payload::Inline(bytes))
}

/// An address vector. Only the extended form (48 bytes) is known, as every driver sends it.
fn datagram(segment: &[u8], link: LinkLayer) -> Result<Datagram, Syndrome> {
    if !wqe_av::ext.is_set(segment) {
        return Err(Syndrome::LocalQpOperation);
    }
    let mut dmac = [0; 6];
    dmac.copy_from_slice(wqe_av::rmac.bytes(segment));
    let mut dgid = [0; 16];
    dgid.copy_from_slice(wqe_av::rgid.bytes(segment));
    let path = match link {
        LinkLayer::Ethernet => Path::Roce(RocePath {
            source_index: wqe_av::src_addr_index.get(segment) as u16,
            dmac,
            dst: ip_of(dgid),
            hop_limit: wqe_av::hop_limit.get(segment) as u8,
            tclass: wqe_av::tclass.get(segment) as u8,
            flow_label: wqe_av::flow_label.get(segment),
            udp_sport: wqe_av::rlid_udp_sport.get(segment) as u16,
            // On RoCE the service level holds the priority, shifted by one.
            priority: wqe_av::sl.get(segment) as u8 >> 1,
        }),
        LinkLayer::InfiniBand => Path::Ib(IbPath {
            dlid: wqe_av::rlid_udp_sport.get(segment) as u16,
            path_bits: wqe_av::mlid.get(segment) as u8,
            sl: wqe_av::sl.get(segment) as u8,
            global: wqe_av::grh.is_set(segment).then_some(GlobalPath {
                source_index: wqe_av::src_addr_index.get(segment) as u8,
                dgid,
                tclass: wqe_av::tclass.get(segment) as u8,
                flow_label: wqe_av::flow_label.get(segment),
                hop_limit: wqe_av::hop_limit.get(segment) as u8,
            }),
        }),
    };
    Ok(Datagram { path, qpn: wqe_av::dqpn.get(segment), qkey: wqe_av::qkey.get(segment) })
}

/// A GID as an IP address: an IPv4-mapped one is IPv4.
pub(crate) fn ip_of(gid: [u8; 16]) -> IpAddr {
    let v6 = Ipv6Addr::from(gid);
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
}

/// Parses a receive WQE: data pointers to the stride's end or the terminating key.
pub(crate) fn parse_recv(index: u16, stride: &[u8]) -> RecvWqe {
    let segments = stride
        .chunks_exact(16)
        .take_while(|s| {
            let ends = [TERMINATE_LKEY, TERMINATE_MKEY].contains(&wqe_data::lkey.get(s));
            wqe_data::byte_count.get(s) != 0 || !ends
        })
        .map(pointer)
        .collect();
    RecvWqe { index, segments, pool: None }
}
