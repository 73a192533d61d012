//! Is the device alive?
//!
//! It is lost, by the rule of Linux (`check_fatal_sensors`), when it reads as all ones, when its
//! interface is disabled or being reset, or when the health buffer has a syndrome and asks for a
//! reset. It is lost, too, when its command queue is not ours any more: somebody has reset it. The
//! cheap signs are looked at inside every wait, most of them when it has lasted for a second, all of
//! them at the caller's tick, see [`Monitor`].
//!
//! Anything else is a warning: the health buffer is shared by all functions of a card and keeps what
//! it says until the firmware is reset, so it may speak of another function's trouble long ago; and
//! a health counter that stands still says less than a command that is not answered.
//!
//! It does not recover. A lost device needs a reset, which is the host's task.

use core::time::Duration;

use dat_core::Instant;
use dat_core::fault;
use dat_core::provider::Fault;

use crate::platform::Platform;
use crate::prm::init_seg::{
    self, CommandQueueWord, HealthCounter, HealthSeverity, HealthWord, NIC_DISABLED, NIC_SW_RESET,
};

/// How often the counter is sampled.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);
/// And when a sample has to be taken once more before it is believed.
const AGAIN: Duration = Duration::from_millis(100);
/// So many equal samples in a row are worth a warning. A live firmware may pause for some six seconds.
const MISSES: u8 = 8;

const ALL_ONES: u32 = u32::MAX;

/// One register of the initialization segment, as a number.
#[inline(never)]
pub(crate) fn read<P: Platform>(platform: &P, offset: usize) -> u32 {
    u32::from_be(platform.read32(offset))
}

/// The host's clock.
#[inline(never)]
pub(crate) fn clock<P: Platform>(platform: &P) -> Instant {
    Instant::from_nanos(platform.now())
}

/// Writes one.
#[inline(never)]
pub(crate) fn write<P: Platform>(platform: &P, offset: usize, value: u32) {
    platform.write32(offset, value.to_be());
}

/// Why the device is lost, if one register says that it is; one load while all is well.
pub(crate) fn verdict<P: Platform>(platform: &P) -> Option<Fault> {
    let counter = HealthCounter(read(platform, init_seg::HEALTH_COUNTER));
    if counter.syndrome() == 0 {
        return None;
    }
    examine(platform)
}

/// Why the device is lost, if it is; reads all the signs.
pub(crate) fn examine<P: Platform>(platform: &P) -> Option<Fault> {
    if read(platform, init_seg::HEALTH_FW_VER) == ALL_ONES
        && read(platform, init_seg::FW_REV) == ALL_ONES
    {
        return Some(fault!(
            Gone,
            "health",
            "the device reads as all ones: it is off the bus",
            "look at slot, link and power; reset it",
        ));
    }
    if let Some(fault) = syndrome(platform) {
        if HealthSeverity(read(platform, init_seg::HEALTH_SEVERITY)).rfr() {
            return Some(fault);
        }
    }
    match CommandQueueWord(read(platform, init_seg::CMDQ_ADDR_L_SZ)).nic_interface() {
        NIC_DISABLED => {
            Some(fault!(Gone, "health", "the device disabled its interface", "reset it",))
        }
        NIC_SW_RESET => Some(fault!(
            Gone,
            "health",
            "the device is being reset by somebody else",
            "open it again when that is over",
        )),
        _ => None,
    }
}

/// What the health buffer says, if anything.
fn syndrome<P: Platform>(platform: &P) -> Option<Fault> {
    let counter = HealthCounter(read(platform, init_seg::HEALTH_COUNTER));
    let word = HealthWord(read(platform, init_seg::HEALTH_WORD));
    let synd = [word.synd(), counter.syndrome()].into_iter().find(|synd| *synd != 0)?;
    let fault = fault!(
        Gone,
        "health",
        init_seg::health_syndrome(synd)
            .unwrap_or("the firmware reports an unknown health syndrome"),
        "reset the device; if it comes again, report the syndrome",
    );
    Some(fault.with_answer(0, u32::from(synd)))
}

/// Where the device finds its commands, as it says.
fn command_queue<P: Platform>(platform: &P) -> (u32, u32) {
    let low = read(platform, init_seg::CMDQ_ADDR_L_SZ) & !0xfff;
    (read(platform, init_seg::CMDQ_ADDR_H), low)
}

/// What a tick may find.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sign {
    /// The device is lost.
    Lost(Fault),
    /// Something to be reported, once.
    Warning(Fault),
}

/// Watches the counter, the health buffer, and whether the device is still the one that was brought
/// up.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// Where the device found its commands when this began. A reset forgets that and leaves a
    /// device in best health.
    home: (u32, u32),
    /// At the last look it was elsewhere. One look may have come in the middle of a change.
    moved: bool,
    last: u32,
    misses: u8,
    due: Instant,
    /// The syndrome that was reported last.
    reported: u32,
}

impl Monitor {
    /// Starts now, on a device that knows its command queue.
    pub(crate) fn new<P: Platform>(platform: &P, now: Instant) -> Self {
        let home = command_queue(platform);
        Self { home, moved: false, last: 0, misses: 0, due: now + PERIOD, reported: 0 }
    }

    /// When [`Monitor::tick`] wants to be called again.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Looks, if it is time to.
    pub(crate) fn tick<P: Platform>(&mut self, platform: &P, now: Instant) -> Option<Sign> {
        if now < self.due {
            return None;
        }
        self.due = now + PERIOD;
        if let Some(fault) = examine(platform) {
            return Some(Sign::Lost(fault));
        }
        if command_queue(platform) != self.home {
            self.due = now + AGAIN;
            return core::mem::replace(&mut self.moved, true).then_some(Sign::Lost(fault!(
                Gone,
                "health",
                "the device does not know its command queue any more: it has been reset",
                "open it again"
            )));
        }
        self.moved = false;
        let found = syndrome(platform);
        let reported = found.map_or(0, |fault| fault.syndrome);
        if core::mem::replace(&mut self.reported, reported) != reported {
            if let Some(fault) = found {
                return Some(Sign::Warning(fault));
            }
        }
        let counter = HealthCounter(read(platform, init_seg::HEALTH_COUNTER)).counter();
        if counter != self.last {
            (self.last, self.misses) = (counter, 0);
            return None;
        }
        self.misses = self.misses.saturating_add(1);
        (self.misses == MISSES).then_some(Sign::Warning(fault!(
            Timeout,
            "health",
            "the health counter stands still: the firmware may have stopped",
            "if commands fail too, reset the device"
        )))
    }
}
