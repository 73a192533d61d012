//! Is the device alive?
//!
//! Three signs, from cheap to thorough: reads of all ones (it left the bus), a syndrome in the health registers (the
//! firmware stopped and says why), a health counter that stands still (the firmware stopped without a word). The first two
//! are looked at inside every wait; the third from the caller's tick, see [`Monitor`].
//!
//! What it does not do: recover. A lost device needs a reset, which is the host's.

use core::time::Duration;

use dat_core::Instant;
use dat_core::provider::{Fault, FaultKind};

use crate::platform::Platform;
use crate::prm::init_seg::{
    self, CommandQueueWord, HealthCounter, HealthSeverity, HealthWord, NIC_DISABLED, NIC_SW_RESET,
};

/// How often the counter is sampled.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);
/// So many equal samples in a row mean that the firmware stopped. A live one may pause for some six seconds.
const MISSES: u8 = 8;

const ALL_ONES: u32 = u32::MAX;

/// One register of the initialization segment, as a number.
pub(crate) fn read<P: Platform>(platform: &P, offset: usize) -> u32 {
    u32::from_be(platform.read32(offset))
}

/// Writes one.
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
    let gone = |cause| Fault::new(FaultKind::Gone, "health", cause);
    if read(platform, init_seg::HEALTH_FW_VER) == ALL_ONES
        && read(platform, init_seg::FW_REV) == ALL_ONES
    {
        return Some(
            gone("the device reads as all ones: it is off the bus")
                .advise("look at slot, link and power; reset it"),
        );
    }
    let counter = HealthCounter(read(platform, init_seg::HEALTH_COUNTER));
    let word = HealthWord(read(platform, init_seg::HEALTH_WORD));
    let severity = HealthSeverity(read(platform, init_seg::HEALTH_SEVERITY));
    for synd in [counter.syndrome(), word.synd()] {
        if synd != 0 && (synd != init_seg::HIGH_TEMPERATURE || severity.rfr()) {
            let cause = init_seg::health_syndrome(synd)
                .unwrap_or("the firmware reports an unknown health syndrome");
            let mut fault =
                gone(cause).advise("reset the device; if it comes again, report the syndrome");
            fault.syndrome = u32::from(synd);
            return Some(fault);
        }
    }
    match CommandQueueWord(read(platform, init_seg::CMDQ_ADDR_L_SZ)).nic_interface() {
        NIC_DISABLED => Some(gone("the device disabled its interface").advise("reset it")),
        NIC_SW_RESET => Some(
            gone("the device is being reset by somebody else")
                .advise("open it again when that is over"),
        ),
        _ => None,
    }
}

/// Watches the counter.
#[derive(Debug)]
pub(crate) struct Monitor {
    last: u32,
    misses: u8,
    due: Instant,
}

impl Monitor {
    /// Starts now.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            last: 0,
            misses: 0,
            due: now + PERIOD,
        }
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
        let counter = HealthCounter(read(platform, init_seg::HEALTH_COUNTER)).counter();
        if counter != self.last {
            (self.last, self.misses) = (counter, 0);
            return None;
        }
        self.misses = self.misses.saturating_add(1);
        (self.misses >= MISSES).then(|| {
            Fault::new(
                FaultKind::Gone,
                "health",
                "the health counter stands still: the firmware stopped",
            )
            .advise("reset the device")
        })
    }
}
