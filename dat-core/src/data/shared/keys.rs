//! Which RMR has a key: chains of RMRs, found by the index of the key.
//!
//! The control half enters and takes out; posters and reapers on other threads look up meanwhile.
//! So an RMR may leave its chain, or come into another, while somebody stands on it. The end of a
//! chain names the chain: who comes to the end of another begins again, and no RMR that stays where
//! it is is ever missed.

use core::sync::atomic::Ordering;

use crate::data::shared::lmr::RmrShared;
use crate::types::atomic::AtomicU32;

/// In a link: the end of the chain that the other bits name.
const END: u32 = 1 << 31;
/// Looks at a chain. Each but the first means that the control half has taken the RMR looked at out
/// of it.
const LOOKS: u32 = 4;

/// The chains of one Interface Adapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys<'s> {
    heads: &'s [AtomicU32],
    rmrs: &'s [RmrShared],
}

impl<'s> Keys<'s> {
    /// Empty chains.
    pub(crate) fn new(heads: &'s [AtomicU32], rmrs: &'s [RmrShared]) -> Self {
        for (head, chain) in heads.iter().zip(0..) {
            head.store(END | chain, Ordering::Relaxed);
        }
        Self { heads, rmrs }
    }

    /// The chain of a key. Its low byte is another after each bind, and does not count.
    fn chain(&self, rkey: u32) -> u32 {
        let spread = (rkey >> 8).wrapping_mul(0x9e37_79b9);
        let chains = u64::try_from(self.heads.len()).unwrap_or(0);
        let chain = (u64::from(spread) * chains) >> 32;
        u32::try_from(chain).unwrap_or(0)
    }

    /// The living RMR whose newest key is `rkey`.
    pub(crate) fn find(&self, rkey: u32) -> Option<&'s RmrShared> {
        let chain = self.chain(rkey);
        let is =
            |rmr: &RmrShared| rmr.rkey.load(Ordering::Relaxed) == rkey && rmr.owner().is_some();
        for _ in 0..LOOKS {
            let mut at = self.heads.get(chain as usize)?.load(Ordering::Acquire);
            for _ in 0..self.rmrs.len() {
                let Some(rmr) = self.rmrs.get(at as usize) else {
                    break;
                };
                if is(rmr) {
                    return Some(rmr);
                }
                at = rmr.next.load(Ordering::Acquire);
            }
            if at == END | chain {
                return None;
            }
        }
        // The control half does nothing but make and free RMRs just now.
        self.rmrs.iter().find(|rmr| is(rmr))
    }

    /// Enters the RMR in that slot under its key. The control half only.
    pub(crate) fn enter(&self, slot: u32) {
        if let Some(rmr) = self.rmrs.get(slot as usize) {
            if let Some(head) = self.head(rmr) {
                rmr.next.store(head.load(Ordering::Relaxed), Ordering::Relaxed);
                // ORDER: key and link precede the head by which the RMR is found.
                head.store(slot, Ordering::Release);
            }
        }
    }

    /// Takes the RMR in that slot out, before its key changes. Its own link stays for whoever
    /// stands on it. The control half only.
    pub(crate) fn leave(&self, slot: u32) {
        let Some(rmr) = self.rmrs.get(slot as usize) else {
            return;
        };
        let mut link = self.head(rmr);
        while let Some(from) = link {
            let at = from.load(Ordering::Relaxed);
            if at == slot {
                from.store(rmr.next.load(Ordering::Relaxed), Ordering::Release);
                return;
            }
            link = self.rmrs.get(at as usize).map(|rmr| &rmr.next);
        }
    }

    fn head(&self, rmr: &RmrShared) -> Option<&'s AtomicU32> {
        let chain = self.chain(rmr.rkey.load(Ordering::Relaxed));
        self.heads.get(chain as usize)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::types::handle::Handle;
    use crate::types::handle::Rmr;

    const SLOTS: usize = 8;

    fn rmrs() -> [RmrShared; SLOTS] {
        let rmrs = [const { RmrShared::new() }; SLOTS];
        for (rmr, slot) in rmrs.iter().zip(0..) {
            rmr.occupy(Rmr(Handle::new(slot, 7)));
        }
        rmrs
    }

    fn place(rmrs: &[RmrShared], rkey: u32) -> Option<usize> {
        rmrs.iter().position(|rmr| rmr.rkey.load(Ordering::Relaxed) == rkey && rkey != 0)
    }

    #[test]
    fn every_key_leads_to_its_rmr_and_no_other_to_any() {
        // From one chain for all to as many as there are RMRs.
        for chains in 1..=SLOTS {
            let (rmrs, heads) = (rmrs(), [const { AtomicU32::new(0) }; SLOTS]);
            let keys = Keys::new(&heads[..chains], &rmrs);
            let mut seed = 1_u32;
            for _ in 0..10_000 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (slot, rkey) = (seed >> 29, (seed >> 8 & 0xfff) << 8 | 5);
                let rmr = &rmrs[slot as usize];
                if rmr.rkey.load(Ordering::Relaxed) != 0 {
                    keys.leave(slot);
                    rmr.rkey.store(0, Ordering::Relaxed);
                } else if place(&rmrs, rkey).is_none() {
                    rmr.rkey.store(rkey, Ordering::Relaxed);
                    keys.enter(slot);
                }
                for rmr in &rmrs {
                    let rkey = rmr.rkey.load(Ordering::Relaxed);
                    let found = keys.find(rkey).map(core::ptr::from_ref);
                    assert_eq!(found, (rkey != 0).then_some(core::ptr::from_ref(rmr)));
                }
                let found = keys.find(rkey).map(core::ptr::from_ref);
                assert_eq!(found, place(&rmrs, rkey).map(|at| &raw const rmrs[at]));
            }
        }
    }

    #[test]
    fn a_bind_does_not_move_an_rmr_and_one_that_is_being_freed_is_not_found() {
        let (rmrs, heads) = (rmrs(), [const { AtomicU32::new(0) }; SLOTS]);
        let keys = Keys::new(&heads, &rmrs);
        rmrs[3].rkey.store(0x1234_5601, Ordering::Relaxed);
        keys.enter(3);
        rmrs[3].rkey.store(0x1234_5677, Ordering::Relaxed);
        assert!(keys.find(0x1234_5601).is_none());
        assert!(keys.find(0x1234_5677).is_some());
        rmrs[3].retire(Rmr(Handle::new(3, 7)));
        assert!(keys.find(0x1234_5677).is_none());
    }

    #[test]
    fn one_that_stays_is_found_while_others_come_and_go() {
        let (rmrs, heads) = (rmrs(), [const { AtomicU32::new(0) }; 2]);
        let keys = Keys::new(&heads, &rmrs);
        // The first is at the end of its chain: everybody that comes stands in front of it.
        let stays = 0x77_00;
        rmrs[0].rkey.store(stays, Ordering::Relaxed);
        keys.enter(0);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for _ in 0..200_000 {
                    assert!(keys.find(stays).is_some());
                }
            });
            let mut rkey = 0;
            while !reader.is_finished() {
                for (slot, rmr) in (0..).zip(&rmrs).skip(1) {
                    rkey = (rkey + 0x100) & 0xff_ff00 | 1;
                    keys.leave(slot);
                    rmr.rkey.store(rkey, Ordering::Relaxed);
                    keys.enter(slot);
                }
            }
        });
    }
}
