//! Requests of dat-core's own behind suppressed ones, and the entries of completion queues that
//! they need.
//!
//! The device does not say when a suppressed request completes, so an empty request is posted
//! behind it, a follower. Its completion takes an entry that the consumer did not reckon with. A
//! completion queue has twice the entries of the length that was asked for (`entries` in `api/evd/create.rs`), and
//! no more followers are posted than the second half holds. That is enough unless the consumer lets
//! completions lie and asks for the status again and again: each follower has a suppressed request
//! before it, which counts in the length.
//!
//! The send queue has room for as many requests as the Endpoint may have outstanding, and none of its
//! own for a follower. While a follower is under way the suppressed requests that it follows are
//! outstanding too; where one of them is narrower than the widest request can be, it leaves the
//! room. Where none is, the follower has to wait until the connection takes no more requests and
//! enough have completed, or until the consumer posts a request that completes by itself.

use crate::engine::Ia;
use crate::provider::Provider;
use crate::types::completion::Direction;
use crate::types::handle::Ep;

impl<P: Provider> Ia<'_, P> {
    /// Sees to it that the end of an Endpoint's newest request shows, of which `unfinished` have not
    /// completed. False if that has to be tried again: the posting half is out, or another request
    /// of dat-core's own is under way, or there is no room for it or for its completion.
    pub(crate) fn follow_suppressed(&mut self, ep: Ep, unfinished: u32) -> bool {
        let Ok(control) = self.objects.eps.live(ep) else {
            return true;
        };
        let evd = control.request_evd;
        let Ok((poster, shared, near)) = self.posting(ep) else {
            return false;
        };
        if !poster.ends_silently() {
            return true;
        }
        if !poster.has_room_to_follow(shared, near.ep, unfinished) {
            return false;
        }
        let to = near.ep.posted(Direction::Send);
        let follower = &near.ep.slow.follower;
        let ring = evd.filter(|evd| self.events.has_entry(*evd));
        let ring = ring.and_then(|evd| self.events.ring(evd));
        let Some(ring) = ring.filter(|_| !follower.is_under_way()) else {
            return false;
        };
        let Ok((poster, ..)) = self.posting(ep) else {
            return false;
        };
        follower.start(poster.next_token(), to);
        ring.follower_posted();
        poster.follow();
        true
    }
}
