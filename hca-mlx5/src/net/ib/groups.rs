//! Multicast groups that queue pairs of the consumer are in.
//!
//! The port is a member at the subnet administrator, and the device gives packets to the group to
//! each queue pair that is attached. A new subnet manager is asked again by itself.

use core::net::{IpAddr, Ipv6Addr};
use core::task::Poll;

use dat_core::Instant;
use dat_core::fault;
use dat_core::provider::{Class, Destination, Fault, LidHop, NextHop, Path};

use crate::device::{Device, optional};
use crate::net::gsi::Gsi;
use crate::net::ib::questions::NoAnswer;
use crate::net::ib::resolve::static_rate;
use crate::net::ib::sa::{Member, Role};
use crate::net::ib::{GROUP_QPN, REBUILD, Subnet, ipoib, send};
use crate::platform::Platform;

/// Memberships of queue pairs at most.
pub(super) const MEMBERSHIPS: usize = 8;

/// A queue pair in a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership {
    qpn: u32,
    qkey: u32,
    group: u128,
}

impl<'p, P: Platform, const N: usize> Subnet<'p, P, N> {
    /// Makes a queue pair a member of the group of an IP multicast address; the group is made if
    /// there is none.
    pub(crate) fn join(
        &mut self,
        device: &mut Device<'p, P>,
        gsi: &mut Gsi<'p, P>,
        (qpn, qkey): (u32, u32),
        group: IpAddr,
        now: Instant,
    ) -> Poll<Result<Destination, Fault>> {
        if !self.port_is_active() || self.by_gid_only() {
            return Poll::Ready(Err(self.unreachable(group)));
        }
        let gid = ipoib::datagram_gid(self.pkey, group);
        let found = self.membership(gid, qkey, now);
        self.transmit(gsi, now);
        let member = match found {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(member)) => member,
            Poll::Ready(Err(NoAnswer)) => {
                return Poll::Ready(Err(fault!(
                    Unreachable,
                    "join a multicast group",
                    "the subnet manager refused, or the group has another Q_Key",
                    "create the Endpoint with the group's Q_Key: saquery -g lists the groups"
                )
                .at(group)));
            }
        };
        let is_in = |held: &Membership| held.qpn == qpn && held.group == gid;
        if !self.memberships.iter().any(is_in) {
            if self.memberships.is_full() {
                return Poll::Ready(Err(fault!(
                    Resources,
                    "join a multicast group",
                    "the driver keeps no more memberships",
                    "leave a group first"
                )));
            }
            device.set_member(qpn, gid, true)?;
            let _ = self.memberships.push(Membership { qpn, qkey, group: gid });
        }
        let path = self.group_path(device, gid, &member);
        Poll::Ready(Ok(Destination { path, qpn: GROUP_QPN, qkey }))
    }

    /// Ends the memberships of a queue pair: in one group, or in all.
    pub(crate) fn leave(
        &mut self,
        device: &mut Device<'p, P>,
        gsi: &mut Gsi<'p, P>,
        qpn: u32,
        group: Option<IpAddr>,
    ) -> Result<(), Fault> {
        let only = group.map(|group| ipoib::datagram_gid(self.pkey, group));
        let is_left =
            |held: &Membership| held.qpn == qpn && only.is_none_or(|group| group == held.group);
        while let Some(at) = self.memberships.iter().position(is_left) {
            let left = self.memberships.swap_remove(at);
            optional(device.set_member(qpn, left.group, false))?;
            let is_kept = self.memberships.iter().any(|held| held.group == left.group);
            if !is_kept {
                if let Some(outgoing) = self.sa.leave(left.group) {
                    send(gsi, &outgoing);
                }
            }
        }
        Ok(())
    }

    /// Ends all memberships.
    pub(super) fn leave_all(&mut self, device: &mut Device<'p, P>, gsi: &mut Gsi<'p, P>) {
        while let Some(held) = self.memberships.last().copied() {
            let _ = self.leave(device, gsi, held.qpn, None);
        }
    }

    /// Asks a new manager for what was had from the one before. When to try again, if it refused.
    pub(super) fn join_again(&mut self, now: Instant) -> Option<Instant> {
        if !self.rejoins || !self.port_is_active() {
            return None;
        }
        let (mut refused, mut pending) = (false, false);
        for held in self.memberships.clone() {
            match self.membership(held.group, held.qkey, now) {
                Poll::Pending => pending = true,
                Poll::Ready(joined) => refused |= joined.is_err(),
            }
        }
        self.rejoins = refused || pending;
        refused.then(|| now + REBUILD)
    }

    /// The membership of the port in a group like that of the broadcast.
    fn membership(
        &mut self,
        group: u128,
        qkey: u32,
        now: Instant,
    ) -> Poll<Result<Member, NoAnswer>> {
        let broadcast = ipoib::broadcast_gid(self.pkey);
        match self.sa.member(broadcast, Role::Full, now) {
            Poll::Ready(Ok(model)) => self.sa.member(group, Role::Founder(model, qkey), now),
            refused @ Poll::Ready(Err(_)) => refused,
            Poll::Pending => Poll::Pending,
        }
    }

    fn group_path(&self, device: &Device<'p, P>, group: u128, member: &Member) -> Path {
        Path {
            remote: IpAddr::V6(Ipv6Addr::from_bits(group)),
            next_hop: NextHop::Lid(LidHop {
                lid: member.lid,
                path_bits: 0,
                rate: static_rate(member.rate, device.caps().general.stat_rate_support()),
                pkey_index: device.pkey_index,
            }),
            source_index: 0,
            hop_limit: member.hop_limit,
            class: Class { traffic_class: member.traffic_class, priority: member.sl },
            flow_label: member.flow_label,
        }
    }
}
