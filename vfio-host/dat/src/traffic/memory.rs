//! Registered memory of a test: a buffer and its key.

use dat_core::{LmrParam, LmrTriplet, MemPriv, Pz};
use hca_mlx5::dma::Buffer;
use vfio_host::{Host, Nic};

use super::super::failure::Failure;
use super::adapter::dat;
use super::contents;
use super::hello::Hello;

/// Registered memory.
#[derive(Debug)]
pub(crate) struct Memory<'p, H: Host> {
    buffer: Buffer<'p, H>,
    lmr: LmrParam,
}

impl<'p, H: Host> Memory<'p, H> {
    /// Allocates and registers `len` zeroed bytes in a zone.
    pub(crate) fn new(
        nic: &mut Nic<'_, 'p, H>,
        pz: Pz,
        len: usize,
        rights: MemPriv,
    ) -> Result<Self, Failure> {
        // Memory that the device only reads is mapped read-only in the IOMMU.
        let buffer = if rights.contains(MemPriv::LOCAL_WRITE) {
            nic.buffer(len)
        } else {
            nic.send_buffer(len)
        };
        let buffer = buffer.ok_or_else(|| {
            Failure::new(format!("there is no memory for {len} bytes of buffers"))
                .remedy("give a smaller --size, fewer operations in flight, or fewer connections")
        })?;
        match nic.lmr_create(pz, buffer.region(), rights) {
            Ok(lmr) => Ok(Self { buffer, lmr }),
            Err(error) => {
                buffer.release();
                Err(dat("dat_lmr_create", error))
            }
        }
    }

    /// Returns a piece of it as a local segment.
    pub(crate) fn local(&self, at: usize, len: usize) -> LmrTriplet {
        LmrTriplet {
            addr: self.lmr.region.addr.wrapping_add(at as u64),
            len: u32::try_from(len).unwrap_or(u32::MAX),
            context: self.lmr.lmr_context,
        }
    }

    /// Returns all of it as a remote segment: address, length, key.
    pub(crate) fn far(&self) -> (u64, u64, u32) {
        let region = self.lmr.region;
        (region.addr, region.len, self.lmr.rmr_context)
    }

    /// Compares the bytes at `at` with the contents of message `number`. Returns the offset of the
    /// first byte that differs.
    pub(super) fn differs(
        &self,
        hello: &Hello,
        number: u64,
        at: usize,
        scratch: &mut [u8],
    ) -> Option<usize> {
        self.buffer.copy_out(at, scratch);
        contents::differ(hello.seed, number, scratch)
    }

    /// Writes the contents of message `number` at `at`.
    pub(super) fn fill(&self, hello: &Hello, number: u64, at: usize, scratch: &mut [u8]) {
        contents::fill(hello.seed, number, scratch);
        self.buffer.copy_in(at, scratch);
    }

    /// Reads from `at` on.
    pub(crate) fn load(&self, at: usize, bytes: &mut [u8]) {
        self.buffer.copy_out(at, bytes);
    }

    /// Writes from `at` on.
    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        self.buffer.copy_in(at, bytes);
    }

    /// Frees it.
    pub(crate) fn free(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        // If the registration cannot end, the memory stays allocated: the device may still access
        // it.
        nic.lmr_free(self.lmr.lmr).map_err(|error| dat("dat_lmr_free", error))?;
        self.buffer.release();
        Ok(())
    }
}
