//! The connections of an adapter: the connection manager, whom each of its connections belongs to,
//! and what an Endpoint goes through when one changes.
//!
//! There is one way out of service ([`Ia::end`]): whatever ended a connection, the queue pair goes
//! to Reset, and what is outstanding comes back flushed.
//!
//! The order carries all the guarantees of order that a consumer has. First the state word closes:
//! posts from now on are only recorded. Then the queue pair goes to Reset; when the
//! provider returns, every completion there will ever be is visible in the completion queues. Then
//! both directions are put on the flush stacks of their Event Dispatchers, and only then the
//! terminal event is queued. A reaper reads in the opposite order.
//!
//! A poster on another thread may have passed its guard before the state closed and record its
//! request after the flush. It looks at the state once more afterwards and asks for another flush;
//! should store and load cross on their way, the next advance finds the request outstanding.

use core::net::IpAddr;
use core::sync::atomic::Ordering;
use core::task::Poll;

use heapless::Vec;

use crate::cm::Cm;
use crate::cm::event::{SidrReply, Transmit};
use crate::cm::params::ConnId;
use crate::cm::wire;
use crate::cm::wire::reason::Reason;
use crate::cm::wire::sidr::SidrStatus;
use crate::data::shared::ep::CLOSING;
use crate::engine::counters::IaTally;
use crate::engine::waiting::Waiting;
use crate::engine::{Ia, queue_pair};
use crate::objects::Objects;
use crate::objects::ep::{EpControl, Phase};
use crate::provider::{Destination, Fault, Path, Provider};
use crate::types::activity::Activity;
use crate::types::bounds::{DATAGRAMS_OUT, RETRIES, STEPS, VISITS};
use crate::types::counters::EpCounter;
use crate::types::ep_state::{EpOp, EpState, Outcome, outcome};
use crate::types::event::AsyncEvent;
use crate::types::fault::FaultKind;
use crate::types::handle::{Cr, Ep};
use crate::types::time::Instant;

/// Whom a connection of the connection manager belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// Nobody any more: its end is of no interest.
    Nobody,
    /// An Endpoint.
    Ep(Ep),
    /// A request that has not been answered.
    Cr(Cr),
    /// A look-up of an Endpoint for datagrams.
    LookUp(Ep, ConnId),
}

/// The connection manager, and whom its connections belong to.
#[derive(Debug)]
pub(crate) struct Connections<'s> {
    pub(crate) cm: Cm<'s>,
    /// Address of this side.
    pub(crate) local: IpAddr,
    /// By the index of a connection.
    pub(crate) owners: &'s mut [Owner],
    /// Passive Endpoints whose peer is ready. They are taken on together, and none stays here
    /// between two calls.
    pub(crate) ready: Vec<Ep, STEPS>,
    /// Datagrams whose path is being resolved.
    pub(crate) waiting: Waiting,
    /// The one that found no room in the device: others follow it.
    pub(crate) stalled: Option<Transmit>,
}

impl Connections<'_> {
    pub(crate) fn own(&mut self, conn: ConnId, owner: Owner) {
        if let Some(place) = self.owners.get_mut(conn.index()) {
            *place = owner;
        }
    }

    pub(crate) fn owner(&self, objects: &Objects<'_>, conn: ConnId) -> Owner {
        let owner = self.owners.get(conn.index()).copied().unwrap_or(Owner::Nobody);
        let current = match owner {
            Owner::Nobody => None,
            Owner::Ep(ep) => objects.eps.get(ep.0).and_then(|control| control.conn),
            Owner::Cr(cr) => objects.crs.get(cr.0).and_then(|control| control.conn),
            Owner::LookUp(ep, of) => objects.eps.get(ep.0).map(|_| of),
        };
        if current == Some(conn) { owner } else { Owner::Nobody }
    }

    /// What a reply says.
    pub(crate) fn address(&self, reply: &SidrReply) -> Result<Destination, Reason> {
        match self.cm.sidr_path(reply.conn) {
            Some(path) if reply.status == SidrStatus::VALID => {
                Ok(Destination { path, qpn: reply.qpn, qkey: reply.q_key })
            }
            Some(_) | None => Err(reply.status.reason()),
        }
    }

    /// Ends what an Endpoint for datagrams asks; and lets the answers go, if it is said.
    pub(crate) fn end_questions(&mut self, objects: &Objects<'_>, ep: Ep, answers: bool) {
        if objects.eps.live(ep).is_ok_and(EpControl::is_for_datagrams) {
            self.cm.sidr_end_all(ep.0.index(), answers);
        }
    }

    /// The peer has answered on that connection: keeps its private data for the consumer, in place
    /// of what an earlier answer brought.
    pub(crate) fn keep_answer(
        &mut self,
        objects: &mut Objects<'_>,
        ep: Ep,
        answered: Option<ConnId>,
    ) {
        let Ok(control) = objects.eps.live_mut(ep) else { return };
        let earlier = core::mem::replace(&mut control.answered, answered);
        if let Some(conn) = earlier {
            self.cm.release(conn);
        }
        if let Some(conn) = answered {
            self.cm.keep(conn);
        }
    }

    /// Sends the datagrams of the connection manager whose paths are known. Whether any has left, or
    /// there may be more.
    fn transmit<P: Provider>(&mut self, now: Instant, hca: &mut P, counters: &mut IaTally) -> bool {
        let mut sent = false;
        // Where the last one went: the next one often goes there too.
        let mut last: Option<Path> = None;
        for _ in 0..DATAGRAMS_OUT {
            if let Some(transmit) = self.stalled.take() {
                sent |= self.forward(now, hca, &transmit, &mut last);
            } else {
                let before = self.cm.counters().retransmitted;
                let Some(transmit) = self.cm.poll_transmit(now) else {
                    return sent;
                };
                let again = self.cm.counters().retransmitted != before;
                counters.sent(&transmit.mad, again);
                if again {
                    hca.report(|| Activity::Repeated {
                        message: wire::name(&transmit.mad),
                        remote: transmit.to,
                    });
                }
                sent |= self.forward(now, hca, &transmit, &mut last);
            }
            if self.stalled.is_some() {
                return sent;
            }
        }
        true
    }

    /// Sends a datagram if the path to its peer is known, which `last` may be; else it waits.
    /// Whether it has left.
    fn forward<P: Provider>(
        &mut self,
        now: Instant,
        hca: &mut P,
        transmit: &Transmit,
        last: &mut Option<Path>,
    ) -> bool {
        let known = last.filter(|path| path.remote == transmit.to);
        match known.map_or_else(|| whereabouts(hca, transmit, now), |path| Poll::Ready(Ok(path))) {
            Poll::Pending => {
                self.put_off(now, transmit, false);
                false
            }
            Poll::Ready(path) => {
                *last = path.ok();
                self.send(hca, transmit, path)
            }
        }
    }

    /// Sends a datagram to where its peer is. Whether it has left.
    pub(super) fn send<P: Provider>(
        &mut self,
        hca: &mut P,
        transmit: &Transmit,
        path: Result<Path, Fault>,
    ) -> bool {
        let Ok(path) = path else {
            self.cm.count(|counters| &mut counters.unreachable);
            return false;
        };
        let class = transmit.conn.and_then(|conn| self.cm.class(conn)).unwrap_or(path.class);
        match hca.mad_send(&Path { class, ..path }, &transmit.mad) {
            // Many connections at once: it would be repeated, but only after seconds.
            Err(fault) if fault.kind == FaultKind::Resources => {
                self.stalled = Some(*transmit);
                false
            }
            // A datagram may be lost anywhere; the connection manager repeats it.
            Ok(()) | Err(_) => {
                let Transmit { to, mad, .. } = transmit;
                hca.report(|| self.datagram(true, *to, mad));
                true
            }
        }
    }

    /// A datagram, for a log.
    pub(super) fn datagram(&self, sent: bool, remote: IpAddr, mad: &[u8; 256]) -> Activity {
        let (local, message) = (self.local, wire::name(mad));
        Activity::Datagram { sent, local, remote, message, mad: *mad }
    }

    /// Puts a datagram off until it is known where its peer is.
    pub(super) fn put_off(&mut self, now: Instant, datagram: &Transmit, came: bool) {
        if self.waiting.put(now, datagram, came) {
            self.cm.count(|counters| &mut counters.gave_way);
        }
    }

    /// Some are waiting that no event brings on.
    pub(crate) fn crowded(&self) -> bool {
        self.stalled.is_some() || self.waiting.len() > RETRIES || self.cm.resolving() > VISITS
    }
}

/// The way to the peer of a datagram of ours. One of a connection is wanted by this side too; any
/// other answers somebody who may not exist.
pub(super) fn whereabouts<P: Provider>(
    hca: &mut P,
    transmit: &Transmit,
    now: Instant,
) -> Poll<Result<Path, Fault>> {
    if transmit.conn.is_some() {
        hca.resolve(transmit.to, now)
    } else {
        hca.resolve_asker(transmit.to, now)
    }
}

impl<P: Provider> Ia<'_, P> {
    /// Carries out what the table says of an event, or of a call that it allows.
    pub(crate) fn apply(&mut self, ep: Ep, op: EpOp) {
        let Ok(state) = self.objects.state_of(ep) else { return };
        let Outcome::Go { next, event } = outcome(state, op) else {
            return;
        };
        self.counters.happened(op, state);
        if next != state {
            self.hca.report(|| Activity::State { ep, from: state, to: next });
        }
        if let Some(shared) = self.data.shared.ep(ep.0.index()) {
            if op == EpOp::Connect {
                shared.count_one(EpCounter::Connect);
            } else if matches!(op, EpOp::DisconnectAbrupt | EpOp::DisconnectGraceful) {
                shared.count_one(EpCounter::Disconnect);
            }
        }
        if next.is_disconnected() {
            self.end(ep);
        } else {
            self.objects.enter(ep, next);
        }
        if let Some(event) = event {
            self.objects.signal(&mut self.events, ep, event);
        }
        self.events.worked = true;
    }

    /// Takes an Endpoint to DISCONNECTED and flushes it. The connection manager is not informed. One
    /// with a Shared Receive Queue says once that it takes nothing more from there: nothing of
    /// that queue is flushed.
    pub(crate) fn end(&mut self, ep: Ep) {
        let shared = self.data.shared;
        let Some(line) = shared.ep(ep.0.index()) else {
            return;
        };
        // ORDER: the state closes before the queue pair does, so that no post is lost between the
        // two.
        line.poster.state.store(EpState::Disconnected.word() | CLOSING, Ordering::SeqCst);
        let Some(control) = self.objects.eps.get_mut(ep.0) else {
            return;
        };
        control.phase = Phase::None;
        let (qp, shares) = (control.qp, control.srq.is_some());
        self.objects.set_deadline(ep, Instant::NEVER);
        if let Some(qp) = qp {
            queue_pair::stop(&mut self.hca, qp, line);
        }
        self.objects.enter(ep, EpState::Disconnected);
        self.events.flush(ep);
        if shares {
            // The one place that says so: the device's own word, Last WQE Reached, comes or not,
            // according to how far the queue pair was on its way, and may come when
            // that is past.
            self.events.report(AsyncEvent::EpBroken(ep));
        }
        self.objects.watch(ep);
    }

    /// Lets go of the connection, telling the peer whatever its state asks for.
    pub(crate) fn drop_connection(&mut self, now: Instant, ep: Ep) {
        self.connections.end_questions(&self.objects, ep, false);
        if let Some(control) = self.objects.eps.get_mut(ep.0) {
            if let Some(conn) = control.conn.take() {
                self.connections.cm.abort(now, conn);
            }
        }
    }

    /// Sends what the connection manager has to say, as far as the paths are known.
    pub(crate) fn transmit(&mut self, now: Instant) {
        self.events.worked |= self.connections.transmit(now, &mut self.hca, &mut self.counters);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;

    use super::*;
    use crate::engine::storage::Storage;
    use crate::provider::Net;
    use crate::testing::fabric::Fabric;
    use crate::testing::hca::LoopHca;
    use crate::types::event::DtoStatus;
    use crate::types::event::Event;
    use crate::types::flags::EvdFlags;

    /// A poster on another thread that had seen the Endpoint open records its receive after the
    /// flush, and its look at the state crosses with the change. The adapter's thread finds it
    /// at the next advance, or at the latest when the half has come back.
    #[test]
    fn what_was_recorded_after_the_flush_is_flushed_all_the_same() {
        for comes_back in [false, true] {
            let fabric = Fabric::new();
            let mut storage = Box::new(Storage::<_, 4, 4, 4, 8, 16>::new());
            let net = Net::new([10, 0, 0, 1].into(), 24);
            let (hca, now) = (LoopHca::new(&fabric, 0), Instant::ZERO);
            let mut ia = Ia::open(hca, storage.parts(), net, now, [1; 32]).unwrap();
            let pz = Some(ia.pz_create().unwrap());
            let evd = ia.evd_create(8, EvdFlags::DTO).unwrap();
            let ep = ia.ep_create(pz, Some(evd), None, None, None).unwrap();
            let half = ia.ep_take_poster(ep).unwrap();
            ia.end(ep);
            ia.events.worked = false;
            if comes_back {
                assert!(!ia.advance(now).work);
            }
            let line = ia.data.shared.ep(ep.0.index()).unwrap();
            line.poster.receives.store(1, Ordering::SeqCst);
            if comes_back {
                assert!(ia.ep_return_poster(half).is_ok());
            }
            assert!(ia.advance(now).work);
            let Ok(Event::Dto(flushed)) = ia.evd_dequeue(evd) else {
                unreachable!("it is flushed");
            };
            assert_eq!(flushed.status, DtoStatus::ErrFlushed);
            assert!(ia.evd_dequeue(evd).is_err());
        }
    }
}
