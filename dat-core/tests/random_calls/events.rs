//! Events as they are dequeued: is each one expected, and now?

use dat_core::*;

use crate::model::*;
use crate::world::{Done, World, kind};

impl World {
    /// Dequeues once, by the reaper if it is out; says whether there was an event.
    pub(crate) fn dequeue(&mut self, side: usize, evd: Evd) -> Result<bool, String> {
        let s = &mut self.sides[side];
        let reaper = s.evds.iter_mut().find(|m| m.evd == evd).and_then(|m| m.reaper.as_mut());
        let answer = match reaper {
            Some(reaper) => reaper.dequeue(),
            None => s.ia.evd_dequeue(evd),
        };
        self.note(|| format!("{side}: dequeue {evd:?} -> {answer:?}"));
        match answer {
            Ok(event) => {
                self.found(side, evd);
                self.arrived(side, evd, event).map_err(|e| {
                    let dropped = self.sides[side].ia.evd_dropped(evd);
                    let room = self.sides[side].evd(evd).map(|m| (m.qlen, m.load));
                    format!("{event:?} on {evd:?}, {room:?}, {dropped:?} dropped: {e}")
                })?;
                Ok(true)
            }
            Err(DatReturn::QUEUE_EMPTY) => {
                self.emptied(side, evd);
                Ok(false)
            }
            Err(ret) => Err(format!("dequeue of {evd:?}: {ret:?}")),
        }
    }

    /// One event more has been dequeued.
    pub(crate) fn found(&mut self, side: usize, evd: Evd) {
        if let Some(m) = self.sides[side].evd_mut(evd) {
            m.found += 1;
        }
    }

    /// The device's queue has been looked through: what is left to come is what is outstanding.
    pub(crate) fn emptied(&mut self, side: usize, evd: Evd) {
        let s = &mut self.sides[side];
        let left: usize = s
            .eps
            .iter()
            .map(|m| {
                [REQUEST, RECV]
                    .into_iter()
                    .filter(|&d| m.evd(d) == Some(evd))
                    .map(|d| m.queue[d].len() + usize::from(m.drained))
                    .sum::<usize>()
                    + s.srq_of(m).filter(|_| m.recv == Some(evd)).map_or(0, |srq| srq.outstanding)
            })
            .sum();
        if let Some(m) = s.evd_mut(evd) {
            m.load = left;
        }
    }

    pub(crate) fn arrived(&mut self, side: usize, evd: Evd, event: Event) -> Done {
        match event {
            Event::Software(pointer) => {
                let m = self.sides[side].evd_mut(evd).ok_or("no such EVD")?;
                match m.software.pop_front() {
                    Some(next) if next == pointer => Ok(()),
                    next => Err(format!("expected {next:?}")),
                }
            }
            Event::Dto(dto) => {
                let op = match dto.operation {
                    DtoOperation::Send => Op::Send,
                    DtoOperation::RdmaWrite => Op::Write,
                    DtoOperation::RdmaRead => Op::Read,
                    DtoOperation::Receive | DtoOperation::ReceiveWithInvalidate => Op::Recv,
                    DtoOperation::LmrFmr | DtoOperation::LmrInvalidate => {
                        let m = self.sides[side].ep(dto.ep).ok_or("no such EP")?;
                        let mut posted = m.queue[REQUEST].iter();
                        let found = posted.find(|posted| posted.cookie == dto.cookie);
                        let op = found.ok_or("nobody posted that")?.op;
                        let registers = dto.operation == DtoOperation::LmrFmr;
                        let fits = if registers {
                            matches!(op, Op::Register(_))
                        } else {
                            matches!(op, Op::Invalidate(_))
                        };
                        if !fits {
                            return Err(format!("{op:?} was posted"));
                        }
                        op
                    }
                    DtoOperation::BindMw => return Err("binds have an event of their own".into()),
                };
                let how = if dto.operation == DtoOperation::ReceiveWithInvalidate {
                    How::Closing(self.extension(side, evd)?)
                } else {
                    How::Message
                };
                let completion = (op, how, Some(dto.len));
                self.completed(side, evd, dto.ep, dto.cookie, dto.status, completion)
            }
            Event::IbDto(dto) => {
                let (op, how) = match dto.operation {
                    IbOperation::RdmaWriteImmed => (Op::WriteImmed, How::Message),
                    IbOperation::FetchAdd => (Op::FetchAdd, How::Message),
                    IbOperation::CmpSwap => (Op::CmpSwap, How::Message),
                    IbOperation::RecvRdmaWriteImmed => {
                        (Op::Recv, How::Immediate(self.extension(side, evd)?))
                    }
                    IbOperation::SendUd => (Op::SendUd, How::Message),
                    IbOperation::RecvMsgUd => (Op::Recv, How::Datagram(None)),
                    IbOperation::RecvMsgUdImmed => {
                        let word = self.extension(side, evd)?;
                        (Op::Recv, How::Datagram(Some(word)))
                    }
                    IbOperation::RecvMsgImmed => {
                        return Err("no such operation was posted".into());
                    }
                };
                let completion = (op, how, Some(dto.len));
                self.completed(side, evd, dto.ep, dto.cookie, dto.status(), completion)
            }
            Event::RmrBind { rmr, cookie, status } => {
                self.seen.binds += 1;
                let ep = self.sides[side]
                    .eps
                    .iter()
                    .find(|m| m.queue[REQUEST].iter().any(|dto| dto.cookie == cookie))
                    .map(|m| m.ep)
                    .ok_or("nobody posted that")?;
                let completion = (Op::Bind(rmr), How::Message, None);
                self.completed(side, evd, ep, cookie, status, completion)
            }
            Event::ConnectionRequest { psp, cr, conn_qual } => {
                self.requested(side, evd, Point::Psp(psp), cr, conn_qual)
            }
            Event::ReservedRequest { rsp, cr, conn_qual } => {
                self.requested(side, evd, Point::Rsp(rsp), cr, conn_qual)
            }
            Event::CommonRequest { csp, cr, conn_qual } => {
                self.requested(side, evd, Point::Csp(csp), cr, conn_qual)
            }
            Event::Established(ep) => self.connection(side, evd, ep, kind::ESTABLISHED),
            Event::PeerRejected(ep) => self.connection(side, evd, ep, kind::PEER_REJECTED),
            Event::NonPeerRejected(ep) => self.connection(side, evd, ep, kind::NON_PEER_REJECTED),
            Event::AcceptCompletionError(ep) => self.connection(side, evd, ep, kind::ACCEPT_ERROR),
            Event::Disconnected(ep) => self.connection(side, evd, ep, kind::DISCONNECTED),
            Event::Broken(ep) => self.connection(side, evd, ep, kind::BROKEN),
            Event::TimedOut(ep) => self.connection(side, evd, ep, kind::TIMED_OUT),
            Event::Unreachable(ep) => self.connection(side, evd, ep, kind::UNREACHABLE),
            Event::Async(AsyncEvent::EvdOverflow(full)) => {
                let may_lose = self.may_lose(side, full);
                if let Some(m) = self.sides[side].evd_mut(full) {
                    m.overflow |= may_lose;
                }
                let lost = self.sides[side].evd(full).is_none_or(|m| m.overflow);
                if lost && self.sides[side].takes(evd, EvdFlags::ASYNC) {
                    Ok(())
                } else {
                    Err("nothing can have been lost".into())
                }
            }
            Event::Async(AsyncEvent::EpBroken(ep)) => {
                let ended = &mut self.sides[side].ended;
                let at = ended.iter().position(|&entry| entry == (ep, evd));
                ended.remove(at.ok_or("it has no common queue, or reported its end before")?);
                self.seen.ended += 1;
                Ok(())
            }
            Event::Async(
                mark @ (AsyncEvent::SrqLowWatermark(_) | AsyncEvent::EpSoftHighWatermark(_)),
            ) => self.warning(side, evd, mark),
            Event::UdConnectionRequest { psp, cr, conn_qual } => {
                self.asked(side, evd, psp, cr, conn_qual)
            }
            Event::UdEstablished(ep, of) => self.look_up_ended(side, evd, ep, Some((of, true))),
            Event::UdReject(ep, of) => self.look_up_ended(side, evd, ep, Some((of, false))),
            Event::UdError(ep) => self.look_up_ended(side, evd, ep, None),
            Event::UdAccepted(ep) => self.answer_accepted(side, evd, ep),
            Event::Async(_) => Err("nothing of the kind happened".into()),
        }
    }

    fn connection(&mut self, side: usize, evd: Evd, ep: Ep, found: u16) -> Done {
        let s = &mut self.sides[side];
        let list = match s.eps.iter_mut().find(|m| m.ep == ep) {
            Some(m) => &mut m.expected,
            None => &mut s.ghosts.iter_mut().find(|(ghost, _)| *ghost == ep).ok_or("no such EP")?.1,
        };
        let at = list
            .iter()
            .position(|e| e.evd == evd && (e.kinds & found != 0 || !e.optional))
            .ok_or("none is expected")?;
        // It was found there.
        let expected = list.remove(at).ok_or("none is expected")?;
        if expected.kinds & found == 0 {
            return Err(format!("expected {expected:?}, then {list:?}"));
        }
        for skipped in (0..at).rev() {
            if list[skipped].evd == evd {
                list.remove(skipped);
            }
        }
        if found == kind::ESTABLISHED {
            self.seen.established += 1;
            return Ok(());
        }
        self.seen.terminal += 1;
        self.seen.kinds[found.trailing_zeros() as usize] += 1;
        let Some(m) = s.ep(ep) else { return Ok(()) };
        for direction in [REQUEST, RECV] {
            let waits = m.queue[direction]
                .iter()
                .any(|dto| dto.epoch <= expected.epoch && !dto.is_silent());
            if m.evd(direction) == Some(evd) && waits {
                return Err(format!("it overtakes {:?}", m.queue[direction]));
            }
        }
        Ok(())
    }

    fn requested(&mut self, side: usize, evd: Evd, point: Point, cr: Cr, conn_qual: u64) -> Done {
        let s = &mut self.sides[side];
        let listener = s.points.iter().chain(&s.old_points).find(|m| m.point == point);
        let listener = *listener.ok_or("no such service point")?;
        if listener.evd != evd || u64::from(listener.port) != conn_qual {
            return Err(format!("it belongs to {listener:?}"));
        }
        let param = s.ia.cr_query(cr).map_err(|e| format!("cr_query: {e}"))?;
        let bytes = param.private_data.first_chunk::<8>().ok_or("no private data")?;
        let local_ep = param.local_ep;
        let at = u64::from_le_bytes(*bytes) as usize;
        let link = self.links.get_mut(at).ok_or("nobody asked for it")?;
        if link.target != Some(side) || link.port != listener.port || link.arrived {
            return Err(format!("not the request {link:?}"));
        }
        link.arrived = true;
        let own = if listener.makes { local_ep } else { listener.ep };
        if local_ep != own || listener.makes && own.is_none() {
            return Err("an Endpoint of its own?".into());
        }
        if let Some(ep) = local_ep.filter(|_| listener.makes) {
            let attr = s.ia.ep_query(ep).map_err(|e| e.to_string())?.attr;
            s.eps.push(EpM::new(ep, EpState::UnconfiguredTentative, attr));
        }
        s.crs.push(CrM {
            cr,
            link: at,
            point,
            local_ep,
            provided: listener.makes || listener.provided,
            looks_up: false,
        });
        Ok(())
    }

    /// A completion: of the oldest, once, with a status and a length that can be.
    fn completed(
        &mut self,
        side: usize,
        evd: Evd,
        ep: Ep,
        cookie: u64,
        status: DtoStatus,
        (op, how, len): (Op, How, Option<u32>),
    ) -> Done {
        let direction = if op == Op::Recv { RECV } else { REQUEST };
        let s = &mut self.sides[side];
        let m = s.eps.iter_mut().find(|m| m.ep == ep).ok_or("no such EP")?;
        if m.evd(direction) != Some(evd) {
            return Err("the wrong EVD".into());
        }
        if direction == RECV {
            if let Some(srq) = m.srq {
                // It came from the common queue, and is the oldest of what the Endpoint took.
                let dto = s.shared_receive(srq, cookie)?;
                let m = s.ep_mut(ep).ok_or("no such EP")?;
                m.queue[RECV].push_front(dto);
                self.seen.shared += 1;
            }
        }
        let s = &mut self.sides[side];
        let m = s.eps.iter_mut().find(|m| m.ep == ep).ok_or("no such EP")?;
        let ok = status == DtoStatus::Success;
        let queue = &mut m.queue[direction];
        let dto = loop {
            let dto = queue.pop_front().ok_or("it was never posted, or came back before")?;
            if dto.cookie == cookie {
                break dto;
            }
            if !dto.is_silent() {
                return Err(format!("{dto:?} comes first"));
            }
        };
        let other = 1 - direction;
        let together = m.evd(other) == Some(evd) && m.failed[other];
        // The fabric goes on taking datagrams behind one that it could not put down.
        if ok && (m.failed[direction] || together) && m.ud.is_none() {
            return Err("a success after a failure".into());
        }
        m.failed[direction] |= !ok;
        s.edited(op, dto.late, ok);
        let m = s.ep_mut(ep).ok_or("no such EP")?;
        if dto.op != op {
            return Err(format!("another operation than {dto:?}"));
        }
        let len = len.unwrap_or(dto.len);
        let received = m.received;
        m.received += usize::from(direction == RECV && ok);
        let (state, tainted) = (m.state, m.tainted);
        if let Some(ud) = &m.ud {
            let right = match op {
                Op::Recv => ud.inbox.get(received).copied(),
                _ => Some((dto.len, How::Message)),
            };
            let right = if ud.hazy && op == Op::Recv { Some((len, how)) } else { right };
            return match status {
                DtoStatus::Success if dto.late || dto.suppressed => {
                    Err(format!("impossible: {dto:?}"))
                }
                DtoStatus::Success if right != Some((len, how)) => {
                    Err(format!("{len} bytes, {how:x?} for {right:x?}"))
                }
                DtoStatus::Success => {
                    self.succeeded(side, ep, op, how, len);
                    Ok(())
                }
                DtoStatus::ErrFlushed if state == EpState::Disconnected || tainted => {
                    self.seen.flushed += 1;
                    Ok(())
                }
                DtoStatus::ErrLocalProtection if tainted => {
                    self.seen.failed += 1;
                    Ok(())
                }
                _ => Err(format!("without a cause: {dto:?}")),
            };
        }
        let (at, end) = m.link.ok_or("a completion without a connection")?;
        let link = &self.links[at];
        let rough = link.broke || link.left[1 - end];
        match status {
            DtoStatus::Success if dto.late || dto.bad => {
                return Err(format!("impossible: {dto:?}"));
            }
            DtoStatus::Success if dto.suppressed => {
                return Err("it was to succeed in silence".into());
            }
            DtoStatus::Success => {
                let right = match dto.op {
                    Op::Recv => link.sent[1 - end].get(received).map(|s| (s.len, s.how)),
                    _ => Some((dto.len, How::Message)),
                };
                if right != Some((len, how)) {
                    return Err(format!("{len} bytes, {how:x?} for {right:x?}"));
                }
                self.succeeded(side, ep, op, how, len);
            }
            DtoStatus::ErrFlushed => {
                if state != EpState::Disconnected && !rough {
                    return Err(format!("flushed in {state:?}: {link:?}"));
                }
                self.seen.flushed += 1;
            }
            DtoStatus::ErrLocalLength
            | DtoStatus::ErrLocalProtection
            | DtoStatus::ErrRemoteAccess
            | DtoStatus::ErrRemoteResponder
            | DtoStatus::ErrTransport
            | DtoStatus::RmrOperationFailed => {
                if dto.late || !rough {
                    return Err(format!("without a cause: {dto:?} {link:?}"));
                }
                self.links[at].broke = true;
                self.seen.failed += 1;
            }
            DtoStatus::ErrLocalEp
            | DtoStatus::ErrBadResponse
            | DtoStatus::ErrReceiverNotReady
            | DtoStatus::ErrPartialPacket
            | DtoStatus::ErrLocalMmError => return Err("no cause for that in this world".into()),
        }
        if let Op::Bind(rmr) = dto.op {
            if let Some(window) = self.sides[side].rmrs.iter_mut().find(|m| m.rmr == rmr) {
                // Success of the newest bind determines the range of the window.
                if ok && window.keys.last() == Some(&dto.len) {
                    window.maybe.drain(..window.maybe.len().saturating_sub(1));
                    window.bound = window.maybe.last().copied().filter(|&context| context != 0);
                }
            }
        }
        Ok(())
    }

    /// The extension of the last receive of an Event Dispatcher.
    fn extension(&mut self, side: usize, evd: Evd) -> Result<u32, String> {
        let s = &mut self.sides[side];
        let reaper = s.evd(evd).and_then(|m| m.reaper.as_ref());
        let extra = match reaper {
            Some(reaper) => reaper.extension(),
            None => s.ia.evd_extension(evd).map_err(|e| e.to_string())?,
        };
        Ok(extra.immediate)
    }

    /// The effects of a success on the model.
    fn succeeded(&mut self, side: usize, ep: Ep, op: Op, how: How, len: u32) {
        let seen = &mut self.seen;
        seen.completed += 1;
        match (op, how) {
            (Op::FetchAdd | Op::CmpSwap, _) => seen.atomics += 1,
            (Op::Recv, How::Immediate(_)) => seen.immediates += 1,
            (Op::Recv, How::Closing(_)) => seen.closed += 1,
            (Op::Recv, How::Datagram(_)) => seen.datagrams += 1,
            (Op::Invalidate(_), _) => seen.invalidated += 1,
            _ => {}
        }
        let s = &mut self.sides[side];
        if let Some(m) = s.ep_mut(ep).filter(|_| op == Op::Recv) {
            let counter = match how {
                How::Message | How::Closing(_) => EpCounter::Recv,
                How::Immediate(_) => EpCounter::RecvRdmaImm,
                How::Datagram(None) => EpCounter::RecvUd,
                How::Datagram(Some(_)) => EpCounter::RecvImm,
            };
            m.count(counter, len);
        }
        if let How::Closing(context) = how {
            if let Some(m) = s.rmrs.iter_mut().find(|m| m.keys.last() == Some(&context)) {
                m.close();
            }
        }
    }

    /// Runs both sides until idle and empties every Event Dispatcher: then nothing is pending.
    pub(crate) fn drain(&mut self) -> Done {
        // A freed window goes with the turn after its last bind has come back.
        let unbound = [0, 1].map(|side| {
            let mut requests = self.sides[side].eps.iter().flat_map(|m| &m.queue[REQUEST]);
            !requests.any(|dto| matches!(dto.op, Op::Bind(_)))
        });
        self.run_until_idle()?;
        for round in 0..2 {
            for side in 0..2 {
                let evds: Vec<Evd> = self.sides[side].evds.iter().map(|m| m.evd).collect();
                for evd in evds {
                    while self.dequeue(side, evd)? {}
                }
            }
            // Dequeuing finds failures, and they have consequences.
            if round == 0 {
                self.run_until_idle()?;
            }
        }
        let strict = self.attempts < 2 * EPS - 2;
        self.check_look_ups(strict)?;
        for (side, unbound) in unbound.into_iter().enumerate() {
            self.complete(side, unbound)?;
        }
        for at in 0..self.links.len() {
            let now = self.now;
            let waiting = self.links[at].ends[0].is_some_and(|(side, ep)| {
                self.sides[side].ep(ep).is_some_and(|m| {
                    m.state == EpState::ActiveConnectionPending && m.link == Some((at, 0))
                })
            });
            let link = &mut self.links[at];
            if waiting && !link.arrived && !link.lost && strict && !link.is_old(now) {
                return Err(format!("a request went astray: {link:?}"));
            }
            // A request that has not come by now never will.
            link.arrived |= !waiting && !link.lost;
        }
        Ok(())
    }

    /// An event must come: nothing on its Event Dispatcher was lost, nor is it one of two
    /// possibilities.
    fn is_due(&self, side: usize, e: &Expect) -> bool {
        !e.optional && self.sides[side].evd(e.evd).is_some_and(|m| !m.overflow)
    }

    fn complete(&mut self, side: usize, unbound: bool) -> Done {
        for at in 0..self.sides[side].eps.len() {
            let m = &self.sides[side].eps[at];
            if let Some(missing) = m.expected.iter().find(|e| self.is_due(side, e)) {
                return Err(format!("{:?} never got {missing:?}", m.ep));
            }
            let blocked = m.link.is_some_and(|(link, end)| {
                self.peer(link, end).is_none_or(|(far, peer)| match self.sides[far].srq_of(peer) {
                    Some(srq) => srq.outstanding == 0,
                    None => peer.queue[RECV].is_empty(),
                }) && m.queue[REQUEST].iter().any(|dto| dto.op.takes_receive())
            });
            let held = m.queue[REQUEST].iter().any(|dto| dto.deferred);
            let due = |dto: &&Dto| !dto.is_silent();
            let pending = match m.state {
                EpState::Disconnected => m.queue.iter().flatten().find(due),
                EpState::Connected if !blocked && !held => m.queue[REQUEST].iter().find(due),
                EpState::DisconnectPending if !blocked && m.poster.is_none() => {
                    return Err(format!("{:?} drains for ever: {:?}", m.ep, m.queue[REQUEST]));
                }
                _ => None,
            };
            if let Some(dto) = pending {
                return Err(format!("{:?} in {:?}: {dto:?} never came back", m.ep, m.state));
            }
            let done = m.state == EpState::Disconnected;
            let m = &mut self.sides[side].eps[at];
            m.expected.clear();
            if done {
                m.queue.iter_mut().for_each(|queue| queue.clear());
                m.drained = false;
            }
        }
        let s = &mut self.sides[side];
        let complete_suppressed = |&(_, evd): &(Ep, Evd)| s.evd(evd).is_some_and(|m| !m.overflow);
        if let Some((ep, _)) = s.ended.iter().copied().find(complete_suppressed) {
            return Err(format!("{ep:?} never said that it has ended"));
        }
        s.ended.clear();
        let missed = |&(_, evd): &(AsyncEvent, Option<Evd>)| {
            evd.is_some_and(|evd| s.evd(evd).is_some_and(|m| !m.overflow))
        };
        if let Some((mark, _)) = s.warned.iter().copied().find(missed) {
            return Err(format!("{mark:?} never came"));
        }
        // Nothing waits any more: of what was asked for twice, the newest is left.
        s.warned.retain(|(_, evd)| evd.is_none());
        let mut armed: Vec<AsyncEvent> = Vec::new();
        s.warned.retain(|(mark, _)| {
            let new = !armed.contains(mark);
            armed.push(*mark);
            new
        });
        let lossy: Vec<Evd> = s.evds.iter().filter(|m| m.overflow).map(|m| m.evd).collect();
        s.evds.iter_mut().for_each(|m| m.overflow = false);
        if let Some((ep, list)) = s
            .ghosts
            .iter()
            .find(|(_, list)| list.iter().any(|e| !e.optional && !lossy.contains(&e.evd)))
        {
            return Err(format!("{ep:?}, freed, never got {list:?}"));
        }
        s.ghosts.clear();
        if unbound {
            s.retiring.clear();
        }
        Ok(())
    }
}
