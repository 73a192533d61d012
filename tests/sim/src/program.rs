//! Consumers: the calls of the steps.

use std::time::Duration;

use dat_core::{CloseFlag, CompletionFlags, EpState, Qos};
use dat_tests::session::line::attribute;
use mlx5_model::wire::impair::Fault as Frame;

use crate::faults::{self, Fault, What};
use crate::judge::DISCONNECT;
use crate::oracle::{Check, Kind, Phase, Posted, violation};
use crate::script::{Op, Step};
use crate::world::{GAP, PLACES, QUALIFIER, SHARED_LEN, Sim};

/// No flags.
const NONE: CompletionFlags = CompletionFlags::empty();
/// A call that takes longer keeps the world waiting.
const LONG: u64 = 20 * faults::S;
/// Freed Endpoints that are remembered.
const REMEMBERED: usize = 16;

impl Sim<'_> {
    /// Takes one step.
    pub fn step(&mut self, step: &Step) -> Check {
        if step.gap > 0 {
            let end = self.now() + step.gap;
            self.run_until(end)?;
        }
        let begin = self.now();
        self.carry_out(&step.op)?;
        if self.now() > begin + LONG {
            // Nobody else ran meanwhile, and limits have passed.
            (0..self.hosts.len()).for_each(|host| self.excuse_all(host, "a long call"));
        }
        Ok(())
    }

    fn carry_out(&mut self, op: &Op) -> Check {
        match op {
            Op::Fault(fault) => self.strike(fault),
            Op::Wait => Ok(()),
            Op::Datagram { from, to, len, immediate } => {
                if self.idle_host(*from) {
                    return Ok(());
                }
                self.datagram(*from, *to, *len, *immediate)
            }
            Op::Connect { link, side, .. }
            | Op::Disconnect { link, side, .. }
            | Op::Free { link, side }
            | Op::Receive { link, side, .. }
            | Op::Post { link, side, .. }
            | Op::Grant { link, side, .. }
            | Op::Revoke { link, side, .. }
            | Op::Status { link, side }
            | Op::Resize { link, side, .. }
                if self.idle_host(self.links[*link].ends[*side].host) =>
            {
                Ok(())
            }
            Op::Connect { link, side, limit, hasty } => self.connect(*link, *side, *limit, *hasty),
            Op::Disconnect { link, side, graceful } => self.disconnect(*link, *side, *graceful),
            Op::Free { link, side } => self.free(*link, *side),
            Op::Receive { link, side, count } => self.receive(*link, *side, *count),
            Op::Post { link, side, request, count, flags } => {
                for n in 1..=*count {
                    // All but the last leave their doorbell to it.
                    if !self.post(*link, *side, request, *flags, n < *count)? {
                        break;
                    }
                }
                self.ring(*link, *side)
            }
            Op::Grant { link, side, slot, window, at, len } => {
                self.grant(*link, *side, *slot, *window, *at, *len)
            }
            Op::Revoke { link, side, slot } => self.revoke(*link, *side, *slot),
            Op::Status { link, side } => self.status(*link, *side),
            Op::Resize { link, side, which, times } => self.resize(*link, *side, *which, *times),
        }
    }

    /// Rings for requests that were left without a doorbell.
    fn ring(&mut self, l: usize, side: usize) -> Check {
        let end = &self.links[l].ends[side];
        let (host, Some(ep)) = (end.host, end.ep) else { return Ok(()) };
        let Some(adapter) = self.data(host) else { return Ok(()) };
        let done = adapter.ia.ep_ring(ep);
        self.call(host, "ep_ring", done).map(drop)
    }

    /// Gives an Event Dispatcher another length, with whatever is in it.
    fn resize(&mut self, l: usize, side: usize, which: usize, times: u32) -> Check {
        let end = &self.links[l].ends[side];
        let (host, Some(evds)) = (end.host, end.evds) else { return Ok(()) };
        // Nobody looks at it, so it fills up: this is the one to be made longer.
        let full = evds.iter().position(|evd| self.hosts[host].neglected == Some(*evd));
        let which = full.unwrap_or(which);
        self.awake(host)?;
        let length = self.links[l].ends[side].lengths[which];
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        let left = adapter.ia.evd_more(evds[which]).unwrap_or(0);
        let done = adapter.ia.evd_resize(evds[which], length * times);
        self.say(
            host,
            format_args!(
                "link {l}: Event Dispatcher {which}: {} events, {left} in it",
                length * times
            ),
        );
        self.call(host, "evd_resize", done).map(drop)
    }

    /// Whether a host makes no calls now.
    pub(crate) fn idle_host(&self, host: usize) -> bool {
        let known = &self.hosts[host];
        known.adapter.is_none() || known.lost || known.paused > self.now()
    }

    /// The state of an Endpoint.
    pub fn state(&self, l: usize, side: usize) -> Option<EpState> {
        let end = &self.links[l].ends[side];
        let adapter = self.hosts[end.host].adapter.as_ref()?;
        adapter.ia.ep_query(end.ep?).ok().map(|param| param.state)
    }

    // ---- connections ----

    /// The end has an Endpoint without a connection; if it can.
    pub fn ready(&mut self, l: usize, side: usize) -> Result<bool, crate::oracle::Violation> {
        let host = self.links[l].ends[side].host;
        self.awake(host)?;
        match self.links[l].ends[side].phase {
            Phase::Idle => return Ok(true),
            Phase::None => {}
            Phase::Down => {
                self.spare(l, side)?;
                if self.links[l].ends[side].phase != Phase::Down {
                    // Among the events that it took was a request for the next connection.
                    return Ok(false);
                }
                self.delivered(l, side)?;
                self.forget(l, side, true)?;
                let Some(ep) = self.links[l].ends[side].ep else { return Ok(false) };
                let Some(adapter) = self.adapter(host) else { return Ok(false) };
                let done = adapter.ia.ep_reset(ep);
                self.say(host, format_args!("link {l}: reset"));
                if self.call(host, "ep_reset", done)?.is_none() {
                    return Ok(false);
                }
                self.drop_posted(l, side)?;
                self.links[l].ends[side].phase = Phase::Idle;
                self.refill(l, side)?;
                return Ok(true);
            }
            _ => return Ok(false),
        }
        let shape = &self.shape.links[l];
        let (depth, shared, longest) = (shape.depth as u16, shape.shared[side], shape.longest);
        let reads = shape.reads[side];
        let Some(evds) = self.links[l].ends[side].evds else { return Ok(false) };
        let Some(adapter) = self.adapter(host) else { return Ok(false) };
        let mut attr = adapter.ia.ep_attr_default();
        (attr.max_request_dtos, attr.max_recv_dtos) = (depth, depth);
        attr.max_message_size = (longest + GAP) as u32;
        [attr.max_rdma_read_in, attr.max_rdma_read_out] = reads;
        let [recv, request, conn] = evds.map(Some);
        let pz = Some(adapter.pz);
        let made = match adapter.srq.filter(|_| shared) {
            Some(srq) => adapter.ia.ep_create_with_srq(pz, recv, request, conn, srq, &attr),
            None => adapter.ia.ep_create(pz, recv, request, conn, Some(&attr)),
        };
        let Some(ep) = self.call(host, "ep_create", made)? else { return Ok(false) };
        let end = &mut self.links[l].ends[side];
        (end.ep, end.phase) = (Some(ep), Phase::Idle);
        self.top_up(l, side)?;
        Ok(true)
    }

    pub(crate) fn connect(
        &mut self,
        l: usize,
        side: usize,
        limit: u64,
        hasty: Option<usize>,
    ) -> Check {
        let host = self.links[l].ends[side].host;
        if self.links[l].ends[side].phase == Phase::Ending {
            // Its end may be there: a consumer in a hurry looks at once.
            self.reap(host)?;
        }
        if !self.ready(l, side)? {
            return Ok(());
        }
        let peer = self.links[l].ends[1 - side].host;
        let conn = self.connection(l);
        self.links[l].conns[conn].hasty = hasty.map(|count| (side, count));
        if hasty.is_some() && conn & 1 == 0 && self.shape.faults.contains(&faults::Kind::Mads) {
            // The peer learns that the connection has begun by its end.
            self.strike(&Fault { host, what: What::Mads(attribute::RTU, 1, Frame::Drop) })?;
        }
        if limit < faults::S {
            self.links[l].conns[conn].excuse.get_or_insert("a short limit");
        }
        if self.hosts[peer].adapter.is_none() || self.hosts[peer].paused > self.now() {
            self.links[l].conns[conn].excuse.get_or_insert("a peer that is not there");
        }
        let mut private = [0; 12];
        private[..4].copy_from_slice(&(l as u32).to_le_bytes());
        private[4..8].copy_from_slice(&(conn as u32).to_le_bytes());
        private[8..].copy_from_slice(&(side as u32).to_le_bytes());
        let (now, to) = (self.instant(), self.address(peer));
        let Some(ep) = self.links[l].ends[side].ep else { return Ok(()) };
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        let limit = Duration::from_nanos(limit);
        let qos = Qos::BestEffort;
        let asked = adapter.ia.ep_connect(now, ep, to, QUALIFIER, limit, &private, qos);
        self.say(host, format_args!("link {l}: connect to h{peer}, connection {conn}"));
        let end = &mut self.links[l].ends[side];
        match asked {
            Ok(()) => (end.phase, end.conn) = (Phase::Connecting, Some(conn)),
            // Too many connections in timewait: time has to pass.
            Err(error) if error.ret().ty() == dat_core::DatType::InsufficientResources => {}
            Err(error) => {
                self.call::<(), _>(host, "ep_connect", Err(error))?;
            }
        }
        self.calls += 1;
        Ok(())
    }

    /// Ends the connection of an end.
    pub fn disconnect(&mut self, l: usize, side: usize, graceful: bool) -> Check {
        let end = &self.links[l].ends[side];
        let host = end.host;
        self.awake(host)?;
        let end = &self.links[l].ends[side];
        let (phase, conn) = (end.phase, end.conn);
        // One that drains goes on draining.
        if !phase.is_open() || graceful && phase == Phase::Ending {
            return Ok(());
        }
        if let Some(conn) = conn.filter(|_| graceful && phase == Phase::Up) {
            let now = self.now();
            self.links[l].conns[conn].leaving[side].get_or_insert(now);
        } else {
            self.excuse(l, side, DISCONNECT);
        }
        let now = self.instant();
        let Some(ep) = self.links[l].ends[side].ep else { return Ok(()) };
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        let flag = if graceful { CloseFlag::Graceful } else { CloseFlag::Abrupt };
        let done = adapter.ia.ep_disconnect(now, ep, flag);
        self.say(host, format_args!("link {l}: disconnect, graceful: {graceful}"));
        if self.call(host, "ep_disconnect", done)?.is_some() {
            self.links[l].ends[side].phase = Phase::Ending;
        }
        Ok(())
    }

    fn free(&mut self, l: usize, side: usize) -> Check {
        let host = self.links[l].ends[side].host;
        self.awake(host)?;
        let Some(ep) = self.links[l].ends[side].ep else { return Ok(()) };
        if self.ill(host) {
            // It would fail, and leave the Endpoint.
            return Ok(());
        }
        self.spare(l, side)?;
        self.excuse(l, side, "a free");
        if self.links[l].ends[side].phase == Phase::Down {
            self.delivered(l, side)?;
        }
        self.forget(l, side, false)?;
        self.drop_posted(l, side)?;
        // Giving up windows may have taken time, and the connection may have ended meanwhile.
        let ended = self.state(l, side) == Some(EpState::Disconnected);
        if ended && self.links[l].ends[side].phase.is_open() {
            self.links[l].ends[side].freed.push(ep);
        }
        let now = self.instant();
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        let done = adapter.ia.ep_free(now, ep);
        self.say(host, format_args!("link {l}: free"));
        self.call(host, "ep_free", done)?;
        let end = &mut self.links[l].ends[side];
        end.gone.extend(end.ep.take());
        if end.gone.len() > REMEMBERED {
            end.gone.pop_front();
        }
        (end.phase, end.conn) = (Phase::None, None);
        // What was in pieces may have been written as long as the Endpoint was there.
        self.forget(l, side, false)?;
        self.drop_posted(l, side)
    }

    /// Gives up what is posted at an end, whose completions will not come, and its windows; or lets
    /// a reset unbind those that belong to its Endpoint.
    fn forget(&mut self, l: usize, side: usize, reset: bool) -> Check {
        for rmr in std::mem::take(&mut self.links[l].ends[side].unbound) {
            let host = self.links[l].ends[side].host;
            let Some(adapter) = self.adapter(host) else { return Ok(()) };
            let done = adapter.ia.rmr_free(rmr);
            self.call(host, "rmr_free", done)?;
        }
        for slot in 0..self.links[l].ends[side].grants.len() {
            let grant = self.links[l].ends[side].grants[slot].as_ref();
            let Some(grant) = grant.filter(|grant| grant.rmr.is_some()) else { continue };
            if reset && slot != 0 && grant.ready {
                let end = &mut self.links[l].ends[side];
                if let Some(grant) = end.grants[slot].take() {
                    end.unbound.extend(grant.rmr);
                    end.closed(grant.stale());
                }
            } else {
                self.revoke(l, side, slot)?;
            }
        }
        Ok(())
    }

    /// What was posted at an end has no completions any more.
    fn drop_posted(&mut self, l: usize, side: usize) -> Check {
        let end = &mut self.links[l].ends[side];
        let host = end.host;
        let posted: Vec<Posted> = end.requests.drain(..).chain(end.receives.drain(..)).collect();
        self.links[l].ends[1 - side].target.broken();
        for item in posted {
            self.give_back(l, side, &item);
        }
        let (base, stride) = (self.links[l].ends[side].base, self.links[l].ends[side].stride);
        let depth = self.shape.links[l].depth;
        self.adopt(host, base[1], depth * stride);
        self.adopt(host, base[2], depth * stride);
        self.refill(l, side)
    }

    /// Completions of an Endpoint that is reset or freed are lost, with the pieces of memory of
    /// their receives: where few pieces are left, the consumer takes them first.
    fn spare(&mut self, l: usize, side: usize) -> Check {
        let host = self.links[l].ends[side].host;
        if !self.shape.links[l].shared[side] {
            return Ok(());
        }
        let Some(adapter) = self.data(host) else { return Ok(()) };
        let Some(srq) = adapter.srq else { return Ok(()) };
        let (posted, found) = (adapter.shared.len(), adapter.ia.srq_query(srq));
        let Some(found) = self.call(host, "srq_query", found)? else { return Ok(()) };
        if posted.saturating_sub(found.outstanding as usize) + 2 * self.shape.pool[host] <= PLACES {
            return Ok(());
        }
        self.hosts[host].neglected = None;
        self.reap(host)
    }

    /// The Shared Receive Queue of an end whose completions were dropped is filled again.
    fn refill(&mut self, l: usize, side: usize) -> Check {
        let host = self.links[l].ends[side].host;
        if !self.shape.links[l].shared[side] {
            return Ok(());
        }
        let base = self.hosts[host].base[0];
        self.adopt(host, base, PLACES * (SHARED_LEN + GAP));
        let Some(adapter) = self.data(host) else { return Ok(()) };
        let Some(srq) = adapter.srq else { return Ok(()) };
        let found = adapter.ia.srq_query(srq);
        let Some(found) = self.call(host, "srq_query", found)? else { return Ok(()) };
        for _ in found.outstanding as usize..self.shape.pool[host] {
            self.post_shared(host)?;
        }
        Ok(())
    }

    /// The piece of memory of something posted is free again, unless a message is to be sent from it.
    pub fn give_back(&mut self, l: usize, side: usize, item: &Posted) {
        let end = &mut self.links[l].ends[side];
        let echoed = end.requests.front().is_some_and(|next| {
            (item.kind, next.kind, next.slot) == (Kind::Read, Kind::Send, item.slot)
        });
        if let Some(slot) = item.slot.filter(|_| !echoed) {
            let pieces =
                if item.kind == Kind::Receive { &mut end.buffers } else { &mut end.sources };
            pieces.give(slot);
        }
    }

    /// Asks whether an Endpoint is idle.
    pub fn status(&mut self, l: usize, side: usize) -> Check {
        self.awake(self.links[l].ends[side].host)?;
        let end = &self.links[l].ends[side];
        let (host, Some(ep)) = (end.host, end.ep) else { return Ok(()) };
        let Some(adapter) = self.adapter(host) else { return Ok(()) };
        let status = adapter.ia.ep_get_status(ep);
        let newest = self.cookie;
        let Some(status) = self.call(host, "ep_get_status", status)? else { return Ok(()) };
        let end = &self.links[l].ends[side];
        let busy = !end.requests.iter().all(|item| item.suppressed);
        self.say(
            host,
            format_args!(
                "link {l}: {:?}, requests idle: {}, receives idle: {}",
                status.state, status.request_idle, status.recv_idle
            ),
        );
        if self.links[l].ends[side].requests.is_empty() && !status.request_idle {
            return violation("idle", format!("h{host} link {l}: nothing is posted, not idle"));
        }
        if !status.request_idle && !status.recv_idle {
            return Ok(());
        }
        // Idle are also those that failed, and whose completions wait.
        self.hosts[host].neglected = None;
        self.reap(host)?;
        let end = &self.links[l].ends[side];
        if status.request_idle && !busy {
            // One whose receives were flushed has failed, and its requests with it. Without
            // receives of its own, it does not say so.
            let failed = end.conn.is_some_and(|conn| self.links[l].conns[conn].failed[side]);
            let silent = self.shape.links[l].shared[side] && self.excused(l, side);
            return if failed || silent { Ok(()) } else { self.all_done(l, side) };
        }
        if status.state != EpState::Connected || end.phase != Phase::Up {
            return Ok(());
        }
        let left = |item: &&Posted| !item.suppressed && item.cookie <= newest;
        let requests = end.requests.iter().find(left).filter(|_| status.request_idle);
        let receives = end.receives.iter().find(left).filter(|_| status.recv_idle);
        match requests.or(receives) {
            Some(item) => violation("idle", format!("h{host} link {l}: idle, and left: {item:?}")),
            None => Ok(()),
        }
    }

    /// All requests of an end are suppressed, and have succeeded.
    fn all_done(&mut self, l: usize, side: usize) -> Check {
        let end = &self.links[l].ends[side];
        let silent = end.requests.iter().all(|item| item.suppressed);
        if self.state(l, side) != Some(EpState::Connected) || !silent {
            return Ok(());
        }
        for item in std::mem::take(&mut self.links[l].ends[side].requests) {
            self.give_back(l, side, &item);
            self.carried_out(l, side, &item, "suppressed requests of an idle Endpoint")?;
        }
        Ok(())
    }

    // ---- receives ----

    /// Posts receives.
    pub fn receive(&mut self, l: usize, side: usize, count: usize) -> Check {
        for _ in 0..count {
            if !self.post_receive(l, side)? {
                break;
            }
        }
        Ok(())
    }

    /// Posts as many receives as the end keeps.
    pub fn top_up(&mut self, l: usize, side: usize) -> Check {
        let mut keep = self.shape.links[l].keep[side];
        if self.calm {
            keep = self.shape.links[l].depth;
        }
        while self.links[l].ends[side].receives.len() < keep {
            if !self.post_receive(l, side)? {
                break;
            }
        }
        Ok(())
    }

    fn post_receive(&mut self, l: usize, side: usize) -> Result<bool, crate::oracle::Violation> {
        let shape = &self.shape.links[l];
        let end = &mut self.links[l].ends[side];
        if shape.shared[side]
            || matches!(end.phase, Phase::None | Phase::Down)
            || end.receives.len() >= shape.depth
        {
            return Ok(false);
        }
        let (host, len, Some(ep)) = (end.host, shape.longest, end.ep) else { return Ok(false) };
        let Some(slot) = end.buffers.take() else { return Ok(false) };
        let at = end.base[1] + slot * end.stride;
        self.cookie += 1;
        let cookie = self.cookie;
        let late = self.state(l, side) == Some(EpState::Disconnected);
        let Some(adapter) = self.data(host) else { return Ok(false) };
        // In one to three segments.
        let cuts = [0, len / 3, len / 2, len];
        let segments =
            [0, 1, 2].map(|n| Self::segment(adapter, at + cuts[n], cuts[n + 1] - cuts[n]));
        let whole = [Self::segment(adapter, at, len)];
        let two = [segments[0], Self::segment(adapter, at + cuts[1], len - cuts[1])];
        let segments = [&whole[..], &two, &segments][cookie as usize % 3];
        let done = adapter.ia.ep_post_recv(ep, segments, cookie, NONE);
        self.say(host, format_args!("link {l}: receive {cookie}"));
        let posted = Posted {
            cookie,
            kind: Kind::Receive,
            slot: Some(slot),
            len,
            suppressed: false,
            doomed: false,
            late,
            at: 0,
            grant: None,
            brings: Vec::new(),
        };
        if self.call(host, "ep_post_recv", done)?.is_none() {
            self.give_back(l, side, &posted);
            return Ok(false);
        }
        self.links[l].ends[side].receives.push_back(posted);
        Ok(true)
    }

    /// Posts one receive to the Shared Receive Queue of a host.
    pub fn post_shared(&mut self, host: usize) -> Check {
        self.cookie += 1;
        let (cookie, base) = (self.cookie, self.hosts[host].base[0]);
        if self.hosts[host].holds {
            return Ok(());
        }
        let Some(adapter) = self.data(host) else { return Ok(()) };
        let Some(srq) = adapter.srq else { return Ok(()) };
        let Some(slot) = adapter.pieces.take() else { return Ok(()) };
        let segment = Self::segment(adapter, base + slot * (SHARED_LEN + GAP), SHARED_LEN);
        let done = adapter.ia.srq_post_recv(srq, &[segment], cookie);
        adapter.shared.insert(cookie, slot);
        self.call(host, "srq_post_recv", done).map(drop)
    }
}
