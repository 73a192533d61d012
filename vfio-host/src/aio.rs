//! The waits as futures, on tokio's reactor (feature `tokio`).
//!
//! [`AsyncNic`] is a [`Nic`] whose one descriptor tokio watches. Its waits are the same [`turn`](crate::wait::turn)s, with
//! the reactor in the place of the sleep; a time limit is the runtime's own (`tokio::time::timeout`). A wait that is dropped
//! loses nothing: what it has taken is given by the next wait or dequeue.
#![expect(
    unsafe_code,
    reason = "tokio takes any type for a descriptor, and has to be told that this one is sound"
)]

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};

use dat_core::{CloseFlag, DatReturn, DatType, Evd, Event};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::host::Host;
use crate::nic::{Nic, WaitError};

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
    /// A descriptor of our own, for tokio to keep.
    fd: AsyncFd<OwnedFd>,
}

impl<'s, 'p, H: Host, const QPS: usize, const CQS: usize, const KEYS: usize>
    AsyncNic<'s, 'p, H, QPS, CQS, KEYS>
{
    /// Registers the adapter with the runtime that it is called in.
    pub fn new(nic: Nic<'s, 'p, H, QPS, CQS, KEYS>) -> io::Result<Self> {
        let own = nic.as_fd().try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` is open, stays the same file, and is closed only when the `AsyncFd` drops it.
        let fd = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }?;
        Ok(Self { nic, fd })
    }

    /// Waits until `evd` has `threshold` events and returns the first, as [`Nic::evd_wait`] without a time limit.
    #[doc(alias = "dat_evd_wait")]
    pub async fn evd_wait(&mut self, evd: Evd, threshold: u32) -> Result<Event, WaitError> {
        self.nic.check(evd, threshold)?;
        self.wait(&[evd], threshold).await?;
        Ok(self.nic.evd_dequeue(evd)?)
    }

    /// Waits until one of the dispatchers has an event, and says which.
    #[doc(alias = "dat_cno_wait")]
    pub async fn wait_any(&mut self, evds: &[Evd]) -> Result<Evd, WaitError> {
        for evd in evds {
            self.nic.check(*evd, 1)?;
        }
        self.wait(evds, 1).await
    }

    async fn wait(&mut self, evds: &[Evd], threshold: u32) -> Result<Evd, WaitError> {
        loop {
            if let Some(found) = self.nic.turn(evds, threshold) {
                return found;
            }
            match self.fd.readable().await {
                // ORDER: the reactor's mark is cleared before the turn, as the turn clears ours before it looks. Only the mark
                // of what woke us: one that came since is another, and stays.
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is shutting down.
                Err(_) => return Err(DatReturn::of(DatType::InterruptedCall).into()),
            }
        }
    }

    /// [`Nic::close`].
    #[doc(alias = "dat_ia_close")]
    pub fn close(self, flag: CloseFlag) -> Result<(), dat_core::Error> {
        self.nic.close(flag)
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
