//! Shared Receive Queues: made, asked, resized, watched, freed, and what is posted to them.

use dat_core::*;

use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World};

impl SideM {
    fn known_srq(&self, srq: Srq) -> Verdict {
        let known = self.srq(srq).is_some();
        Verdict::new().no_as(!known, DatType::InvalidHandle, DatSubtype::InvalidHandleSrq)
    }

    /// Something posted to it, or to its common queue, may fail.
    pub(crate) fn is_tainted(&self, ep: Ep) -> bool {
        self.ep(ep).is_some_and(|m| m.tainted || self.srq_of(m).is_some_and(|srq| srq.tainted))
    }

    /// An Endpoint has taken the receive of that cookie: as one of its own, of a length that does
    /// not matter.
    pub(crate) fn shared_receive(&mut self, srq: Srq, cookie: u64) -> Result<Dto, String> {
        let m = self.srq_mut(srq).ok_or("no such SRQ")?;
        let at = m.posted.iter().position(|&posted| posted == cookie);
        m.posted.remove(at.ok_or("it was never posted, or came back before")?);
        m.outstanding = m.outstanding.checked_sub(1).ok_or("more came than went")?;
        m.forget_if_idle();
        Ok(Dto {
            cookie,
            op: Op::Recv,
            len: 0,
            suppressed: false,
            deferred: false,
            late: false,
            bad: false,
            epoch: 0,
        })
    }
}

impl SrqM {
    /// With nothing outstanding, no receive can come back or fail.
    fn forget_if_idle(&mut self) {
        if self.outstanding == 0 {
            self.posted.clear();
            self.tainted = false;
        }
    }
}

impl World {
    /// Receives that an Endpoint had taken from a common queue, and nobody dequeued, have gone back
    /// with its queue pair.
    pub(crate) fn sweep(&mut self, side: usize, srq: Option<Srq>) -> Done {
        let Some(srq) = srq else { return Ok(()) };
        let s = &mut self.sides[side];
        let left = s.ia.srq_query(srq).map_err(|e| e.to_string())?.outstanding as usize;
        let m = s.srq_mut(srq).ok_or("no such SRQ")?;
        if left > m.outstanding {
            return Err(format!("{left} outstanding of {m:?}"));
        }
        m.outstanding = left;
        m.forget_if_idle();
        Ok(())
    }

    /// Whether all that is outstanding in a common queue could complete there.
    pub(crate) fn has_shared_room(&self, side: usize, srq: Option<Srq>, evd: Option<Evd>) -> bool {
        let s = &self.sides[side];
        let outstanding = srq.and_then(|srq| s.srq(srq)).map(|m| m.outstanding);
        let (Some(outstanding), Some(m)) = (outstanding, evd.and_then(|evd| s.evd(evd))) else {
            return true;
        };
        m.load + outstanding + 2 * EPS < m.qlen as usize
    }

    /// Outstanding receives of a common queue may complete there.
    pub(crate) fn shared_load(&mut self, side: usize, srq: Option<Srq>, evd: Option<Evd>) {
        let s = &mut self.sides[side];
        let outstanding = srq.and_then(|srq| s.srq(srq)).map(|m| m.outstanding);
        if let (Some(outstanding), Some(m)) = (outstanding, evd.and_then(|evd| s.evd_mut(evd))) {
            m.load += outstanding;
        }
    }

    /// One of the calls that are not posts.
    pub(crate) fn srq(&mut self, side: usize) -> Done {
        match self.rng.below(8) {
            0..3 => self.srq_create(side),
            3 => {
                let srq = self.pick_srq(side);
                self.srq_free(side, srq)
            }
            4 => self.srq_resize(side),
            5 => self.srq_set_lw(side),
            _ => self.srq_query(side),
        }
    }

    fn srq_create(&mut self, side: usize) -> Done {
        let pz = self.pick_pz(side);
        let s = &self.sides[side];
        let limits = s.ia.query().0;
        let (most, iov) = (limits.max_recv_per_srq, limits.max_iov_segments_per_dto);
        let mut attr = SrqAttr {
            max_recv_dtos: self.rng.below(most as usize) as u16 + 1,
            max_recv_iov: self.rng.below(iov as usize) as u8 + 1,
            low_watermark: 0,
        };
        match self.rng.below(16) {
            0 => attr.max_recv_dtos = 0,
            1 => attr.max_recv_dtos = most as u16 + 1,
            2 => attr.max_recv_iov = 0,
            3 => attr.max_recv_iov = iov as u8 + 1,
            4 => attr.low_watermark = attr.max_recv_dtos + 1,
            5..8 => attr.low_watermark = 1,
            _ => {}
        }
        let s = &mut self.sides[side];
        let illegal = attr.max_recv_dtos == 0
            || u32::from(attr.max_recv_dtos) > most
            || attr.max_recv_iov == 0
            || u32::from(attr.max_recv_iov) > iov
            || attr.low_watermark > attr.max_recv_dtos;
        let verdict = Verdict::new()
            .no_as(!s.pzs.contains(&pz), DatType::InvalidHandle, DatSubtype::InvalidHandlePz)
            .no(illegal, DatType::InvalidParameter)
            .no(s.srqs.len() >= limits.max_srqs as usize, DatType::InsufficientResources);
        let answer = s.ia.srq_create(pz, &attr);
        self.note(|| format!("{side}: srq_create {pz:?} {attr:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Ok(srq) = answer {
                if attr.low_watermark != 0 {
                    self.warn(side, AsyncEvent::SrqLowWatermark(srq), false);
                }
                self.sides[side].srqs.push(SrqM {
                    srq,
                    pz,
                    attr,
                    posted: Vec::new(),
                    outstanding: 0,
                    least: u32::MAX,
                    tainted: false,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn srq_free(&mut self, side: usize, srq: Srq) -> Done {
        let s = &mut self.sides[side];
        let used = s.eps.iter().any(|m| m.srq == Some(srq));
        let verdict =
            s.known_srq(srq).no_as(used, DatType::InvalidState, DatSubtype::InvalidStateSrqInUse);
        let answer = s.ia.srq_free(srq);
        self.note(|| format!("{side}: srq_free {srq:?} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            let s = &mut self.sides[side];
            s.srqs.retain(|m| m.srq != srq);
            s.dead.srq.push(srq);
        }
        Ok(())
    }

    fn srq_resize(&mut self, side: usize) -> Done {
        let srq = self.pick_srq(side);
        let most = self.sides[side].ia.query().0.max_recv_per_srq;
        let wanted = self.rng.below(most as usize + 2) as u16;
        let s = &mut self.sides[side];
        let mut verdict = s.known_srq(srq);
        if let Some(m) = s.srq(srq) {
            verdict = verdict
                .no(wanted == 0, DatType::InvalidParameter)
                .no(u32::from(wanted) > most, DatType::InsufficientResources)
                .no(
                    usize::from(wanted) < m.outstanding || wanted < m.attr.low_watermark,
                    DatType::InvalidState,
                );
        }
        let answer = s.ia.srq_resize(srq, wanted);
        self.note(|| format!("{side}: srq_resize {srq:?} {wanted} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Some(m) = self.sides[side].srq_mut(srq) {
                m.attr.max_recv_dtos = wanted;
            }
        }
        Ok(())
    }

    fn srq_set_lw(&mut self, side: usize) -> Done {
        let srq = self.pick_srq(side);
        let low = self.rng.below(4) as u16;
        let s = &mut self.sides[side];
        let mut verdict = s.known_srq(srq);
        if let Some(m) = s.srq(srq) {
            verdict = verdict.no(low > m.attr.max_recv_dtos, DatType::InvalidParameter);
        }
        let answer = s.ia.srq_set_lw(srq, low);
        self.note(|| format!("{side}: srq_set_lw {srq:?} {low} -> {answer:?}"));
        if self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            if let Some(m) = self.sides[side].srq_mut(srq) {
                m.attr.low_watermark = low;
                // With fewer than that it comes now; fewer may be left when an Endpoint has taken some.
                let now = m.outstanding < usize::from(low);
                if low != 0 {
                    self.warn(side, AsyncEvent::SrqLowWatermark(srq), now);
                }
            }
        }
        Ok(())
    }

    fn srq_query(&mut self, side: usize) -> Done {
        let srq = self.pick_srq(side);
        let s = &mut self.sides[side];
        let verdict = s.known_srq(srq);
        let answer = s.ia.srq_query(srq);
        self.note(|| format!("{side}: srq_query {srq:?} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let (Ok(found), Some(m)) = (answer, self.sides[side].srq(srq)) else {
            return Ok(());
        };
        let state = (found.state, found.pz, found.attr, found.outstanding as usize);
        let possible = found.available.is_none_or(|left| left <= found.outstanding);
        if state != (SrqState::Operational, m.pz, m.attr, m.outstanding) || !possible {
            return Err(format!("query of SRQ: {found:?}, expected {m:?}"));
        }
        Ok(())
    }

    pub(crate) fn srq_post_recv(&mut self, side: usize) -> Done {
        let srq = self.pick_srq(side);
        let users: Vec<Ep> =
            self.sides[side].eps.iter().filter(|m| m.srq == Some(srq)).map(|m| m.ep).collect();
        // Whichever of them takes it, its completion finds room.
        for &ep in &users {
            if !self.has_completion_room(side, ep, RECV)? {
                return Ok(());
            }
        }
        let s = &self.sides[side];
        let pz = s.srq(srq).map(|m| m.pz);
        let steady = |m: &&LmrM| m.applied && m.is_usable() && m.kind != LmrKind::All;
        let lmrs = s.lmrs.iter().filter(steady);
        let fit = lmrs.clone().filter(|m| Some(m.pz) == pz).copied();
        let fit: Vec<LmrM> = fit.collect();
        let all: Vec<LmrM> = lmrs.copied().collect();
        let lmr = if self.rng.percent(95) { self.rng.of(&fit) } else { self.rng.of(&all) };
        let count = match self.rng.below(12) {
            0 => 0,
            1 => 2,
            2 => 5,
            _ => 1,
        };
        let segments: Vec<LmrTriplet> = (0..count)
            .map(|_| match lmr {
                Some(m) if self.rng.percent(98) => LmrTriplet {
                    addr: m.region.addr,
                    len: m.region.len.min(256) as u32,
                    context: m.lmr_context,
                },
                _ => LmrTriplet { addr: self.rng.next(), len: 8, context: self.rng.next() as u32 },
            })
            .collect();
        let s = &mut self.sides[side];
        let mut verdict = s.known_srq(srq);
        let mut total = 0;
        if let Some(m) = s.srq(srq) {
            verdict = verdict
                .no(segments.len() > usize::from(m.attr.max_recv_iov), DatType::InvalidParameter)
                .no(
                    m.outstanding >= usize::from(m.attr.max_recv_dtos),
                    DatType::InsufficientResources,
                );
            for segment in &segments {
                total += segment.len;
                let lmr = s.lmr_of(segment.context);
                let lacks = lmr.is_none_or(|m| !m.privileges.contains(MemPriv::LOCAL_WRITE));
                let outside = lmr.is_some_and(|m| segment.addr != m.region.addr);
                let strange = lmr.is_some_and(|m| Some(m.pz) != pz);
                verdict = verdict
                    .no(lacks, DatType::PrivilegesViolation)
                    .no(strange, DatType::ProtectionViolation)
                    .may(outside, DatType::InvalidParameter);
            }
        }
        self.cookie += 1;
        let cookie = self.cookie;
        let answer = self.sides[side].ia.srq_post_recv(srq, &segments, cookie);
        self.note(|| {
            format!("{side}: srq_post_recv #{cookie} {srq:?} {segments:x?} -> {answer:?}")
        });
        if !self.judge(&verdict, answer.as_ref().err())? {
            return Ok(());
        }
        let s = &mut self.sides[side];
        if let Some(m) = s.srq_mut(srq) {
            m.posted.push(cookie);
            m.outstanding += 1;
            m.least = m.least.min(total);
        }
        for ep in users {
            let s = &mut self.sides[side];
            let Some(m) = s.ep(ep) else { continue };
            let (recv, link) = (m.recv, m.link);
            if let Some(evd) = recv.and_then(|evd| s.evd_mut(evd)) {
                evd.load += 1;
            }
            if let Some((at, end)) = link {
                let link = &mut self.links[at];
                let mut sent = link.sent[1 - end].iter();
                link.broke |= sent.any(|sent| sent.room() > total);
            }
        }
        Ok(())
    }
}
