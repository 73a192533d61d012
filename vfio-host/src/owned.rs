//! Registered memory in owned pieces, which an [`OwningPoster`](dat_core::OwningPoster) posts.
//!
//! A [`Pool`] owns a buffer and its registration: the memory moves into the pool and comes back
//! when the registration has ended. A [`Piece`] is a value. Its owner may fill and read it. Posting
//! moves it into the poster until its completion; dropping it returns it to the pool. So the
//! program and the device never use a piece at the same time, and no dropped future, wait or error
//! frees a piece that the device may still reach.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use vfio_host::prelude::*;
//! # fn talk<'p, H: Host>(nic: &mut Nic<'_, 'p, H>, pz: Pz, ep: Ep, evd: Evd) -> Result<(), Error> {
//! let pool = Pool::register(nic, pz, 64, 4096, MemPriv::LOCAL)?;
//! let mut poster = OwningPoster::<_, _, 32>::new(nic.ep_take_poster(ep)?)?;
//! poster.post_recv(pool.take()?, CompletionFlags::empty())?;
//! let event = nic.evd_wait(evd, Duration::from_secs(1), 1)?;
//! if let Ok(done) = poster.complete(event) {
//!     let message: Vec<u8> = done.buffer.to_vec(done.len);
//! }
//! # Ok(()) }
//! ```

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use dat_core::{DatSubtype, DatType, Error, Lend, LmrParam, LmrTriplet, MemPriv, Pz, RmrTriplet};
use hca_mlx5::dma::Buffer;

use crate::host::Host;
use crate::nic::Nic;

/// The memory that was asked for is not there.
const NONE_LEFT: Error = Error::new(DatType::InsufficientResources, DatSubtype::ResourceMemory);

/// Memory and its registration.
struct Inner<'p, H: Host> {
    memory: Buffer<'p, H>,
    lmr: LmrParam,
    /// Bytes of a piece.
    len: usize,
    /// Free pieces.
    free: Mutex<Vec<u32>>,
    pieces: u32,
}

impl<H: Host> Inner<'_, H> {
    fn with_free<T>(&self, act: impl FnOnce(&mut Vec<u32>) -> T) -> T {
        // No code panics while it holds this lock.
        act(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Registered memory in pieces of one length. Clones refer to the same pool.
///
/// Without [`Pool::close`] the memory stays registered after the drop, until the host is renewed.
pub struct Pool<'p, H: Host>(Arc<Inner<'p, H>>);

impl<H: Host> Clone for Pool<'_, H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<H: Host> fmt::Debug for Pool<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("lmr", &self.0.lmr.lmr)
            .field("pieces", &self.0.pieces)
            .field("left", &self.left())
            .finish_non_exhaustive()
    }
}

impl<'p, H: Host> Pool<'p, H> {
    /// Allocates memory for `pieces` pieces of `len` bytes and registers it. Errors are those of
    /// [`dat_core::Ia::lmr_create`], and `INSUFFICIENT_RESOURCES` if the host lacks memory.
    pub fn register<
        const QPS: usize,
        const CQS: usize,
        const KEYS: usize,
        const NEIGHBOURS: usize,
    >(
        nic: &mut Nic<'_, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>,
        pz: Pz,
        pieces: u32,
        len: usize,
        rights: MemPriv,
    ) -> Result<Self, Error> {
        // Two pieces must not share a cache line that the device writes.
        let len = len.max(1).checked_next_multiple_of(64).ok_or(NONE_LEFT)?;
        let bytes = usize::try_from(pieces).ok().and_then(|n| n.checked_mul(len));
        let memory = bytes.and_then(|bytes| nic.buffer(bytes)).ok_or(NONE_LEFT)?;
        Self::over(nic, pz, memory, len, rights).map_err(|(error, memory)| {
            memory.release();
            error
        })
    }

    /// Registers existing memory as a pool. An error returns the memory.
    #[expect(clippy::result_large_err, reason = "the memory goes back to the caller")]
    pub fn over<const QPS: usize, const CQS: usize, const KEYS: usize, const NEIGHBOURS: usize>(
        nic: &mut Nic<'_, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>,
        pz: Pz,
        memory: Buffer<'p, H>,
        len: usize,
        rights: MemPriv,
    ) -> Result<Self, (Error, Buffer<'p, H>)> {
        let pieces = memory.len().checked_div(len).unwrap_or(0);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        match nic.lmr_create(pz, memory.region(), rights) {
            Ok(lmr) => Ok(Self(Arc::new(Inner {
                memory,
                lmr,
                len,
                free: Mutex::new((0..pieces).rev().collect()),
                pieces,
            }))),
            Err(error) => Err((error, memory)),
        }
    }

    /// Takes a free piece. `INSUFFICIENT_RESOURCES` if there is none.
    pub fn take(&self) -> Result<Piece<'p, H>, Error> {
        let at = self.0.with_free(Vec::pop).ok_or(NONE_LEFT)?;
        Ok(Piece { pool: Arc::clone(&self.0), at })
    }

    /// Returns the number of free pieces.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.with_free(|free| free.len())
    }

    /// Ends the registration and returns the memory. Refused with `INVALID_STATE`, returning the
    /// pool, while a piece is in use or another clone exists.
    pub fn close<const QPS: usize, const CQS: usize, const KEYS: usize, const NEIGHBOURS: usize>(
        self,
        nic: &mut Nic<'_, 'p, H, QPS, CQS, KEYS, NEIGHBOURS>,
    ) -> Result<(), (Error, Self)> {
        let busy = Error::new(DatType::InvalidState, DatSubtype::InvalidStateLmrInUse);
        match Arc::try_unwrap(self.0) {
            Ok(inner) => match nic.lmr_free(inner.lmr.lmr) {
                Ok(()) => {
                    inner.memory.release();
                    Ok(())
                }
                Err(error) => Err((error, Self(Arc::new(inner)))),
            },
            Err(shared) => Err((busy, Self(shared))),
        }
    }
}

/// A piece of a [`Pool`]: bytes that only its owner uses. Dropping it returns it to the pool.
pub struct Piece<'p, H: Host> {
    pool: Arc<Inner<'p, H>>,
    at: u32,
}

impl<H: Host> fmt::Debug for Piece<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece")
            .field("lmr", &self.pool.lmr.lmr)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl<H: Host> Piece<'_, H> {
    /// Returns its length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no piece is empty")]
    pub fn len(&self) -> usize {
        self.pool.len
    }

    fn offset(&self) -> usize {
        usize::try_from(self.at).unwrap_or(usize::MAX).saturating_mul(self.pool.len)
    }

    /// Copies bytes in at `at`, as many as fit. Returns how many were copied.
    pub fn copy_in(&mut self, at: usize, from: &[u8]) -> u32 {
        let count = self.pool.len.saturating_sub(at).min(from.len());
        let from = from.get(..count).unwrap_or_default();
        word(self.pool.memory.copy_in(self.offset().saturating_add(at), from))
    }

    /// Copies bytes out from `at`, as many as there are. Returns how many were copied.
    pub fn copy_out(&self, at: usize, to: &mut [u8]) -> usize {
        let count = self.pool.len.saturating_sub(at).min(to.len());
        let to = to.get_mut(..count).unwrap_or_default();
        self.pool.memory.copy_out(self.offset().saturating_add(at), to)
    }

    /// Returns a copy of the first `len` bytes, or of all if the piece is shorter.
    #[must_use]
    pub fn to_vec(&self, len: u32) -> Vec<u8> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(self.pool.len)];
        self.copy_out(0, &mut bytes);
        bytes
    }

    /// Returns the triplet by which a peer reaches the piece. The pool has to be registered with
    /// remote rights. Keep the piece for as long as the peer may use the triplet.
    #[must_use]
    pub fn remote(&self) -> RmrTriplet {
        self.pool.lmr.remote(self.offset() as u64, self.segment().len)
    }
}

/// A length as requests have it.
fn word(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl<H: Host> Lend for Piece<'_, H> {
    fn segment(&self) -> LmrTriplet {
        self.pool.lmr.local(self.offset() as u64, word(self.pool.len))
    }
}

impl<H: Host> Drop for Piece<'_, H> {
    fn drop(&mut self) {
        let at = self.at;
        self.pool.with_free(|free| free.push(at));
    }
}
