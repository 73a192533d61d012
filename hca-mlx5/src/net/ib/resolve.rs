//! From an address to a path: which neighbour is asked for, which port is meant, and what to say if
//! nobody answers.

use core::net::{IpAddr, Ipv6Addr};
use core::task::Poll;

use dat_core::Instant;
use dat_core::fault;
use dat_core::provider::{Class, Fault, LidHop, Mtu, NextHop, Path, SubnetPath, canonical, lid_of};

use crate::device::{Device, PortState};
use crate::net::gsi::Gsi;
use crate::net::ib::sa::{Record, Target};
use crate::net::ib::{Subnet, names};
use crate::platform::Platform;
use crate::prm::sa::rate::GBPS_2_5;

impl<'p, P: Platform, const N: usize> Subnet<'p, P, N> {
    /// The way to `remote`, who has asked us if `asker`.
    pub(crate) fn resolve(
        &mut self,
        device: &Device<'p, P>,
        gsi: &mut Gsi<'p, P>,
        remote: IpAddr,
        asker: bool,
        now: Instant,
    ) -> Poll<Result<Path, Fault>> {
        let found = self.find(remote, asker, now);
        if found.is_pending() && !asker {
            self.transmit(gsi, now);
        }
        found.map_ok(|record| self.path(device, &record))
    }

    fn find(&mut self, remote: IpAddr, asker: bool, now: Instant) -> Poll<Result<Record, Fault>> {
        let target = match self.target(remote) {
            Some(target) => target,
            None => {
                let hop = self.next_hop(remote)?;
                let found = self.hosts.resolve(hop, asker, now, names(&mut self.asked));
                match found {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(hardware)) => Target::Gid(hardware.gid),
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(self.unreachable(remote))),
                }
            }
        };
        self.sa.path(target, asker, now).map_err(|_| self.unreachable(remote))
    }

    /// What the own address stands for, and one that is no IP address: nobody is asked.
    fn target(&self, remote: IpAddr) -> Option<Target> {
        if remote == self.net.addr {
            return Some(Target::Gid(self.port.gid));
        }
        if let Some(lid) = lid_of(remote) {
            return Some(Target::Lid(lid));
        }
        let IpAddr::V6(v6) = remote else { return None };
        let bits = v6.to_bits();
        self.is_gid(bits).then_some(Target::Gid(bits))
    }

    fn is_gid(&self, address: u128) -> bool {
        self.port.gid != 0 && address >> 64 == self.port.gid >> 64
    }

    /// The own address is a GID: nothing is looked up by IP.
    pub(super) fn by_gid_only(&self) -> bool {
        matches!(self.net.addr, IpAddr::V6(v6) if self.is_gid(v6.to_bits()))
    }

    /// The neighbour on the way to an IP address.
    fn next_hop(&self, remote: IpAddr) -> Result<IpAddr, Fault> {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let apart = (bits(remote) ^ bits(self.net.addr)).leading_zeros();
        let near = remote.is_ipv4() == self.net.addr.is_ipv4()
            && apart >= u32::from(self.net.prefix).min(128);
        match self.net.gateway {
            _ if near => Ok(remote),
            Some(gateway) => Ok(canonical(gateway)),
            None => Err(fault!(
                Unreachable,
                "resolve",
                "the address is outside the attached network, and there is no gateway",
                "give the port a shorter prefix, or a gateway",
            )
            .at(remote)),
        }
    }

    pub(super) fn unreachable(&self, remote: IpAddr) -> Fault {
        let fault = match self.port.state {
            PortState::Down => {
                fault!(Unreachable, "resolve", "the port has no link", "plug the cable in")
            }
            PortState::Init | PortState::Armed => fault!(
                Unreachable,
                "resolve",
                "no subnet manager has activated the port",
                "run a subnet manager: opensm on any host of the subnet"
            ),
            PortState::Active if self.target(remote).is_none() && self.link.is_none() => fault!(
                Unreachable,
                "resolve",
                "the broadcast group of IP over InfiniBand could not be joined",
                "let the subnet manager make the group (in opensm's partitions.conf: ipoib)"
            ),
            PortState::Active => fault!(
                Unreachable,
                "resolve",
                "nobody in the subnet answers for the address",
                "check the peer's address and state"
            ),
        };
        fault.at(remote)
    }

    pub(super) fn path(&self, device: &Device<'p, P>, record: &Record) -> Path {
        let own = (1_u16 << self.port.lmc.min(7)) - 1;
        let path_bits = u8::try_from(record.slid & own).unwrap_or(0);
        Path {
            remote: IpAddr::V6(Ipv6Addr::from_bits(record.gid)),
            next_hop: NextHop::Lid(LidHop {
                lid: record.lid,
                path_bits,
                rate: static_rate(record.rate, device.caps().general.stat_rate_support()),
                pkey_index: self.port.pkey_index(record.pkey).unwrap_or(device.pkey_index),
            }),
            source_index: 0,
            hop_limit: record.hop_limit,
            class: Class { traffic_class: record.traffic_class, priority: record.sl },
            flow_label: record.flow_label,
        }
    }

    /// What a REQ says of a path.
    pub(crate) fn subnet_path(&self, path: &Path) -> Option<SubnetPath> {
        let NextHop::Lid(hop) = path.next_hop else { return None };
        let IpAddr::V6(gid) = path.remote else { return None };
        let record = self.sa.by_gid(gid.to_bits());
        Some(SubnetPath {
            local_gid: self.port.gid,
            local_lid: self.port.lid | u16::from(hop.path_bits),
            p_key: record.map_or(self.pkey, |record| record.pkey),
            // What each path can do, if this one has just been forgotten.
            rate: record.map_or(GBPS_2_5, |record| record.rate),
            mtu: record.map_or(Mtu::B256, |record| record.mtu),
            lifetime: record.map_or(SLOW, |record| record.lifetime),
        })
    }
}

/// Packet lifetime of a path of which nothing is known: 1 s.
const SLOW: u8 = 18;

/// The static rate as the device counts: 5 above the specification's number, if it has that one,
/// else that of the port (Linux `ib_rate_to_mlx5`).
pub(super) fn static_rate(rate: u8, supported: u16) -> u8 {
    const OFFSET: u8 = 5;
    let code = rate.saturating_add(OFFSET);
    let bit = 1_u16.checked_shl(code.into()).unwrap_or(0);
    if rate >= GBPS_2_5 && supported & bit != 0 { code } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_rate_is_one_that_the_device_has_or_that_of_the_port() {
        // 2.5 Gbit/s is 2, and 7 for the device.
        assert_eq!(static_rate(2, 1 << 7), 7);
        assert_eq!(static_rate(2, 1 << 8), 0);
        assert_eq!([0, 1, 16, 255].map(|rate| static_rate(rate, u16::MAX)), [0; 4]);
    }
}
