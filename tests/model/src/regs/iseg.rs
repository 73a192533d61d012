//! The initialization segment: versions, command page, initializing, health, clocks.

use crate::config::Personality;
use crate::facts::OpenFact;
use crate::hca::Hca;
use crate::host::Nanos;
use rand::Rng;

/// State of the segment.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    /// `initializing` reads 1 until then.
    ready_at: Nanos,
    /// Nothing answers until then: a function just reset.
    absent_until: Nanos,
    /// nic_interface: 0 full driver, 1 disabled, which it is after every reset until a command
    /// page is set: a driver that a reset takes by surprise sees it in its health poll.
    pub(crate) nic_interface: u32,
    /// Health syndrome; a device that has one is dead.
    syndrome: u8,
    /// Time of death, where the health counter stands.
    died_at: Nanos,
}

/// Firmware version reported: that of the recorded card.
const FIRMWARE: (u32, u32, u32) = (14, 12, 1220);
/// Syndrome of a stale assert: a firmware assert.
const STALE_SYNDROME: u32 = 1;
/// Clock of the free-running timer, MHz.
const MHZ: u64 = 275;

impl Registers {
    /// Nobody there until `absent_until`, not ready until `ready_at`.
    pub(crate) fn after_reset(absent_until: Nanos, ready_at: Nanos) -> Self {
        Self { absent_until, ready_at, nic_interface: 1, ..Self::default() }
    }

    /// Whether the firmware has fallen.
    pub(crate) fn dead(&self) -> bool {
        self.syndrome != 0
    }

    /// Whether reads find nobody.
    pub(crate) fn absent(&self, now: Nanos) -> bool {
        now < self.absent_until
    }

    fn initializing(&self, now: Nanos) -> bool {
        now < self.ready_at
    }

    fn health_counter(&self, now: Nanos) -> u32 {
        let at = if self.dead() { self.died_at } else { now };
        (at / 10_000_000 + 1) as u32 & 0xff_ffff
    }

    pub(crate) fn die(&mut self, now: Nanos, syndrome: u8) {
        if !self.dead() {
            self.died_at = now;
        }
        self.syndrome = syndrome;
    }
}

/// Ticks of the device's free-running clock, as CQEs carry them.
pub(crate) fn ticks(now: Nanos) -> u64 {
    (u128::from(now) * u128::from(MHZ) / 1000) as u64
}

impl Hca {
    fn clock(&self) -> u64 {
        ticks(self.bus.now)
    }

    /// A word of the segment, as a number.
    pub(crate) fn iseg_word(&self, offset: u64) -> u32 {
        let now = self.bus.now;
        let facts = &self.config.facts;
        let firmware = self.config.card.map_or(FIRMWARE, |card| card.firmware.0);
        let synd = u32::from(self.regs.syndrome);
        // Another function's assert: byte 0x238 has no reset bit, byte 0x1010 may show it or not.
        let stale = facts.value(OpenFact::Health).filter(|_| synd == 0);
        let hides = facts.on(OpenFact::CommandAddress);
        let (size, stride) = self.slots();
        // Versions, and the health buffer as it was found.
        let found = matches!(offset, 0x000 | 0x004 | 0x200..0x240) && synd == 0 && stale.is_none();
        let recorded = self.recording().filter(|_| found);
        if let Some(word) = recorded.and_then(|recording| recording.word(offset as usize)) {
            return word;
        }
        match offset {
            0x010 if hides => 0,
            0x014 if hides => self.regs.nic_interface << 8 | size << 4 | stride,
            0x200 if stale.is_some() => 0x0001_2345,
            0x220 if stale.is_some() => 0x0080_1234,
            0x238 if stale.is_some() => (stale.unwrap_or(0) as u32 & 0xff) << 24,
            0x23c if stale.is_some() => STALE_SYNDROME << 16 | 0x8001,
            0x1010 if stale.is_some_and(|stale| stale >> 8 != 0) => {
                STALE_SYNDROME << 24 | self.regs.health_counter(now)
            }
            0x000 => firmware.1 << 16 | firmware.0,
            0x004 => 5 << 16 | firmware.2,
            0x010 => self.cmd.high,
            0x014 => {
                let base = self.cmd.base.unwrap_or(0) as u32 & 0xffff_f000;
                base | self.regs.nic_interface << 8 | size << 4 | stride
            }
            // Busy, and whether the firmware can be reset through nic_interface.
            0x1fc => {
                let resets = self.config.personality == Personality::Pf;
                let busy = u32::from(self.regs.initializing(now)) << 31;
                busy | u32::from(resets) << 30 | u32::from(self.embedded_cpu()) << 23
            }
            // Health buffer.
            0x230 => firmware.0 << 24 | firmware.1 << 16 | firmware.2,
            0x234 => 0x209,
            0x238 if synd != 0 => 0x8b00_0000,
            0x23c => synd << 16,
            0x1000 => (self.clock() >> 32) as u32,
            0x1004 => self.clock() as u32,
            0x1010 => synd << 24 | self.regs.health_counter(now),
            0x1040 => (now / 1_000_000_000) as u32,
            0x1044 => (now % 1_000_000_000) as u32,
            // What else the recorded card had there: time limits and the like.
            _ => self.recording().and_then(|recorded| recorded.word(offset as usize)).unwrap_or(0),
        }
    }

    /// A store to 0x14: the low half commits the address; bits 10:8 are the interface state.
    pub(crate) fn set_command_page(&mut self, word: u32) {
        let base = u64::from(self.cmd.high) << 32 | u64::from(word & 0xffff_f000);
        match word >> 8 & 7 {
            0 => {}
            1 => {
                self.regs.nic_interface = 1;
                self.cmd.base = None;
                return;
            }
            7 if matches!(self.config.device_id, 0x1013..=0x1016) => {
                self.reset_function();
                return;
            }
            state => {
                self.bus.complain(format!("nic_interface {state} written: not on this card"));
                return;
            }
        }
        if self.regs.initializing(self.bus.now) {
            self.bus.complain("command page written while initializing: lost");
            return;
        }
        if word & 0xff != 0 {
            self.bus.complain(format!("command page {word:#x} is not 4 KiB aligned"));
        }
        self.regs.nic_interface = 0;
        self.cmd.base = Some(base);
        if self.config.hardware_like {
            self.regs.ready_at = self.bus.now + self.bus.rng.random_range(1_000_000..50_000_000);
        }
    }
}
