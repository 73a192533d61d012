//! dat_srq_query(3).

use crate::engine::Ia;
use crate::objects::srq::SrqAttr;
use crate::provider::Provider;
use crate::types::dat_return::Error;
use crate::types::handle::{Pz, Srq};

/// `DAT_SRQ_STATE`, with the numbers of `dat.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SrqState {
    /// The device gave it up.
    Error = 0,
    /// It works.
    Operational = 1,
}

/// `DAT_SRQ_PARAM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqParam {
    /// Its state.
    pub state: SrqState,
    /// The Protection Zone of its receives.
    pub pz: Pz,
    /// Sizes and low watermark.
    pub attr: SrqAttr,
    /// Receives that an Endpoint may still take; `None`, `DAT_VALUE_UNKNOWN`, where completions
    /// are in the hands of another thread, or more than can be looked through at once.
    pub available: Option<u32>,
    /// Receives posted whose completions have not been dequeued.
    pub outstanding: u32,
}

impl<P: Provider> Ia<'_, P> {
    /// What the queue is, and how full. It looks at what has arrived for its Endpoints and was not
    /// dequeued yet.
    #[doc(alias = "dat_srq_query")]
    pub fn srq_query(&mut self, srq: Srq) -> Result<SrqParam, Error> {
        let control = self.objects.srqs.live(srq)?;
        let (pz, attr, failed) = (control.pz, control.attr, control.failed);
        let state = if failed { SrqState::Error } else { SrqState::Operational };
        let available = self.srq_available(srq);
        let outstanding = self.data.srq_outstanding(srq);
        Ok(SrqParam { state, pz, attr, available, outstanding })
    }

    /// Receives that no Endpoint has taken, if that can be known now.
    pub(super) fn srq_available(&mut self, srq: Srq) -> Option<u32> {
        let mut held = 0_u32;
        let mut last = None;
        while let Some(ep) = self.objects.next_user(srq, last) {
            held = held.saturating_add(self.held(ep)?);
            last = Some(ep);
        }
        Some(self.data.srq_outstanding(srq).saturating_sub(held))
    }
}
