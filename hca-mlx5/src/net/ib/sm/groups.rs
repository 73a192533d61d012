//! Multicast groups: MCMemberRecord (IBTA volume 1, 15.2.5.17).
//!
//! Two ports need no forwarding tables, so a group is its record and who is a member. The group of
//! IPoIB's broadcast is always there (RFC 4391, section 5); others are created by who joins first.

use heapless::Vec;

use super::params::PACKET_LIFETIME;
use super::ports::Side;
use super::rates;
use super::records::{is_of_partition, satisfies};
use crate::prm::mad;
use crate::prm::sa::{
    self, McMemberRecord, join_state, member_component as component, rate, selector,
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
pub(super) const LINK_LOCAL: u8 = 2;
/// What begins an MGID that this manager chooses (15.2.5.17.1: a transient one; signature as OpenSM
/// has it, which no IP group has).
const CHOSEN_MGID: u128 = 0xff10_a01b << 96;

/// What a join says at least.
pub(super) const JOIN: u64 = component::MGID | component::PORT_GID | component::JOIN_STATE;
/// What one says that creates a group (15.2.5.17.3).
const CREATE: u64 = JOIN
    | component::QKEY
    | component::TRAFFIC_CLASS
    | component::PKEY
    | component::FLOW_LABEL
    | component::SL;
/// Members that keep a group.
const KEEPS: u8 = join_state::FULL | join_state::SEND_ONLY_FULL;
/// All bits of JoinState.
pub(super) const ALL: u8 =
    join_state::FULL | join_state::NON | join_state::SEND_ONLY | join_state::SEND_ONLY_FULL;

pub(super) type Record = McMemberRecord<[u8; 52]>;

/// A group: its record, without a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) record: Record,
    /// JoinState by port.
    pub(super) members: [u8; 2],
}

impl Group {
    /// The record of a member, or of the group.
    pub(super) fn of(&self, gid: u128, state: u8) -> Record {
        let mut record = self.record;
        record.set_port_gid(gid);
        record.set_join_state(state);
        record
    }

    /// Whether its record is as a request says.
    pub(super) fn matches(&self, asked: &Record, mask: u64) -> bool {
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
                component::PACKET_LIFETIME | component::PACKET_LIFETIME_SELECTOR,
                satisfies(
                    asked.packet_lifetime_selector(),
                    &own.packet_lifetime(),
                    &asked.packet_lifetime(),
                ),
            )
    }
}

/// All groups.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) groups: Vec<Group, GROUPS>,
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

    /// Deletes groups without a full member. The broadcast group is created again before it can be
    /// missed, and with the same record.
    pub(super) fn delete_unused(&mut self) {
        self.groups.retain(|group| group.members.iter().any(|state| state & KEEPS != 0));
    }

    pub(super) fn find(&mut self, mgid: u128) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.record.mgid() == mgid)
    }

    /// A multicast LID that no group has.
    fn free_mlid(&self) -> u16 {
        (mad::FIRST_MULTICAST_LID..)
            .find(|mlid| self.groups.iter().all(|group| group.record.mlid() != *mlid))
            .unwrap_or(0)
    }

    /// Adds a group; its MLID is chosen.
    pub(super) fn create(&mut self, mut record: Record) -> Result<(), u16> {
        record.set_mlid(self.free_mlid());
        record.set_mtu_selector(selector::EXACTLY);
        record.set_rate_selector(selector::EXACTLY);
        record.set_packet_lifetime_selector(selector::EXACTLY);
        let group = Group { record, members: [0; 2] };
        self.groups.push(group).map_err(|_| sa::status::NO_RESOURCES)
    }

    pub(super) fn choose_mgid(&mut self, scope: u8) -> u128 {
        self.chosen = self.chosen.wrapping_add(1);
        CHOSEN_MGID | u128::from(scope & 0xf) << 112 | u128::from(self.chosen)
    }

    /// Creates the broadcast group, for a cable of that MTU and rate. The master does so before it
    /// serves anybody.
    pub(super) fn create_broadcast(&mut self, (mtu, rate): (u8, u8)) {
        if self.find(BROADCAST_MGID).is_some() {
            return;
        }
        let mut record = Record::new();
        record.set_mgid(BROADCAST_MGID);
        record.set_qkey(BROADCAST_QKEY);
        record.set_pkey(mad::DEFAULT_PKEY);
        record.set_mtu(mtu.min(BROADCAST_MTU));
        record.set_rate(rates::slower(rate, BROADCAST_RATE));
        record.set_packet_lifetime(PACKET_LIFETIME);
        record.set_scope(LINK_LOCAL);
        // It is the first one, so that the table has a free slot.
        let _ = self.create(record);
    }
}

/// The record of a group to create, on a link of that MTU and rate.
pub(super) fn new_record(asked: &Record, mask: u64, (mtu, rate): (u8, u8)) -> Result<Record, u16> {
    if asked.join_state() & KEEPS == 0 {
        return Err(sa::status::REQ_INVALID);
    }
    if mask & CREATE != CREATE {
        return Err(sa::status::REQ_INSUFFICIENT_COMPONENTS);
    }
    if !is_of_partition(asked.pkey(), mad::DEFAULT_PKEY) {
        return Err(sa::status::REQ_INVALID);
    }
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
    if !has(component::PACKET_LIFETIME | component::PACKET_LIFETIME_SELECTOR)
        || asked.packet_lifetime_selector() != exact
    {
        record.set_packet_lifetime(PACKET_LIFETIME);
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

/// Whether an MGID is one: flags that exist, a scope that is not reserved (volume 1, 4.1.1).
pub(super) fn is_group(mgid: u128) -> bool {
    let (flags, scope) = (mgid >> 116 & 0xf, mgid >> 112 & 0xf);
    mgid >> 120 == 0xff && flags & !3 == 0 && scope != 0 && scope != 0xf
}
