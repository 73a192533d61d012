//! Time, and how a host learns that there is something to do: it polls, or it sleeps until its
//! device interrupts.
//!
//! A host that sleeps has taken every event, has asked for the next ones, and does nothing before
//! an interrupt, a deadline of its adapter or a call of its own. What came for it and did not wake
//! it is a lost wake-up.

use std::task::Poll;
use std::time::Duration;

use dat_core::{Evd, Instant};
use mlx5_model::OpenFact;
use mlx5_model::host::Nanos;

use crate::faults::{MS, US};
use crate::oracle::{Check, Violation, violation};
use crate::script::Wake;
use crate::world::{Sim, Stream};

/// Virtual time at which a host looks again when there may be more.
const TICK: Nanos = US;
/// An interrupt comes within this time of its event.
const PROMPT: Nanos = 100 * US;
/// Some devices hold events back, for 2 ms at the most.
const LATEST: Nanos = 5 * MS;
/// A wait ends after this time.
const WAIT: Duration = Duration::from_secs(1);

impl Sim<'_> {
    /// Lets time pass until then, with every host driven.
    pub fn run_until(&mut self, end: Nanos) -> Check {
        loop {
            let now = self.now();
            let mut next = end;
            for host in 0..self.hosts.len() {
                next = next.min(self.drive(host, now)?);
            }
            while let Some(n) = self.timers.iter().position(|(time, _)| *time <= now) {
                let (_, timer) = self.timers.remove(n);
                self.expire(timer)?;
            }
            if self.now() >= end {
                return Ok(());
            }
            if let Some(soonest) = self.timers.iter().map(|(time, _)| *time).min() {
                next = next.min(soonest);
            }
            self.time.turn_by(next.saturating_sub(self.now()).max(TICK));
        }
    }

    /// Drives one host; when it wants to be driven again.
    fn drive(&mut self, host: usize, now: Nanos) -> Result<Nanos, Violation> {
        let wake = self.shape.wakes[host];
        let known = &mut self.hosts[host];
        if known.paused > now {
            return Ok(known.paused);
        }
        if known.adapter.is_none() {
            return Ok(Nanos::MAX);
        }
        let woken = match wake {
            Wake::Polls => known.slot.views().unseen(),
            Wake::Waits | Wake::Cno => !known.slot.hca().interrupts().is_empty(),
        };
        if wake != Wake::Polls && !woken && !known.dirty {
            self.asleep(host, now)?;
        }
        let known = &mut self.hosts[host];
        if known.dirty || woken || known.due <= now {
            if let Some(adapter) = &mut known.adapter {
                (known.unseen, known.left) = (None, None);
                let next = adapter.ia.advance(Instant::from_nanos(now));
                known.dirty = next.work;
                known.due = next.deadline.map_or(Nanos::MAX, Instant::as_nanos);
                if !self.sleeps_on(host)? {
                    self.look(host)?;
                    if wake == Wake::Waits && !self.hosts[host].dirty {
                        self.sleep(host)?;
                    }
                }
            }
        }
        let known = &self.hosts[host];
        Ok(if known.dirty { now + TICK } else { known.due })
    }

    /// Whether a host that slept has been driven for nothing: then it does not ask again for the
    /// events of the Event Dispatcher that it waits for. For those of the others it has to.
    fn sleeps_on(&mut self, host: usize) -> Result<bool, Violation> {
        let known = &mut self.hosts[host];
        let Some(adapter) = &mut known.adapter else { return Ok(false) };
        let Some((wait, _)) = &adapter.wait else { return Ok(false) };
        let others = known.streams.iter().filter(|(evd, _)| *evd != wait.evd());
        let noticed = others.filter(|(evd, _)| adapter.ia.evd_take_notice(*evd)).count();
        let calls = self.calls;
        self.answer(host)?;
        Ok(noticed == 0 && self.calls == calls && self.event_left(host).is_none())
    }

    /// Takes the events of a host that has been driven.
    fn look(&mut self, host: usize) -> Check {
        let Some(adapter) = &mut self.hosts[host].adapter else { return Ok(()) };
        let Some(cno) = adapter.cno else { return self.reap(host) };
        if adapter.ia.cno_trigger(cno).is_ok() {
            return self.reap(host);
        }
        let calls = self.calls;
        self.answer(host)?;
        // Its calls have taken time, in which events came: their interrupt is due.
        if self.calls != calls {
            return Ok(());
        }
        // Beside its driver a device may have written an event just now, and announces it later; or
        // it always announces later.
        if self.hosts[host].dirty
            || self.ill(host)
            || self.shape.beside[host]
            || !self.is_prompt(host)
        {
            return Ok(());
        }
        match self.event_left(host) {
            None => Ok(()),
            Some(left) => violation("wake", format!("{left}, and the CNO was not triggered")),
        }
    }

    /// Whether events of a host's device come with what they are about.
    pub(crate) fn is_prompt(&self, host: usize) -> bool {
        let facts = &self.shape.facts[host];
        facts.setting(OpenFact::EqeOrder) == OpenFact::EqeOrder.settings()[0]
    }

    /// A host that nothing wakes sleeps on: nothing may have come for it long ago.
    fn asleep(&mut self, host: usize, now: Nanos) -> Check {
        let ill = self.ill(host);
        let known = &mut self.hosts[host];
        if ill || known.left.is_none() && !known.slot.views().unseen() {
            (known.unseen, known.left) = (None, None);
            return Ok(());
        }
        let since = known.left.unwrap_or(*known.unseen.get_or_insert(now));
        let patience = if self.is_prompt(host) { PROMPT } else { LATEST };
        let known = &mut self.hosts[host];
        if now < since + patience {
            return Ok(());
        }
        let (seen, left) = (known.left.is_some(), self.event_left(host));
        let known = &mut self.hosts[host];
        known.unseen = None;
        // What was written long ago may have been data, and the event may have come just now.
        known.left = left.as_ref().filter(|_| !seen).map(|_| now);
        match left.filter(|_| seen) {
            None => Ok(()),
            Some(left) => {
                let late = (now - since) / US;
                violation("wake", format!("{left}, and no interrupt for {late} us"))
            }
        }
    }

    /// An event that a host has not taken.
    fn event_left(&mut self, host: usize) -> Option<String> {
        let known = &mut self.hosts[host];
        let adapter = known.adapter.as_mut()?;
        known.streams.iter().filter(|(evd, _)| known.neglected != Some(*evd)).find_map(
            |(evd, stream)| {
                let count = adapter.ia.evd_more(*evd).unwrap_or(0);
                (count != 0).then(|| format!("h{host}: {count} events of {stream:?}"))
            },
        )
    }

    /// A host has taken every event: it waits for one Event Dispatcher, and asks the others to
    /// wake it too.
    fn sleep(&mut self, host: usize) -> Check {
        let now = self.instant();
        let known = &mut self.hosts[host];
        let Some(adapter) = &mut known.adapter else { return Ok(()) };
        let waits = |(evd, stream): &(Evd, Stream)| {
            *stream != Stream::Asynchronous && known.neglected != Some(*evd)
        };
        let waitable: Vec<(Evd, Stream)> = known.streams.iter().copied().filter(waits).collect();
        known.turn += 1;
        // Mostly for completions.
        let ends =
            |(_, stream): &&(Evd, Stream)| matches!(stream, Stream::End(..) | Stream::Ends(_));
        let mut likely: Vec<_> = waitable.iter().filter(ends).copied().collect();
        if likely.is_empty() || known.turn % 8 == 0 {
            likely.clone_from(&waitable);
        }
        let (evd, stream) = likely[known.turn % likely.len()];
        let mut wait = match adapter.ia.evd_wait(now, evd, WAIT, 1) {
            Ok(wait) => wait,
            Err(error) => return violation("call", format!("h{host}: evd_wait: {error}")),
        };
        if let Poll::Ready(found) = adapter.ia.evd_waited(now, &mut wait) {
            known.dirty = true;
            return found.map_or(Ok(()), |event| self.take(host, stream, event));
        }
        adapter.wait = Some((wait, stream));
        for (evd, _) in waitable {
            // One that takes no completions needs none.
            let _ = adapter.ia.evd_arm(evd, false);
        }
        Ok(())
    }

    /// A host does not wait any more: what it waited for may be there.
    pub fn awake(&mut self, host: usize) -> Check {
        let now = self.instant();
        let Some(adapter) = &mut self.hosts[host].adapter else { return Ok(()) };
        let Some((mut wait, stream)) = adapter.wait.take() else { return Ok(()) };
        let found = adapter.ia.evd_waited(now, &mut wait);
        adapter.ia.evd_wait_end(&mut wait);
        match found {
            Poll::Ready(Ok(event)) => self.take(host, stream, event),
            Poll::Ready(Err(_)) | Poll::Pending => Ok(()),
        }
    }
}
