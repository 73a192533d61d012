//! The neighbour cache: known addresses, pending ones, and when to ask again.
//!
//! An entry is `Asking` from the first [`Cache::ask`] until an answer or the last deadline of
//! [`WAITS`]; then `Known`, or `Failed` until the failure has been reported. A known entry is not
//! forgotten after [`LIFETIME`], nor replaced when a message claims another MAC: its own MAC is
//! asked first, by unicast ([`PROBES`], RFC 4861 7.3.3, RFC 1122 2.3.2.1). Only if that does not
//! answer, everybody is asked, and the next answer is believed.
//!
//! When the cache is full a failure goes first, then the entry that was asked for longest ago; never
//! a pending or a fixed one. What was learned and never asked for replaces no neighbour in use.
//!
//! A search for somebody who asked us is of another kind: whoever asks may not exist. There are few
//! of them, the oldest gives way to the next, and they replace no neighbour in use.

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

#[derive(Debug)]
pub(super) struct Cache<const N: usize> {
    entries: Vec<Entry, N>,
}

impl Entry {
    /// Everybody is asked for it.
    const fn searches(&self) -> bool {
        matches!(self.state, State::Asking { known: None, .. })
    }
}

impl<const N: usize> Cache<N> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    fn find(&mut self, addr: Gid) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.addr == addr)
    }

    /// Searches of this side under way: no more than half of the cache, so that a flood of them
    /// leaves the neighbours in use.
    fn searches(&self) -> usize {
        self.entries.iter().filter(|entry| entry.searches() && !entry.asker).count()
    }

    /// Starts a search for an asker: at the cost of the oldest such search if there are as many as
    /// there may be, else of a failure or of an entry that is not in use.
    fn insert_asker(&mut self, entry: Entry, now: Instant) -> bool {
        let searches = |entry: &&Entry| entry.searches() && entry.asker;
        let most = self.entries.iter().filter(searches).count() >= N / 4;
        if !most && !self.entries.is_full() {
            return self.entries.push(entry).is_ok();
        }
        let replaced = self.entries.iter_mut().filter(|old| match old.state {
            State::Asking { .. } => most && old.searches() && old.asker,
            State::Failed { .. } => !most,
            State::Known { .. } => !most && old.used.is_none_or(|used| used + IN_USE <= now),
            State::Fixed(_) => false,
        });
        let rank = |old: &&mut Entry| (!matches!(old.state, State::Failed { .. }), old.used);
        replaced.min_by_key(rank).map(|old| *old = entry).is_some()
    }

    /// Makes room for `entry`, at the cost of a failure or of the least recently used one. One never
    /// asked for replaces none that was.
    fn insert(&mut self, entry: Entry) -> bool {
        let Err(entry) = self.entries.push(entry) else {
            return true;
        };
        let oldest = self
            .entries
            .iter_mut()
            .filter_map(|old| match old.state {
                State::Known { confirmed, .. } => Some((old.used, confirmed, old)),
                State::Failed { .. } => Some((None, Instant::ZERO, old)),
                State::Asking { .. } | State::Fixed(_) => None,
            })
            .min_by_key(|(used, confirmed, _)| (*used, *confirmed));
        match oldest {
            Some((used, _, old)) if used <= entry.used => {
                *old = entry;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Fixes the MAC of `addr`. False if it is fixed already, or half of the cache is.
    pub(super) fn fix(&mut self, addr: Gid, mac: Mac) -> bool {
        let entry = Entry { addr, state: State::Fixed(mac), used: None, asker: false };
        self.find(addr).is_none() && self.entries.len() < N / 2 && self.insert(entry)
    }

    /// Returns the state of `addr`; starts asking if there is none.
    pub(super) fn ask(&mut self, addr: Gid, why: Why, now: Instant) -> Answer {
        let asker = why == Why::Asker;
        let Some(entry) = self.find(addr) else {
            let entry = Entry { addr, state: State::search(now), used: Some(now), asker };
            let begins = if asker {
                self.insert_asker(entry, now)
            } else {
                self.searches() < N / 2 && self.insert(entry)
            };
            return if begins { Answer::Pending } else { Answer::Full };
        };
        // How long a search for an asker has lasted says which is the oldest.
        if !(asker && entry.searches()) {
            entry.used = Some(now);
        }
        entry.asker &= asker;
        let (state, answer) = match entry.state {
            State::Fixed(mac) => return Answer::Known(mac),
            State::Known { mac, confirmed } if now < confirmed + LIFETIME => {
                return Answer::Known(mac);
            }
            // A probe whose time has not come.
            State::Asking { known: Some(mac), asked: 0, due } if now < due => {
                return Answer::Known(mac);
            }
            State::Asking { known: Some(_), .. } => return Answer::Pending,
            State::Asking { known: None, asked, due }
                if usize::from(asked) < WAITS.len() || now < due =>
            {
                return Answer::Pending;
            }
            State::Failed { until: Some(until) } if now < until => return Answer::Failed,
            State::Known { mac, .. } => {
                (State::Asking { known: Some(mac), asked: 0, due: now }, Answer::Pending)
            }
            State::Failed { until: None } | State::Asking { known: None, .. } => {
                (State::Failed { until: Some(now + HOLD) }, Answer::Failed)
            }
            // Begins anew, under the same limits.
            State::Failed { .. } => {
                self.entries.retain(|entry| entry.addr != addr);
                return self.ask(addr, why, now);
            }
        };
        entry.state = state;
        answer
    }

    /// A message says that `addr` is at `mac`.
    pub(super) fn claim(&mut self, addr: Gid, mac: Mac, how: Claim, now: Instant) -> Outcome {
        let learned = State::Known { mac, confirmed: now };
        let Some(entry) = self.find(addr) else {
            if how != Claim::Question {
                return Outcome::Unsolicited;
            }
            self.insert(Entry { addr, state: learned, used: None, asker: false });
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
        entry.state = state;
        outcome
    }

    /// The known MAC of `addr` is being asked.
    pub(super) fn is_probed(&mut self, addr: Gid) -> bool {
        let entry = self.find(addr);
        entry.is_some_and(|entry| matches!(entry.state, State::Asking { known: Some(_), .. }))
    }

    /// The next address to ask for at `now`, with the MAC to ask if it is not everybody, and how
    /// many searches ended in vain on the way.
    pub(super) fn probe(&mut self, now: Instant) -> (Option<(Gid, Option<Mac>)>, u32) {
        let mut failed: u32 = 0;
        for entry in &mut self.entries {
            let State::Asking { mut known, mut asked, due } = entry.state else {
                continue;
            };
            if now < due {
                continue;
            }
            if known.is_some() && usize::from(asked) >= PROBES.len() {
                (known, asked) = (None, 0);
            }
            let waits: &[Duration] = if known.is_some() { &PROBES } else { &WAITS };
            if let Some(wait) = waits.get(usize::from(asked)) {
                let asked = asked.saturating_add(1);
                entry.state = State::Asking { known, asked, due: now + *wait };
                return (Some((entry.addr, known)), failed);
            }
            entry.state = State::Failed { until: None };
            failed = failed.saturating_add(1);
        }
        (None, failed)
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
