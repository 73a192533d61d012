//! What this process and its devices hold at one time.

#![expect(unsafe_code, reason = "the allocator has no other way to be asked to give pages back")]

use std::fs;
use std::time::Duration;

/// The names of the values of a [`Sample`], in order.
pub(super) const NAMES: [&str; 9] = [
    "resident KiB",
    "descriptors",
    "mappings",
    "arena bytes",
    "firmware pages",
    "queues",
    "completion queues",
    "keys",
    "IOVA ranges",
];

/// The first values may vary a little: they are of the whole process. All others must be equal.
pub(super) const LOOSE: usize = 3;

/// One sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Since the start.
    pub at: Duration,
    /// Connections so far.
    pub connections: u64,
    /// As [`NAMES`] says.
    pub values: [u64; NAMES.len()],
}

impl Sample {
    /// Between two rounds. `held` is what the adapters of the last round held when nothing was
    /// connected, `mapped` the IOVA ranges of an open vfio-user host.
    #[must_use]
    pub fn take(at: Duration, connections: u64, held: [u64; 5], mapped: u64) -> Self {
        let [arena, pages, queues, cqs, keys] = held;
        let process = [resident(), descriptors(), mappings()];
        let [rss, fds, maps] = process;
        Self { at, connections, values: [rss, fds, maps, arena, pages, queues, cqs, keys, mapped] }
    }
}

/// KiB of memory that are resident. What is freed but kept by the allocator is not counted: how much
/// that is depends on the order in which threads free.
fn resident() -> u64 {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer; what is allocated stays.
    unsafe {
        libc::malloc_trim(0)
    };
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").unwrap().count() as u64
}

fn mappings() -> u64 {
    fs::read_to_string("/proc/self/maps").unwrap().lines().count() as u64
}
