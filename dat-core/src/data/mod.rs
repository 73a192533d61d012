//! The data path of an Interface Adapter: the posting and reaping halves that are here, and what
//! they share with those that are out.

pub(crate) mod bind;
pub(crate) mod burst;
pub(crate) mod chain;
pub(crate) mod count;
pub(crate) mod finish;
pub(crate) mod key_edit;
pub(crate) mod list;
pub(crate) mod poster;
pub(crate) mod reaper;
pub(crate) mod recv;
pub(crate) mod recv_list;
pub(crate) mod shared;
pub(crate) mod srq_poster;
pub(crate) mod validate;
pub(crate) mod write_list;

use core::fmt;
use core::sync::atomic::Ordering;

use crate::data::poster::Poster;
use crate::data::reaper::Reaper;
use crate::data::shared::Shared;
use crate::data::shared::ep::{EpShared, NO_INDEX};
use crate::data::shared::lmr::LmrShared;
use crate::data::srq_poster::SrqEnd;
use crate::provider::Provider;
use crate::types::handle::Srq;

/// Halves by the index of their object. `None`: there is none, or it is out.
pub(crate) struct DataPath<'s, P: Provider> {
    pub(crate) shared: Shared<'s>,
    pub(crate) posters: &'s mut [Option<Poster<P>>],
    pub(crate) srq_posters: &'s mut [Option<SrqEnd<P>>],
    pub(crate) reapers: &'s mut [Option<Reaper<P>>],
    /// The Endpoint of the newest plain completion dequeued by handle.
    pub(crate) last_ep: &'s EpShared,
    /// The LMR of the newest request posted by handle.
    pub(crate) last_lmr: &'s LmrShared,
}

impl<P: Provider> fmt::Debug for DataPath<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataPath").finish_non_exhaustive()
    }
}

impl<P: Provider> DataPath<'_, P> {
    /// Wipes what an earlier adapter left.
    pub(crate) fn clear(&mut self) {
        self.posters.fill_with(|| None);
        self.srq_posters.fill_with(|| None);
        self.reapers.fill_with(|| None);
    }

    /// Empties the slots of an Endpoint, so that nothing of an earlier generation matches a token.
    pub(crate) fn rewind_slots(&self, shared: &EpShared) {
        for seq in 0..=shared.request.mask.load(Ordering::Relaxed) {
            if let Some(request) = self.shared.request(&shared.request, seq) {
                request.wipe();
            }
        }
        self.rewind(shared);
    }

    /// Empties both directions of an Endpoint, for a new generation of the queue pair.
    pub(crate) fn rewind(&self, shared: &EpShared) {
        if let Some(evd) = self.shared.evd(shared.request.evd.load(Ordering::Relaxed)) {
            evd.followers_done(shared.slow.follower.count());
        }
        shared.rewind();
    }

    /// Takes a queue pair's completions out of everyone's sight.
    pub(crate) fn retire_index(&self, slot: u32) {
        if let Some(ep) = self.shared.ep(slot) {
            for line in [&ep.request, &ep.receive] {
                line.index.store(NO_INDEX, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn srq_outstanding(&self, srq: Srq) -> u32 {
        let line = self.shared.srqs.get(srq.0.index() as usize);
        line.map_or(0, |line| line.outstanding())
    }
}
