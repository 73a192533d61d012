//! One connection's place in the table, and the few steps that every state change is made of.

use crate::cm::event::{Cause, CmEvent, Reply, Request, SidrReply};
use crate::cm::lists::{Head, Kind, Link};
use crate::cm::params::{ConnId, QpTerms};
use crate::cm::wire;
use crate::cm::wire::disconnect::{Drep, Dreq};
use crate::cm::wire::header::{About, MAD_LEN, address};
use crate::cm::wire::mra::Mra;
use crate::cm::wire::reason::Reason;
use crate::cm::wire::rep::Rep;
use crate::cm::wire::req::Req;
use crate::cm::wire::rtu::Rtu;
use crate::cm::wire::service::ServiceId;
use crate::cm::wire::sidr::SidrStatus;
use crate::provider::{Class, LidHop, Mtu, NextHop};
use crate::types::time::Instant;

/// Where a connection stands.
///
/// The specification's MRA states are these plus [`Slot::patience`]; its DREQ_RCVD state is passed
/// through at once, because a DREQ is answered without asking the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No connection. An event or a message may still wait to be taken.
    Idle,
    /// Active: the path to the peer is being resolved; the REQ is stored.
    ReqReady,
    /// Active: REQ sent.
    ReqSent,
    /// Passive: REQ received, the caller decides.
    ReqReceived,
    /// Active: REP received, the caller brings up its queue pair.
    RepReceived,
    /// Passive: REP sent.
    RepSent,
    /// Established.
    Established,
    /// DREQ sent.
    DreqSent,
    /// Over; late messages are still answered.
    TimeWait,
    /// A look-up of this side whose path is being resolved: its SIDR_REQ is stored.
    SidrReady,
    /// A look-up: SIDR_REQ sent.
    SidrSent,
    /// A look-up: SIDR_REQ received, the caller decides.
    SidrReceived,
    /// A look-up: answered; a repeated question is answered again.
    SidrAnswered,
    /// A look-up of this side: its answer is kept.
    SidrKept,
}

impl State {
    /// For error texts: "the connection is ...".
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::ReqReady => "waiting for the path to its peer",
            Self::ReqSent => "waiting for the answer to its request",
            Self::ReqReceived => "waiting to be accepted or rejected",
            Self::RepReceived => "waiting for its queue pair",
            Self::RepSent => "accepted and waiting for the peer",
            Self::Established => "established",
            Self::DreqSent => "disconnecting",
            Self::TimeWait | Self::SidrAnswered | Self::SidrKept => "over",
            Self::SidrReady | Self::SidrSent => "waiting for the answer to its look-up",
            Self::SidrReceived => "a look-up that waits to be answered",
        }
    }

    /// It is a connection that exists on the wire, and no look-up.
    pub(super) const fn connects(self) -> bool {
        !matches!(
            self,
            Self::Idle
                | Self::ReqReady
                | Self::SidrReady
                | Self::SidrSent
                | Self::SidrReceived
                | Self::SidrAnswered
                | Self::SidrKept
        )
    }
}

/// The one message a slot wants to send. A newer one replaces an older: each says all that the
/// older said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Send {
    Nothing,
    /// The REQ, REP, REJ or look-up that is stored.
    Stored,
    Mra(About),
    Rtu,
    Dreq,
    Drep,
    /// The stored REP and then a DREQ that ends nothing; the latter alone.
    Probe,
    ProbeDreq,
}

/// QP1: a queue pair that no connection has.
const NOT_CONNECTED: u32 = 1;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Rejected(Reason),
    Unreachable,
    Disconnected(Cause),
    /// Of a look-up.
    Answered(SidrStatus),
}

/// Events that the caller has yet to take, in the order in which it gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Event {
    Request = 1,
    Reply = 2,
    Established = 4,
    End = 8,
}

/// What slots are counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// A look-up of this side that waits for its path.
    Resolving,
    /// A look-up of this side that waits for its answer.
    Asking,
    /// A connection whose end the peer has not confirmed yet.
    Ending,
}

impl State {
    pub(super) const fn counted(self) -> Option<Counted> {
        match self {
            Self::SidrReady => Some(Counted::Resolving),
            Self::SidrSent => Some(Counted::Asking),
            Self::DreqSent => Some(Counted::Ending),
            Self::Idle
            | Self::ReqReady
            | Self::ReqSent
            | Self::ReqReceived
            | Self::RepReceived
            | Self::RepSent
            | Self::Established
            | Self::TimeWait
            | Self::SidrReceived
            | Self::SidrAnswered
            | Self::SidrKept => None,
        }
    }
}

/// Room for one connection. An array of these is the table of a [`Cm`](crate::cm::Cm).
#[derive(Clone, Debug)]
pub struct Slot {
    /// Local comm ID; kept until the slot is used again.
    pub(super) id: u32,
    /// Which slot of the table it is, and how often it was used.
    pub(super) index: u32,
    pub(super) generation: u16,
    pub(super) state: State,
    /// The caller has got the end, or wants no more events: its ID is void.
    pub(super) ended: bool,
    events: u8,
    pub(super) verdict: Verdict,
    pub(super) send: Send,
    /// The message to send has been sent before.
    pub(super) again: bool,
    /// This side asked for the connection.
    pub(super) active: bool,
    /// The stored message is a REJ.
    pub(super) rejecting: bool,
    /// The stored message is a REP, as far as its private data.
    replying: bool,
    /// The caller still reads the private data: the slot gives way to no other connection.
    pub(super) kept: bool,
    /// An MRA has been sent for the REQ: the peer knows the local ID.
    pub(super) mra_sent: bool,
    /// The peer's MRA has been honoured. Once is enough; else a peer could hold a slot without
    /// end.
    pub(super) patience: bool,

    /// GIDs; this side's own as the peer gave it.
    pub(super) remote: u128,
    pub(super) local: u128,
    /// The peer's comm ID; 0 while not known.
    pub(super) remote_id: u32,
    /// The peer's address and adapter, as the index has them.
    pub(super) peer: u64,
    pub(super) local_qpn: u32,
    pub(super) terms: QpTerms,
    pub(super) service: ServiceId,
    pub(super) remote_port: u16,
    pub(super) flow_label: u32,
    pub(super) hop_limit: u8,
    /// Of the queue pair that was looked up.
    pub(super) q_key: u32,
    /// The rest of the path to it, as [`NextHop::bytes`]. On InfiniBand the LID that the peer's REQ
    /// names, too; on Ethernet a request has none.
    pub(super) next_hop: [u8; 6],
    /// Ethernet: entry of the address table. InfiniBand: packet lifetime of the path of an active
    /// connection, as a code; on the passive side whether the REQ has an alternate path.
    pub(super) source_index: u8,
    /// Transaction ID of the peer's latest question, or of this side's REQ or SIDR_REQ.
    pub(super) transaction: u64,
    /// That of the DREQ or the probe that this side has sent; 0 if none waits for an answer.
    pub(super) asked: u64,

    /// When something is due; [`Instant::NEVER`] if nothing is.
    pub(super) deadline: Instant,
    /// When a look-up is given up, whatever tries are left.
    pub(super) limit: Instant,
    /// Time between transmissions, in nanoseconds.
    pub(super) interval: u64,
    pub(super) retries: u8,
    /// Retries that each message of this connection gets.
    pub(super) max_retries: u8,
    /// The list that its link of that kind is in.
    pub(super) spare: Option<Head>,
    /// What it is counted as.
    pub(super) counted: Option<Counted>,
    /// Whose look-up of this side it is: the caller's word, counted from 1. 0 if it is none.
    pub(super) asker: u32,
    pub(super) links: [Link; Kind::COUNT],
    /// The earliest deadline below a node of the tree of all deadlines, which is not this slot's.
    pub(super) soonest: Instant,

    /// The message to send and to repeat; or, once nothing of it is needed any more, the peer's
    /// private data at its beginning.
    mad: [u8; MAD_LEN],
    private_len: u8,
}

const _: () = assert!(size_of::<Slot>() <= 480, "a slot is longer than its budget");

impl Slot {
    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            id: 0,
            index: 0,
            generation: 0,
            state: State::Idle,
            ended: true,
            events: 0,
            verdict: Verdict::Unreachable,
            send: Send::Nothing,
            again: false,
            active: false,
            rejecting: false,
            replying: false,
            kept: false,
            mra_sent: false,
            patience: false,
            remote: 0,
            local: 0,
            remote_id: 0,
            peer: 0,
            local_qpn: 0,
            terms: QpTerms {
                remote_qpn: 0,
                rq_psn: 0,
                sq_psn: 0,
                mtu: Mtu::B256,
                responder_resources: 0,
                initiator_depth: 0,
                retry_count: 0,
                rnr_retry: 0,
                ack_timeout: 0,
                class: Class { traffic_class: 0, priority: 0 },
            },
            service: ServiceId(0),
            remote_port: 0,
            flow_label: 0,
            hop_limit: 0,
            q_key: 0,
            next_hop: [0; 6],
            source_index: 0,
            transaction: 0,
            asked: 0,
            deadline: Instant::NEVER,
            limit: Instant::NEVER,
            interval: 0,
            retries: 0,
            max_retries: 0,
            spare: None,
            counted: None,
            asker: 0,
            links: [Link::NONE; Kind::COUNT],
            soonest: Instant::NEVER,
            mad: [0; MAD_LEN],
            private_len: 0,
        }
    }

    /// Forgets all that was here.
    #[inline(never)]
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Forgets the connection that was here; what belongs to the table stays.
    #[inline(never)]
    pub(super) fn renew(&mut self) {
        let Self { generation, links, soonest, .. } = *self;
        *self = Self { generation, links, soonest, ..Self::new() };
    }

    pub(super) const fn conn(&self) -> ConnId {
        ConnId::new(self.id, self.index)
    }

    /// The communication IDs of both sides, this one's first.
    pub(super) const fn ids(&self) -> [u32; 2] {
        [self.id, self.remote_id]
    }

    /// Nothing happens here any more: no connection, no event, no message.
    pub(super) fn vacant(&self) -> bool {
        self.state == State::Idle && self.events == 0 && self.send == Send::Nothing && !self.kept
    }

    pub(super) const fn has_no_events(&self) -> bool {
        self.events == 0
    }

    /// The peer's private data, until this side stores a message of its own.
    pub(super) fn private(&self) -> &[u8] {
        self.mad.get(..usize::from(self.private_len)).unwrap_or_default()
    }

    /// Keeps what a REQ on InfiniBand says of its path, and the address of the peer that it names.
    pub(super) fn set_subnet(&mut self, req: Req<&[u8; MAD_LEN]>, named: Option<u128>) {
        let hop = LidHop { lid: req.local_lid(), ..LidHop::default() };
        self.next_hop = NextHop::Lid(hop).bytes();
        self.source_index = u8::from(req.alternate_lid() != 0);
        if let Some(named) = named {
            self.set_named(named);
        }
    }

    /// Keeps the address by which the consumer knows the peer, until this side stores a message: at
    /// the end of the bytes, behind the private data of every request.
    pub(super) fn set_named(&mut self, named: u128) {
        if let Some(place) = self.mad.last_chunk_mut() {
            *place = named.to_be_bytes();
        }
    }

    fn named(&self) -> Option<u128> {
        if self.next_hop == [0; 6] {
            return None;
        }
        let named = self.mad.last_chunk().copied().map_or(0, u128::from_be_bytes);
        (named != 0).then_some(named)
    }

    /// Keeps the peer's private data. The message stored before is neither to be sent nor repeated
    /// any more.
    #[inline(never)]
    pub(super) fn set_private(&mut self, data: &[u8]) {
        let len = wire::copy(&mut self.mad, data);
        self.private_len = u8::try_from(len).unwrap_or(0);
    }

    /// Sends a message, which stays to be repeated: so far with these two IDs and nothing else in
    /// it.
    pub(super) fn store(&mut self, attribute: u16, ids: [u32; 2]) -> &mut [u8; MAD_LEN] {
        self.queue(Send::Stored);
        self.prepare(attribute, ids)
    }

    /// Stores a message that is to be sent later.
    fn prepare(&mut self, attribute: u16, ids: [u32; 2]) -> &mut [u8; MAD_LEN] {
        self.mad = wire::header::plain(self.transaction, attribute, ids);
        self.private_len = 0;
        self.replying = false;
        &mut self.mad
    }

    /// Stores a REP that has its private data and nothing else in it.
    pub(super) fn prepare_reply(&mut self, private: &[u8]) {
        let mad = self.prepare(Rep::<()>::ATTRIBUTE, self.ids());
        Rep::new_unchecked(mad).put_private(&[], private);
        self.replying = true;
    }

    /// The REP to fill in and send.
    pub(super) fn reply_to_send(&mut self) -> &mut [u8; MAD_LEN] {
        if !self.replying {
            self.prepare_reply(&[]);
        }
        self.queue(Send::Stored);
        &mut self.mad
    }

    /// The message that is stored.
    pub(super) const fn stored(&mut self) -> &mut [u8; MAD_LEN] {
        &mut self.mad
    }

    /// Queues `event` for the caller, unless the caller wants no more.
    pub(super) fn raise(&mut self, event: Event) {
        if !self.ended {
            self.events |= event as u8;
        }
    }

    pub(super) fn queue(&mut self, send: Send) {
        self.send = send;
        self.again = false;
    }

    /// The message to send needs an answer, and has all its retries.
    pub(super) fn await_answer(&mut self, now: Instant) {
        self.retries = self.max_retries;
        self.deadline = self.limit.min(now.after(self.interval));
        self.patience = false;
    }

    /// Sends it again, if a retry is left.
    pub(super) fn ask_again(&mut self, now: Instant, send: Send) -> bool {
        let Some(left) = self.retries.checked_sub(1) else {
            return false;
        };
        self.retries = left;
        self.send = send;
        self.again = true;
        self.deadline = self.limit.min(now.after(self.interval));
        true
    }

    /// Sends once more, before it is due, what an answer is awaited to.
    pub(super) fn repeat(&mut self, send: Send) {
        self.queue(send);
        self.again = true;
    }

    /// What asks the peer whether it knows the connection.
    pub(super) const fn probe(&self) -> Send {
        if self.active { Send::ProbeDreq } else { Send::Probe }
    }

    /// Enters a state in which nothing is due.
    pub(super) fn rest(&mut self, state: State) {
        self.state = state;
        self.deadline = Instant::NEVER;
    }

    /// Nobody has answered a look-up.
    pub(super) fn give_up_look_up(&mut self) {
        self.rest(State::Idle);
        self.queue(Send::Nothing);
        self.end(Verdict::Unreachable);
    }

    /// Stays around for `span` nanoseconds to answer late messages.
    pub(super) fn time_wait(&mut self, now: Instant, span: u64) {
        self.state = State::TimeWait;
        self.deadline = now.after(span);
    }

    /// The caller's part ends with this verdict. Events not taken yet are withdrawn where the end
    /// makes them void; a request that is gone needs no event at all.
    #[inline(never)]
    pub(super) fn end(&mut self, verdict: Verdict) {
        if self.ended {
            return;
        }
        if self.events & Event::Request as u8 == 0 {
            self.events &= !(Event::Reply as u8);
            self.events |= Event::End as u8;
            self.verdict = verdict;
        } else {
            self.events = 0;
        }
        self.ended = true;
    }

    /// The caller wants no more events.
    pub(super) fn forget(&mut self) {
        self.events = 0;
        self.ended = true;
    }

    /// Takes the next event.
    pub(super) fn take_event(&mut self) -> Option<CmEvent> {
        let conn = self.conn();
        let all = [Event::Request, Event::Reply, Event::Established, Event::End];
        let event = all.into_iter().find(|event| self.events & *event as u8 != 0)?;
        self.events &= !(event as u8);
        Some(match event {
            Event::Request => {
                let request = Request {
                    conn,
                    remote: address(self.named().unwrap_or(self.remote)),
                    local: address(self.local),
                    service: self.service,
                    remote_port: self.remote_port,
                    flow_label: self.flow_label,
                    hop_limit: self.hop_limit,
                    terms: self.terms,
                };
                if self.state == State::SidrReceived {
                    CmEvent::SidrRequest(request)
                } else {
                    CmEvent::Request(request)
                }
            }
            Event::Reply => CmEvent::Reply(Reply { conn, terms: self.terms }),
            Event::Established => CmEvent::Established { conn },
            Event::End => match self.verdict {
                Verdict::Rejected(reason) => CmEvent::Rejected { conn, reason },
                Verdict::Unreachable => CmEvent::Unreachable { conn },
                Verdict::Disconnected(cause) => CmEvent::Disconnected { conn, cause },
                Verdict::Answered(status) => CmEvent::SidrReply(self.reply(status)),
            },
        })
    }

    /// The answer to a look-up.
    pub(super) const fn reply(&self, status: SidrStatus) -> SidrReply {
        SidrReply { conn: self.conn(), status, qpn: self.terms.remote_qpn, q_key: self.q_key }
    }

    /// Takes the message to send. `service_timeout` is what an MRA asks for. The time for an answer
    /// counts from here.
    pub(super) fn take_mad(&mut self, now: Instant, service_timeout: u8) -> Option<[u8; MAD_LEN]> {
        let asks = matches!(self.send, Send::Stored | Send::Dreq) && !self.again;
        if asks
            && matches!(
                self.state,
                State::ReqSent | State::RepSent | State::DreqSent | State::SidrSent
            )
        {
            self.deadline = self.limit.min(now.after(self.interval));
        }
        let send = core::mem::replace(&mut self.send, Send::Nothing);
        let (attribute, transaction) = match send {
            Send::Nothing => return None,
            Send::Stored => return Some(self.mad),
            Send::Probe => {
                self.send = Send::ProbeDreq;
                return Some(self.mad);
            }
            Send::Mra(_) => (Mra::<()>::ATTRIBUTE, self.transaction),
            Send::Rtu => (Rtu::<()>::ATTRIBUTE, self.transaction),
            Send::Dreq | Send::ProbeDreq => (Dreq::<()>::ATTRIBUTE, self.asked),
            Send::Drep => (Drep::<()>::ATTRIBUTE, self.transaction),
        };
        let mut mad = wire::header::plain(transaction, attribute, self.ids());
        if let Send::Mra(about) = send {
            let mut mra = Mra::new_unchecked(&mut mad);
            mra.set_about(about.code());
            mra.set_service_timeout(service_timeout);
        } else if send == Send::Dreq {
            Dreq::new_unchecked(&mut mad).set_remote_qpn(self.terms.remote_qpn);
        } else if send == Send::ProbeDreq {
            Dreq::new_unchecked(&mut mad).set_remote_qpn(NOT_CONNECTED);
        }
        Some(mad)
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}
