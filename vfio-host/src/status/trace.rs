//! What adapters of this process do, sent to clients of their sockets while they do it.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::IpAddr;
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
    let mut line = format!("{} {activity}", word(activity.severity()));
    if let Activity::Datagram { sent, local, remote, mad, .. } = activity {
        line.push_str(&Datagram { sent: *sent, local: *local, remote: *remote, mad: *mad }.tail());
    }
    let now = Instant::now();
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

/// A datagram of the connection manager, behind the words of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The process sent it.
    pub sent: bool,
    /// The address of its adapter.
    pub local: IpAddr,
    /// The address of its peer.
    pub remote: IpAddr,
    /// All of it.
    pub mad: [u8; 256],
}

impl Datagram {
    /// What begins it in a line.
    const MARK: char = '\t';

    fn tail(&self) -> String {
        let Self { sent, local, remote, mad } = self;
        let way = if *sent { "sent" } else { "came" };
        let mut text = format!("{}{way} {local} {remote} ", Self::MARK);
        for byte in mad {
            // A string takes everything.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Divides the words of a line of [`listen`](super::listen) from the datagram behind them.
    #[must_use]
    pub fn split(words: &str) -> (&str, Option<Self>) {
        let Some((words, tail)) = words.split_once(Self::MARK) else { return (words, None) };
        (words, Self::parse(tail))
    }

    fn parse(tail: &str) -> Option<Self> {
        let mut parts = tail.trim_end().split(' ');
        let sent = match parts.next()? {
            "sent" => true,
            "came" => false,
            _ => return None,
        };
        let (local, remote) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let digits = parts.next()?.as_bytes();
        let mut mad = [0; 256];
        // A sign would be taken for a digit below.
        if digits.len() != 2 * mad.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, pair) in mad.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self { sent, local, remote, mad })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_datagram_behind_it() {
        let mut mad = [0; 256];
        mad[1] = 0xf7;
        let [local, remote] = ["10.0.0.1", "fd00::2"].map(|text| text.parse().unwrap());
        let datagram = Datagram { sent: true, local, remote, mad };
        let line = format!("debug REQ to fd00::2{}\n", datagram.tail());
        assert_eq!(Datagram::split(&line), ("debug REQ to fd00::2", Some(datagram)));
        assert_eq!(Datagram::split("info the link is up"), ("info the link is up", None));
        for bad in ["x", "x\t", "x\tsent 1 2 3", "x\tcame 10.0.0.1 10.0.0.2 00"] {
            assert_eq!(Datagram::split(bad), ("x", None), "{bad}");
        }
        let cut = &line[..line.len() - 3];
        assert_eq!(Datagram::split(cut).1, None);
        let sign = line.replace("00f7", "00+7");
        assert_eq!(Datagram::split(&sign).1, None);
    }
}
