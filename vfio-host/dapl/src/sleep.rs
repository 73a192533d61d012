//! Blocking waits.
//!
//! `dat_core` begins a wait, polls it and ends it; in between the caller sleeps here without the
//! adapter's lock. An interrupt of the device wakes the adapter's thread, which drives the adapter
//! and wakes the sleepers whose wait may be over; they poll again. As everywhere in this driver, a
//! wait arms before its last poll, so no event is missed.
//!
//! A thread may be cancelled (pthread_cancel(3)) while it waits. Cancellation unwinds the stack, and
//! must not pass frames that hold locks or values to drop. So a wait ends after each [`TURN`] and
//! begins anew; in between only frames with nothing to drop are left, and there the thread may end
//! ([`in_turns`]). No wait is under way then.
#![expect(unsafe_code, reason = "a thread may be cancelled by the C library")]

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dat_core::{Cno, CnoWait, DatReturn, DatType, Error, Evd, EvdWait, Event, Instant};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::abi::{Ret, TIMEOUT_INFINITE, Timeout};
use crate::adapter::{Driver, Open};
use crate::object::{Kind, Object};
use crate::variant::Variant;

/// Longest sleep: nothing relies on it.
const LONGEST: Duration = Duration::from_secs(3600);
/// Longest time in which a thread that waits cannot be cancelled.
const TURN: Duration = Duration::from_millis(500);
/// The time is over.
pub(crate) const TIMEOUT: DatReturn = DatReturn::of(DatType::TimeoutExpired);
const ABORT: DatReturn = DatReturn::of(DatType::Abort);
const INTERRUPTED: DatReturn = DatReturn::of(DatType::InterruptedCall);
const NO_BELL: DatReturn = DatReturn::of(DatType::InsufficientResources);

/// A timer that one thread sleeps by. Its time is set with the adapter's lock, to the end of the
/// sleep by the sleeper and to now by who wakes it.
///
/// A thread sleeps in a read of it: after the handler of a signal the kernel goes on with that, if
/// the handler was installed with `SA_RESTART`. It never goes on with a poll.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

/// The end of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slept {
    /// By the bell or the timeout.
    Out,
    /// By a signal.
    Interrupted,
}

/// The descriptor of a CNO, an eventfd that is readable while the CNO is triggered.
#[derive(Debug)]
pub(crate) struct Descriptor {
    cno: Cno,
    fd: OwnedFd,
    readable: bool,
}

impl Descriptor {
    /// Makes a descriptor that is not readable; `INSUFFICIENT_RESOURCES`.
    pub(crate) fn new(cno: Cno) -> Result<Self, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self { cno, fd: fd.map_err(|_| NO_BELL)?, readable: false })
    }

    /// Returns the CNO.
    pub(crate) fn cno(&self) -> Cno {
        self.cno
    }

    /// Returns the file descriptor. The provider closes it when the CNO is freed.
    pub(crate) fn number(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// Updates whether it is readable. Returns false if the CNO has been freed.
    pub(crate) fn update<V: Variant>(&mut self, nic: &Driver<V>) -> bool {
        let Ok(now) = nic.cno_query(self.cno) else {
            return false;
        };
        if now.triggered != self.readable {
            self.readable = now.triggered;
            // Neither fails: it is written to and read in turn.
            let _ = if self.readable {
                rustix::io::write(&self.fd, &1_u64.to_ne_bytes())
            } else {
                rustix::io::read(&self.fd, &mut [0; 8])
            };
        }
        true
    }
}

impl Bell {
    fn new() -> Result<Self, Errno> {
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).map(Self)
    }

    /// Wakes the sleeper, also if it is about to sleep.
    pub(crate) fn ring(&self) {
        self.set(Duration::ZERO);
    }

    /// Sets its time.
    fn set(&self, after: Duration) {
        // All zeros would stop it.
        let after = after.clamp(Duration::from_nanos(1), LONGEST);
        let after = Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: after.subsec_nanos().into(),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: after };
        // A valid timer and a valid time.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }

    fn sleep(&self) -> Slept {
        match rustix::io::read(&self.0, &mut [0; 8]) {
            Err(Errno::INTR) => Slept::Interrupted,
            Ok(_) | Err(_) => Slept::Out,
        }
    }
}

/// The object that a sleeper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Events of an Event Dispatcher.
    Evd(Evd),
    /// A trigger of a CNO.
    Cno(Cno),
}

impl What {
    /// Returns whether the wait may be over.
    pub(crate) fn may_be_over<V: Variant>(self, nic: &mut Driver<V>) -> bool {
        match self {
            Self::Evd(evd) => nic.evd_more(evd) != Ok(0),
            Self::Cno(cno) => nic.cno_query(cno).map_or(true, |cno| cno.triggered || cno.evds == 0),
        }
    }
}

/// A thread that waits.
pub(crate) struct Sleeper<V: Variant> {
    /// The object that it waits for.
    pub(crate) what: What,
    /// The C object of that.
    pub(crate) object: &'static Object<V>,
    /// Wakes the thread.
    pub(crate) bell: Arc<Bell>,
}

/// A wait that `dat_core` has begun.
pub(crate) trait Awaited {
    /// The result.
    type Found;
    /// Returns the object that the wait is for.
    fn what(&self) -> What;
    /// Returns the deadline.
    fn until(&self) -> Instant;
    /// Polls whether the wait is over.
    fn look<V: Variant>(
        &mut self,
        nic: &mut Driver<V>,
        now: Instant,
    ) -> Poll<Result<Self::Found, DatReturn>>;
    /// Has the device interrupt when the wait may be over.
    fn arm<V: Variant>(&mut self, open: &mut Open<V>);
    /// Ends the wait.
    fn end<V: Variant>(&mut self, nic: &mut Driver<V>);
    /// Whether the time was over.
    fn ran_out(found: &Result<Self::Found, DatReturn>) -> bool;
}

impl Awaited for EvdWait {
    type Found = Event;

    fn what(&self) -> What {
        What::Evd(self.evd())
    }
    fn until(&self) -> Instant {
        Self::until(self)
    }
    fn look<V: Variant>(
        &mut self,
        nic: &mut Driver<V>,
        now: Instant,
    ) -> Poll<Result<Event, DatReturn>> {
        nic.evd_waited(now, self)
    }
    fn arm<V: Variant>(&mut self, open: &mut Open<V>) {
        // The next poll reports errors.
        let _ = open.nic().evd_arm(self.evd(), false);
    }
    fn end<V: Variant>(&mut self, nic: &mut Driver<V>) {
        nic.evd_wait_end(self);
    }
    fn ran_out(found: &Result<Event, DatReturn>) -> bool {
        matches!(found, Err(TIMEOUT))
    }
}

impl Awaited for CnoWait {
    type Found = Option<Evd>;

    fn what(&self) -> What {
        What::Cno(self.cno())
    }
    fn until(&self) -> Instant {
        Self::until(self)
    }
    fn look<V: Variant>(
        &mut self,
        nic: &mut Driver<V>,
        now: Instant,
    ) -> Poll<Result<Option<Evd>, DatReturn>> {
        nic.cno_waited(now, self)
    }
    /// The adapter arms what is attached to a CNO each time it is driven.
    fn arm<V: Variant>(&mut self, open: &mut Open<V>) {
        open.drive();
    }
    fn end<V: Variant>(&mut self, nic: &mut Driver<V>) {
        nic.cno_wait_end(self);
    }
    fn ran_out(found: &Result<Option<Evd>, DatReturn>) -> bool {
        matches!(found, Err(DatReturn::QUEUE_EMPTY))
    }
}

/// A time limit that is waited for in turns.
#[derive(Debug)]
pub(crate) struct Limit {
    /// What the call was given.
    pub(crate) timeout: Timeout,
    /// When the first turn began.
    start: Option<Instant>,
    /// The turn is over, and the time is not.
    goes_on: bool,
}

/// Makes a call that waits: turn after turn, with a cancellation point before each.
pub(crate) fn in_turns(timeout: Timeout, turn: &mut dyn FnMut(&mut Limit) -> Ret) -> Ret {
    let mut limit = Limit { timeout, start: None, goes_on: true };
    loop {
        // SAFETY: if it does not return, it unwinds this frame and its caller's, which have nothing
        // to drop and take part in unwinding.
        unsafe { pthread_testcancel() };
        limit.goes_on = false;
        let ret = turn(&mut limit);
        if !limit.goes_on {
            return ret;
        }
    }
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

impl Limit {
    /// Returns how long this turn lasts at the most, and whether there may be another one.
    fn turn(&mut self, now: Instant) -> (Duration, bool) {
        let start = *self.start.get_or_insert(now);
        let left = (start + duration(self.timeout)).since(now);
        if left <= TURN { (left, false) } else { (TURN, true) }
    }
}

/// Waits on `object`, a turn of it: `begin` begins the wait, `finish` converts its result; both run
/// with the adapter locked.
///
/// `ABORT` if the object is freed during the wait, `INTERRUPTED_CALL` after a signal whose handler
/// was installed without `SA_RESTART`.
pub(crate) fn wait<V: Variant, W: Awaited, R>(
    object: &'static Object<V>,
    limit: &mut Limit,
    begin: impl FnOnce(&mut Open<V>, Duration) -> Result<W, Error>,
    finish: impl FnOnce(&mut Open<V>, Result<W::Found, DatReturn>) -> Result<R, Error>,
) -> Result<R, Error> {
    let adapter = object.adapter()?;
    let mut control = adapter.lock();
    let open = control.as_mut().ok_or(Kind::Ia.invalid())?;
    let now = open.nic().now();
    let (span, more) = limit.turn(now);
    let mut what = begin(open, span)?;
    let now = open.nic().now();
    if let Poll::Ready(found) = what.look::<V>(open.nic(), now) {
        return finish(open, found);
    }
    let bell = match open.bells.pop() {
        Some(bell) => bell,
        None => match Bell::new() {
            Ok(bell) => Arc::new(bell),
            Err(_) => {
                what.end::<V>(open.nic());
                return Err(NO_BELL.into());
            }
        },
    };
    open.sleepers.push(Sleeper { what: what.what(), object, bell: Arc::clone(&bell) });
    let mut interrupted = false;
    let found = loop {
        // The adapter normally is not closed while a thread waits.
        let Some(open) = control.as_mut() else {
            return Err(ABORT.into());
        };
        if object.kind() == Kind::Freed {
            break Err(ABORT);
        }
        what.arm(open);
        let now = open.nic().now();
        match what.look::<V>(open.nic(), now) {
            Poll::Ready(found) => break found,
            Poll::Pending if interrupted => break Err(INTERRUPTED),
            Poll::Pending => {}
        }
        // With the lock, so that no ring is lost: a later one sets the time to now.
        bell.set(what.until().since(now));
        drop(control);
        interrupted = bell.sleep() == Slept::Interrupted;
        control = adapter.lock();
    };
    let Some(open) = control.as_mut() else {
        return Err(ABORT.into());
    };
    what.end::<V>(open.nic());
    open.sleepers.retain(|sleeper| !Arc::ptr_eq(&sleeper.bell, &bell));
    open.bells.push(bell);
    if more && W::ran_out(&found) {
        limit.goes_on = true;
        return Err(TIMEOUT.into());
    }
    finish(open, found)
}

/// Converts a `DAT_TIMEOUT`.
pub(crate) fn duration(timeout: Timeout) -> Duration {
    if timeout == TIMEOUT_INFINITE { Duration::MAX } else { Duration::from_micros(timeout.into()) }
}
