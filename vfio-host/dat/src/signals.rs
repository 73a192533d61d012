//! Signals. Ctrl-C: the first ends the command gracefully, the second ends the process.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::flag;

use super::failure::Failure;

/// The exit code of a process that a second Ctrl-C ends.
pub(crate) const ENDED: u8 = 130;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Handles SIGINT and SIGTERM as requests to end.
pub(crate) fn watch() -> Result<(), Failure> {
    let asked = ASKED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the first signal must find the flag unset.
        flag::register_conditional_shutdown(signal, ENDED.into(), Arc::clone(asked))
            .and_then(|_| flag::register(signal, Arc::clone(asked)))
            .map_err(unhandled)?;
    }
    Ok(())
}

/// Makes the kernel keep how a child ended until it is waited for. It does not if the parent of this
/// process ignored SIGCHLD, which is inherited.
pub(crate) fn keep_ends_of_children() -> Result<(), Failure> {
    flag::register(SIGCHLD, Arc::default()).map(drop).map_err(unhandled)
}

fn unhandled(error: io::Error) -> Failure {
    Failure::new(format!("signals cannot be handled: {error}"))
}

/// Returns whether the command has been asked to end.
pub(crate) fn asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}
