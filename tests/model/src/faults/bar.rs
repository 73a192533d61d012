//! Faults between a driver and the BAR of its device.

use crate::eq::Event;
use crate::hca::Hca;
use crate::host::Nanos;
use std::collections::BTreeSet;

/// A device as its host sees it.
pub trait Device {
    /// Reads BAR0.
    fn bar_read(&mut self, offset: u64, buf: &mut [u8]);
    /// Writes BAR0.
    fn bar_write(&mut self, offset: u64, bytes: &[u8]);
    /// Reads configuration space.
    fn config_read(&mut self, offset: usize, buf: &mut [u8]);
    /// Writes configuration space.
    fn config_write(&mut self, offset: usize, bytes: &[u8]);
    /// Does what is due; says when next.
    fn step(&mut self, now: Nanos) -> Option<Nanos>;
    /// Vectors that fired since the last call.
    fn interrupts(&mut self) -> Vec<u16>;
}

impl Device for Hca {
    fn bar_read(&mut self, offset: u64, buf: &mut [u8]) {
        Self::bar_read(self, offset, buf);
    }

    fn bar_write(&mut self, offset: u64, bytes: &[u8]) {
        Self::bar_write(self, offset, bytes);
    }

    fn config_read(&mut self, offset: usize, buf: &mut [u8]) {
        Self::config_read(self, offset, buf);
    }

    fn config_write(&mut self, offset: usize, bytes: &[u8]) {
        Self::config_write(self, offset, bytes);
    }

    fn step(&mut self, now: Nanos) -> Option<Nanos> {
        Self::step(self, now)
    }

    fn interrupts(&mut self) -> Vec<u16> {
        Self::interrupts(self)
    }
}

/// Something that happens to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Somebody resets the function.
    Flr,
    /// The firmware falls with this syndrome.
    Die(u8),
    /// The cable is plugged or pulled.
    Link(bool),
    /// Pages are asked for, or with a negative number asked back.
    Pages(i32),
    /// An event nobody caused; into one queue, or the subscribed one.
    Event(Option<u8>, Event),
    /// The device falls off the bus, or comes back.
    AllOnes(bool),
}

/// Lasting faults of the BAR and the interrupts.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// Every read gives ones and no store arrives.
    pub all_ones: bool,
    /// `initializing` never clears.
    pub initializing: bool,
    /// The health counter stands at its first value read.
    pub frozen_health: bool,
    /// Vectors that do not arrive.
    pub lost_vectors: BTreeSet<u16>,
    /// Vectors that arrive although nothing happened, once.
    pub spurious_vectors: BTreeSet<u16>,
    /// How many of the next stores to doorbells (UAR pages and the command doorbell) are lost.
    pub lost_doorbells: u32,
    /// Every doorbell arrives twice.
    pub doubled_doorbells: bool,
}

/// A device with trouble around it. The fields are public: a test sets what it needs, when it needs
/// it.
#[derive(Debug)]
pub struct Faulty {
    /// The device.
    pub hca: Hca,
    /// The present trouble.
    pub trouble: Trouble,
    schedule: Vec<(Nanos, Happening)>,
    health: Option<u32>,
}

const COMMAND_DOORBELL: u64 = 0x18;
const INITIALIZING: u64 = 0x1fc;
const HEALTH_COUNTER: u64 = 0x1010;

impl Faulty {
    /// No trouble yet.
    pub fn new(hca: Hca) -> Self {
        Self { hca, trouble: Trouble::default(), schedule: Vec::new(), health: None }
    }

    /// Lets something happen at a time; several at the same time happen in the order given.
    pub fn at(&mut self, when: Nanos, what: Happening) {
        self.schedule.push((when, what));
        self.schedule.sort_by_key(|(when, _)| *when);
    }

    fn happen(&mut self, what: &Happening) {
        match what {
            Happening::Flr => self.hca.flr(),
            Happening::Die(syndrome) => self.hca.die(*syndrome),
            Happening::Link(up) => self.hca.set_link(*up),
            Happening::Pages(count) => self.hca.request_pages(*count),
            Happening::Event(eqn, event) => self.hca.inject_event(*eqn, event),
            Happening::AllOnes(on) => self.trouble.all_ones = *on,
        }
    }

    /// Replaces the part of a read that covers a register.
    fn overlay(offset: u64, buf: &mut [u8], register: u64, change: impl Fn(u32) -> u32) {
        let Some(at) = register.checked_sub(offset).and_then(|at| usize::try_from(at).ok()) else {
            return;
        };
        if let Some(word) = buf.get_mut(at..at + 4) {
            let old = word.iter().fold(0, |acc, byte| acc << 8 | u32::from(*byte));
            word.copy_from_slice(&change(old).to_be_bytes());
        }
    }
}

impl Device for Faulty {
    fn bar_read(&mut self, offset: u64, buf: &mut [u8]) {
        if self.trouble.all_ones {
            buf.fill(0xff);
            return;
        }
        self.hca.bar_read(offset, buf);
        if self.trouble.initializing {
            Self::overlay(offset, buf, INITIALIZING, |word| word | 1 << 31);
        }
        if self.trouble.frozen_health {
            let mut now = [0; 4];
            self.hca.bar_read(HEALTH_COUNTER, &mut now);
            let frozen = *self.health.get_or_insert(u32::from_be_bytes(now));
            Self::overlay(offset, buf, HEALTH_COUNTER, |_| frozen);
        } else {
            self.health = None;
        }
    }

    fn bar_write(&mut self, offset: u64, bytes: &[u8]) {
        if self.trouble.all_ones {
            return;
        }
        let doorbell = offset == COMMAND_DOORBELL || offset >= 0x4000;
        if doorbell && self.trouble.lost_doorbells != 0 {
            self.trouble.lost_doorbells -= 1;
            return;
        }
        self.hca.bar_write(offset, bytes);
        if doorbell && self.trouble.doubled_doorbells {
            self.hca.bar_write(offset, bytes);
        }
    }

    fn config_read(&mut self, offset: usize, buf: &mut [u8]) {
        if self.trouble.all_ones {
            buf.fill(0xff);
        } else {
            self.hca.config_read(offset, buf);
        }
    }

    fn config_write(&mut self, offset: usize, bytes: &[u8]) {
        if !self.trouble.all_ones {
            self.hca.config_write(offset, bytes);
        }
    }

    fn step(&mut self, now: Nanos) -> Option<Nanos> {
        while self.schedule.first().is_some_and(|(when, _)| *when <= now) {
            let (when, what) = self.schedule.remove(0);
            self.hca.step(when);
            self.happen(&what);
        }
        let next = self.hca.step(now);
        self.schedule.first().map(|(when, _)| *when).into_iter().chain(next).min()
    }

    fn interrupts(&mut self) -> Vec<u16> {
        let spurious = core::mem::take(&mut self.trouble.spurious_vectors);
        let mut vectors: BTreeSet<u16> =
            self.hca.interrupts().into_iter().chain(spurious).collect();
        vectors.retain(|vector| !self.trouble.lost_vectors.contains(vector));
        vectors.into_iter().collect()
    }
}
