//! Lines on standard error that name causes, as far as the parameter string of `dat.conf` asks for
//! them.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

/// The log level. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// Errors that keep an adapter from working.
    #[default]
    Error,
    /// Calls refused for a reason that their return code does not state.
    Warn,
    /// Adapters that open and close.
    Info,
    /// Every call that returns an error.
    Debug,
}

impl Level {
    /// Returns the level of a name.
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

/// Raises the level of the process to `level`, if that is higher.
pub(crate) fn raise(level: Level) {
    LEVEL.fetch_max(level as u8, Ordering::Relaxed);
}

/// Returns whether lines of that level are printed.
pub(crate) fn says(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Prints a line of a level.
#[cold]
pub(crate) fn say(level: Level, line: fmt::Arguments<'_>) {
    if says(level) {
        // An error of standard error cannot be reported anywhere.
        let _ = writeln!(std::io::stderr().lock(), "libdapldat[{}]: {line}", std::process::id());
    }
}
