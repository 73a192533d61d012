//! Looking up the queue pair of a service for datagrams: SIDR_REQ there, SIDR_REP back (IBTA volume
//! 1, 12.11).
//!
//! A look-up occupies a slot as a connection does, and its [`ConnId`] is the request ID on the
//! wire. It ends with its answer: there is nothing to disconnect; but the side that asked may keep
//! the answer there ([`Cm::sidr_keep`]) for as long as nobody needs the slot. The side that
//! answered remembers what it said for as long as the question may be repeated, unless the slot is
//! needed before.

use core::net::IpAddr;

use crate::cm::calls::{FAMILY, QPN_RANGE, fits};
use crate::cm::event::{CmError, SidrReply};
use crate::cm::lists::Kind;
use crate::cm::params::ConnId;
use crate::cm::slot::{Event, Send, Slot, State, Verdict};
use crate::cm::wire::header::{MAD_LEN, WireError, address, gid, is_v4};
use crate::cm::wire::ip::{IP_HEADER_LEN, IpHeader, ip_header};
use crate::cm::wire::service::ServiceId;
use crate::cm::wire::sidr::{SidrRep, SidrReq, SidrStatus};
use crate::cm::{Answer, Answered, Cm};
use crate::provider::{Class, LinkType, NextHop, Path, SubnetPath};
use crate::types::time::Instant;

/// Everything a SIDR_REQ says.
#[derive(Clone, Copy, Debug)]
pub struct SidrParams<'a> {
    /// Address of the peer; only an answer from there counts.
    pub remote: IpAddr,
    /// Own address; same family as `remote`.
    pub local: IpAddr,
    /// The service looked up: [`ServiceId::udp`] for a port of the RDMA IP CM service.
    pub service: ServiceId,
    /// Own port, sent to the peer in the IP CM header.
    pub source_port: u16,
    /// Traffic class and priority of the SIDR_REQ, and of datagrams to what is found.
    pub class: Class,
    /// For the peer's consumer: at most 180 bytes to an IP CM service, 216 to any other. Reaches
    /// it padded with zeros.
    pub private_data: &'a [u8],
}

impl Cm<'_> {
    /// Looks a service up: sends a SIDR_REQ. `SidrReply` or `Unreachable` follows, and ends it.
    pub fn sidr_request(
        &mut self,
        now: Instant,
        params: &SidrParams<'_>,
    ) -> Result<ConnId, CmError> {
        let conn = self.sidr_prepare(now, params, Instant::NEVER, 0)?;
        self.sidr_go(now, conn);
        Ok(conn)
    }

    /// Takes a slot for a look-up whose path is still to be resolved: [`Cm::sidr_go`] sends the
    /// SIDR_REQ. `Unreachable` follows at `limit` at the latest. `asker` is the caller's word for
    /// [`Cm::sidr_end_all`].
    pub fn sidr_prepare(
        &mut self,
        now: Instant,
        params: &SidrParams<'_>,
        limit: Instant,
        asker: u32,
    ) -> Result<ConnId, CmError> {
        let (local, remote) = (gid(params.local), gid(params.remote));
        if is_v4(local) != is_v4(remote) {
            return Err(FAMILY);
        }
        let header = ip_header(params.source_port, local, remote);
        let header: &[u8] = if params.service.udp_port().is_some() { &header } else { &[] };
        fits(params.private_data.len(), SidrReq::<()>::PRIVATE - header.len())?;
        let slot = self.begin(now, State::SidrReady, remote)?;
        slot.terms.class = params.class;
        let mut req = SidrReq::new_unchecked(slot.store(SidrReq::<()>::ATTRIBUTE, [slot.id, 0]));
        req.set_p_key(0xffff);
        req.set_service_id(params.service.0);
        req.put_private(header, params.private_data);
        slot.queue(Send::Nothing);
        slot.limit = limit;
        slot.deadline = limit;
        slot.asker = asker.wrapping_add(1);
        let conn = slot.conn();
        self.touch(conn.index());
        Ok(conn)
    }

    /// A look-up that waits for [`Cm::sidr_go`], and its peer: each in its turn.
    pub fn sidr_next(&mut self) -> Option<(ConnId, IpAddr)> {
        let index = self.next_path()?;
        self.slots.get(index).map(|slot| (slot.conn(), address(slot.remote)))
    }

    /// Stores the path to the peer of a look-up, for datagrams to the Endpoint that it found. The
    /// class is that of the look-up, or on InfiniBand that of the path.
    pub fn sidr_set_path(&mut self, conn: ConnId, path: &Path, subnet: Option<&SubnetPath>) {
        if let Ok(slot) = self.live(conn) {
            if let Some(subnet) = subnet {
                slot.remote = gid(path.remote);
                slot.terms.class = path.class;
                if slot.state == State::SidrReady {
                    SidrReq::new_unchecked(slot.stored()).set_p_key(subnet.p_key);
                }
            }
            slot.next_hop = path.next_hop.bytes();
            slot.source_index = path.source_index;
            slot.hop_limit = path.hop_limit;
            slot.flow_label = path.flow_label;
        }
    }

    /// Returns the path that [`Cm::sidr_set_path`] stored, while the slot is that look-up's.
    #[must_use]
    pub fn sidr_path(&self, conn: ConnId) -> Option<Path> {
        let slot = self.slots.get(conn.index())?;
        (slot.id == conn.id).then_some(Path {
            remote: address(slot.remote),
            next_hop: NextHop::of(self.config.link, slot.next_hop),
            source_index: slot.source_index,
            hop_limit: slot.hop_limit,
            class: slot.terms.class,
            flow_label: slot.flow_label,
        })
    }

    /// Sends the SIDR_REQ of a look-up that was prepared. No effect on one that has ended.
    pub fn sidr_go(&mut self, now: Instant, conn: ConnId) {
        if let Ok(slot) = self.live(conn) {
            if slot.state == State::SidrReady {
                slot.state = State::SidrSent;
                slot.queue(Send::Stored);
                slot.await_answer(now);
                self.touch(conn.index());
            }
        }
    }

    /// Keeps the answer to a look-up, private data and all, after its `SidrReply`: until
    /// [`Cm::sidr_end`], or until a connection needs the slot and there is no other.
    pub fn sidr_keep(&mut self, reply: &SidrReply) {
        let asked = self.slots.get_mut(reply.conn.index());
        if let Some(slot) = asked.filter(|slot| slot.id == reply.conn.id && slot.vacant()) {
            slot.rest(State::SidrKept);
            self.touch(reply.conn.index());
        }
    }

    /// The answer that is kept.
    #[must_use]
    pub fn sidr_kept(&self, conn: ConnId) -> Option<SidrReply> {
        let slot = self.slots.get(conn.index())?;
        match slot.verdict {
            Verdict::Answered(status) if slot.id == conn.id && slot.state == State::SidrKept => {
                Some(slot.reply(status))
            }
            Verdict::Answered(_)
            | Verdict::Rejected(_)
            | Verdict::Unreachable
            | Verdict::Disconnected(_) => None,
        }
    }

    /// Ends a look-up of this side, of which nothing more is said, or lets its answer go.
    pub fn sidr_end(&mut self, conn: ConnId) {
        let asked = self.slots.get_mut(conn.index());
        if let Some(slot) = asked.filter(|slot| slot.id == conn.id) {
            if matches!(
                slot.state,
                State::SidrReady | State::SidrSent | State::SidrKept | State::Idle
            ) {
                slot.forget();
                slot.rest(State::Idle);
                slot.queue(Send::Nothing);
                slot.asker = 0;
                self.touch(conn.index());
            }
        }
    }

    /// The same of all look-ups of one who asks, or of those that have no answer that is kept.
    pub fn sidr_end_all(&mut self, asker: u32, answers: bool) {
        self.each_of_asker(asker.wrapping_add(1), |cm, index| {
            let kept = |slot: &&Slot| answers || slot.state != State::SidrKept;
            if let Some(conn) = cm.slots.get(index).filter(kept).map(Slot::conn) {
                cm.sidr_end(conn);
            }
        });
    }

    /// Answers a `SidrRequest` with this queue pair: it takes datagrams with that Q_Key. Private
    /// data: at most 136 bytes. The look-up is over; the peer's datagrams are all that can
    /// follow. On an error nothing has changed.
    pub fn sidr_accept(
        &mut self,
        now: Instant,
        conn: ConnId,
        qpn: u32,
        q_key: u32,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let slot = self.live(conn)?;
        if slot.state != State::SidrReceived {
            return Err(CmError::State(conn, slot.state.words()));
        }
        if !(2..1 << 24).contains(&qpn) {
            return Err(QPN_RANGE);
        }
        fits(private_data.len(), SidrRep::<()>::PRIVATE)?;
        self.sidr_answer(now, conn, SidrStatus::VALID, [qpn, q_key], private_data);
        Ok(())
    }

    /// Sends the answer, now and again whenever the peer repeats its question.
    #[inline(never)]
    pub(super) fn sidr_answer(
        &mut self,
        now: Instant,
        conn: ConnId,
        status: SidrStatus,
        [qpn, q_key]: [u32; 2],
        private_data: &[u8],
    ) {
        let span = self.reject_memory();
        let index = conn.index();
        if let Some(slot) = self.slots.get_mut(index) {
            slot.forget();
            let service = slot.service;
            let mut rep =
                SidrRep::new_unchecked(slot.store(SidrRep::<()>::ATTRIBUTE, [slot.remote_id, 0]));
            rep.set_status(status.0);
            rep.set_qpn(qpn);
            rep.set_service_id(service.0);
            rep.set_q_key(q_key);
            rep.put_private(&[], private_data);
            slot.state = State::SidrAnswered;
            slot.deadline = now.after(span);
        }
        self.touch(index);
    }

    /// Somebody looks a service up.
    pub(super) fn sidr_req(
        &mut self,
        now: Instant,
        from: u128,
        transaction: u64,
        req: SidrReq<&[u8; MAD_LEN]>,
    ) -> Result<(), WireError> {
        req.check()?;
        let (request_id, service) = (req.request_id(), ServiceId(req.service_id()));
        let refuse = |cm: &mut Self, status| {
            let what = Answered::Sidr(status, service);
            let (local_id, remote_id) = (request_id, 0);
            cm.answer(Answer { to: from, transaction, local_id, remote_id, what });
        };
        let span = self.reject_memory();
        let peer = self.peer(from, 0);
        let known = self.look_up(Kind::Id, request_id, peer, |_, slot| {
            matches!(slot.state, State::SidrReceived | State::SidrAnswered)
        });
        if let Some(index) = known {
            self.counters.duplicates += 1;
            if let Some(slot) = self.slots.get_mut(index) {
                if slot.state == State::SidrAnswered {
                    slot.queue(Send::Stored);
                    slot.deadline = now.after(span);
                }
            }
            self.touch(index);
            return Ok(());
        }
        let mut private = req.private();
        // Only a request to an IP CM service carries the addresses.
        let mut local = if is_v4(from) { 0xffff << 32 } else { 0 };
        let (mut remote_port, mut named) = (0, None);
        let on_ethernet = self.config.link == LinkType::Ethernet;
        if service.udp_port().is_some() {
            let header = private.split_first_chunk::<IP_HEADER_LEN>();
            let Some((Ok(header), rest)) =
                header.map(|(header, rest)| (IpHeader::parse(header), rest))
            else {
                refuse(self, SidrStatus::REJECTED);
                return Err(WireError::Field);
            };
            let (source, destination) = header.addresses();
            if on_ethernet && gid(source) != from {
                self.counters.wrong_address += 1;
                self.counters.foreign += 1;
                refuse(self, SidrStatus::REJECTED);
                return Ok(());
            }
            (remote_port, local, private) = (header.source_port(), gid(destination), rest);
            if !on_ethernet {
                named = Some(gid(source));
            }
        }
        let Some((index, slot)) = self.allocate() else {
            self.counters.no_slot += 1;
            refuse(self, SidrStatus::NO_QP);
            return Ok(());
        };
        slot.state = State::SidrReceived;
        (slot.remote, slot.peer) = (from, peer);
        slot.local = local;
        slot.remote_id = request_id;
        slot.remote_port = remote_port;
        slot.service = service;
        slot.transaction = transaction;
        slot.set_private(private);
        if let Some(named) = named {
            // No REQ names a LID, but there is one.
            slot.next_hop = [0xff; 6];
            slot.set_named(named);
        }
        slot.raise(Event::Request);
        self.touch(index);
        Ok(())
    }

    /// The answer to a look-up of this side.
    pub(super) fn sidr_rep(
        &mut self,
        from: u128,
        transaction: u64,
        rep: SidrRep<&[u8; MAD_LEN]>,
    ) -> Result<(), WireError> {
        rep.check()?;
        let request_id = rep.request_id();
        let asked = self.conn_of(request_id).and_then(|conn| self.slots.get_mut(conn.index()));
        let Some(slot) = asked.filter(|slot| slot.state == State::SidrSent) else {
            self.counters.unknown += 1;
            return Ok(());
        };
        if slot.remote != from || slot.transaction != transaction {
            let wrong = if slot.remote == from {
                &mut self.counters.wrong_transaction
            } else {
                &mut self.counters.wrong_address
            };
            *wrong += 1;
            self.counters.foreign += 1;
            return Ok(());
        }
        let index = slot.conn().index();
        slot.terms.remote_qpn = rep.qpn();
        slot.q_key = rep.q_key();
        slot.set_private(rep.private());
        slot.rest(State::Idle);
        slot.queue(Send::Nothing);
        slot.end(Verdict::Answered(SidrStatus(rep.status())));
        self.touch(index);
        Ok(())
    }
}
