//! Time, chance and short waits of the machine that the driver runs on.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Kind};
use crate::wakeups::Wakeups;

/// Where the kernel gives unpredictable bytes.
const RANDOM: &str = "/dev/urandom";
/// For so long a wait only lets others run.
const BRISK: u64 = 100_000;
/// Two calls that are further apart belong to two waits.
const APART: u64 = 5_000_000;
/// A sleep in a wait.
const NAP: Duration = Duration::from_millis(1);
/// A sleep that nothing ends early.
const BLIND_NAP: Duration = Duration::from_micros(100);

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    start: Instant,
    random: File,
    /// When the current wait began, and when it was last gone on with.
    began: AtomicU64,
    last: AtomicU64,
}

impl Machine {
    pub(crate) fn new() -> Result<Self, Error> {
        let random = File::open(RANDOM).map_err(|error| {
            Error::new(
                Kind::Unsupported,
                RANDOM,
                format!("no unpredictable numbers: {error}"),
                "mount devtmpfs on /dev",
            )
        })?;
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
    pub(crate) fn entropy(&self) -> u64 {
        let mut bytes = [0; 8];
        // The kernel's generator does not fail once it is open. If it did, the time and the process
        // are left.
        if (&self.random).read_exact(&mut bytes).is_err() {
            return self.now() ^ u64::from(std::process::id()).rotate_left(40);
        }
        u64::from_ne_bytes(bytes)
    }

    /// `Clock::relax`: lets others run for a moment, then sleeps between looks; the vector of
    /// commands ends such a sleep.
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
