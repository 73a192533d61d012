//! The network of an InfiniBand port: its place in the subnet, paths to peers, and IP over
//! InfiniBand, by which IP addresses are looked up.
//!
//! * `sa` - subnet administration: paths and groups; bytes in, bytes out.
//! * `ipoib` - frames of IP over InfiniBand: ARP and Neighbor Discovery; likewise.
//! * `questions` - the cache of answers behind both.
//! * [`sm`] - a subnet manager for two ports joined by a cable; bytes in, bytes out. `qp0` joins it
//!   with QP0, if the caller wants it.
//! * `resolve` - from an address to a path.
//! * `groups` - multicast groups of the consumer's queue pairs.
//!
//! This file joins them with the device: the state of the port, QP1, and a queue pair for IP over
//! InfiniBand, which joins the broadcast group of the partition and takes its Q_Key. An address is
//! looked up in two steps: the GID of an IP address by ARP, then the path to a GID at the subnet
//! administrator. An IPv6 address of the subnet's prefix is a GID itself.
//!
//! A datagram without a global header has only a LID as its sender. Its GID is that of a known path,
//! or is asked for; until then [`lid_address`] stands for it.

mod groups;
mod ipoib;
mod qp0;
mod questions;
mod resolve;
mod sa;
pub mod sm;

use core::net::{IpAddr, Ipv6Addr};
use core::task::Poll;
use core::time::Duration;

use dat_core::Instant;
use dat_core::fault;
use dat_core::provider::{Fault, MadIn, Net, canonical, lid_address};
use heapless::{Deque, Vec};

use crate::data::work;
use crate::device::{Device, IbPort, PortState, note, optional};
use crate::net::gsi::{Arrival, Gsi, Kind};
use crate::net::ib::groups::{MEMBERSHIPS, Membership};
use crate::net::ib::ipoib::{Hardware, Message};
use crate::net::ib::qp0::Manager;
use crate::net::ib::questions::{Pace, Questions};
use crate::net::ib::sa::{Member, Outgoing, Role, Sa, Target};
use crate::platform::Platform;
use crate::prm::mad::{DEFAULT_PKEY, class, is_unicast, method};
use crate::prm::wqe::Av;
use crate::verbs::cq::CqObject;

/// How long the answer of ARP counts.
const REACHABLE: Duration = Duration::from_secs(60);
/// A peer whose port has come up at the same time joins its groups some milliseconds later, and
/// misses the first questions. The last one is over after 8 s.
const ARP_PACE: Pace = Pace { first: Duration::from_millis(16), tries: 9 };
/// How often the port is asked while it carries no traffic, as events of it may be lost; and how
/// often a join that was refused is tried again.
const POLL: Duration = Duration::from_millis(500);
/// Least time between two attempts to make a failed queue pair anew.
const REBUILD: Duration = Duration::from_secs(1);
/// Answers to others that wait for the path to them.
const ANSWERS: usize = 8;
/// Groups that the queue pair of IP gets packets of.
const ATTACHED: usize = 2;
/// Destination QPN of a group.
const GROUP_QPN: u32 = 0xff_ffff;

/// Counts, which wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames of IP over InfiniBand that answered a question of this port, or asked for it.
    pub accepted: u32,
    /// Frames that were neither ARP nor Neighbor Discovery, or not well-formed.
    pub malformed: u32,
    /// Frames that named another queue pair or port than that which sent them.
    pub forged: u32,
    /// Frames for others, and answers that nobody here waited for.
    pub unsolicited: u32,
    /// Questions for this port that were not answered: too many came at once, or there is no path.
    pub dropped: u32,
    /// Datagrams of subnet administration that were no answer to a question of this port.
    pub strange: u32,
    /// Datagrams to QP1 of a class that nobody serves here, or from a LID that no port can have.
    pub unserved: u32,
}

/// The network of one port, with room for `N` peers.
#[derive(Debug)]
pub(crate) struct Subnet<'p, P: Platform, const N: usize> {
    net: Net,
    port: IbPort,
    pkey: u16,
    sa: Sa<N>,
    hosts: Questions<IpAddr, Hardware, N>,
    /// Names questions of ARP; nobody sees them.
    asked: u64,
    /// The queue pair of IP, while the broadcast group is joined.
    link: Option<Gsi<'p, P>>,
    manager: Option<Manager<'p, P>>,
    /// The groups that it is attached to.
    attached: Vec<u128, ATTACHED>,
    broadcast: Option<Member>,
    /// A group was joined: questions of ARP that could not be sent without it are due.
    joined: bool,
    /// Broadcast group, Q_Key and entry of the P_Key table that `link` was made for.
    made_for: (u128, u32, u16),
    memberships: Vec<Membership, MEMBERSHIPS>,
    /// They are to be asked for again.
    rejoins: bool,
    answers: Deque<(IpAddr, Hardware), ANSWERS>,
    /// The port is to be asked; all is to be registered again.
    changed: bool,
    register: bool,
    poll: Instant,
    rebuild: Instant,
    /// When the groups are to be looked at again even if nothing comes.
    retry: Option<Instant>,
    /// The last service left frames behind.
    more: bool,
    counters: Counters,
}

impl<'p, P: Platform, const N: usize> Subnet<'p, P, N> {
    /// Takes the address of the port. What else there is follows when a subnet manager has
    /// activated it.
    pub(crate) fn create(
        device: &mut Device<'p, P>,
        net: &Net,
        now: Instant,
    ) -> Result<Self, Fault> {
        if net.vlan.is_some() {
            return Err(fault!(
                BadParameter,
                "set_net",
                "an InfiniBand port has no VLANs",
                "leave the VLAN out: partitions are what a subnet has",
            ));
        }
        let addr = canonical(net.addr);
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        if addr.is_unspecified() || addr.is_multicast() || net.prefix > bits {
            return Err(fault!(
                BadParameter,
                "set_net",
                "this cannot be the address of a port",
                "give the port a unicast address and its prefix length",
            )
            .at(addr));
        }
        let mut this = Self {
            net: Net { addr, ..*net },
            port: IbPort::default(),
            pkey: 0,
            sa: Sa::new(device.random.fork()),
            hosts: Questions::new(REACHABLE, ARP_PACE),
            asked: 0,
            link: None,
            manager: None,
            attached: Vec::new(),
            broadcast: None,
            joined: false,
            made_for: (0, 0, 0),
            memberships: Vec::new(),
            rejoins: false,
            answers: Deque::new(),
            changed: true,
            register: false,
            poll: now,
            rebuild: now,
            retry: None,
            more: false,
            counters: Counters::default(),
        };
        this.look(device, now)?;
        if device.config.subnet_manager {
            if !this.port.has_smi {
                return Err(fault!(
                    Unsupported,
                    "set_net",
                    "the function may not use QP0, so no subnet manager can run on it",
                    "run it on the physical function, or run opensm elsewhere",
                ));
            }
            this.manager = Some(Manager::create(device)?);
        }
        Ok(this)
    }

    /// Leaves the groups and destroys the queue pair.
    pub(crate) fn destroy(
        mut self,
        device: &mut Device<'p, P>,
        gsi: Option<&mut Gsi<'p, P>>,
    ) -> Result<(), Fault> {
        if let Some(gsi) = gsi {
            self.leave_all(device, gsi);
            for group in self.attached.clone() {
                if let Some(leave) = self.sa.leave(group) {
                    send(gsi, &leave);
                }
            }
        }
        let mut first = self.close_link(device);
        if let Some(manager) = self.manager.take() {
            note(&mut first, manager.destroy(device));
        }
        first
    }

    /// What the built-in subnet manager does, if it runs.
    pub(crate) fn manager(&self) -> Option<sm::State> {
        self.manager.as_ref().map(Manager::state)
    }

    /// What came so far, and what was dropped.
    pub(crate) fn counters(&self) -> Counters {
        Counters { strange: self.sa.strange, ..self.counters }
    }

    /// What the built-in subnet manager counted, if it runs.
    pub(crate) fn manager_counters(&self) -> Option<sm::Counters> {
        self.manager.as_ref().map(Manager::counters)
    }

    fn close_link(&mut self, device: &mut Device<'p, P>) -> Result<(), Fault> {
        let mut first = Ok(());
        let Some(link) = self.link.take() else { return first };
        while let Some(group) = self.attached.pop() {
            note(&mut first, optional(device.set_member(link.qpn(), group, false)).map(drop));
        }
        note(&mut first, link.destroy(device));
        first
    }

    /// Takes note that the port changed; `register` if its manager has forgotten it.
    pub(crate) fn port_changed(&mut self, register: bool) {
        self.changed = true;
        self.register |= register;
    }

    /// Its completion queue of that number.
    pub(crate) fn cq(&self, cqn: u32) -> Option<&CqObject> {
        let of_link = self.link.as_ref().and_then(|link| link.cq(cqn));
        of_link.or_else(|| self.manager.as_ref().and_then(|manager| manager.cq(cqn)))
    }

    /// The queue pair of that number is its own.
    pub(crate) fn owns_qp(&self, qpn: u32) -> bool {
        self.link.as_ref().is_some_and(|link| link.owns_qp(qpn))
            || self.manager.as_ref().is_some_and(|manager| manager.owns_qp(qpn))
    }

    /// Takes note of a completion event of one of its completion queues, or of the failure of that
    /// or of a queue pair.
    pub(crate) fn event(&mut self, number: u32, fault: Option<Fault>) {
        let manager = self.manager.as_mut().map(Manager::queue_pair);
        for pair in self.link.as_mut().into_iter().chain(manager) {
            match fault {
                None if pair.cq(number).is_some() => pair.event(),
                Some(fault) if pair.cq(number).is_some() || pair.owns_qp(number) => {
                    pair.fail(fault);
                }
                None | Some(_) => {}
            }
        }
    }

    /// Takes a datagram of QP1: an answer to this port is used here, connection management is for
    /// the caller.
    pub(crate) fn receive(&mut self, arrival: &Arrival, now: Instant) -> Option<MadIn> {
        let [_, management, ..] = arrival.bytes;
        if !is_unicast(arrival.route.slid) {
            count(&mut self.counters.unserved);
            return None;
        }
        match management {
            class::SUBNET_ADMINISTRATION => {
                let answers = arrival.bytes.get(3).is_some_and(|how| how & method::RESPONSE != 0);
                if answers {
                    self.joined |= self.sa.receive(&arrival.route, &arrival.bytes, now);
                } else if let Some(manager) = &mut self.manager {
                    manager.ask(arrival, &self.port, now);
                } else {
                    count(&mut self.counters.unserved);
                }
                None
            }
            class::CM => {
                let named = arrival
                    .gid
                    .or_else(|| self.sa.by_lid(arrival.route.slid, now).map(|record| record.gid));
                let from = match named {
                    Some(gid) => IpAddr::V6(Ipv6Addr::from_bits(gid)),
                    None => lid_address(arrival.route.slid),
                };
                Some(MadIn { from, unnamed: named.is_none(), mad: arrival.bytes })
            }
            _ => {
                count(&mut self.counters.unserved);
                None
            }
        }
    }

    /// Asks the port what it is now, and begins anew if it has another place in the subnet.
    fn look(&mut self, device: &mut Device<'p, P>, now: Instant) -> Result<(), Fault> {
        self.changed = false;
        self.poll = now + POLL;
        let port = device.ib_port()?;
        let of = |port: &IbPort| {
            (port.lid, port.lmc, port.sm_lid, port.sm_sl, port.gid, port.state == PortState::Active)
        };
        let moved = of(&port) != of(&self.port) || port.pkeys != self.port.pkeys;
        self.port = port;
        if moved || core::mem::take(&mut self.register) {
            let default = self.port.pkey_index(DEFAULT_PKEY);
            let first = self.port.pkeys.iter().position(|pkey| *pkey != 0);
            let index = default.or(first.and_then(|index| u16::try_from(index).ok())).unwrap_or(0);
            let pkey = self.port.pkeys.get(usize::from(index)).copied();
            // Partitions are named by their full members.
            let pkey = pkey.filter(|pkey| *pkey != 0).unwrap_or(DEFAULT_PKEY);
            (self.pkey, device.pkey_index) = (pkey, index);
            // The queue pair of IP stays, if its group turns out to be what it was.
            self.sa.restart(&self.port, self.pkey, now);
            self.hosts.forget(now, names(&mut self.asked));
            self.broadcast = None;
            self.rejoins = true;
        }
        Ok(())
    }

    fn port_is_active(&self) -> bool {
        self.port.state == PortState::Active
    }

    /// Joins the groups of IP, and makes its queue pair. When to look again, if an answer was a
    /// refusal or the device failed; a question that is out has a deadline of its own.
    fn keep_link(&mut self, device: &mut Device<'p, P>, now: Instant) -> Option<Instant> {
        if !self.port_is_active() || self.by_gid_only() {
            return None;
        }
        let group = ipoib::broadcast_gid(self.pkey);
        let member = match self.sa.member(group, Role::Full, now) {
            Poll::Ready(Ok(member)) => member,
            Poll::Ready(Err(_)) => return Some(now + REBUILD),
            Poll::Pending => return None,
        };
        let made_for = (group, member.qkey, device.pkey_index);
        if self.link.is_some() && self.made_for == made_for {
            self.broadcast = Some(member);
        } else {
            if now < self.rebuild {
                return Some(self.rebuild);
            }
            self.rebuild = now + REBUILD;
            // Another Q_Key or partition is another queue pair.
            let _ = self.close_link(device);
            let Ok(link) = Gsi::create_of(device, Kind::Ip(member.qkey)) else {
                return Some(self.rebuild);
            };
            let attached = device.set_member(link.qpn(), group, true);
            self.link = Some(link);
            if attached.is_err() {
                let _ = self.close_link(device);
                return Some(self.rebuild);
            }
            let _ = self.attached.push(group);
            (self.broadcast, self.made_for) = (Some(member), made_for);
        }
        if let IpAddr::V6(own) = self.net.addr {
            let group = ipoib::multicast_gid(self.pkey, ipoib::solicited_node(own));
            match self.sa.member(group, Role::Founder(member, member.qkey), now) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Some(now + REBUILD),
                Poll::Pending => return None,
            }
            if !self.attached.contains(&group) {
                if let Some(link) = &self.link {
                    if device.set_member(link.qpn(), group, true).is_err() {
                        return Some(now + REBUILD);
                    }
                    let _ = self.attached.push(group);
                }
            }
        }
        None
    }

    /// Takes frames in and sends what is due.
    pub(crate) fn service(
        &mut self,
        device: &mut Device<'p, P>,
        gsi: &mut Gsi<'p, P>,
        now: Instant,
    ) {
        if self.changed || (!self.port_is_active() && now >= self.poll) {
            // A failure is the device's, which has events of its own.
            let _ = self.look(device, now);
        }
        if let Some(manager) = &mut self.manager {
            self.changed |= manager.service(device, gsi, &self.port, now);
        }
        let retry = self.keep_link(device, now);
        self.retry = Instant::sooner(retry, self.join_again(now));
        if self.broadcast.is_some() && core::mem::take(&mut self.joined) {
            self.hosts.again(now, names(&mut self.asked));
        }
        if let Some(link) = self.link.as_mut() {
            let _ = link.service(device, now);
        }
        self.more = false;
        for left in (0..work::FRAMES).rev() {
            let Some(arrival) = self.link.as_mut().and_then(Gsi::arrival) else { break };
            self.frame(&arrival, now);
            self.more = left == 0;
        }
        self.answer(device, now);
        self.transmit(gsi, now);
    }

    /// Takes a frame of IP over InfiniBand in.
    fn frame(&mut self, arrival: &Arrival, now: Instant) {
        let Some(message) = arrival.bytes.get(..arrival.len).and_then(ipoib::parse) else {
            return count(&mut self.counters.malformed);
        };
        let Some(own) = self.hardware() else { return };
        // An own question, which the group got, too.
        if message.hardware == own {
            return;
        }
        let Hardware { qpn, gid } = message.hardware;
        // Who sends for a port has its queue pair.
        if qpn != arrival.route.source_qpn || arrival.gid.is_some_and(|sender| sender != gid) {
            return count(&mut self.counters.forged);
        }
        let to_us = message.target == self.net.addr;
        let answers = to_us && !message.sender.is_unspecified() && self.hosts.asks(message.sender);
        if !(answers || to_us && message.asks) {
            return count(&mut self.counters.unsolicited);
        }
        count(&mut self.counters.accepted);
        if answers {
            self.hosts.answer(message.sender, Ok(message.hardware), now);
        }
        if message.asks {
            let waits = self.answers.iter().any(|(_, hardware)| *hardware == message.hardware);
            if !waits {
                // No more than may be asked for at a time, or they displace one another.
                if self.answers.len() >= (N / 4).clamp(1, ANSWERS) {
                    let _ = self.answers.pop_front();
                    count(&mut self.counters.dropped);
                }
                let _ = self.answers.push_back((message.sender, message.hardware));
            }
        }
    }

    fn hardware(&self) -> Option<Hardware> {
        self.link.as_ref().map(|link| Hardware { qpn: link.qpn(), gid: self.port.gid })
    }

    /// Answers those whose paths are known.
    fn answer(&mut self, device: &Device<'p, P>, now: Instant) {
        for _ in 0..self.answers.len() {
            let Some((sender, to)) = self.answers.pop_front() else { return };
            let record = match self.sa.path(Target::Gid(to.gid), true, now) {
                Poll::Pending => {
                    let _ = self.answers.push_back((sender, to));
                    continue;
                }
                Poll::Ready(Ok(record)) => record,
                Poll::Ready(Err(_)) => {
                    count(&mut self.counters.dropped);
                    continue;
                }
            };
            let (Some(own), Some(broadcast)) = (self.hardware(), self.broadcast) else { continue };
            let message = Message {
                asks: false,
                sender: self.net.addr,
                hardware: own,
                target: if sender.is_unspecified() { self.net.addr } else { sender },
            };
            let path = self.path(device, &record);
            let av = crate::data::address_vector::address(&path, own.qpn, to.qpn, broadcast.qkey);
            if let (Some(frame), Some(link)) = (ipoib::emit(&message, Some(to)), self.link.as_mut())
            {
                // A frame that is lost is asked for again.
                let _ = link.send_to(&av, frame.bytes());
            }
        }
    }

    /// Sends questions that are due.
    fn transmit(&mut self, gsi: &mut Gsi<'p, P>, now: Instant) {
        for _ in 0..work::FRAMES {
            let Some((target, _)) = self.hosts.next(now) else { break };
            let (Some(own), Some(broadcast)) = (self.hardware(), self.broadcast) else { continue };
            let message = Message { asks: true, sender: self.net.addr, hardware: own, target };
            let (group, member) = match target {
                IpAddr::V4(_) => (ipoib::broadcast_gid(self.pkey), broadcast),
                IpAddr::V6(v6) => {
                    let group = ipoib::multicast_gid(self.pkey, ipoib::solicited_node(v6));
                    match self.sa.member(group, Role::Sender, now) {
                        Poll::Ready(Ok(member)) => (group, member),
                        // The question is repeated.
                        Poll::Ready(Err(_)) | Poll::Pending => continue,
                    }
                }
            };
            let av = Av {
                qkey: member.qkey,
                dqpn: GROUP_QPN,
                rlid_udp_sport: member.lid,
                sl: member.sl & 15,
                grh: true,
                tclass: member.traffic_class,
                hop_limit: member.hop_limit,
                flow_label: member.flow_label,
                dgid: group.to_be_bytes(),
                ..Av::default()
            };
            if let (Some(frame), Some(link)) = (ipoib::emit(&message, None), self.link.as_mut()) {
                let _ = link.send_to(&av, frame.bytes());
            }
        }
        for _ in 0..work::FRAMES {
            let Some(outgoing) = self.sa.next(now) else { break };
            send(gsi, &outgoing);
        }
    }

    /// When [`Subnet::service`] has something to do even if nothing comes.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let own = match self.port.state {
            _ if self.changed || self.more => Some(Instant::ZERO),
            PortState::Active => self.retry,
            PortState::Down | PortState::Init | PortState::Armed => Some(self.poll),
        };
        let link = self.link.as_ref().and_then(Gsi::next_deadline);
        let manager = self.manager.as_ref().and_then(Manager::next_deadline);
        let link = Instant::sooner(link, manager);
        let questions = Instant::sooner(self.sa.next_deadline(), self.hosts.next_deadline());
        Instant::sooner(Instant::sooner(own, link), questions)
    }
}

/// Names of questions of ARP.
fn names(asked: &mut u64) -> impl FnMut() -> u64 {
    || {
        *asked = asked.wrapping_add(1);
        *asked
    }
}

fn count(counter: &mut u32) {
    *counter = counter.wrapping_add(1);
}

/// Sends a question to the subnet administrator; if it is lost it is repeated.
fn send<P: Platform>(gsi: &mut Gsi<'_, P>, outgoing: &Outgoing) {
    let server = outgoing.server;
    let av = Av {
        qkey: server.qkey,
        dqpn: server.qpn,
        rlid_udp_sport: server.lid,
        sl: server.sl & 15,
        ..Av::default()
    };
    let _ = gsi.send_to(&av, &outgoing.mad);
}
