//! The thread of an open adapter: it drives the adapter when the device interrupts or a deadline
//! has come, so that connections go on and waits end while no consumer is in a call. It sleeps
//! otherwise, and ends with the adapter.
#![expect(unsafe_code, reason = "a thread's signals are masked by the C library")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use vfio_host::error::Kind;
use vfio_host::{Error, Host};

use crate::adapter::Adapter;
use crate::variant::Variant;

/// Longest sleep: nothing relies on it.
const LONGEST: Duration = Duration::from_secs(3600);

/// Starts the thread.
pub(crate) fn start<V: Variant>(
    adapter: &'static Adapter<V>,
    host: &'static V::Host,
    stop: Arc<AtomicBool>,
) -> Result<JoinHandle<()>, Error> {
    let run = move || {
        deaf();
        while !stop.load(Ordering::Acquire) {
            if let Some(open) = adapter.lock().as_mut() {
                open.drive();
            }
            adapter.call_agents();
            host.wakeups().sleep(LONGEST);
        }
    };
    thread::Builder::new().name("dapldat".into()).spawn(run).map_err(|error| {
        let device = adapter.config.device.to_string();
        Error::new(Kind::Memory, device, format!("no thread to drive it: {error}"), "")
    })
}

/// Signals are the consumer's, and go to its threads.
fn deaf() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it is written to, and cannot fail.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set has been filled; the one before is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()) };
}
