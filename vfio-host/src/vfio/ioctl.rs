//! VFIO ioctls that `vfio-ioctls` does not provide, or whose errors it does not return.
#![expect(unsafe_code, reason = "ioctl takes a pointer to a structure that depends on the request")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::ioctl::{Opcode, opcode};
use vfio_bindings::bindings::vfio::{
    VFIO_BASE, VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE, VFIO_TYPE,
    vfio_iommu_type1_dma_map, vfio_iommu_type1_dma_unmap, vfio_irq_set,
};

use crate::host::{Mapping, Reach};

/// Numbers of the ioctls, relative to VFIO's base.
const SET_IRQS: u8 = 10;
const RESET: u8 = 11;
const IOMMU_GET_INFO: u8 = 12;
const MAP_DMA: u8 = 13;
const UNMAP_DMA: u8 = 14;

const fn request(number: u8) -> Opcode {
    let [group, ..] = VFIO_TYPE.to_le_bytes();
    let [base, ..] = VFIO_BASE.to_le_bytes();
    opcode::none(group, base.wrapping_add(number))
}

/// Calls an ioctl with an argument that the kernel may write to.
fn call<T: ?Sized>(fd: &impl AsRawFd, number: u8, argument: &mut T) -> io::Result<()> {
    let argument: *mut T = argument;
    // SAFETY: every caller below gives the structure that its request takes, whole, and with its
    // length in the field for it.
    let result =
        unsafe { libc::ioctl(fd.as_raw_fd(), u64::from(request(number)), argument.cast::<u8>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

const fn size<T>() -> u32 {
    // Structures of a few words.
    #[expect(clippy::cast_possible_truncation, reason = "a few words")]
    let size = size_of::<T>() as u32;
    size
}

/// Returns the properties of the container's IOMMU: the fixed part and the capabilities.
pub(super) fn iommu_info(container: &impl AsRawFd) -> io::Result<Vec<u8>> {
    // The kernel fills in as much as fits and returns the full length.
    let mut words = vec![0u64; 512];
    for _ in 0..2 {
        let bytes = u32::try_from(words.len() * 8).unwrap_or(0);
        let [first, ..] = words.as_mut_slice() else {
            break;
        };
        *first = u64::from(bytes).to_le();
        if cfg!(target_endian = "big") {
            *first = u64::from(bytes) << 32;
        }
        call(container, IOMMU_GET_INFO, words.as_mut_slice())?;
        let needed = words.first().map_or(0, |word| {
            let [a, b, c, d, ..] = word.to_ne_bytes();
            u32::from_ne_bytes([a, b, c, d])
        });
        if needed <= bytes {
            break;
        }
        words = vec![0; usize::try_from(needed).unwrap_or(0).div_ceil(8).min(1 << 16)];
    }
    Ok(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
}

/// Maps memory at `addr` for the device, with the access rights of the mapping.
pub(super) fn map_dma(container: &impl AsRawFd, mapping: &Mapping, addr: u64) -> io::Result<()> {
    let mut argument = vfio_iommu_type1_dma_map {
        argsz: size::<vfio_iommu_type1_dma_map>(),
        flags: match mapping.reach {
            Reach::Read => VFIO_DMA_MAP_FLAG_READ,
            Reach::ReadWrite => VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
        },
        vaddr: addr,
        iova: mapping.iova,
        size: mapping.len,
    };
    call(container, MAP_DMA, &mut argument)
}

/// Ends a mapping.
pub(super) fn unmap_dma(container: &impl AsRawFd, mapping: &Mapping) -> io::Result<()> {
    let mut argument = vfio_iommu_type1_dma_unmap {
        argsz: size::<vfio_iommu_type1_dma_unmap>(),
        flags: 0,
        iova: mapping.iova,
        size: mapping.len,
        ..Default::default()
    };
    call(container, UNMAP_DMA, &mut argument)
}

/// Resets the function.
pub(super) fn reset(device: &impl AsRawFd) -> io::Result<()> {
    call(device, RESET, &mut [0u8; 0])
}

/// Wires `fds` to the first interrupts of a kind, or disables all of that kind if `fds` is empty.
pub(super) fn set_irqs(
    device: &impl AsRawFd,
    flags: u32,
    index: u32,
    fds: &[OwnedFd],
) -> io::Result<()> {
    let count = u32::try_from(fds.len()).unwrap_or(0);
    let bytes = size::<vfio_irq_set>().saturating_add(count.saturating_mul(4));
    let mut argument = vec![bytes, flags, index, 0, count];
    argument.extend(fds.iter().map(|fd| fd.as_raw_fd().cast_unsigned()));
    call(device, SET_IRQS, argument.as_mut_slice())
}

/// Duplicates the descriptor of `owner`.
pub(super) fn duplicate(owner: &impl AsRawFd) -> io::Result<OwnedFd> {
    // SAFETY: `owner` and its descriptor are valid during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(owner.as_raw_fd()) };
    fd.try_clone_to_owned()
}
