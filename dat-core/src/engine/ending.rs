//! The one way out of service: whatever ended a connection, the queue pair goes through Error to
//! Reset, and what is outstanding comes back flushed.
//!
//! The order carries all the guarantees of order that a consumer has. First the state word closes:
//! posts from now on are only recorded. Then the queue pair goes to Error and to Reset; when the
//! provider returns, every completion there will ever be is visible in the completion queues. Then
//! both directions are put on the flush stacks of their Event Dispatchers, and only then the
//! terminal event is queued. A reaper reads in the opposite order.
//!
//! A poster on another thread may have passed its guard before the state closed and record its
//! request after the flush. It looks at the state once more afterwards and asks for another flush;
//! should store and load cross on their way, the next advance finds the request outstanding.

use core::sync::atomic::Ordering;

use crate::data::poster::kick;
use crate::data::shared::ep::CLOSING;
use crate::engine::Ia;
use crate::objects::ep::{EpControl, Phase};
use crate::provider::{Provider, QpStep};
use crate::types::completion::Direction;
use crate::types::ep_state::EpState;
use crate::types::event::AsyncEvent;
use crate::types::handle::Ep;
use crate::types::time::Instant;

impl<P: Provider> Ia<'_, P> {
    /// Takes an Endpoint to DISCONNECTED and flushes it. The connection manager is not told. One
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
        control.deadline = Instant::NEVER;
        let (qp, shares) = (control.qp, control.srq.is_some());
        if let Some(qp) = qp {
            // A device that refuses is lost; the consumer gets everything back flushed all the
            // same.
            let _ = self.hca.qp_modify(qp, &QpStep::Error);
            let _ = self.hca.qp_modify(qp, &QpStep::Reset);
        }
        self.objects.enter(ep, EpState::Disconnected);
        self.flush(ep);
        if shares {
            // The one place that says so: the device's own word, Last WQE Reached, comes or not,
            // according to how far the queue pair was on its way, and may come when
            // that is past.
            self.events.report(AsyncEvent::EpBroken(ep));
        }
        self.objects.watch(ep);
    }

    /// Puts both directions on the flush stacks of their Event Dispatchers.
    pub(crate) fn flush(&mut self, ep: Ep) {
        let shared = self.data.shared;
        let Some(line) = shared.ep(ep.0.index()) else {
            return;
        };
        for direction in [Direction::Send, Direction::Recv] {
            if line.outstanding(direction) != 0 {
                self.events.worked |= kick(&shared, ep.0.index(), line, direction);
            }
        }
    }

    /// Lets go of the connection, telling the peer whatever its state asks for.
    pub(crate) fn drop_connection(&mut self, now: Instant, ep: Ep) {
        self.end_questions(ep, false);
        if let Some(control) = self.objects.eps.get_mut(ep.0)
            && let Some(conn) = control.conn.take()
        {
            self.connections.cm.abort(now, conn);
        }
    }

    /// Ends what an Endpoint for datagrams asks; and lets the answers go, if it is said.
    pub(crate) fn end_questions(&mut self, ep: Ep, answers: bool) {
        if self.objects.eps.live(ep).is_ok_and(EpControl::is_for_datagrams) {
            self.connections.end_look_ups(ep, answers);
        }
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
            let net = Net { addr: [10, 0, 0, 1].into(), prefix: 24, gateway: None, vlan: None };
            let (hca, now) = (LoopHca::new(&fabric, 0), Instant::ZERO);
            let mut ia = Ia::open(hca, storage.parts(), net, now, 1).unwrap();
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
