//! Registered memory in pieces that are owned: what an [`OwningPoster`](dat_core::OwningPoster)
//! posts.
//!
//! A [`Pool`] is a buffer and its registration, which cannot be told apart any more: the memory
//! went into the pool, and comes out when the registration has ended. A [`Piece`] of it is a value.
//! Who has it may fill and read it; who posts it has it no more, until its completion; who drops it
//! puts it back. So nothing that the device may still reach is ever in two hands, and no
//! future, wait or error on the way frees it: what is dropped is the wait.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use dat_core::{CompletionFlags, MemPriv, OwningPoster};
//! # use vfio_host::{Host, Nic, owned::{Piece, Pool}};
//! # fn talk<'s, 'p, H: Host>(nic: &mut Nic<'s, 'p, H>, pz: dat_core::Pz, ep: dat_core::Ep, evd: dat_core::Evd)
//! # -> Result<(), Box<dyn std::error::Error + 's>> where 'p: 's {
//! let rights = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
//! let pool = Pool::register(nic, pz, 64, 4096, rights)?;
//! let mut poster = OwningPoster::<_, Piece<'p, H>, 32>::new(nic.ep_take_poster(ep)?).map_err(|_| "busy")?;
//! poster.post_recv(pool.take().ok_or("empty")?, CompletionFlags::empty()).map_err(|e| e.ret)?;
//! let event = nic.evd_wait(evd, Duration::from_secs(1), 1)?;
//! if let Ok(done) = poster.complete(event) {
//!     let message: Vec<u8> = done.buffer.to_vec(done.len as usize);
//! }
//! # Ok(()) }
//! ```

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use dat_core::{DatSubtype, DatType, Error, Lend, LmrParam, LmrTriplet, MemPriv, Pz, RmrTriplet};
use hca_mlx5::dma::Buffer;

use crate::host::Host;
use crate::nic::Nic;

/// Memory and its registration.
struct Inner<'p, H: Host> {
    memory: Buffer<'p, H>,
    lmr: LmrParam,
    /// Bytes of a piece.
    len: usize,
    /// Pieces that are at home.
    free: Mutex<Vec<u32>>,
    pieces: u32,
}

impl<H: Host> Inner<'_, H> {
    fn with_free<T>(&self, act: impl FnOnce(&mut Vec<u32>) -> T) -> T {
        // Nothing panics while it holds this.
        act(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Registered memory in pieces of one length. Clones are the same pool.
///
/// Dropped without [`Pool::close`] its memory stays registered, and is the host's again when that
/// is renewed.
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
    /// Takes memory for `pieces` pieces of `len` bytes and registers it. Errors are those of
    /// [`dat_core::Ia::lmr_create`], and `INSUFFICIENT_RESOURCES` if the host has not so much.
    pub fn register<const QPS: usize, const CQS: usize, const KEYS: usize>(
        nic: &mut Nic<'_, 'p, H, QPS, CQS, KEYS>,
        pz: Pz,
        pieces: u32,
        len: usize,
        rights: MemPriv,
    ) -> Result<Self, Error> {
        let none = Error::new(DatType::InsufficientResources, DatSubtype::ResourceMemory);
        // Pieces that a device writes share no cache line.
        let len = len.max(1).checked_next_multiple_of(64).ok_or(none)?;
        let bytes = usize::try_from(pieces).ok().and_then(|n| n.checked_mul(len));
        let memory = bytes.and_then(|bytes| nic.buffer(bytes)).ok_or(none)?;
        Self::over(nic, pz, memory, len, rights).map_err(|(error, memory)| {
            memory.release();
            error
        })
    }

    /// The same of memory that is there already, which comes back with the error.
    pub fn over<const QPS: usize, const CQS: usize, const KEYS: usize>(
        nic: &mut Nic<'_, 'p, H, QPS, CQS, KEYS>,
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

    /// A piece, if one is at home.
    #[must_use]
    pub fn take(&self) -> Option<Piece<'p, H>> {
        let at = self.0.with_free(Vec::pop)?;
        Some(Piece { pool: Arc::clone(&self.0), at })
    }

    /// Pieces that are at home.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.with_free(|free| free.len())
    }

    /// Ends the registration and gives the memory back. Refused with `INVALID_STATE`, and the pool
    /// back, while a piece is out, or another clone is there to take one.
    pub fn close<const QPS: usize, const CQS: usize, const KEYS: usize>(
        self,
        nic: &mut Nic<'_, 'p, H, QPS, CQS, KEYS>,
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

/// A piece of a [`Pool`]: bytes that are its owner's alone. Dropped, it is at home again.
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
    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is")]
    pub fn len(&self) -> usize {
        self.pool.len
    }

    fn offset(&self) -> usize {
        usize::try_from(self.at).unwrap_or(usize::MAX).saturating_mul(self.pool.len)
    }

    /// Copies bytes in at `at`. What does not fit is left out; returns how many were copied.
    pub fn copy_in(&mut self, at: usize, from: &[u8]) -> usize {
        let count = self.pool.len.saturating_sub(at).min(from.len());
        let from = from.get(..count).unwrap_or_default();
        self.pool.memory.copy_in(self.offset().saturating_add(at), from)
    }

    /// Copies bytes out from `at`. Returns how many there were.
    pub fn copy_out(&self, at: usize, to: &mut [u8]) -> usize {
        let count = self.pool.len.saturating_sub(at).min(to.len());
        let to = to.get_mut(..count).unwrap_or_default();
        self.pool.memory.copy_out(self.offset().saturating_add(at), to)
    }

    /// Its first `len` bytes; no more than it has.
    #[must_use]
    pub fn to_vec(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.min(self.pool.len)];
        self.copy_out(0, &mut bytes);
        bytes
    }

    /// All of it as a peer names it. Of use to the peer if the pool was registered with remote
    /// rights, and then the piece stays out, here, for as long as the peer has the name.
    #[must_use]
    pub fn remote(&self) -> RmrTriplet {
        let LmrTriplet { addr, len, .. } = self.segment();
        RmrTriplet { addr, len, context: self.pool.lmr.rmr_context }
    }
}

impl<H: Host> Lend for Piece<'_, H> {
    fn segment(&self) -> LmrTriplet {
        LmrTriplet {
            addr: self.pool.lmr.region.addr.saturating_add(self.offset() as u64),
            len: u32::try_from(self.pool.len).unwrap_or(u32::MAX),
            context: self.pool.lmr.lmr_context,
        }
    }
}

impl<H: Host> Drop for Piece<'_, H> {
    fn drop(&mut self) {
        let at = self.at;
        self.pool.with_free(|free| free.push(at));
    }
}
