//! The machine `virt` of QEMU, without firmware: the device tree names the buses; a PL011 takes text;
//! a GICv2 with its frame for messages (GICv2m) takes interrupts; PSCI switches off.

mod gic;

use core::arch::asm;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use hca_mlx5::mmio::MappedBar;

pub(crate) use self::gic::Interrupts;
use super::cpu::hertz;
pub(crate) use super::cpu::{COUNTER, generator, random, ticks};
use super::tree::{self, Tree};
use crate::console::say;
use crate::pci::Bar;
use crate::program::Failed;

/// The registers of a function.
pub(crate) type Registers = MappedBar;

/// Where QEMU puts the tree for an image that is no Linux: at the start of memory.
const TREE: usize = 0x4000_0000;
/// PSCI's function SYSTEM_OFF.
const SYSTEM_OFF: u64 = 0x8400_0008;
/// The first address that the boot code has not mapped.
const END: u64 = 1 << 40;

#[cfg(dat_image)]
core::arch::global_asm!(include_str!("boot.s"));

#[cfg(dat_image)]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("dat-metal: {info}");
    end(false)
}

/// Called by the boot code for every exception.
// SAFETY: no other symbol of the image has this name.
#[unsafe(no_mangle)]
extern "C" fn metal_exception(syndrome: u64, at: u64, address: u64) -> ! {
    say!("dat-metal: exception {syndrome:#x} at {at:#x}, address {address:#x}");
    end(false)
}

/// Called by the boot code, with the address of the device tree or 0.
// SAFETY: no other symbol of the image has this name.
#[unsafe(no_mangle)]
extern "C" fn metal_main(tree: usize) -> ! {
    let tree = if tree == 0 { TREE } else { tree };
    // SAFETY: memory begins at `TREE`, and the loader passes on no other address than of a tree.
    let tree = unsafe { Tree::read(tree) };
    if let Some(port) = tree.and_then(|tree| tree::region(&tree.find("arm,pl011")?, 0)) {
        CONSOLE.store(usize::try_from(port.base).unwrap_or(0), Ordering::Relaxed);
    }
    let done = tree.ok_or("the loader left no device tree").and_then(|tree| run(&tree));
    if let Err(why) = done {
        say!("dat-metal: {why}");
    }
    end(done.is_ok())
}

/// Says how the image ends, and switches the machine off.
fn end(well: bool) -> ! {
    say!("dat-metal: result {}", if well { "ok" } else { "failed" });
    // SAFETY: the call does not return; if it does, it has changed no more than these registers.
    unsafe { asm!("hvc #0", inout("x0") SYSTEM_OFF => _, options(nostack), clobber_abi("C")) };
    loop {
        // SAFETY: the CPU sleeps, as intended.
        unsafe { asm!("wfi", options(nomem, nostack)) };
    }
}

fn run(tree: &Tree) -> Result<(), Failed> {
    gic::find(tree);
    tree::run(tree, hertz())
}

/// Registers, which the boot code has mapped.
pub(super) fn map(bar: Bar) -> Option<Registers> {
    let end = bar.base.checked_add(bar.len)?;
    if end > 1 << 30 && bar.base < 256 << 30 || end > END {
        return None;
    }
    let base = usize::try_from(bar.base).ok()?;
    let base = NonNull::new(core::ptr::with_exposed_provenance_mut(base))?;
    // SAFETY: mapped as registers, at the address of a device, aligned as BARs are.
    Some(unsafe { MappedBar::new(base, usize::try_from(bar.len).ok()?) })
}

/// The PL011's registers: the address that the tree names.
static CONSOLE: AtomicUsize = AtomicUsize::new(0x0900_0000);
/// Polls of the flags before a byte is dropped.
const PATIENCE: u32 = 100_000;

/// The serial port. Firmware, or QEMU, has set it up.
#[derive(Debug)]
pub(crate) struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let base =
            NonNull::new(core::ptr::with_exposed_provenance_mut(CONSOLE.load(Ordering::Relaxed)));
        let Some(base) = base else { return Ok(()) };
        // SAFETY: the registers of a PL011, which the boot code has mapped.
        let port = unsafe { MappedBar::new(base, 4096) };
        for byte in text.bytes() {
            if byte == b'\n' {
                send(&port, b'\r');
            }
            send(&port, byte);
        }
        Ok(())
    }
}

fn send(port: &MappedBar, byte: u8) {
    for _ in 0..PATIENCE {
        // The flag register: transmit FIFO full.
        if port.read32(0x18) & 0x20 == 0 {
            break;
        }
    }
    port.write32(0, byte.into());
}
