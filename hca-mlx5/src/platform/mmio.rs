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

use crate::platform::{Blocks, Fence};

/// Bytes of a block.
const BLOCK: usize = 64;

/// A mapped BAR.
#[derive(Debug)]
pub struct MappedBar {
    base: NonNull<u8>,
    len: usize,
    /// How many words of 64 bits there are.
    words: usize,
    /// At how many of them a block of eight stores may start.
    blocks: usize,
    /// How many blocks there are that are stored whole: all or none.
    whole: usize,
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
    /// writable, for as long as the value exists. Nothing else in the program treats them as
    /// ordinary memory.
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len, words: len / 8, blocks: len.saturating_sub(56) / 8, whole: 0 }
    }

    /// The same, whose blocks of 64 bytes are stored whole, if this CPU can: then that does what
    /// write-combining is for, over any mapping.
    #[must_use]
    pub fn storing_whole(self) -> Self {
        if !stores_whole() {
            return self;
        }
        Self { whole: self.len / BLOCK, ..self }
    }

    /// How blocks reach the device. Whether the mapping is write-combining is not known here.
    #[must_use]
    pub const fn blocks(&self) -> Blocks {
        if self.whole == 0 { Blocks::Words } else { Blocks::Whole }
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
        if !self.has::<RO<u32>>(offset) {
            return u32::MAX;
        }
        // SAFETY: it is there.
        let value = unsafe { self.register::<RO<u32>>(offset) }.read();
        after_register();
        value
    }

    /// One 32-bit store; dropped outside the BAR.
    #[inline(never)]
    pub fn write32(&self, offset: usize, value: u32) {
        if !self.has::<WO<u32>>(offset) {
            return;
        }
        // SAFETY: it is there.
        let register = unsafe { self.register::<WO<u32>>(offset) };
        // SAFETY: what the store makes the device do stays inside memory that it was given: the
        // driver's whole purpose.
        unsafe { register.write(value) }
    }

    /// One 64-bit store. Dropped outside the BAR: returns whether it is inside. A single
    /// transaction where the machine has 64-bit stores.
    #[inline]
    pub fn write64(&self, offset: usize, value: u64) -> bool {
        if !self.has::<WO<u64>>(offset) {
            return false;
        }
        // SAFETY: it is there.
        let register = unsafe { self.register::<WO<u64>>(offset) };
        // SAFETY: as in `write32`.
        unsafe { register.write(value) }
        true
    }

    /// One block: in one store if `how` is [`Blocks::Whole`], else in eight 64-bit stores, in
    /// ascending order. Dropped unless all of it is inside the BAR, aligned to 64 bytes or to a
    /// word, and stored whole only by a CPU that does so ([`Self::blocks`]): returns whether it is.
    // Of a constant `how` the other way costs nothing; decided here, it costs a post eleven
    // instructions.
    #[inline(always)]
    pub fn write_block(&self, offset: usize, block: &[u64; 8], how: Blocks) -> bool {
        if how == Blocks::Whole {
            return self.write_whole(offset, block);
        }
        if !self.has::<[WO<u64>; 8]>(offset) {
            return false;
        }
        // SAFETY: they are there.
        let registers = unsafe { self.register::<[WO<u64>; 8]>(offset) };
        for (register, word) in registers.iter().zip(block) {
            // SAFETY: as in `write32`.
            unsafe { register.write(*word) }
        }
        true
    }

    /// One block in one store.
    #[inline]
    fn write_whole(&self, offset: usize, block: &[u64; 8]) -> bool {
        // Rotated, a misaligned offset is a huge number.
        if offset.rotate_right(BLOCK.trailing_zeros()) >= self.whole {
            return false;
        }
        // SAFETY: it is inside the mapping and aligned, and the CPU has the store: else `whole` is
        // 0. What the store makes the device do is as in `write32`.
        unsafe { store_whole(self.base.as_ptr().wrapping_add(offset), block) };
        true
    }

    /// Whether a register of type `T` at `offset` is inside and aligned.
    // Apart from `register`: between them, an `Option` of a pointer is tested twice.
    #[inline]
    fn has<T>(&self, offset: usize) -> bool {
        // One compare for alignment and end: rotated, a misaligned offset is a huge number.
        let unit = align_of::<T>();
        let index = offset.rotate_right(unit.trailing_zeros());
        index
            < match size_of::<T>() / unit {
                1 if unit == 8 => self.words,
                8 if unit == 8 => self.blocks,
                units => (self.len / unit + 1).saturating_sub(units),
            }
    }

    /// The register of type `T` at `offset`.
    ///
    /// # Safety
    /// [`Self::has`] says that it is there.
    #[inline]
    unsafe fn register<T>(&self, offset: usize) -> &T {
        // SAFETY: the caller's promise: the register is inside the mapping.
        let register = unsafe { self.base.byte_add(offset) };
        // SAFETY: as above, and it is aligned.
        unsafe { register.cast().as_ref() }
    }
}

/// Whether this CPU stores 64 bytes in one transaction to memory of any type: MOVDIR64B (Intel SDM
/// volume 2, CPUID leaf 7, ECX bit 28). ST64B of Armv8.7 needs a mapping that supports it, of which
/// VFIO says nothing, and is not used.
fn stores_whole() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{__cpuid_count, CpuidResult};
        // It is safe to call since Rust 1.94, and as a pointer unsafe in every version.
        let cpuid: unsafe fn(u32, u32) -> CpuidResult = __cpuid_count;
        // SAFETY: every x86-64 CPU has the instruction.
        let leaf = |leaf| unsafe { cpuid(leaf, 0) };
        leaf(0).eax >= 7 && leaf(7).ecx & 1 << 28 != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Stores a block at once. Like a store to a write-combining mapping it is ordered by store fences
/// only.
///
/// # Safety
/// The CPU has that store; `to` is aligned to 64 bytes and may be written.
#[cfg(target_arch = "x86_64")]
unsafe fn store_whole(to: *mut u8, block: &[u64; 8]) {
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("movdir64b {}, [{}]", in(reg) to, in(reg) block, options(nostack, preserves_flags));
    }
}

/// On other machines `whole` is 0, and it is not called.
///
/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn store_whole(_: *mut u8, _: &[u64; 8]) {}

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
    // The fences of `core` order no access to a device there.
    #[cfg(target_arch = "riscv64")]
    // SAFETY: a barrier changes nothing but order.
    unsafe {
        core::arch::asm!("fence w, o", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
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
fn after_register() {
    // ORDER: the load of a register before all later loads of registers and of host memory. Of the
    // CPUs here RISC-V alone needs it for the loads that the driver does then.
    #[cfg(target_arch = "riscv64")]
    // SAFETY: a barrier changes nothing but order.
    unsafe {
        core::arch::asm!("fence i, ir", options(nostack, preserves_flags));
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
    #[cfg(target_arch = "riscv64")]
    // SAFETY: a barrier changes nothing but order.
    unsafe {
        core::arch::asm!("fence o, w", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
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
    use std::{println, vec};

    #[repr(align(64))]
    struct Registers([u64; 16]);

    fn bar(registers: &mut Registers) -> MappedBar {
        let base = NonNull::from(&mut registers.0).cast();
        // SAFETY: the array is aligned, outlives the value in each test, and is not touched while
        // it exists.
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
        bar.write_block(64, &[1, 2, 3, 4, 5, 6, 7, 8], Blocks::Combined);
        assert_eq!(registers.0[8..].to_vec(), vec![1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_block_stored_whole_is_all_there_and_aligned() {
        let mut registers = Registers([7; 16]);
        let bar = bar(&mut registers).storing_whole();
        if bar.blocks() == Blocks::Words {
            println!("this CPU has no store of 64 bytes: nothing to test");
            return;
        }
        assert!(bar.write_block(64, &[1, 2, 3, 4, 5, 6, 7, 8], Blocks::Whole));
        for outside in [8, 128, usize::MAX - 63] {
            assert!(!bar.write_block(outside, &[9; 8], Blocks::Whole));
        }
        assert_eq!(registers.0[..8], [7; 8]);
        assert_eq!(registers.0[8..].to_vec(), vec![1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn outside_reads_ones_and_drops_stores() {
        let mut registers = Registers([7; 16]);
        let bar = bar(&mut registers);
        assert!(!bar.write_block(64, &[9; 8], Blocks::Whole), "not asked for");
        assert_eq!(bar.read32(128), u32::MAX);
        assert_eq!(bar.read32(126), u32::MAX);
        assert_eq!(bar.read32(usize::MAX - 1), u32::MAX);
        assert_eq!(bar.read32(2), u32::MAX, "not a register boundary");
        bar.write32(128, 1);
        bar.write64(124, 1);
        bar.write_block(72, &[9; 8], Blocks::Combined);
        assert_eq!(registers.0, [7; 16]);
    }
}
