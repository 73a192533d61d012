//! The data path of an Interface Adapter: the posting and reaping halves that are here, and what
//! they share with those that are out.

use core::fmt;

use crate::evd::Reaper;
use crate::post::Poster;
use crate::provider::Provider;
use crate::shared::Shared;
use crate::srq::SrqEnd;

/// Halves by the index of their object. `None`: there is none, or it is out.
pub(crate) struct DataPath<'s, P: Provider> {
    pub(crate) shared: Shared<'s>,
    pub(crate) posters: &'s mut [Option<Poster<P>>],
    pub(crate) srq_posters: &'s mut [Option<SrqEnd<P>>],
    pub(crate) reapers: &'s mut [Option<Reaper<P>>],
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
}
