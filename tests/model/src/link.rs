//! The link: cable, administrative states, training.
//!
//! Link state is several things that usually agree: the cable ([`Hca::set_link`]), the port's
//! administrative state (PAOS), the vport's own, and whether the port has trained. A change raises
//! a PORT_CHANGE event, which is only a hint: software has to read the state.

use crate::eq::{Event, kind};
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::host::Nanos;
use crate::ib::IbPort;
use std::collections::VecDeque;

/// A second in nanoseconds.
const S: Nanos = 1_000_000_000;

/// Training of the link.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// The port has not trained.
    untrained: bool,
    /// When it does, and when it loses it again, in order.
    edges: VecDeque<(Nanos, bool)>,
}

impl Hca {
    /// Whether frames pass: of an InfiniBand port, data, once a manager has made it active.
    pub fn link_up(&self) -> bool {
        self.ib.as_ref().map_or_else(|| self.is_trained(), IbPort::is_active)
    }

    /// Whether the physical link is up as far as this end decides it: what a switch or a device at
    /// the other end of the cable goes by.
    pub fn holds_link(&self) -> bool {
        self.ib.as_ref().is_none_or(IbPort::wants_link) && self.is_trained()
    }

    /// How often the physical link went down. Where a manager makes it train again, it is up at
    /// once, and only this tells the other end, whose link has to go down and come up as well.
    pub fn link_downs(&self) -> u32 {
        self.traffic.link_down
    }

    /// Whether cable, training and administrative states let the port have a link.
    pub(crate) fn is_trained(&self) -> bool {
        let states = self.port.admin_up() && self.vport.admin != 0 && self.vport.uplink != 0;
        self.vport.cable && !self.link.untrained && states
    }

    /// Plugs or pulls the cable; a change is announced by PORT_CHANGE.
    pub fn set_link(&mut self, up: bool) {
        let before = self.link_up();
        self.vport.cable = up;
        self.announce_link(before);
    }

    /// The port begins to train: after a reset, and when it is set up.
    pub(crate) fn train_link(&mut self) {
        let edges: &[(Nanos, bool)] = match self.config.facts.value(OpenFact::Link) {
            None => &[],
            Some(1) => &[(2, true)],
            Some(2) => &[(20, true)],
            Some(_) => &[(1, true), (2, false), (3, true), (4, false), (6, true)],
        };
        let now = self.bus.now;
        self.link.untrained = !edges.is_empty();
        self.link.edges = edges.iter().map(|(after, up)| (now + after * S, *up)).collect();
    }

    /// Trains as far as it is due; says when next.
    pub(crate) fn step_link(&mut self) -> Option<Nanos> {
        while let Some(&(at, up)) = self.link.edges.front() {
            if at > self.bus.now {
                return Some(at);
            }
            self.link.edges.pop_front();
            let before = self.link_up();
            self.link.untrained = !up;
            self.announce_link(before);
        }
        None
    }

    /// PORT_CHANGE, when the link is no longer as it was.
    pub(crate) fn announce_link(&mut self, before: bool) {
        if self.ib.is_some() {
            return self.follow_link();
        }
        let after = self.link_up();
        if before != after {
            self.traffic.link_down += u32::from(before);
            let mut event = Event::new(kind::PORT_CHANGE, if after { 4 } else { 1 });
            event.data[8] = 1 << 4;
            self.raise(&event);
        }
    }
}
