//! One connection's place in the table, and the few steps that every state change is made of.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use super::event::{Cause, CmEvent, Reply, Request, SidrReply};
use super::params::{ConnId, QpTerms};
use super::wire::{self, About, Drep, Dreq, MAD_LEN, Mra, Reason, Rtu, ServiceId, SidrStatus};
use crate::provider::Mtu;
use crate::time::Instant;

/// Where a connection stands.
///
/// The specification's MRA states are these plus [`Slot::patience`]; its DREQ_RCVD state is passed through at once,
/// because a DREQ is answered without asking the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No connection. An event or a message may still wait to be taken.
    Idle,
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
    /// A look-up of this side whose way is being found: its SIDR_REQ is stored.
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
        if cfg!(dat_silent) {
            return "";
        }
        match self {
            Self::Idle => "idle",
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
                | Self::SidrReady
                | Self::SidrSent
                | Self::SidrReceived
                | Self::SidrAnswered
                | Self::SidrKept
        )
    }
}

/// The one message a slot wants to send. A newer one replaces an older: each says all that the older said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Send {
    Nothing,
    /// The REQ, REP, REJ or look-up that is stored.
    Stored,
    Mra(About),
    Rtu,
    Dreq,
    Drep,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Rejected(Reason),
    Unreachable,
    Disconnected(Cause),
    /// Of a look-up.
    Answered(SidrStatus),
}

/// What the caller has yet to be told, in the order it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Event {
    Request = 1,
    Reply = 2,
    Established = 4,
    End = 8,
}

/// Room for one connection. An array of these is the table of a [`Cm`](super::Cm).
#[derive(Clone, Debug)]
pub struct Slot {
    /// Local comm ID; kept until the slot is used again.
    pub(super) id: u32,
    pub(super) state: State,
    /// The caller has been told the end, or wants to hear nothing: its ID is void.
    pub(super) ended: bool,
    events: u8,
    pub(super) verdict: Verdict,
    pub(super) send: Send,
    /// The message to send has been sent before.
    pub(super) again: bool,
    /// This side asked for the connection.
    pub(super) active: bool,
    /// What is stored is a REJ.
    pub(super) rejecting: bool,
    /// An MRA has been sent for the REQ: the peer knows the local ID.
    pub(super) mra_sent: bool,
    /// The peer's MRA has been honoured. Once is enough; else a peer could hold a slot without end.
    pub(super) patience: bool,

    pub(super) remote: IpAddr,
    pub(super) local: IpAddr,
    /// The peer's comm ID and adapter; 0 while not known.
    pub(super) remote_id: u32,
    pub(super) remote_guid: u64,
    pub(super) local_qpn: u32,
    pub(super) terms: QpTerms,
    pub(super) service: ServiceId,
    pub(super) remote_port: u16,
    pub(super) flow_label: u32,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    /// Of the queue pair that was looked up.
    pub(super) q_key: u32,
    /// Transaction ID of the exchange under way.
    pub(super) transaction: u64,

    /// When something is due; [`Instant::NEVER`] if nothing is.
    pub(super) deadline: Instant,
    /// When a look-up is given up, whatever tries are left.
    pub(super) limit: Instant,
    /// Time between transmissions.
    pub(super) interval: Duration,
    pub(super) retries: u8,
    /// Retries that each message of this connection gets.
    pub(super) max_retries: u8,

    /// The message to send and to repeat; or, once nothing of it is needed any more, the peer's private data at its beginning.
    mad: [u8; MAD_LEN],
    private_len: u8,
}

impl Slot {
    /// An empty slot.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            id: 0,
            state: State::Idle,
            ended: true,
            events: 0,
            verdict: Verdict::Unreachable,
            send: Send::Nothing,
            again: false,
            active: false,
            rejecting: false,
            mra_sent: false,
            patience: false,
            remote: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            local: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            remote_id: 0,
            remote_guid: 0,
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
            },
            service: ServiceId(0),
            remote_port: 0,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 0,
            q_key: 0,
            transaction: 0,
            deadline: Instant::NEVER,
            limit: Instant::NEVER,
            interval: Duration::ZERO,
            retries: 0,
            max_retries: 0,
            mad: [0; MAD_LEN],
            private_len: 0,
        }
    }

    pub(super) const fn conn(&self) -> ConnId {
        ConnId(self.id)
    }

    /// Nothing happens here any more: no connection, no event, no message.
    pub(super) fn vacant(&self) -> bool {
        self.state == State::Idle && self.events == 0 && self.send == Send::Nothing
    }

    /// Over, and of use only to answer late messages.
    pub(super) fn evictable(&self) -> bool {
        matches!(
            self.state,
            State::TimeWait | State::SidrAnswered | State::SidrKept
        ) && self.events == 0
            && self.send == Send::Nothing
    }

    pub(super) const fn told_everything(&self) -> bool {
        self.events == 0
    }

    /// The peer's private data, until this side stores a message of its own.
    pub(super) fn private(&self) -> &[u8] {
        self.mad
            .get(..usize::from(self.private_len))
            .unwrap_or_default()
    }

    /// Keeps the peer's private data. The message stored before is neither to be sent nor repeated any more.
    #[inline(never)]
    pub(super) fn set_private(&mut self, data: &[u8]) {
        let len = data.len().min(self.mad.len());
        if let (Some(to), Some(from)) = (self.mad.get_mut(..len), data.get(..len)) {
            to.copy_from_slice(from);
        }
        self.private_len = u8::try_from(len).unwrap_or(0);
    }

    /// Sends a message, which stays to be repeated.
    pub(super) fn store(&mut self, mad: [u8; MAD_LEN]) {
        self.mad = mad;
        self.private_len = 0;
        self.queue(Send::Stored);
    }

    /// Makes `event` known to the caller, unless that wants to hear nothing.
    pub(super) fn raise(&mut self, event: Event) {
        if !self.ended {
            self.events |= event as u8;
        }
    }

    pub(super) fn queue(&mut self, send: Send) {
        self.send = send;
        self.again = false;
    }

    /// What is sent needs an answer, and has all its retries.
    pub(super) fn await_answer(&mut self, now: Instant) {
        self.retries = self.max_retries;
        self.deadline = self.limit.min(now + self.interval);
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
        self.deadline = self.limit.min(now + self.interval);
        true
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

    /// Stays around for `span` to answer late messages.
    pub(super) fn time_wait(&mut self, now: Instant, span: Duration) {
        self.state = State::TimeWait;
        self.deadline = now + span;
    }

    /// The caller's part ends with this verdict. What it has not heard of yet is withdrawn where the end makes it void:
    /// a request that is gone needs no word at all.
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

    /// The caller wants to hear nothing more.
    pub(super) fn forget(&mut self) {
        self.events = 0;
        self.ended = true;
    }

    /// Takes the next event.
    pub(super) fn take_event(&mut self) -> Option<CmEvent> {
        let conn = self.conn();
        let all = [Event::Request, Event::Reply, Event::Established, Event::End];
        let event = all
            .into_iter()
            .find(|event| self.events & *event as u8 != 0)?;
        self.events &= !(event as u8);
        Some(match event {
            Event::Request => {
                let request = Request {
                    conn,
                    remote: self.remote,
                    local: self.local,
                    service: self.service,
                    remote_port: self.remote_port,
                    remote_guid: self.remote_guid,
                    flow_label: self.flow_label,
                    traffic_class: self.traffic_class,
                    hop_limit: self.hop_limit,
                    terms: self.terms,
                };
                if self.state == State::SidrReceived {
                    CmEvent::SidrRequest(request)
                } else {
                    CmEvent::Request(request)
                }
            }
            Event::Reply => CmEvent::Reply(Reply {
                conn,
                remote_guid: self.remote_guid,
                terms: self.terms,
            }),
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
        SidrReply {
            conn: self.conn(),
            status,
            qpn: self.terms.remote_qpn,
            q_key: self.q_key,
        }
    }

    /// Takes the message to send. `service_timeout` is what an MRA asks for. The time for an answer counts from here.
    pub(super) fn take_mad(&mut self, now: Instant, service_timeout: u8) -> Option<[u8; MAD_LEN]> {
        let asks = matches!(self.send, Send::Stored | Send::Dreq);
        if asks
            && matches!(
                self.state,
                State::ReqSent | State::RepSent | State::DreqSent | State::SidrSent
            )
        {
            self.deadline = self.limit.min(now + self.interval);
        }
        let ids = [self.id, self.remote_id];
        let plain = |attribute| wire::plain(self.transaction, attribute, ids);
        let mad = match self.send {
            Send::Nothing => return None,
            Send::Stored => self.mad,
            Send::Mra(about) => {
                let mut mad = plain(Mra::<()>::ATTRIBUTE);
                let mut mra = Mra::new_unchecked(&mut mad);
                mra.set_about(about.code());
                mra.set_service_timeout(service_timeout);
                mad
            }
            Send::Rtu => plain(Rtu::<()>::ATTRIBUTE),
            Send::Dreq => {
                let mut mad = plain(Dreq::<()>::ATTRIBUTE);
                Dreq::new_unchecked(&mut mad).set_remote_qpn(self.terms.remote_qpn);
                mad
            }
            Send::Drep => plain(Drep::<()>::ATTRIBUTE),
        };
        self.send = Send::Nothing;
        Some(mad)
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}
