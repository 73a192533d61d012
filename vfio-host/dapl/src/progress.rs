//! The progress thread of an open adapter. It drives the adapter on interrupts and deadlines, so
//! that connections proceed and waits end while no consumer is in a call. It sleeps otherwise, and
//! ends with the adapter.
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
        block_signals();
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

/// Blocks all signals in this thread: the consumer's threads handle them.
fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call only writes the set, and cannot fail.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set is initialized; the previous set is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()) };
}
