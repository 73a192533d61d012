//! Multicast groups: MCMemberRecord (IBTA volume 1, 15.2.5.17).
//!
//! Two ports need no forwarding tables, so a group is its record and who is a member. The group of
//! IPoIB's broadcast is always there (RFC 4391, section 5); others are created by who joins first.

use heapless::Vec;

use super::paths::{PACKET_LIFE_TIME, is_of_partition};
use super::rates::{self, satisfies};
use super::sa::{Records, Reply};
use super::{Side, SubnetManager};
use crate::prm::mad::{self, Mad};
use crate::prm::sa::{
    self, McMemberRecord, SaHeader, join_state, member_component as component, rate, selector,
};

/// Groups at most, the broadcast group included.
const GROUPS: usize = 32;

/// The broadcast group of IPv4 over the default partition, of link-local scope (RFC 4391, section 4).
pub const BROADCAST_MGID: u128 = 0xff12_401b_ffff_0000_0000_0000_ffff_ffff;
/// Its Q_Key (OpenSM `OSM_IPOIB_BROADCAST_MGRP_QKEY`).
const BROADCAST_QKEY: u32 = 0x0b1b;
/// Its MTU, 2048 bytes (OpenSM `OSM_DEFAULT_MGRP_MTU`).
const BROADCAST_MTU: u8 = 4;
/// Its rate (OpenSM `OSM_DEFAULT_MGRP_RATE`).
const BROADCAST_RATE: u8 = rate::GBPS_10;
/// Scope of a group: within a link.
const LINK_LOCAL: u8 = 2;
/// What begins an MGID that this manager chooses (15.2.5.17.1: a transient one; signature as OpenSM
/// has it, which no IP group has).
const CHOSEN_MGID: u128 = 0xff10_a01b << 96;

/// What a join says at least.
const JOIN: u64 = component::MGID | component::PORT_GID | component::JOIN_STATE;
/// What one says that creates a group (15.2.5.17.3).
const CREATE: u64 = JOIN
    | component::QKEY
    | component::TRAFFIC_CLASS
    | component::PKEY
    | component::FLOW_LABEL
    | component::SL;
/// Members that keep a group.
const KEEPS: u8 = join_state::FULL | join_state::SEND_ONLY_FULL;
const ALL: u8 =
    join_state::FULL | join_state::NON | join_state::SEND_ONLY | join_state::SEND_ONLY_FULL;

type Record = McMemberRecord<[u8; 52]>;

/// A group: its record, without a port.
#[derive(Clone, Copy, Debug)]
struct Group {
    record: Record,
    /// JoinState by port.
    members: [u8; 2],
}

impl Group {
    /// The record of a member, or of the group.
    fn of(&self, gid: u128, state: u8) -> Record {
        let mut record = self.record;
        record.set_port_gid(gid);
        record.set_join_state(state);
        record
    }

    fn is_broadcast(&self) -> bool {
        self.record.mgid() == BROADCAST_MGID
    }

    /// Whether its record is as a request says.
    fn matches(&self, asked: &Record, mask: u64) -> bool {
        let own = &self.record;
        let is_as_asked = |needed: u64, is: bool| mask & needed != needed || is;
        let speed = rates::speed;
        is_as_asked(component::MGID, own.mgid() == asked.mgid())
            && is_as_asked(component::QKEY, own.qkey() == asked.qkey())
            && is_as_asked(component::MLID, own.mlid() == asked.mlid())
            && is_as_asked(component::TRAFFIC_CLASS, own.traffic_class() == asked.traffic_class())
            && is_as_asked(component::PKEY, is_of_partition(own.pkey(), asked.pkey()))
            && is_as_asked(component::SL, own.sl() == asked.sl())
            && is_as_asked(component::FLOW_LABEL, own.flow_label() == asked.flow_label())
            && is_as_asked(component::HOP_LIMIT, own.hop_limit() == asked.hop_limit())
            && is_as_asked(component::SCOPE, own.scope() == asked.scope())
            && is_as_asked(
                component::MTU | component::MTU_SELECTOR,
                satisfies(asked.mtu_selector(), &own.mtu(), &asked.mtu()),
            )
            && is_as_asked(
                component::RATE | component::RATE_SELECTOR,
                satisfies(asked.rate_selector(), &speed(own.rate()), &speed(asked.rate())),
            )
            && is_as_asked(
                component::PACKET_LIFE_TIME | component::PACKET_LIFE_TIME_SELECTOR,
                satisfies(
                    asked.packet_life_time_selector(),
                    &own.packet_life_time(),
                    &asked.packet_life_time(),
                ),
            )
    }
}

/// All groups.
#[derive(Debug)]
pub(super) struct Groups {
    groups: Vec<Group, GROUPS>,
    /// Counts MGIDs that this manager has chosen.
    chosen: u32,
}

impl Groups {
    pub(super) const fn new() -> Self {
        Self { groups: Vec::new(), chosen: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.groups.clear();
    }

    /// A port is gone, and with it what it had joined.
    pub(super) fn leave_all(&mut self, side: Side) {
        for group in &mut self.groups {
            if let Some(state) = group.members.get_mut(side.index()) {
                *state = 0;
            }
        }
        self.delete_unused();
    }

    /// Deletes groups without a full member; all but the broadcast group end so.
    fn delete_unused(&mut self) {
        self.groups.retain(|group| {
            group.is_broadcast() || group.members.iter().any(|state| state & KEEPS != 0)
        });
    }

    fn find(&mut self, mgid: u128) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.record.mgid() == mgid)
    }

    /// A multicast LID that no group has.
    fn free_mlid(&self) -> u16 {
        (mad::FIRST_MULTICAST_LID..)
            .find(|mlid| self.groups.iter().all(|group| group.record.mlid() != *mlid))
            .unwrap_or(0)
    }

    /// Adds a group; its MLID is chosen.
    fn create(&mut self, mut record: Record) -> Result<(), u16> {
        record.set_mlid(self.free_mlid());
        record.set_mtu_selector(selector::EXACTLY);
        record.set_rate_selector(selector::EXACTLY);
        record.set_packet_life_time_selector(selector::EXACTLY);
        let group = Group { record, members: [0; 2] };
        self.groups.push(group).map_err(|_| sa::status::NO_RESOURCES)
    }

    fn choose_mgid(&mut self, scope: u8) -> u128 {
        self.chosen = self.chosen.wrapping_add(1);
        CHOSEN_MGID | u128::from(scope & 0xf) << 112 | u128::from(self.chosen)
    }
}

impl SubnetManager {
    /// Creates the broadcast group, which the master does before it serves anybody.
    fn create_broadcast(&mut self) {
        if self.groups.find(BROADCAST_MGID).is_some() {
            return;
        }
        let (mtu, rate) = self.link(Side::Own, Side::Peer);
        let mut record = Record::new();
        record.set_mgid(BROADCAST_MGID);
        record.set_qkey(BROADCAST_QKEY);
        record.set_pkey(mad::DEFAULT_PKEY);
        record.set_mtu(mtu.min(BROADCAST_MTU));
        record.set_rate(rates::slower(rate, BROADCAST_RATE));
        record.set_packet_life_time(PACKET_LIFE_TIME);
        record.set_scope(LINK_LOCAL);
        // It is the first one, so that the table has a free slot.
        let _ = self.groups.create(record);
    }

    /// Get and GetTable: groups, or with a port its memberships.
    pub(super) fn find_members(&mut self, mad: &Mad) -> Result<Records, u16> {
        self.create_broadcast();
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
        self.create_broadcast();
        let (mut asked, mut mask) = self.membership(requester, mad)?;
        if asked.mgid() == 0 {
            let scope = if mask & component::SCOPE == 0 { LINK_LOCAL } else { asked.scope() };
            asked.set_mgid(self.groups.choose_mgid(scope));
        } else if !is_group(asked.mgid()) {
            return Err(sa::status::REQ_INVALID);
        }
        if self.groups.find(asked.mgid()).is_none() {
            let record = self.new_group(&asked, mask)?;
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

    /// The record of a group to create.
    fn new_group(&self, asked: &Record, mask: u64) -> Result<Record, u16> {
        if asked.join_state() & KEEPS == 0 {
            return Err(sa::status::REQ_INVALID);
        }
        if mask & CREATE != CREATE {
            return Err(sa::status::REQ_INSUFFICIENT_COMPONENTS);
        }
        if !is_of_partition(asked.pkey(), mad::DEFAULT_PKEY) {
            return Err(sa::status::REQ_INVALID);
        }
        let (mtu, rate) = self.link(Side::Own, Side::Peer);
        let mut record = *asked;
        let has = |needed: u64| mask & needed == needed;
        // The value asked for where it is one exactly, else the best of the link that is as asked.
        let exact = selector::EXACTLY;
        if !has(component::MTU | component::MTU_SELECTOR) {
            record.set_mtu(mtu);
        } else if asked.mtu_selector() != exact {
            let less = asked.mtu_selector() == selector::LESS;
            record.set_mtu(if less { mtu.min(asked.mtu().saturating_sub(1)) } else { mtu });
        }
        if !has(component::RATE | component::RATE_SELECTOR) || asked.rate_selector() != exact {
            record.set_rate(rate);
        }
        if !has(component::PACKET_LIFE_TIME | component::PACKET_LIFE_TIME_SELECTOR)
            || asked.packet_life_time_selector() != exact
        {
            record.set_packet_life_time(PACKET_LIFE_TIME);
        }
        if !has(component::HOP_LIMIT) {
            record.set_hop_limit(0);
        }
        record.set_scope((asked.mgid() >> 112 & 0xf) as u8);
        record.set_port_gid(0);
        record.set_join_state(0);
        record.set_proxy_join(false);
        if record.mtu() == 0 || rates::speed(record.rate()) == 0 {
            return Err(sa::status::REQ_INVALID);
        }
        Ok(record)
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

/// Whether an MGID is one: flags that exist, a scope that is not reserved (volume 1, 4.1.1).
fn is_group(mgid: u128) -> bool {
    let (flags, scope) = (mgid >> 116 & 0xf, mgid >> 112 & 0xf);
    mgid >> 120 == 0xff && flags & !3 == 0 && scope != 0 && scope != 0xf
}
