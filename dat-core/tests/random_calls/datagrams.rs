//! Endpoints for datagrams: made, addressed, and what reaches which of them.

use std::task::Poll;

use dat_core::provider::Destination;
use dat_core::*;

use crate::model::*;
use crate::verdict::Verdict;
use crate::world::{Done, World, addr, kind};

/// Longest datagram of the fabric.
const MTU: u32 = 1024;
const KEYS: [u32; 3] = [7, 0x1234_5678, u32::MAX];

/// State of an Endpoint for datagrams besides that of any Endpoint.
#[derive(Debug, Default)]
pub(crate) struct UdM {
    pub(crate) qkey: u32,
    /// Messages that have reached a receive since the last reset: bytes with the header, and the
    /// rest.
    pub(crate) inbox: Vec<(u32, How)>,
    /// It is not known what has.
    pub(crate) hazy: bool,
}

impl World {
    pub(crate) fn is_for_datagrams(&self, side: usize, ep: Ep) -> bool {
        self.sides[side].ep(ep).is_some_and(|m| m.ud.is_some())
    }

    /// One of the calls of this module that are not posts.
    pub(crate) fn datagrams(&mut self, side: usize) -> Done {
        let own: Vec<Ep> =
            self.sides[side].eps.iter().filter(|m| m.ud.is_some()).map(|m| m.ep).collect();
        match self.rng.below(12) {
            0..4 => self.ep_create_ud(side),
            4..8 => match self.rng.of(&own) {
                Some(ep) => self.look_up(side, ep),
                None => Ok(()),
            },
            8 | 9 => self.answers(side),
            10 => self.ud_address(side),
            _ => self.ud_ah_free(side),
        }
    }

    fn ep_create_ud(&mut self, side: usize) -> Done {
        let pz = self.pick_pz(side);
        let recv = self.pick_evd_for(side, EvdFlags::DTO);
        let request =
            if self.rng.percent(50) { recv } else { self.pick_evd_for(side, EvdFlags::DTO) };
        let given = self.rng.percent(95);
        let connect = given.then(|| self.pick_evd_for(side, EvdFlags::CONNECTION));
        let unseen = self.links.iter().filter(|l| l.may_be_unseen(side)).count();
        let qkey = self.rng.of(&KEYS).unwrap_or(0);
        let mut attr = self.sides[side].default;
        (attr.max_message_size, attr.max_request_iov) = (MTU, attr.max_request_iov.min(3));
        let given = self.rng.percent(40);
        if given {
            attr.max_recv_dtos = self.rng.below(DTOS) as u16 + 1;
            attr.max_request_dtos = self.rng.below(DTOS) as u16 + 1;
            match self.rng.below(12) {
                0 => attr.max_message_size = MTU + 1,
                1 => attr.max_request_iov = 4,
                2 => attr.max_recv_dtos = 0,
                3 => attr.max_message_size = 100,
                _ => {}
            }
        }
        let s = &mut self.sides[side];
        let (r, q) = (Some(recv), Some(request));
        let mut verdict = s.streams(Verdict::new(), Some(pz), r, q, connect);
        verdict = s.attributes(verdict, &attr, true, true);
        verdict = verdict
            .no(attr.max_message_size > MTU || attr.max_request_iov > 3, DatType::InvalidParameter)
            .no(s.eps.len() >= EPS, DatType::InsufficientResources)
            .may(s.eps.len() + unseen >= EPS, DatType::InsufficientResources);
        let answer = s.ia.ep_create_ud(pz, recv, request, connect, given.then_some(&attr), qkey);
        self.note(|| {
            format!("{side}: ep_create_ud {pz:?} {recv:?} {request:?} {connect:?} -> {answer:?}")
        });
        if !self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())? {
            return Ok(());
        }
        let Ok(ep) = answer else { return Ok(()) };
        let mut m = EpM::new(ep, EpState::Connected, attr);
        (m.pz, m.recv, m.request, m.connect) = (Some(pz), r, q, connect);
        m.ud = Some(UdM { qkey, ..UdM::default() });
        self.sides[side].eps.push(m);
        Ok(())
    }

    /// The number by which peers address an Endpoint.
    pub(crate) fn number(&self, side: usize, ep: Ep) -> u32 {
        let param = self.sides[side].ia.ep_query(ep);
        param.ok().and_then(|p| p.qp).map_or(0, |qp| qp.number)
    }

    /// The address of an Endpoint for datagrams, mostly.
    fn pick_destination(&mut self, side: usize) -> Result<Option<(usize, Destination)>, String> {
        let far = if self.rng.percent(80) { 1 - side } else { side };
        let fit: Vec<(Ep, u32)> =
            self.sides[far].eps.iter().filter_map(|m| Some((m.ep, m.ud.as_ref()?.qkey))).collect();
        let (ep, mut qkey) = self.rng.of(&fit).unwrap_or((Ep::from_raw(0), 0));
        let mut qpn = self.number(far, ep);
        match self.rng.below(40) {
            0 => qpn = self.rng.next() as u32,
            1 => qpn = 0x100 | self.rng.next() as u32 & 0xf,
            2 => qkey ^= 1,
            3 => qpn |= 1 << 24,
            _ => {}
        }
        let now = self.now;
        match self.sides[side].ia.ud_address(now, addr(far), qpn, qkey) {
            Poll::Ready(Ok(to)) if (to.qpn, to.qkey) == (qpn, qkey) => Ok(Some((far, to))),
            // Its time has come with the next turn.
            Poll::Pending => Ok(None),
            other => Err(format!("an address that is there: {other:?}")),
        }
    }

    fn ud_address(&mut self, side: usize) -> Done {
        let wrong = [[0, 0, 0, 0], [224, 0, 0, 1], [10, 0, 0, 77]];
        let remote = self.rng.of(&wrong).unwrap_or_default();
        let now = self.now;
        let answer = self.sides[side].ia.ud_address(now, remote.into(), 2, 3);
        self.note(|| format!("{side}: ud_address {remote:?} -> {answer:?}"));
        match answer {
            Poll::Ready(Err(_)) | Poll::Pending => Ok(()),
            other => Err(format!("an address that is not: {other:?}")),
        }
    }

    fn ud_ah_free(&mut self, side: usize) -> Done {
        let ep = self.pick_ep(side);
        let Some((_, to)) = self.pick_destination(side)? else {
            return Ok(());
        };
        let s = &mut self.sides[side];
        let mut verdict = s.known_ep(ep);
        if let Some(m) = s.ep(ep) {
            // A completed request uses it no more, dequeued or not.
            let (_, most) = m.outstanding(REQUEST);
            verdict = verdict
                .no(m.ud.is_none(), DatType::ModelNotSupported)
                .may(most != 0, DatType::InvalidState);
        }
        let answer = s.ia.ud_ah_free(ep, to);
        self.note(|| format!("{side}: ud_ah_free {ep:?} -> {answer:?}"));
        self.judge(&verdict, answer.as_ref().err().map(|e| e.ret()).as_ref())?;
        Ok(())
    }

    pub(crate) fn send_ud(&mut self, side: usize, ep: Ep) -> Done {
        if !self.has_completion_room(side, ep, REQUEST)? {
            return Ok(());
        }
        let Some((far, to)) = self.pick_destination(side)? else {
            return Ok(());
        };
        let segments = self.pick_segments(side, ep, false);
        let flags = self.pick_flags();
        let word = self.rng.next() as u32;
        let immediate = self.rng.percent(30).then_some(word);
        let s = &self.sides[side];
        let by_poster = s.ep(ep).is_some_and(|m| m.poster.is_some()) && self.rng.percent(90);
        let s = &self.sides[side];
        let verdict = s.post_verdict(ep, Op::SendUd, flags, by_poster);
        let (verdict, total) = s.segments_verdict(verdict, ep, Op::SendUd, &segments);
        let verdict = verdict.no(to.qpn > 0xff_ffff, DatType::InvalidAddress);
        self.cookie += 1;
        let cookie = self.cookie;
        let s = &mut self.sides[side];
        let answer = match s.poster_of(ep, by_poster) {
            Some(poster) => poster.post_send_ud(&segments, &to, immediate, cookie, flags),
            None => s.ia.ep_post_send_ud(ep, &segments, &to, immediate, cookie, flags),
        };
        self.note(|| {
            format!(
                "{side}: send_ud #{cookie} {ep:?} {segments:x?} to {far} {:x} {:x} {immediate:x?} {flags:?} -> {answer:?}",
                to.qpn, to.qkey
            )
        });
        if !self.judge(&verdict, answer.as_ref().err())? {
            return Ok(());
        }
        self.shake(side, ep, &segments);
        let m = self.sides[side].ep(ep);
        let (late, doubtful) =
            m.map_or((true, true), |m| (m.state == EpState::Disconnected, m.tainted));
        let how = How::Datagram(immediate);
        let len = total as u32;
        self.posted(side, ep, (Op::SendUd, how), len, flags, cookie, &RmrTriplet::default());
        if !late {
            self.deliver(far, &to, (len + GRH_LEN as u32, how), doubtful);
        }
        Ok(())
    }

    /// A datagram has left: what takes it has it.
    fn deliver(&mut self, far: usize, to: &Destination, sent: (u32, How), doubtful: bool) {
        let takes = [EpState::Connected, EpState::DisconnectPending];
        for at in 0..self.sides[far].eps.len() {
            let ep = self.sides[far].eps[at].ep;
            if self.number(far, ep) & 0xff != to.qpn & 0xff {
                continue;
            }
            let m = &mut self.sides[far].eps[at];
            let Some(ud) = &mut m.ud else { continue };
            ud.hazy |= doubtful || m.tainted;
            let room = m.room.get(ud.inbox.len()).copied();
            if ud.qkey == to.qkey
                && takes.contains(&m.state)
                && room.is_some_and(|room| room >= sent.0)
            {
                ud.inbox.push(sent);
            }
        }
    }

    /// Checks a state change of an Endpoint for datagrams.
    pub(crate) fn moved_ud(&mut self, side: usize, ep: Ep, old: EpState, new: EpState) -> Done {
        use EpState::{Connected as C, DisconnectPending as DP, Disconnected as D};
        let s = &self.sides[side];
        let m = s.ep(ep).ok_or("no such EP")?;
        let kinds = match (old, new) {
            (DP, D) => kind::DISCONNECTED,
            (C, D) if m.tainted || s.overrun(m).0 => kind::BROKEN,
            _ => return Err("nothing happened to it".into()),
        };
        self.end(side, ep, kinds, false);
        Ok(())
    }
}
