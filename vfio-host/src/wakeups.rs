//! All wake-ups of one device behind one file descriptor.
//!
//! Interrupt vectors and trouble of the device are eventfds, the next deadline is a timerfd, the
//! end of a server is a hang-up of its socket. An epoll set holds them all, so that a program polls
//! one descriptor for either kind of host. A wake-up stays until [`Wakeups::clear`]; see
//! [`crate::wait`] for the order of calls.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::error::{Error, Kind};
use crate::host::Trouble;

/// Largest number of wired interrupt vectors: asynchronous events, completions, commands.
pub const VECTORS: usize = 3;
/// The vector of commands, if there are that many.
const COMMANDS: usize = 2;

/// Marks in the epoll set, above those of the vectors.
const TIMER: u64 = 16;
const ERROR: u64 = 17;
const REMOVAL: u64 = 18;
const PEER: u64 = 19;
const CALLER: u64 = 20;
/// Largest number of descriptors in the set.
const MEMBERS: usize = 8;

/// The file descriptors of one device.
#[derive(Debug)]
pub struct Wakeups {
    set: OwnedFd,
    timer: OwnedFd,
    vectors: Vec<OwnedFd>,
    /// Number of interrupts taken, by vector.
    taken: [AtomicU64; VECTORS],
    error: OwnedFd,
    removal: OwnedFd,
    /// Somebody asks what the adapter is doing.
    caller: OwnedFd,
    /// Bits of the marks [`ERROR`], [`REMOVAL`], [`PEER`] that were seen.
    seen: AtomicU64,
}

impl Wakeups {
    /// Makes descriptors for `vectors` vectors, at most [`VECTORS`].
    pub(crate) fn new(vectors: usize) -> Result<Self, Error> {
        Self::make(vectors.clamp(1, VECTORS)).map_err(|errno| {
            Error::new(
                Kind::Memory,
                "wake-ups",
                format!("no file descriptors for them: {errno}"),
                "raise the limit of open files (ulimit -n)",
            )
            .because(errno)
        })
    }

    fn make(count: usize) -> Result<Self, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let vectors = (0..count).map(|_| eventfd(0, flags)).collect::<Result<Vec<_>, _>>()?;
        let made = Self {
            set: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            timer: timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )?,
            vectors,
            taken: Default::default(),
            error: eventfd(0, flags)?,
            removal: eventfd(0, flags)?,
            caller: eventfd(0, flags)?,
            seen: AtomicU64::new(0),
        };
        // The vector of commands is not in the set: it wakes waits for commands only.
        for (mark, fd) in (0..).zip(&made.vectors).take(COMMANDS) {
            made.watch(fd, mark, epoll::EventFlags::IN)?;
        }
        made.watch(&made.timer, TIMER, epoll::EventFlags::IN)?;
        made.watch(&made.error, ERROR, epoll::EventFlags::IN)?;
        made.watch(&made.removal, REMOVAL, epoll::EventFlags::IN)?;
        made.watch(&made.caller, CALLER, epoll::EventFlags::IN)?;
        Ok(made)
    }

    fn watch(&self, fd: impl AsFd, mark: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.set, fd, epoll::EventData::new_u64(mark), flags)
    }

    /// Watches the socket of a server for a hang-up, which is reported once.
    pub(crate) fn watch_peer(&self, socket: impl AsFd) -> Result<(), Errno> {
        let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT;
        self.watch(socket, PEER, flags)
    }

    /// Returns the eventfds of the vectors, in order.
    pub(crate) fn vectors(&self) -> &[OwnedFd] {
        &self.vectors
    }

    /// Returns the eventfd for bus errors.
    pub(crate) fn error(&self) -> &OwnedFd {
        &self.error
    }

    /// Returns the eventfd by which the kernel requests the device's removal.
    pub(crate) fn removal(&self) -> &OwnedFd {
        &self.removal
    }

    /// Returns the eventfd by which another thread wakes the one that drives the adapter.
    pub(crate) fn caller(&self) -> &OwnedFd {
        &self.caller
    }

    /// Returns the number of interrupts taken so far on `vector`.
    #[must_use]
    pub fn interrupts(&self, vector: usize) -> u64 {
        self.taken.get(vector).map_or(0, |taken| taken.load(Ordering::Relaxed))
    }

    /// Returns the trouble that was reported, if any.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        if self.saw(ERROR) {
            return Some(Trouble::BusError);
        }
        self.saw(REMOVAL).then_some(Trouble::RemovalRequested)
    }

    /// Returns whether the server has hung up.
    pub(crate) fn saw_peer_end(&self) -> bool {
        self.saw(PEER)
    }

    fn saw(&self, mark: u64) -> bool {
        self.seen.load(Ordering::Acquire) & (1 << mark) != 0
    }

    /// Clears all wake-ups. Trouble is remembered.
    pub fn clear(&self) {
        let mut found = [const { None }; MEMBERS];
        for mark in self.ready(&mut found) {
            match mark {
                TIMER => drop(drain(&self.timer)),
                ERROR => drop(drain(&self.error)),
                REMOVAL => drop(drain(&self.removal)),
                CALLER => drop(drain(&self.caller)),
                PEER => {}
                vector => self.take(usize::try_from(vector).unwrap_or(VECTORS)),
            }
            if matches!(mark, ERROR | REMOVAL | PEER) {
                self.seen.fetch_or(1 << mark, Ordering::AcqRel);
            }
        }
    }

    /// Returns the marks of the descriptors that are ready.
    fn ready<'m>(&self, marks: &'m mut [Option<u64>; MEMBERS]) -> impl Iterator<Item = u64> + 'm {
        let empty =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [empty; MEMBERS];
        let now = Timespec::default();
        let count = epoll::wait(&self.set, &mut events[..], Some(&now)).unwrap_or(0);
        for (place, event) in marks.iter_mut().zip(events).take(count) {
            *place = Some(event.data.u64());
        }
        marks.iter().copied().flatten()
    }

    /// Sleeps until a wake-up, or for `limit`. The wake-up stays until it is cleared.
    pub fn sleep(&self, limit: Duration) {
        sleep_on(&self.set, limit);
    }

    /// Sleeps until the device reports a command as done, or for `limit`. Returns whether there is
    /// a vector for that.
    pub(crate) fn sleep_for_command(&self, limit: Duration) -> bool {
        let Some(fd) = self.vectors.get(COMMANDS) else {
            return false;
        };
        sleep_on(fd, limit);
        self.take(COMMANDS);
        true
    }

    /// Sets the timer to wake after a time; `None` switches it off.
    pub fn set_timer(&self, after: Option<Duration>) {
        // A time of 0 would switch the timer off.
        let after = after.map_or(Duration::ZERO, |after| after.max(Duration::from_nanos(1)));
        let setting = Itimerspec { it_interval: Timespec::default(), it_value: timespec(after) };
        // Cannot fail: the descriptor is a timer and the value a valid time. Even if it did,
        // `sleep` has its own limit.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting);
    }

    /// Counts and clears the interrupts of a vector.
    fn take(&self, vector: usize) {
        if let (Some(fd), Some(taken)) = (self.vectors.get(vector), self.taken.get(vector)) {
            taken.fetch_add(drain(fd), Ordering::Relaxed);
        }
    }
}

/// The descriptor is readable while a wake-up has not been cleared.
impl AsFd for Wakeups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

fn sleep_on(fd: &OwnedFd, limit: Duration) {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    // A sleep that a signal interrupts is a short one: the caller looks and sleeps again.
    let _ = poll(&mut fds, Some(&timespec(limit)));
}

/// Returns a span as the kernel's calls take it.
pub(crate) fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: span.subsec_nanos().into(),
    }
}

/// Reads the count of an eventfd or timerfd, which resets it to 0. Does not wait, even if a server
/// that has the eventfd too has made it a blocking one and taken the count.
fn drain(fd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    let to = &mut [IoSliceMut::new(&mut count)];
    let read = match preadv2(fd, to, u64::MAX, ReadWriteFlags::NOWAIT) {
        // An older kernel, whose timerfd (no server has that) or eventfd is not read this way.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => rustix::io::read(fd, &mut count),
        read => read,
    };
    match read {
        Ok(8) => u64::from_ne_bytes(count),
        Ok(_) | Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    fn fire(fd: &OwnedFd) {
        rustix::io::write(fd, &1u64.to_ne_bytes()).unwrap();
    }

    fn wakes(wakeups: &Wakeups) -> bool {
        let mut fds = [PollFd::new(wakeups, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn an_interrupt_wakes_until_it_is_cleared() {
        let wakeups = Wakeups::new(3).unwrap();
        assert!(!wakes(&wakeups));
        fire(&wakeups.vectors()[1]);
        fire(&wakeups.vectors()[1]);
        assert!(wakes(&wakeups) && wakes(&wakeups));
        wakeups.clear();
        assert!(!wakes(&wakeups));
        assert_eq!([0, 1, 2].map(|v| wakeups.interrupts(v)), [0, 2, 0]);
    }

    #[test]
    fn the_command_vector_wakes_waits_for_commands_only() {
        let wakeups = Wakeups::new(3).unwrap();
        fire(&wakeups.vectors()[2]);
        assert!(!wakes(&wakeups));
        let start = Instant::now();
        assert!(wakeups.sleep_for_command(LONG));
        assert!(start.elapsed() < LONG);
        assert_eq!(wakeups.interrupts(2), 1);
        assert!(!Wakeups::new(2).unwrap().sleep_for_command(LONG));
    }

    /// A server has the same open file, and so its flags.
    #[test]
    fn an_eventfd_made_blocking_and_empty_blocks_nobody() {
        let wakeups = Wakeups::new(3).unwrap();
        let fd = &wakeups.vectors()[2];
        rustix::io::ioctl_fionbio(fd, false).unwrap();
        let (done, result) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            wakeups.sleep_for_command(Duration::from_millis(10));
            done.send(wakeups.interrupts(2))
        });
        assert_eq!(result.recv_timeout(LONG), Ok(0));
    }

    #[test]
    fn a_deadline_wakes_and_can_be_cancelled() {
        let wakeups = Wakeups::new(1).unwrap();
        wakeups.set_timer(Some(Duration::ZERO));
        let start = Instant::now();
        wakeups.sleep(LONG);
        assert!(start.elapsed() < LONG);
        wakeups.clear();
        wakeups.set_timer(Some(Duration::from_nanos(1)));
        wakeups.set_timer(None);
        assert!(!wakes(&wakeups));
    }

    #[test]
    fn trouble_wakes_once_and_is_remembered() {
        let wakeups = Wakeups::new(1).unwrap();
        let (socket, peer) = UnixStream::pair().unwrap();
        wakeups.watch_peer(&socket).unwrap();
        fire(wakeups.removal());
        assert!(wakes(&wakeups));
        wakeups.clear();
        assert_eq!(wakeups.trouble(), Some(Trouble::RemovalRequested));
        assert!(!wakeups.saw_peer_end());
        drop(peer);
        assert!(wakes(&wakeups));
        wakeups.clear();
        assert!(wakeups.saw_peer_end() && !wakes(&wakeups));
        fire(wakeups.error());
        wakeups.clear();
        assert_eq!(wakeups.trouble(), Some(Trouble::BusError));
    }
}
