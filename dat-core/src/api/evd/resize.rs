//! dat_evd_resize(3).

use crate::api::evd::create::entries;
use crate::data::shared::evd::EvdShared;
use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::handle::Evd;

impl<P: Provider> Ia<'_, P> {
    /// Gives an Event Dispatcher room for at least `min_qlen` events, more or fewer than before.
    /// Nothing that is queued, or arrives meanwhile, is lost.
    ///
    /// `INVALID_PARAMETER` for a length of 0; `INSUFFICIENT_RESOURCES` beyond what
    /// [`Ia::evd_create`] takes; `INVALID_STATE` if more events are queued, and with
    /// `EVD_WAITER` while somebody waits or has the reaper. A refused call changes nothing.
    #[doc(alias = "dat_evd_resize")]
    pub fn evd_resize(&mut self, evd: Evd, min_qlen: u32) -> Result<(), Error> {
        let control = self.events.evd(evd, DatSubtype::InvalidHandle1)?;
        if min_qlen == 0 {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg2));
        }
        let (flags, cq, old) = (control.flags, control.cq, control.qlen);
        if min_qlen > self.most_events(flags) {
            return Err(Error::new(DatType::InsufficientResources, DatSubtype::ResourceTevd));
        }
        self.reaper(evd)?;
        if min_qlen < old && self.evd_count(evd).events > min_qlen {
            return Err(Error::new(DatType::InvalidState, DatSubtype::None));
        }
        if let Some(cq) = cq {
            // The device needs a free entry in the queue that it leaves. Where a CNO or a waiter
            // listens, `look_in` takes completions in and reports them. `absorb` reports nothing:
            // called after it, it would take in unseen what came in between.
            if self.events.listened(evd) {
                self.look_in(evd);
            } else {
                self.absorb(evd);
            }
            let followers = self.events.ring(evd).map_or(0, EvdShared::followers);
            let entries = entries(min_qlen).max(min_qlen.saturating_add(followers));
            let index = evd.0.index() as usize;
            let reaper = self.data.reapers.get_mut(index).and_then(Option::as_mut);
            if let Some(end) = reaper.and_then(|reaper| reaper.cq.as_mut()) {
                self.hca.cq_resize(cq, end, entries)?;
            }
        }
        self.events.look_at(evd);
        let control = self.events.evds.live_mut(evd)?;
        control.qlen = min_qlen;
        if cq.is_none() {
            control.ring = min_qlen;
        }
        Ok(())
    }
}
