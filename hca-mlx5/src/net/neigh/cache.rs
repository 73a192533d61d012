//! The neighbour cache: known addresses, pending ones, and when to ask again.
//!
//! An entry is `Asking` from the first [`Cache::ask`] until an answer or the last deadline of
//! [`WAITS`]; then `Known`, or `Failed` until the failure has been reported. A known entry is not
//! forgotten after [`LIFETIME`], nor replaced when a message claims another MAC: its own MAC is
//! asked first, by unicast ([`PROBES`], RFC 4861 7.3.3, RFC 1122 2.3.2.1). Only if that does not
//! answer, everybody is asked, and the next answer is believed.
//!
//! When the cache is full a failure goes first, then the entry that was asked for longest ago; never
//! a pending or a fixed one.
//!
//! Two kinds of entries anybody can cause: a hint, which is what was learned and never asked for;
//! and a search for somebody who asked us, and may not exist. There are few of each, the oldest
//! gives way to the next without a search, and they replace no neighbour in use.

use core::time::Duration;

use dat_core::Instant;
use heapless::Vec;

use super::frame::Mac;
use crate::prm::gid::Gid;

/// How long each question waits for its answer. The first is short: on a network that works the
/// answer takes microseconds, so a lost frame costs little.
pub const WAITS: [Duration; 4] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(1),
];
/// How long each unicast question to a known MAC waits for its answer. MAX_UNICAST_SOLICIT of RFC
/// 4861 many, but together shorter than a peer waits for the answer to its request.
pub const PROBES: [Duration; 3] = [Duration::from_millis(200); 3];
/// How long an answer is believed.
pub const LIFETIME: Duration = Duration::from_secs(60);
/// Least time between an answer and the probe that doubts it: whoever claims another MAC without
/// end causes one probe in this time.
pub const PROBE_GAP: Duration = Duration::from_secs(1);
/// How long a neighbour is in use after it was asked for: longer than a connection takes to make.
const IN_USE: Duration = Duration::from_secs(1);
/// How long a failure is reported again after the first report, before the address is asked for
/// anew.
const HOLD: Duration = Duration::from_secs(1);

/// Why an address is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// This side wants to reach it.
    Wanted,
    /// It asked, or somebody in its name.
    Asker,
}

/// State of an address in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Known(Mac),
    Pending,
    /// Asked for in vain.
    Failed,
    /// No entry is free: all are pending.
    Full,
}

/// What a message says of a neighbour's MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It asks for one of our addresses.
    Question,
    /// It was sent to many, or in answer to nothing.
    Announcement,
    /// It answers a question of ours, as far as can be seen.
    Answer,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was wanted, or says what is known.
    Accepted,
    Unsolicited,
    /// It names another MAC than the one in use, which is probed.
    Contradicts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `asked` questions are out; at `due` the next one, or the end. With `known` they go to that
    /// MAC alone, else to everybody.
    Asking {
        known: Option<Mac>,
        asked: u8,
        due: Instant,
    },
    Known {
        mac: Mac,
        confirmed: Instant,
    },
    /// `until` is set once the failure has been reported.
    Failed {
        until: Option<Instant>,
    },
    /// Given by the configuration.
    Fixed(Mac),
}

impl State {
    /// The first question to everybody, at `now`.
    const fn search(now: Instant) -> Self {
        Self::Asking { known: None, asked: 0, due: now }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    addr: Gid,
    state: State,
    /// When it was last asked for, if ever.
    used: Option<Instant>,
    /// Asked for only because it asked.
    asker: bool,
}

/// Entries that anybody can cause, of which the oldest gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Askers,
    Hints,
}

#[derive(Debug)]
pub(super) struct Cache<const N: usize> {
    entries: Vec<Entry, N>,
    /// By [`Line`]: the indices of its entries, the oldest first.
    lines: [Vec<usize, N>; 2],
    /// No entry has a question to send before.
    soonest: Instant,
}

impl Entry {
    const fn new(addr: Gid, state: State) -> Self {
        Self { addr, state, used: None, asker: false }
    }

    /// Everybody is asked for it.
    const fn searches(&self) -> bool {
        matches!(self.state, State::Asking { known: None, .. })
    }

    const fn line(&self) -> Option<Line> {
        match self.state {
            State::Asking { known: None, .. } if self.asker => Some(Line::Askers),
            State::Known { .. } if self.used.is_none() => Some(Line::Hints),
            State::Asking { .. } | State::Known { .. } | State::Failed { .. } | State::Fixed(_) => {
                None
            }
        }
    }
}

impl<const N: usize> Cache<N> {
    /// Most entries of each line.
    const MOST: [usize; 2] = [N / 4, N / 2];

    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), lines: [const { Vec::new() }; 2], soonest: Instant::NEVER }
    }

    /// The entry of `addr`, and where it is.
    fn find(&self, addr: Gid) -> Option<(usize, Entry)> {
        let at = self.entries.iter().position(|entry| entry.addr == addr)?;
        Some((at, *self.entries.get(at)?))
    }

    /// Replaces the entry at `at`.
    fn set(&mut self, at: usize, entry: Entry) {
        let Some(place) = self.entries.get_mut(at) else { return };
        let old = core::mem::replace(place, entry);
        if let State::Asking { due, .. } = entry.state {
            self.soonest = self.soonest.min(due);
        }
        if (old.addr, old.line()) == (entry.addr, entry.line()) {
            return;
        }
        if let Some(line) = old.line()
            && let Some(at) = self.line(line).iter().position(|other| *other == at)
        {
            self.line(line).remove(at);
        }
        self.join(at, entry);
    }

    /// Adds an entry to its line.
    fn join(&mut self, at: usize, entry: Entry) {
        if let Some(line) = entry.line() {
            // It has room for all.
            let _ = self.line(line).push(at);
        }
    }

    fn line(&mut self, line: Line) -> &mut Vec<usize, N> {
        let [askers, hints] = &mut self.lines;
        match line {
            Line::Askers => askers,
            Line::Hints => hints,
        }
    }

    /// The oldest of a line that is full.
    fn surplus(&mut self, line: Line) -> Option<usize> {
        let [askers, hints] = Self::MOST;
        let most = if line == Line::Askers { askers } else { hints };
        let line = self.line(line);
        if line.len() < most { None } else { line.first().copied() }
    }

    /// Searches of this side under way: no more than half of the cache, so that a flood of them
    /// leaves the neighbours in use.
    fn searches(&self) -> usize {
        self.entries.iter().filter(|entry| entry.searches() && !entry.asker).count()
    }

    /// Makes room for `entry`: at the cost of the oldest of its line if that is full; else of a
    /// failure, a hint, or the least recently used neighbour: to an asker if it is not in use, to a
    /// hint never.
    fn insert(&mut self, entry: Entry, now: Instant) -> bool {
        let line = entry.line();
        if let Some(at) = line.and_then(|line| self.surplus(line)) {
            self.set(at, entry);
            return true;
        }
        if self.entries.push(entry).is_ok() {
            // As `set` does for one that replaces another.
            let at = self.entries.len() - 1;
            self.join(at, entry);
            self.set(at, entry);
            return true;
        }
        let rank = |old: &Entry| match old.state {
            State::Failed { .. } => Some((None, Instant::ZERO)),
            State::Known { confirmed, .. } => {
                let gives_way = match line {
                    None => true,
                    Some(Line::Askers) => old.used.is_none_or(|used| used + IN_USE <= now),
                    Some(Line::Hints) => old.used.is_none(),
                };
                gives_way.then_some((old.used, confirmed))
            }
            State::Asking { .. } | State::Fixed(_) => None,
        };
        let ranks = self.entries.iter().enumerate().filter_map(|(at, old)| Some((rank(old)?, at)));
        let oldest = ranks.min().map(|(_, at)| at);
        oldest.map(|at| self.set(at, entry)).is_some()
    }

    /// Fixes the MAC of `addr`. False if it is fixed already, or half of the cache is.
    pub(super) fn fix(&mut self, addr: Gid, mac: Mac) -> bool {
        let entry = Entry::new(addr, State::Fixed(mac));
        self.find(addr).is_none() && self.entries.len() < N / 2 && self.insert(entry, Instant::ZERO)
    }

    /// Returns the state of `addr`; starts asking if there is none.
    pub(super) fn ask(&mut self, addr: Gid, why: Why, now: Instant) -> Answer {
        let asker = why == Why::Asker;
        let anew = Entry { addr, state: State::search(now), used: Some(now), asker };
        let Some((at, mut entry)) = self.find(addr) else {
            let begins = (asker || self.searches() < N / 2) && self.insert(anew, now);
            return if begins { Answer::Pending } else { Answer::Full };
        };
        // How long a search for an asker has lasted says which is the oldest.
        if !(asker && entry.searches()) {
            entry.used = Some(now);
        }
        entry.asker &= asker;
        let same = entry.state;
        let (state, answer) = match same {
            State::Fixed(mac) => (same, Answer::Known(mac)),
            State::Known { mac, confirmed } if now < confirmed + LIFETIME => {
                (same, Answer::Known(mac))
            }
            // A probe whose time has not come.
            State::Asking { known: Some(mac), asked: 0, due } if now < due => {
                (same, Answer::Known(mac))
            }
            State::Asking { known: Some(_), .. } => (same, Answer::Pending),
            State::Asking { known: None, asked, due }
                if usize::from(asked) < WAITS.len() || now < due =>
            {
                (same, Answer::Pending)
            }
            State::Failed { until: Some(until) } if now < until => (same, Answer::Failed),
            State::Known { mac, .. } => {
                (State::Asking { known: Some(mac), asked: 0, due: now }, Answer::Pending)
            }
            State::Failed { until: None } | State::Asking { known: None, .. } => {
                (State::Failed { until: Some(now + HOLD) }, Answer::Failed)
            }
            State::Failed { .. } => return self.begin_anew(at, anew, now),
        };
        self.set(at, Entry { state, ..entry });
        answer
    }

    /// Searches again for an entry that failed, under the same limits as for the first time.
    fn begin_anew(&mut self, at: usize, entry: Entry, now: Instant) -> Answer {
        if !entry.asker && self.searches() >= N / 2 {
            return Answer::Full;
        }
        if entry.asker
            && let Some(oldest) = self.surplus(Line::Askers)
            && let Some(old) = self.entries.get(oldest).copied()
        {
            self.set(oldest, Entry { state: State::Failed { until: Some(now) }, ..old });
        }
        self.set(at, entry);
        Answer::Pending
    }

    /// A message says that `addr` is at `mac`.
    pub(super) fn claim(&mut self, addr: Gid, mac: Mac, how: Claim, now: Instant) -> Outcome {
        let learned = State::Known { mac, confirmed: now };
        let Some((at, entry)) = self.find(addr) else {
            if how != Claim::Question {
                return Outcome::Unsolicited;
            }
            self.insert(Entry::new(addr, learned), now);
            return Outcome::Accepted;
        };
        let (state, outcome) = match entry.state {
            State::Asking { known: None, .. } => (learned, Outcome::Accepted),
            State::Asking { known: Some(old), .. } if old == mac && how == Claim::Answer => {
                (learned, Outcome::Accepted)
            }
            State::Known { mac: old, .. }
            | State::Asking { known: Some(old), .. }
            | State::Fixed(old)
                if old == mac =>
            {
                return Outcome::Accepted;
            }
            // Nobody uses it yet: one hint replaces another.
            State::Known { .. } if entry.used.is_none() => (learned, Outcome::Accepted),
            State::Known { mac: known, confirmed } => {
                let due = now.max(confirmed + PROBE_GAP);
                (State::Asking { known: Some(known), asked: 0, due }, Outcome::Contradicts)
            }
            State::Asking { .. } | State::Fixed(_) => return Outcome::Contradicts,
            // Somebody is there again: the next call need not wait to ask.
            State::Failed { .. } if how == Claim::Question => {
                (State::Failed { until: Some(now) }, Outcome::Unsolicited)
            }
            State::Failed { .. } => return Outcome::Unsolicited,
        };
        self.set(at, Entry { state, ..entry });
        outcome
    }

    /// Begins all searches anew, and forgets which were in vain: the link was down.
    pub(super) fn retry(&mut self, now: Instant) {
        for at in 0..self.entries.len() {
            let Some(entry) = self.entries.get(at).copied() else { break };
            let state = match entry.state {
                State::Asking { known: None, .. } => State::search(now),
                State::Failed { .. } => State::Failed { until: Some(now) },
                same @ (State::Asking { .. } | State::Known { .. } | State::Fixed(_)) => same,
            };
            self.set(at, Entry { state, ..entry });
        }
    }

    /// The known MAC of `addr` is being asked.
    pub(super) fn is_probed(&self, addr: Gid) -> bool {
        let entry = self.find(addr);
        entry.is_some_and(|(_, entry)| matches!(entry.state, State::Asking { known: Some(_), .. }))
    }

    /// The next address to ask for at `now`, with the MAC to ask if it is not everybody, and how
    /// many searches ended in vain on the way.
    pub(super) fn probe(&mut self, now: Instant) -> (Option<(Gid, Option<Mac>)>, u32) {
        let mut failed: u32 = 0;
        while self.soonest <= now {
            let Some((at, entry)) = self.due(now) else { break };
            let State::Asking { mut known, mut asked, .. } = entry.state else { break };
            if known.is_some() && usize::from(asked) >= PROBES.len() {
                (known, asked) = (None, 0);
            }
            let waits: &[Duration] = if known.is_some() { &PROBES } else { &WAITS };
            if let Some(wait) = waits.get(usize::from(asked)) {
                let asked = asked.saturating_add(1);
                let state = State::Asking { known, asked, due: now + *wait };
                self.set(at, Entry { state, ..entry });
                return (Some((entry.addr, known)), failed);
            }
            self.set(at, Entry { state: State::Failed { until: None }, ..entry });
            failed = failed.saturating_add(1);
        }
        (None, failed)
    }

    /// An entry whose time has come, if there is one. When the others' is noted.
    fn due(&mut self, now: Instant) -> Option<(usize, Entry)> {
        let (mut first, mut soonest) = (None, Instant::NEVER);
        for (at, entry) in self.entries.iter().enumerate() {
            let State::Asking { due, .. } = entry.state else { continue };
            if due <= now && first.is_none() {
                first = Some(at);
            } else {
                soonest = soonest.min(due);
            }
        }
        self.soonest = soonest;
        let at = first?;
        Some((at, *self.entries.get(at)?))
    }

    /// When [`Self::probe`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.entries
            .iter()
            .filter_map(|entry| match entry.state {
                State::Asking { due, .. } => Some(due),
                State::Known { .. } | State::Failed { .. } | State::Fixed(_) => None,
            })
            .min()
    }

    /// Entries in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the MAC of `addr` if it is known, without asking.
    #[cfg(test)]
    pub(super) fn peek(&self, addr: core::net::IpAddr) -> Option<Mac> {
        self.entries.iter().find(|entry| entry.addr == addr.into()).and_then(|entry| {
            match entry.state {
                State::Known { mac, .. } | State::Fixed(mac) => Some(mac),
                State::Asking { known, .. } => known,
                State::Failed { .. } => None,
            }
        })
    }
}
