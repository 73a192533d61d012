//! Requests of dat-core's own behind suppressed ones, and the entries of completion queues that they need.
//!
//! The device does not say when a suppressed request completes, so an empty request is posted behind it, a follower. Its completion
//! takes an entry that the consumer did not reckon with. A completion queue has twice the entries of the length that was asked for
//! ([`Ia::entries`]), and no more followers are posted than the second half holds. That is enough unless the consumer lets
//! completions lie and asks for the status again and again: each follower has a suppressed request before it, which counts in the
//! length.

use crate::Ia;
use crate::ep::EpControl;
use crate::handle::{Ep, Evd, Handle};
use crate::provider::{CompletionQueue, Direction, Provider};

/// Completions of followers whose Endpoints were reset or freed. They take entries of the completion queue until they are polled, and
/// mean nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strays {
    count: u32,
    /// Position behind the last.
    to: u64,
}

impl<P: Provider> Ia<'_, P> {
    /// Sees to it that the end of an Endpoint's newest request shows. False if that has to be tried again: the posting half is out,
    /// or another request of dat-core's own is under way, or there is no room for its completion.
    pub(crate) fn follow_suppressed(&mut self, ep: Ep) -> bool {
        let Ok(control) = self.ep(ep) else {
            return true;
        };
        let evd = control.request_evd;
        let Ok((poster, _, near)) = self.posting(ep) else {
            return false;
        };
        if !poster.ends_silently() {
            return true;
        }
        let to = near.ep.posted(Direction::Send);
        let follower = &near.ep.poster.follower;
        if follower.is_under_way() || !evd.is_some_and(|evd| self.has_entry(evd)) {
            return false;
        }
        let Ok((poster, ..)) = self.posting(ep) else {
            return false;
        };
        follower.start(poster.next_token(), to);
        poster.follow();
        true
    }

    /// Whether the completion queue has an entry for another follower.
    fn has_entry(&mut self, evd: Evd) -> bool {
        let own = self.own_entries(evd);
        self.evds
            .get(evd.0)
            .is_some_and(|control| own < control.qlen)
    }

    /// Entries of the completion queue that followers have or may take.
    pub(super) fn own_entries(&mut self, evd: Evd) -> u32 {
        let places = self.places(evd);
        let Some(control) = self.evds.get_mut(evd.0) else {
            return 0;
        };
        if places.is_some_and(|(taken, written)| taken >= control.strays.to || taken == written) {
            control.strays = Strays::default();
        }
        let strays = control.strays.count;
        let of = |(handle, control): (Handle, &EpControl)| match self.shared.ep(handle.index()) {
            Some(line) if control.request_evd == Some(evd) => line.poster.follower.count(),
            _ => 0,
        };
        self.eps.iter().map(of).fold(strays, u32::saturating_add)
    }

    /// The Endpoint in that slot drops what it has outstanding, and its followers with it.
    pub(crate) fn leave_stray(&mut self, slot: u32) {
        let (Some(line), Some(handle)) = (self.shared.ep(slot), self.eps.handle_at(slot)) else {
            return;
        };
        let evd = self.eps.get(handle).and_then(|control| control.request_evd);
        let count = line.poster.follower.count();
        let (Some(evd), 1..) = (evd, count) else {
            return;
        };
        // Of those before it, too, completions may come yet.
        let more = u64::from(line.outstanding(Direction::Send)) + 1;
        let places = self.places(evd);
        if let Some(control) = self.evds.get_mut(evd.0) {
            let strays = &mut control.strays;
            strays.count = strays.count.saturating_add(count);
            strays.to = places.map_or(u64::MAX, |(_, written)| written.saturating_add(more));
        }
    }

    /// The positions of the completion queue behind what was taken and behind what was written; not while the reaping half is out.
    fn places(&mut self, evd: Evd) -> Option<(u64, u64)> {
        let cq = self.reaper_here(evd).ok()?.cq.as_ref()?;
        Some((cq.taken(), cq.written()))
    }
}
