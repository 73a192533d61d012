//! Messages of the peers: one function for each, in the order in which a connection gets them.
//!
//! Every message but a REQ names the receiver's comm ID, which leads to its slot. A REQ is looked
//! up in the index of the table, for an earlier copy of it and for another connection of its queue
//! pair.

use core::net::IpAddr;

use crate::cm::event::Cause;
use crate::cm::lists::Kind;
use crate::cm::params::{QpTerms, ack_timeout, code_nanos};
use crate::cm::slot::{Event, Send, Slot, State, Verdict};
use crate::cm::table::Found;
use crate::cm::wire::disconnect::{Drep, Dreq};
use crate::cm::wire::header::{About, Header, MAD_LEN, WireError, gid};
use crate::cm::wire::ip::{IP_HEADER_LEN, IpHeader};
use crate::cm::wire::mra::Mra;
use crate::cm::wire::reason::Reason;
use crate::cm::wire::rej::Rej;
use crate::cm::wire::rep::Rep;
use crate::cm::wire::req::Req;
use crate::cm::wire::rtu::Rtu;
use crate::cm::wire::service::ServiceId;
use crate::cm::wire::sidr::{SidrRep, SidrReq};
use crate::cm::{Answer, Answered, Cm};
use crate::provider::{Class, LinkType, Mtu};
use crate::types::time::Instant;

/// The shortest response time granted to a peer: 1 ms, as a code.
const SHORTEST_RESPONSE: u8 = 8;

/// Says of a new request's service and path MTU why it is refused, if it is.
pub(super) type Admits<'a> = &'a dyn Fn(ServiceId, Mtu) -> Result<(), Reason>;

impl Cm<'_> {
    /// Takes in one datagram that arrived on QP1 from QP1 of `from`.
    pub fn input(&mut self, now: Instant, from: IpAddr, mad: &[u8; MAD_LEN]) {
        self.input_if(now, from, mad, &|_, _| Ok(()));
    }

    /// The same, if new requests are wanted only of services, and with path MTUs, for which
    /// `admits` gives no reason to refuse them. Nothing is kept of one that is refused.
    pub fn input_if(
        &mut self,
        now: Instant,
        from: IpAddr,
        mad: &[u8; MAD_LEN],
        admits: Admits<'_>,
    ) {
        self.counters.received += 1;
        let from = gid(from);
        if let Err(error) = self.message(now, from, mad, admits) {
            self.counters.malformed += 1;
            if let WireError::Refuse(reason) = error {
                let remote_id = Req::new_unchecked(mad).local_id();
                let transaction = Header::new_checked(mad).map_or(0, |h| h.transaction());
                self.refuse(from, transaction, remote_id, reason);
            }
        }
    }

    /// Brings a message to where it is dealt with. It is read where it stands: to take the long
    /// ones apart first would copy them field by field.
    fn message(
        &mut self,
        now: Instant,
        from: u128,
        mad: &[u8; MAD_LEN],
        admits: Admits<'_>,
    ) -> Result<(), WireError> {
        let header = Header::new_checked(mad)?;
        let transaction = header.transaction();
        match header.attribute() {
            Req::<()>::ATTRIBUTE => {
                let req = Req::new_unchecked(mad);
                let mtu = req.servable().map_err(WireError::Refuse)?;
                let admitted = admits(ServiceId(req.service_id()), mtu);
                self.req(now, from, transaction, req, admitted.map(|()| mtu));
            }
            Mra::<()>::ATTRIBUTE => self.mra(now, from, transaction, Mra::new_unchecked(mad)),
            Rep::<()>::ATTRIBUTE => {
                let rep = Rep::new_unchecked(mad);
                rep.check()?;
                self.rep(now, from, transaction, rep);
            }
            Rtu::<()>::ATTRIBUTE => self.rtu(now, from, transaction, Rtu::new_unchecked(mad)),
            Rej::<()>::ATTRIBUTE => self.rej(now, from, transaction, Rej::new_unchecked(mad)),
            Dreq::<()>::ATTRIBUTE => {
                self.dreq(now, from, transaction, Dreq::new_unchecked(mad));
            }
            Drep::<()>::ATTRIBUTE => self.drep(now, from, transaction, Drep::new_unchecked(mad)),
            SidrReq::<()>::ATTRIBUTE => {
                self.sidr_req(now, from, transaction, SidrReq::new_unchecked(mad))?;
            }
            SidrRep::<()>::ATTRIBUTE => {
                self.sidr_rep(from, transaction, SidrRep::new_unchecked(mad))?;
            }
            other => return Err(WireError::Attribute(other)),
        }
        Ok(())
    }

    /// Rejects a REQ that gets no slot.
    #[inline(never)]
    fn refuse(&mut self, to: u128, transaction: u64, remote_id: u32, reason: Reason) {
        let what = Answered::Rej(About::Req, reason);
        self.answer(Answer { to, transaction, local_id: 0, remote_id, what });
    }

    fn req(
        &mut self,
        now: Instant,
        from: u128,
        transaction: u64,
        req: Req<&[u8; MAD_LEN]>,
        admitted: Result<Mtu, Reason>,
    ) {
        let (local_id, guid, qpn) = (req.local_id(), req.guid(), req.qpn());
        // The peer's queue pair will be reached at its GID. That is the address it can be shown to
        // have, or nothing.
        if req.local_gid() != from {
            self.counters.wrong_address += 1;
            self.counters.foreign += 1;
            return self.refuse(from, transaction, local_id, Reason::INVALID_GID);
        }
        // An adapter's GUID and numbers are no secret: only those of the same address can be the
        // same connection, or any host could block a connection of another.
        // A peer that starts anew may come to an ID that it had: what it asks begins elsewhere.
        let begins = req.starting_psn();
        let same = |_, slot: &Slot| slot.state.connects() && slot.terms.sq_psn == begins;
        let peer = self.peer(from, guid);
        if let Some(index) = self.look_up(Kind::Id, local_id, peer, same) {
            return self.req_again(now, transaction, index);
        }
        if self.is_stale(now, qpn, peer) {
            return self.refuse(from, transaction, local_id, Reason::STALE);
        }
        let mtu = match admitted {
            Ok(mtu) => mtu,
            Err(reason) => return self.refuse(from, transaction, local_id, reason),
        };
        let service = ServiceId(req.service_id());
        let mut private = req.private();
        let infiniband = self.config.link == LinkType::InfiniBand;
        let (mut remote_port, mut named, mut local) = (0, None, req.remote_gid());
        if service.port().is_some() {
            let header = private.split_first_chunk::<IP_HEADER_LEN>();
            let Some((Ok(header), rest)) =
                header.map(|(header, rest)| (IpHeader::parse(header), rest))
            else {
                self.counters.malformed += 1;
                return self.refuse(from, transaction, local_id, Reason::UNSUPPORTED);
            };
            (remote_port, private) = (header.source_port(), rest);
            if infiniband {
                let (source, destination) = header.addresses();
                (named, local) = (Some(gid(source)), gid(destination));
            }
        }

        let longest = self.config.longest_response.max(SHORTEST_RESPONSE);
        let half_open = code_nanos(self.config.longest_half_open);
        let Some((index, slot)) = self.allocate() else {
            self.counters.no_slot += 1;
            return self.refuse(from, transaction, local_id, Reason::NO_RESOURCES);
        };
        slot.state = State::ReqReceived;
        slot.remote = from;
        slot.local = local;
        if infiniband {
            slot.set_subnet(req, named);
        }
        slot.remote_id = local_id;
        slot.peer = peer;
        slot.service = service;
        slot.remote_port = remote_port;
        slot.flow_label = req.flow_label();
        slot.hop_limit = req.hop_limit();
        slot.transaction = transaction;
        slot.max_retries = req.max_retries();
        let response = code_nanos(req.local_response_timeout().clamp(SHORTEST_RESPONSE, longest));
        // All repeats fit in the time that a half-open connection may last.
        slot.interval = response.min(half_open / (u64::from(slot.max_retries) + 1));
        slot.terms = QpTerms {
            remote_qpn: qpn,
            rq_psn: slot.terms.rq_psn,
            sq_psn: begins,
            mtu,
            responder_resources: req.initiator_depth(),
            initiator_depth: req.responder_resources(),
            retry_count: req.retry_count(),
            rnr_retry: req.rnr_retry(),
            ack_timeout: req.ack_timeout(),
            // As Linux takes it: a service level has four bits, a priority three.
            class: Class {
                traffic_class: req.traffic_class(),
                priority: if infiniband { req.sl() } else { req.sl() & 7 },
            },
        };
        slot.set_private(private);
        slot.raise(Event::Request);
        self.touch(index);
    }

    /// A REQ of a connection that is known already.
    fn req_again(&mut self, now: Instant, transaction: u64, index: usize) {
        let span = self.reject_memory();
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        self.counters.duplicates += 1;
        match slot.state {
            State::ReqReceived => {
                slot.mra_sent = true;
                slot.queue(Send::Mra(About::Req));
            }
            State::TimeWait if slot.rejecting => slot.reject_again(now, span),
            State::TimeWait => {
                let (from, remote_id) = (slot.remote, slot.remote_id);
                self.refuse(from, transaction, remote_id, Reason::STALE);
            }
            // The REP, or what followed it, is on its way and has a timer of its own.
            State::Idle
            | State::ReqReady
            | State::ReqSent
            | State::RepReceived
            | State::RepSent
            | State::Established
            | State::DreqSent
            | State::SidrReady
            | State::SidrSent
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => {}
        }
        self.touch(index);
    }

    fn mra(&mut self, now: Instant, from: u128, transaction: u64, mra: Mra<&[u8; MAD_LEN]>) {
        let ids = [mra.local_id(), mra.remote_id()];
        let Found::Slot(index) = self.find(from, ids, Some(transaction)) else {
            return;
        };
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let about = match slot.state {
            State::ReqSent => About::Req,
            State::RepSent => About::Rep,
            State::Idle
            | State::ReqReady
            | State::ReqReceived
            | State::RepReceived
            | State::Established
            | State::DreqSent
            | State::TimeWait
            | State::SidrReady
            | State::SidrSent
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => About::Other,
        };
        if about == About::Other || about.code() != mra.about() {
            self.counters.unexpected += 1;
        } else if slot.patience {
            self.counters.duplicates += 1;
        } else {
            let most = match about {
                About::Rep => self.config.service_timeout.min(self.config.longest_half_open),
                About::Req | About::Other => self.config.service_timeout,
            };
            let granted = code_nanos(mra.service_timeout().min(most));
            slot.patience = true;
            slot.deadline = now.after(granted.saturating_add(slot.interval));
            // A retransmission that has not left yet is not needed.
            slot.queue(Send::Nothing);
        }
    }

    fn rep(&mut self, now: Instant, from: u128, transaction: u64, rep: Rep<&[u8; MAD_LEN]>) {
        let ids = [rep.local_id(), rep.remote_id()];
        let index = match self.find(from, ids, Some(transaction)) {
            Found::Slot(index) => index,
            Found::Foreign => return,
            // This side has given up; the peer's queue pair waits for nobody.
            Found::Unknown => {
                return self.deny(
                    now,
                    from,
                    transaction,
                    [rep.remote_id(), rep.local_id()],
                    About::Rep,
                );
            }
        };
        let span = self.reject_memory();
        let peer = self.peer(from, rep.guid());
        let waits = self.slots.get(index).is_some_and(|slot| slot.state == State::ReqSent);
        let stale = waits && self.is_stale(now, rep.qpn(), peer);
        let lifetime = self.config.packet_lifetime;
        let infiniband = self.config.link == LinkType::InfiniBand;
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let lifetime = if infiniband { slot.source_index } else { lifetime };
        match slot.state {
            State::ReqSent => {
                slot.remote_id = rep.local_id();
                slot.peer = peer;
                let terms = &mut slot.terms;
                terms.remote_qpn = rep.qpn();
                terms.sq_psn = rep.starting_psn();
                terms.responder_resources = terms.responder_resources.min(rep.initiator_depth());
                terms.initiator_depth = terms.initiator_depth.min(rep.responder_resources());
                terms.rnr_retry = rep.rnr_retry();
                terms.ack_timeout = ack_timeout(rep.target_ack_delay(), lifetime);
                slot.rest(State::RepReceived);
                slot.queue(Send::Nothing);
                slot.set_private(rep.private());
                slot.raise(Event::Reply);
                if stale {
                    slot.end(Verdict::Rejected(Reason::STALE));
                    self.turn_away(now, index, Reason::STALE, &[], &[]);
                }
            }
            State::RepReceived => {
                self.counters.duplicates += 1;
                slot.queue(Send::Mra(About::Rep));
            }
            State::Established if slot.active => {
                self.counters.duplicates += 1;
                slot.queue(Send::Rtu);
            }
            State::TimeWait if slot.rejecting => {
                self.counters.duplicates += 1;
                slot.reject_again(now, span);
            }
            State::DreqSent | State::TimeWait => self.counters.duplicates += 1,
            State::Idle
            | State::ReqReady
            | State::ReqReceived
            | State::RepSent
            | State::Established
            | State::SidrReady
            | State::SidrSent
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => {
                self.counters.unexpected += 1;
            }
        }
        self.touch(index);
    }

    /// Whether another connection has this queue pair of the peer: then the peer has lost that one.
    /// The new one is refused too, as its packets could not be distinguished from those of the old
    /// one.
    fn is_stale(&mut self, now: Instant, qpn: u32, peer: u64) -> bool {
        let mut leaving = false;
        let old = self.look_up(Kind::Qp, qpn, peer, |_, slot| {
            leaving = slot.state == State::DreqSent;
            true
        });
        let Some(old) = old else {
            return false;
        };
        self.probe(now, old);
        // This side may have been leaving it. If the peer has left too, it says so once more.
        if !leaving {
            self.counters.stale += 1;
        }
        !leaving
    }

    /// Answers a message of a connection that does not exist here, so that the peer ends it too.
    #[inline(never)]
    fn deny(
        &mut self,
        now: Instant,
        to: u128,
        transaction: u64,
        [local_id, remote_id]: [u32; 2],
        about: About,
    ) {
        let what = Answered::Rej(about, Reason::INVALID_COMM_ID);
        self.answer_strange(now, Answer { to, transaction, local_id, remote_id, what });
    }

    fn rtu(&mut self, now: Instant, from: u128, transaction: u64, rtu: Rtu<&[u8; MAD_LEN]>) {
        let index = match self.find(from, [rtu.local_id(), rtu.remote_id()], None) {
            Found::Slot(index) => index,
            Found::Foreign => return,
            Found::Unknown => {
                return self.deny(
                    now,
                    from,
                    transaction,
                    [rtu.remote_id(), rtu.local_id()],
                    About::Other,
                );
            }
        };
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        match slot.state {
            State::RepSent => slot.establish(),
            State::TimeWait if slot.rejecting => slot.queue(Send::Stored),
            // The peer knows the connection.
            State::Established if slot.asked != 0 => {
                slot.asked = 0;
                slot.queue(Send::Nothing);
            }
            State::Established | State::DreqSent | State::TimeWait => self.counters.duplicates += 1,
            State::Idle
            | State::ReqReady
            | State::ReqSent
            | State::ReqReceived
            | State::RepReceived
            | State::SidrReady
            | State::SidrSent
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => {
                self.counters.unexpected += 1;
            }
        }
        self.touch(index);
    }

    fn rej(&mut self, now: Instant, from: u128, transaction: u64, rej: Rej<&[u8; MAD_LEN]>) {
        let reason = Reason(rej.reason());
        let found = if rej.remote_id() == 0 {
            self.find_given_up(from, transaction, rej)
        } else {
            self.find(from, [rej.local_id(), rej.remote_id()], Some(transaction))
        };
        let Found::Slot(index) = found else { return };
        let there_and_back = 2 * code_nanos(self.config.packet_lifetime);
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let verdict = match slot.state {
            // The peer has a connection of this queue pair from before, and asks about it now. The
            // same request passes when that has ended.
            State::ReqSent if reason == Reason::STALE && slot.retries > 0 => {
                slot.queue(Send::Nothing);
                slot.deadline = now.after(there_and_back);
                return self.touch(index);
            }
            State::ReqSent | State::ReqReceived | State::RepReceived | State::RepSent => {
                Verdict::Rejected(reason)
            }
            State::Established if slot.asked != 0 => Verdict::Disconnected(Cause::Stale),
            State::Established => Verdict::Disconnected(Cause::Rejected(reason)),
            // The peer has nothing left to disconnect.
            State::DreqSent => Verdict::Disconnected(Cause::Local),
            State::TimeWait => {
                self.counters.duplicates += 1;
                return;
            }
            State::Idle
            | State::ReqReady
            | State::SidrReady
            | State::SidrSent
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => return,
        };
        if !slot.ended {
            slot.set_private(rej.private());
        }
        slot.queue(Send::Nothing);
        slot.end(verdict);
        self.enter_time_wait(now, index);
    }

    /// A REJ whose sender never learnt this side's ID: found by the sender's GUID, its ID and the
    /// transaction of its REQ. Nobody gives up a connection that is established.
    fn find_given_up(&mut self, from: u128, transaction: u64, rej: Rej<&[u8; MAD_LEN]>) -> Found {
        let given_up = |_, slot: &Slot| {
            matches!(slot.state, State::ReqReceived | State::RepSent)
                && slot.transaction == transaction
        };
        let timeout = Reason(rej.reason()) == Reason::TIMEOUT;
        let guid = rej.ari().first_chunk().filter(|_| timeout).copied().map(u64::from_be_bytes);
        let peer = guid.map(|guid| self.peer(from, guid));
        let found = peer.and_then(|peer| self.look_up(Kind::Id, rej.local_id(), peer, given_up));
        match found {
            Some(index) => Found::Slot(index),
            None => {
                self.counters.unknown += 1;
                Found::Unknown
            }
        }
    }

    fn dreq(&mut self, now: Instant, from: u128, transaction: u64, dreq: Dreq<&[u8; MAD_LEN]>) {
        let index = match self.find(from, [dreq.local_id(), dreq.remote_id()], None) {
            Found::Slot(index) => index,
            Found::Foreign => return,
            // There is no such connection: it counts as disconnected.
            Found::Unknown => {
                let (local_id, remote_id) = (dreq.remote_id(), dreq.local_id());
                let what = Answered::Drep;
                let answer = Answer { to: from, transaction, local_id, remote_id, what };
                return self.answer_strange(now, answer);
            }
        };
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if slot.local_qpn != dreq.remote_qpn() {
            self.counters.wrong_qpn += 1;
            self.counters.foreign += 1;
            return;
        }
        match slot.state {
            State::Established | State::DreqSent | State::RepReceived => {}
            // The peer was ready, or it would have nothing to disconnect: its RTU was lost.
            State::RepSent => slot.establish(),
            State::TimeWait => {
                self.counters.duplicates += 1;
                slot.transaction = transaction;
                slot.queue(Send::Drep);
                return self.touch(index);
            }
            State::Idle
            | State::ReqReady
            | State::ReqSent
            | State::ReqReceived
            | State::SidrReady
            | State::SidrSent
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => {
                self.counters.unexpected += 1;
                return;
            }
        }
        slot.transaction = transaction;
        slot.queue(Send::Drep);
        slot.end(Verdict::Disconnected(Cause::Remote));
        self.enter_time_wait(now, index);
    }

    fn drep(&mut self, now: Instant, from: u128, transaction: u64, drep: Drep<&[u8; MAD_LEN]>) {
        let ids = [drep.local_id(), drep.remote_id()];
        let Found::Slot(index) = self.find(from, ids, None) else {
            return;
        };
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let cause = match slot.state {
            State::DreqSent => Cause::Local,
            // To a probe: the peer does not know the connection.
            State::Established if slot.asked != 0 => Cause::Stale,
            State::TimeWait => {
                self.counters.duplicates += 1;
                return;
            }
            State::Idle
            | State::ReqReady
            | State::ReqSent
            | State::ReqReceived
            | State::RepReceived
            | State::RepSent
            | State::Established
            | State::SidrReady
            | State::SidrSent
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => {
                self.counters.unexpected += 1;
                return;
            }
        };
        // Linux answers in timewait with the transaction of the REQ (`cm_format_drep`).
        let of_req = slot.state == State::DreqSent && transaction == slot.transaction;
        if transaction != slot.asked && !of_req {
            self.counters.wrong_transaction += 1;
            self.counters.foreign += 1;
            return;
        }
        slot.queue(Send::Nothing);
        slot.end(Verdict::Disconnected(cause));
        self.enter_time_wait(now, index);
    }
}

impl Slot {
    /// Sends the stored REJ again, and remembers it for another while.
    fn reject_again(&mut self, now: Instant, span: u64) {
        self.queue(Send::Stored);
        self.deadline = now.after(span);
    }
}
