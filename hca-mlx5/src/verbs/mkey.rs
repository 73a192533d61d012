//! Memory keys of regions: CREATE_MKEY over a page list, and its end.
//!
//! PRM "CREATE_MKEY". A region's key translates the region's own virtual addresses, with exactly
//! the rights asked for: remote access is never on unless asked. Only memory inside the platform's
//! arena, or that the host lent, can be registered. The low byte of the key is random at first, and
//! goes through all others before it comes back on the same index, so that a key that outlived its
//! region does not open the next one there.
//!
//! A command carries the list of one key: [`MAX_PAGES`] in the mailboxes that are always there, up to
//! [`LONGEST_LIST`] in mailboxes that are taken for a while. A region that has more, or that is named
//! by addresses under which its pages would be small, is a key of KLM translation over several keys
//! with lists, each of which grants local rights and is known to nobody. PRM "KLM"; Linux registers
//! its largest regions likewise, by indirect keys over others.

use dat_core::fault;
use dat_core::provider::{Access, Fault, Region};

use crate::device::cmd::MAX_MESSAGE;
use crate::device::cmd::mailbox::{LONGEST_MESSAGE, Tail};
use crate::device::key_rest::Guess;
use crate::device::page_list::{PageList, Place};
use crate::device::{Begun, Caps, Device};
use crate::platform::{Platform, Span};
use crate::prm::At;
use crate::prm::cmd::{Opcode, OutputHead};
use crate::prm::mkey::{self, Mkey, MkeyContext};
use crate::prm::{put, wqe};

/// Longest region, where the device does not say less (`log_max_mrw_sz`).
pub const MAX_REGION: u64 = 1 << 40;

/// Longest span of one key that another stands for: its length has 31 bits (rdma-core,
/// `providers/mlx5/qp.c`: binds of up to 2 GiB), and ends with a page.
pub const MAX_SPAN: u64 = (1 << 31) - 4096;

/// Pages of a key's list in a message of that length: they come in pairs.
#[must_use]
pub const fn pages_in(message: usize) -> usize {
    message.saturating_sub(mkey::TRANSLATION_AT) / 16 * 2
}

/// Most pages of a key's list without memory for a long message.
pub const MAX_PAGES: usize = pages_in(MAX_MESSAGE);

/// Most pages of a key's list.
pub const LONGEST_LIST: usize = pages_in(LONGEST_MESSAGE);

/// Most pages of a fast registration.
pub const MAX_REGISTERED: u32 = 1 << 15;

/// Longest region of a device with those capabilities.
#[must_use]
pub fn max_region(caps: &Caps) -> u64 {
    // The cards that were asked say 2^64; none has been seen that says 0, which means nothing.
    let said = Some(caps.general.log_max_mrw_sz()).filter(|log| *log != 0);
    said.and_then(|log| 1_u64.checked_shl(log.into())).unwrap_or(MAX_REGION).min(MAX_REGION)
}

/// Where `region` is for the device: in the arena, or lent.
pub fn place<P: Platform>(device: &Device<'_, P>, region: Region) -> Result<Place, Fault> {
    if region.len == 0 || region.len > max_region(device.caps()) {
        return Err(fault!(
            BadParameter,
            "CREATE_MKEY",
            "a region has a byte or more, and no more than 2^40 or the device's log_max_mrw_sz allow",
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
    let listed = Listed { platform: device.platform(), list };
    translated(device, wanted, list.log_page, &listed)
}

/// A CREATE_MKEY on its way: the low byte that it carries, and how that was chosen.
#[derive(Debug)]
pub(crate) struct Creation {
    begun: Begun,
    guess: Guess,
    variant: u8,
}

/// Asks the device for a key over memory, without a wait; `ahead` others are on their way. None if
/// it has to wait for others.
pub(crate) fn begin_over<P: Platform>(
    device: &mut Device<'_, P>,
    wanted: &Wanted,
    list: &PageList,
    ahead: usize,
) -> Result<Option<Creation>, Fault> {
    let listed = Listed { platform: device.platform(), list };
    let mut head = translated_head(device, wanted, list.log_page, &listed);
    let guess = device.key_rest.guess(ahead);
    let variant = vary(device, &mut head, guess);
    let begun = device.begin(Opcode::CreateMkey, 0, &mut head, &listed)?;
    Ok(begun.map(|begun| Creation { begun, guess, variant }))
}

/// Waits for the device's answer; asks anew if there was no room for the command, not enough pages,
/// or the low byte is not the one that the key's index needs.
pub(crate) fn finish_over<P: Platform>(
    device: &mut Device<'_, P>,
    wanted: &Wanted,
    list: &PageList,
    creation: Option<Creation>,
) -> Result<Mkey, Fault> {
    let mut left = TRIES;
    let begun = creation.and_then(|Creation { begun, guess, variant }| {
        Some((device.complete(&begun)?, guess, variant))
    });
    if let Some((answer, guess, variant)) = begun {
        let key = Mkey::new(answer?, variant);
        if device.key_rest.admits(key, guess, false) {
            return Ok(key);
        }
        device.end(Opcode::DestroyMkey, key.index())?;
        left = left.saturating_sub(1);
    }
    let listed = Listed { platform: device.platform(), list };
    let mut head = translated_head(device, wanted, list.log_page, &listed);
    try_to_submit(device, &mut head, &listed, left)
}

/// The pages of a list, behind a head.
struct Listed<'a, P> {
    platform: &'a P,
    list: &'a PageList,
}

impl<P: Platform> Tail for Listed<'_, P> {
    fn len(&self) -> usize {
        16 * self.list.count.div_ceil(2)
    }
    fn write(&self, at: usize, to: &mut [u8]) {
        self.list.write(self.platform, at / 8, to);
    }
}

/// Makes a key over pages as they are, of `2^log_page` bytes.
pub fn over_pages<P: Platform>(
    device: &mut Device<'_, P>,
    wanted: &Wanted,
    pages: &[u64],
    log_page: u8,
) -> Result<Mkey, Fault> {
    translated(device, wanted, log_page, &Given(pages))
}

/// Pages as they are, behind a head.
struct Given<'a>(&'a [u64]);

impl Tail for Given<'_> {
    fn len(&self) -> usize {
        16 * self.0.len().div_ceil(2)
    }
    fn write(&self, at: usize, to: &mut [u8]) {
        let pages = self.0.get(at / 8..).unwrap_or_default();
        for (entry, page) in
            to.chunks_exact_mut(8).filter_map(<[_]>::first_chunk_mut::<8>).zip(pages)
        {
            *entry = page.to_be_bytes();
        }
    }
}

/// Makes a key over the pages that `list` writes.
fn translated<P: Platform>(
    device: &mut Device<'_, P>,
    wanted: &Wanted,
    log_page: u8,
    list: &dyn Tail,
) -> Result<Mkey, Fault> {
    let mut head = translated_head(device, wanted, log_page, list);
    submit(device, &mut head, list)
}

/// The head of the message for that.
fn translated_head<P: Platform>(
    device: &Device<'_, P>,
    wanted: &Wanted,
    log_page: u8,
    list: &dyn Tail,
) -> Head {
    let mut head = filled(device, wanted, mkey::MODE_MTT, list);
    MkeyContext(At::<_, { mkey::CONTEXT_AT }>(&mut head)).set_log_page_size(log_page);
    head
}

/// Makes a key that stands for other keys, one behind the other, whose entries `list` writes: 16
/// bytes each, padded to whole granules of four.
pub(crate) fn over_keys<P: Platform>(
    device: &mut Device<'_, P>,
    wanted: &Wanted,
    list: &dyn Tail,
) -> Result<Mkey, Fault> {
    let mut head = filled(device, wanted, mkey::MODE_KLM, list);
    submit(device, &mut head, list)
}

/// The head of a message for a key whose translation is there from the beginning.
fn filled<P: Platform>(device: &Device<'_, P>, wanted: &Wanted, mode: u8, list: &dyn Tail) -> Head {
    let octowords = u32::try_from(list.len() / 16).unwrap_or(u32::MAX);
    let mut head = wanted.message(device.caps(), mode, octowords);
    put(&mut head, mkey::ACTUAL_SIZE_AT, &octowords.to_be_bytes());
    head
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
    submit(device, &mut input, &())
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
    submit(device, &mut input, &())
}

/// Tries to give an index that is used again its next key.
const TRIES: u8 = 4;

/// Sends a CREATE_MKEY and puts the key together. Its low byte is random; if the firmware uses an
/// index again, it is the next in the order of that index (`device::key_rest`). A firmware that
/// reuses indexes in no order gets any byte in the end.
pub(super) fn submit<P: Platform>(
    device: &mut Device<'_, P>,
    input: &mut [u8],
    tail: &dyn Tail,
) -> Result<Mkey, Fault> {
    try_to_submit(device, input, tail, TRIES)
}

/// Puts the low byte into a message: the one that was guessed, or any.
fn vary<P: Platform>(device: &mut Device<'_, P>, input: &mut [u8], guess: Guess) -> u8 {
    let variant = guess.byte.unwrap_or_else(|| device.random.next_byte());
    MkeyContext(At::<_, { mkey::CONTEXT_AT }>(input)).set_mkey_7_0(variant);
    variant
}

/// The same with `left` tries.
fn try_to_submit<P: Platform>(
    device: &mut Device<'_, P>,
    input: &mut [u8],
    tail: &dyn Tail,
    mut left: u8,
) -> Result<Mkey, Fault> {
    loop {
        left = left.saturating_sub(1);
        let guess = device.key_rest.guess(0);
        let variant = vary(device, input, guess);
        let mut output = OutputHead::new();
        device.exec_long(Opcode::CreateMkey, 0, 0, input, tail, &mut output.0)?;
        let key = Mkey::new(output.number(), variant);
        if device.key_rest.admits(key, guess, left == 0) {
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
