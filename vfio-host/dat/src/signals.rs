//! Ctrl-C: the first ends the work in good order, the second the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::failure::Failure;

/// What a shell reports of a program that a second Ctrl-C ended.
const ENDED: i32 = 130;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT and SIGTERM are requests.
pub(crate) fn watch() -> Result<(), Failure> {
    let asked = ASKED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        // The order counts: the first signal finds the flag unset.
        flag::register_conditional_shutdown(signal, ENDED, Arc::clone(asked))
            .and_then(|_| flag::register(signal, Arc::clone(asked)))
            .map_err(|error| Failure::new(format!("signals cannot be handled: {error}")))?;
    }
    Ok(())
}

/// Somebody asked for the end.
pub(crate) fn asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}
