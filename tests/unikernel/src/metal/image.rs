//! The main function between the boot code and the peer, and the ends of the image.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use dat_core::Storage;
use hca_mlx5::mmio::MappedBar;

use crate::acpi::{Acpi, Power};
use crate::boot::StartInfo;
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::interrupts::{self, Frame, Interrupts};
use crate::machine::Machine;
use crate::memory::Mapped;
use crate::options::{Options, Wrong};
use crate::pci::{self, Bar, Config, Function};
use crate::peer::{self, PeerStorage};
use crate::serial::{Serial, say};
use crate::{paging, ports};

/// Vendor of the HCAs.
const MELLANOX: u32 = 0x15b3;
/// The port of the device that ends QEMU.
const DEBUG_EXIT: u16 = 0xf4;
/// Longest wait for the machine to switch off.
const OFF: u64 = 10_000_000_000;

/// Why the image failed.
type Failed = &'static str;

#[cfg(dat_image)]
core::arch::global_asm!(include_str!("boot.s"), options(att_syntax));
#[cfg(dat_image)]
core::arch::global_asm!(include_str!("../mem.s"), options(att_syntax));

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
    Serial::start();
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

/// Sets up the machine and runs the peer. Stores in `off` how to switch the machine off.
fn run(start: u32, off: &mut Option<(Power, Clock)>) -> Result<(), Failed> {
    let info =
        StartInfo::read(&Mapped, start.into()).ok_or("the loader left no PVH start information")?;
    let acpi = Acpi::read(&Mapped, info.rsdp);
    let timer = acpi.timer.ok_or("ACPI names no timer to measure time with")?;
    let clock = Clock::calibrate(timer).ok_or("the ACPI timer stands still")?;
    *off = acpi.power.map(|power| (power, clock));
    say!("dat-metal: {}", info.command_line());
    say!("clock: time stamp counter of {} MHz", clock.hertz() / 1_000_000);
    let options = Options::parse(info.command_line()).map_err(|Wrong(word, why)| {
        say!("dat-metal: {word}: {why}");
        "the command line cannot be read"
    })?;
    let entropy = Entropy::new();
    say!("entropy: {}", entropy.source());
    match acpi.ecam {
        Some(buses) => {
            let len = (u64::from(buses.last) + 1) << 20;
            say!("pci: ECAM at {:#x}, buses {} to {}", buses.base, buses.first, buses.last);
            let window = map(Bar { base: buses.base, len })?;
            with_bus(&pci::Mapped { window, buses }, info.ram_end, &options, clock, entropy)
        }
        None => {
            say!("pci: no ECAM; by ports");
            with_bus(&pci::Ports, info.ram_end, &options, clock, entropy)
        }
    }
}

fn with_bus<C: Config>(
    config: &C,
    ram_end: u64,
    options: &Options,
    clock: Clock,
    entropy: Entropy,
) -> Result<(), Failed> {
    let function = pci::find(config, options.hca, |id| id & 0xffff == MELLANOX)
        .ok_or("there is no HCA (vendor 15b3) on the bus")?;
    say!("hca: {} at {}", Id(function.read(0)), function.at);
    if !function.reset(|ms| clock.spin(u64::from(ms) * 1_000_000)) {
        return Err("the HCA has no function level reset, or did not come back from it");
    }
    let bar = place(&function, ram_end, options.move_bar)?;
    let registers = map(bar)?;
    function.start();
    let interrupts = if options.interrupts { route(&function, &registers, &clock)? } else { None };
    say!("interrupts: {}", if interrupts.is_some() { "MSI-X" } else { "none, polling" });

    static PLACE: Only<Option<Machine>> = Only::new(None);
    // Initialized in place: a move over the stack would need more stack than all the rest.
    static STORAGE: Only<PeerStorage> = Only::new(Storage::new());
    let twice = "there is only one arena";
    let machine = Machine::new(registers, clock, entropy, interrupts).zip(PLACE.take());
    let machine: &'static Machine = machine.map(|(made, place)| place.insert(made)).ok_or(twice)?;
    let storage = STORAGE.take().ok_or(twice)?;
    let done = peer::run(machine, storage, options);
    function.msix(false);
    function.stop();
    if let Some(interrupts) = &machine.interrupts {
        let [events, completions, timer] = interrupts.arrivals();
        say!("interrupts: {events} of events, {completions} of completions, {timer} of the timer");
    }
    done.map_err(|error| {
        say!("dat-metal: {error}");
        "the peer failed"
    })?;
    say!("given back: {} pages and {} bytes still out", machine.held(), machine.used());
    if machine.held() != 0 || machine.used() != 0 {
        return Err("the driver kept memory");
    }
    Ok(())
}

/// Returns BAR 0, moved above 4 GiB if needed.
fn place<C: Config>(function: &Function<'_, C>, ram_end: u64, moved: bool) -> Result<Bar, Failed> {
    let bar = function.bar(0).ok_or("the HCA has no BAR 0")?;
    if bar.base >= 1 << 32 && !moved {
        say!("bar 0: {} MiB at {:#x}", bar.len >> 20, bar.base);
        return Ok(bar);
    }
    // At a quarter of the CPU's physical addresses: above memory, below the reserved range at the
    // top.
    let base = 1_u64.checked_shl(paging::address_bits().saturating_sub(2)).unwrap_or(0);
    if base < ram_end.max(1 << 32) || bar.len > base {
        return Err("there is no space for BAR 0 above the memory");
    }
    let now = function.place(0, bar, base).ok_or("BAR 0 cannot be moved")?;
    say!("bar 0: {} MiB moved from {:#x} to {:#x}", bar.len >> 20, bar.base, now.base);
    Ok(now)
}

/// Maps device registers.
fn map(bar: Bar) -> Result<MappedBar, Failed> {
    let none = "registers at an address that cannot be mapped";
    let len = usize::try_from(bar.len).map_err(|_| none)?;
    let base = usize::try_from(bar.base)
        .ok()
        .and_then(|base| NonNull::new(core::ptr::with_exposed_provenance_mut(base)));
    let base = base.filter(|_| paging::map_uncached(bar.base, bar.len)).ok_or(none)?;
    // SAFETY: just mapped, never unmapped, at the address of a device, aligned as BARs are.
    Ok(unsafe { MappedBar::new(base, len) })
}

/// Routes the HCA's interrupt vectors to this CPU.
fn route<C: Config>(
    function: &Function<'_, C>,
    registers: &MappedBar,
    clock: &Clock,
) -> Result<Option<Interrupts>, Failed> {
    let Some((0, table, entries)) = function.msix_table().filter(|_| Interrupts::possible()) else {
        return Ok(None);
    };
    let apic = map(Bar { base: interrupts::APIC, len: 4096 })?;
    let interrupts = Interrupts::start(apic, clock);
    for entry in 0..entries {
        let at = table + 16 * usize::from(entry);
        let message = interrupts.message(entry);
        if let Some((address, data)) = message {
            let [low, high] =
                [address & 0xffff_ffff, address >> 32].map(|half| u32::try_from(half).unwrap_or(0));
            registers.write32(at, low.to_le());
            registers.write32(at + 4, high.to_le());
            registers.write32(at + 8, data.to_le());
        }
        registers.write32(at + 12, u32::from(message.is_none()).to_le());
    }
    function.msix(true);
    Ok((entries >= interrupts::HCA_VECTORS).then_some(interrupts))
}

/// Vendor and device.
struct Id(u32);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.0 & 0xffff, self.0 >> 16)
    }
}

/// A static value that can be taken once.
struct Only<T> {
    value: UnsafeCell<T>,
    taken: AtomicBool,
}

// SAFETY: only the first call of `take` gets a reference.
unsafe impl<T: Send> Sync for Only<T> {}

impl<T> Only<T> {
    const fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value), taken: AtomicBool::new(false) }
    }

    /// Returns the value on the first call, `None` afterwards.
    #[expect(clippy::mut_from_ref, reason = "returned once")]
    fn take(&'static self) -> Option<&'static mut T> {
        if self.taken.swap(true, Ordering::Relaxed) {
            return None;
        }
        // SAFETY: `taken` was false, so this is the only call that gets here.
        Some(unsafe { &mut *self.value.get() })
    }
}
