//! Counters of an Endpoint.

use core::sync::atomic::Ordering;

use crate::data::shared::ep::EpTally;
use crate::engine::Ia;
use crate::objects::ep::{EpControl, PROVIDER_CONTROL};
use crate::objects::table::Kind;
use crate::provider::Provider;
use crate::types::counters::EpCounter;
use crate::types::dat_return::Error;
use crate::types::handle::Ep;

impl<'s, P: Provider> Ia<'s, P> {
    /// All counters of an Endpoint since it was made, in the order of [`EpCounter`]; with `reset`
    /// they start over.
    ///
    /// Any state, also while its halves are in other threads. But whoever counts is not
    /// interrupted: `reset` is `INVALID_STATE` while the posting half is out, or the reaping
    /// half of its receives.
    #[doc(alias = "dat_query_counters")]
    pub fn ep_query_counters(
        &mut self,
        ep: Ep,
        reset: bool,
    ) -> Result<[u64; EpCounter::COUNT], Error> {
        let tally = self.ep_tally(ep, reset)?;
        Ok(EpCounter::ALL.map(|counter| tally.read(counter, reset)))
    }

    /// One counter of an Endpoint; with `reset` it starts over. As [`Ia::ep_query_counters`].
    #[doc(alias = "dat_query_counters")]
    pub fn ep_query_counter(
        &mut self,
        ep: Ep,
        counter: EpCounter,
        reset: bool,
    ) -> Result<u64, Error> {
        Ok(self.ep_tally(ep, reset)?.read(counter, reset))
    }

    /// What an Endpoint counts, to be read, or to be reset.
    fn ep_tally(&self, ep: Ep, reset: bool) -> Result<&'s EpTally, Error> {
        let control = self.objects.eps.live(ep)?;
        let reaped_elsewhere =
            control.recv_evd.is_some_and(|evd| self.events.reaper_is_out(&self.data, evd.0));
        if reset && (reaped_elsewhere || self.objects.poster_is_out(&self.data, ep)) {
            return Err(PROVIDER_CONTROL.into());
        }
        let shared = self.data.shared.ep(ep.0.index()).ok_or(EpControl::STALE)?;
        Ok(&shared.tally)
    }
}

impl EpTally {
    pub(crate) fn read(&self, counter: EpCounter, reset: bool) -> u64 {
        let Some(word) = self.0.get(counter as usize) else {
            return 0;
        };
        let counted = word.load(Ordering::Relaxed);
        if reset {
            word.store(0, Ordering::Relaxed);
        }
        counted
    }
}
