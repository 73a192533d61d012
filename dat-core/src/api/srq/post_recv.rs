//! dat_srq_post_recv(3).

use crate::data::srq_poster::{SrqEnd, SrqPoster};
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType, Error};
use crate::types::handle::Srq;
use crate::types::triplet::LmrTriplet;

/// The posting half is with another thread.
const OUT: DatReturn =
    DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEpProviderControl);

impl<'s, P: Provider> Ia<'s, P> {
    /// As [`SrqPoster::post_recv`], by handle.
    #[doc(alias = "dat_srq_post_recv")]
    pub fn srq_post_recv(
        &mut self,
        srq: Srq,
        segments: &[LmrTriplet],
        cookie: u64,
    ) -> Result<(), DatReturn> {
        let shared = self.data.shared;
        self.srq_end(srq)?.post_recv(&shared, segments, cookie)
    }

    /// Takes the posting half out, for another thread. `INVALID_STATE` if it is out already.
    pub fn srq_take_poster(&mut self, srq: Srq) -> Result<SrqPoster<'s, P>, Error> {
        self.srq_end(srq)?;
        let place = self.data.srq_posters.get_mut(srq.0.index() as usize);
        let end = place.and_then(Option::take).ok_or(OUT)?;
        let shared = self.data.shared;
        Ok(SrqPoster { srq, end, shared })
    }

    /// Puts the posting half back. One of another Interface Adapter comes back as the error.
    #[expect(
        clippy::result_large_err,
        reason = "the half itself comes back, there is no heap for it"
    )]
    pub fn srq_return_poster(&mut self, half: SrqPoster<'s, P>) -> Result<(), SrqPoster<'s, P>> {
        let alive = self.objects.srqs.live(half.srq).is_ok();
        match self.data.srq_posters.get_mut(half.srq.0.index() as usize) {
            Some(place) if alive && place.is_none() => {
                *place = Some(half.end);
                Ok(())
            }
            Some(_) | None => Err(half),
        }
    }

    fn srq_end(&mut self, srq: Srq) -> Result<&mut SrqEnd<P>, DatReturn> {
        self.objects.srqs.live(srq)?;
        let place = self.data.srq_posters.get_mut(srq.0.index() as usize);
        place.and_then(Option::as_mut).ok_or(OUT)
    }
}
