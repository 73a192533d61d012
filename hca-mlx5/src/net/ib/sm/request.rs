//! The steps of a sweep, and the request that has no answer yet.

use dat_core::Instant;

use super::ports::Side;
use crate::prm::smp::{attribute, sm_control};

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Node(Side),
    Port(Side),
    /// SMInfo of the manager at the other end.
    Manager,
    /// LID and the like.
    Assign(Side),
    Arm(Side),
    Activate(Side),
    /// SMInfo of the master, from a standby.
    Poll,
    /// The subnet goes to the manager at the other end.
    HandOver,
    /// The subnet of the manager at the other end is taken over.
    Acknowledge,
}

impl Step {
    pub(super) const fn side(self) -> Side {
        match self {
            Self::Node(side)
            | Self::Port(side)
            | Self::Assign(side)
            | Self::Arm(side)
            | Self::Activate(side) => side,
            Self::Manager | Self::Poll | Self::HandOver | Self::Acknowledge => Side::Peer,
        }
    }

    /// Attribute, and whether it is set with which modifier.
    pub(super) const fn what(self) -> (u16, Option<u32>) {
        match self {
            Self::Node(_) => (attribute::NODE_INFO, None),
            Self::Port(_) => (attribute::PORT_INFO, None),
            Self::Assign(_) | Self::Arm(_) | Self::Activate(_) => (attribute::PORT_INFO, Some(0)),
            Self::Manager | Self::Poll => (attribute::SM_INFO, None),
            Self::HandOver => (attribute::SM_INFO, Some(sm_control::HANDOVER)),
            Self::Acknowledge => (attribute::SM_INFO, Some(sm_control::ACKNOWLEDGE)),
        }
    }
}

/// The request that has no answer yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) step: Step,
    pub(super) tid: u64,
    /// When the time of an answer ends.
    pub(super) due: Instant,
    /// It waits to be sent.
    pub(super) is_queued: bool,
    pub(super) retries: u8,
}

impl Request {
    /// Repeats it where its time has ended; whether it goes on.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        if self.is_queued || now < self.due {
            return true;
        }
        let goes_on = self.retries != 0;
        self.retries = self.retries.saturating_sub(1);
        self.is_queued = goes_on;
        goes_on
    }
}
