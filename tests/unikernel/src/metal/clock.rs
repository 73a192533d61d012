//! The clock: the counter of the machine, and the speed that the machine knows or measures.

use crate::machine;

/// A clock that counts nanoseconds since its creation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: u64,
    /// Nanoseconds of a tick, with 32 bits behind the point.
    scale: u64,
}

impl Clock {
    /// Makes a clock of a counter that takes `nanos` for `ticks`; `None` if it stands still.
    pub(crate) fn new(ticks: u64, nanos: u64) -> Option<Self> {
        let scale = (u128::from(nanos) << 32).checked_div(ticks.into())?;
        let scale = u64::try_from(scale).ok().filter(|scale| *scale != 0)?;
        Some(Self { start: machine::ticks(), scale })
    }

    /// Nanoseconds since the clock was made.
    pub(crate) fn now(&self) -> u64 {
        self.nanos(machine::ticks().wrapping_sub(self.start))
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

    fn nanos(&self, ticks: u64) -> u64 {
        let nanos = (u128::from(ticks) * u128::from(self.scale)) >> 32;
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_milliseconds_of_a_timer_are_ten_milliseconds() {
        // A counter of 2.5 GHz, and 10 ms of it.
        let clock = Clock::new(25_000_000, 10_000_000).unwrap();
        assert!(clock.nanos(2_500_000_000).abs_diff(1_000_000_000) < 50_000);
        assert!(clock.hertz().abs_diff(2_500_000_000) < 1_000_000);
        // A century of it fits.
        assert!(clock.nanos(2_500_000_000 * 3_155_760_000) > 3_155_000_000_000_000_000);
    }

    #[test]
    fn a_counter_that_stands_still_is_no_clock() {
        assert!(Clock::new(0, 10_000_000).is_none());
    }
}
