//! The neighbour cache: known addresses, pending ones, and when to ask again.
//!
//! An entry is `Pending` from the first [`Cache::ask`] until an answer or the last deadline of
//! [`WAITS`]; then `Known` for [`LIFETIME`], or `Failed` until the failure has been reported. When
//! the cache is full the entry goes that was asked for longest ago, but never a pending one.

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
/// How long an answer is believed.
pub const LIFETIME: Duration = Duration::from_secs(60);
/// How long a failure is reported again after the first report, before the address is asked for
/// anew.
const HOLD: Duration = Duration::from_secs(1);

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `asked` questions are out; at `due` the next one, or the end.
    Pending {
        asked: u8,
        due: Instant,
    },
    Known {
        mac: Mac,
        until: Instant,
    },
    /// `until` is set once the failure has been reported.
    Failed {
        until: Option<Instant>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    addr: Gid,
    state: State,
    /// When it was last asked for; [`Instant::ZERO`] if never.
    used: Instant,
}

#[derive(Debug)]
pub(super) struct Cache<const N: usize> {
    entries: Vec<Entry, N>,
}

impl<const N: usize> Cache<N> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    fn find(&mut self, addr: Gid) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.addr == addr)
    }

    /// Makes room for `entry`, at the cost of the least recently used one that is not pending.
    fn place(&mut self, entry: Entry) -> bool {
        let Err(entry) = self.entries.push(entry) else {
            return true;
        };
        let oldest = self
            .entries
            .iter_mut()
            .filter(|entry| !matches!(entry.state, State::Pending { .. }))
            .min_by_key(|entry| entry.used);
        match oldest {
            Some(place) => {
                *place = entry;
                true
            }
            None => false,
        }
    }

    /// Returns the state of `addr`; starts asking if there is none.
    pub(super) fn ask(&mut self, addr: Gid, now: Instant) -> Answer {
        let fresh = State::Pending { asked: 0, due: now };
        let Some(entry) = self.find(addr) else {
            let entry = Entry { addr, state: fresh, used: now };
            return if self.place(entry) { Answer::Pending } else { Answer::Full };
        };
        entry.used = now;
        match entry.state {
            State::Known { mac, until } if now < until => Answer::Known(mac),
            State::Pending { asked, due } if usize::from(asked) < WAITS.len() || now < due => {
                Answer::Pending
            }
            State::Failed { until: None } | State::Pending { .. } => {
                entry.state = State::Failed { until: Some(now + HOLD) };
                Answer::Failed
            }
            State::Failed { until: Some(until) } if now < until => Answer::Failed,
            State::Known { .. } | State::Failed { .. } => {
                entry.state = fresh;
                Answer::Pending
            }
        }
    }

    /// An answer from `addr`. True if it had been asked for, or confirms what is known.
    pub(super) fn answer(&mut self, addr: Gid, mac: Mac, now: Instant) -> bool {
        let until = now + LIFETIME;
        let Some(entry) = self.find(addr) else {
            return false;
        };
        let believe = match entry.state {
            State::Pending { .. } => true,
            State::Known { mac: known, .. } => known == mac,
            State::Failed { .. } => false,
        };
        if believe {
            entry.state = State::Known { mac, until };
        }
        believe
    }

    /// `addr` asked for us and thereby gave its MAC.
    pub(super) fn insert(&mut self, addr: Gid, mac: Mac, now: Instant) {
        let state = State::Known { mac, until: now + LIFETIME };
        if let Some(entry) = self.find(addr) {
            entry.state = state;
        } else {
            self.place(Entry { addr, state, used: Instant::ZERO });
        }
    }

    /// The next address to ask for at `now`, and how many searches ended in vain on the way.
    pub(super) fn probe(&mut self, now: Instant) -> (Option<Gid>, u32) {
        let mut failed: u32 = 0;
        for entry in &mut self.entries {
            let State::Pending { asked, due } = entry.state else {
                continue;
            };
            if now < due {
                continue;
            }
            if let Some(wait) = WAITS.get(usize::from(asked)) {
                entry.state = State::Pending { asked: asked.saturating_add(1), due: now + *wait };
                return (Some(entry.addr), failed);
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
                State::Pending { due, .. } => Some(due),
                State::Known { .. } | State::Failed { .. } => None,
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
                State::Known { mac, .. } => Some(mac),
                State::Pending { .. } | State::Failed { .. } => None,
            }
        })
    }
}
