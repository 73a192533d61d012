//! A mapped BAR, and the fences of the machine: the only file that touches device registers.
//!
//! A [`Platform`](crate::platform::Platform) on real hardware embeds a [`MappedBar`] for its
//! registers and calls [`fence`] for its fences. Neither converts byte order nor knows a register
//! by name.
#![expect(
    unsafe_code,
    reason = "registers are reached through raw pointers, here and nowhere else"
)]

use core::ptr::NonNull;

use volatile_register::{RO, WO};

use crate::platform::Fence;

/// A mapped BAR.
#[derive(Debug)]
pub struct MappedBar {
    base: NonNull<u8>,
    len: usize,
    /// Everything of up to 64 bytes that starts at a 64-bit word below this one ends inside the
    /// BAR.
    words: usize,
}

// SAFETY: the pointer is to a mapping that outlives the value (see `new`), and every access is one
// volatile load or store of a register, which the device serializes.
unsafe impl Send for MappedBar {}
// SAFETY: as above; no method keeps state on this side.
unsafe impl Sync for MappedBar {}

impl MappedBar {
    /// Wraps a mapping.
    ///
    /// # Safety
    /// `base` is aligned to 64 bytes and maps `len` bytes of device registers, readable and
    /// writable, for as long as the value lives. Nothing else in the program treats them as
    /// ordinary memory.
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        let words = len.saturating_sub(56) / 8;
        Self { base, len, words }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// It maps nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One 32-bit load; all ones outside the BAR.
    // Not inline, as the stores of 32 bits: what is read is waited for, and doorbells of queues
    // have 64 bits.
    #[inline(never)]
    #[must_use]
    pub fn read32(&self, offset: usize) -> u32 {
        let Some(register) = self.register::<u32>(offset) else {
            return u32::MAX;
        };
        // SAFETY: `register` points to an aligned register inside the mapping.
        let register: &RO<u32> = unsafe { register.cast().as_ref() };
        register.read()
    }

    /// One 32-bit store; dropped outside the BAR.
    #[inline(never)]
    pub fn write32(&self, offset: usize, value: u32) {
        let Some(register) = self.register::<u32>(offset) else {
            return;
        };
        // SAFETY: `register` points to an aligned register inside the mapping.
        let register: &WO<u32> = unsafe { register.cast().as_ref() };
        // SAFETY: what the store makes the device do stays inside memory that it was given: the
        // driver's whole purpose.
        unsafe { register.write(value) }
    }

    /// One 64-bit store; dropped outside the BAR. A single transaction where the machine has 64-bit
    /// stores.
    #[inline]
    pub fn write64(&self, offset: usize, value: u64) {
        let Some(register) = self.register::<u64>(offset) else {
            return;
        };
        // SAFETY: `register` points to an aligned register inside the mapping.
        let register: &WO<u64> = unsafe { register.cast().as_ref() };
        // SAFETY: as in `write32`.
        unsafe { register.write(value) }
    }

    /// Eight 64-bit stores in ascending order; dropped unless all of them are inside the BAR.
    #[inline]
    pub fn write_block(&self, offset: usize, block: &[u64; 8]) {
        let Some(registers) = self.register::<[WO<u64>; 8]>(offset) else {
            return;
        };
        // SAFETY: `registers` points to aligned registers inside the mapping.
        let registers = unsafe { registers.as_ref() };
        for (register, word) in registers.iter().zip(block) {
            // SAFETY: as in `write32`.
            unsafe { register.write(*word) }
        }
    }

    /// The register of type `T` at `offset`, if it is inside and aligned.
    #[inline]
    fn register<T>(&self, offset: usize) -> Option<NonNull<T>> {
        // One compare for alignment and end: rotated, a misaligned offset is a huge number.
        let word = offset.rotate_right(3);
        if align_of::<T>() == 8 && size_of::<T>() <= 64 && word < self.words {
            // SAFETY: the word is inside the mapping.
            return Some(unsafe { self.base.cast::<u64>().add(word) }.cast());
        }
        self.any_register(offset)
    }

    /// As [`Self::register`], for any type and up to the end of the BAR.
    #[cold]
    #[inline(never)]
    fn any_register<T>(&self, offset: usize) -> Option<NonNull<T>> {
        if !offset.is_multiple_of(align_of::<T>()) || !ends_by(offset, size_of::<T>(), self.len) {
            return None;
        }
        // SAFETY: `offset` is inside the mapping.
        Some(unsafe { self.base.byte_add(offset) }.cast())
    }
}

/// Whether `size` bytes from `offset` on end inside `len`.
fn ends_by(offset: usize, size: usize, len: usize) -> bool {
    offset.checked_add(size).is_some_and(|end| end <= len)
}

/// [`Dma::fence`](crate::platform::Dma::fence) over ordinary, coherent memory, on this CPU.
// Always inline: the kind is a constant where the driver calls it.
#[inline(always)]
pub fn fence(fence: Fence) {
    match fence {
        Fence::BeforeRecord => before_record(),
        Fence::BeforeDoorbell => {
            before_uncached();
            // Stores to a write-combining mapping do not leave an x86 in order.
            #[cfg(target_arch = "x86_64")]
            store_fence();
        }
        Fence::BeforeUncached => before_uncached(),
        Fence::AfterOwnership => after_ownership(),
        Fence::AfterDoorbell => after_doorbell(),
    }
}

#[inline(always)]
fn before_record() {
    // ORDER: stores to host memory before later stores to host memory. x86 stores in order: no
    // instruction.
    #[cfg(not(target_arch = "aarch64"))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier changes nothing but order. Outer shareable, as the device is the observer.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

#[inline(always)]
fn before_uncached() {
    // ORDER: all stores to host memory before any later store to the BAR. x86 stores in order: no
    // instruction.
    #[cfg(target_arch = "x86_64")]
    core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier changes nothing but order. Outer shareable: the device is an observer, not
    // only the CPUs.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

#[inline(always)]
fn after_ownership() {
    // ORDER: the load that saw ownership before all later loads of host memory. x86 loads in order:
    // no instruction.
    #[cfg(not(target_arch = "aarch64"))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier changes nothing but order.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
}

#[inline(always)]
fn after_doorbell() {
    // ORDER: stores to the BAR have left the CPU's combining buffers before anything later.
    #[cfg(target_arch = "x86_64")]
    {
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        store_fence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier changes nothing but order.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn store_fence() {
    // SAFETY: a barrier changes nothing but order. By its name, not by the intrinsic: that one
    // wants SSE, which an image without floating point does not have.
    unsafe { core::arch::asm!("sfence", options(nostack, preserves_flags)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[repr(align(64))]
    struct Registers([u64; 16]);

    fn bar(registers: &mut Registers) -> MappedBar {
        let base = NonNull::from(&mut registers.0).cast();
        // SAFETY: the array is aligned, outlives the value in each test, and is not touched while
        // it lives.
        unsafe { MappedBar::new(base, 128) }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut registers = Registers([0; 16]);
        let bar = bar(&mut registers);
        bar.write32(4, 0x1234_5678);
        assert_eq!(bar.read32(4), 0x1234_5678);
        bar.write64(8, 0x1122_3344_5566_7788);
        assert_eq!(
            bar.read32(8),
            u32::from_ne_bytes(0x1122_3344_5566_7788u64.to_ne_bytes()[..4].try_into().unwrap())
        );
        bar.write_block(64, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(registers.0[8..].to_vec(), vec![1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn outside_reads_ones_and_drops_stores() {
        let mut registers = Registers([7; 16]);
        let bar = bar(&mut registers);
        assert_eq!(bar.read32(128), u32::MAX);
        assert_eq!(bar.read32(126), u32::MAX);
        assert_eq!(bar.read32(usize::MAX - 1), u32::MAX);
        assert_eq!(bar.read32(2), u32::MAX, "not a register boundary");
        bar.write32(128, 1);
        bar.write64(124, 1);
        bar.write_block(72, &[9; 8]);
        assert_eq!(registers.0, [7; 16]);
    }
}
