//! Calls of the connection manager's caller.

use core::net::IpAddr;

use crate::cm::Cm;
use crate::cm::event::{CmError, Counters};
use crate::cm::params::{AcceptParams, ConnId, ConnectParams, QpTerms};
use crate::cm::slot::{Event, Send, Slot, State};
use crate::cm::wire::header::{address, gid, is_v4};
use crate::cm::wire::ip::ip_header;
use crate::cm::wire::reason::Reason;
use crate::cm::wire::rej::{ARI_LEN, Rej};
use crate::cm::wire::rep::{FAILOVER_UNSUPPORTED, Rep};
use crate::cm::wire::req::Req;
use crate::cm::wire::sidr::{SidrRep, SidrStatus};
use crate::provider::{Class, LidHop, LinkType, NextHop, Path, SubnetPath};
use crate::types::time::Instant;

/// Of two families.
pub(super) const FAMILY: CmError = CmError::Parameter(
    "own address and peer's are of different families: connect from one of the peer's family",
);
pub(super) const QPN_RANGE: CmError =
    CmError::Parameter("a queue pair number has 24 bits and is above 1");

/// Whether so much fits behind what stands there already.
pub(super) const fn fits(given: usize, most: usize) -> Result<(), CmError> {
    if given > most {
        return Err(CmError::TooLong { given, most });
    }
    Ok(())
}

impl Cm<'_> {
    /// Starts a connection: sends a REQ. `Reply`, `Rejected` or `Unreachable` follows.
    pub fn connect(&mut self, now: Instant, params: &ConnectParams<'_>) -> Result<ConnId, CmError> {
        let conn = self.prepare(now, params)?;
        self.send_request(now, conn);
        Ok(conn)
    }

    /// Takes a slot for a connection, and stores its REQ there until the path to the peer is known:
    /// [`Cm::send_prepared_request`] sends it. Nothing but [`Cm::abort`] ends it before.
    pub fn prepare(&mut self, now: Instant, params: &ConnectParams<'_>) -> Result<ConnId, CmError> {
        let (local, remote) = (gid(params.local), gid(params.remote));
        if is_v4(local) != is_v4(remote) {
            return Err(FAMILY);
        }
        if !(2..1 << 24).contains(&params.qpn) {
            return Err(QPN_RANGE);
        }
        if params.retry_count > 7 || params.rnr_retry > 7 {
            return Err(CmError::Parameter(
                "retry counts go up to 7: lower retry_count or rnr_retry",
            ));
        }
        let header = ip_header(params.source_port, local, remote);
        let header: &[u8] = if params.service.port().is_some() { &header } else { &[] };
        fits(params.private_data.len(), Req::<()>::PRIVATE - header.len())?;

        let config = self.config;
        let slot = self.begin(now, State::ReqReady, remote)?;
        let starting_psn = slot.terms.rq_psn;
        slot.local_qpn = params.qpn;
        slot.terms = QpTerms {
            mtu: params.mtu,
            responder_resources: params.responder_resources,
            initiator_depth: params.initiator_depth,
            retry_count: params.retry_count,
            rnr_retry: params.rnr_retry,
            ack_timeout: params.ack_timeout & 31,
            class: params.class,
            ..slot.terms
        };
        let (conn, max_retries) = (slot.conn(), slot.max_retries);
        let mut req = Req::new_unchecked(slot.store(Req::<()>::ATTRIBUTE, [conn.id, 0]));
        req.set_service_id(params.service.0);
        req.set_guid(config.node_guid);
        req.set_qpn(params.qpn);
        req.set_responder_resources(params.responder_resources);
        req.set_initiator_depth(params.initiator_depth);
        req.set_remote_response_timeout(config.response_timeout);
        req.set_local_response_timeout(config.response_timeout);
        req.set_max_retries(max_retries);
        req.set_starting_psn(starting_psn);
        req.set_retry_count(params.retry_count);
        req.set_rnr_retry(params.rnr_retry);
        req.set_ack_timeout(params.ack_timeout);
        req.set_p_key(0xffff);
        req.set_mtu(params.mtu.code());
        req.set_addresses(local, remote);
        req.set_flow_label(params.flow_label);
        req.set_traffic_class(params.class.traffic_class);
        req.set_sl(params.class.priority);
        req.set_hops(params.hop_limit);
        req.put_private(header, params.private_data);
        slot.queue(Send::Nothing);
        slot.deadline = Instant::NEVER;
        Ok(conn)
    }

    /// Returns the class of the messages of a connection or look-up, if it has one of its own.
    #[must_use]
    pub fn class(&self, conn: ConnId) -> Option<Class> {
        let slot = self.slots.get(conn.index()).filter(|slot| slot.id == conn.id)?;
        // A look-up of the peer says nothing of it.
        let says = !matches!(slot.state, State::SidrReceived | State::SidrAnswered);
        says.then_some(slot.terms.class)
    }

    /// Sends the REQ of a prepared connection on this path, whose class does not count. No effect
    /// on any other connection.
    pub fn send_prepared_request(&mut self, now: Instant, conn: ConnId, path: &Path) {
        if let Ok(slot) = self.live(conn) {
            if slot.state == State::ReqReady {
                let mut req = Req::new_unchecked(slot.stored());
                req.set_flow_label(path.flow_label);
                req.set_hops(path.hop_limit);
                self.send_request(now, conn);
            }
        }
    }

    /// As [`Cm::send_prepared_request`], on a path in an InfiniBand subnet, which the REQ names.
    /// The class is that of the path; `ack_timeout` that of the peer's queue pair.
    pub fn send_request_in_subnet(
        &mut self,
        now: Instant,
        conn: ConnId,
        path: &Path,
        subnet: &SubnetPath,
        ack_timeout: u8,
    ) {
        let NextHop::Lid(LidHop { lid, .. }) = path.next_hop else { return };
        if let Ok(slot) = self.live(conn) {
            if slot.state == State::ReqReady {
                let remote = gid(path.remote);
                slot.remote = remote;
                slot.next_hop = path.next_hop.bytes();
                slot.source_index = subnet.lifetime;
                slot.terms.mtu = subnet.mtu;
                slot.terms.ack_timeout = ack_timeout & 31;
                slot.terms.class = path.class;
                let mut req = Req::new_unchecked(slot.stored());
                req.set_addresses(subnet.local_gid, remote);
                req.set_local_lid(subnet.local_lid);
                req.set_remote_lid(lid);
                req.set_p_key(subnet.p_key);
                req.set_mtu(subnet.mtu.code());
                req.set_packet_rate(subnet.rate);
                req.set_ack_timeout(ack_timeout);
                req.set_traffic_class(path.class.traffic_class);
                req.set_sl(path.class.priority);
                self.send_prepared_request(now, conn, path);
            }
        }
    }

    /// GID of the peer of a connection as an address, and the LID that its REQ names, if it does.
    #[must_use]
    pub fn peer_of(&self, conn: ConnId) -> Option<(IpAddr, Option<u16>)> {
        let slot = self.slots.get(conn.index()).filter(|slot| slot.id == conn.id)?;
        let lid = match NextHop::of(self.config.link, slot.next_hop) {
            NextHop::Lid(hop) => Some(hop.lid),
            NextHop::Mac(_) => None,
        };
        Some((address(slot.remote), lid))
    }

    /// Sends the REQ that is stored, and waits for its answer.
    fn send_request(&mut self, now: Instant, conn: ConnId) {
        if let Ok(slot) = self.live(conn) {
            slot.state = State::ReqSent;
            slot.queue(Send::Stored);
            slot.await_answer(now);
        }
        self.touch(conn.index());
    }

    /// Stores the private data of a REP, at most 196 bytes, until [`Cm::accept`] sends it; that of
    /// the request is gone then. Without it the REP has none. On an error nothing has changed.
    pub fn prepare_reply(&mut self, conn: ConnId, private_data: &[u8]) -> Result<(), CmError> {
        let slot = self.live(conn)?;
        if slot.state != State::ReqReceived {
            return Err(CmError::State(conn, slot.state.words()));
        }
        fits(private_data.len(), Rep::<()>::PRIVATE)?;
        slot.prepare_reply(private_data);
        Ok(())
    }

    /// A slot for a question of this side, whose answer is waited for from now on. What is left is
    /// to store the question, and to touch the slot.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        state: State,
        remote: u128,
    ) -> Result<&mut Slot, CmError> {
        let (max_retries, interval) = (self.config.max_retries, self.config.request_nanos());
        let transaction = self.transactions.next_u64();
        let (_, slot) = self.allocate().ok_or(CmError::NoSlot)?;
        slot.state = state;
        slot.active = true;
        slot.remote = remote;
        slot.transaction = transaction;
        slot.max_retries = max_retries & 15;
        slot.interval = interval;
        slot.await_answer(now);
        Ok(slot)
    }

    /// Accepts a request: sends a REP. The queue pair must be in ready-to-send, because the peer
    /// may send at once. `Established`, `Rejected`, `Unreachable` or `Disconnected` follows. On
    /// an error nothing has changed.
    // A program calls it in one place, with much that is known there.
    #[inline(always)]
    pub fn accept(
        &mut self,
        now: Instant,
        conn: ConnId,
        params: &AcceptParams,
    ) -> Result<(), CmError> {
        let guid = self.config.node_guid;
        let infiniband = self.config.link == LinkType::InfiniBand;
        let slot = self.live(conn)?;
        if slot.state != State::ReqReceived {
            return Err(CmError::State(conn, slot.state.words()));
        }
        if !(2..1 << 24).contains(&params.qpn) {
            return Err(QPN_RANGE);
        }
        if params.rnr_retry > 7 {
            return Err(CmError::Parameter("an RNR retry count goes up to 7: lower rnr_retry"));
        }
        if params.initiator_depth > slot.terms.initiator_depth {
            return Err(CmError::Parameter(
                "more reads than the peer answers: lower initiator_depth to what the request offers",
            ));
        }
        let (starting_psn, alternate) = (slot.terms.rq_psn, infiniband && slot.source_index != 0);
        let mut rep = Rep::new_unchecked(slot.reply_to_send());
        rep.set_qpn(params.qpn);
        rep.set_starting_psn(starting_psn);
        rep.set_responder_resources(params.responder_resources);
        rep.set_initiator_depth(params.initiator_depth);
        rep.set_target_ack_delay(params.target_ack_delay);
        rep.set_rnr_retry(params.rnr_retry);
        rep.set_guid(guid);
        if alternate {
            rep.set_failover(FAILOVER_UNSUPPORTED);
        }
        slot.local_qpn = params.qpn;
        slot.state = State::RepSent;
        slot.await_answer(now);
        self.touch(conn.index());
        Ok(())
    }

    /// Rejects a request, or a reply: sends a REJ and forgets the connection. `ari` is what the
    /// reason calls for, at most 72 bytes, mostly none; the private data at most 148. On an
    /// error nothing has changed.
    ///
    /// A `SidrRequest` is rejected with the status that comes nearest to the reason, and at most
    /// 136 bytes of private data.
    pub fn reject(
        &mut self,
        now: Instant,
        conn: ConnId,
        reason: Reason,
        ari: &[u8],
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let slot = self.live(conn)?;
        if slot.state == State::SidrReceived {
            fits(private_data.len(), SidrRep::<()>::PRIVATE)?;
            self.sidr_answer(now, conn, SidrStatus::of(reason), [0; 2], private_data);
            return Ok(());
        }
        if !matches!(slot.state, State::ReqReceived | State::RepReceived) {
            return Err(CmError::State(conn, slot.state.words()));
        }
        fits(ari.len(), ARI_LEN)?;
        fits(private_data.len(), Rej::<()>::PRIVATE)?;
        slot.forget();
        self.turn_away(now, conn.index(), reason, ari, private_data);
        Ok(())
    }

    /// The active side's queue pair is in ready-to-send: sends the RTU. On `Ok` the connection is
    /// established; `Disconnected` is all that can follow.
    pub fn ready(&mut self, _now: Instant, conn: ConnId) -> Result<(), CmError> {
        let slot = self.live(conn)?;
        if slot.state != State::RepReceived {
            return Err(CmError::State(conn, slot.state.words()));
        }
        slot.rest(State::Established);
        slot.queue(Send::Rtu);
        self.touch(conn.index());
        Ok(())
    }

    /// Ends an established connection: sends a DREQ. `Disconnected` follows. No effect while that
    /// is under way.
    pub fn disconnect(&mut self, now: Instant, conn: ConnId) -> Result<(), CmError> {
        let under_way = self
            .slots
            .get(conn.index())
            .is_some_and(|slot| slot.id == conn.id && !slot.has_no_events());
        match self.live(conn) {
            Ok(slot) if slot.state == State::Established => {
                self.ask_to_disconnect(now, conn.index());
                Ok(())
            }
            Ok(slot) if slot.state == State::DreqSent => Ok(()),
            Ok(slot) => Err(CmError::State(conn, slot.state.words())),
            // The end has come by itself, and the caller has not taken the event yet.
            Err(_) if under_way => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a connection up in whatever state it is, tells the peer what that state asks for, and
    /// says nothing more of it; events not yet taken are withdrawn. No effect on a connection
    /// that has ended.
    pub fn abort(&mut self, now: Instant, conn: ConnId) {
        let index = conn.index();
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.id == conn.id) else {
            return;
        };
        let ended = slot.ended;
        slot.forget();
        if ended {
            return;
        }
        match slot.state {
            State::ReqSent => self.give_up(now, index),
            State::ReqReceived | State::RepReceived | State::RepSent => {
                self.turn_away(now, index, Reason::NO_RESOURCES, &[], &[]);
            }
            State::Established => self.ask_to_disconnect(now, index),
            // Nothing has been sent, or there is no message that withdraws a question.
            State::ReqReady | State::SidrReady | State::SidrSent => {
                slot.rest(State::Idle);
                slot.queue(Send::Nothing);
            }
            State::SidrReceived => {
                self.sidr_answer(now, conn, SidrStatus::NO_QP, [0; 2], &[]);
            }
            State::Idle
            | State::DreqSent
            | State::TimeWait
            | State::SidrAnswered
            | State::SidrKept => {}
        }
        self.touch(index);
    }

    /// A packet of the peer arrived on the queue pair: the passive side is established even if the
    /// RTU was lost. No effect in any other state.
    pub fn data_arrived(&mut self, _now: Instant, conn: ConnId) {
        if let Ok(slot) = self.live(conn) {
            if slot.state == State::RepSent {
                slot.establish();
                self.touch(conn.index());
            }
        }
    }

    /// Private data of the newest `Request`, `Reply` or `Rejected` of the connection: the whole
    /// field of the message, padded with zeros. Readable until this side answers with a message
    /// of its own that may have to be repeated, or has something else to say; after the last
    /// event of the connection until the next call of `input` or `connect`, unless it is
    /// [kept](Cm::keep); empty for a connection that is not known.
    #[must_use]
    pub fn private_data(&self, conn: ConnId) -> &[u8] {
        match self.slots.get(conn.index()) {
            Some(slot) if slot.id == conn.id => slot.private(),
            Some(_) | None => &[],
        }
    }

    /// Keeps the private data of a connection, and its slot, until [`Cm::release`]: also behind the
    /// end of the connection.
    pub fn keep(&mut self, conn: ConnId) {
        self.set_kept(conn, true);
    }

    /// Lets go of private data that was kept. No effect if it was not.
    pub fn release(&mut self, conn: ConnId) {
        self.set_kept(conn, false);
    }

    fn set_kept(&mut self, conn: ConnId, kept: bool) {
        let slot = self.slots.get_mut(conn.index());
        if let Some(slot) = slot.filter(|slot| slot.id == conn.id) {
            slot.kept = kept;
            self.touch(conn.index());
        }
    }

    /// The PSN that this side asks the peer to start with (`rq_psn` of its queue pair).
    #[must_use]
    pub fn starting_psn(&self, conn: ConnId) -> Option<u32> {
        let slot = self.slots.get(conn.index())?;
        (slot.id == conn.id && !slot.ended).then_some(slot.terms.rq_psn)
    }

    /// Returns the counts of messages.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Slots that hold no connection, not even one in timewait.
    #[must_use]
    pub fn vacant_slots(&self) -> usize {
        self.slots.iter().filter(|slot| slot.vacant()).count()
    }
}

impl Slot {
    /// The peer is ready.
    pub(super) fn establish(&mut self) {
        self.rest(State::Established);
        // A REP that still waits to be sent has served its purpose.
        self.queue(Send::Nothing);
        self.raise(Event::Established);
    }
}
