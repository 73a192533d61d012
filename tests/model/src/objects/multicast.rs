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
use crate::transport::host::QpKind;
use crate::wire::frame::Packet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The QPN of every multicast packet.
pub(super) const MULTICAST_QPN: u32 = 0xff_ffff;

/// The groups with members, by GID.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    members: BTreeMap<[u8; 16], BTreeSet<u32>>,
}

impl Groups {
    /// Whether anybody listens to an address.
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        self.members.keys().any(|gid| ip_of(*gid) == ip)
    }

    /// Whether anybody listens at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether a QP is attached anywhere.
    pub(crate) fn holds(&self, qpn: u32) -> bool {
        self.members.values().any(|members| members.contains(&qpn))
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
    let groups = &mut hca.objects.groups.members;
    let members = groups.get(&gid).map_or(0, BTreeSet::len);
    if members >= most_members || (members == 0 && groups.len() >= most_groups) {
        return Err(Status::ExceedLimit.because(0x80_6003));
    }
    if !groups.entry(gid).or_default().insert(qpn) {
        return Err(Status::BadResourceState.because(0x80_6004));
    }
    Ok(())
}

/// DETACH_FROM_MCG.
pub(crate) fn detach(hca: &mut Hca, input: &[u8], _output: &mut [u8]) -> Result<(), Refusal> {
    let (qpn, gid) = (mcg_in::qpn.get(input), gid(input));
    let groups = &mut hca.objects.groups.members;
    let members = groups.get_mut(&gid).ok_or(Status::BadResource.because(0x80_7001))?;
    if !members.remove(&qpn) {
        return Err(Status::BadResource.because(0x80_7002));
    }
    if members.is_empty() {
        groups.remove(&gid);
    }
    Ok(())
}

/// Gives every member of a packet's group its copy; `own`: the device sent it itself.
pub(super) fn deliver(hca: &mut Hca, packet: &Packet, own: bool) {
    let members: BTreeSet<u32> = hca
        .objects
        .groups
        .members
        .iter()
        .filter(|(gid, _)| ip_of(**gid) == packet.net.dst)
        .flat_map(|(_, members)| members.iter().copied())
        .collect();
    for qpn in members {
        let blocks =
            hca.objects.qps.get(&qpn).is_some_and(|qp| qpc::block_lb_mc.is_set(&qp.context));
        if !(own && blocks) {
            with_engine(hca, qpn, |engine, device| engine.on_packet(device, packet));
        }
    }
}
