//! A PC that a loader of PVH images starts: `boot.s` enters long mode; ACPI names the buses, a timer
//! of known speed and how to switch off; the local APIC takes interrupts.

mod acpi;
mod boot;
mod interrupts;
mod mechanism;
mod memory;
mod paging;
mod ports;
mod serial;

use core::arch::asm;
use core::ptr::NonNull;

use hca_mlx5::mmio::MappedBar;

use self::acpi::{Acpi, Power, Timer};
use self::boot::StartInfo;
use self::interrupts::Frame;
pub(crate) use self::interrupts::Interrupts;
pub(crate) use self::serial::Console;
pub(crate) use super::cpu::{COUNTER, generator, random, ticks};
use super::ecam::Mapped;
use super::reserved;
use crate::clock::Clock;
use crate::console::say;
use crate::pci::{Bar, Config};
use crate::program::{self, Bus, Failed};

/// The registers of a function.
pub(crate) type Registers = MappedBar;
/// The port of the device that ends QEMU.
const DEBUG_EXIT: u16 = 0xf4;
/// Longest wait for the machine to switch off.
const OFF: u64 = 10_000_000_000;
/// Ticks of the ACPI timer to measure the counter for: 10 ms.
const MEASURED: u32 = 35_795;

#[cfg(dat_image)]
core::arch::global_asm!(include_str!("boot.s"), options(att_syntax));
#[cfg(dat_image)]
core::arch::global_asm!(include_str!("../../../mem.s"), options(att_syntax));

#[cfg(dat_image)]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("dat-metal: {info}");
    fail()
}

/// Called by the boot code for every exception.
// SAFETY: no other symbol of the image has this name.
#[cfg_attr(dat_image, unsafe(no_mangle))]
extern "C" fn metal_exception(frame: &Frame) -> ! {
    let address: u64;
    // SAFETY: reading a control register changes nothing.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    say!("dat-metal: exception, address {address:#x}: {frame:#x?}");
    fail()
}

/// Called by the boot code, with the address of the start information.
// SAFETY: no other symbol of the image has this name.
#[cfg_attr(dat_image, unsafe(no_mangle))]
extern "C" fn metal_main(start: u32) -> ! {
    Console::start();
    interrupts::catch_exceptions();
    let mut off = None;
    match run(start, &mut off) {
        Ok(()) => {
            say!("dat-metal: result ok");
            if let Some((power, clock)) = off {
                power.off();
                // Switching off takes a moment, during which this CPU continues.
                clock.spin(OFF);
            }
            say!("dat-metal: the machine does not switch off");
            fail()
        }
        Err(why) => {
            say!("dat-metal: {why}");
            fail()
        }
    }
}

/// Ends a failed image.
fn fail() -> ! {
    say!("dat-metal: result failed");
    ports::write32(DEBUG_EXIT, 1);
    loop {
        // SAFETY: with interrupts off this stops the CPU, as intended.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// Sets up the machine and runs the program. Stores in `off` how to switch the machine off.
fn run(start: u32, off: &mut Option<(Power, Clock)>) -> Result<(), Failed> {
    let info = StartInfo::read(&memory::Mapped, start.into())
        .ok_or("the loader left no PVH start information")?;
    let acpi = Acpi::read(&memory::Mapped, info.rsdp);
    let timer = acpi.timer.ok_or("ACPI names no timer to measure time with")?;
    let clock = calibrate(timer).ok_or("the ACPI timer stands still")?;
    *off = acpi.power.map(|power| (power, clock));
    match acpi.ecam {
        Some(buses) => {
            let len = (u64::from(buses.last) + 1) << 20;
            let window = map(Bar { base: buses.base, len })
                .ok_or("configuration space is at an address that cannot be mapped")?;
            let base = buses.base;
            with_bus(&Mapped { window, buses }, format_args!("ECAM at {base:#x}"), &info, clock)
        }
        None => with_bus(&mechanism::Ports, format_args!("no ECAM; by ports"), &info, clock),
    }
}

fn with_bus<C: Config>(
    config: &C,
    access: core::fmt::Arguments<'_>,
    info: &StartInfo,
    clock: Clock,
) -> Result<(), Failed> {
    let options = program::options(info.command_line())?;
    say!("pci: {access}");
    // A quarter of the CPU's physical addresses: above memory, below the reserved range at the top.
    let base = 1_u64.checked_shl(paging::address_bits().saturating_sub(2)).unwrap_or(0);
    let window = (base >= info.ram_end.max(1 << 32)).then_some((base, base));
    let bus = Bus { config, map: &map, first: 0, window };
    // SAFETY: this is called once.
    unsafe { program::run(&bus, reserved::memory(), &options, clock) }
}

/// Maps device registers.
fn map(bar: Bar) -> Option<Registers> {
    let len = usize::try_from(bar.len).ok()?;
    let base = usize::try_from(bar.base).ok()?;
    let base = NonNull::new(core::ptr::with_exposed_provenance_mut(base))?;
    if !paging::map_uncached(bar.base, bar.len) {
        return None;
    }
    // SAFETY: just mapped, never unmapped, at the address of a device, aligned as BARs are.
    Some(unsafe { MappedBar::new(base, len) })
}

/// Calibrates the time stamp counter; `None` if the timer stands still.
fn calibrate(timer: Timer) -> Option<Clock> {
    let first = timer.count();
    let start = ticks();
    // Also ends if the timer stands still: no counter is so slow.
    for _ in 0..100_000_000 {
        let passed = timer.count().wrapping_sub(first) & 0xff_ffff;
        if passed >= MEASURED {
            let nanos = u64::from(passed) * 1_000_000_000 / Timer::HERTZ;
            return Clock::new(ticks().wrapping_sub(start), nanos);
        }
        core::hint::spin_loop();
    }
    None
}
