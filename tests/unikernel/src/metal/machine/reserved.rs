//! Memory of the image that is set aside for the device. The device sees it where the CPU does,
//! since no IOMMU is switched on.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use crate::host::{ARENA, FIRMWARE, Lent};

#[repr(C, align(4096))]
struct Pages<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: only the arena and the device touch the bytes, through raw pointers.
unsafe impl<const N: usize> Sync for Pages<N> {}

#[cfg_attr(dat_image, unsafe(link_section = ".arena"))]
static MEMORY: Pages<ARENA> = Pages(UnsafeCell::new([0; ARENA]));
#[cfg_attr(dat_image, unsafe(link_section = ".arena"))]
static RESERVE: Pages<FIRMWARE> = Pages(UnsafeCell::new([0; FIRMWARE]));

/// Returns the arena and the firmware's pages.
pub(super) fn memory() -> [Lent; 2] {
    [lent(&MEMORY), lent(&RESERVE)]
}

fn lent<const N: usize>(pages: &'static Pages<N>) -> Lent {
    let device = pages.0.get().expose_provenance() as u64;
    Lent { cpu: NonNull::from(pages).cast(), device }
}
