//! What the InfiniBand extensions add: atomics, immediates, datagrams.

use core::net::IpAddr;

use crate::provider::Atomic;
use crate::provider::Destination;
use crate::provider::Segment;
use crate::testing::exec::Outcome;
use crate::testing::exec::RQ_UDSDPRD;
use crate::testing::fabric::Memory;
use crate::testing::fabric::Segments;
use crate::testing::fabric::State;
use crate::testing::fabric::offset;
use crate::testing::keys::Pieces;
use crate::testing::keys::Wish;
use crate::testing::keys::addresses;
use crate::testing::keys::length;
use crate::types::completion::Arrived;
use crate::types::completion::Direction;
use crate::types::completion::Extra;
use crate::types::completion::Status;
use crate::types::completion::{GRH_LEN, NetworkHeader};
use crate::types::flags::Access;

impl Memory {
    /// Carries out an atomic whose two sides have been checked.
    pub(super) fn atomic(&mut self, into: &Pieces, at: &Pieces, atomic: Atomic) -> Outcome {
        let mut bytes = [0; 8];
        let at = at.first().and_then(|piece| offset(piece.addr));
        let at = at.and_then(|at| self.memory.get_mut(at..)?.first_chunk_mut());
        if let Some(place) = at {
            bytes = *place;
            let old = u64::from_ne_bytes(bytes);
            let new = match atomic {
                Atomic::FetchAdd(add) => old.wrapping_add(add),
                Atomic::CmpSwap { compare, swap } if compare == old => swap,
                Atomic::CmpSwap { .. } => old,
            };
            *place = new.to_ne_bytes();
        }
        self.scatter(into, &bytes);
        Outcome::Done(Status::Success, 8)
    }

    /// Takes a receive for an immediate that came with a write.
    pub(super) fn announce(
        &mut self,
        far: usize,
        number: usize,
        len: u32,
        immediate: u32,
    ) -> Outcome {
        let extra = Extra { arrived: Arrived::WriteImmediate, immediate, ..Extra::default() };
        if let Some((receive, _)) = self.take_receive(far, number) {
            let result = (len, extra);
            self.complete_with(
                far,
                number,
                Direction::Recv,
                receive.token,
                Status::Success,
                result,
            );
        }
        Outcome::Done(Status::Success, 0)
    }

    /// Sends a datagram, and delivers it if there is somebody who takes it.
    pub(super) fn datagram(
        &mut self,
        port: usize,
        number: usize,
        list: &Segments,
        to: &Destination,
        immediate: Option<u32>,
    ) -> Outcome {
        let Some(pd) = self.qp(port, number).map(|qp| qp.pd) else {
            return Outcome::Wait;
        };
        let wish = Wish { pd, qp: number, access: Access::LOCAL_READ };
        let Some(pieces) = self.open_segments(port, wish, list) else {
            return Outcome::Done(Status::LocalProtection, 0);
        };
        let addr_of = |port: &crate::testing::fabric::Port| port.addr;
        let from = self.ports.get(port).and_then(addr_of);
        let far = self.ports.iter().position(|p| p.open && p.addr == Some(to.path.remote));
        if let (Some(from), Some(far)) = (from, far) {
            let extra = Extra {
                arrived: if immediate.is_some() { Arrived::Immediate } else { Arrived::Message },
                immediate: immediate.unwrap_or(0),
                source_qpn: crate::testing::FIRST_QPN | number as u32,
                solicited: false,
                network: if from.is_ipv4() { NetworkHeader::V4 } else { NetworkHeader::V6 },
            };
            self.take(far, to, &pieces, &header(from, to.path.remote), extra);
        }
        Outcome::Done(Status::Success, 0)
    }

    /// The far end of a datagram; what it cannot take is lost.
    fn take(
        &mut self,
        far: usize,
        to: &Destination,
        list: &Pieces,
        header: &[u8; GRH_LEN],
        extra: Extra,
    ) {
        let number = (to.qpn & 0xff) as usize;
        let Some(peer) = self.qp(far, number) else {
            return;
        };
        let len = length(list) + GRH_LEN as u32;
        let fits = peer.recvs.front().is_some_and(|receive| length(&receive.segments) >= len);
        if peer.state != State::Rts || peer.qkey != Some(to.qkey) || !fits {
            self.count(far, RQ_UDSDPRD);
            return;
        }
        let pd = peer.pd;
        let Some(receive) = peer.recvs.pop_front() else {
            return;
        };
        let token = receive.token;
        let wish = Wish { pd, qp: number, access: Access::LOCAL_WRITE };
        let Some(mut rest) = self.open_segments(far, wish, &receive.segments) else {
            self.complete(far, number, Direction::Recv, token, Status::LocalProtection, 0);
            return;
        };
        self.scatter(&rest, header);
        let mut skip = GRH_LEN as u32;
        for segment in &mut rest {
            let cut = skip.min(segment.len);
            *segment = Segment {
                addr: segment.addr + u64::from(cut),
                len: segment.len - cut,
                lkey: segment.lkey,
            };
            skip -= cut;
        }
        self.copy(list, &rest, length(list));
        self.complete_with(far, number, Direction::Recv, token, Status::Success, (len, extra));
    }

    /// Puts bytes into segments that have been checked, as far as they have room.
    fn scatter(&mut self, to: &Pieces, bytes: &[u8]) {
        for (addr, byte) in addresses(to).zip(bytes) {
            if let Some(place) = offset(addr).and_then(|at| self.memory.get_mut(at)) {
                *place = *byte;
            }
        }
    }
}

/// The header of a packet, as a receive has it in front of a datagram.
fn header(from: IpAddr, to: IpAddr) -> [u8; GRH_LEN] {
    let mut bytes = [0; GRH_LEN];
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let [a, b, c, d] = from.octets();
            let [e, f, g, h] = to.octets();
            let mut v4 = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, a, b, c, d, e, f, g, h];
            let words = v4.chunks_exact(2).filter_map(<[_]>::first_chunk::<2>);
            let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            let [high, low] = (!(sum as u16)).to_be_bytes();
            (v4[10], v4[11]) = (high, low);
            if let Some(last) = bytes.last_chunk_mut() {
                *last = v4;
            }
        }
        (from, to) => {
            let v6 = |address| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let parts = [0x60, 0, 0, 0, 0, 0, 17, 64].into_iter().chain(v6(from)).chain(v6(to));
            for (byte, part) in bytes.iter_mut().zip(parts) {
                *byte = part;
            }
        }
    }
    bytes
}
