//! The posting and reaping halves that are here, by handle, or the reason why there is none.

use crate::data::poster::Poster;
use crate::data::reaper::Reaper;
use crate::data::shared::ep::EpShared;
use crate::data::shared::evd::{DEAD, EvdShared};
use crate::data::shared::{Near, Shared};
use crate::engine::Ia;
use crate::objects::ep::{EpControl, PROVIDER_CONTROL};
use crate::objects::table::Kind;
use crate::provider::Provider;
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::handle::{Ep, Evd};

/// What a dequeue by handle works with.
type Reaping<'a, 's, P> = (&'a mut Reaper<P>, &'a Shared<'s>, &'s EvdShared, &'a mut &'s EpShared);

impl<'s, P: Provider> Ia<'s, P> {
    /// The posting half of an Endpoint, where it is here, with what it looks at. A poster that is
    /// here is that of the object in its slot: so one compare tells whether the handle is
    /// stale.
    #[inline(always)]
    pub(crate) fn posting(
        &mut self,
        ep: Ep,
    ) -> Result<(&mut Poster<P>, &Shared<'s>, Near<'s>), DatReturn> {
        let index = ep.0.index();
        let poster = self.data.posters.get_mut(index as usize);
        match (poster.and_then(Option::as_mut), self.data.shared.near(index)) {
            (Some(poster), Some(near)) if near.ep.request.handle() == ep => {
                Ok((poster, &self.data.shared, near))
            }
            _ => Err(no_poster(self.objects.eps.get(ep.0), &self.data.shared, index)),
        }
    }

    /// The poster of `ep`, if it is here.
    pub(crate) fn poster(&mut self, ep: Ep) -> Result<&mut Poster<P>, DatReturn> {
        self.posting(ep).map(|(poster, ..)| poster)
    }

    /// The reaping half of `evd`, if it is here and the consumer may use it, with what it looks at.
    /// A reaper remembers whose it is: so one compare tells whether the handle is stale.
    #[inline]
    pub(crate) fn reaping(&mut self, evd: Evd) -> Result<Reaping<'_, 's, P>, DatReturn> {
        let index = evd.0.index();
        let reaper = self.data.reapers.get_mut(index as usize);
        match (reaper.and_then(Option::as_mut), self.data.shared.evd(index)) {
            (Some(reaper), Some(ring)) if reaper.evd == evd && ring.barred() == 0 => {
                Ok((reaper, &self.data.shared, ring, &mut self.data.last_ep))
            }
            (_, ring) => {
                let exists = self.events.evds.get(evd.0).is_some();
                Err(no_reaper(exists, ring.map_or(0, EvdShared::barred)))
            }
        }
    }

    /// The reaper of `evd`, if it is here and the consumer may use it.
    pub(crate) fn reaper(&mut self, evd: Evd) -> Result<&mut Reaper<P>, DatReturn> {
        self.reaping(evd).map(|(reaper, ..)| reaper)
    }

    /// The reaper of `evd`, if it is here.
    pub(crate) fn reaper_here(&mut self, evd: Evd) -> Result<&mut Reaper<P>, DatReturn> {
        let index = evd.0.index();
        let reaper = self.data.reapers.get_mut(index as usize);
        match reaper.and_then(Option::as_mut) {
            Some(reaper) if reaper.evd == evd => Ok(reaper),
            _ => Err(no_reaper(self.events.evds.get(evd.0).is_some(), 0)),
        }
    }
}

/// Why there is no poster of an Endpoint.
#[cold]
#[inline(never)]
fn no_poster(control: Option<&EpControl>, shared: &Shared<'_>, index: u32) -> DatReturn {
    match (control, shared.ep(index)) {
        (Some(control), Some(ep)) if control.qp.is_none() => ep.state().refusal(),
        (Some(_), Some(_)) => PROVIDER_CONTROL,
        _ => EpControl::STALE,
    }
}

/// Why there is no reaper of an Event Dispatcher for the consumer.
#[cold]
#[inline(never)]
fn no_reaper(exists: bool, barred: u32) -> DatReturn {
    if !exists {
        DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandle1)
    } else if barred & DEAD == 0 {
        DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEvdWaiter)
    } else {
        DatReturn::new(DatType::InvalidState, DatSubtype::InvalidStateEvdAsync)
    }
}
