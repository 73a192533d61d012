//! Taking the posting half of an Endpoint out, and putting it back.

use crate::data::poster::EpPoster;
use crate::engine::Ia;
use crate::objects::ep::PROVIDER_CONTROL;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::ep_state::EpState;
use crate::types::handle::Ep;

impl<'s, P: Provider> Ia<'s, P> {
    /// Takes the posting half out, for another thread. `INVALID_STATE` if it is out already or the
    /// Endpoint is not ready.
    pub fn ep_take_poster(&mut self, ep: Ep) -> Result<EpPoster<'s, P>, Error> {
        let last = self.data.last_lmr;
        let (_, shared, near) = self.posting(ep)?;
        let shared = *shared;
        near.last.set(last);
        match self.data.posters.get_mut(ep.0.index() as usize).and_then(Option::take) {
            Some(poster) => {
                const { EpPoster::<P>::IN_LINES }
                let receives = shared.receives_from(ep.0.index());
                Ok(EpPoster { near, poster, receives, ep, shared })
            }
            None => Err(PROVIDER_CONTROL.into()),
        }
    }

    /// Puts the posting half back. One of another Interface Adapter comes back as the error.
    #[expect(
        clippy::result_large_err,
        reason = "the half itself comes back, there is no heap for it"
    )]
    pub fn ep_return_poster(&mut self, half: EpPoster<'s, P>) -> Result<(), EpPoster<'s, P>> {
        let ep = half.ep;
        if !self.objects.poster_is_out(&self.data, ep) {
            return Err(half);
        }
        if let Some(place) = self.data.posters.get_mut(ep.0.index() as usize) {
            *place = Some(half.poster);
        }
        // What it posted last may have missed the flush.
        if self.objects.state_of(ep) == Ok(EpState::Disconnected) {
            self.objects.watch(ep);
            self.events.worked = true;
        }
        Ok(())
    }
}
