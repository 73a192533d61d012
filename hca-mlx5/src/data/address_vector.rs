//! The address vector of a datagram, and the UDP source port of a flow.
//!
//! PRM "Address vector"; the port as Linux computes it (`rdma_get_udp_sport`).

use dat_core::provider::{NextHop, Path};

use crate::prm::gid::Gid;
use crate::prm::wqe::Av;

/// The address vector of a datagram from one queue pair to another.
pub(crate) fn address(path: &Path, local_qpn: u32, remote_qpn: u32, qkey: u32) -> Av {
    let av = Av {
        qkey,
        dqpn: remote_qpn,
        tclass: path.class.traffic_class,
        hop_limit: path.hop_limit,
        source_index: path.source_index,
        flow_label: path.flow_label,
        dgid: Gid::from(path.remote).0.to_be_bytes(),
        ..Av::default()
    };
    match path.next_hop {
        NextHop::Mac(rmac) => Av {
            rlid_udp_sport: udp_sport(path.flow_label, local_qpn, remote_qpn),
            sl: (path.class.priority & 7) << 1,
            rmac,
            grh: true,
            ..av
        },
        NextHop::Lid(hop) => Av {
            rlid_udp_sport: hop.lid,
            stat_rate: hop.rate,
            path_bits: hop.path_bits,
            sl: path.class.priority & 15,
            grh: crosses_subnets(path),
            ..av
        },
    }
}

/// Packets of a path in an InfiniBand subnet need a global header: they leave the subnet, or go to a
/// group.
#[must_use]
pub(crate) fn crosses_subnets(path: &Path) -> bool {
    path.hop_limit > 1 || path.remote.is_multicast()
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
