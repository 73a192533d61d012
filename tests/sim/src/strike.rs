//! Lets things go wrong, and right again.

use std::collections::VecDeque;

use dat_core::Evd;
use mlx5_model::Verdict;
use mlx5_model::host::Nanos;
use mlx5_model::wire::impair::{Fault as Frame, Rates};

use crate::faults::{Fault, LIGHT, MS, S, SHORT, What};
use crate::oracle::{Check, Phase};
use crate::world::{Sim, Stream, Timer};

/// What a frame of ARP or of Neighbor Discovery does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// It asks where somebody is, or answers.
    Asks,
    /// It says where its sender is, and nobody has asked.
    Announces,
}

/// The group of all nodes of a link.
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

impl Search {
    /// Whether a frame is of that kind.
    pub(crate) fn is(self, frame: &[u8]) -> bool {
        let announces = match frame.get(12..14) {
            // Who announces an address names it as the one that is sought.
            Some([0x08, 0x06]) => frame.get(28..32) == frame.get(38..42),
            // IPv6, and behind its header ICMPv6 of one of two types.
            Some([0x86, 0xdd])
                if frame.get(20) == Some(&58) && matches!(frame.get(54), Some(135 | 136)) =>
            {
                frame.get(38..54) == Some(&ALL_NODES[..])
            }
            _ => return false,
        };
        announces == (self == Self::Announces)
    }
}

impl Sim<'_> {
    pub(crate) fn at(&mut self, time: Nanos, timer: Timer) {
        self.timers.push((time, timer));
    }

    /// Lets something go wrong.
    pub fn strike(&mut self, fault: &Fault) -> Check {
        let (now, host) = (self.now(), fault.host);
        self.trace.say(now, None, format_args!("{fault}"));
        let known = &mut self.hosts[host];
        known.unordered |= matches!(
            fault.what,
            What::Rates(..)
                | What::Late(..)
                | What::Frames(..)
                | What::Mads(..)
                | What::Neighbours
                | What::Unplug(..)
                | What::Jump(_)
        );
        match &fault.what {
            What::Rates(rates, time) => {
                known.line.rates(*rates);
                known.rates_end = Some(now + time);
                self.doubled |= rates.duplicate != 0;
                if rates.drop + rates.corrupt + rates.pkey > LIGHT {
                    known.rough = known.rough.max(now + time);
                    self.excuse_all(host, "a rough wire");
                }
                self.at(now + time, Timer::Calm(host));
            }
            What::Late(count, by) => {
                known.line.rule(0, *count, Frame::Delay(*by), |_| true);
            }
            What::Frames(class, after, count) => known.losses.aim(*class, *after, *count),
            What::Mads(id, count, what) => known.line.rule_mad(0, *count, *what, *id),
            What::Neighbours => {
                // The search for a neighbour outlasts the loss of one frame at each side.
                if !std::mem::replace(&mut known.unanswered, true) {
                    known.line.rule(0, 1, Frame::Drop, |frame| Search::Asks.is(frame));
                }
            }
            What::Unplug(time, seen) => {
                known.line.cut(true);
                known.cable_in = Some(now + time);
                if *seen {
                    known.slot.hca().set_link(false);
                }
                if *time > SHORT {
                    known.rough = known.rough.max(now + time);
                    self.excuse_all(host, "a cable that was out");
                }
                self.at(now + time, Timer::Plug(host));
            }
            What::Reset | What::Death(_) => {
                if known.adapter.is_none() {
                    return Ok(());
                }
                match fault.what {
                    What::Death(syndrome) => known.slot.hca().die(syndrome),
                    _ => known.slot.hca().flr(),
                }
                known.sick = true;
                self.excuse_all(host, "a device that was lost");
            }
            What::SlowCommands(count, by) => {
                known.commands.with(|list| {
                    list.extend((0..*count).map(|_| Verdict::Late(*by)));
                });
            }
            What::SilentCommands(count) => {
                known.commands.with(|list| list.extend((0..*count).map(|_| Verdict::NoEvent)));
            }
            What::RefusedCommand(after) | What::MutedCommand(after) => {
                let verdict = match fault.what {
                    What::MutedCommand(_) => Verdict::Mute,
                    _ => Verdict::Refuse { status: 0x0f, syndrome: 0x00de_ad00 },
                };
                known.commands.with(|list| {
                    list.extend((0..*after).map(|_| Verdict::Run));
                    list.push_back(verdict);
                });
                known.flaky = true;
                self.excuse_all(host, "a command that failed");
            }
            What::Pages(count) => known.slot.hca().request_pages(*count),
            What::Pause(time) => known.paused = known.paused.max(now + time),
            What::Neglect(which, time) => {
                let chosen = self.to_neglect(host, *which);
                let known = &self.hosts[host];
                if chosen.is_some() && known.neglected.is_none() && known.adapter.is_some() {
                    self.awake(host)?;
                    (self.hosts[host].neglected, self.hosts[host].dirty) = (chosen, true);
                    self.at(now + time, Timer::Attend(host));
                }
            }
            What::Jump(by) => {
                self.time.clock().set(now + by);
                self.hosts.iter_mut().for_each(|host| (host.unseen, host.left) = (None, None));
            }
            What::Reopen => {
                if known.adapter.is_some() && !known.lost {
                    return self.reopen(host);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn expire(&mut self, timer: Timer) -> Check {
        match timer {
            Timer::Calm(host) => self.soothe(host),
            Timer::Plug(host) => self.plug_in(host),
            Timer::Attend(host) => {
                return self.attend(host);
            }
            Timer::Reset(l, side) => {
                let down = self.links[l].ends[side].phase == Phase::Down;
                if down && !self.idle_host(self.links[l].ends[side].host) {
                    self.ready(l, side)?;
                }
            }
            Timer::Recover(host) => {
                self.awake(host)?;
                self.flushed(host)?;
                return self.reopen(host);
            }
        }
        Ok(())
    }

    /// An Event Dispatcher of a host for nobody to look at: three of four times one that takes
    /// completions, which are what stays behind when an Endpoint is reset or a queue resized.
    fn to_neglect(&self, host: usize, which: usize) -> Option<Evd> {
        let completions = |evd: Evd, stream: Stream| match stream {
            Stream::Ends(_) => true,
            Stream::End(l, side, merged) => {
                merged || self.links[l].ends[side].evds.is_some_and(|evds| evds[2] != evd)
            }
            Stream::Requests | Stream::Datagrams | Stream::Asynchronous => false,
        };
        let any = |stream| matches!(stream, Stream::End(..) | Stream::Ends(_));
        let chosen = |&&(evd, stream): &&(Evd, Stream)| {
            if which & 3 == 0 { any(stream) } else { completions(evd, stream) }
        };
        let streams = self.hosts[host].streams.iter().filter(chosen);
        let count = streams.clone().count().max(1);
        streams.map(|(evd, _)| *evd).nth(which / 4 % count)
    }

    /// Ends what is over by now of the faults of the wire: a call may have kept the world waiting.
    pub(crate) fn end_wire_faults(&mut self) -> Check {
        let now = self.now();
        let over = |(time, timer): &(Nanos, Timer)| {
            *time <= now && matches!(timer, Timer::Calm(_) | Timer::Plug(_))
        };
        while let Some(n) = self.timers.iter().position(over) {
            let (_, timer) = self.timers.remove(n);
            self.expire(timer)?;
        }
        Ok(())
    }

    /// Frames of a host are treated well again.
    fn soothe(&mut self, host: usize) {
        let now = self.now();
        self.hosts[host].line.rates(Rates::default());
        let end = self.hosts[host].rates_end.take();
        // A few losses of a thousand went on. A send that waits for a receive all that time has one
        // count of retries for all its attempts, and repeats each after half a second already.
        if end.is_some_and(|end| now > end + S) {
            self.excuse_all(host, "a wire that was at fault for long");
        }
    }

    /// The cable of a host is in again.
    fn plug_in(&mut self, host: usize) {
        self.say(host, format_args!("cable in"));
        let now = self.now();
        let known = &mut self.hosts[host];
        known.line.cut(false);
        known.slot.hca().set_link(true);
        if known.cable_in.take().is_some_and(|end| now > end + SHORT) {
            known.rough = known.rough.max(now);
            self.excuse_all(host, "a cable that was out for long");
        }
    }

    /// A host looks at all of its Event Dispatchers again.
    pub(crate) fn attend(&mut self, host: usize) -> Check {
        if self.hosts[host].neglected.take().is_none() {
            return Ok(());
        }
        self.hosts[host].dirty = true;
        self.awake(host)?;
        self.reap(host)
    }

    /// The adapter of a host has lost its device.
    pub fn lose(&mut self, host: usize) {
        self.hosts[host].lost = true;
        self.excuse_all(host, "a device that was lost");
        let now = self.now();
        self.at(now + 2 * MS, Timer::Recover(host));
    }

    /// Ends all faults.
    pub fn calm(&mut self) -> Check {
        self.calm = true;
        let now = self.now();
        for host in 0..self.hosts.len() {
            let known = &mut self.hosts[host];
            known.commands.with(VecDeque::clear);
            known.losses.clear();
            known.line.cut(false);
            known.slot.hca().set_link(true);
            (known.paused, known.rough) = (0, known.rough.min(now));
            self.soothe(host);
            self.attend(host)?;
        }
        self.timers.retain(|(_, timer)| matches!(timer, Timer::Recover(_)));
        self.trace.say(now, None, format_args!("faults are over"));
        Ok(())
    }
}
