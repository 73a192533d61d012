//! Multicast groups: which datagram QPs get a copy of what is sent to a group.
//!
//! A QP is attached by ATTACH_TO_MCG and named by nobody on the wire: a multicast packet is for QP
//! 0xffffff, and every QP attached to the destination's group receives it. The device's own packets
//! come back to its own members, except to those that block them. PRM: ATTACH_TO_MCG,
//! DETACH_FROM_MCG.

use super::traffic::with_engine;
use super::wqe::ip_of;
use crate::cmd::{Refusal, Status};
use crate::hca::Hca;
use crate::ifc::caps::cmd_hca_cap as cap;
use crate::ifc::qp::{mcg_in, qpc};
use crate::table::{Counts, Set, Table};
use crate::transport::host::QpKind;
use crate::transport::packet::Packet;
use crate::wire::frame;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The QPN of every multicast packet.
pub(super) const MULTICAST_QPN: u32 = 0xff_ffff;

/// The groups with members.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// By GID.
    members: Table<[u8; 16], Set<u32>>,
    /// IP address and GID of each.
    addresses: Set<(IpAddr, [u8; 16])>,
    /// Queue pairs by their memberships.
    attached: Counts<u32>,
}

impl Groups {
    /// Whether anybody listens to an address.
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        self.at(ip).next().is_some()
    }

    /// Whether anybody listens to a GID.
    pub(super) fn has_gid(&self, gid: &[u8; 16]) -> bool {
        self.members.contains_key(gid)
    }

    /// The groups of an address.
    fn at(&self, ip: IpAddr) -> impl Iterator<Item = [u8; 16]> {
        self.addresses.range((ip, [0; 16])..=(ip, [0xff; 16])).map(|(_, gid)| gid)
    }

    /// Whether anybody listens at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether a QP is attached anywhere.
    pub(crate) fn holds(&self, qpn: u32) -> bool {
        self.attached.has(qpn)
    }
}

fn gid(input: &[u8]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid.copy_from_slice(mcg_in::multicast_gid.bytes(input));
    gid
}

/// ATTACH_TO_MCG.
pub(crate) fn attach(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let (qpn, gid) = (mcg_in::qpn.get(input), gid(input));
    let qp = hca.objects.qps.get(&qpn);
    if qp.is_none_or(|qp| qp.kind != QpKind::Ud) {
        return Err(Status::BadResource.because(0x80_6001));
    }
    if !ip_of(gid).is_multicast() {
        return Err(Status::BadParam.because(0x80_6002));
    }
    let most_groups = 1usize << hca.caps.general(cap::log_max_mcg).min(31);
    let most_members = hca.caps.general(cap::max_qp_mcg) as usize;
    let groups = &mut hca.objects.groups;
    let members = groups.members.get(&gid).map_or(0, Set::len);
    if members >= most_members || (members == 0 && groups.members.len() >= most_groups) {
        return Err(Status::ExceedLimit.because(0x80_6003));
    }
    if !groups.members.entry(gid).or_default().insert(qpn) {
        return Err(Status::BadResourceState.because(0x80_6004));
    }
    groups.addresses.insert((ip_of(gid), gid));
    groups.attached.add(qpn);
    Ok(())
}

/// DETACH_FROM_MCG.
pub(crate) fn detach(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let (qpn, gid) = (mcg_in::qpn.get(input), gid(input));
    let groups = &mut hca.objects.groups;
    let members = groups.members.get_mut(&gid).ok_or(Status::BadResource.because(0x80_7001))?;
    if !members.remove(&qpn) {
        return Err(Status::BadResource.because(0x80_7002));
    }
    if members.is_empty() {
        groups.members.remove(&gid);
        groups.addresses.remove(&(ip_of(gid), gid));
    }
    groups.attached.remove(qpn);
    Ok(())
}

/// Gives every member of a packet's group its copy; `own`: the device sent it itself.
pub(super) fn deliver(hca: &mut Hca, packet: frame::Packet, own: bool) {
    let groups = &hca.objects.groups;
    let members: BTreeSet<u32> = groups
        .at(packet.net.dst)
        .filter_map(|gid| groups.members.get(&gid))
        .flat_map(|members| members.range(..))
        .collect();
    to_members(hca, members, &packet.into(), own);
}

/// The same of a group of InfiniBand.
pub(super) fn deliver_to(hca: &mut Hca, gid: &[u8; 16], packet: &Packet, own: bool) {
    let members = hca.objects.groups.members.get(gid);
    let members = members.into_iter().flat_map(|members| members.range(..)).collect();
    to_members(hca, members, packet, own);
}

fn to_members(hca: &mut Hca, members: BTreeSet<u32>, packet: &Packet, own: bool) {
    for qpn in members {
        let blocks =
            hca.objects.qps.get(&qpn).is_some_and(|qp| qpc::block_lb_mc.is_set(&qp.context));
        if !(own && blocks) {
            with_engine(hca, qpn, |engine, device| engine.on_packet(device, packet));
        }
    }
}
