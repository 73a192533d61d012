//! dat_srq_free(3).

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Srq;

impl<P: Provider> Ia<'_, P> {
    /// Frees a Shared Receive Queue with what is posted to it. `INVALID_STATE`/`SRQ_IN_USE` while
    /// an Endpoint takes from it or its posting half is out.
    #[doc(alias = "dat_srq_free")]
    pub fn srq_free(&mut self, srq: Srq) -> Result<(), Error> {
        let control = self.objects.srqs.live(srq)?;
        let in_use = Error::new(DatType::InvalidState, DatSubtype::InvalidStateSrqInUse);
        if control.users != 0 {
            return Err(in_use);
        }
        let (queue, pz) = (control.queue, control.pz);
        let place = self.data.srq_posters.get_mut(srq.0.index() as usize);
        let end = place.and_then(Option::take).ok_or(in_use)?;
        let freed = self.hca.shared_destroy(queue, end.rq);
        self.objects.srqs.remove(srq.0);
        self.objects.pzs.release(Some(pz));
        Ok(freed?)
    }
}
