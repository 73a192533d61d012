//! Counters of an Event Dispatcher.

use crate::data::reaper::{Reaper, ReaperTally};
use crate::engine::Ia;
use crate::objects::evd::EvdTally;
use crate::provider::{CompletionQueue, Provider};
use crate::types::counters::EvdCounter;
use crate::types::dat_return::{DatSubtype, Error};
use crate::types::handle::Evd;

/// All of them.
type All = [u64; EvdCounter::COUNT];

impl<P: Provider> Reaper<P> {
    /// What it has counted since it was made, of its Event Dispatcher's.
    fn counted(&self, tally: &EvdTally) -> All {
        let ReaperTally { empty, taken: taken_beside, found: found_beside, notify } = self.tally;
        let [waits, blocked] = tally.waits;
        let taken = self.cq.as_ref().map_or(0, CompletionQueue::taken);
        let straight = taken.wrapping_sub(taken_beside);
        let found = straight.wrapping_add(found_beside);
        [
            waits,
            blocked,
            notify,
            found.wrapping_add(empty),
            found,
            empty,
            if self.cq.is_some() { taken.wrapping_add(empty) } else { 0 },
            taken,
            tally.connections,
            tally.completions,
        ]
    }
}

impl<P: Provider> Ia<'_, P> {
    /// All counters of an Event Dispatcher since it was made, in the order of [`EvdCounter`]; with
    /// `reset` they start over.
    ///
    /// `INVALID_STATE` while the reaping half is out: most is counted there.
    #[doc(alias = "dat_query_counters")]
    pub fn evd_query_counters(
        &mut self,
        evd: Evd,
        reset: bool,
    ) -> Result<[u64; EvdCounter::COUNT], Error> {
        self.evd_counters(evd, reset.then_some(0..EvdCounter::COUNT))
    }

    /// One counter of an Event Dispatcher; with `reset` it starts over. As
    /// [`Ia::evd_query_counters`].
    #[doc(alias = "dat_query_counters")]
    pub fn evd_query_counter(
        &mut self,
        evd: Evd,
        counter: EvdCounter,
        reset: bool,
    ) -> Result<u64, Error> {
        let at = counter as usize;
        let all = self.evd_counters(evd, reset.then_some(at..at + 1))?;
        Ok(all.get(at).copied().unwrap_or_default())
    }

    fn evd_counters(
        &mut self,
        evd: Evd,
        reset: Option<core::ops::Range<usize>>,
    ) -> Result<All, Error> {
        self.reaper(evd)?;
        let control = self.events.evd(evd, DatSubtype::InvalidHandle1)?;
        let reaper = self.data.reapers.get(evd.0.index() as usize);
        let Some(counted) =
            reaper.and_then(|reaper| Some(reaper.as_ref()?.counted(&control.tally)))
        else {
            return Ok([0; EvdCounter::COUNT]);
        };
        let mut shown = counted;
        if let Some(control) = self.events.evds.get_mut(evd.0) {
            for (shown, base) in shown.iter_mut().zip(control.tally.base) {
                *shown = shown.wrapping_sub(base);
            }
            for at in reset.into_iter().flatten() {
                if let (Some(base), Some(counted)) =
                    (control.tally.base.get_mut(at), counted.get(at))
                {
                    *base = *counted;
                }
            }
        }
        Ok(shown)
    }
}
