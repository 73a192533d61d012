//! Arguments: mostly handles that live, sometimes stale ones, those of the other adapter, or any
//! word.

use dat_core::*;

use crate::model::*;
use crate::world::World;

/// A handle of the given kind.
macro_rules! handle {
    ($world:expr, $side:expr, $kind:ident, $dead:ident, |$s:ident| $live:expr) => {{
        let list = |$s: &SideM| -> Vec<$kind> { $live };
        let (live, foreign) = (list(&$world.sides[$side]), list(&$world.sides[1 - $side]));
        let dead = &$world.sides[$side].dead.$dead;
        let rng = &mut $world.rng;
        let any = match rng.below(100 * $world.calm) {
            0 => rng.of(dead),
            1 => rng.of(&foreign),
            2 => rng
                .of(dead)
                .map(|h| $kind::from_raw(h.raw() ^ 1 << (rng.next() & 63))),
            3 => Some($kind::from_raw(rng.next())),
            4 => rng
                .of(&live)
                .map(|h| $kind::from_raw(h.raw() ^ 1 << (rng.next() & 63))),
            // The word of another kind of handle.
            5 => rng
                .of(&$world.sides[$side].pzs)
                .map(|h| $kind::from_raw(h.raw())),
            6 => $world.sides[$side]
                .eps
                .last()
                .map(|m| $kind::from_raw(m.ep.raw())),
            _ => rng.of(&live),
        };
        any.unwrap_or_else(|| $kind::from_raw(rng.next()))
    }};
}

impl World {
    /// A zone; mostly the oldest, so that objects meet.
    pub(crate) fn pick_pz(&mut self, side: usize) -> Pz {
        if let Some(&oldest) = self.sides[side].pzs.first() {
            if self.rng.percent(70) {
                return oldest;
            }
        }
        handle!(self, side, Pz, pz, |s| s.pzs.clone())
    }

    pub(crate) fn pick_lmr(&mut self, side: usize) -> Lmr {
        handle!(self, side, Lmr, lmr, |s| s.lmrs.iter().map(|m| m.lmr).collect())
    }

    pub(crate) fn pick_rmr(&mut self, side: usize) -> Rmr {
        handle!(self, side, Rmr, rmr, |s| s.rmrs.iter().map(|m| m.rmr).collect())
    }

    pub(crate) fn pick_evd(&mut self, side: usize) -> Evd {
        handle!(self, side, Evd, evd, |s| s.evds.iter().map(|m| m.evd).collect())
    }

    pub(crate) fn pick_cno(&mut self, side: usize) -> Cno {
        handle!(self, side, Cno, cno, |s| s.cnos.clone())
    }

    pub(crate) fn pick_ep(&mut self, side: usize) -> Ep {
        let ep = handle!(self, side, Ep, ep, |s| s.eps.iter().map(|m| m.ep).collect());
        let s = &self.sides[side];
        // A guess may hit the Endpoint of a request that has not been dequeued.
        let unseen = s.ep(ep).is_none() && !s.dead.ep.contains(&ep) && s.ia.ep_query(ep).is_ok();
        if unseen { Ep::from_raw(u64::MAX) } else { ep }
    }

    pub(crate) fn pick_psp(&mut self, side: usize) -> Psp {
        handle!(self, side, Psp, psp, |s| s
            .points
            .iter()
            .filter_map(|m| match m.point {
                Point::Psp(psp) => Some(psp),
                _ => None,
            })
            .collect())
    }

    pub(crate) fn pick_rsp(&mut self, side: usize) -> Rsp {
        handle!(self, side, Rsp, rsp, |s| s
            .points
            .iter()
            .filter_map(|m| match m.point {
                Point::Rsp(rsp) => Some(rsp),
                _ => None,
            })
            .collect())
    }

    pub(crate) fn pick_csp(&mut self, side: usize) -> Csp {
        handle!(self, side, Csp, csp, |s| s
            .points
            .iter()
            .filter_map(|m| match m.point {
                Point::Csp(csp) => Some(csp),
                _ => None,
            })
            .collect())
    }

    pub(crate) fn pick_srq(&mut self, side: usize) -> Srq {
        handle!(self, side, Srq, srq, |s| s.srqs.iter().map(|m| m.srq).collect())
    }

    pub(crate) fn pick_cr(&mut self, side: usize) -> Cr {
        let cr = handle!(self, side, Cr, cr, |s| s.crs.iter().map(|m| m.cr).collect());
        let s = &self.sides[side];
        let known = s.crs.iter().any(|m| m.cr == cr) || s.dead.cr.contains(&cr);
        if !known && s.ia.cr_query(cr).is_ok() { Cr::from_raw(u64::MAX) } else { cr }
    }

    /// An Endpoint in one of those states, mostly.
    pub(crate) fn pick_ep_in(&mut self, side: usize, states: &[EpState]) -> Ep {
        let fit: Vec<Ep> = self.sides[side]
            .eps
            .iter()
            .filter(|m| states.contains(&m.state))
            .filter(|m| m.is_configured() && m.connect.is_some())
            .map(|m| m.ep)
            .collect();
        let wanted = if self.rng.percent(85) { self.rng.of(&fit) } else { None };
        wanted.unwrap_or_else(|| self.pick_ep(side))
    }

    /// An Event Dispatcher that takes the stream, mostly.
    pub(crate) fn pick_evd_for(&mut self, side: usize, stream: EvdFlags) -> Evd {
        let fit: Vec<Evd> = self.sides[side]
            .evds
            .iter()
            .filter(|m| m.flags.contains(stream))
            .map(|m| m.evd)
            .collect();
        let wanted = if self.rng.percent(94) { self.rng.of(&fit) } else { None };
        wanted.unwrap_or_else(|| self.pick_evd(side))
    }

    /// Flags of a post: mostly none.
    pub(crate) fn pick_flags(&mut self) -> CompletionFlags {
        match self.rng.below(50 * self.calm.min(4)) {
            0..4 => CompletionFlags::SUPPRESS,
            4 => CompletionFlags::SOLICITED_WAIT,
            5 => CompletionFlags::UNSIGNALLED,
            6 => CompletionFlags::BARRIER_FENCE,
            7 => CompletionFlags::EVD_THRESHOLD,
            8 => CompletionFlags::DEFER,
            9 => CompletionFlags::from_bits_retain(1 << self.rng.below(32)),
            10 => CompletionFlags::from_bits_retain(self.rng.next() as u32),
            _ => CompletionFlags::empty(),
        }
    }

    /// Segments, mostly of LMRs in the Endpoint's zone.
    pub(crate) fn pick_segments(&mut self, side: usize, ep: Ep, roomy: bool) -> Vec<LmrTriplet> {
        let count = match self.rng.below(12) {
            0 => 0,
            1 => 2,
            2 => 3,
            3 => 4,
            4 if self.rng.percent(20) => self.rng.below(40),
            _ => 1,
        };
        let count = if roomy && self.rng.percent(90) { 1 } else { count };
        (0..count).map(|_| self.pick_segment(side, ep, roomy)).collect()
    }

    pub(crate) fn pick_segment(&mut self, side: usize, ep: Ep, roomy: bool) -> LmrTriplet {
        let pz = self.sides[side].ep(ep).and_then(|m| m.pz);
        let fit: Vec<LmrM> = self.sides[side]
            .lmrs
            .iter()
            .filter(|m| Some(m.pz) == pz && m.is_usable())
            .copied()
            .collect();
        let all = &self.sides[side].lmrs;
        let lmr = if self.rng.percent(95) {
            self.rng.of(&fit)
        } else {
            self.rng.of(all).filter(LmrM::is_usable)
        };
        let Some(lmr) = lmr else {
            return LmrTriplet { addr: self.rng.next(), len: 8, context: self.rng.next() as u32 };
        };
        // Of all memory the part that there is.
        let region = match lmr.kind {
            LmrKind::All => self.fabric.region(side),
            _ => lmr.region,
        };
        let (mut addr, mut len) = self.pick_range(region.addr, region.len);
        if roomy && self.rng.percent(90) {
            // Receives that most messages fit into.
            (addr, len) = (region.addr, region.len.min(256) as u32);
        }
        let context = match self.rng.below(60 * self.calm) {
            0 => self.rng.next() as u32,
            1 => lmr.lmr_context ^ 1 << self.rng.below(32),
            2 => lmr.rmr_context,
            _ => lmr.lmr_context,
        };
        LmrTriplet { addr, len, context }
    }

    /// Eight bytes of an LMR, mostly.
    pub(crate) fn pick_operand(&mut self, side: usize, ep: Ep) -> LmrTriplet {
        let segment = self.pick_segment(side, ep, false);
        let m = self.sides[side].lmr_of(segment.context);
        let room = m.map(|m| (m.region.addr, m.region.len));
        let (addr, len) = match room.filter(|&(_, len)| len >= 8) {
            Some((start, len)) if self.rng.percent(95) => {
                (segment.addr.clamp(start, start.saturating_add(len - 8)), 8)
            }
            _ => (segment.addr, segment.len),
        };
        LmrTriplet { addr, len, ..segment }
    }

    /// A range within, mostly.
    pub(crate) fn pick_range(&mut self, start: u64, size: u64) -> (u64, u32) {
        let len = (self.rng.next() % size.min(64) + 1) as u32;
        let last = size - u64::from(len);
        let inside = start + if last == 0 { 0 } else { self.rng.next() % last };
        match self.rng.below(160 * self.calm) {
            0 => (inside, 0),
            1 => (self.rng.next(), 0),
            2 => (start.wrapping_sub(1), len),
            3 => (start + last + 1, len),
            4 => (start, size as u32),
            5 => (start + size, 1),
            6 => (inside, u32::MAX),
            7 => (self.rng.next(), len),
            8 => (u64::MAX - 3, len),
            _ => (inside, len),
        }
    }
}
