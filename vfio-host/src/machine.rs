//! Clock, random numbers and short waits of the machine that the driver runs on.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Kind};
use crate::wakeups::Wakeups;

/// The kernel's source of random bytes.
const RANDOM: &str = "/dev/urandom";
/// Nanoseconds for which a wait yields before it sleeps.
const BRISK: u64 = 100_000;
/// Nanoseconds between two calls above which they belong to two waits.
const APART: u64 = 5_000_000;
/// A sleep in a wait, if an interrupt can end it.
const NAP: Duration = Duration::from_millis(1);
/// A sleep in a wait, if nothing can end it early.
const BLIND_NAP: Duration = Duration::from_micros(100);

/// The clock, the random source and the state of the current wait.
#[derive(Debug)]
pub(crate) struct Machine {
    start: Instant,
    random: File,
    /// When the current wait began, and when it last called `relax`.
    began: AtomicU64,
    last: AtomicU64,
}

impl Machine {
    pub(crate) fn new() -> Result<Self, Error> {
        let random = File::open(RANDOM).map_err(no_entropy)?;
        Ok(Self {
            start: Instant::now(),
            random,
            began: AtomicU64::new(0),
            last: AtomicU64::new(0),
        })
    }

    /// `Clock::now`.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// `Host::entropy`.
    pub(crate) fn entropy(&self) -> Result<[u8; 32], Error> {
        let mut bytes = [0; 32];
        (&self.random).read_exact(&mut bytes).map_err(no_entropy)?;
        Ok(bytes)
    }

    /// `Clock::relax`: yields at first, later sleeps; the interrupt of the command vector ends
    /// such a sleep.
    pub(crate) fn relax(&self, wakeups: &Wakeups) {
        let now = self.now();
        let last = self.last.swap(now, Ordering::Relaxed);
        if now.saturating_sub(last) > APART {
            self.began.store(now, Ordering::Relaxed);
        }
        let waited = now.saturating_sub(self.began.load(Ordering::Relaxed));
        if waited < BRISK {
            std::thread::yield_now();
        } else if !wakeups.sleep_for_command(NAP) {
            std::thread::sleep(BLIND_NAP);
        }
    }
}

fn no_entropy(error: std::io::Error) -> Error {
    Error::new(
        Kind::Unsupported,
        RANDOM,
        format!("no unpredictable numbers: {error}"),
        "mount devtmpfs on /dev",
    )
    .because(error)
}
