//! What a consumer sees, event by event, and the rules that every event keeps.

use dat_core::{AsyncEvent, DtoEvent, DtoOperation, DtoStatus, Ep, Event, Fault};
use hca_mlx5::platform::{Dma as _, Fence};

use super::consumer::{Scene, arrives, brief, place};
use super::what::Loss;
use crate::session::{contents, pattern};

/// The name of a status.
pub(super) const fn dto_name(status: DtoStatus) -> &'static str {
    match status {
        DtoStatus::Success => "DAT_DTO_SUCCESS",
        DtoStatus::ErrFlushed => "DAT_DTO_ERR_FLUSHED",
        DtoStatus::ErrLocalLength => "DAT_DTO_ERR_LOCAL_LENGTH",
        DtoStatus::ErrLocalEp => "DAT_DTO_ERR_LOCAL_EP",
        DtoStatus::ErrLocalProtection => "DAT_DTO_ERR_LOCAL_PROTECTION",
        DtoStatus::ErrBadResponse => "DAT_DTO_ERR_BAD_RESPONSE",
        DtoStatus::ErrRemoteAccess => "DAT_DTO_ERR_REMOTE_ACCESS",
        DtoStatus::ErrRemoteResponder => "DAT_DTO_ERR_REMOTE_RESPONDER",
        DtoStatus::ErrTransport => "DAT_DTO_ERR_TRANSPORT",
        DtoStatus::ErrReceiverNotReady => "DAT_DTO_ERR_RECEIVER_NOT_READY",
        DtoStatus::ErrPartialPacket => "DAT_DTO_ERR_PARTIAL_PACKET",
        DtoStatus::RmrOperationFailed => "DAT_RMR_OPERATION_FAILED",
        DtoStatus::ErrLocalMmError => "DAT_DTO_ERR_LOCAL_MM_ERROR",
    }
}

/// The name of an event that ends a connection, and whose it was.
pub(super) const fn end_name(event: &Event) -> Option<(&'static str, Ep)> {
    Some(match *event {
        Event::Disconnected(ep) => ("DAT_CONNECTION_EVENT_DISCONNECTED", ep),
        Event::Broken(ep) => ("DAT_CONNECTION_EVENT_BROKEN", ep),
        Event::PeerRejected(ep) => ("DAT_CONNECTION_EVENT_PEER_REJECTED", ep),
        Event::NonPeerRejected(ep) => ("DAT_CONNECTION_EVENT_NON_PEER_REJECTED", ep),
        Event::AcceptCompletionError(ep) => ("DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR", ep),
        Event::TimedOut(ep) => ("DAT_CONNECTION_EVENT_TIMED_OUT", ep),
        Event::Unreachable(ep) => ("DAT_CONNECTION_EVENT_UNREACHABLE", ep),
        _ => return None,
    })
}

/// Such an event with its cause, if that is known.
pub(super) fn end_text(name: &str, cause: Option<Fault>) -> String {
    cause.map_or(name.to_owned(), |fault| format!("{name}: {}", brief(fault)))
}

impl Scene<'_, '_> {
    /// Takes all events, then asks the device to announce the next.
    pub(super) fn reap(&mut self, side: usize) {
        for armed in [false, true] {
            loop {
                let Some(open) = &mut self.sides[side] else { return };
                let asynchronous = open.ia.async_evd();
                let mut evds = [open.evd, open.cr, asynchronous].into_iter();
                let Some(event) = evds.find_map(|evd| open.ia.evd_dequeue(evd).ok()) else { break };
                self.took(side, event);
            }
            if let (false, Some(open)) = (armed, &mut self.sides[side]) {
                let _ = open.ia.evd_arm(open.evd, false);
            }
        }
    }

    fn took(&mut self, side: usize, event: Event) {
        let now = self.instant();
        self.trace(side, &event);
        let Some(open) = &mut self.sides[side] else { return };
        open.dirty = true;
        match event {
            Event::Dto(done) => self.completed(side, &done),
            Event::ConnectionRequest { cr, .. } => {
                let answered = match open.accepts.take() {
                    Some(ep) => ("cr_accept", open.ia.cr_accept(now, cr, Some(ep), b"welcome")),
                    None => ("cr_reject", open.ia.cr_reject(now, cr, b"")),
                };
                self.call(side, answered.0, answered.1);
            }
            Event::Established(ep) => match open.ends.iter_mut().find(|end| end.ep == ep) {
                Some(end) if !end.up && !end.over => end.up = true,
                _ => self.wrong.push(format!("side {side}: {event:?} out of turn")),
            },
            Event::Async(what) => {
                let lost = open.ia.lost().copied();
                let (loss, text) = match (what, lost) {
                    (AsyncEvent::IaCatastrophic, Some(fault)) => (
                        Loss::Adapter,
                        format!("DAT_ASYNC_ERROR_IA_CATASTROPHIC: {}", brief(fault)),
                    ),
                    (AsyncEvent::TimedOut, _) => {
                        (Loss::Adapter, "DAT_ASYNC_ERROR_TIMED_OUT".into())
                    }
                    (AsyncEvent::EvdOverflow(_), _) => {
                        (Loss::Connection, "DAT_ASYNC_ERROR_EVD_OVERFLOW".into())
                    }
                    (AsyncEvent::EpBroken(_), _) => {
                        (Loss::Connection, "DAT_ASYNC_ERROR_EP_BROKEN".into())
                    }
                    (what, _) => (Loss::Connection, format!("asynchronous error {what:?}")),
                };
                self.note(side, loss, text);
            }
            event => self.ended(side, event),
        }
    }

    fn ended(&mut self, side: usize, event: Event) {
        let Some(open) = &mut self.sides[side] else { return };
        let Some((name, ep)) = end_name(&event) else {
            return self.wrong.push(format!("side {side}: {event:?} came"));
        };
        let Some(end) = open.ends.iter_mut().find(|end| end.ep == ep) else {
            return self.wrong.push(format!("side {side}: {event:?} of an unknown Endpoint"));
        };
        if std::mem::replace(&mut end.over, true) {
            self.wrong.push(format!("side {side}: a second end, {event:?}"));
        } else if !end.requests.is_empty() || !end.receives.is_empty() {
            let (requests, receives) = (end.requests.len(), end.receives.len());
            self.wrong.push(format!(
                "side {side}: {event:?} before {requests} requests and {receives} receives"
            ));
        }
        if matches!(event, Event::Disconnected(_)) && end.leaving {
            return;
        }
        let cause = open.ia.ep_cause(ep).ok().flatten();
        self.note(side, Loss::Connection, end_text(name, cause));
    }

    fn completed(&mut self, side: usize, done: &DtoEvent) {
        let Some(open) = &mut self.sides[side] else { return };
        let Some(end) = open.ends.iter_mut().find(|end| end.ep == done.ep) else {
            return self.wrong.push(format!("side {side}: {done:?} of an unknown Endpoint"));
        };
        let link = end.link;
        let receive = done.operation == DtoOperation::Receive;
        let (cookie, n) = if receive {
            // One that fails has taken its message.
            let took = done.status != DtoStatus::ErrFlushed;
            let coming = took.then(|| end.coming.pop_front());
            (end.receives.pop_front(), coming.flatten())
        } else {
            end.requests.pop_front().unzip()
        };
        if cookie != Some(done.cookie) {
            let due = cookie.map_or("nothing".to_owned(), |cookie| cookie.to_string());
            return self.wrong.push(format!("side {side}: {done:?} came, {due} was next"));
        }
        if done.status != DtoStatus::Success {
            // Who leaves expects that.
            if done.status != DtoStatus::ErrFlushed || !end.leaving {
                self.note(side, Loss::Connection, dto_name(done.status).to_owned());
            }
            return;
        }
        let Some(n) = n else {
            return self.wrong.push(format!("side {side}: {done:?} was not sent"));
        };
        let at = place(link, done.operation, done.cookie) + arrives(done.operation);
        let of = if done.operation == DtoOperation::RdmaWrite { 1 - side } else { side };
        if done.operation != DtoOperation::Send {
            self.check(of, at, done.len as usize, n);
        }
    }

    /// Asserts the contents of a side's memory.
    fn check(&mut self, side: usize, at: usize, len: usize, n: u32) {
        let slot = &self.machines[side].slot;
        let Some(open) = &self.sides[side] else { return };
        slot.fence(Fence::BeforeDoorbell);
        slot.fence(Fence::AfterOwnership);
        let mut bytes = vec![0; len];
        open.mem.copy_out(at, &mut bytes);
        if let Some(i) = (0..len).find(|&i| bytes[i] != pattern(n, i)) {
            let now = self.now();
            self.wrong.push(format!("side {side}: {now}: byte {i} of {len} at {at:#x} is wrong"));
        }
    }

    /// Puts contents into a side's memory; their number.
    pub(super) fn fill(&mut self, side: usize, at: usize, len: usize) -> u32 {
        self.contents += 1;
        let n = self.contents;
        if let Some(open) = &self.sides[side] {
            open.mem.copy_in(at, &contents(n, len));
            let slot = &self.machines[side].slot;
            slot.fence(Fence::BeforeDoorbell);
            slot.fence(Fence::AfterOwnership);
        }
        n
    }
}
