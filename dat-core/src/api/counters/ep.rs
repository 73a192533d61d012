//! Counters of an Endpoint.

use crate::data::shared::ep::EpShared;
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
        let counting = self.counting(ep, reset)?;
        Ok(EpCounter::ALL.map(|counter| counting.read_counter(counter, reset)))
    }

    /// One counter of an Endpoint; with `reset` it starts over. As [`Ia::ep_query_counters`].
    #[doc(alias = "dat_query_counters")]
    pub fn ep_query_counter(
        &mut self,
        ep: Ep,
        counter: EpCounter,
        reset: bool,
    ) -> Result<u64, Error> {
        Ok(self.counting(ep, reset)?.read_counter(counter, reset))
    }

    /// Returns the part of an Endpoint that counts, if its counters may be read, or reset.
    fn counting(&self, ep: Ep, reset: bool) -> Result<&'s EpShared, Error> {
        let control = self.objects.eps.live(ep)?;
        let reaped_elsewhere =
            control.recv_evd.is_some_and(|evd| self.events.reaper_is_out(&self.data, evd.0));
        if reset && (reaped_elsewhere || self.objects.poster_is_out(&self.data, ep)) {
            return Err(PROVIDER_CONTROL.into());
        }
        self.data.shared.ep(ep.0.index()).ok_or(EpControl::STALE.into())
    }
}
