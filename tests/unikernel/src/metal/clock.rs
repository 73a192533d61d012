//! The clock: the time stamp counter, calibrated against the ACPI timer.

use core::arch::x86_64::_rdtsc;

use crate::acpi::Timer;

/// Ticks of the ACPI timer to measure for: 10 ms.
const MEASURED: u32 = 35_795;

/// A clock that counts nanoseconds since its creation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: u64,
    /// Nanoseconds of a tick, with 32 bits behind the point.
    scale: u64,
}

impl Clock {
    /// Calibrates the time stamp counter; `None` if the timer stands still.
    pub(crate) fn calibrate(timer: Timer) -> Option<Self> {
        let first = timer.count();
        let start = ticks();
        // Also ends if the timer stands still: no counter is so slow.
        for _ in 0..100_000_000 {
            let passed = timer.count().wrapping_sub(first) & 0xff_ffff;
            if passed >= MEASURED {
                let scale = scale(ticks().wrapping_sub(start), passed)?;
                return Some(Self { start, scale });
            }
            core::hint::spin_loop();
        }
        None
    }

    /// Nanoseconds since the clock was made.
    pub(crate) fn now(&self) -> u64 {
        nanos(ticks().wrapping_sub(self.start), self.scale)
    }

    /// Ticks of the counter in a second.
    pub(crate) fn hertz(&self) -> u64 {
        (1_000_000_000 << 32) / self.scale.max(1)
    }

    /// Busy-waits.
    pub(crate) fn spin(&self, nanos: u64) {
        let end = self.now().saturating_add(nanos);
        while self.now() < end {
            core::hint::spin_loop();
        }
    }
}

/// The time stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 has it, and reading it changes nothing.
    unsafe { _rdtsc() }
}

fn scale(ticks: u64, of_timer: u32) -> Option<u64> {
    let nanos = u128::from(of_timer) * 1_000_000_000 / u128::from(Timer::HERTZ);
    u64::try_from((nanos << 32).checked_div(ticks.into())?).ok().filter(|scale| *scale != 0)
}

fn nanos(ticks: u64, scale: u64) -> u64 {
    u64::try_from((u128::from(ticks) * u128::from(scale)) >> 32).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_milliseconds_of_the_timer_are_ten_milliseconds() {
        // A counter of 2.5 GHz.
        let scale = scale(25_000_000, MEASURED).unwrap();
        assert!(nanos(2_500_000_000, scale).abs_diff(1_000_000_000) < 50_000);
        // A century of it fits.
        assert!(nanos(2_500_000_000 * 3_155_760_000, scale) > 3_155_000_000_000_000_000);
    }

    #[test]
    fn a_counter_that_stands_still_is_no_clock() {
        assert_eq!(scale(0, MEASURED), None);
    }
}
