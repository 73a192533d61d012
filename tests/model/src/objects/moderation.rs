//! Moderation of completion events: an event waits for a number of completions or for a time.
//!
//! `cq_max_count` is how many completions since the last event raise the next one; `cq_period` is
//! the time in microseconds after which it is raised with fewer. The time runs from the last event
//! (mode 0) or from the last completion (mode 1). Moderation is off while either is 0. With
//! `scqe_break_moderation_en` a solicited completion or an error ends the waiting.
//! Linux `mlx5_core_modify_cq_moderation`, `net/mlx5e: CQE based moderation`; the names of the
//! modes are those of `mstdump` and `mlx5_ifc.h`.
//!
//! Public text does not say whether an arm behind the producer waits, whether a solicited
//! completion waits where only solicited ones are asked for, nor when the first completion after a
//! pause has its event: these are open facts.

use crate::cmd::{Refusal, Status};
use crate::facts::{Facts, OpenFact};
use crate::hca::Hca;
use crate::host::Nanos;
use crate::ifc::caps::cmd_hca_cap as caps;
use crate::ifc::cq::cqc;

/// Unit of `cq_period`.
const MICROSECOND: Nanos = 1000;

/// Moderation of one CQ.
#[derive(Debug, Default)]
pub(crate) struct Moderation {
    most: u32,
    period: Nanos,
    /// The time runs from the last completion.
    from_completion: bool,
    solicited_breaks: bool,
    /// Open facts.
    pub(crate) arm_at_once: bool,
    solicited_at_once: bool,
    whole_period: bool,
    /// When the time began to run; never, before the first event or completion.
    since: Option<Nanos>,
    /// An event waits.
    waiting: bool,
}

impl Moderation {
    pub(crate) fn new(context: &[u8], facts: &Facts) -> Self {
        let mut moderation = Self {
            arm_at_once: facts.on(OpenFact::CqArmModeration),
            solicited_at_once: facts.on(OpenFact::CqSolicitedModeration),
            whole_period: facts.on(OpenFact::CqPeriodStart),
            ..Self::default()
        };
        moderation.set(context);
        moderation
    }

    /// Takes what a context says.
    pub(crate) fn set(&mut self, context: &[u8]) {
        self.most = cqc::cq_max_count.get(context);
        self.period = u64::from(cqc::cq_period.get(context)) * MICROSECOND;
        self.from_completion = cqc::cq_period_mode.get(context) == 1;
        self.solicited_breaks = cqc::scqe_break_moderation_en.is_set(context);
    }

    fn is_over(&self, now: Nanos) -> bool {
        self.since.is_none_or(|since| now >= since + self.period)
    }

    /// A completion came, the first since the last event or another.
    pub(crate) fn completed(&mut self, now: Nanos, first: bool) {
        if self.from_completion || self.whole_period && first && self.is_over(now) {
            self.since = Some(now);
        }
    }

    /// Whether a solicited completion does not wait; `only`: the CQ is armed for these only.
    pub(crate) const fn solicited_breaks(&self, only: bool) -> bool {
        self.solicited_breaks || only && self.solicited_at_once
    }

    /// An event is asked for, which waits until [`raises`](Self::raises) says otherwise.
    pub(crate) fn ask(&mut self) {
        self.waiting = true;
    }

    /// Whether the event that waits is raised now.
    pub(crate) fn raises(&self, now: Nanos, completions: u32) -> bool {
        let off = self.most == 0 || self.period == 0;
        self.waiting && (off || completions >= self.most || self.is_over(now))
    }

    /// The event was raised.
    pub(crate) fn raised(&mut self, now: Nanos) {
        self.waiting = false;
        if !self.from_completion {
            self.since = Some(now);
        }
    }

    /// Nothing is asked for any more.
    pub(crate) fn cancel(&mut self) {
        self.waiting = false;
    }

    /// When the event that waits is raised if nothing else raises it.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.since.filter(|_| self.waiting).map(|since| since + self.period)
    }
}

/// Refuses a context that asks for moderation that the device has not got.
pub(crate) fn check(hca: &Hca, context: &[u8]) -> Result<(), Refusal> {
    let lacks = |cap| hca.caps.general(cap) == 0;
    let asks = cqc::cq_period.is_set(context) || cqc::cq_max_count.is_set(context);
    let mode = cqc::cq_period_mode.get(context);
    let breaks = cqc::scqe_break_moderation_en.is_set(context);
    if asks && lacks(caps::cq_moderation)
        || mode > 1
        || mode == 1 && lacks(caps::cq_period_start_from_cqe)
        || breaks && lacks(caps::scqe_break_moderation)
    {
        return Err(Status::BadParam.because(0x40_0017));
    }
    Ok(())
}
