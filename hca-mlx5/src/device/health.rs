//! Is the device alive?
//!
//! Four signs, from cheap to thorough: reads of all ones (it left the bus), a syndrome in the
//! health registers (the firmware stopped and says why), a command queue that is not ours any more
//! (somebody reset the device), a health counter that stands still (the firmware stopped without a
//! word). The first two are looked at inside every wait; the others from the caller's tick, see
//! [`Monitor`].
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
/// So many equal samples in a row mean that the firmware stopped. A live one may pause for some six
/// seconds.
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
    let counter = HealthCounter(read(platform, init_seg::HEALTH_COUNTER));
    let word = HealthWord(read(platform, init_seg::HEALTH_WORD));
    let severity = HealthSeverity(read(platform, init_seg::HEALTH_SEVERITY));
    for synd in [counter.syndrome(), word.synd()] {
        if synd != 0 && (synd != init_seg::HIGH_TEMPERATURE || severity.rfr()) {
            let fault = fault!(
                Gone,
                "health",
                init_seg::health_syndrome(synd)
                    .unwrap_or("the firmware reports an unknown health syndrome"),
                "reset the device; if it comes again, report the syndrome",
            );
            return Some(fault.with_answer(0, u32::from(synd)));
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

/// Where the device finds its commands, as it says.
fn command_queue<P: Platform>(platform: &P) -> (u32, u32) {
    let low = read(platform, init_seg::CMDQ_ADDR_L_SZ) & !0xfff;
    (read(platform, init_seg::CMDQ_ADDR_H), low)
}

/// Watches the counter, and whether the device is still the one that was brought up.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// Where the device found its commands when this began. A reset forgets that and leaves a
    /// device in best health.
    home: (u32, u32),
    last: u32,
    misses: u8,
    due: Instant,
}

impl Monitor {
    /// Starts now, on a device that knows its command queue.
    pub(crate) fn new<P: Platform>(platform: &P, now: Instant) -> Self {
        Self { home: command_queue(platform), last: 0, misses: 0, due: now + PERIOD }
    }

    /// When [`Monitor::tick`] wants to be called again.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Looks, if it is time to.
    pub(crate) fn tick<P: Platform>(&mut self, platform: &P, now: Instant) -> Option<Fault> {
        if now < self.due {
            return None;
        }
        self.due = now + PERIOD;
        if let Some(fault) = examine(platform) {
            return Some(fault);
        }
        if command_queue(platform) != self.home {
            return Some(fault!(
                Gone,
                "health",
                "the device does not know its command queue any more: it has been reset",
                "open it again"
            ));
        }
        let counter = HealthCounter(read(platform, init_seg::HEALTH_COUNTER)).counter();
        if counter != self.last {
            (self.last, self.misses) = (counter, 0);
            return None;
        }
        self.misses = self.misses.saturating_add(1);
        (self.misses >= MISSES).then(|| {
            fault!(
                Gone,
                "health",
                "the health counter stands still: the firmware stopped",
                "reset the device"
            )
        })
    }
}
