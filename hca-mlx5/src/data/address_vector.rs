//! The address vector of a datagram, and the UDP source port of a flow.
//!
//! PRM "Address vector"; the port as Linux computes it (`rdma_get_udp_sport`).

use dat_core::provider::Path;

use crate::prm::gid::Gid;
use crate::prm::wqe::Av;

/// The address vector of a datagram from one queue pair to another.
pub(crate) fn address(path: &Path, local_qpn: u32, remote_qpn: u32, qkey: u32) -> Av {
    Av {
        qkey,
        dqpn: remote_qpn,
        udp_sport: udp_sport(path.flow_label, local_qpn, remote_qpn),
        rmac: path.remote_mac,
        tclass: path.class.traffic_class,
        priority: path.class.priority & 7,
        hop_limit: path.hop_limit,
        source_index: path.source_index,
        flow_label: path.flow_label,
        dgid: Gid::from(path.remote).0.to_be_bytes(),
    }
}

/// The UDP source port of a flow label, or, where that is 0, of the two queue pair numbers: the
/// same at both ends.
#[must_use]
pub(crate) const fn udp_sport(flow_label: u32, local_qpn: u32, remote_qpn: u32) -> u16 {
    let label = if flow_label == 0 {
        let mut v = local_qpn as u64 * remote_qpn as u64;
        v ^= v >> 20;
        v ^= v >> 40;
        (v & 0xf_ffff) as u32
    } else {
        flow_label
    };
    0xc000 | ((label ^ label >> 14) & 0x3fff) as u16
}
