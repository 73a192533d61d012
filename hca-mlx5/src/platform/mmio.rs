//! A mapped BAR, and the fences of the machine: the only file that touches device registers.
//!
//! [`MappedBar`] is what a [`crate::platform::Platform`] on real hardware embeds for its BAR half;
//! the fences are what it calls for its three. Neither converts byte order nor knows a register by
//! name.
#![expect(
    unsafe_code,
    reason = "registers are reached through raw pointers, here and nowhere else"
)]

use core::marker::PhantomData;
use core::ptr::NonNull;

use volatile_register::{RO, WO};

use crate::platform::entries::{self, Register};

/// A mapped BAR.
#[derive(Debug)]
pub struct MappedBar {
    base: NonNull<u8>,
    len: usize,
    /// Everything of up to 64 bytes that starts below this offset ends inside the BAR.
    inner: usize,
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
        let inner = len.saturating_sub(63);
        Self { base, len, inner }
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

    /// [`crate::platform::Platform::register`].
    #[must_use]
    pub fn doorbell(&self, offset: usize, half: usize) -> Option<MappedRegister<'_>> {
        if !entries::halves(offset, half, self.len) {
            return None;
        }
        // SAFETY: `halves` has seen that the register is inside the mapping.
        let place = unsafe { self.base.byte_add(offset) }.as_ptr();
        // Turning flips the bits of `half` in the address; they are clear in a mapping that starts
        // on a page.
        (place.addr() & half == 0).then_some(MappedRegister { place, half, bar: PhantomData })
    }

    /// The place of a `T` at `offset`, if it is inside and aligned.
    #[inline]
    fn register<T>(&self, offset: usize) -> Option<NonNull<T>> {
        if !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // One compare for all but the last bytes of the BAR.
        let short = size_of::<T>() <= 64 && offset < self.inner;
        if !short && !ends_by(offset, size_of::<T>(), self.len) {
            return None;
        }
        // SAFETY: `offset` is inside the mapping.
        Some(unsafe { self.base.byte_add(offset) }.cast())
    }
}

/// A doorbell register of a mapped BAR, and its other half.
#[derive(Debug)]
pub struct MappedRegister<'a> {
    /// The current half.
    place: *mut u8,
    half: usize,
    bar: PhantomData<&'a ()>,
}

// SAFETY: as for the BAR, which outlives the value.
unsafe impl Send for MappedRegister<'_> {}
// SAFETY: as above.
unsafe impl Sync for MappedRegister<'_> {}

impl MappedRegister<'_> {
    #[inline(always)]
    fn words(&self) -> &[WO<u64>; 8] {
        // SAFETY: both halves were seen to be inside the mapping, aligned to 64 bytes as the
        // mapping and the offsets are, and they are registers.
        unsafe { &*self.place.cast() }
    }
}

impl Register for MappedRegister<'_> {
    #[inline(always)]
    fn write64(&self, value: u64) {
        let [register, ..] = self.words();
        // SAFETY: as in `MappedBar::write32`.
        unsafe { register.write(value) }
    }

    #[inline(always)]
    fn write_block(&self, block: &[u64; 8]) {
        for (register, word) in self.words().iter().zip(block) {
            // SAFETY: as in `MappedBar::write32`.
            unsafe { register.write(*word) }
        }
    }

    #[inline(always)]
    fn turn(&mut self) {
        self.place = self.place.map_addr(|place| place ^ self.half);
    }
}

/// Whether `size` bytes from `offset` on end inside `len`.
#[cold]
fn ends_by(offset: usize, size: usize, len: usize) -> bool {
    offset.checked_add(size).is_some_and(|end| end <= len)
}

/// [`crate::platform::Platform::before_record`] for ordinary, coherent memory: the one fence
/// between stores to memory of the same kind.
#[inline]
pub fn before_record() {
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

/// [`crate::platform::Platform::before_doorbell`] for ordinary, coherent memory.
#[inline]
pub fn before_doorbell(write_combining: bool) {
    // ORDER: all stores to host memory before any later store to the BAR.
    #[cfg(target_arch = "x86_64")]
    {
        // Stores leave in order here; only the compiler must be held. To a write-combining mapping
        // they do not.
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
        if write_combining {
            store_fence();
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let _ = write_combining;
        // SAFETY: a barrier changes nothing but order. Outer shareable: the device is an observer,
        // not only the CPUs.
        unsafe { core::arch::asm!("dmb oshst", options(nostack, preserves_flags)) }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = write_combining;
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    }
}

/// [`crate::platform::Platform::after_ownership`] for ordinary, coherent memory.
#[inline]
pub fn after_ownership() {
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

/// [`crate::platform::Platform::after_mmio`].
#[inline]
pub fn after_mmio(write_combining: bool) {
    // ORDER: stores to the BAR have left the CPU's combining buffers before anything later.
    #[cfg(target_arch = "x86_64")]
    {
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        if write_combining {
            store_fence();
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let _ = write_combining;
        // SAFETY: a barrier changes nothing but order.
        unsafe { core::arch::asm!("dsb st", options(nostack, preserves_flags)) }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = write_combining;
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn store_fence() {
    // SAFETY: a barrier changes nothing but order. By its name, not by the intrinsic: that one
    // wants SSE, which an image without floating point does not have.
    unsafe { core::arch::asm!("sfence", options(nostack, preserves_flags)) }
}

/// In an `impl Platform`: BAR 0 is the [`MappedBar`] in this field.
///
/// `forward_bar!(bar)` writes `bar_len`, `read32`, `write32`, `write64`, `write_block`, `Register`
/// and `register`, each of one line, over `self.bar`; `forward_bar!(except read32: bar)` leaves
/// `read32` to the platform. A field may be reached through others, or through calls:
/// `forward_bar!(device.bar())`.
#[macro_export]
macro_rules! forward_bar {
    (except read32: $($bar:tt)+) => {
        fn bar_len(&self) -> usize {
            self.$($bar)+.len()
        }
        fn write32(&self, offset: usize, value: u32) {
            self.$($bar)+.write32(offset, value);
        }
        fn write64(&self, offset: usize, value: u64) {
            self.$($bar)+.write64(offset, value);
        }
        fn write_block(&self, offset: usize, block: &[u64; 8]) {
            self.$($bar)+.write_block(offset, block);
        }
        type Register<'p>
            = $crate::platform::mmio::MappedRegister<'p>
        where
            Self: 'p;
        fn register(
            &self,
            offset: usize,
            half: usize,
        ) -> Option<$crate::platform::mmio::MappedRegister<'_>> {
            self.$($bar)+.doorbell(offset, half)
        }
    };
    ($($bar:tt)+) => {
        fn read32(&self, offset: usize) -> u32 {
            self.$($bar)+.read32(offset)
        }
        $crate::forward_bar!(except read32: $($bar)+);
    };
}

/// In an `impl Platform`: the fences of this CPU for ordinary, coherent memory.
///
/// `forward_order!()` writes `before_doorbell`, `before_record`, `after_ownership` and
/// `after_mmio`, over those of [`mmio`](self).
#[macro_export]
macro_rules! forward_order {
    () => {
        #[inline]
        fn before_doorbell(&self) {
            $crate::platform::mmio::before_doorbell(Self::WRITE_COMBINING);
        }
        #[inline]
        fn before_record(&self) {
            $crate::platform::mmio::before_record();
        }
        #[inline]
        fn after_ownership(&self) {
            $crate::platform::mmio::after_ownership();
        }
        #[inline]
        fn after_mmio(&self) {
            $crate::platform::mmio::after_mmio(Self::WRITE_COMBINING);
        }
    };
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
