//! Time as dat-core sees it: a number the host passes in. Nothing here reads a clock.

use core::ops::Add;
use core::ops::Sub;
use core::time::Duration;

/// A point in time, in nanoseconds since a start that only the host knows.
///
/// Every call that may start or check a deadline takes one; dat-core never waits and never asks
/// what time it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The host's start of time.
    pub const ZERO: Self = Self(0);
    /// A deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the host's start of time.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the host's start of time.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The sooner of two deadlines, of which each may be missing.
    #[must_use]
    #[inline(never)]
    pub fn sooner(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// The point `nanos` nanoseconds later.
    #[must_use]
    pub const fn after(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// The time from `earlier` to `self`; zero if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline(never)]
    fn add(self, span: Duration) -> Self {
        let seconds = span.as_secs().saturating_mul(1_000_000_000);
        let span = seconds.saturating_add(u64::from(span.subsec_nanos()));
        Self(self.0.saturating_add(span))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}
