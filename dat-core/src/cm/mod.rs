//! The InfiniBand connection manager (CM), as RoCEv2 and the RDMA IP CM service speak it.
//!
//! Two nodes that want to connect a pair of queue pairs exchange REQ, REP and RTU datagrams, and
//! DREQ and DREP in the end (IBTA volume 1, chapter 12; annex A11 for the IP CM service that
//! rdma_cm uses). [`Cm`] keeps that exchange for all connections of a node: retransmission,
//! duplicates, refusals, stale connections and time-outs.
//!
//! It does no input or output and reads no clock. Datagrams go in by [`Cm::input`] and come out by
//! [`Cm::poll_transmit`], events by [`Cm::poll_event`], and [`Cm::next_deadline`] says when
//! [`Cm::advance`] wants to be called. So two of them can be run against each other in one test
//! with every datagram and the time under its control (`tests/cm`).
//!
//! ```text
//!  active                                  passive
//!  connect          -- REQ -->             Request       queue pair to ready-to-send, then
//!  Reply            <-- REP --             accept
//!  queue pair to ready-to-send, then
//!  ready            -- RTU -->             Established
//!  disconnect       -- DREQ ->             Disconnected  (either side may begin)
//!  Disconnected     <-- DREP -             at once
//!
//!  sidr_request     -- SIDR_REQ ->         SidrRequest   the queue pair of a service for datagrams, then
//!  SidrReply        <- SIDR_REP --         sidr_accept
//! ```
//!
//! Possible attackers, and the protection:
//! * An unknown host: comm IDs, transaction IDs and PSNs are unpredictable; a message counts only
//!   from the address that the exchange began with, and with both comm IDs (and, to disconnect, the
//!   queue pair number) right. Where the peer's is not known yet, or the peer does not know this
//!   side's, the transaction counts in its place. What fails is dropped and counted by cause.
//! * An unknown host that asks for a connection in a peer's name: the request looks as if the peer
//!   had lost the one it has. It is rejected, and the peer is asked; only what the peer says, or its
//!   silence, ends a connection.
//! * A peer that asks for too much time: its times are cut to [`Config::longest_response`] and
//!   [`Config::service_timeout`], its MRA counts once per message.
//! * A peer that asks too often: no more connections than slots. How many of them may wait for an
//!   answer is the caller's decision; each one it rejects costs a slot only until another is
//!   needed.
//!
//! Deliberately not here: listeners (every REQ is a [`CmEvent::Request`], the caller knows who
//! listens), the consumer's timeout of a connection (the caller calls [`Cm::abort`]; a look-up
//! keeps its own), path migration (LAP, APR), and private data of RTU, DREQ and DREP, which neither
//! DAT nor rdma_cm can carry.

pub(crate) mod calls;
pub(crate) mod event;
pub(crate) mod ids;
pub(crate) mod input;
pub(crate) mod lists;
pub(crate) mod params;
pub(crate) mod poll;
pub(crate) mod sidr;
pub(crate) mod slot;
pub(crate) mod table;
pub mod wire;

use core::time::Duration;

use heapless::Deque;

use crate::cm::ids::Ids;
use crate::cm::lists::Lists;
use crate::cm::params::code_nanos;
use crate::cm::slot::{Counted, Send, State};
use crate::cm::wire::disconnect::Drep;
use crate::cm::wire::header::About;
use crate::cm::wire::rej::Rej;
use crate::cm::wire::sidr::SidrRep;
use crate::types::random::Random;
use crate::types::time::Instant;

pub use crate::cm::event::{
    Cause, CmError, CmEvent, Counters, Reply, Request, SidrReply, Transmit,
};
pub use crate::cm::params::{
    AcceptParams, Config, ConnId, ConnectParams, QpTerms, ack_timeout, code_time,
};
pub use crate::cm::sidr::SidrParams;
pub use crate::cm::slot::Slot;
pub use crate::cm::wire::reason::Reason;
pub use crate::cm::wire::rej::Ari;
pub use crate::cm::wire::service::ServiceId;
pub use crate::cm::wire::sidr::SidrStatus;

/// Answers to messages of no connection that may wait to be sent at one time.
const ANSWERS: usize = 32;
/// Answers at most in [`STRANGE_TIME`] to messages of connections that do not exist here. A peer
/// that has one says it again; whoever forges them gets less than it sends.
const STRANGE: u32 = 64;
const STRANGE_TIME: Duration = Duration::from_millis(100);

/// The connection manager: a table of connections, bytes in, bytes out.
#[derive(Debug)]
pub struct Cm<'s> {
    slots: &'s mut [Slot],
    /// Slots from here on were never used: no search goes there.
    fresh: usize,
    config: Config,
    ids: Ids,
    psns: Random,
    transactions: Random,
    answers: Deque<Answer, ANSWERS>,
    /// How many answers to messages of no connection are left, until when.
    strange: (u32, Instant),
    counters: Counters,
    /// Slots by [`Counted`].
    counts: [usize; 3],
    /// Key of the index: of a peer, and of its numbers.
    peers: [u64; 2],
    numbers: u64,
    lists: Lists,
}

/// A message that belongs to no slot. That of a look-up has one ID, which is the first.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// GID.
    to: u128,
    transaction: u64,
    local_id: u32,
    remote_id: u32,
    what: Answered,
}

#[derive(Clone, Copy, Debug)]
enum Answered {
    Drep,
    Rej(About, Reason),
    Sidr(SidrStatus, ServiceId),
}

impl Answer {
    fn emit(&self) -> [u8; wire::MAD_LEN] {
        let plain = |attribute, local_id| {
            wire::header::plain(self.transaction, attribute, [local_id, self.remote_id])
        };
        match self.what {
            Answered::Drep => plain(Drep::<()>::ATTRIBUTE, self.local_id),
            Answered::Rej(about, reason) => {
                let mut mad = plain(Rej::<()>::ATTRIBUTE, self.local_id);
                Rej::new_unchecked(&mut mad).refuse(about, reason);
                mad
            }
            Answered::Sidr(status, service) => {
                let mut mad = plain(SidrRep::<()>::ATTRIBUTE, self.local_id);
                let mut rep = SidrRep::new_unchecked(&mut mad);
                rep.set_status(status.0);
                rep.set_service_id(service.0);
                mad
            }
        }
    }
}

impl<'s> Cm<'s> {
    /// Connections whose end the peer has not confirmed yet.
    #[must_use]
    pub fn ending(&self) -> usize {
        self.counted(Counted::Ending)
    }

    /// Look-ups of this side that wait for their paths or their answers.
    #[must_use]
    pub fn asking(&self) -> usize {
        self.resolving() + self.counted(Counted::Asking)
    }

    /// Look-ups of this side that wait for their paths.
    #[must_use]
    pub fn resolving(&self) -> usize {
        self.counted(Counted::Resolving)
    }

    fn counted(&self, what: Counted) -> usize {
        self.counts.get(what as usize).copied().unwrap_or(0)
    }

    /// A connection manager over these slots, of which it uses at most 262,144. `random` makes its
    /// comm IDs, transaction IDs and PSNs unpredictable.
    ///
    /// A slot stays in use for some time after its connection ended, but gives way to a new
    /// connection at once.
    pub fn new(slots: &'s mut [Slot], config: Config, mut random: Random) -> Self {
        for slot in slots.iter_mut() {
            slot.clear();
        }
        Self {
            slots,
            fresh: 0,
            counts: [0; 3],
            config,
            ids: Ids::new(random.next_u64()),
            psns: random.fork(),
            transactions: random.fork(),
            answers: Deque::new(),
            strange: (0, Instant::ZERO),
            counters: Counters::default(),
            peers: [random.next_u64(), random.next_u64()],
            // Odd: no bit of a number is lost.
            numbers: random.next_u64() | 1,
            lists: Lists::EMPTY,
        }
    }

    /// The connection or look-up of a comm ID.
    pub(crate) fn conn_of(&self, id: u32) -> Option<ConnId> {
        let slot = self.slots.get(self.ids.index(id))?;
        (slot.id == id).then(|| slot.conn())
    }

    /// The slot a comm ID names, if that connection still exists on the wire.
    fn wired(&self, id: u32) -> Option<usize> {
        let conn = self.conn_of(id)?;
        self.slots.get(conn.index()).filter(|slot| slot.state.connects())?;
        Some(conn.index())
    }

    /// The slot of a connection that the caller may still use.
    fn live(&mut self, conn: ConnId) -> Result<&mut Slot, CmError> {
        match self.slots.get_mut(conn.index()) {
            Some(slot) if slot.id == conn.id && !slot.ended => Ok(slot),
            Some(_) | None => Err(CmError::Unknown(conn)),
        }
    }

    #[inline(never)]
    fn answer(&mut self, answer: Answer) {
        if self.answers.push_back(answer).is_err() {
            self.counters.answers_dropped += 1;
        }
    }

    /// Answers a message of no connection, unless there were too many.
    fn answer_strange(&mut self, now: Instant, answer: Answer) {
        let (left, until) = &mut self.strange;
        if *until <= now {
            (*left, *until) = (STRANGE, now + STRANGE_TIME);
        }
        match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                self.answer(answer);
            }
            None => self.counters.answers_dropped += 1,
        }
    }

    /// Counts one more, for the caller.
    pub(crate) fn count(&mut self, which: fn(&mut Counters) -> &mut u64) {
        *which(&mut self.counters) += 1;
    }

    /// How long a REJ is kept to answer retransmissions of what it rejects, in nanoseconds.
    const fn reject_memory(&self) -> u64 {
        2 * self.config.request_nanos()
    }

    /// Stays in timewait as long as a packet of the connection's queue pair may be retried.
    #[inline(never)]
    fn enter_time_wait(&mut self, now: Instant, index: usize) {
        let longest = self.config.longest_response;
        if let Some(slot) = self.slots.get_mut(index) {
            slot.time_wait(now, code_nanos(slot.terms.ack_timeout.min(longest)));
        }
        self.touch(index);
    }

    /// Refuses the connection with a REJ that is sent now and again whenever the peer repeats
    /// itself.
    fn turn_away(
        &mut self,
        now: Instant,
        index: usize,
        reason: Reason,
        ari: &[u8],
        private: &[u8],
    ) {
        let span = self.reject_memory();
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let about = match slot.state {
            State::ReqReceived | State::ReqSent => About::Req,
            State::RepReceived => About::Rep,
            State::Idle
            | State::ReqReady
            | State::RepSent
            | State::Established
            | State::DreqSent
            | State::TimeWait
            | State::SidrReady
            | State::SidrSent
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => About::Other,
        };
        // The peer learns of the local ID only by an answer.
        let [mut local_id, remote_id] = slot.ids();
        if slot.state == State::ReqReceived && !slot.mra_sent {
            local_id = 0;
        }
        let ids = [local_id, remote_id];
        let mut rej = Rej::new_unchecked(slot.store(Rej::<()>::ATTRIBUTE, ids));
        rej.refuse(about, reason);
        rej.put_ari(ari);
        rej.put_private(&[], private);
        slot.rejecting = true;
        slot.time_wait(now, span);
        self.touch(index);
    }

    /// The REJ of a side that no longer waits for an answer: the peer may not know this side's ID,
    /// so it finds the connection by the adapter's GUID.
    fn give_up(&mut self, now: Instant, index: usize) {
        let guid = self.config.node_guid.to_be_bytes();
        self.turn_away(now, index, Reason::TIMEOUT, &guid, &[]);
    }

    /// Sends a DREQ, under a transaction of its own.
    fn ask_to_disconnect(&mut self, now: Instant, index: usize) {
        let transaction = self.transactions.next_u64();
        if let Some(slot) = self.slots.get_mut(index) {
            slot.asked = transaction;
            slot.state = State::DreqSent;
            slot.queue(Send::Dreq);
            slot.await_answer(now);
        }
        self.touch(index);
    }

    /// The peer has asked for a new connection of the queue pair of this one, or anybody has in its
    /// name: asks whether it knows this one, without harm if it does.
    ///
    /// A peer that has it answers a repeated REP with an RTU, and drops a DREQ for a queue pair that
    /// is not its own. A peer that does not know it drops or rejects the REP, and answers the DREQ.
    /// The side that has no REP to repeat learns only the latter.
    fn probe(&mut self, now: Instant, index: usize) {
        let transaction = self.transactions.next_u64();
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.send == Send::Nothing) else {
            return;
        };
        match slot.state {
            State::DreqSent => slot.repeat(Send::Dreq),
            // No more often than it would be repeated.
            State::Established if slot.deadline == Instant::NEVER => {
                slot.asked = transaction;
                slot.queue(slot.probe());
                slot.await_answer(now);
            }
            // The REP is repeated anyway.
            State::Established
            | State::RepSent
            | State::ReqReceived
            | State::RepReceived
            | State::Idle
            | State::ReqReady
            | State::ReqSent
            | State::TimeWait
            | State::SidrReady
            | State::SidrSent
            | State::SidrReceived
            | State::SidrAnswered
            | State::SidrKept => {}
        }
        self.touch(index);
    }
}
