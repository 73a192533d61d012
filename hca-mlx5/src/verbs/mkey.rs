//! Memory keys of regions: CREATE_MKEY over a page list, and its end.
//!
//! PRM "CREATE_MKEY". A region's key translates the region's own virtual addresses, with exactly
//! the rights asked for: remote access is never on unless asked. Only memory inside the platform's
//! arena, or that the host lent, can be registered. The low byte of the key is random at first, and
//! goes through all others before it comes back on the same index, so that a key that outlived its
//! region does not open the next one there.
//!
//! A command carries the list of one key, [`MAX_PAGES`] at most. A region that has more, or that is
//! named by other addresses than fit its pages, is a key of KLM translation over several keys with
//! lists, each of which grants local rights and is known to nobody. PRM "KLM"; Linux registers its
//! largest regions likewise, by indirect keys over others.

use dat_core::fault;
use dat_core::provider::{Access, Fault, Region};

use crate::device::cmd::MAX_MESSAGE;
use crate::device::page_list::{PageList, Place};
use crate::device::{Caps, Device};
use crate::platform::{Platform, Span};
use crate::prm::At;
use crate::prm::cmd::Opcode;
use crate::prm::mkey::{self, Mkey, MkeyContext};
use crate::prm::{put, wqe};

/// Longest region. A window over it states its length in a field of 32 bits of which the highest is
/// not the length's.
pub const MAX_REGION: u64 = (1 << 31) - 4096;

/// Most pages of a key's list: what the longest command carries, in pairs.
pub const MAX_PAGES: usize = (MAX_MESSAGE - mkey::TRANSLATION_AT) / 16 * 2;

/// Most keys beneath one: they hold the longest region that there is, however its pages lie.
pub const MAX_PARTS: usize = (MAX_REGION >> 12) as usize / MAX_PAGES + 2;

/// Most pages of a fast registration.
pub const MAX_REGISTERED: u32 = 1 << 15;

/// Where `region` is for the device: in the arena, or lent.
pub fn place<P: Platform>(device: &Device<'_, P>, region: Region) -> Result<Place, Fault> {
    if region.len == 0 || region.len > MAX_REGION {
        return Err(fault!(
            BadParameter,
            "CREATE_MKEY",
            "a region has from 1 byte to 2 GiB less 4 KiB",
            "register larger memory piece by piece",
        ));
    }
    if let Some(span) = span(device.platform(), region) {
        return Ok(Place::Arena(span));
    }
    let lent = device.config.lender.and_then(|lender| lender.lent(region)).and_then(|iova| {
        iova.checked_add(region.len)?;
        let len = usize::try_from(region.len).ok()?;
        Some(Place::Lent { iova, len })
    });
    lent.ok_or(fault!(
        BadParameter,
        "CREATE_MKEY",
        "the region is neither inside the arena nor lent to the device",
        "register only memory that the platform handed out, or that the host lent before",
    ))
}

/// The piece of the arena that `region` is, if it is one.
fn span<P: Platform>(platform: &P, region: Region) -> Option<Span> {
    let offset = region.addr.checked_sub(platform.memory().addr())?;
    let offset = usize::try_from(offset).ok()?;
    let len = usize::try_from(region.len).ok()?;
    (offset.checked_add(len)? <= platform.memory().len()).then_some(Span { offset, len })
}

/// Attributes of a key, without its translation.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Its protection domain.
    pub pd: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Rights that it grants.
    pub access: Access,
}

/// A CREATE_MKEY up to the translation.
type Head = [u8; mkey::TRANSLATION_AT];

impl Wanted {
    /// The message up to the translation, with all that follows from this on a device with those
    /// capabilities.
    fn message(&self, caps: &Caps, mode: u8, octowords: u32) -> Head {
        let mut input = [0; mkey::TRANSLATION_AT];
        let mut context = MkeyContext(At::<_, { mkey::CONTEXT_AT }>(&mut input));
        context.set_access_mode_1_0(mode);
        context.set_lr(self.access.contains(Access::LOCAL_READ));
        context.set_lw(self.access.contains(Access::LOCAL_WRITE));
        context.set_rr(self.access.contains(Access::REMOTE_READ));
        context.set_rw(self.access.contains(Access::REMOTE_WRITE));
        context.set_a(self.access.contains(Access::REMOTE_ATOMIC));
        if self.access.contains(Access::RELAXED_ORDERING) {
            // Linux `set_mkc_access_pd_addr_fields`.
            let caps = &caps.general;
            let read = caps.relaxed_ordering_read() || caps.relaxed_ordering_read_pci_enabled();
            context.set_relaxed_ordering_write(caps.relaxed_ordering_write());
            context.set_relaxed_ordering_read(read);
        }
        context.set_qpn(wqe::ANY_QPN);
        context.set_pd(self.pd);
        context.set_start_addr(self.start);
        context.set_len(self.len);
        context.set_translations_octword_size(octowords);
        input
    }

    /// The rights of a key beneath this one: the device asks it for the local right that goes with
    /// each. The order is the lower key's as well, which does the transfer.
    #[must_use]
    pub fn beneath(&self) -> Access {
        Access::LOCAL_READ | self.access & (Access::LOCAL_WRITE | Access::RELAXED_ORDERING)
    }
}

/// Registers `region` in protection domain `pd` as one key that names its first byte by `start`.
pub fn create<P: Platform>(
    device: &mut Device<'_, P>,
    pd: u32,
    region: Region,
    start: u64,
    access: Access,
) -> Result<Mkey, Fault> {
    let platform = device.platform();
    let list = PageList::new(platform, place(device, region)?, start, MAX_PAGES)?;
    let wanted = Wanted { pd, start, len: region.len, access };
    over(device, &wanted, &list)
}

/// Makes a key over memory of the arena, or lent.
pub fn over<P: Platform>(
    device: &mut Device<'_, P>,
    wanted: &Wanted,
    list: &PageList,
) -> Result<Mkey, Fault> {
    let platform = device.platform();
    translated(device, wanted, list.count, list.log_page, |message| {
        list.write(platform, message, mkey::TRANSLATION_AT);
    })
}

/// Makes a key over pages as they are, of `2^log_page` bytes.
pub fn over_pages<P: Platform>(
    device: &mut Device<'_, P>,
    wanted: &Wanted,
    pages: &[u64],
    log_page: u8,
) -> Result<Mkey, Fault> {
    translated(device, wanted, pages.len(), log_page, |message| {
        let room = message.get_mut(mkey::TRANSLATION_AT..).unwrap_or_default();
        for (entry, page) in room.as_chunks_mut::<8>().0.iter_mut().zip(pages) {
            *entry = page.to_be_bytes();
        }
    })
}

/// Makes a key over `count` pages, which `write` puts into the message.
#[expect(
    clippy::large_stack_arrays,
    reason = "the longest command there is, once per registration"
)]
fn translated<P: Platform>(
    device: &mut Device<'_, P>,
    wanted: &Wanted,
    count: usize,
    log_page: u8,
    write: impl FnOnce(&mut [u8]),
) -> Result<Mkey, Fault> {
    // Two 8-byte entries to a 16-byte word.
    let octowords = u32::try_from(count.div_ceil(2)).unwrap_or(u32::MAX);
    let mut head = wanted.message(device.caps(), mkey::MODE_MTT, octowords);
    MkeyContext(At::<_, { mkey::CONTEXT_AT }>(&mut head)).set_log_page_size(log_page);
    put(&mut head, mkey::ACTUAL_SIZE_AT, &octowords.to_be_bytes());
    let mut input = [0; MAX_MESSAGE];
    put(&mut input, 0, &head);
    write(&mut input);
    let len = mkey::TRANSLATION_AT + 16 * count.div_ceil(2);
    submit(device, input.get_mut(..len).unwrap_or_default())
}

/// A key that stands for other keys, one behind the other, while they are being made.
#[derive(Debug)]
pub struct Chain {
    input: [u8; mkey::TRANSLATION_AT + 16 * MAX_PARTS],
    count: usize,
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

impl Chain {
    /// One of none.
    #[must_use]
    pub const fn new() -> Self {
        Self { input: [0; mkey::TRANSLATION_AT + 16 * MAX_PARTS], count: 0 }
    }

    /// Appends `len` bytes from `addr` on of the key `below`. False if there is no room.
    pub fn push(&mut self, len: u32, below: Mkey, addr: u64) -> bool {
        let at = mkey::TRANSLATION_AT + 16 * self.count;
        let Some(entry) = self.input.get_mut(at..at + 16) else {
            return false;
        };
        for (half, word) in
            entry.as_chunks_mut::<8>().0.iter_mut().zip(wqe::data(addr, len, below.0))
        {
            *half = word.to_be_bytes();
        }
        self.count += 1;
        true
    }

    /// Makes the key.
    pub fn create<P: Platform>(
        mut self,
        device: &mut Device<'_, P>,
        wanted: &Wanted,
    ) -> Result<Mkey, Fault> {
        // Room in whole granules of four.
        let octowords = self.count.next_multiple_of(4);
        let size = u32::try_from(octowords).unwrap_or(u32::MAX);
        let mut head = wanted.message(device.caps(), mkey::MODE_KLM, size);
        put(&mut head, mkey::ACTUAL_SIZE_AT, &size.to_be_bytes());
        put(&mut self.input, 0, &head);
        let len = mkey::TRANSLATION_AT + 16 * octowords;
        submit(device, self.input.get_mut(..len).unwrap_or_default())
    }
}

/// Log2 of the page size of a key that work requests fill, unless one says another.
pub const LOG_REGISTERED: u8 = 12;

/// Makes a key with room for `pages` pages that opens nothing until a work request says what.
///
/// Linux `drivers/infiniband/hw/mlx5/mr.c`, fast registration: free, changed by UMR, no translation
/// yet.
pub fn allocate<P: Platform>(
    device: &mut Device<'_, P>,
    pd: u32,
    pages: u32,
) -> Result<Mkey, Fault> {
    let wanted = Wanted { pd, start: 0, len: 0, access: Access::empty() };
    let octowords = wqe::page_octowords(pages).into();
    let mut input = wanted.message(device.caps(), mkey::MODE_MTT, octowords);
    let mut context = MkeyContext(At::<_, { mkey::CONTEXT_AT }>(&mut input));
    context.set_free(true);
    context.set_umr_en(true);
    context.set_log_page_size(LOG_REGISTERED);
    submit(device, &mut input)
}

/// Whether the arena has all those pages.
pub fn owns<P: Platform>(platform: &P, pages: &[u64], log_page: u8) -> bool {
    let Some(size) = 1_u64.checked_shl(log_page.into()) else {
        return false;
    };
    let inside = |page: u64| {
        let mut at = 0;
        while let Some((iova, run)) = platform.iova(at).filter(|&(_, run)| run != 0) {
            let end = u64::try_from(run).map_or(iova, |run| iova.saturating_add(run));
            if page >= iova && page.checked_add(size).is_some_and(|last| last <= end) {
                return true;
            }
            at = at.saturating_add(run);
        }
        false
    };
    pages.iter().all(|&page| inside(page))
}

/// Makes a key of `pd` for the driver's own buffers: local read and write, addressed by device
/// address.
pub fn physical<P: Platform>(device: &mut Device<'_, P>, pd: u32) -> Result<Mkey, Fault> {
    let mut input = [0; mkey::TRANSLATION_AT];
    let mut context = MkeyContext(At::<_, { mkey::CONTEXT_AT }>(&mut input));
    const { assert!(mkey::MODE_PA == 0) }
    context.set_lr(true);
    context.set_lw(true);
    context.set_length64(true);
    context.set_qpn(wqe::ANY_QPN);
    context.set_pd(pd);
    submit(device, &mut input)
}

/// Tries to give an index that is used again its next key.
const TRIES: u8 = 4;

/// Sends a CREATE_MKEY and puts the key together. Its low byte is random; if the firmware uses an
/// index again, it is the next in the order of that index (`device::key_rest`). A firmware that
/// reuses indexes in no order gets any byte in the end.
pub(super) fn submit<P: Platform>(
    device: &mut Device<'_, P>,
    input: &mut [u8],
) -> Result<Mkey, Fault> {
    let mut left = TRIES;
    loop {
        left = left.saturating_sub(1);
        let guess = device.key_rest.guess();
        let variant = guess.unwrap_or_else(|| device.random.next_byte());
        MkeyContext(At::<_, { mkey::CONTEXT_AT }>(&mut *input)).set_mkey_7_0(variant);
        let key = Mkey::new(device.make(Opcode::CreateMkey, input)?, variant);
        if device.key_rest.admits(key, left == 0) {
            return Ok(key);
        }
        device.end(Opcode::DestroyMkey, key.index())?;
    }
}

/// Destroys a key. When it returns, the device no longer touches the memory behind it.
pub fn destroy<P: Platform>(device: &mut Device<'_, P>, key: Mkey) -> Result<(), Fault> {
    device.end(Opcode::DestroyMkey, key.index())?;
    device.key_rest.free(key);
    Ok(())
}

#[cfg(test)]
mod tests;
