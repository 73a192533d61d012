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

use super::entries::{Entries, Entry, Line, State};
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

#[derive(Debug)]
pub(super) struct Cache<const N: usize> {
    entries: Entries<N>,
}

impl<const N: usize> Cache<N> {
    pub(super) const fn new() -> Self {
        Self { entries: Entries::new() }
    }

    /// Sets the secret of the index.
    pub(super) fn set_secret(&mut self, secret: [u64; 2]) {
        self.entries.set_secret(secret);
    }

    /// A line has as many entries as it may have. Searches of this side are half of the cache at
    /// most, so that a flood of them leaves the neighbours in use.
    fn is_full(&self, line: Line) -> bool {
        let most = match line {
            Line::Askers => N / 4,
            Line::Hints | Line::Searches => N / 2,
        };
        self.entries.count(line) >= most
    }

    /// The oldest of a line that is full, if it gives way to the next.
    fn surplus(&self, line: Line) -> Option<usize> {
        let gives_way = line != Line::Searches && self.is_full(line);
        if gives_way { self.entries.oldest(line) } else { None }
    }

    /// Makes room for `entry`: at the cost of the oldest of its line if that is full; else of a
    /// failure, a hint, or the least recently used neighbour: to an asker if it is not in use, to a
    /// hint never.
    fn insert(&mut self, entry: Entry, now: Instant) -> bool {
        let line = entry.line();
        if let Some(at) = line.and_then(|line| self.surplus(line)) {
            self.entries.set(at, entry);
            return true;
        }
        if self.entries.push(entry) {
            return true;
        }
        let Some((at, old)) = self.entries.least() else { return false };
        let gives_way = match line {
            _ if old.is_failure() => true,
            Some(Line::Askers) => old.used.is_none_or(|used| used + IN_USE <= now),
            Some(Line::Hints) => old.used.is_none(),
            Some(Line::Searches) | None => true,
        };
        if gives_way {
            self.entries.set(at, entry);
        }
        gives_way
    }

    /// Fixes the MAC of `addr`. False if it is fixed already, or half of the cache is.
    pub(super) fn fix(&mut self, addr: Gid, mac: Mac) -> bool {
        let entry = Entry::new(addr, State::Fixed(mac));
        self.entries.find(addr).is_none()
            && self.entries.len() < N / 2
            && self.insert(entry, Instant::ZERO)
    }

    /// Returns the state of `addr`; starts asking if there is none.
    pub(super) fn ask(&mut self, addr: Gid, why: Why, now: Instant) -> Answer {
        let asker = why == Why::Asker;
        let anew = Entry { addr, state: State::search(now), used: Some(now), asker };
        let Some((at, mut entry)) = self.entries.find(addr) else {
            let begins = (asker || !self.is_full(Line::Searches)) && self.insert(anew, now);
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
        self.entries.set(at, Entry { state, ..entry });
        answer
    }

    /// Searches again for an entry that failed, under the same limits as for the first time.
    fn begin_anew(&mut self, at: usize, entry: Entry, now: Instant) -> Answer {
        if !entry.asker && self.is_full(Line::Searches) {
            return Answer::Full;
        }
        if entry.asker {
            if let Some(oldest) = self.surplus(Line::Askers) {
                if let Some(old) = self.entries.get(oldest) {
                    self.entries
                        .set(oldest, Entry { state: State::Failed { until: Some(now) }, ..old });
                }
            }
        }
        self.entries.set(at, entry);
        Answer::Pending
    }

    /// A message says that `addr` is at `mac`.
    pub(super) fn claim(&mut self, addr: Gid, mac: Mac, how: Claim, now: Instant) -> Outcome {
        let learned = State::Known { mac, confirmed: now };
        let Some((at, entry)) = self.entries.find(addr) else {
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
        self.entries.set(at, Entry { state, ..entry });
        outcome
    }

    /// Begins all searches anew, and forgets which were in vain: the link was down.
    pub(super) fn retry(&mut self, now: Instant) {
        for at in 0..self.entries.len() {
            let Some(entry) = self.entries.get(at) else { break };
            let state = match entry.state {
                State::Asking { known: None, .. } => State::search(now),
                State::Failed { .. } => State::Failed { until: Some(now) },
                same @ (State::Asking { .. } | State::Known { .. } | State::Fixed(_)) => same,
            };
            self.entries.set(at, Entry { state, ..entry });
        }
    }

    /// The known MAC of `addr` is being asked.
    pub(super) fn is_probed(&mut self, addr: Gid) -> bool {
        let entry = self.entries.find(addr);
        entry.is_some_and(|(_, entry)| matches!(entry.state, State::Asking { known: Some(_), .. }))
    }

    /// The next address to ask for at `now`, with the MAC to ask if it is not everybody, and how
    /// many searches ended in vain on the way.
    pub(super) fn probe(&mut self, now: Instant) -> (Option<(Gid, Option<Mac>)>, u32) {
        let mut failed: u32 = 0;
        while self.entries.next_deadline() <= now {
            let Some((at, entry)) = self.entries.next() else { break };
            let State::Asking { mut known, mut asked, .. } = entry.state else { break };
            if known.is_some() && usize::from(asked) >= PROBES.len() {
                (known, asked) = (None, 0);
            }
            let waits: &[Duration] = if known.is_some() { &PROBES } else { &WAITS };
            if let Some(wait) = waits.get(usize::from(asked)) {
                let asked = asked.saturating_add(1);
                let state = State::Asking { known, asked, due: now + *wait };
                self.entries.set(at, Entry { state, ..entry });
                return (Some((entry.addr, known)), failed);
            }
            self.entries.set(at, Entry { state: State::Failed { until: None }, ..entry });
            failed = failed.saturating_add(1);
        }
        (None, failed)
    }

    /// When [`Self::probe`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        Some(self.entries.next_deadline()).filter(|due| *due != Instant::NEVER)
    }

    /// Entries in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the MAC of `addr` if it is known, without asking.
    #[cfg(test)]
    pub(super) fn peek(&self, addr: core::net::IpAddr) -> Option<Mac> {
        let mut entries = (0..self.len()).filter_map(|at| self.entries.get(at));
        let entry = entries.find(|entry| entry.addr == addr.into());
        entry.and_then(|entry| match entry.state {
            State::Known { mac, .. } | State::Fixed(mac) => Some(mac),
            State::Asking { known, .. } => known,
            State::Failed { .. } => None,
        })
    }
}
