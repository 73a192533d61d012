//! The waits as futures, on tokio's reactor (feature `tokio`).
//!
//! [`AsyncNic`] is a [`Nic`] whose one descriptor tokio watches. Its waits run the same
//! [`turn`](crate::wait::turn)s and await the reactor instead of sleeping. Use the runtime's
//! `tokio::time::timeout` for a time limit. Dropping the future of a wait loses no event: a wait
//! takes its event in its last step only.
#![expect(
    unsafe_code,
    reason = "tokio accepts any type as a descriptor; the caller asserts that this one is sound"
)]

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use dat_core::{CloseFlag, Cno, DatReturn, DatType, Evd, Event, Ia};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::{Error, Kind};
use crate::host::Host;
use crate::nic::{Nic, Under, WaitError};

/// An adapter in a tokio runtime.
#[derive(Debug)]
pub struct AsyncNic<
    's,
    'p,
    H: Host,
    const QPS: usize = 64,
    const CQS: usize = 64,
    const KEYS: usize = 512,
> {
    nic: Nic<'s, 'p, H, QPS, CQS, KEYS>,
    /// A duplicate of the descriptor, owned by tokio's registration.
    fd: AsyncFd<OwnedFd>,
}

impl<'s, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize>
    AsyncNic<'s, 'p, H, QPS, CQS, KEYS>
{
    /// Registers the adapter with the runtime that it is called in.
    pub fn new(nic: Nic<'s, 'p, H, QPS, CQS, KEYS>) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            let cause = format!("the runtime cannot watch it: {error}");
            Error::new(Kind::Memory, nic.host().name(), cause, "").because(error)
        };
        let own = nic.as_fd().try_clone_to_owned().map_err(failed)?;
        // SAFETY: an `OwnedFd` is open, stays the same file, and is closed only when the `AsyncFd`
        // drops it.
        let fd = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) };
        let fd = fd.map_err(|error| failed(error.into()))?;
        Ok(Self { nic, fd })
    }

    /// Waits until `evd` has `threshold` events and returns the first, as [`Nic::evd_wait`] without
    /// a time limit.
    #[doc(alias = "dat_evd_wait")]
    pub async fn evd_wait(&mut self, evd: Evd, threshold: u32) -> Result<Event, WaitError> {
        let now = self.nic.now();
        let wait = Ia::evd_wait(&mut self.nic, now, evd, Duration::MAX, threshold)?;
        let mut wait = Under::new(&mut self.nic, wait);
        loop {
            if let Some(found) = wait.turn() {
                return found;
            }
            woken(&self.fd).await?;
        }
    }

    /// Waits until the CNO is triggered, as [`Nic::cno_wait`] without a time limit.
    #[doc(alias = "dat_cno_wait")]
    pub async fn cno_wait(&mut self, cno: Cno) -> Result<Option<Evd>, WaitError> {
        let now = self.nic.now();
        let wait = Ia::cno_wait(&mut self.nic, now, cno, Duration::MAX)?;
        let mut wait = Under::new(&mut self.nic, wait);
        loop {
            if let Some(found) = wait.turn() {
                return found;
            }
            woken(&self.fd).await?;
        }
    }

    /// Waits until one of the dispatchers has an event, and returns that dispatcher.
    pub async fn wait_any(&mut self, evds: &[Evd]) -> Result<Evd, WaitError> {
        loop {
            if let Some(found) = self.nic.any(evds) {
                return found;
            }
            woken(&self.fd).await?;
        }
    }

    /// Closes the adapter, as [`Nic::close`]. The limit is checked when a message is
    /// repeated, so the wait may be longer by the time between two messages.
    #[doc(alias = "dat_ia_close")]
    pub async fn close(self, flag: CloseFlag) -> Result<(), dat_core::Error> {
        let Self { mut nic, fd } = self;
        let farewell = nic.begin_close(flag);
        let mut wait = Under::new(&mut nic, farewell);
        while wait.turn().is_none() && woken(&fd).await.is_ok() {}
        drop(wait);
        nic.close_now(flag)
    }
}

/// Waits until the descriptor is readable.
async fn woken(fd: &AsyncFd<OwnedFd>) -> Result<(), WaitError> {
    match fd.readable().await {
        // ORDER: the reactor's readiness is cleared before the turn, as the turn clears the
        // wake-ups before it looks. Only the readiness that ended this wait is cleared; a
        // later one stays.
        Ok(mut ready) => {
            ready.clear_ready();
            Ok(())
        }
        // The runtime is shutting down.
        Err(_) => Err(DatReturn::of(DatType::InterruptedCall).into()),
    }
}

impl<'s, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize> Deref
    for AsyncNic<'s, 'p, H, QPS, CQS, KEYS>
{
    type Target = Nic<'s, 'p, H, QPS, CQS, KEYS>;

    fn deref(&self) -> &Self::Target {
        &self.nic
    }
}

impl<H: Host, const QPS: usize, const CQS: usize, const KEYS: usize> DerefMut
    for AsyncNic<'_, '_, H, QPS, CQS, KEYS>
{
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.nic
    }
}
