//! Waits: who sleeps, for what, and how he is woken.
//!
//! `dat_core` begins a wait, looks at it and ends it; in between the caller sleeps here, without
//! the control half. What comes from the device wakes the adapter's thread, which drives the
//! adapter and rings for those whose wait may be over; they look themselves. As everywhere in this
//! driver a wait arms before it looks for the last time, so nothing comes unnoticed.

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dat_core::{Cno, CnoWait, DatReturn, DatType, Error, Evd, EvdWait, Event, Instant};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::abi::{TIMEOUT_INFINITE, Timeout};
use crate::adapter::{Driver, Open};
use crate::object::{Kind, Object};
use crate::variant::Variant;

/// Longest sleep: nothing relies on it.
const LONGEST: Duration = Duration::from_secs(3600);
const ABORT: DatReturn = DatReturn::of(DatType::Abort);
const INTERRUPTED: DatReturn = DatReturn::of(DatType::InterruptedCall);
const NO_BELL: DatReturn = DatReturn::of(DatType::InsufficientResources);

/// What wakes one sleeper.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slept {
    /// By the bell, or by time.
    Out,
    /// By a signal.
    Interrupted,
}

/// The descriptor of a CNO: it can be read as long as the CNO is triggered.
#[derive(Debug)]
pub(crate) struct Descriptor {
    cno: Cno,
    bell: Bell,
    readable: bool,
}

impl Descriptor {
    /// One that cannot be read yet; `INSUFFICIENT_RESOURCES`.
    pub(crate) fn new(cno: Cno) -> Result<Self, Error> {
        Ok(Self { cno, bell: Bell::new().map_err(|_| NO_BELL)?, readable: false })
    }

    /// Whose it is.
    pub(crate) fn cno(&self) -> Cno {
        self.cno
    }

    /// Its number. It stays open, and the provider's, until the CNO is freed.
    pub(crate) fn number(&self) -> c_int {
        self.bell.0.as_raw_fd()
    }

    /// Has it tell what is so. False if there is no such CNO any more.
    pub(crate) fn tell<V: Variant>(&mut self, nic: &Driver<V>) -> bool {
        let Ok(now) = nic.cno_query(self.cno) else {
            return false;
        };
        if now.triggered != self.readable {
            self.readable = now.triggered;
            if self.readable {
                self.bell.ring();
            } else {
                self.bell.silence();
            }
        }
        true
    }
}

impl Bell {
    fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Wakes who sleeps, or is about to.
    pub(crate) fn ring(&self) {
        // It can fail only where it has been rung 2^64 times.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    fn sleep(&self, limit: Duration) -> Slept {
        let limit = limit.min(LONGEST);
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)) {
            Err(Errno::INTR) => Slept::Interrupted,
            Ok(_) | Err(_) => Slept::Out,
        }
    }
}

/// What a sleeper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Events.
    Evd(Evd),
    /// A trigger.
    Cno(Cno),
}

impl What {
    /// Whether its wait may be over.
    pub(crate) fn stirs<V: Variant>(self, nic: &mut Driver<V>) -> bool {
        match self {
            Self::Evd(evd) => nic.evd_more(evd) != Ok(0),
            Self::Cno(cno) => nic.cno_query(cno).map_or(true, |cno| cno.triggered || cno.evds == 0),
        }
    }
}

/// Somebody who waits.
pub(crate) struct Sleeper<V: Variant> {
    /// What for.
    pub(crate) what: What,
    /// Its object.
    pub(crate) object: &'static Object<V>,
    /// What wakes him.
    pub(crate) bell: Arc<Bell>,
}

/// A wait that `dat_core` has begun.
pub(crate) trait Awaited {
    /// What it gives.
    type Found;
    /// What it is for.
    fn what(&self) -> What;
    /// When it is over.
    fn until(&self) -> Instant;
    /// Looks whether it is over.
    fn look<V: Variant>(
        &mut self,
        nic: &mut Driver<V>,
        now: Instant,
    ) -> Poll<Result<Self::Found, DatReturn>>;
    /// Has the device announce what it is for.
    fn arm<V: Variant>(&mut self, open: &mut Open<V>);
    /// Ends it.
    fn end<V: Variant>(&mut self, nic: &mut Driver<V>);
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
        // What it refuses, the next look reports.
        let _ = open.nic().evd_arm(self.evd(), false);
    }
    fn end<V: Variant>(&mut self, nic: &mut Driver<V>) {
        nic.evd_wait_end(self);
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
}

/// Waits on `object`: `begin` begins, `finish` makes of the end what the call returns; both have
/// the control half.
///
/// `ABORT` where the object goes under the wait, `INTERRUPTED_CALL` by a signal.
pub(crate) fn wait<V: Variant, W: Awaited, R>(
    object: &'static Object<V>,
    begin: impl FnOnce(&mut Open<V>) -> Result<W, Error>,
    finish: impl FnOnce(&mut Open<V>, Result<W::Found, DatReturn>) -> Result<R, Error>,
) -> Result<R, Error> {
    let adapter = object.adapter()?;
    let mut control = adapter.lock();
    let open = control.as_mut().ok_or(Kind::Ia.invalid())?;
    let mut what = begin(open)?;
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
        // The adapter is not closed while somebody waits.
        let Some(open) = control.as_mut() else {
            return Err(ABORT.into());
        };
        bell.silence();
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
        let left = what.until().since(now);
        drop(control);
        interrupted = bell.sleep(left) == Slept::Interrupted;
        control = adapter.lock();
    };
    let Some(open) = control.as_mut() else {
        return Err(ABORT.into());
    };
    what.end::<V>(open.nic());
    open.sleepers.retain(|sleeper| !Arc::ptr_eq(&sleeper.bell, &bell));
    open.bells.push(bell);
    finish(open, found)
}

/// A `DAT_TIMEOUT`.
pub(crate) fn duration(timeout: Timeout) -> Duration {
    if timeout == TIMEOUT_INFINITE { Duration::MAX } else { Duration::from_micros(timeout.into()) }
}
