//! The progress engine: processes device events, datagrams and timers in a fixed order, without
//! waiting.

use core::net::IpAddr;
use core::sync::atomic::Ordering;
use core::task::Poll;
use core::time::Duration;

use heapless::Vec;

use crate::cm::event::Transmit;
use crate::cm::wire::{MAD_LEN, asks};
use crate::data::shared::ep::Trouble;
use crate::data::shared::stack::END;
use crate::engine::cm_counters::Dealt;
use crate::engine::connections::whereabouts;
use crate::engine::{Ia, establish};
use crate::provider::{MadIn, Notice, Provider};
use crate::types::activity::Activity;
use crate::types::bounds::{DATAGRAMS_IN, NOTICES, RETRIES, STEPS, VISITS};
use crate::types::counters::IaCounter;
use crate::types::ep_state::{EpOp, EpState};
use crate::types::event::AsyncEvent;
use crate::types::fault::{Fault, FaultKind};
use crate::types::handle::{Ep, Evd};
use crate::types::time::Instant;

/// Until a datagram that found no room is tried again.
const CROWDED: Duration = Duration::from_millis(1);

/// When to come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Call [`Ia::advance`] at this time even if nothing interrupts.
    pub deadline: Option<Instant>,
    /// Something happened: events may be waiting, and another call may find more.
    pub work: bool,
}

impl<P: Provider> Ia<'_, P> {
    /// Does what is due at `now`: notices of the device, datagrams, timers, changes of state.
    ///
    /// Call it when the device interrupts, when the deadline of the last call has come, after a call
    /// that began something (a connection is accepted here), and after other halves reported
    /// completions; a polling host calls it at will. It never waits, and
    /// its work is bounded.
    pub fn advance(&mut self, now: Instant) -> Next {
        self.lifecycle.clock = now;
        self.process_device_events(now);
        try_again(self, now);
        for _ in 0..DATAGRAMS_IN {
            let Some(mad) = self.hca.mad_recv() else {
                break;
            };
            self.events.worked = true;
            receive_datagram(self, now, &mad);
        }
        self.connections.cm.advance(now);
        self.connection_events(now);
        self.accepted(now);
        self.troubles(now);
        self.watched(now);
        self.look_ups(now);
        self.connection_events(now);
        self.accepted(now);
        self.transmit(now);
        self.arrivals();
        let deadline =
            Instant::sooner(self.connections.cm.next_deadline(), self.hca.next_deadline());
        // Nothing tells when a datagram has left.
        let crowded = self.connections.crowded() || self.objects.is_crowded();
        let deadline = Instant::sooner(deadline, crowded.then(|| now + CROWDED));
        Next {
            deadline: Instant::sooner(deadline, self.objects.soonest()),
            work: core::mem::take(&mut self.events.worked),
        }
    }

    /// Processes the device's events.
    fn process_device_events(&mut self, now: Instant) {
        self.hca.service(now);
        for left in (0..NOTICES).rev() {
            let Some(notice) = self.hca.notice() else {
                break;
            };
            self.noticed(now, notice);
            self.events.worked |= left == 0;
        }
        self.accepted(now);
        self.objects.turn = self.objects.turn.wrapping_add(1);
    }

    /// Processes the events that the device still has of the queue pair's earlier generation,
    /// before a peer can reach `ep`: whatever comes from then on is of this one.
    pub(crate) fn drain_stale_events(&mut self, now: Instant, ep: Ep) {
        let turn = self.objects.turn;
        if self.objects.eps.live(ep).is_ok_and(|control| control.born == turn) {
            self.process_device_events(now);
        }
    }

    fn noticed(&mut self, now: Instant, notice: Notice) {
        match notice {
            Notice::Completion(cq) => {
                if let Some(evd) = self.events.evd_of(cq) {
                    notified(self, evd);
                }
            }
            Notice::CqError(cq) => {
                self.counters.count(IaCounter::AsyncCqError);
                if let Some(evd) = self.events.evd_of(cq) {
                    self.events.report(AsyncEvent::EvdOverflow(evd));
                }
            }
            Notice::Established(qp) => {
                let ep = self.objects.ep_of(qp);
                if let Some(conn) =
                    ep.and_then(|ep| self.objects.eps.get(ep.0)).and_then(|c| c.conn)
                {
                    self.connections.cm.data_arrived(now, conn);
                    self.connection_events(now);
                }
            }
            Notice::QpError(qp, fault) => {
                self.counters.count(IaCounter::AsyncQpError);
                if let Some(ep) = self.objects.ep_of(qp) {
                    self.broken(now, ep, fault);
                }
            }
            // The transport's retries decide what a lost link means to a connection.
            Notice::SharedLimit(queue) => {
                if let Some(srq) = self.objects.srq_of(queue) {
                    self.objects.srq_low(&mut self.events, srq);
                }
            }
            Notice::SharedError(queue) => self.objects.srq_failed(&mut self.events, queue),
            Notice::Link(up) => {
                self.hca.report(|| Activity::Link(up));
                self.events.worked = true;
            }
            Notice::Warning(fault) => {
                self.hca.report(|| Activity::Warning(fault));
                self.lifecycle.warning = Some(fault);
                self.events.worked = true;
            }
            Notice::Catastrophic(fault) => self.catastrophe(now, fault),
        }
    }

    /// A connection broke on this side.
    pub(super) fn broken(&mut self, now: Instant, ep: Ep, fault: Fault) {
        self.accepted(now);
        let Ok(state) = self.objects.state_of(ep) else { return };
        if state != EpState::Disconnected {
            if let Ok(control) = self.objects.eps.live_mut(ep) {
                control.cause.get_or_insert(fault);
            }
        }
        match state {
            EpState::Disconnected => {}
            EpState::ActiveConnectionPending
            | EpState::CompletionPending
            | EpState::Connected
            | EpState::ConnectedSinglePath
            | EpState::ConnectedMultiPath
            | EpState::DisconnectPending => {
                self.hca.report(|| Activity::Broken { ep, fault });
                self.drop_connection(now, ep);
                self.apply(ep, EpOp::Broken);
            }
            EpState::Unconnected
            | EpState::UnconfiguredUnconnected
            | EpState::Reserved
            | EpState::UnconfiguredReserved
            | EpState::PassiveConnectionPending
            | EpState::UnconfiguredPassive
            | EpState::TentativeConnectionPending
            | EpState::UnconfiguredTentative => {
                self.events.report(AsyncEvent::EpBroken(ep));
            }
        }
    }

    /// The device is lost: every connection breaks, everything posted comes back.
    fn catastrophe(&mut self, now: Instant, fault: Fault) {
        if self.lifecycle.lost.is_some() {
            return;
        }
        self.lifecycle.lost = Some(fault);
        self.hca.report(|| Activity::Lost(fault));
        if fault.kind == FaultKind::Timeout {
            self.events.report(AsyncEvent::TimedOut);
        }
        self.counters.count(IaCounter::AsyncError);
        self.events.report(AsyncEvent::IaCatastrophic);
        for index in 0..self.objects.eps.capacity() {
            if let Some(ep) = self.objects.eps.handle_at(index) {
                let state = self.objects.state_of(Ep(ep));
                let idle = EpState::Unconnected;
                let bare = EpState::UnconfiguredUnconnected;
                if state.is_ok_and(|state| state != idle && state != bare) {
                    self.broken(now, Ep(ep), fault);
                }
            }
        }
    }

    /// What reapers and absorbed completions reported.
    fn troubles(&mut self, now: Instant) {
        let shared = self.data.shared;
        let mut index = shared.work.take();
        if index == END {
            return;
        }
        while let Some(line) = shared.ep(index) {
            let next = line.slow.work.next();
            line.slow.work.release();
            let word = line.poster.trouble.load(Ordering::Acquire);
            if let Some(trouble) = Trouble::from_word(word) {
                in_trouble(self, now, index, trouble);
            }
            index = next;
        }
        self.objects.rmr_retire();
    }

    /// Endpoints whose deadline has come, or that wait for a path, a drain or a second look.
    fn watched(&mut self, now: Instant) {
        for _ in 0..VISITS {
            let Some(ep) = self.objects.take_due(now) else { break };
            if self.objects.state_of(ep).ok() == Some(EpState::ActiveConnectionPending) {
                self.drop_connection(now, ep);
                self.apply(ep, EpOp::TimedOut);
            }
            self.objects.watch(ep);
        }
        let mut steps = Vec::<_, STEPS>::new();
        let queued = usize::try_from(self.objects.eps.queued()).unwrap_or(usize::MAX);
        for _ in 0..queued.min(VISITS) {
            let Some(ep) = self.objects.eps.dequeue().map(Ep) else { break };
            if let Some(wanted) = establish::steps(self, now, ep) {
                if steps.is_full() {
                    establish::take_steps(self, now, &mut steps);
                }
                let _ = steps.push(wanted);
            } else if self.visit(now, ep) {
                self.objects.watch(ep);
            }
        }
        establish::take_steps(self, now, &mut steps);
    }

    /// Takes one Endpoint on; whether it has to be visited again.
    fn visit(&mut self, now: Instant, ep: Ep) -> bool {
        self.establish_step(now, ep);
        let watched = self.watermark_step(now, ep);
        watched
            | match self.objects.state_of(ep) {
                Ok(EpState::ActiveConnectionPending | EpState::CompletionPending) => {
                    self.objects.eps.live(ep).is_ok_and(|control| control.phase.wants_path())
                }
                Ok(EpState::DisconnectPending) => {
                    self.drain_step(now, ep);
                    self.objects.state_of(ep).ok() == Some(EpState::DisconnectPending)
                }
                Ok(EpState::Disconnected) => {
                    // The poster may have missed the change; see `connections`.
                    self.events.flush(ep);
                    false
                }
                Ok(_) | Err(_) => false,
            }
    }
}

/// The device has announced completions of a queue that was armed.
fn notified<P: Provider>(ia: &mut Ia<'_, P>, evd: Evd) {
    let Some(control) = ia.events.evds.get_mut(evd.0) else { return };
    control.notified = true;
    control.announced = true;
    control.tally.completions = control.tally.completions.wrapping_add(1);
    let asked = control.asked;
    ia.events.worked = true;
    ia.events.look_at(evd);
    let Some(solicited_only) = asked else { return };
    ia.absorb(evd);
    ia.drop_silent(evd);
    // The completions had no event, or were taken before: who waits is not woken, and does not ask
    // for the next.
    if ia.evd_count(evd).events == 0 {
        let _ = ia.evd_arm(evd, solicited_only);
    }
}

/// A poster of that Endpoint, or a reaper, has met trouble.
fn in_trouble<P: Provider>(ia: &mut Ia<'_, P>, now: Instant, index: u32, trouble: Trouble) {
    let Some(ep) = ia.objects.eps.handle_at(index).map(Ep) else { return };
    let Ok(state) = ia.objects.state_of(ep) else { return };
    if state == EpState::Unconnected {
        return;
    }
    if trouble.is_nonsense() {
        ia.events.report(AsyncEvent::ProviderInternalError);
    }
    let Ok(control) = ia.objects.eps.live_mut(ep) else { return };
    let fault = trouble.fault(control.qp.map_or(0, |qp| qp.number));
    // It says more than that the device gave the queue pair up, in whatever order the two come.
    if trouble.is_a_cause() {
        control.cause = Some(fault);
    }
    ia.broken(now, ep, fault);
}

/// A datagram has come. Nothing is done for a request before it is known that its sender is
/// there.
fn receive_datagram<P: Provider>(ia: &mut Ia<'_, P>, now: Instant, datagram: &MadIn) {
    let mut from = datagram.from;
    if datagram.unnamed || asks(&datagram.mad) {
        match ia.hca.resolve_asker(datagram.from, now) {
            Poll::Pending => {
                let MadIn { from: to, mad, .. } = *datagram;
                return ia.connections.put_off(now, &Transmit { to, mad, conn: None }, true);
            }
            Poll::Ready(Err(_)) => {
                return ia.connections.cm.count(|counters| &mut counters.unreachable);
            }
            Poll::Ready(Ok(path)) => from = path.remote,
        }
    }
    process_datagram(ia, now, from, &datagram.mad);
}

fn process_datagram<P: Provider>(
    ia: &mut Ia<'_, P>,
    now: Instant,
    from: IpAddr,
    mad: &[u8; MAD_LEN],
) {
    ia.hca.report(|| ia.connections.datagram(false, from, mad));
    let before = Dealt::of(ia.connections.cm.counters());
    let longest = ia.hca.limits().mtu;
    let (objects, events) = (&ia.objects, &ia.events);
    let admits = |service, mtu| objects.admits(events, longest, service, mtu);
    ia.connections.cm.input_if(now, from, mad, &admits);
    let after = Dealt::of(ia.connections.cm.counters());
    ia.counters.received(mad, &before, &after);
    ia.connection_events(now);
}

/// Tries some of the datagrams again that wait until it is known where their peer is.
fn try_again<P: Provider>(ia: &mut Ia<'_, P>, now: Instant) {
    for _ in 0..ia.connections.waiting.len().min(RETRIES) {
        // There is room for one that the device did not take.
        if ia.connections.stalled.is_some() {
            return;
        }
        let Some((datagram, late)) = ia.connections.waiting.next(now) else { return };
        let path = match whereabouts(&mut ia.hca, datagram, now) {
            Poll::Pending if !late => {
                ia.connections.waiting.skip();
                continue;
            }
            Poll::Pending => None,
            Poll::Ready(path) => path.ok(),
        };
        let Some((datagram, came)) = ia.connections.waiting.take() else { return };
        ia.events.worked = true;
        match path {
            None => ia.connections.cm.count(|counters| &mut counters.unreachable),
            Some(path) if came => process_datagram(ia, now, path.remote, &datagram.mad),
            Some(path) => {
                ia.connections.send(&mut ia.hca, &datagram, Ok(path));
            }
        }
    }
}
