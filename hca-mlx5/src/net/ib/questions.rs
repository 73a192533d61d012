//! A cache of answers to questions that go out on the network: paths by GID or LID, hardware
//! addresses by IP address.
//!
//! No input or output: [`Questions::next`] names the question to send, [`Questions::answer`] takes
//! what came back. A question is repeated a few times, then it has failed for a while. Only what
//! was asked for is learned, so no message changes a known answer before its time is over. A
//! question that is asked for a peer who asked first gives way to others: to those of this port at
//! once, to those of other askers when it has had the time of its first try. So however many ask,
//! the network gets a bounded number of questions, and each of them can be answered.

use core::task::Poll;
use core::time::Duration;

use dat_core::Instant;
use heapless::Vec;

/// How a question is repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Until it is sent the second time; doubled each time.
    pub(super) first: Duration,
    /// Times that it is sent.
    pub(super) tries: u8,
}

/// How long a failure lasts: until the next question.
const FAILURE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State<V> {
    /// `asked` questions are out, all of that transaction; at `due` the next one, or the end.
    Asking {
        transaction: u64,
        asked: u8,
        due: Instant,
    },
    Known {
        value: V,
        until: Instant,
    },
    Failed {
        until: Instant,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry<K, V> {
    key: K,
    state: State<V>,
    used: Instant,
    /// Asked for only because it asked.
    asker: bool,
}

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoAnswer;

/// Up to `N` answers to questions about a `K`.
#[derive(Debug)]
pub(super) struct Questions<K, V, const N: usize> {
    entries: Vec<Entry<K, V>, N>,
    /// How long an answer counts.
    lifetime: Duration,
    pace: Pace,
}

impl<K: Copy + Eq, V: Copy, const N: usize> Questions<K, V, N> {
    pub(super) const fn new(lifetime: Duration, pace: Pace) -> Self {
        Self { entries: Vec::new(), lifetime, pace }
    }

    /// The answer for `key`, which has asked us if `asker`. `transaction` names the question, if it
    /// is a new one.
    pub(super) fn resolve(
        &mut self,
        key: K,
        asker: bool,
        now: Instant,
        transaction: impl FnOnce() -> u64,
    ) -> Poll<Result<V, NoAnswer>> {
        let asks = |transaction| State::Asking { transaction, asked: 0, due: now };
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == key) {
            entry.used = now;
            entry.asker &= asker;
            match entry.state {
                State::Known { value, until } if now < until => return Poll::Ready(Ok(value)),
                State::Failed { until } if now < until => return Poll::Ready(Err(NoAnswer)),
                State::Asking { .. } => return Poll::Pending,
                State::Known { .. } | State::Failed { .. } => {
                    entry.state = asks(transaction());
                    entry.asker = asker;
                    return Poll::Pending;
                }
            }
        }
        let entry = Entry { key, state: asks(transaction()), used: now, asker };
        self.insert(entry, now);
        Poll::Pending
    }

    /// Puts an entry into the table: in the place of one that gives way if it is full. Without such
    /// a place the question is not asked; the next call tries again.
    fn insert(&mut self, entry: Entry<K, V>, now: Instant) {
        // Askers leave three quarters of the table to others.
        let asks = |entry: &Entry<K, V>| entry.asker && matches!(entry.state, State::Asking { .. });
        let askers = self.entries.iter().filter(|entry| asks(entry)).count();
        let crowded = entry.asker && askers >= (N / 4).max(1);
        if !crowded && !self.entries.is_full() {
            let _ = self.entries.push(entry);
            return;
        }
        let rank = |entry: &Entry<K, V>| match entry.state {
            State::Failed { .. } => 0,
            State::Known { until, .. } if until <= now => 1,
            State::Asking { .. } if entry.asker => 2,
            State::Known { .. } => 3,
            State::Asking { .. } => 4,
        };
        let has_had_its_time = |entry: &Entry<K, V>| match entry.state {
            State::Asking { asked, .. } => asked >= 2,
            State::Known { .. } | State::Failed { .. } => true,
        };
        let gives = self
            .entries
            .iter_mut()
            .filter(|old| (!crowded || asks(old)) && (!entry.asker || has_had_its_time(old)));
        let first = gives.min_by_key(|entry| (rank(entry), entry.used));
        if let Some(place) = first {
            if rank(place) < 4 {
                *place = entry;
            }
        }
    }

    /// The next question that is due, with its transaction. Counts it as sent.
    pub(super) fn next(&mut self, now: Instant) -> Option<(K, u64)> {
        loop {
            let due = |entry: &&mut Entry<K, V>| matches!(entry.state, State::Asking { due, .. } if due <= now);
            let entry = self.entries.iter_mut().find(due)?;
            let State::Asking { transaction, asked, .. } = entry.state else { return None };
            if asked < self.pace.tries {
                let doubled = 1_u32.checked_shl(asked.into()).unwrap_or(u32::MAX);
                let due = now + self.pace.first.saturating_mul(doubled);
                entry.state = State::Asking { transaction, asked: asked + 1, due };
                return Some((entry.key, transaction));
            }
            entry.state = State::Failed { until: now + FAILURE };
        }
    }

    /// The question of that transaction.
    pub(super) fn asked(&self, transaction: u64) -> Option<K> {
        let of = |entry: &&Entry<K, V>| {
            matches!(
                entry.state,
                State::Asking { transaction: own, asked: 1.., .. } if own == transaction
            )
        };
        self.entries.iter().find(of).map(|entry| entry.key)
    }

    /// Whether `key` is being asked for.
    pub(super) fn asks(&self, key: K) -> bool {
        let of = |entry: &Entry<K, V>| {
            entry.key == key && matches!(entry.state, State::Asking { asked: 1.., .. })
        };
        self.entries.iter().any(of)
    }

    /// The answer for `key`, if it is asked for: what is known stays.
    pub(super) fn answer(&mut self, key: K, value: Result<V, NoAnswer>, now: Instant) {
        let until = now + self.lifetime;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == key) {
            if matches!(entry.state, State::Asking { .. }) {
                entry.state = match value {
                    Ok(value) => State::Known { value, until },
                    Err(NoAnswer) => State::Failed { until: now + FAILURE },
                };
            }
        }
    }

    /// Returns an answer that is known and for which `is` holds.
    pub(super) fn find(&self, now: Instant, is: impl Fn(&V) -> bool) -> Option<(K, V)> {
        self.entries.iter().find_map(|entry| match entry.state {
            State::Known { value, until } if now < until && is(&value) => Some((entry.key, value)),
            State::Known { .. } | State::Asking { .. } | State::Failed { .. } => None,
        })
    }

    /// Forgets the questions about some.
    pub(super) fn remove(&mut self, is: impl Fn(&K) -> bool) {
        self.entries.retain(|entry| !is(&entry.key));
    }

    /// Forgets all answers. Questions that wait for theirs are asked anew at once.
    pub(super) fn forget(&mut self, now: Instant, transaction: impl FnMut() -> u64) {
        self.entries.retain(|entry| matches!(entry.state, State::Asking { .. }));
        self.again(now, transaction);
    }

    /// Asks at once, under other names, whatever waits for its answer: it is asked elsewhere.
    pub(super) fn again(&mut self, now: Instant, mut transaction: impl FnMut() -> u64) {
        for entry in &mut self.entries {
            if matches!(entry.state, State::Asking { .. }) {
                entry.state = State::Asking { transaction: transaction(), asked: 0, due: now };
            }
        }
    }

    /// When [`Questions::next`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let due = |entry: &Entry<K, V>| match entry.state {
            State::Asking { due, .. } => Some(due),
            State::Known { .. } | State::Failed { .. } => None,
        };
        self.entries.iter().filter_map(due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn questions() -> Questions<u32, u8, 8> {
        Questions::new(Duration::from_secs(600), Pace { first: S / 2, tries: 4 })
    }

    #[test]
    fn a_question_is_asked_four_times_and_then_has_failed_for_a_second() {
        let (mut questions, mut now) = (questions(), Instant::ZERO);
        assert!(questions.resolve(1, false, now, || 77).is_pending());
        let mut sent = std::vec::Vec::new();
        while questions.resolve(1, false, now, || 78).is_pending() {
            while let Some((key, transaction)) = questions.next(now) {
                assert_eq!((key, transaction), (1, 77));
                sent.push(now.as_nanos() / 1_000_000);
            }
            now = now + S / 20;
        }
        assert_eq!(sent, [0, 500, 1500, 3500]);
        assert_eq!(questions.resolve(1, false, now, || 78), Poll::Ready(Err(NoAnswer)));
        assert!(questions.resolve(1, false, now + S, || 79).is_pending());
        assert_eq!(questions.next(now + S), Some((1, 79)));
    }

    #[test]
    fn a_known_answer_is_not_taken_over() {
        let (mut questions, now) = (questions(), Instant::ZERO);
        questions.answer(1, Ok(9), now);
        assert!(questions.resolve(1, false, now, || 1).is_pending(), "nobody asked");
        assert_eq!(questions.asked(1), None, "it has not been sent");
        let _ = questions.next(now);
        assert_eq!(questions.asked(1), Some(1));
        questions.answer(1, Ok(5), now);
        questions.answer(1, Ok(6), now);
        questions.answer(1, Err(NoAnswer), now);
        assert_eq!(questions.resolve(1, false, now, || 2), Poll::Ready(Ok(5)));
        assert!(questions.resolve(1, false, now + 601 * S, || 3).is_pending());
    }

    /// Sixteen askers in turn, at each service: two questions every half second, and each question
    /// stays until its first try has had its time.
    #[test]
    fn askers_do_not_displace_one_another_before_they_can_be_answered() {
        let (mut questions, mut now) = (questions(), Instant::ZERO);
        let mut sent = std::vec::Vec::new();
        for turn in 0..200 {
            for key in 0..16 {
                let _ = questions.resolve((key + turn) % 16, true, now, || 1);
            }
            while let Some((key, _)) = questions.next(now) {
                sent.push(key);
            }
            assert!(questions.next_deadline().is_some_and(|due| due > now), "nothing due at once");
            now = now + S / 100;
        }
        // Two at first; every half second each is repeated, and then makes room.
        assert!((8..=18).contains(&sent.len()), "{sent:?}");
        sent.sort_unstable();
        sent.dedup();
        assert!(sent.len() >= 6, "{sent:?}");
    }

    #[test]
    fn those_who_ask_leave_room_and_own_questions_stay() {
        let (mut questions, now) = (questions(), Instant::ZERO);
        for key in 0..100 {
            let _ = questions.resolve(1000 + key, true, now, || 1);
        }
        assert_eq!(questions.entries.len(), 2);
        for key in 0..8 {
            let _ = questions.resolve(key, false, now, || 1);
        }
        assert!((0..8).all(|key| questions.entries.iter().any(|entry| entry.key == key)));
        let _ = questions.resolve(99, false, now, || 1);
        assert!(!questions.entries.iter().any(|entry| entry.key == 99));
    }
}
