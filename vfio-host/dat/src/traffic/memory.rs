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
    /// Memory of `len` bytes in a zone, zeroed.
    pub(crate) fn new(
        nic: &mut Nic<'_, 'p, H>,
        pz: Pz,
        len: usize,
        rights: MemPriv,
    ) -> Result<Self, Failure> {
        // What the device has no business writing, the IOMMU keeps it from writing.
        let buffer = if rights.contains(MemPriv::LOCAL_WRITE) {
            nic.buffer(len)
        } else {
            nic.send_buffer(len)
        };
        let buffer = buffer.ok_or_else(|| {
            Failure::new(format!("there is no memory for {len} bytes of buffers"))
                .remedy("a smaller --size or --depth")
        })?;
        match nic.lmr_create(pz, buffer.region(), rights) {
            Ok(lmr) => Ok(Self { buffer, lmr }),
            Err(error) => {
                buffer.release();
                Err(dat("dat_lmr_create", error))
            }
        }
    }

    /// A piece of it for a local segment.
    pub(crate) fn local(&self, at: usize, len: usize) -> LmrTriplet {
        LmrTriplet {
            addr: self.lmr.region.addr.wrapping_add(at as u64),
            len: u32::try_from(len).unwrap_or(u32::MAX),
            context: self.lmr.lmr_context,
        }
    }

    /// All of it, as a peer names it: address, length, key.
    pub(crate) fn far(&self) -> (u64, u64, u32) {
        let region = self.lmr.region;
        (region.addr, region.len, self.lmr.rmr_context)
    }

    /// The place of the first byte at `at` that is not as message `number` has it.
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

    /// Gives it back.
    pub(crate) fn free(self, nic: &mut Nic<'_, 'p, H>) -> Result<(), Failure> {
        // What the device may still reach is not given to anybody else.
        nic.lmr_free(self.lmr.lmr).map_err(|error| dat("dat_lmr_free", error))?;
        self.buffer.release();
        Ok(())
    }
}
