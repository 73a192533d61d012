//! A client of subnet administration (SA): paths by GID or LID, and memberships of multicast groups.
//!
//! IBTA volume 1, chapter 15. No input or output: [`Sa::next`] gives the datagram that is due,
//! [`Sa::receive`] takes one that came. Each question has a random transaction ID and a few tries.
//! An answer counts only if it comes from where the question went, with that ID, for that attribute,
//! and names what was asked for. A server that redirects is followed once (13.5.2).

use core::task::Poll;
use core::time::Duration;

use dat_core::Instant;
use dat_core::provider::{Mtu, Random};

use super::questions::{NoAnswer, Pace, Questions};
use crate::data::Route;
use crate::device::IbPort;
use crate::prm::At;
use crate::prm::mad::{
    BASE_VERSION, ClassPortInfo, FIRST_MULTICAST_LID, GSI_QKEY, MAD_LEN, Mad, MadHeader, class,
    is_unicast, status,
};
use crate::prm::sa::{
    CLASS_VERSION, DATA, McMemberRecord, PathRecord, SaHeader, attribute, join_state,
    member_component, method, path_component, selector,
};
use crate::prm::smp::P_KEY_FULL_MEMBER;

/// Groups that a port is a member of, or sends to, at most.
const GROUPS: usize = 16;
/// How long a path counts: a manager that changes one says so by an event of the port.
const PATH_LIFETIME: Duration = Duration::from_secs(600);
/// How long a membership counts: until the manager asks for it again.
const MEMBER_LIFETIME: Duration = Duration::from_secs(86_400 * 365);
/// One server answers the whole subnet, so it is given time.
const PACE: Pace = Pace { first: Duration::from_millis(500), tries: 4 };
/// Longest packet lifetime that is believed, as a code: 4.3 s. The field has room for centuries.
const LONGEST_LIFETIME: u8 = 20;

/// The end of a path that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Gid(u128),
    Lid(u16),
}

/// A path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) gid: u128,
    pub(super) lid: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) mtu: Mtu,
    pub(super) rate: u8,
    pub(super) lifetime: u8,
    /// Above 1 across subnets.
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) flow_label: u32,
    pub(super) pkey: u16,
}

/// A group, and what its members agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) lid: u16,
    pub(super) qkey: u32,
    pub(super) sl: u8,
    pub(super) mtu: u8,
    pub(super) rate: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) flow_label: u32,
    pub(super) pkey: u16,
}

/// A membership that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Membership {
    group: u128,
    state: u8,
    /// Of a group that may be made: its Q_Key.
    founds: Option<u32>,
}

/// How a port belongs to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It gets what is sent to the group, which exists already.
    Full,
    /// The same; the group is made if it does not exist, after the model of another, with this
    /// Q_Key.
    Founder(Member, u32),
    /// It only sends.
    Sender,
}

/// A datagram for a queue pair elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(super) server: Server,
    pub(super) mad: Mad,
}

/// Where questions go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) lid: u16,
    pub(super) sl: u8,
    pub(super) qpn: u32,
    pub(super) qkey: u32,
    redirected: bool,
}

impl Server {
    const fn of(port: &IbPort) -> Self {
        // Without a LID that a port can have nobody is asked.
        let lid = if is_unicast(port.sm_lid) { port.sm_lid } else { 0 };
        Self { lid, sl: port.sm_sl, qpn: 1, qkey: GSI_QKEY, redirected: false }
    }
}

/// What an answer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    /// A membership.
    Joined,
    Other,
}

/// The client of one port.
#[derive(Debug)]
pub(super) struct Sa<const N: usize> {
    server: Server,
    gid: u128,
    pkey: u16,
    transactions: Random,
    paths: Questions<Target, Record, N>,
    groups: Questions<Membership, Member, GROUPS>,
    /// What a group is founded with.
    model: Option<Member>,
    /// Answers that were dropped.
    pub(super) strange: u32,
}

impl<const N: usize> Sa<N> {
    pub(super) const fn new(transactions: Random) -> Self {
        Self {
            server: Server { lid: 0, sl: 0, qpn: 1, qkey: GSI_QKEY, redirected: false },
            gid: 0,
            pkey: 0,
            transactions,
            paths: Questions::new(PATH_LIFETIME, PACE),
            groups: Questions::new(MEMBER_LIFETIME, PACE),
            model: None,
            strange: 0,
        }
    }

    /// Begins anew: the port, its manager or the subnet is another, or the manager asks for it.
    pub(super) fn restart(&mut self, port: &IbPort, pkey: u16, now: Instant) {
        self.server = Server::of(port);
        (self.gid, self.pkey) = (port.gid, pkey);
        self.model = None;
        let transactions = &mut self.transactions;
        self.paths.forget(now, || transactions.next_u64());
        self.groups.forget(now, || transactions.next_u64());
    }

    /// The path to `target`, which has asked us if `asker`.
    pub(super) fn path(
        &mut self,
        target: Target,
        asker: bool,
        now: Instant,
    ) -> Poll<Result<Record, NoAnswer>> {
        let transactions = &mut self.transactions;
        self.paths.resolve(target, asker, now, || transactions.next_u64())
    }

    /// A path that is known, by the LID of its end.
    pub(super) fn by_lid(&self, lid: u16, now: Instant) -> Option<Record> {
        let known = self.paths.find(now, |record| record.lid == lid && record.hop_limit <= 1);
        known.map(|(_, record)| record)
    }

    /// A path that is known, by the GID of its end.
    pub(super) fn by_gid(&self, gid: u128) -> Option<Record> {
        self.paths.find(Instant::ZERO, |record| record.gid == gid).map(|(_, record)| record)
    }

    /// The membership of a group; asks for it.
    pub(super) fn member(
        &mut self,
        group: u128,
        role: Role,
        now: Instant,
    ) -> Poll<Result<Member, NoAnswer>> {
        let (state, founds) = match role {
            Role::Full => (join_state::FULL, None),
            Role::Founder(model, qkey) => {
                self.model = Some(model);
                (join_state::FULL, Some(qkey))
            }
            Role::Sender => (join_state::SEND_ONLY, None),
        };
        let membership = Membership { group, state, founds };
        let transactions = &mut self.transactions;
        self.groups.resolve(membership, false, now, || transactions.next_u64())
    }

    /// The datagram that is due.
    pub(super) fn next(&mut self, now: Instant) -> Option<Outgoing> {
        let server = self.server;
        while let Some((target, transaction)) = self.paths.next(now) {
            if server.lid != 0 {
                return Some(Outgoing { server, mad: self.ask_path(target, transaction) });
            }
        }
        while let Some((membership, transaction)) = self.groups.next(now) {
            if server.lid != 0 {
                let mad = self.ask_member(method::SET, &membership, transaction);
                return Some(Outgoing { server, mad });
            }
        }
        None
    }

    /// The datagram that ends a membership. No answer is waited for.
    pub(super) fn leave(&mut self, group: u128) -> Option<Outgoing> {
        let transaction = self.transactions.next_u64();
        let membership = Membership { group, state: join_state::FULL, founds: None };
        let mad = self.ask_member(method::DELETE, &membership, transaction);
        self.groups.remove(|left| left.group == group && left.state == join_state::FULL);
        (self.server.lid != 0).then_some(Outgoing { server: self.server, mad })
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        Instant::sooner(self.paths.next_deadline(), self.groups.next_deadline())
    }

    fn ask_path(&self, target: Target, transaction: u64) -> Mad {
        let mut mad = question(method::GET, attribute::PATH_RECORD, transaction);
        let mut path = PathRecord(At::<_, DATA>(&mut mad));
        path.set_sgid(self.gid);
        path.set_reversible(true);
        path.set_numb_path(1);
        path.set_pkey(self.pkey);
        let to = match target {
            Target::Gid(gid) => {
                path.set_dgid(gid);
                path_component::DGID
            }
            Target::Lid(lid) => {
                path.set_dlid(lid);
                path_component::DLID
            }
        };
        let always = path_component::SGID
            | path_component::REVERSIBLE
            | path_component::NUMB_PATH
            | path_component::PKEY;
        SaHeader(&mut mad).set_comp_mask(always | to);
        mad
    }

    fn ask_member(&self, method: u8, membership: &Membership, transaction: u64) -> Mad {
        let Membership { group, state, founds } = *membership;
        let mut mad = question(method, attribute::MC_MEMBER_RECORD, transaction);
        let mut member = McMemberRecord(At::<_, DATA>(&mut mad));
        member.set_mgid(group);
        member.set_port_gid(self.gid);
        member.set_join_state(state);
        let mut mask =
            member_component::MGID | member_component::PORT_GID | member_component::JOIN_STATE;
        if let (Some(model), Some(qkey)) = (self.model, founds) {
            member.set_qkey(qkey);
            member.set_mtu_selector(selector::EXACTLY);
            member.set_mtu(model.mtu);
            member.set_traffic_class(model.traffic_class);
            member.set_pkey(model.pkey);
            member.set_rate_selector(selector::EXACTLY);
            member.set_rate(model.rate);
            member.set_sl(model.sl);
            member.set_flow_label(model.flow_label);
            member.set_hop_limit(model.hop_limit);
            mask |= member_component::QKEY
                | member_component::MTU_SELECTOR
                | member_component::MTU
                | member_component::TRAFFIC_CLASS
                | member_component::PKEY
                | member_component::RATE_SELECTOR
                | member_component::RATE
                | member_component::SL
                | member_component::FLOW_LABEL
                | member_component::HOP_LIMIT;
        }
        SaHeader(&mut mad).set_comp_mask(mask);
        mad
    }

    /// Takes an answer. Whether it made the port a member of a group.
    pub(super) fn receive(&mut self, route: &Route, mad: &Mad, now: Instant) -> bool {
        let answered = self.answered(route, mad, now);
        if answered.is_none() {
            self.strange = self.strange.saturating_add(1);
        }
        answered == Some(Answered::Joined)
    }

    /// None if it is no answer to a question of ours.
    fn answered(&mut self, route: &Route, mad: &Mad, now: Instant) -> Option<Answered> {
        let head = MadHeader(mad);
        let server = self.server;
        if route.slid != server.lid || route.source_qpn != server.qpn {
            return None;
        }
        if head.base_version() != BASE_VERSION
            || head.mgmt_class() != class::SUBNET_ADMINISTRATION
            || head.class_version() != CLASS_VERSION
            || head.method() != method::GET_RESP
        {
            return None;
        }
        let code = head.status();
        if let Some(target) = self.paths.asked(head.tid()) {
            if code == status::REDIRECT {
                return self.redirect(mad, now);
            }
            // It asks to be asked later: the question is repeated anyway.
            if code == status::BUSY {
                return Some(Answered::Other);
            }
            if head.attr_id() != attribute::PATH_RECORD {
                return None;
            }
            let record = if code == 0 { self.read_path(mad, target)? } else { Err(NoAnswer) };
            self.paths.answer(target, record, now);
            return Some(Answered::Other);
        }
        let membership = self.groups.asked(head.tid())?;
        if code == status::REDIRECT {
            return self.redirect(mad, now);
        }
        if code == status::BUSY {
            return Some(Answered::Other);
        }
        if head.attr_id() != attribute::MC_MEMBER_RECORD {
            return None;
        }
        let member = if code == 0 { read_member(mad, &membership)? } else { Err(NoAnswer) };
        let joined = member.is_ok();
        self.groups.answer(membership, member, now);
        Some(if joined { Answered::Joined } else { Answered::Other })
    }

    /// The path in an answer; none if it is of another question. [`NoAnswer`] if it cannot be used.
    fn read_path(&self, mad: &Mad, target: Target) -> Option<Result<Record, NoAnswer>> {
        let path = PathRecord(At::<_, DATA>(mad));
        let same = match target {
            Target::Gid(gid) => path.dgid() == gid,
            // Of a port with several LIDs it may name the first.
            Target::Lid(_) => true,
        };
        if !same || path.sgid() != self.gid {
            return None;
        }
        let lid = match target {
            Target::Gid(_) => path.dlid(),
            Target::Lid(lid) => lid,
        };
        let is_port = path.dgid() != 0 && path.dgid() >> 120 != 0xff && is_unicast(lid);
        let is_of_partition = (path.pkey() ^ self.pkey) & !P_KEY_FULL_MEMBER == 0;
        let (Some(mtu), true) = (Mtu::from_code(path.mtu()), is_port && is_of_partition) else {
            return Some(Err(NoAnswer));
        };
        Some(Ok(Record {
            gid: path.dgid(),
            lid,
            slid: path.slid(),
            sl: path.sl(),
            mtu,
            rate: path.rate(),
            lifetime: path.packet_lifetime().min(LONGEST_LIFETIME),
            hop_limit: path.hop_limit(),
            traffic_class: path.traffic_class(),
            flow_label: path.flow_label(),
            pkey: path.pkey(),
        }))
    }

    /// Another server answers from now on.
    fn redirect(&mut self, mad: &Mad, now: Instant) -> Option<Answered> {
        if MadHeader(mad).attr_id() != attribute::CLASS_PORT_INFO || self.server.redirected {
            return None;
        }
        let info = ClassPortInfo(At::<_, DATA>(mad));
        let (lid, qpn) = (info.redirect_lid(), info.redirect_qp());
        if !is_unicast(lid) || matches!(qpn, 0 | 0xff_ffff) {
            return None;
        }
        let (sl, qkey) = (info.redirect_sl(), info.redirect_qkey());
        self.server = Server { lid, sl, qpn, qkey, redirected: true };
        let transactions = &mut self.transactions;
        self.paths.again(now, || transactions.next_u64());
        self.groups.again(now, || transactions.next_u64());
        Some(Answered::Other)
    }
}

fn question(method: u8, attribute: u16, transaction: u64) -> Mad {
    let mut mad = [0; MAD_LEN];
    let mut head = MadHeader(&mut mad);
    head.set_base_version(BASE_VERSION);
    head.set_mgmt_class(class::SUBNET_ADMINISTRATION);
    head.set_class_version(CLASS_VERSION);
    head.set_method(method);
    head.set_tid(transaction);
    head.set_attr_id(attribute);
    mad
}

/// The membership in an answer, likewise.
fn read_member(mad: &Mad, asked: &Membership) -> Option<Result<Member, NoAnswer>> {
    let member = McMemberRecord(At::<_, DATA>(mad));
    if member.mgid() != asked.group {
        return None;
    }
    let is_group = (FIRST_MULTICAST_LID..u16::MAX).contains(&member.mlid());
    if !is_group || asked.founds.is_some_and(|qkey| qkey != member.qkey()) {
        return Some(Err(NoAnswer));
    }
    Some(Ok(Member {
        lid: member.mlid(),
        qkey: member.qkey(),
        sl: member.sl(),
        mtu: member.mtu(),
        rate: member.rate(),
        hop_limit: member.hop_limit(),
        traffic_class: member.traffic_class(),
        flow_label: member.flow_label(),
        pkey: member.pkey(),
    }))
}

#[cfg(test)]
mod tests;
