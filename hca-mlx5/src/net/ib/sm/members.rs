//! MCMemberRecord: joins, leaves and queries (IBTA volume 1, 15.2.5.17).

use super::SubnetManager;
use super::groups::{ALL, JOIN, LINK_LOCAL, Record, is_group, new_record};
use super::ports::Side;
use super::rates;
use super::records::{Records, Reply};
use crate::prm::mad::Mad;
use crate::prm::sa::{self, SaHeader, member_component as component};

impl SubnetManager {
    /// Get and GetTable: groups, or with a port its memberships.
    pub(super) fn find_members(&mut self, mad: &Mad) -> Result<Records, u16> {
        self.groups.create_broadcast(self.link(Side::Own, Side::Peer));
        let (asked, mask) = (Record::read(mad, sa::DATA), SaHeader(mad).comp_mask());
        let mut records = Records::new(Record::SIZE);
        for group in self.groups.groups.iter().filter(|group| group.matches(&asked, mask)) {
            let wanted = if mask & component::JOIN_STATE == 0 { ALL } else { asked.join_state() };
            if mask & component::PORT_GID == 0 {
                records.add(&group.of(0, 0).0)?;
                continue;
            }
            for (port, state) in self.ports.iter().zip(group.members) {
                if port.gid() == asked.port_gid() && state & wanted != 0 {
                    records.add(&group.of(port.gid(), state).0)?;
                }
            }
        }
        Ok(records)
    }

    /// What a join and a leave have in common: the record, and that it is the requester's.
    fn membership(&self, requester: Side, mad: &Mad) -> Result<(Record, u64), u16> {
        let (asked, mask) = (Record::read(mad, sa::DATA), SaHeader(mad).comp_mask());
        if mask & JOIN != JOIN {
            return Err(sa::status::REQ_INSUFFICIENT_COMPONENTS);
        }
        let is_proxy = mask & component::PROXY_JOIN != 0 && asked.proxy_join();
        // A port joins for itself only (o15-0.2.1).
        let is_own = asked.port_gid() == self.port(requester).gid();
        if is_proxy || !is_own || asked.join_state() & ALL == 0 {
            return Err(sa::status::REQ_INVALID);
        }
        Ok((asked, mask))
    }

    /// Set: joins, and creates a group where there is none.
    pub(super) fn join(&mut self, requester: Side, mad: &Mad) -> Reply {
        self.groups.create_broadcast(self.link(Side::Own, Side::Peer));
        let (mut asked, mut mask) = self.membership(requester, mad)?;
        if asked.mgid() == 0 {
            let scope = if mask & component::SCOPE == 0 { LINK_LOCAL } else { asked.scope() };
            asked.set_mgid(self.groups.choose_mgid(scope));
        }
        if !is_group(asked.mgid()) {
            return Err(sa::status::REQ_INVALID);
        }
        if self.groups.find(asked.mgid()).is_none() {
            let record = new_record(&asked, mask, self.link(Side::Own, Side::Peer))?;
            self.groups.create(record)?;
            // The MLID is this manager's to choose.
            mask &= !component::MLID;
        }
        let (mtu, rate) = self.link(Side::Own, Side::Peer);
        let gid = self.port(requester).gid();
        let group = self.groups.find(asked.mgid()).ok_or(sa::status::NO_RESOURCES)?;
        let is_possible =
            group.record.mtu() <= mtu && rates::speed(group.record.rate()) <= rates::speed(rate);
        if !is_possible || !group.matches(&asked, mask) {
            self.groups.delete_unused();
            return Err(sa::status::REQ_INVALID);
        }
        let state = group.members.get_mut(requester.index()).ok_or(sa::status::REQ_INVALID)?;
        *state |= asked.join_state() & ALL;
        let state = *state;
        Ok(Records::one(&group.of(gid, state).0))
    }

    /// Delete: leaves with the bits of JoinState that the request has.
    pub(super) fn leave(&mut self, requester: Side, mad: &Mad) -> Reply {
        let (asked, _) = self.membership(requester, mad)?;
        let gid = self.port(requester).gid();
        let group = self.groups.find(asked.mgid()).ok_or(sa::status::REQ_INVALID)?;
        let left = asked.join_state() & ALL;
        let state = group.members.get_mut(requester.index()).ok_or(sa::status::REQ_INVALID)?;
        if *state & left != left {
            return Err(sa::status::REQ_INVALID);
        }
        *state &= !left;
        let record = group.of(gid, left);
        self.groups.delete_unused();
        Ok(Records::one(&record.0))
    }
}
