//! Memory keys of regions: CREATE_MKEY over a page list, and its end.
//!
//! PRM "CREATE_MKEY". A region's key translates the region's own virtual addresses, with exactly the rights asked for:
//! remote access is never on unless asked. Only memory inside the platform's arena can be registered. The low byte of
//! the key is random, so that a key that outlived its region does not open the next one with the same index by chance.

use dat_core::provider::{Access, Fault, Region};

use super::pages::PageList;
use crate::cmd::MAX_MESSAGE;
use crate::device::Device;
use crate::platform::{Platform, Span};
use crate::prm::cmd::Opcode;
use crate::prm::mkey::{self, Mkey, MkeyContext};
use crate::prm::{put, wqe};
use crate::words::fault;

/// Longest region. A window over it states its length in a field of 32 bits of which the highest is not the length's.
pub const MAX_REGION: u64 = (1 << 31) - 4096;

/// Most pages of a region's list: what the longest command carries, in pairs.
const MAX_PAGES: usize = (MAX_MESSAGE - mkey::TRANSLATION_AT) / 16 * 2;

/// The piece of the arena that `region` is.
pub fn span<P: Platform>(platform: &P, region: Region) -> Result<Span, Fault> {
    if region.len == 0 || region.len > MAX_REGION {
        return Err(fault!(
            BadParameter,
            "CREATE_MKEY",
            "a region has from 1 byte to 2 GiB less 4 KiB",
            "register only memory that the platform handed out",
        ));
    }
    let outside = fault!(
        BadParameter,
        "CREATE_MKEY",
        "the region is not inside the arena",
        "register only memory that the platform handed out",
    );
    let offset = region
        .addr
        .checked_sub(platform.arena_addr())
        .ok_or(outside)?;
    let offset = usize::try_from(offset).map_err(|_| outside)?;
    let len = usize::try_from(region.len).map_err(|_| outside)?;
    let end = offset.checked_add(len).ok_or(outside)?;
    if end > platform.arena_len() {
        return Err(outside);
    }
    Ok(Span { offset, len })
}

/// Registers `region` in protection domain `pd`.
#[expect(
    clippy::large_stack_arrays,
    reason = "the longest command there is, once per registration"
)]
pub fn create<P: Platform>(
    device: &mut Device<'_, P>,
    pd: u32,
    region: Region,
    access: Access,
) -> Result<Mkey, Fault> {
    let platform = device.platform();
    let list = PageList::new(platform, span(platform, region)?, region.addr, MAX_PAGES)?;
    let pages = u32::try_from(list.count).unwrap_or(u32::MAX);
    // Two 8-byte entries to a 16-byte word.
    let octowords = pages.div_ceil(2);
    let variant = variant(platform);

    let mut context = MkeyContext::new();
    context.set_access_mode_1_0(mkey::MODE_MTT);
    context.set_lr(access.contains(Access::LOCAL_READ));
    context.set_lw(access.contains(Access::LOCAL_WRITE));
    context.set_rr(access.contains(Access::REMOTE_READ));
    context.set_rw(access.contains(Access::REMOTE_WRITE));
    context.set_a(access.contains(Access::REMOTE_ATOMIC));
    context.set_qpn(wqe::ANY_QPN);
    context.set_mkey_7_0(variant);
    context.set_pd(pd);
    context.set_start_addr(region.addr);
    context.set_len(region.len);
    context.set_translations_octword_size(octowords);
    context.set_log_page_size(list.log_page);

    let mut input = [0; MAX_MESSAGE];
    context.write(&mut input, mkey::CONTEXT_AT);
    put(&mut input, mkey::ACTUAL_SIZE_AT, &octowords.to_be_bytes());
    list.write(platform, &mut input, mkey::TRANSLATION_AT);
    let len = mkey::TRANSLATION_AT + 16 * list.count.div_ceil(2);
    submit(device, input.get_mut(..len).unwrap_or_default(), variant)
}

/// Makes a key of `pd` for the driver's own buffers: local read and write, addressed by device address.
pub fn physical<P: Platform>(device: &mut Device<'_, P>, pd: u32) -> Result<Mkey, Fault> {
    let variant = variant(device.platform());
    let mut context = MkeyContext::new();
    context.set_access_mode_1_0(mkey::MODE_PA);
    context.set_lr(true);
    context.set_lw(true);
    context.set_length64(true);
    context.set_qpn(wqe::ANY_QPN);
    context.set_mkey_7_0(variant);
    context.set_pd(pd);
    let mut input = [0; mkey::TRANSLATION_AT];
    context.write(&mut input, mkey::CONTEXT_AT);
    submit(device, &mut input, variant)
}

/// Sends a CREATE_MKEY and puts the key together.
pub(super) fn submit<P: Platform>(
    device: &mut Device<'_, P>,
    input: &mut [u8],
    variant: u8,
) -> Result<Mkey, Fault> {
    let index = device.make(Opcode::CreateMkey, input)?;
    Ok(Mkey::new(index, variant))
}

/// Destroys a key. When it returns, the device no longer touches the memory behind it.
pub fn destroy<P: Platform>(device: &mut Device<'_, P>, key: Mkey) -> Result<(), Fault> {
    device.end(Opcode::DestroyMkey, key.index())
}

/// A random low byte for a key.
pub(super) fn variant<P: Platform>(platform: &P) -> u8 {
    let [byte, ..] = platform.entropy().to_le_bytes();
    byte
}
