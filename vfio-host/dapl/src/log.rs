//! Lines on standard error that name causes, as far as the parameter string of `dat.conf` asks for
//! them.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

/// How much is said. What is said at one level is said at all after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// What keeps an adapter from working.
    #[default]
    Error,
    /// Calls that were refused for a reason that their code cannot tell.
    Warn,
    /// Adapters that open and close.
    Info,
    /// Every call that returns an error.
    Debug,
}

impl Level {
    /// By its name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let levels = [
            ("off", Self::Off),
            ("error", Self::Error),
            ("warn", Self::Warn),
            ("info", Self::Info),
            ("debug", Self::Debug),
        ];
        levels.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
    }
}

/// The level of the process: the highest that any adapter asked for.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Error as u8);

/// Says more from now on, if `level` does.
pub(crate) fn raise(level: Level) {
    LEVEL.fetch_max(level as u8, Ordering::Relaxed);
}

/// Whether lines of that level are said.
pub(crate) fn says(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// One line.
#[cold]
pub(crate) fn say(level: Level, line: fmt::Arguments<'_>) {
    if says(level) {
        // Nobody is there to be told that this failed.
        let _ = writeln!(std::io::stderr().lock(), "libdapldat[{}]: {line}", std::process::id());
    }
}
