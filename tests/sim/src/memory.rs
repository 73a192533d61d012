//! The memory of a host's consumers: of the arena, or lent by them.

use dat_core::LmrTriplet;
use dat_core::provider::Region;
use dat_tests::host::inproc::{self, Slot};
use dat_tests::laws::rng::Rng;
use hca_mlx5::dma::Buffer;
use hca_mlx5::platform::{Dma as _, Lend as _};

use crate::world::{Adapter, Sim};

/// The memory of a host's consumers.
pub enum Memory<'s> {
    /// A piece of the arena.
    Arena(Buffer<'s, Slot>),
    /// A piece of their own.
    Lent(&'s Slot, Region),
}

impl std::fmt::Debug for Memory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Memory").field(&self.region()).finish()
    }
}

impl<'s> Memory<'s> {
    /// So many zeros.
    #[must_use]
    pub fn new(slot: &'s Slot, len: usize, lent: bool) -> Option<Self> {
        if lent {
            return Some(Self::Lent(slot, slot.lend(len)));
        }
        Buffer::zeroed(slot, len).map(Self::Arena)
    }

    /// Where it is, for registrations.
    #[must_use]
    pub fn region(&self) -> Region {
        match self {
            Self::Arena(buffer) => buffer.region(),
            Self::Lent(_, region) => *region,
        }
    }

    /// The consumer stores bytes.
    pub fn copy_in(&self, at: usize, bytes: &[u8]) {
        match self {
            Self::Arena(buffer) => {
                buffer.copy_in(at, bytes);
            }
            Self::Lent(slot, region) => {
                let mut views = slot.views();
                views.lent_at(region.addr + at as u64, bytes.len()).copy_from_slice(bytes);
            }
        }
    }

    /// The consumer loads bytes.
    pub fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        match self {
            Self::Arena(buffer) => {
                buffer.copy_out(at, bytes);
            }
            Self::Lent(slot, region) => {
                let mut views = slot.views();
                bytes.copy_from_slice(views.lent_at(region.addr + at as u64, bytes.len()));
            }
        }
    }

    /// Bytes as the device sees them.
    fn device_bytes(&self, slot: &Slot, at: usize, bytes: &mut [u8]) {
        let addr = self.region().addr + at as u64;
        let mut done = 0;
        while done < bytes.len() {
            let (addr, left) = (addr + done as u64, bytes.len() - done);
            let place = match self {
                Self::Arena(_) => slot.iova((addr - inproc::ARENA) as usize),
                Self::Lent(..) => {
                    slot.lent(Region { addr, len: left as u64 }).map(|iova| (iova, left))
                }
            };
            let Some((iova, run)) = place else { break };
            let part = run.min(left);
            let _ = slot.views().read_dma(iova, &mut bytes[done..done + part]);
            done += part;
        }
    }

    /// Gives it back.
    pub fn release(self) {
        match self {
            Self::Arena(buffer) => buffer.release(),
            Self::Lent(slot, region) => slot.take_back(region),
        }
    }
}

impl Sim<'_> {
    /// A segment of a host's own memory.
    #[must_use]
    pub fn segment(adapter: &Adapter<'_>, at: usize, len: usize) -> LmrTriplet {
        LmrTriplet {
            addr: adapter.lmr.region.addr + at as u64,
            len: len as u32,
            context: adapter.lmr.lmr_context,
        }
    }

    /// Bytes of a host's memory as the device sees them.
    #[must_use]
    pub fn device_bytes(&self, host: usize, at: usize, len: usize) -> Vec<u8> {
        let known = &self.hosts[host];
        let mut bytes = vec![0; len];
        if let Some(adapter) = &known.adapter {
            adapter.mem.device_bytes(known.slot, at, &mut bytes);
        }
        bytes
    }

    /// New contents, which say where they belong.
    #[must_use]
    pub fn contents(&mut self, cookie: u64, len: usize) -> Vec<u8> {
        let mut rng = Rng::new(self.shape.seed ^ cookie.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&rng.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// A host stores bytes into its own memory.
    pub fn store(adapter: &mut Adapter<'_>, at: usize, bytes: &[u8]) {
        adapter.mem.copy_in(at, bytes);
        adapter.image[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The memory is as it is: whatever was under way there has ended.
    pub fn adopt(&mut self, host: usize, at: usize, len: usize) {
        let bytes = self.device_bytes(host, at, len);
        if let Some(adapter) = &mut self.hosts[host].adapter {
            adapter.image[at..at + len].copy_from_slice(&bytes);
        }
    }
}
