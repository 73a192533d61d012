//! A wire with faults: at random by seed, or exactly where a rule says.
//!
//! Faults strike frames as they are *sent* through the wrapper, so wrap both ends to disturb both
//! directions. A held-back frame is released by later traffic or, at the latest, by model time;
//! poll `recv` after moving the clock. The same seed and the same traffic give the same faults.

use std::fmt;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{ModelClock, Wire, frame};
use crate::host::Nanos;

/// How long a frame to be overtaken waits if no other comes by.
pub const OVERTAKE_LIMIT: Nanos = 100_000;

/// Ethernet header bytes that corruption spares: a frame must still reach its destination.
const SPARED: usize = 14;

/// A P_Key that no port of RoCE has, of a full member.
const OTHER_PKEY: u16 = 0x9234;

/// Fault of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// One bit beyond the Ethernet header flips. IP and RoCE arrive so, as from a switch with bad
    /// memory: their own checks must find it. Any other frame is lost by the Ethernet's check.
    Corrupt,
    /// The P_Key of a RoCE frame becomes another, and its ICRC with it. No other frame is changed.
    Pkey,
    /// So many later frames go first.
    Overtaken(u32),
    /// It arrives later by this.
    Delay(Nanos),
}

/// Chances of random faults, in 1/1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of a loss.
    pub drop: u32,
    /// Of a duplicate.
    pub duplicate: u32,
    /// Of a flipped bit.
    pub corrupt: u32,
    /// Of being overtaken, by 1 to 4 frames.
    pub reorder: u32,
    /// Of another P_Key.
    pub pkey: u32,
}

/// Counts of faults that struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Struck {
    /// Losses.
    pub drop: u64,
    /// Duplicates.
    pub duplicate: u64,
    /// Flipped bits.
    pub corrupt: u64,
    /// Overtakings.
    pub reorder: u64,
    /// Delays.
    pub delay: u64,
    /// Other P_Keys.
    pub pkey: u64,
}

type Predicate = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// A scripted fault: strikes `times` frames, beginning with the `nth` (from 0) that matches.
struct Rule {
    matches: Predicate,
    nth: u32,
    times: u32,
    seen: u32,
    fault: Fault,
}

#[derive(Debug)]
struct Held {
    frame: Vec<u8>,
    frames: u32,
    due: Nanos,
}

/// A wire that disturbs what is sent through it.
pub struct Impaired<W> {
    inner: W,
    clock: ModelClock,
    rng: SmallRng,
    rates: Rates,
    rules: Vec<Rule>,
    held: Vec<Held>,
    struck: Struck,
}

impl<W: fmt::Debug> fmt::Debug for Impaired<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Impaired")
            .field("inner", &self.inner)
            .field("rates", &self.rates)
            .field("rules", &self.rules.len())
            .field("held", &self.held.len())
            .field("struck", &self.struck)
            .finish_non_exhaustive()
    }
}

impl<W: Wire> Impaired<W> {
    /// A wrapper that does nothing yet.
    pub fn new(inner: W, clock: ModelClock, seed: u64) -> Self {
        Self {
            inner,
            clock,
            rng: SmallRng::seed_from_u64(seed),
            rates: Rates::default(),
            rules: Vec::new(),
            held: Vec::new(),
            struck: Struck::default(),
        }
    }

    /// Sets the chances of random faults.
    #[must_use]
    pub fn rates(mut self, rates: Rates) -> Self {
        self.rates = rates;
        self
    }

    /// Changes the chances from now on.
    pub fn set_rates(&mut self, rates: Rates) {
        self.rates = rates;
    }

    /// Adds a scripted fault for `times` frames from the `nth` matching one on, counted from 0.
    /// Each rule counts by itself; of several that strike, the first wins.
    pub fn rule(
        &mut self,
        nth: u32,
        times: u32,
        fault: Fault,
        matches: impl FnMut(&[u8]) -> bool + Send + 'static,
    ) {
        self.rules.push(Rule { matches: Box::new(matches), nth, times, seen: 0, fault });
    }

    /// The wire that is wrapped.
    pub fn inner(&self) -> &W {
        &self.inner
    }

    /// Returns the faults so far.
    #[must_use]
    pub fn struck(&self) -> Struck {
        self.struck
    }

    fn pick(&mut self, frame: &[u8]) -> Option<Fault> {
        let mut scripted = None;
        for rule in &mut self.rules {
            if (rule.matches)(frame) {
                let at = rule.seen;
                rule.seen = rule.seen.saturating_add(1);
                let strikes = at >= rule.nth && at - rule.nth < rule.times;
                scripted = scripted.or(strikes.then_some(rule.fault));
            }
        }
        self.rules.retain(|rule| rule.seen < rule.nth.saturating_add(rule.times));
        if scripted.is_some() {
            return scripted;
        }
        let r = self.rates;
        let mut dice = self.rng.random_range(0..1000u32);
        let overtaken = Fault::Overtaken(1 + self.rng.random_range(0..4u32));
        for (chance, fault) in [
            (r.drop, Fault::Drop),
            (r.duplicate, Fault::Duplicate),
            (r.corrupt, Fault::Corrupt),
            (r.reorder, overtaken),
            (r.pkey, Fault::Pkey),
        ] {
            if dice < chance {
                return Some(fault);
            }
            dice -= chance;
        }
        None
    }

    /// Sends what is due by time, and, if a frame has passed, what waited for it.
    fn release(&mut self, passed: bool) {
        let now = self.clock.now();
        let mut at = 0;
        while let Some(held) = self.held.get_mut(at) {
            if passed {
                held.frames = held.frames.saturating_sub(1);
            }
            if held.frames == 0 || held.due <= now {
                let held = self.held.remove(at);
                self.inner.send(&held.frame);
            } else {
                at += 1;
            }
        }
    }
}

impl<W: Wire> Impaired<W> {
    /// Sends a frame that a fault strikes.
    fn strike(&mut self, frame: &[u8], fault: Fault) {
        let now = self.clock.now();
        let mut keep = None;
        match fault {
            Fault::Drop => self.struck.drop += 1,
            Fault::Duplicate => {
                self.struck.duplicate += 1;
                self.inner.send(frame);
                self.inner.send(frame);
            }
            Fault::Corrupt => {
                self.struck.corrupt += 1;
                let mut bad = frame.to_vec();
                if bad.len() > SPARED {
                    let at = self.rng.random_range(SPARED..bad.len());
                    let bit = self.rng.random_range(0..8u32);
                    if let Some(byte) = bad.get_mut(at) {
                        *byte ^= 1 << bit;
                    }
                }
                if is_checked(frame) {
                    self.inner.send(&bad);
                }
            }
            Fault::Pkey => match frame::with_pkey(frame, OTHER_PKEY) {
                Some(other) => {
                    self.struck.pkey += 1;
                    self.inner.send(&other);
                }
                None => self.inner.send(frame),
            },
            Fault::Overtaken(frames) => {
                self.struck.reorder += 1;
                let due = now.saturating_add(OVERTAKE_LIMIT);
                keep = Some(Held { frame: frame.to_vec(), frames: frames.max(1), due });
            }
            Fault::Delay(by) => {
                self.struck.delay += 1;
                let due = now.saturating_add(by);
                keep = Some(Held { frame: frame.to_vec(), frames: u32::MAX, due });
            }
        }
        let passed = keep.is_none();
        self.release(passed);
        self.held.extend(keep);
    }
}

impl<W: Wire> Wire for Impaired<W> {
    fn send(&mut self, frame: &[u8]) {
        self.send_owned(frame.to_vec());
    }

    fn send_owned(&mut self, frame: Vec<u8>) {
        match self.pick(&frame) {
            None => {
                self.inner.send_owned(frame);
                self.release(true);
            }
            Some(fault) => self.strike(&frame, fault),
        }
    }

    fn recv(&mut self) -> Option<Vec<u8>> {
        self.release(false);
        self.inner.recv()
    }

    fn set_carrier(&mut self, is_up: bool) {
        self.inner.set_carrier(is_up);
    }
}

/// Whether a frame has checks of its own, on a VLAN or without.
fn is_checked(frame: &[u8]) -> bool {
    let at = if frame.get(12..14) == Some(&[0x81, 0x00]) { 16 } else { 12 };
    matches!(frame.get(at..at + 2), Some([0x08, 0x00] | [0x86, 0xdd] | [0x89, 0x15]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::switch::{Port, cable};

    fn pair(seed: u64) -> (Impaired<Port>, Port, ModelClock) {
        let clock = ModelClock::default();
        let (a, b) = cable();
        (Impaired::new(a, clock.clone(), seed), b, clock)
    }

    fn frame(n: u8) -> Vec<u8> {
        let mut f = vec![2; 60];
        f[12..14].copy_from_slice(&[8, 0]);
        f[14] = n;
        f
    }

    fn drain(port: &mut Port) -> Vec<u8> {
        std::iter::from_fn(|| port.recv()).map(|f| f[14]).collect()
    }

    #[test]
    fn the_nth_matching_frame_is_dropped() {
        let (mut a, mut b, _) = pair(1);
        a.rule(1, 1, Fault::Drop, |f| f[14] >= 10);
        for n in [1, 10, 2, 11, 12] {
            a.send(&frame(n));
        }
        assert_eq!(drain(&mut b), [1, 10, 2, 12]);
        assert_eq!(a.struck().drop, 1);
    }

    #[test]
    fn duplicates_and_overtaking() {
        let (mut a, mut b, _) = pair(1);
        a.rule(0, 1, Fault::Duplicate, |f| f[14] == 1);
        a.rule(0, 1, Fault::Overtaken(2), |f| f[14] == 2);
        for n in 1..=5 {
            a.send(&frame(n));
        }
        assert_eq!(drain(&mut b), [1, 1, 3, 4, 2, 5]);
    }

    #[test]
    fn time_releases_what_is_held() {
        let (mut a, mut b, clock) = pair(1);
        a.rule(0, 1, Fault::Delay(5_000), |f| f[14] == 1);
        a.rule(0, 1, Fault::Overtaken(9), |f| f[14] == 2);
        a.send(&frame(1));
        a.send(&frame(2));
        a.send(&frame(3));
        assert_eq!(drain(&mut b), [3]);
        clock.set(4_999);
        a.recv();
        assert_eq!(drain(&mut b), [0; 0]);
        clock.set(5_000);
        a.recv();
        assert_eq!(drain(&mut b), [1]);
        clock.set(OVERTAKE_LIMIT);
        a.recv();
        assert_eq!(drain(&mut b), [2]);
    }

    #[test]
    fn a_corrupt_frame_without_a_check_of_its_own_is_lost() {
        let (mut a, mut b, _) = pair(3);
        a.rule(0, 1, Fault::Corrupt, |_| true);
        let mut arp = frame(0);
        arp[12..14].copy_from_slice(&[8, 6]);
        a.send(&arp);
        assert_eq!((b.recv(), a.struck().corrupt), (None, 1));
    }

    #[test]
    fn corruption_flips_one_bit_behind_the_ethernet_header() {
        let (mut a, mut b, _) = pair(3);
        a.rule(0, 50, Fault::Corrupt, |_| true);
        for _ in 0..50 {
            a.send(&frame(0));
            let got = b.recv().unwrap();
            let flipped: u32 = got.iter().zip(frame(0)).map(|(x, y)| (x ^ y).count_ones()).sum();
            assert_eq!(flipped, 1);
            assert_eq!(got[..SPARED], frame(0)[..SPARED]);
        }
    }

    #[test]
    fn random_faults_follow_the_seed_and_the_rates() {
        let run = |seed| {
            let (a, mut b, _) = pair(seed);
            let mut a =
                a.rates(Rates { drop: 100, duplicate: 50, corrupt: 0, reorder: 30, pkey: 0 });
            for n in 0..1000u32 {
                a.send(&frame(n.to_le_bytes()[0]));
            }
            (drain(&mut b), a.struck())
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5).0, run(6).0);
        let struck = run(5).1;
        assert!((60..140).contains(&struck.drop), "{struck:?}");
        assert!((25..80).contains(&struck.duplicate), "{struck:?}");
        assert!((10..55).contains(&struck.reorder), "{struck:?}");
    }
}
