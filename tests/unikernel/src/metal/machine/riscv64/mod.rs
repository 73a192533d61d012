//! The machine `virt` of QEMU, without firmware, in machine mode: the device tree names the buses; a
//! 16550 takes text; an IMSIC takes interrupts, if the machine has one (`aia=aplic-imsic`); a test
//! device switches off.

mod imsic;

use core::arch::asm;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use hca_mlx5::mmio::MappedBar;

pub(crate) use self::imsic::Interrupts;
use super::tree::{self, Tree};
use crate::console::say;
use crate::pci::Bar;
use crate::program::Failed;

/// The registers of a function.
pub(crate) type Registers = MappedBar;
/// The counter.
pub(crate) const COUNTER: &str = "time";

/// What the test device takes: the machine is off, with QEMU's exit code 0 or 1.
const PASS: u32 = 0x5555;
const FAIL: u32 = 1 << 16 | 0x3333;

/// Addresses that the tree names: of the serial port and of the test device.
static CONSOLE: AtomicUsize = AtomicUsize::new(0x1000_0000);
static TEST: AtomicUsize = AtomicUsize::new(0x10_0000);

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
extern "C" fn metal_exception(cause: u64, at: u64, address: u64) -> ! {
    say!("dat-metal: exception {cause} at {at:#x}, address {address:#x}");
    end(false)
}

/// Called by the boot code, with the address of the device tree.
// SAFETY: no other symbol of the image has this name.
#[unsafe(no_mangle)]
extern "C" fn metal_main(tree: usize) -> ! {
    // SAFETY: the loader passes on the address of a tree.
    let tree = unsafe { Tree::read(tree) };
    for (place, name) in [(&CONSOLE, "ns16550a"), (&TEST, "sifive,test1")] {
        if let Some(region) = tree.and_then(|tree| tree::region(&tree.find(name)?, 0)) {
            place.store(usize::try_from(region.base).unwrap_or(0), Ordering::Relaxed);
        }
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
    if let Some(test) = registers(&TEST) {
        test.write32(0, if well { PASS } else { FAIL });
    }
    loop {
        // SAFETY: the CPU sleeps, as intended.
        unsafe { asm!("wfi", options(nomem, nostack)) };
    }
}

fn run(tree: &Tree) -> Result<(), Failed> {
    imsic::find(tree);
    let hertz = tree.hertz().ok_or("the device tree names no frequency of the counter")?;
    tree::run(tree, hertz.into())
}

/// Registers at an address of the machine: there is no translation.
pub(super) fn map(bar: Bar) -> Option<Registers> {
    let base = usize::try_from(bar.base).ok()?;
    let base = NonNull::new(core::ptr::with_exposed_provenance_mut(base))?;
    // SAFETY: at the address of a device, aligned as BARs are.
    Some(unsafe { MappedBar::new(base, usize::try_from(bar.len).ok()?) })
}

/// The counter `time`.
pub(crate) fn ticks() -> u64 {
    let count;
    // SAFETY: reading the counter changes nothing.
    unsafe { asm!("rdtime {}", out(reg) count, options(nomem, nostack)) };
    count
}

/// Returns the name of the CPU's generator, if it has one.
pub(crate) fn generator() -> Option<&'static str> {
    random().map(|_| "Zkr")
}

/// Reads the CPU's source of entropy: 16 bits at a time, and it may have none for a moment.
pub(crate) fn random() -> Option<u64> {
    if !imsic::has(imsic::SEED) {
        return None;
    }
    let (mut number, mut pieces) = (0, 0);
    for _ in 0..1000 {
        let seed: u64;
        // SAFETY: the CPU has the register; it has to be read and written at once.
        unsafe { asm!("csrrw {}, 0x015, zero", out(reg) seed, options(nomem, nostack)) };
        // State ES16: there are 16 bits.
        if seed >> 30 & 3 == 2 {
            number = number << 16 | seed & 0xffff;
            pieces += 1;
            if pieces == 4 {
                return Some(number);
            }
        }
    }
    None
}

/// Polls of the line status before a byte is dropped.
const PATIENCE: u32 = 100_000;

/// The serial port, a 16550 with registers of a byte. QEMU has set it up.
#[derive(Debug)]
pub(crate) struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let base = CONSOLE.load(Ordering::Relaxed);
        let [data, status] = [base, base + 5].map(core::ptr::with_exposed_provenance_mut::<u8>);
        let send = |byte: u8| {
            for _ in 0..PATIENCE {
                // SAFETY: the port's register.
                if unsafe { status.read_volatile() } & 0x20 != 0 {
                    break;
                }
            }
            // SAFETY: as above.
            unsafe { data.write_volatile(byte) };
        };
        for byte in text.bytes() {
            if byte == b'\n' {
                send(b'\r');
            }
            send(byte);
        }
        Ok(())
    }
}

/// Registers of a device whose address is in `place`.
fn registers(place: &AtomicUsize) -> Option<Registers> {
    map(Bar { base: place.load(Ordering::Relaxed) as u64, len: 4096 })
}
