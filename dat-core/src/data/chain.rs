//! A chain of queues to flush and of connection events, in the order in which they came: what a
//! reaper took off the stacks of its Event Dispatcher.

use crate::data::shared::Shared;
use crate::data::shared::ep::queue_of;
use crate::data::shared::stack::{END, Link};

/// Elements are linked through themselves, and belong to the reaper while they are in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
}

impl Chain {
    pub(crate) const fn new() -> Self {
        Self { first: END, last: END }
    }

    /// What a stack held: there the newest is first, here the oldest.
    pub(super) fn from_stack(shared: &Shared<'_>, top: u32) -> Self {
        let (mut first, mut id) = (END, top);
        while let Some(link) = link(shared, id) {
            let next = link.next();
            link.set_next(first);
            first = id;
            id = next;
        }
        Self { first, last: top }
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.first == END
    }

    /// The oldest element.
    pub(crate) fn first(self) -> Option<u32> {
        (self.first != END).then_some(self.first)
    }

    pub(crate) fn push_back(&mut self, shared: &Shared<'_>, id: u32) {
        if let Some(link) = link(shared, id) {
            link.set_next(END);
            self.append(shared, Self { first: id, last: id });
        }
    }

    /// All of `other` comes behind what is here.
    pub(super) fn append(&mut self, shared: &Shared<'_>, other: Self) {
        if other.is_empty() {
            return;
        }
        match link(shared, self.last) {
            Some(last) => last.set_next(other.first),
            None => self.first = other.first,
        }
        self.last = other.last;
    }

    /// Takes the oldest off.
    pub(crate) fn pop_front(&mut self, shared: &Shared<'_>) -> Option<u32> {
        let id = self.first()?;
        self.first = link(shared, id)?.next();
        if self.first == END {
            self.last = END;
        }
        Some(id)
    }

    /// Each element, the oldest first.
    pub(crate) fn each(self, shared: &Shared<'_>, see: impl FnMut(u32)) {
        each(shared, self.first, see);
    }
}

/// Each element of a chain or a stack from `id` on.
pub(crate) fn each(shared: &Shared<'_>, mut id: u32, mut see: impl FnMut(u32)) {
    while let Some(link) = link(shared, id) {
        see(id);
        id = link.next();
    }
}

/// The link of an element; none behind the last, whose name is of nothing.
fn link<'s>(shared: &Shared<'s>, id: u32) -> Option<&'s Link> {
    if let Some(event) = shared.connection.get(id) {
        return Some(&event.link);
    }
    let (ep, direction) = queue_of(id);
    Some(&shared.ep(ep)?.line(direction).flush)
}
