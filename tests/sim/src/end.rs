//! The end of a run: faults stop, everything under way ends in time, and all accounts are closed.

use dat_core::EpState;
use hca_mlx5::platform::{Dma as _, Fence};
use mlx5_model::host::Nanos;

use crate::faults::{MS, S};
use crate::oracle::{Check, End, Link, Phase, Violation, violation};
use crate::script::Request;
use crate::world::Sim;

/// After this virtual time without faults all that was posted has completed, and all that was
/// accepted has ended: a lost device is found within 4 s, retries take some seconds, a graceful
/// disconnect without progress 30 s, and a connect has 60 s.
const DEADLINE: Nanos = 90 * S;
/// Where no frame was lost or late, a message arrives within this time of its receive: a sender that
/// found none asks again after less than a millisecond, not when it misses an acknowledgement.
const PROMPT: Nanos = 200 * MS;
/// After this time every link has a connection again: a peer may have to ask several times before
/// all that is left of earlier connections has ended.
const RECOVERY: Nanos = 300 * S;

impl Sim<'_> {
    /// Ends the run.
    pub fn finish(&mut self) -> Check {
        self.calm()?;
        // A host whose device is lost notices it.
        self.wait_for("liveness", "lost devices", DEADLINE, |sim| {
            let ill = sim.hosts.iter().position(|host| host.sick || host.lost);
            Ok(ill.map(|host| format!("h{host}")))
        })?;
        for l in 0..self.links.len() {
            for side in 0..2 {
                self.top_up(l, side)?;
            }
        }
        self.wait_for("prompt", "messages", PROMPT, |sim| Ok(sim.withheld()))?;
        self.wait_for("liveness", "requests", DEADLINE, Self::busy)?;
        // The story of the script is over: what follows shows that nothing is worn out.
        self.wait_for("recovery", "connections", RECOVERY, Self::reconnect)?;
        self.greet()?;
        for host in 0..self.hosts.len() {
            self.drain_pool(host)?;
        }
        for l in 0..self.links.len() {
            for side in 0..2 {
                let graceful = (self.shape.seed ^ l as u64) & 1 == 0;
                self.disconnect(l, side, graceful)?;
            }
        }
        self.wait_for("liveness", "disconnects", DEADLINE, |sim| Ok(sim.open_ends()))?;
        // The last flushes are not behind those events where Event Dispatchers are separate.
        let end = self.now() + 10 * MS;
        self.run_until(end)?;
        for l in 0..self.links.len() {
            for side in 0..2 {
                self.ended(l, side)?;
            }
        }
        for host in 0..self.hosts.len() {
            self.memory(host)?;
            self.close(host)?;
            let sent = self.hosts[host].slot.hca().commands();
            self.say(host, format_args!("{sent} commands in all"));
        }
        Ok(())
    }

    /// Lets time pass until nothing is missing.
    fn wait_for(
        &mut self,
        rule: &'static str,
        what: &str,
        patience: Nanos,
        mut missing: impl FnMut(&mut Self) -> Result<Option<String>, Violation>,
    ) -> Check {
        let mut limit = self.now() + patience;
        let mut step = 10_000;
        loop {
            let Some(left) = missing(self)? else { return Ok(()) };
            if self.now() >= limit {
                return violation(rule, format!("{what}: {left}"));
            }
            let end = self.now() + step;
            self.run_until(end)?;
            // A call of one host keeps all others waiting.
            limit += self.now() - end;
            step = (step * 2).min(20 * MS);
        }
    }

    /// A message that nothing holds back, and that has not arrived.
    fn withheld(&self) -> Option<String> {
        let stays = |l: &usize| {
            let link = &self.links[*l];
            let up = |end: &End| end.phase == Phase::Up;
            let conn = link.ends[0].conn.filter(|conn| link.ends[1].conn == Some(*conn));
            let conn = conn.map(|conn| &link.conns[conn]);
            let conn = conn.filter(|conn| conn.excuse.is_none() && conn.leaving == [None; 2]);
            link.ends.iter().all(up)
                && self.wire_is_sound(*l)
                && conn.is_some_and(|conn| conn.messages.iter().any(|left| !left.is_empty()))
        };
        (0..self.links.len()).find(stays).map(|l| format!("link {l}"))
    }

    /// A request of a connection that has not completed.
    fn busy(&mut self) -> Result<Option<String>, Violation> {
        for l in 0..self.links.len() {
            for side in 0..2 {
                let end = &self.links[l].ends[side];
                if matches!(end.phase, Phase::Connecting | Phase::Accepting) {
                    return Ok(Some(format!("h{} link {l}: {:?}", end.host, end.phase)));
                }
                if end.phase != Phase::Up {
                    continue;
                }
                // Where the other end is gone, the request may have gone with its host.
                let both = end.conn.filter(|conn| self.links[l].ends[1 - side].conn == Some(*conn));
                if both.is_some_and(|conn| self.links[l].conns[conn].doomed) {
                    return Ok(Some(format!("h{} link {l}: a refused request", end.host)));
                }
                if let Some(item) = end.requests.iter().find(|item| !item.suppressed) {
                    return Ok(Some(format!("h{} link {l}: {item:?}", end.host)));
                }
                // The event of its end comes behind what failed, and may come later.
                if end.conn.is_some_and(|conn| self.links[l].conns[conn].failed[side]) {
                    return Ok(Some(format!("h{} link {l}: the event of its end", end.host)));
                }
                if !end.requests.is_empty() && self.state(l, side) == Some(EpState::Connected) {
                    self.status(l, side)?;
                    // One that may have failed unseen says nothing of those without an event.
                    let unsure = self.shape.links[l].shared[side] && self.excused(l, side);
                    let left = self.links[l].ends[side].requests.front();
                    if let Some(item) = left.filter(|_| !unsure) {
                        return Ok(Some(format!("link {l} side {side}: {item:?}")));
                    }
                }
            }
        }
        Ok(None)
    }

    /// A link without a connection; it asks for one.
    fn reconnect(&mut self) -> Result<Option<String>, Violation> {
        let mut missing = None;
        for l in 0..self.links.len() {
            let phases = [0, 1].map(|side| self.links[l].ends[side].phase);
            let conns = [0, 1].map(|side| self.links[l].ends[side].conn);
            if phases == [Phase::Up; 2] && conns[0] == conns[1] {
                continue;
            }
            missing.get_or_insert_with(|| format!("link {l}: {phases:?}"));
            let idle = |phase| matches!(phase, Phase::None | Phase::Idle | Phase::Down);
            if let Some(side) = (0..2).find(|&side| {
                phases[side] == Phase::Up && {
                    idle(phases[1 - side]) || phases[1 - side] == Phase::Up
                }
            }) {
                // The peer has left this connection, or both have one with nobody.
                self.disconnect(l, side, false)?;
            } else if phases.into_iter().all(idle) {
                self.connect(l, l & 1, 60 * S, None)?;
            }
        }
        Ok(missing)
    }

    /// A message each way over every link.
    fn greet(&mut self) -> Check {
        for l in 0..self.links.len() {
            for side in 0..2 {
                if self.post(l, side, &Request::Send { len: 8 }, 0, false)? {
                    continue;
                }
                let phase = self.links[l].ends[side].phase;
                return violation("recovery", format!("link {l} side {side}: no post: {phase:?}"));
            }
        }
        self.wait_for("recovery", "requests", DEADLINE, Self::busy)?;
        self.wait_for("recovery", "messages", DEADLINE, |sim| {
            let waits = |link: &Link| {
                let conn = link.ends[0].conn.map(|conn| &link.conns[conn]);
                conn.is_some_and(|conn| conn.messages.iter().any(|left| !left.is_empty()))
            };
            let waits = sim.links.iter().position(waits);
            Ok(waits.map(|l| format!("link {l}")))
        })
    }

    /// The Shared Receive Queue of a host takes as many messages as it says that it has receives.
    fn drain_pool(&mut self, host: usize) -> Check {
        let Some(adapter) = self.data(host) else { return Ok(()) };
        let Some(srq) = adapter.srq else { return Ok(()) };
        let found = adapter.ia.srq_query(srq);
        let Some(found) = self.call(host, "srq_query", found)? else { return Ok(()) };
        let shared = |&&(l, side): &&(usize, usize)| self.shape.links[l].shared[side];
        let ends: Vec<(usize, usize)> =
            self.hosts[host].ends.iter().filter(shared).copied().collect();
        let count = found.outstanding as usize;
        self.hosts[host].holds = true;
        let mut sent = 0;
        self.wait_for("pool", "receives", DEADLINE, |sim| {
            while sent < count {
                let (l, side) = ends[sent % ends.len()];
                if !sim.post(l, 1 - side, &Request::Send { len: 8 }, 0, false)? {
                    break;
                }
                sent += 1;
            }
            let come = |&&(l, side): &&(usize, usize)| {
                let link = &sim.links[l];
                link.ends[side]
                    .conn
                    .is_none_or(|conn| link.conns[conn].messages[1 - side].is_empty())
            };
            let all = sent == count && ends.iter().filter(come).count() == ends.len();
            Ok((!all).then(|| format!("h{host}: {sent} messages for {count} receives")))
        })?;
        self.hosts[host].holds = false;
        for _ in 0..count {
            self.post_shared(host)?;
        }
        Ok(())
    }

    fn open_ends(&mut self) -> Option<String> {
        let ends = self
            .links
            .iter()
            .enumerate()
            .flat_map(|(l, link)| link.ends.iter().map(move |end| (l, end)));
        let mut open = ends.filter(|(_, end)| end.phase.is_open());
        open.next().map(|(l, end)| format!("h{} link {l}: {:?}", end.host, end.phase))
    }

    /// Everything posted at an end has come back, and its peer reached what it may.
    fn ended(&mut self, l: usize, side: usize) -> Check {
        let end = &self.links[l].ends[side];
        if end.phase == Phase::Down {
            let requests = end.requests.iter().find(|item| !item.suppressed);
            if let Some(item) = requests.or(end.receives.front()) {
                return violation("lost-completion", format!("h{} link {l}: {item:?}", end.host));
            }
            self.delivered(l, side)?;
            // Nothing says of suppressed requests whether they were carried out.
            let end = &self.links[l].ends[side];
            let (host, base, stride) = (end.host, end.base[2], end.stride);
            let slots: Vec<usize> = end.requests.iter().filter_map(|item| item.slot).collect();
            for slot in slots {
                self.adopt(host, base + slot * stride, stride);
            }
        }
        let end = &self.links[l].ends[side];
        if let Some(ep) = end.freed.first() {
            return violation("lost-event", format!("h{} link {l}: end of {ep:?}", end.host));
        }
        self.check_target(l, side)
    }

    /// The memory of a host is what its consumers know of it.
    fn memory(&mut self, host: usize) -> Check {
        let known = &self.hosts[host];
        let Some(adapter) = &known.adapter else { return Ok(()) };
        // All stores of the host arrive some time.
        known.slot.fence(Fence::BeforeDoorbell);
        let mut image = adapter.image.clone();
        let actual = self.device_bytes(host, 0, image.len());
        for &(l, side) in &known.ends {
            let end = &self.links[l].ends[side];
            let (at, len) = (end.base[3], end.target.certain.len());
            image[at..at + len].copy_from_slice(&actual[at..at + len]);
        }
        // Datagrams that came and were not taken.
        let at = known.base[2];
        image[at..].copy_from_slice(&actual[at..]);
        if image == actual {
            return Ok(());
        }
        match (0..image.len()).find(|&n| image[n] != actual[n]) {
            None => Ok(()),
            Some(n) => Err(Violation {
                rule: "memory",
                text: format!(
                    "h{host}: byte {n} is {:#04x}, not {:#04x}, and nobody may have written it",
                    actual[n], image[n]
                ),
            }),
        }
    }
}
