//! Calls for objects of every kind: their consumer's word, and their type.

use dat_core::*;

use crate::model::{Point, SideM};
use crate::verdict::Verdict;
use crate::world::{Done, World};

impl SideM {
    /// Whether an object exists, what kind it is of, and the subtype that a stale handle of it is
    /// refused with.
    fn known(&self, handle: AnyHandle) -> (bool, HandleType, DatSubtype) {
        use DatSubtype as Of;
        use HandleType as Type;
        match handle {
            AnyHandle::Ia => (true, Type::Ia, Of::InvalidHandleIa),
            AnyHandle::Pz(pz) => (self.pzs.contains(&pz), Type::Pz, Of::InvalidHandlePz),
            AnyHandle::Ep(ep) => (self.ep(ep).is_some(), Type::Ep, Of::InvalidHandleEp),
            AnyHandle::Evd(evd) => (self.evd(evd).is_some(), Type::Evd, Of::InvalidHandle1),
            AnyHandle::Lmr(lmr) => {
                let live = self.lmrs.iter().any(|m| m.lmr == lmr);
                (live, Type::Lmr, Of::InvalidHandleLmr)
            }
            AnyHandle::Rmr(rmr) => {
                let live = self.rmrs.iter().any(|m| m.rmr == rmr);
                (live, Type::Rmr, Of::InvalidHandleRmr)
            }
            AnyHandle::Psp(psp) => {
                let live = self.points.iter().any(|m| m.point == Point::Psp(psp));
                (live, Type::Psp, Of::InvalidHandlePsp)
            }
            AnyHandle::Cno(cno) => (self.cnos.contains(&cno), Type::Cno, Of::InvalidHandleCno),
            AnyHandle::Rsp(rsp) => {
                let live = self.points.iter().any(|m| m.point == Point::Rsp(rsp));
                (live, Type::Rsp, Of::InvalidHandleRsp)
            }
            AnyHandle::Csp(csp) => {
                let live = self.points.iter().any(|m| m.point == Point::Csp(csp));
                (live, Type::Csp, Of::InvalidHandleCsp)
            }
            AnyHandle::Srq(srq) => (self.srq(srq).is_some(), Type::Srq, Of::InvalidHandleSrq),
            AnyHandle::Cr(cr) => {
                let live = self.crs.iter().any(|m| m.cr == cr);
                (live, Type::Cr, Of::InvalidHandleCr)
            }
        }
    }
}

impl World {
    fn pick_any(&mut self, side: usize) -> AnyHandle {
        match self.rng.below(12) {
            0 => AnyHandle::Ia,
            1 => self.pick_pz(side).into(),
            2 => self.pick_ep(side).into(),
            3 => self.pick_evd(side).into(),
            4 => self.pick_lmr(side).into(),
            5 => self.pick_rmr(side).into(),
            6 => self.pick_psp(side).into(),
            7 => self.pick_cno(side).into(),
            8 => self.pick_rsp(side).into(),
            9 => self.pick_csp(side).into(),
            10 => self.pick_srq(side).into(),
            _ => self.pick_cr(side).into(),
        }
    }

    /// Sets a word, or asks for one that was set, or for the kind of an object.
    pub(crate) fn contexts(&mut self, side: usize) -> Done {
        let handle = self.pick_any(side);
        let (live, ty, subtype) = self.sides[side].known(handle);
        let verdict = Verdict::new().no_as(!live, DatType::InvalidHandle, subtype);
        let (choice, word) = (self.rng.below(3), self.rng.next());
        let s = &mut self.sides[side];
        let kept = s.contexts.get(&handle).copied().unwrap_or(0);
        let (answer, expected) = match choice {
            0 => (s.ia.set_consumer_context(handle, word).map(|()| 0), 0),
            1 => (s.ia.get_consumer_context(handle), kept),
            _ => (s.ia.get_handle_type(handle).map(|ty| ty as u64), ty as u64),
        };
        self.note(|| format!("{side}: context {choice} of {handle:?} -> {answer:?}"));
        if !self.judge(&verdict, answer.as_ref().err())? {
            return Ok(());
        }
        if answer != Ok(expected) {
            return Err(format!("{handle:?} has {expected:#x}, not {answer:?}"));
        }
        if choice == 0 {
            self.sides[side].contexts.insert(handle, word);
        }
        Ok(())
    }
}
