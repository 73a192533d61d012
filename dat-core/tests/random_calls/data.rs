//! Posting: what dat_ep_post_*(3) and dat_rmr_bind(3) must answer, and what that leaves
//! outstanding.
//!
//! Length: every kind of request, each with its model right before it.

use dat_core::*;

use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World};

/// How a remote range stands, as far as the model can tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Far {
    Open,
    Shut,
    Unknown,
}

const MAX_MESSAGE: u64 = 32 * 1024;

impl SideM {
    /// The poster of an Endpoint, if it is out and the call is to be made on it.
    pub(crate) fn poster_of(&mut self, ep: Ep, by_poster: bool) -> Option<&mut Poster> {
        let m = self.eps.iter_mut().find(|m| by_poster && m.ep == ep)?;
        m.poster.as_mut()
    }

    /// Everything that can be wrong with a post except its segments.
    pub(crate) fn post_verdict(
        &self,
        ep: Ep,
        op: Op,
        flags: CompletionFlags,
        by_poster: bool,
    ) -> Verdict {
        let direction = if op == Op::Recv { RECV } else { REQUEST };
        let Some(m) = self.ep(ep) else {
            let subtype = DatSubtype::InvalidHandleEp;
            return Verdict::new().no_as(true, DatType::InvalidHandle, subtype);
        };
        let attr = &m.attr;
        let (allowed, most) = if direction == RECV {
            (attr.recv_completion_flags & CompletionFlags::UNSIGNALLED, attr.max_recv_dtos)
        } else {
            let given = attr.request_completion_flags & CompletionFlags::UNSIGNALLED;
            let always = CompletionFlags::SUPPRESS
                | CompletionFlags::SOLICITED_WAIT
                | CompletionFlags::BARRIER_FENCE
                | CompletionFlags::LMR_INVALIDATE_FENCE
                | CompletionFlags::DEFER;
            let never = if m.ud.is_some() {
                CompletionFlags::BARRIER_FENCE | CompletionFlags::DEFER
            } else {
                CompletionFlags::empty()
            };
            ((always | given) & !never, attr.max_request_dtos)
        };
        let changes_key = matches!(op, Op::Bind(_) | Op::Register(_) | Op::Invalidate(_));
        let takes_binds =
            |evd| self.evds.iter().any(|m| m.evd == evd && m.flags.contains(EvdFlags::RMR_BIND));
        let served = (op == Op::Recv || m.ud.is_some() == (op == Op::SendUd))
            && (!changes_key || m.request.is_some_and(takes_binds));
        let (least, full) = m.outstanding(direction);
        let most = usize::from(most);
        let open = match m.state {
            EpState::Connected | EpState::Disconnected => true,
            _ => direction == RECV,
        };
        Verdict::new()
            .no_as(!open, DatType::InvalidState, m.state.subtype())
            .may(!open && m.poster.is_some(), DatType::InvalidState)
            .no(!m.is_configured(), DatType::InvalidState)
            .no(!served, DatType::ModelNotSupported)
            .no(direction == RECV && m.srq.is_some(), DatType::ModelNotSupported)
            .no(m.poster.is_some() && !by_poster, DatType::InvalidState)
            .no(!allowed.contains(flags), DatType::InvalidParameter)
            .no(least >= most, DatType::InsufficientResources)
            .may(full >= most, DatType::InsufficientResources)
    }

    /// Adds the refusals of the local segments to a verdict, and returns their bytes.
    pub(crate) fn segments_verdict(
        &self,
        verdict: Verdict,
        ep: Ep,
        op: Op,
        segments: &[LmrTriplet],
    ) -> (Verdict, u64) {
        let Some(m) = self.ep(ep) else {
            return (verdict, 0);
        };
        let (need, privilege, zone, iov, size) = match op {
            Op::Send | Op::SendUd => (
                MemPriv::LOCAL_READ,
                DatSubtype::PrivilegesRead,
                DatSubtype::ProtectionRead,
                m.attr.max_request_iov,
                m.attr.max_message_size,
            ),
            Op::Write | Op::WriteImmed => (
                MemPriv::LOCAL_READ,
                DatSubtype::PrivilegesRdmaWrite,
                DatSubtype::ProtectionRdmaWrite,
                m.attr.max_rdma_write_iov,
                m.attr.max_rdma_size,
            ),
            Op::Read => (
                MemPriv::LOCAL_WRITE,
                DatSubtype::PrivilegesRdmaRead,
                DatSubtype::ProtectionRdmaRead,
                m.attr.max_rdma_read_iov,
                m.attr.max_rdma_size,
            ),
            Op::FetchAdd | Op::CmpSwap => (
                MemPriv::LOCAL_WRITE,
                DatSubtype::PrivilegesRdmaRead,
                DatSubtype::ProtectionRdmaRead,
                1,
                m.attr.max_rdma_size,
            ),
            Op::Recv | Op::Bind(_) | Op::Register(_) | Op::Invalidate(_) => (
                MemPriv::LOCAL_WRITE,
                DatSubtype::PrivilegesWrite,
                DatSubtype::ProtectionWrite,
                m.attr.max_recv_iov,
                // A receive may be longer than what its Endpoint sends.
                MAX_MESSAGE as u32,
            ),
        };
        let mut verdict = verdict.no(segments.len() > usize::from(iov), DatType::InvalidParameter);
        let mut total = 0;
        for segment in segments.iter().filter(|segment| segment.len != 0) {
            total += u64::from(segment.len);
            let lmr = self.lmr_of(segment.context);
            let lacks = lmr.is_none_or(|lmr| !lmr.privileges.contains(need));
            let outside = lmr.is_some_and(|lmr| !holds(lmr, segment.addr, segment.len));
            let strange = lmr.is_some_and(|lmr| Some(lmr.pz) != m.pz);
            verdict = verdict
                .no_as(lacks, DatType::PrivilegesViolation, privilege)
                .no_as(strange, DatType::ProtectionViolation, zone)
                .no(outside, DatType::InvalidParameter);
        }
        (verdict.no(total > u64::from(size), DatType::LengthError), total)
    }
}

pub(crate) fn holds(lmr: &LmrM, addr: u64, len: u32) -> bool {
    addr >= lmr.region.addr
        && addr
            .checked_add(u64::from(len))
            .is_some_and(|end| end <= lmr.region.addr.saturating_add(lmr.region.len))
}

impl World {
    fn far(&self, link: usize, end: usize, op: Op, remote: &RmrTriplet, len: u32) -> Far {
        if len == 0 {
            return Far::Open;
        }
        let Some((side, peer)) = self.peer(link, end) else {
            return Far::Unknown;
        };
        let need = op.far_right().unwrap_or(MemPriv::empty());
        let s = &self.sides[side];
        let index = |key: u32| key >> 8;
        let of = |m: &&LmrM| m.rmr_context != 0 && index(m.rmr_context) == index(remote.context);
        if let Some(m) = s.lmrs.iter().find(of) {
            if let LmrKind::Fast(_, gate) = m.kind {
                if gate == Gate::Shut || !m.applied || s.edits(m.lmr, None) != 0 {
                    return Far::Unknown;
                }
            }
        }
        if let Some(lmr) = s
            .lmrs
            .iter()
            .find(|m| m.rmr_context == remote.context && m.rmr_context != 0 && m.is_usable())
        {
            let open = Some(lmr.pz) == peer.pz
                && lmr.privileges.contains(need)
                && holds(lmr, remote.addr, len);
            return if open { Far::Open } else { Far::Shut };
        }
        let window = s.rmrs.iter().any(|m| m.keys.contains(&remote.context));
        if window { Far::Unknown } else { Far::Shut }
    }

    /// A remote range, mostly open.
    fn pick_remote(&mut self, side: usize, ep: Ep, op: Op) -> RmrTriplet {
        let peer = self.sides[side].ep(ep).and_then(|m| m.link).and_then(|(link, end)| {
            let (side, m) = self.peer(link, end)?;
            Some((side, m.pz))
        });
        let need = op.far_right().unwrap_or(MemPriv::empty());
        if let Some((far, pz)) = peer {
            let s = &self.sides[far];
            let fit: Vec<LmrM> = s
                .lmrs
                .iter()
                .filter(|m| Some(m.pz) == pz && m.privileges.contains(need) && m.is_usable())
                .copied()
                .collect();
            let windows: Vec<u32> = s
                .rmrs
                .iter()
                .filter(|m| m.bound.is_some())
                .filter_map(|m| m.keys.last().copied())
                .collect();
            let window = self.rng.of(&windows);
            if let Some(lmr) = self.rng.of(&fit) {
                if self.calm > 1 || self.rng.percent(96) {
                    // Inside whatever else the dice say: a range that is not open ends the connection.
                    let len = (self.rng.next() % 64 + 1).min(lmr.region.len) as u32;
                    let addr =
                        lmr.region.addr + self.rng.next() % (lmr.region.len - u64::from(len) + 1);
                    let context = window
                        .filter(|_| self.rng.percent(10 / self.calm.min(5)))
                        .unwrap_or(lmr.rmr_context);
                    return RmrTriplet { addr, len, context };
                }
            }
        }
        let (addr, len) = self.pick_range(0x1000_0000, 0x1_0000);
        RmrTriplet { addr, len, context: self.rng.next() as u32 & 0x3fff }
    }

    /// One post of any kind but a bind.
    pub(crate) fn post(&mut self, side: usize) -> Done {
        use EpState::{Connected as C, Disconnected as D};
        let op = match self.rng.below(40) {
            0..15 => Op::Recv,
            15..26 => Op::Send,
            26..33 => Op::Write,
            33..35 => return self.read_to_rmr(side),
            35 => Op::FetchAdd,
            36 => Op::CmpSwap,
            37 => Op::WriteImmed,
            _ => Op::Read,
        };
        let atomic = matches!(op, Op::FetchAdd | Op::CmpSwap);
        let direction = if op == Op::Recv { RECV } else { REQUEST };
        let states: &[EpState] =
            if self.rng.percent(80) { &[C] } else { &[C, D, EpState::DisconnectPending] };
        // Where there is a connection, mostly.
        let here = |side: usize| self.sides[side].eps.iter().any(|m| m.state == C);
        let side = if here(side) || !here(1 - side) { side } else { 1 - side };
        let ep = self.pick_ep_in(side, states);
        let other = if self.is_for_datagrams(side, ep) { 95 } else { 1 };
        if op != Op::Recv && self.rng.percent(other) {
            return self.send_ud(side, ep);
        }
        if !self.has_completion_room(side, ep, direction)? {
            return Ok(());
        }
        let segments = if atomic {
            vec![self.pick_operand(side, ep)]
        } else {
            self.pick_segments(side, ep, op == Op::Recv)
        };
        let mut flags = self.pick_flags();
        if op == Op::Recv && self.rng.percent(80) {
            flags = CompletionFlags::empty();
        }
        let mut remote = self.pick_remote(side, ep, op);
        let (verdict, total) = {
            let s = &self.sides[side];
            let by_poster = s.ep(ep).is_some_and(|m| m.poster.is_some()) && self.rng.percent(90);
            let verdict = s.post_verdict(ep, op, flags, by_poster);
            let (verdict, total) = s.segments_verdict(verdict, ep, op, &segments);
            ((verdict, by_poster), total)
        };
        let (mut verdict, by_poster) = verdict;
        let writes = matches!(op, Op::Write | Op::WriteImmed);
        if total <= MAX_MESSAGE && self.rng.percent(85) && (op == Op::Read || writes) {
            remote.len = remote.len.min(total as u32).max(if writes { total as u32 } else { 0 });
        }
        if atomic && (self.calm > 1 || self.rng.percent(97)) {
            (remote.addr, remote.len) = (remote.addr & !7, 8);
        }
        let far = u64::from(remote.len);
        verdict = verdict
            .no(writes && total > far, DatType::LengthError)
            .no(op == Op::Read && total < far, DatType::LengthError)
            .no(atomic && (total, far) != (8, 8), DatType::LengthError)
            .no(atomic && remote.addr % 8 != 0, DatType::InvalidParameter);
        let closing = self.pick_closing(side, ep, op);
        let how = match (op, closing) {
            (Op::WriteImmed, _) => How::Immediate(self.rng.next() as u32),
            (_, Some(Some(context))) => How::Closing(context),
            _ => How::Message,
        };
        let (add, swap) = (self.rng.next(), self.rng.next());
        self.cookie += 1;
        let cookie = self.cookie;
        let answer = {
            let s = &mut self.sides[side];
            match s.poster_of(ep, by_poster) {
                Some(poster) => match op {
                    Op::Send if closing.is_some() => poster.post_send_with_invalidate(
                        &segments,
                        cookie,
                        flags,
                        closing.flatten(),
                    ),
                    Op::Send => poster.post_send(&segments, cookie, flags),
                    Op::WriteImmed => {
                        poster.post_rdma_write_immed(&segments, cookie, &remote, how.word(), flags)
                    }
                    Op::FetchAdd => {
                        poster.post_fetch_add(add, &segments[0], cookie, &remote, flags)
                    }
                    Op::CmpSwap => {
                        poster.post_cmp_swap(add, swap, &segments[0], cookie, &remote, flags)
                    }
                    Op::Write => poster.post_rdma_write(&segments, cookie, &remote, flags),
                    Op::Read => poster.post_rdma_read(&segments, cookie, &remote, flags),
                    Op::Recv | Op::Bind(_) | Op::Register(_) | Op::Invalidate(_) | Op::SendUd => {
                        poster.post_recv(&segments, cookie, flags)
                    }
                },
                None => match op {
                    Op::Send if closing.is_some() => s.ia.ep_post_send_with_invalidate(
                        ep,
                        &segments,
                        cookie,
                        flags,
                        closing.flatten(),
                    ),
                    Op::Send => s.ia.ep_post_send(ep, &segments, cookie, flags),
                    Op::WriteImmed => {
                        let word = how.word();
                        s.ia.ep_post_rdma_write_immed(ep, &segments, cookie, &remote, word, flags)
                    }
                    Op::FetchAdd => {
                        s.ia.ep_post_fetch_add(ep, add, &segments[0], cookie, &remote, flags)
                    }
                    Op::CmpSwap => {
                        s.ia.ep_post_cmp_swap(ep, add, swap, &segments[0], cookie, &remote, flags)
                    }
                    Op::Write => s.ia.ep_post_rdma_write(ep, &segments, cookie, &remote, flags),
                    Op::Read => s.ia.ep_post_rdma_read(ep, &segments, cookie, &remote, flags),
                    Op::Recv | Op::Bind(_) | Op::Register(_) | Op::Invalidate(_) | Op::SendUd => {
                        s.ia.ep_post_recv(ep, &segments, cookie, flags)
                    }
                },
            }
        };
        self.note(|| {
            format!(
                "{side}: {op:?} {how:x?} #{cookie} {ep:?} {segments:x?} {remote:x?} {flags:?} -> {answer:?}"
            )
        });
        if !self.judge(&verdict, answer.as_ref().err())? {
            return Ok(());
        }
        let len = if op == Op::Read { remote.len } else { total as u32 };
        self.shake(side, ep, &segments);
        self.posted(side, ep, (op, how), len, flags, cookie, &remote);
        Ok(())
    }

    /// Marks the operations that may fail because they name memory that may not be open.
    pub(crate) fn shake(&mut self, side: usize, ep: Ep, segments: &[LmrTriplet]) {
        let own = self.fabric.region(side);
        let s = &mut self.sides[side];
        if s.is_shaky(segments, own) {
            if let Some(m) = s.ep_mut(ep) {
                m.tainted = true;
                if let Some((link, _)) = m.link {
                    self.links[link].broke = true;
                }
            }
        }
    }

    /// For some sends: whether they close an RMR of the peer, and which.
    fn pick_closing(&mut self, side: usize, ep: Ep, op: Op) -> Option<Option<u32>> {
        if op != Op::Send {
            return None;
        }
        let (link, end) = self.sides[side].ep(ep)?.link?;
        let (far, peer) = self.peer(link, end)?;
        let fit = |m: &&RmrM| m.own && m.holder == Some(peer.ep) && m.bound.is_some();
        let open: Vec<u32> = self.sides[far]
            .rmrs
            .iter()
            .filter(fit)
            .filter_map(|m| m.keys.last().copied())
            .collect();
        let chance = if open.is_empty() { 5 } else { 30 };
        if !self.rng.percent(chance) {
            return None;
        }
        let word = self.rng.next() as u32;
        let wrong = self.rng.percent(3).then_some(word);
        Some(self.rng.of(&open).or(wrong))
    }

    /// Reads into an own RMR.
    fn read_to_rmr(&mut self, side: usize) -> Done {
        let ep = self.pick_ep_in(side, &[EpState::Connected]);
        if !self.has_completion_room(side, ep, REQUEST)? {
            return Ok(());
        }
        let flags = self.pick_flags();
        let mut remote = self.pick_remote(side, ep, Op::Read);
        let zone = self.sides[side].ep(ep).and_then(|m| m.pz);
        let windows: Vec<RmrM> = self.sides[side]
            .rmrs
            .iter()
            .filter(|m| Some(m.pz) == zone && m.opens.0.len != 0)
            .cloned()
            .collect();
        let mut local = RmrTriplet::default();
        if self.rng.percent(95) && !windows.is_empty() {
            let m = &windows[self.rng.below(windows.len())];
            let (range, context) = (m.opens.0, m.keys.last().copied().unwrap_or(0));
            let len = remote.len.min(range.len);
            let room = range.len - len;
            let addr = range.addr + u64::from(self.rng.next() as u32 % (room + 1));
            local = RmrTriplet { addr, len, context };
            remote.len = len;
            match self.rng.below(40) {
                0 => local.addr = range.addr.wrapping_sub(1),
                1 => local.len = range.len + 1,
                2 => local.context ^= 1 << self.rng.below(32),
                3 => remote.len += 1,
                _ => {}
            }
        } else {
            local.context = self.rng.next() as u32;
        }
        let s = &self.sides[side];
        let by_poster = s.ep(ep).is_some_and(|m| m.poster.is_some()) && self.rng.percent(90);
        let s = &self.sides[side];
        let mut verdict = s.post_verdict(ep, Op::Read, flags, by_poster);
        let window = s.rmrs.iter().find(|m| m.keys.last() == Some(&local.context));
        let window = window.filter(|m| m.maybe.last() != Some(&0));
        verdict = verdict.no(
            window.is_none_or(|m| !m.opens.1.contains(MemPriv::REMOTE_WRITE)),
            DatType::PrivilegesViolation,
        );
        if let Some(m) = window {
            let (range, last) = (m.opens.0, local.addr.checked_add(local.len.into()));
            let inside = local.addr >= range.addr
                && last.is_some_and(|last| last <= range.addr + u64::from(range.len));
            verdict = verdict.no(!inside, DatType::InvalidParameter);
            let segment = LmrTriplet { addr: local.addr, len: local.len, context: range.context };
            (verdict, _) = s.segments_verdict(verdict, ep, Op::Read, &[segment]);
        }
        verdict = verdict.no(local.len < remote.len, DatType::LengthError);
        self.cookie += 1;
        let cookie = self.cookie;
        let s = &mut self.sides[side];
        let answer = match s.poster_of(ep, by_poster) {
            Some(poster) => poster.post_rdma_read_to_rmr(&local, cookie, &remote, flags),
            None => s.ia.ep_post_rdma_read_to_rmr(ep, &local, cookie, &remote, flags),
        };
        self.note(|| {
            format!("{side}: read_to_rmr #{cookie} {ep:?} {local:x?} {remote:x?} {flags:?} -> {answer:?}")
        });
        if !self.judge(&verdict, answer.as_ref().err())? {
            return Ok(());
        }
        self.seen.reads_to_rmr += 1;
        let (op, len) = ((Op::Read, How::Message), remote.len);
        self.posted(side, ep, op, len, flags, cookie, &remote);
        Ok(())
    }

    /// Whether a message that closes an RMR will certainly be taken for what it is.
    fn is_welcome(&self, at: usize, end: usize, context: u32) -> bool {
        let Some((far, peer)) = self.peer(at, end) else {
            return false;
        };
        let window = self.sides[far]
            .rmrs
            .iter()
            .find(|m| m.own && m.holder == Some(peer.ep) && m.keys.last() == Some(&context));
        let sent = &self.links[at].sent[end];
        let again = sent.iter().any(|sent| sent.how == How::Closing(context));
        let waiting = sent.len() - peer.received;
        let bound = window.is_some_and(|m| m.bound.is_some());
        bound && !again && peer.srq.is_none() && peer.queue[RECV].len() > waiting
    }

    pub(crate) fn posted(
        &mut self,
        side: usize,
        ep: Ep,
        (op, how): (Op, How),
        len: u32,
        flags: CompletionFlags,
        cookie: u64,
        remote: &RmrTriplet,
    ) {
        let direction = if op == Op::Recv { RECV } else { REQUEST };
        let Some(m) = self.sides[side].ep(ep) else {
            return;
        };
        let (late, link) = (m.state == EpState::Disconnected, m.link);
        let mut bad = false;
        if let Some((at, end)) = link.filter(|_| !late) {
            if op.far_right().is_some() {
                let far = self.far(at, end, op, remote, len);
                bad = far == Far::Shut;
                self.links[at].broke |= far != Far::Open;
            }
            let gone = self.links[at].left[1 - end];
            self.links[at].broke |= gone && op != Op::Recv;
            if let How::Closing(context) = how {
                let deferred = flags.contains(CompletionFlags::DEFER)
                    || self.sides[side]
                        .ep(ep)
                        .is_some_and(|m| m.queue[REQUEST].iter().any(|dto| dto.deferred));
                let welcome = !deferred && self.is_welcome(at, end, context);
                self.links[at].broke |= !welcome;
            }
            if op.takes_receive() {
                let index = self.links[at].sent[end].len();
                let sent = Sent { len, how };
                let long = sent.room();
                self.links[at].sent[end].push(sent);
                let room = self.peer(at, end).and_then(|(_, peer)| peer.room.get(index).copied());
                self.links[at].broke |= room.is_some_and(|room| long > room);
                let shared = self.peer(at, end).and_then(|(far, peer)| {
                    let srq = self.sides[far].srq_of(peer)?;
                    Some(srq.least)
                });
                self.links[at].broke |= shared.is_some_and(|least| long > least);
            }
            if op == Op::Recv {
                let index = self.sides[side].ep(ep).map_or(0, |m| m.room.len());
                let sent = self.links[at].sent[1 - end].get(index).map(Sent::room);
                self.links[at].broke |= sent.is_some_and(|sent| sent > len);
            }
        }
        let s = &mut self.sides[side];
        let Some(m) = s.eps.iter_mut().find(|m| m.ep == ep) else {
            return;
        };
        if op == Op::Recv && !late {
            m.room.push(len);
        }
        match op {
            Op::Send => m.count(EpCounter::PostSend, len),
            Op::Write => m.count(EpCounter::PostWrite, len),
            Op::WriteImmed => m.count(EpCounter::PostWriteImm, len),
            Op::Read => m.count(EpCounter::PostRead, len),
            Op::FetchAdd => m.count_one(EpCounter::PostFetchAdd),
            Op::CmpSwap => m.count_one(EpCounter::PostCmpSwap),
            Op::Recv => m.count(EpCounter::PostRecv, len),
            Op::SendUd => m.count(EpCounter::PostSendUd, len),
            Op::Bind(_) | Op::Register(_) | Op::Invalidate(_) => {}
        }
        let deferred = flags.contains(CompletionFlags::DEFER);
        if !deferred && direction == REQUEST {
            // One doorbell serves all before it.
            m.queue[REQUEST].iter_mut().for_each(|dto| dto.deferred = false);
        }
        let suppressed = flags.contains(CompletionFlags::SUPPRESS);
        let epoch = m.epoch;
        let dto = Dto { cookie, op, len, suppressed, deferred, late, bad, epoch };
        m.queue[direction].push_back(dto);
        if let Some(evd) = m.evd(direction) {
            if let Some(evd) = s.evd_mut(evd) {
                evd.load += 1;
            }
        }
    }

    /// Keeps the device's queue from overflowing, which would be the consumer's fault: dequeues
    /// until there is room.
    pub(crate) fn has_completion_room(
        &mut self,
        side: usize,
        ep: Ep,
        direction: usize,
    ) -> Result<bool, String> {
        let evd = self.sides[side].ep(ep).and_then(|m| m.evd(direction));
        let Some(evd) = evd else { return Ok(true) };
        let tight = |world: &Self| {
            world.sides[side].evd(evd).is_some_and(|m| m.load + 2 * EPS >= m.qlen as usize)
        };
        if tight(self) {
            while self.dequeue(side, evd)? {}
        }
        Ok(!tight(self))
    }

    /// Binds and unbinds.
    pub(crate) fn bind(&mut self, side: usize) -> Done {
        let ep = self.pick_ep_in(side, &[EpState::Connected]);
        if !self.has_completion_room(side, ep, REQUEST)? {
            return Ok(());
        }
        let rmr = self.pick_rmr(side);
        let mut range = self.pick_segment(side, ep, false);
        if self.rng.percent(15) {
            range.len = 0;
        }
        let privileges = match self.rng.below(6) {
            0 => MemPriv::REMOTE_READ,
            1 => MemPriv::REMOTE_WRITE,
            2 => MemPriv::empty(),
            3 => MemPriv::ALL,
            _ => MemPriv::REMOTE,
        };
        let flags = self.pick_flags();
        let s = &self.sides[side];
        let by_poster = s.ep(ep).is_some_and(|m| m.poster.is_some()) && self.rng.percent(90);
        let s = &self.sides[side];
        let mut verdict = s.post_verdict(ep, Op::Bind(rmr), flags, by_poster);
        let window = s.rmrs.iter().find(|m| m.rmr == rmr);
        let pz = s.ep(ep).and_then(|m| m.pz);
        let known = window.is_some();
        verdict = verdict
            .no_as(!known, DatType::InvalidHandle, DatSubtype::InvalidHandleRmr)
            .no(known && window.map(|m| m.pz) != pz, DatType::ProtectionViolation);
        if let Some(m) = window.filter(|m| m.own && m.holder != Some(ep)) {
            let mut requests = s.eps.iter().flat_map(|m| &m.queue[REQUEST]);
            let under_way = requests.any(|dto| dto.op == Op::Bind(rmr));
            let held = m.holder.is_some();
            let connected =
                m.holder.and_then(|ep| s.ep(ep)).is_some_and(|m| m.state == EpState::Connected);
            verdict = verdict
                .no(m.maybe.last() != Some(&0), DatType::InvalidState)
                .no(held && !connected, DatType::InvalidState)
                .may(held || under_way, DatType::InvalidState);
        }
        if range.len != 0 {
            let lmr = s.lmr_of(range.context);
            verdict =
                verdict.no(lmr.is_some_and(|lmr| lmr.kind == LmrKind::All), DatType::ReservedLmr);
            let lacks = lmr.is_none_or(|lmr| {
                let has = |right| lmr.privileges.contains(right);
                privileges.contains(MemPriv::REMOTE_READ) && !has(MemPriv::LOCAL_READ)
                    || privileges.contains(MemPriv::REMOTE_WRITE) && !has(MemPriv::LOCAL_WRITE)
            });
            let outside = lmr.is_some_and(|lmr| !holds(lmr, range.addr, range.len));
            let strange = lmr.is_some_and(|lmr| Some(lmr.pz) != pz);
            verdict = verdict
                .no(lacks, DatType::PrivilegesViolation)
                .no(outside, DatType::InvalidParameter)
                .no(strange, DatType::ProtectionViolation);
        }
        self.cookie += 1;
        let cookie = self.cookie;
        let s = &mut self.sides[side];
        let answer = match s.poster_of(ep, by_poster) {
            Some(poster) => poster.rmr_bind(rmr, &range, privileges, cookie, flags),
            None => s.ia.rmr_bind(rmr, &range, privileges, ep, cookie, flags),
        };
        self.note(|| {
            format!("{side}: bind #{cookie} {rmr:?} {range:x?} {privileges:?} {ep:?} {flags:?} -> {answer:x?}")
        });
        if !self.judge(&verdict, answer.as_ref().err())? {
            return Ok(());
        }
        let key = answer.unwrap_or(0);
        self.shake(side, ep, &[range]);
        let late = self.sides[side].ep(ep).is_some_and(|m| m.state == EpState::Disconnected);
        if let Some(window) = self.sides[side].rmrs.iter_mut().find(|m| m.rmr == rmr) {
            if !late {
                if window.keys.contains(&key) && window.keys.last() == Some(&key) {
                    return Err(format!("the context {key:#x} again"));
                }
                window.keys.push(key);
                window.maybe.push(if range.len == 0 { 0 } else { range.context });
                window.bound = None;
                window.opens = (range, privileges);
                window.holder = window.own.then_some(ep);
            }
        }
        self.posted(
            side,
            ep,
            (Op::Bind(rmr), How::Message),
            key,
            flags,
            cookie,
            &RmrTriplet::default(),
        );
        Ok(())
    }

    /// Memory changed under operations that are under way: they may fail from now on.
    pub(crate) fn taint(&mut self) {
        for side in 0..2 {
            for m in &mut self.sides[side].srqs {
                m.tainted |= m.outstanding != 0;
            }
            for at in 0..self.sides[side].eps.len() {
                let m = &mut self.sides[side].eps[at];
                if m.srq.is_some() || m.queue.iter().any(|queue| !queue.is_empty()) {
                    m.tainted = true;
                    if let Some((link, _)) = m.link {
                        self.links[link].broke = true;
                    }
                }
            }
        }
    }

    /// The doorbell for what was deferred.
    pub(crate) fn ring(&mut self, side: usize) -> Done {
        let ep = self.pick_ep_in(side, &[EpState::Connected]);
        let s = &mut self.sides[side];
        let m = s.eps.iter_mut().find(|m| m.ep == ep);
        let ready = m.as_ref().is_some_and(|m| m.is_configured());
        if let Some(poster) = m.and_then(|m| m.poster.as_mut()) {
            poster.ring();
        } else {
            let answer = s.ia.ep_ring(ep);
            let alive = s.ep(ep).is_some();
            let verdict = Verdict::new()
                .no_as(!alive, DatType::InvalidHandle, DatSubtype::InvalidHandleEp)
                .no(alive && !ready, DatType::InvalidState);
            if !self.judge(&verdict, answer.as_ref().err())? {
                return Ok(());
            }
        }
        if let Some(m) = self.sides[side].ep_mut(ep) {
            if m.state == EpState::Connected {
                m.queue[REQUEST].iter_mut().for_each(|dto| dto.deferred = false);
            }
        }
        Ok(())
    }

    /// Compares an answer with the model's; says whether the call was carried out.
    pub(crate) fn judge(
        &mut self,
        verdict: &Verdict,
        refusal: Option<&DatReturn>,
    ) -> Result<bool, String> {
        let done = verdict.judge(refusal.map_or(Ok(&()), Err))?;
        if done {
            self.seen.carried_out += 1;
        } else {
            self.seen.refused += 1;
        }
        Ok(done)
    }
}
