//! What adapters of this process do, sent to clients of their sockets while they do it.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dat_core::{Activity, Severity};

use super::PATIENCE;

/// Most listeners of a process.
const LISTENERS: usize = 8;
/// Lines that wait for a listener: those behind are dropped, and counted.
const ROOM: usize = 4096;
/// Longest time until a listener that has gone is noticed.
const LOOK: Duration = Duration::from_millis(250);

/// Number of listeners, so that a process without any looks at one word.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static ALL: Mutex<Vec<Listener>> = Mutex::new(Vec::new());

struct Listener {
    lines: SyncSender<(Instant, String)>,
    dropped: u64,
}

/// A [`Hook`](dat_core::Hook) for [`Config::hook`](hca_mlx5::Config::hook): each client of [`listen`](super::listen) gets a line for
/// each activity. Without a listener it costs a look at one word.
pub fn traced(activity: &Activity) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let (now, line) = (Instant::now(), format!("{} {activity}", word(activity.severity())));
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain_mut(|listener| {
        if listener.dropped != 0 {
            let words = format!("warning {} lines were dropped", listener.dropped);
            if listener.lines.try_send((now, words)).is_ok() {
                listener.dropped = 0;
            }
        }
        match listener.lines.try_send((now, line.clone())) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                listener.dropped += 1;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    });
    COUNT.store(all.len(), Ordering::Relaxed);
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "info",
        Severity::Debug => "debug",
    }
}

/// Sends what happens from now on to a caller, in a thread, until it goes or `ended`.
pub(super) fn listen(stream: UnixStream, ended: Arc<AtomicBool>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (lines, received) = sync_channel(ROOM);
    {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= LISTENERS {
            return Err(io::Error::other("too many listen already"));
        }
        all.push(Listener { lines, dropped: 0 });
        COUNT.store(all.len(), Ordering::Relaxed);
    }
    let start = Instant::now();
    let send = move |mut stream: UnixStream| -> io::Result<()> {
        loop {
            match received.recv_timeout(LOOK) {
                Ok((time, line)) => {
                    let seconds = time.saturating_duration_since(start).as_secs_f64();
                    stream.write_all(format!("{seconds:.6} {line}\n").as_bytes())?;
                }
                Err(RecvTimeoutError::Timeout) if ended.load(Ordering::Relaxed) => return Ok(()),
                // An empty line is passed over there, and fails here once nobody is.
                Err(RecvTimeoutError::Timeout) => stream.write_all(b"\n")?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    };
    // The channel goes with the thread, and the next activity takes the listener off the list.
    let thread = thread::Builder::new().name("dat-trace".into());
    thread.spawn(move || drop(send(stream)))?;
    Ok(())
}
