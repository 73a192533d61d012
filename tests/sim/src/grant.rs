//! Windows and registrations that an end gives to its peer, and takes back.

use dat_core::provider::Region;
use dat_core::{CompletionFlags, EpState, LmrTriplet, MemPriv};

use crate::oracle::{Check, Grant, Kind, Phase, Posted, violation};
use crate::world::Sim;

/// No flags.
const NONE: CompletionFlags = CompletionFlags::empty();

/// Contexts of an index before one comes back.
const OTHERS: usize = 255;

impl Sim<'_> {
    /// A context that a host gives to a peer is not one that it gave lately.
    fn key(&mut self, host: usize, context: u32) -> Check {
        let Some(adapter) = self.data(host) else { return Ok(()) };
        if adapter.keys.contains(&context) {
            return violation("key", format!("h{host}: context {context:#x} comes back"));
        }
        adapter.keys.push_back(context);
        if adapter.keys.len() > OTHERS {
            adapter.keys.pop_front();
        }
        Ok(())
    }

    pub(crate) fn grant(
        &mut self,
        l: usize,
        side: usize,
        slot: usize,
        window: bool,
        at: usize,
        len: usize,
    ) -> Check {
        let kept = self.links[l].ends[side].grants[slot].as_ref().is_some_and(|grant| {
            // A window may be bound again while it is bound.
            window && grant.rmr.is_some() && at & 1 == 0
        });
        let before = if kept && self.can_post(l, side) {
            self.links[l].ends[side].grants[slot].take()
        } else {
            self.revoke(l, side, slot)?;
            None
        };
        let end = &self.links[l].ends[side];
        let (host, Some(whole)) = (end.host, end.whole) else { return Ok(()) };
        let ready = self.can_post(l, side);
        let (start, ep) = (whole.region.addr + at as u64, self.links[l].ends[side].ep);
        let rights = MemPriv::REMOTE_READ | MemPriv::REMOTE_WRITE;
        self.cookie += 1;
        let cookie = self.cookie;
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        let mut grant = Grant {
            context: 0,
            lmr: None,
            rmr: None,
            cookie,
            at,
            len,
            before: None,
            ready: false,
            shown: false,
        };
        if !window {
            let region = Region { addr: start, len: len as u64 };
            let made = adapter.ia.lmr_create(adapter.pz, region, rights | MemPriv::ALL);
            let Some(made) = self.call(host, "lmr_create", made)? else { return Ok(()) };
            (grant.context, grant.lmr, grant.ready) = (made.rmr_context, Some(made.lmr), true);
            self.key(host, grant.context)?;
            self.say(host, format_args!("link {l}: grant {slot}: {len} bytes at {at}"));
            self.links[l].ends[side].grants[slot] = Some(grant);
            return Ok(());
        }
        let Some(ep) = ep.filter(|_| ready) else { return Ok(()) };
        let pz = adapter.pz;
        let made = match before.as_ref().and_then(|before| before.rmr) {
            Some(rmr) => Ok(rmr),
            None if slot == 0 => adapter.ia.rmr_create(pz),
            None => adapter.ia.rmr_create_for_ep(pz),
        };
        let Some(rmr) = self.call(host, "rmr_create", made)? else { return Ok(()) };
        let range = LmrTriplet { addr: start, len: len as u32, context: whole.lmr_context };
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        let bound = adapter.ia.rmr_bind(rmr, &range, rights, ep, cookie, NONE);
        self.say(host, format_args!("link {l}: bind {cookie}, grant {slot}: {len} bytes at {at}"));
        grant.rmr = Some(rmr);
        let posted = Posted {
            cookie,
            kind: Kind::Bind(slot),
            slot: None,
            len: 0,
            suppressed: false,
            doomed: false,
            late: false,
            at: 0,
            grant: None,
            brings: Vec::new(),
        };
        if let Some(context) = self.call(host, "rmr_bind", bound)? {
            if before.is_some() && self.links[l].ends[1 - side].uses(slot) {
                self.excuse(l, side, "a window that was bound to something else");
            }
            grant.before = before.map(|before| before.stale());
            grant.context = context;
            self.key(host, context)?;
            self.links[l].ends[side].requests.push_back(posted);
        }
        self.links[l].ends[side].grants[slot] = Some(grant);
        Ok(())
    }

    /// Takes a grant back: afterwards nobody reaches memory through it.
    pub(crate) fn revoke(&mut self, l: usize, side: usize, slot: usize) -> Check {
        let host = self.links[l].ends[side].host;
        let Some(grant) = self.links[l].ends[side].grants[slot].take() else { return Ok(()) };
        let used = |sim: &Self| {
            let flight = sim.links[l].ends[side].target.flight.iter();
            flight.clone().any(|effect| effect.grant == Some(slot))
        };
        // Requests of the peer may come too late.
        if self.links[l].ends[1 - side].uses(slot) {
            self.excuse(l, side, "a grant that was taken back");
        }
        let before = self.state(l, side);
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        let done = match (grant.lmr, grant.rmr) {
            (Some(lmr), _) => adapter.ia.lmr_free(lmr),
            (None, Some(rmr)) => adapter.ia.rmr_free(rmr),
            (None, None) => Ok(()),
        };
        // A bind that cannot end, because what was posted before it cannot, ends the connection.
        if !grant.ready && self.state(l, side) != before {
            self.excuse(l, side, "a bind that was taken back");
        }
        self.say(host, format_args!("link {l}: revoke grant {slot}"));
        let taken = self.call(host, "revoke", done)?.is_some();
        // What was under way has been carried out by now, or never is.
        if used(self) {
            let base = self.links[l].ends[side].base[3];
            let flight = std::mem::take(&mut self.links[l].ends[side].target.flight);
            let flight = flight.into_iter().map(|mut effect| {
                if effect.grant == Some(slot) {
                    effect.bytes = self.device_bytes(host, base + effect.at, effect.bytes.len());
                    effect.grant = None;
                }
                effect
            });
            let flight = flight.collect();
            self.links[l].ends[side].target.flight = flight;
        }
        // A device that refuses leaves the key as it is.
        if grant.ready && taken {
            self.links[l].ends[side].closed(grant.stale());
        }
        Ok(())
    }

    /// Whether an end is connected and has room for a request.
    fn can_post(&self, l: usize, side: usize) -> bool {
        let end = &self.links[l].ends[side];
        end.requests.len() < self.shape.links[l].depth
            && end.phase == Phase::Up
            && self.state(l, side) == Some(EpState::Connected)
    }
}
