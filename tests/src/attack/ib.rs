//! Packets of an InfiniBand link: datagrams, subnet management, ARP of IP over InfiniBand.

use std::net::Ipv4Addr;

use mlx5_model::ifc::subnet::smp as layout;
use mlx5_model::subnet::Smp;
use mlx5_model::wire::headers::Deth;
use mlx5_model::wire::ib::Packet;

use super::frame::QP1_KEY;

/// The first multicast LID: of the first group that a manager makes.
pub const BROADCAST_LID: u16 = 0xc000;
/// GID of the broadcast group of IPv4, of the default partition (RFC 4391, 4).
pub const BROADCAST_GID: u128 = 0xff12_401b_ffff_0000_0000_0000_ffff_ffff;
/// Q_Key of that group, as OpenSM chooses it.
pub const BROADCAST_KEY: u32 = 0x0b1b;
/// Destination queue pair of a packet for a group.
pub const GROUP_QPN: u32 = 0xff_ffff;

/// A LID and a queue pair.
pub type End = (u16, u32);

/// A datagram of the default partition without a global header.
#[must_use]
pub fn ib_datagram(from: End, to: End, qkey: u32, payload: &[u8]) -> Packet {
    let mut packet = Packet::management(to.0, from.0, &[0; 256]);
    packet.lrh.vl = 0;
    packet.bth.dest_qp = to.1 & 0xff_ffff;
    packet.ext.deth = Some(Deth { qkey, src_qp: from.1 & 0xff_ffff });
    packet.payload = payload.to_vec();
    packet
}

/// A datagram for QP1.
#[must_use]
pub fn ib_mad(from: End, to: u16, mad: &[u8]) -> Packet {
    ib_datagram(from, (to, 1), QP1_KEY, mad)
}

/// A subnet management packet that the LID routes.
#[must_use]
pub fn smp_by_lid(slid: u16, dlid: u16, smp: &Smp) -> Packet {
    Packet::management(dlid, slid, &smp.0)
}

/// One with a directed route over one cable, which it has passed.
#[must_use]
pub fn smp_over_cable(smp: &Smp) -> Packet {
    let mut smp = smp.directed(&[1]);
    smp.set(layout::hop_pointer, 1);
    Packet::management(0xffff, 0xffff, &smp.0)
}

/// A frame of ARP over InfiniBand (RFC 4391, 9.1). `from` is queue pair, GID and address.
#[must_use]
pub fn ipoib_arp(operation: u16, from: (u32, u128, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![8, 6, 0, 0, 0, 32, 8, 0, 20, 4];
    frame.extend(operation.to_be_bytes());
    frame.extend((from.0 & 0xff_ffff).to_be_bytes());
    frame.extend(from.1.to_be_bytes());
    frame.extend(from.2.octets());
    frame.extend([0; 20]);
    frame.extend(target.octets());
    frame
}
