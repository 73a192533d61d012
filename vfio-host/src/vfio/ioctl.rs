//! ioctls of VFIO and iommufd that `vfio-ioctls` does not provide, or whose errors it does not
//! return.
#![expect(unsafe_code, reason = "ioctl takes a pointer to a structure that depends on the request")]

use std::io;
use std::mem::size_of;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::ioctl::{Opcode, opcode};
use vfio_bindings::bindings::vfio::{
    VFIO_BASE, VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE, VFIO_TYPE,
    vfio_device_attach_iommufd_pt, vfio_device_bind_iommufd, vfio_iommu_type1_dma_map,
    vfio_iommu_type1_dma_unmap, vfio_irq_info, vfio_irq_set, vfio_region_info,
};

use crate::host::{Mapping, Reach};

/// Requests of VFIO, by their numbers from its base.
const GET_REGION_INFO: Opcode = vfio(8);
const GET_IRQ_INFO: Opcode = vfio(9);
const SET_IRQS: Opcode = vfio(10);
const RESET: Opcode = vfio(11);
const IOMMU_GET_INFO: Opcode = vfio(12);
const MAP_DMA: Opcode = vfio(13);
const UNMAP_DMA: Opcode = vfio(14);
const BIND_IOMMUFD: Opcode = vfio(18);
const ATTACH_IOMMUFD_PT: Opcode = vfio(19);

/// Requests of iommufd (`linux/iommufd.h`).
const IOAS_ALLOC: Opcode = opcode::none(b';', 0x81);
const IOAS_IOVA_RANGES: Opcode = opcode::none(b';', 0x84);
const IOAS_MAP: Opcode = opcode::none(b';', 0x85);
const IOAS_UNMAP: Opcode = opcode::none(b';', 0x86);
/// Flags of `IOAS_MAP`: at the address given; writeable; readable.
const FIXED_IOVA: u32 = 1;
const WRITEABLE: u32 = 2;
const READABLE: u32 = 4;
/// Ranges in the first buffer for them, and at most.
const RANGES: usize = 16;
const MOST_RANGES: usize = 1 << 12;

/// `struct iommu_ioas_alloc`
#[repr(C)]
#[derive(Debug, Default)]
struct IoasAlloc {
    size: u32,
    flags: u32,
    out_ioas_id: u32,
}

/// `struct iommu_ioas_iova_ranges`
#[repr(C)]
#[derive(Debug, Default)]
struct IoasIovaRanges {
    size: u32,
    ioas_id: u32,
    num_iovas: u32,
    reserved: u32,
    allowed_iovas: u64,
    out_iova_alignment: u64,
}

/// `struct iommu_ioas_map`
#[repr(C)]
#[derive(Debug, Default)]
struct IoasMap {
    size: u32,
    flags: u32,
    ioas_id: u32,
    reserved: u32,
    user_va: u64,
    length: u64,
    iova: u64,
}

/// `struct iommu_ioas_unmap`
#[repr(C)]
#[derive(Debug, Default)]
struct IoasUnmap {
    size: u32,
    ioas_id: u32,
    iova: u64,
    length: u64,
}

const fn vfio(number: u8) -> Opcode {
    let [group, ..] = VFIO_TYPE.to_le_bytes();
    let [base, ..] = VFIO_BASE.to_le_bytes();
    opcode::none(group, base.wrapping_add(number))
}

/// Calls an ioctl with an argument that the kernel may write to.
fn call<T: ?Sized>(fd: &impl AsRawFd, request: Opcode, argument: &mut T) -> io::Result<()> {
    let argument: *mut T = argument;
    // SAFETY: every caller below gives the structure that its request takes, whole, and with its
    // length in the field for it; an address in it is that of memory of the length beside it.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), u64::from(request), argument.cast::<u8>()) };
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

/// Makes the device one of iommufd's.
pub(super) fn bind_iommufd(device: &impl AsRawFd, iommu: &impl AsRawFd) -> io::Result<()> {
    let mut argument = vfio_device_bind_iommufd {
        argsz: size::<vfio_device_bind_iommufd>(),
        iommufd: iommu.as_raw_fd(),
        ..Default::default()
    };
    call(device, BIND_IOMMUFD, &mut argument)
}

/// Makes an empty address space and returns its ID.
pub(super) fn ioas_alloc(iommu: &impl AsRawFd) -> io::Result<u32> {
    let mut argument = IoasAlloc { size: size::<IoasAlloc>(), ..Default::default() };
    call(iommu, IOAS_ALLOC, &mut argument)?;
    Ok(argument.out_ioas_id)
}

/// Attaches the device to an address space.
pub(super) fn attach(device: &impl AsRawFd, space: u32) -> io::Result<()> {
    let mut argument = vfio_device_attach_iommufd_pt {
        argsz: size::<vfio_device_attach_iommufd_pt>(),
        pt_id: space,
        ..Default::default()
    };
    call(device, ATTACH_IOMMUFD_PT, &mut argument)
}

/// Returns the ranges of device addresses that an address space can map.
pub(super) fn iova_ranges(
    iommu: &impl AsRawFd,
    space: u32,
) -> io::Result<Vec<RangeInclusive<u64>>> {
    let mut ranges = vec![[0u64; 2]; RANGES];
    loop {
        let mut argument = IoasIovaRanges {
            size: size::<IoasIovaRanges>(),
            ioas_id: space,
            num_iovas: u32::try_from(ranges.len()).unwrap_or(0),
            allowed_iovas: ranges.as_mut_ptr().expose_provenance() as u64,
            ..Default::default()
        };
        let done = call(iommu, IOAS_IOVA_RANGES, &mut argument);
        let count = usize::try_from(argument.num_iovas).unwrap_or(0);
        match done {
            Err(error)
                if error.raw_os_error() == Some(libc::EMSGSIZE)
                    && (ranges.len()..MOST_RANGES).contains(&count) =>
            {
                ranges = vec![[0; 2]; count.saturating_add(1)];
            }
            Err(error) => return Err(error),
            Ok(()) => {
                ranges.truncate(count);
                return Ok(ranges.iter().map(|[start, last]| *start..=*last).collect());
            }
        }
    }
}

/// Maps memory at `addr` in an address space, with the access rights of the mapping.
pub(super) fn ioas_map(
    iommu: &impl AsRawFd,
    space: u32,
    mapping: &Mapping,
    addr: u64,
) -> io::Result<()> {
    let write = match mapping.reach {
        Reach::Read => 0,
        Reach::ReadWrite => WRITEABLE,
    };
    let mut argument = IoasMap {
        size: size::<IoasMap>(),
        flags: FIXED_IOVA | READABLE | write,
        ioas_id: space,
        reserved: 0,
        user_va: addr,
        length: mapping.len,
        iova: mapping.iova,
    };
    call(iommu, IOAS_MAP, &mut argument)
}

/// Ends a mapping of an address space.
pub(super) fn ioas_unmap(iommu: &impl AsRawFd, space: u32, mapping: &Mapping) -> io::Result<()> {
    let mut argument = IoasUnmap {
        size: size::<IoasUnmap>(),
        ioas_id: space,
        iova: mapping.iova,
        length: mapping.len,
    };
    call(iommu, IOAS_UNMAP, &mut argument)
}

/// Returns a region's offset in the device's file, its length and its properties.
pub(super) fn region_info(device: &impl AsRawFd, index: u32) -> io::Result<vfio_region_info> {
    let mut argument =
        vfio_region_info { argsz: size::<vfio_region_info>(), index, ..Default::default() };
    call(device, GET_REGION_INFO, &mut argument)?;
    Ok(argument)
}

/// Returns the number of interrupts of a kind.
pub(super) fn irq_count(device: &impl AsRawFd, index: u32) -> io::Result<u32> {
    let mut argument =
        vfio_irq_info { argsz: size::<vfio_irq_info>(), index, ..Default::default() };
    call(device, GET_IRQ_INFO, &mut argument)?;
    Ok(argument.count)
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
    argument.extend(fds.iter().map(|fd| 0_u32.wrapping_add_signed(fd.as_raw_fd())));
    call(device, SET_IRQS, argument.as_mut_slice())
}

/// Duplicates the descriptor of `owner`.
pub(super) fn duplicate(owner: &impl AsRawFd) -> io::Result<OwnedFd> {
    // SAFETY: `owner` and its descriptor are valid during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(owner.as_raw_fd()) };
    fd.try_clone_to_owned()
}
