//! dat_evd_create(3).

use crate::data::reaper::Reaper;
use crate::engine::Ia;
use crate::objects::evd::{EvdControl, EvdTally, Upcalls};
use crate::objects::streams::Streams;
use crate::provider::Provider;
use crate::types::dat_return::{DatSubtype, DatType, Error};
use crate::types::flags::EvdFlags;
use crate::types::handle::{Cno, Evd};

/// Streams that come through a completion queue.
const COMPLETIONS: EvdFlags = EvdFlags::DTO.union(EvdFlags::RMR_BIND);

impl<P: Provider> Ia<'_, P> {
    /// Makes an Event Dispatcher for any mix of streams, with room for at least `min_qlen` events.
    ///
    /// `INVALID_PARAMETER` for a length of 0, no stream or an unknown one; `INSUFFICIENT_RESOURCES`
    /// beyond [`IaAttr::max_evd_qlen`](crate::IaAttr), beyond the storage's events for one
    /// without DTO streams or with software events, or when the table is full. (Where other
    /// streams come along, connection events that find no place among the storage's events are
    /// kept until there is one, and connection requests are turned away.)
    #[doc(alias = "dat_evd_create")]
    pub fn evd_create(&mut self, min_qlen: u32, flags: EvdFlags) -> Result<Evd, Error> {
        self.evd_make(min_qlen, flags, None)
    }

    /// The same, attached to a CNO and enabled. `INVALID_HANDLE`/`CNO` for one that is stale.
    #[doc(alias = "dat_evd_create")]
    pub fn evd_create_with_cno(
        &mut self,
        min_qlen: u32,
        cno: Option<Cno>,
        flags: EvdFlags,
    ) -> Result<Evd, Error> {
        if let Some(cno) = cno {
            self.events.cnos.live(cno)?;
        }
        let evd = self.evd_make(min_qlen, flags, None)?;
        self.evd_modify_cno(evd, cno)?;
        Ok(evd)
    }

    pub(super) fn evd_make(
        &mut self,
        min_qlen: u32,
        flags: EvdFlags,
        upcalls: Option<Upcalls>,
    ) -> Result<Evd, Error> {
        self.alive()?;
        if min_qlen == 0 {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg2));
        }
        let known = EvdFlags::DEFAULT.union(EvdFlags::SOFTWARE);
        if flags.is_empty() || !known.contains(flags) {
            return Err(Error::new(DatType::InvalidParameter, DatSubtype::InvalidArg4));
        }
        let full = Error::new(DatType::InsufficientResources, DatSubtype::ResourceTevd);
        let slots = 1_u32 << self.data.shared.event_shift;
        let completions = flags.intersects(COMPLETIONS);
        let most = self.most_events(flags);
        let handle = self.events.evds.vacant().ok_or(full)?;
        if min_qlen > most {
            return Err(full);
        }
        let (cq, end) = if completions {
            let (cq, end) = self.hca.cq_create(entries(min_qlen))?;
            (Some(cq), Some(end))
        } else {
            (None, None)
        };
        if let Some(shared) = self.data.shared.evd(handle.index()) {
            shared.clear();
        }
        let control = EvdControl {
            flags,
            qlen: min_qlen,
            ring: if completions { slots } else { min_qlen },
            cq,
            streams: Streams::default(),
            notified: false,
            announced: false,
            asked: None,
            cno: None,
            enabled: true,
            unwaitable: false,
            upcalls,
            tally: EvdTally::default(),
        };
        if let Some(place) = self.data.reapers.get_mut(handle.index() as usize) {
            *place = Some(Reaper::new(Evd(handle), end));
        }
        let handle = self.events.evds.insert(control).ok_or(full)?;
        self.events.evds.file(handle, cq.map(|cq| cq.0));
        Ok(Evd(handle))
    }

    /// Events that one with those streams can have room for.
    pub(super) fn most_events(&self, flags: EvdFlags) -> u32 {
        // Software events have no other place than the storage's: whoever asks for more of them
        // learns it now.
        if flags.intersects(COMPLETIONS) && !flags.contains(EvdFlags::SOFTWARE) {
            self.hca.limits().max_cqe
        } else {
            1_u32 << self.data.shared.event_shift
        }
    }
}

/// Entries of the completion queue of an Event Dispatcher of that length: as many again for
/// followers.
pub(crate) const fn entries(qlen: u32) -> u32 {
    qlen.saturating_mul(2)
}
