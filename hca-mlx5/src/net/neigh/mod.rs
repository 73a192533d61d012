//! Neighbour discovery: from the IP address of a peer to the MAC that its frames go to.
//!
//! A RoCEv2 queue pair and a CM datagram both carry the destination MAC, and on a function without
//! a kernel driver nobody else finds it. [`Neighbours`] speaks ARP for IPv4 and Neighbor Discovery
//! for IPv6, on a VLAN or without, for one port with one configured address: it resolves with
//! retries, goes through the gateway for what is off the link, answers for its own addresses,
//! announces them at start, and remembers what it learned in a bounded cache.
//!
//! It does no input or output and knows no clock: frames and `now` go in, frames and a deadline
//! come out, so that two of them can be run against each other in a test. The raw Ethernet queues
//! that carry its frames are [`crate::net::eth`].
//!
//! What it trusts. Anybody on the segment can send it anything. A frame that does not parse is
//! counted and dropped, by cause. An answer enters the cache only while the question is pending;
//! beyond that only a request *addressed to us* teaches, and what it teaches displaces no neighbour
//! in use. No message changes the MAC of one: it starts a unicast question to the known MAC, and
//! only when that stays without answer everybody is asked anew. A claim to our own address is
//! counted, never believed.
//!
//! What remains: a station of the link that answers first for an address never used before, or whose
//! owner is silent, is believed, as ARP and Neighbor Discovery have no proof of identity. Addresses
//! fixed by [`Neighbours::fix`] are never asked for and never change.
//!
//! RFC 826, 5227 (ARP), 4861 (Neighbor Discovery), IEEE 802.1Q. It deliberately does not do
//! duplicate address detection, router discovery, redirects or multicast listener reports, and
//! forwards nothing.

mod arp;
mod cache;
mod counters;
mod entries;
mod frame;
mod least;
mod nd;

#[cfg(test)]
mod tests;

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::task::Poll;
use core::time::Duration;

use dat_core::Instant;
use dat_core::provider::{Fault, FaultKind, Net, canonical};
use heapless::{Deque, Vec};

use crate::prm::gid::{Gid, MAPPED};
use cache::{Answer, Cache, Claim, Outcome, Why};
pub use cache::{LIFETIME, PROBE_GAP, PROBES, WAITS};
pub use counters::Counters;
use counters::{Rule, Verdict, count};
use dat_core::fault;
pub use frame::{FRAME, Frame, Mac};
use frame::{Tag, is_station};

/// How often the own addresses are announced, and the time between (RFC 5227 2.3).
const ANNOUNCEMENTS: usize = 2;
const ANNOUNCE_GAP: Duration = Duration::from_secs(2);
/// Answers waiting to be fetched; a flood beyond that is not answered.
const ANSWERS: usize = 8;
/// Own addresses: the configured one and, with IPv6, the link-local one.
const OWN: usize = 2;

/// An answer to be sent: that `target` is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reply {
    /// The station that asked.
    mac: Mac,
    /// Its address; `target` itself if it has none yet, which goes to all nodes.
    asker: Gid,
    target: Gid,
}

/// The announcement under way.
#[derive(Clone, Copy, Debug)]
struct Announcement {
    due: Instant,
    /// Frames that are left.
    left: usize,
}

/// Neighbour discovery of one port, with room for `N` neighbours.
pub struct Neighbours<const N: usize> {
    mac: Mac,
    own: Vec<Gid, OWN>,
    /// Of an address in its mapped form.
    prefix: u8,
    gateway: Option<Gid>,
    tag: Tag,
    cache: Cache<N>,
    replies: Deque<Reply, ANSWERS>,
    announcement: Option<Announcement>,
    counters: Counters,
}

impl<const N: usize> fmt::Debug for Neighbours<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neighbours")
            .field("own", &self.own)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<const N: usize> Neighbours<N> {
    /// For a port with this MAC and this address. Refuses what cannot work: addresses that are no
    /// host's, a gateway that is not on the link, a VLAN outside 1..=4094. The first
    /// announcement is due at `now`.
    pub fn new(mac: Mac, net: &Net, now: Instant) -> Result<Self, Fault> {
        let refuse = |cause, advice| {
            let fault = Fault::new(FaultKind::BadParameter, "set up the network", cause, advice);
            Err(fault.at(net.addr))
        };
        if !is_station(mac) {
            return refuse("the port's MAC is no station's", "");
        }
        if net.addr != canonical(net.addr) {
            return refuse("an IPv4 address in IPv6 form: write it as IPv4", "");
        }
        let bits = match net.addr {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        if net.prefix > bits {
            return refuse("the prefix is longer than the address", "");
        }
        let Some(tag) = Tag::new(net.vlan) else {
            return refuse("VLAN identifiers are 1 to 4094", "");
        };
        let mut own = Vec::new();
        let _ = own.push(net.addr.into());
        if let IpAddr::V6(addr) = net.addr {
            if !addr.is_unicast_link_local() {
                let _ = own.push(nd::link_local(mac).into());
            }
        }
        let mut this = Self {
            mac,
            own,
            prefix: 128 - bits + net.prefix,
            gateway: net.gateway.map(Gid::from),
            tag,
            cache: Cache::new(),
            replies: Deque::new(),
            announcement: None,
            counters: Counters::default(),
        };
        if !this.is_host(this.first()) {
            return refuse("no host can have this address", "");
        }
        if let Some(gateway) = this.gateway {
            if !(gateway.is_v4() == this.first().is_v4()
                && this.is_host(gateway)
                && this.on_link(gateway)
                && !this.is_own(gateway))
            {
                return refuse(
                    "the gateway is not a neighbour: check it and the prefix length",
                    "",
                );
            }
        }
        this.announce(now);
        Ok(this)
    }

    /// Sets the secret of the index of neighbours: random, so that nobody on the link can choose
    /// addresses that make it slow. It is zero at first.
    pub fn set_secret(&mut self, secret: [u64; 2]) {
        self.cache.set_secret(secret);
    }

    /// Fixes the MAC of a neighbour, or of the gateway: it is never asked for, and no message changes
    /// it. At most half of the cache can be fixed.
    pub fn fix(&mut self, addr: IpAddr, mac: Mac) -> Result<(), Fault> {
        let gid = Gid::from(addr);
        let refuse = |cause, advice| {
            let fault = Fault::new(FaultKind::BadParameter, "fix a neighbour", cause, advice);
            Err(fault.at(addr))
        };
        if gid.is_v4() != self.first().is_v4() || !self.is_host(gid) || !self.on_link(gid) {
            return refuse("no neighbour can have this address", "check it and the prefix length");
        }
        if self.is_own(gid) || !is_station(mac) || mac == self.mac {
            return refuse("the address or the MAC is not another station's", "");
        }
        if !self.cache.fix(gid, mac) {
            return refuse("it is fixed already, or too many are", "");
        }
        Ok(())
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Addresses this port answers for: the configured one first.
    #[must_use]
    pub fn own(&self) -> Vec<IpAddr, OWN> {
        self.own.iter().map(|own| (*own).into()).collect()
    }

    /// The same in GIDs.
    pub(crate) fn gids(&self) -> &[Gid] {
        &self.own
    }

    /// The configured address.
    fn first(&self) -> Gid {
        // There is always one.
        self.own.first().copied().unwrap_or(Gid(0))
    }

    /// MACs besides its own that the port must receive: broadcast for ARP; all-nodes and the
    /// solicited-node groups of the own addresses for Neighbor Discovery.
    #[must_use]
    pub fn groups(&self) -> Vec<Mac, { OWN + 1 }> {
        let mut groups = Vec::new();
        let mut add = |group| {
            if !groups.contains(&group) {
                let _ = groups.push(group);
            }
        };
        for addr in &self.own {
            match addr.v6() {
                Some(addr) => {
                    add(nd::ALL_NODES_MAC);
                    add(nd::multicast_mac(nd::solicited_node(addr)));
                }
                None => add(arp::BROADCAST),
            }
        }
        groups
    }

    /// The MAC to which frames for `remote` go: its own, or the gateway's. Pending while the
    /// question is out; then call again after frames came in or [`Self::next_deadline`] passed,
    /// having sent what [`Self::transmit`] gives.
    ///
    /// When no answer comes, the fault names the address that was asked for. It is reported at
    /// least once, and again to every call for a second; after that the search starts over.
    pub fn resolve(&mut self, remote: IpAddr, now: Instant) -> Poll<Result<Mac, Fault>> {
        self.find(remote, Why::Wanted, now)
    }

    /// The same, of somebody who asked us: what is looked up for it gives way to others.
    pub fn resolve_asker(&mut self, remote: IpAddr, now: Instant) -> Poll<Result<Mac, Fault>> {
        self.find(remote, Why::Asker, now)
    }

    fn find(&mut self, remote: IpAddr, why: Why, now: Instant) -> Poll<Result<Mac, Fault>> {
        let to = Gid::from(remote);
        if self.is_own(to) {
            return Poll::Ready(Ok(self.mac));
        }
        let hop = match self.next_hop(to) {
            Ok(hop) => hop,
            Err(fault) => return Poll::Ready(Err(fault)),
        };
        match self.cache.ask(hop, why, now) {
            Answer::Known(mac) => Poll::Ready(Ok(mac)),
            Answer::Pending => Poll::Pending,
            Answer::Failed => Poll::Ready(Err(no_answer(hop, hop == to))),
            Answer::Full => Poll::Ready(Err(fault!(
                Resources,
                protocol(hop),
                "more addresses are being resolved than the neighbour cache holds",
                "retry when some connections are established",
            )
            .at(hop.into()))),
        }
    }

    /// Takes one received frame in, VLAN tag included, frame check sequence not. Anything may be in
    /// it.
    pub fn receive(&mut self, frame: &[u8], now: Instant) {
        let Some(header) = frame::parse(frame) else {
            count(&mut self.counters.malformed);
            return;
        };
        // Frames that this port sent may come back by loopback.
        if header.vlan != self.tag.vlan() || header.source == self.mac {
            count(&mut self.counters.ignored);
            return;
        }
        let verdict = match header.ethertype {
            frame::ARP => self.receive_arp(&header, now),
            frame::IPV6 => self.receive_nd(&header, now),
            _ => Verdict::Ignored,
        };
        self.counters.note(verdict);
    }

    /// The next frame to send at `now`; call until `None`. Answers first, then questions, then
    /// announcements.
    pub fn transmit(&mut self, now: Instant) -> Option<Frame> {
        if let Some(reply) = self.replies.pop_front() {
            return self.reply(reply);
        }
        let (probe, failed) = self.cache.probe(now);
        self.counters.failed = self.counters.failed.wrapping_add(failed);
        if let Some((target, known)) = probe {
            count(&mut self.counters.asked);
            return self.question(target, known);
        }
        self.announcement_due(now)
    }

    /// When [`Self::transmit`] has something to say even if no frame comes in. `Some` of a time
    /// gone by if it has now.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.replies.is_empty() {
            return Some(Instant::ZERO);
        }
        Instant::sooner(self.cache.next_deadline(), self.announcement.map(|a| a.due))
    }

    /// The link came back: announces the own addresses again, and asks again for what was not
    /// answered.
    pub fn link_up(&mut self, now: Instant) {
        self.announce(now);
        self.cache.retry(now);
    }

    /// Announces the own addresses again, from `now` on.
    pub fn announce(&mut self, now: Instant) {
        self.announcement = Some(Announcement { due: now, left: ANNOUNCEMENTS * self.own.len() });
    }

    fn is_own(&self, addr: Gid) -> bool {
        self.own.contains(&addr)
    }

    /// The address to ask for, for frames to `remote`.
    fn next_hop(&self, remote: Gid) -> Result<Gid, Fault> {
        if self.first().is_v4() != remote.is_v4() {
            return Err(fault!(
                Unreachable,
                protocol(remote),
                "this port's address is of the other IP version",
                "give both ends addresses of the same IP version",
            )
            .at(remote.into()));
        }
        if !self.is_host(remote) {
            return Err(fault!(BadParameter, protocol(remote), "not the address of a host")
                .at(remote.into()));
        }
        if self.on_link(remote) {
            return Ok(remote);
        }
        self.gateway.ok_or_else(|| {
            fault!(
                Unreachable,
                protocol(remote),
                "off the link, and no gateway is set",
                "set a gateway, or a shorter prefix",
            )
            .at(remote.into())
        })
    }

    /// It can be the address of a single host here.
    fn is_host(&self, gid: Gid) -> bool {
        let Some(addr) = gid.v4() else {
            let addr = Ipv6Addr::from_bits(gid.0);
            return !(addr.is_unspecified() || addr.is_loopback() || addr.is_multicast());
        };
        // All of them where the prefix is of IPv6.
        let hosts =
            u32::MAX.checked_shr(u32::from(self.prefix.saturating_sub(MAPPED))).unwrap_or(0);
        let part = addr.to_bits() & hosts;
        let edge =
            hosts > 1 && self.on_link(gid) && !addr.is_link_local() && (part == 0 || part == hosts);
        !(edge
            || addr.octets().first() == Some(&0)
            || addr.is_loopback()
            || addr.is_multicast()
            || addr.is_broadcast())
    }

    /// A neighbour by prefix, or link-local: no gateway forwards those. Of an address of the own IP
    /// version.
    fn on_link(&self, gid: Gid) -> bool {
        let link_local = match gid.v4() {
            Some(addr) => addr.is_link_local(),
            None => Ipv6Addr::from_bits(gid.0).is_unicast_link_local(),
        };
        let apart = self.first().0 ^ gid.0;
        link_local || apart.leading_zeros() >= u32::from(self.prefix)
    }

    /// Processes what a message says of a neighbour's MAC.
    fn claimed(&mut self, addr: Gid, mac: Mac, how: Claim, now: Instant) -> Verdict {
        if how == Claim::Question && !(self.is_host(addr) && self.on_link(addr)) {
            return Verdict::Ignored;
        }
        match self.cache.claim(addr, mac, how, now) {
            Outcome::Accepted => Verdict::Accepted,
            Outcome::Unsolicited => Verdict::Unsolicited,
            Outcome::Contradicts => {
                count(&mut self.counters.contradicted);
                Verdict::Unsolicited
            }
        }
    }

    /// Queues an answer, once.
    fn queue(&mut self, reply: Reply) {
        if self.replies.iter().any(|waiting| *waiting == reply) {
            return;
        }
        count(match self.replies.push_back(reply) {
            Ok(()) => &mut self.counters.answered,
            Err(_) => &mut self.counters.dropped,
        });
    }

    fn reply(&self, reply: Reply) -> Option<Frame> {
        let Reply { mac, asker, target } = reply;
        match (target.v4(), asker.v4()) {
            (Some(own), Some(asker)) => arp::reply(self.tag, self.mac, own, mac, asker),
            _ => {
                let (own, asker) = target.v6().zip(asker.v6())?;
                nd::advert(self.tag, self.mac, own, mac, asker)
            }
        }
    }

    /// Asks for `target`: the station `known`, or everybody.
    fn question(&self, target: Gid, known: Option<Mac>) -> Option<Frame> {
        let first = self.first();
        match (target.v4(), first.v4()) {
            (Some(target), Some(own)) => arp::request(self.tag, self.mac, own, target, known),
            _ => {
                let (target, first) = target.v6().zip(first.v6())?;
                // A link-local target is asked from the link-local address, so that its answer
                // needs no router.
                let own = self.own.iter().rev().find_map(|own| {
                    let same = |own: &Ipv6Addr| {
                        own.is_unicast_link_local() == target.is_unicast_link_local()
                    };
                    own.v6().filter(same)
                });
                nd::solicit(self.tag, self.mac, own.unwrap_or(first), target, known)
            }
        }
    }

    fn announcement_due(&mut self, now: Instant) -> Option<Frame> {
        let run = self.announcement.as_mut().filter(|run| run.due <= now)?;
        // From the first to the last, and again.
        let (own, last) = match self.own.as_slice() {
            [_, second] if run.left & 1 == 1 => (*second, true),
            [first, _] => (*first, false),
            own => (*own.first()?, true),
        };
        run.left = run.left.saturating_sub(1);
        if last {
            run.due = now + ANNOUNCE_GAP;
        }
        if run.left == 0 {
            self.announcement = None;
        }
        match own.v4() {
            Some(own) => arp::request(self.tag, self.mac, own, own, None),
            // To all nodes.
            None => self.reply(Reply { mac: nd::ALL_NODES_MAC, asker: own, target: own }),
        }
    }
}

/// Returns the protocol that finds this address.
fn protocol(address: Gid) -> &'static str {
    if address.is_v4() { "ARP" } else { "neighbour discovery" }
}

fn no_answer(hop: Gid, direct: bool) -> Fault {
    if direct {
        fault!(
            Unreachable,
            protocol(hop),
            "nobody answered for this address",
            "check that the host is up and on this link and VLAN",
        )
        .at(hop.into())
    } else {
        fault!(
            Unreachable,
            protocol(hop),
            "the gateway did not answer",
            "check the gateway's address and the prefix length",
        )
        .at(hop.into())
    }
}
