//! Local Memory Regions: dat_lmr_*(3).
//!
//! The `lmr_context` that consumers put into their triplets is a word of ours, slot and generation,
//! so that a post finds and checks its LMR without a search. The `rmr_context` is the key on the
//! wire.
//!
//! Besides the memory types of uDAPL there are those of kDAPL that an embedder has use for: pages
//! by device address ([`Ia::lmr_kcreate`](crate::Ia::lmr_kcreate)), regions that a queued request
//! registers ([`Ia::lmr_allocate`](crate::Ia::lmr_allocate), [`Ia::lmr_fmr`](crate::Ia::lmr_fmr),
//! [`Ia::lmr_invalidate`](crate::Ia::lmr_invalidate)), and all memory at once, for
//! local use ([`Ia::ia_reserved_lmr`](crate::Ia::ia_reserved_lmr)). What triplets name in those are
//! not addresses of the host, so they never take the straight way of a post, which may read the
//! payload itself.

use crate::objects::table::Kind;
use crate::provider::{Mr, Region};
use crate::types::dat_return::{DatReturn, DatSubtype, DatType};
use crate::types::flags::{MemPriv, VaType};
use crate::types::handle::{Ep, Lmr, Pz};

/// `DAT_MEM_TYPE` with its `DAT_REGION_DESCRIPTION`: what is registered.
#[derive(Clone, Copy, Debug)]
pub enum Memory<'a> {
    /// Memory of the host.
    Virtual(Region),
    /// The memory of another LMR, under its own zone, privileges and addresses. Either may be freed
    /// first.
    Lmr(Lmr),
    /// Memory of the host that the host shares with others under this name: the 40 bytes of the
    /// `DAT_LMR_COOKIE`, all of which count.
    SharedVirtual(Region, &'a [u8; 40]),
}

/// Pages of equal size by their device addresses, one after another: `DAT_MEM_TYPE_PHYSICAL`.
#[derive(Clone, Copy, Debug)]
pub struct PhysicalPages<'a> {
    /// Where each begins; multiples of the page.
    pub pages: &'a [u64],
    /// log2 of the page, 12 at least.
    pub log_page: u8,
    /// Bytes of them, from the first on.
    pub len: u64,
}

impl PhysicalPages<'_> {
    /// The same as a region that begins at the first page, if it is one.
    pub(crate) fn region(&self) -> Option<Region> {
        let size = 1_u64.checked_shl(self.log_page.into())?;
        let fits = self.log_page >= 12
            && self.len.div_ceil(size) == u64::try_from(self.pages.len()).ok()?
            && self.pages.iter().all(|page| page % size == 0);
        let addr = *self.pages.first()?;
        addr.checked_add(self.len)?;
        fits.then_some(Region { addr, len: self.len })
    }
}

/// `DAT_MEM_TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MemType {
    /// Memory of the host.
    Virtual = 0,
    /// The memory of another LMR.
    Lmr = 1,
    /// Memory that the host shares.
    SharedVirtual = 2,
    /// kDAPL: pages by device address.
    Physical = 0x10,
    /// kDAPL: all memory by device address.
    Ia = 0x40,
}

impl MemType {
    /// Its memory is named by addresses of the host.
    pub(crate) const fn is_of_host(self) -> bool {
        match self {
            Self::Virtual | Self::Lmr | Self::SharedVirtual => true,
            Self::Physical | Self::Ia => false,
        }
    }
}

/// What the control half knows of one LMR.
#[derive(Debug)]
pub(crate) struct LmrControl {
    pub(crate) pz: Pz,
    /// As made.
    pub(crate) mr: Mr,
    /// The present key: a fast registration changes the low byte.
    pub(crate) rkey: u32,
    pub(crate) mem_type: MemType,
    pub(crate) va_type: VaType,
    pub(crate) region: Region,
    pub(crate) privileges: MemPriv,
    pub(crate) context: u32,
    /// Most pages of a fast registration; 0 if it is not for those.
    pub(crate) pages: u32,
    /// Fast registrations, from the generation of the slot on.
    pub(crate) turn: u32,
    /// The Endpoint that its last edit was posted on.
    pub(crate) editor: Option<Ep>,
}

impl Kind for LmrControl {
    type Handle = Lmr;
    const STALE: DatReturn = DatReturn::new(DatType::InvalidHandle, DatSubtype::InvalidHandleLmr);
}
