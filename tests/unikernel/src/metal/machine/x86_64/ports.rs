//! The instructions for I/O ports of a PC.

use core::arch::asm;

/// Reads one byte from a port.
pub(crate) fn read8(port: u16) -> u8 {
    let value;
    // SAFETY: reading a port does not access memory. The caller is responsible for side effects on
    // the device.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags))
    };
    value
}

/// Writes one byte to a port.
pub(crate) fn write8(port: u16, value: u8) {
    // SAFETY: as in `read8`; no port written here makes a device access memory.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags))
    };
}

/// Reads 16 bits from a port.
pub(crate) fn read16(port: u16) -> u16 {
    let value;
    // SAFETY: as in `read8`.
    unsafe {
        asm!("in ax, dx", in("dx") port, out("ax") value, options(nomem, nostack, preserves_flags))
    };
    value
}

/// Writes 16 bits to a port.
pub(crate) fn write16(port: u16, value: u16) {
    // SAFETY: as in `write8`.
    unsafe {
        asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack, preserves_flags))
    };
}

/// Reads 32 bits from a port.
pub(crate) fn read32(port: u16) -> u32 {
    let value;
    // SAFETY: as in `read8`.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack, preserves_flags))
    };
    value
}

/// Writes 32 bits to a port.
pub(crate) fn write32(port: u16, value: u32) {
    // SAFETY: as in `write8`.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags))
    };
}
