//! From a bus to a peer that has ended, on every machine: finds the HCA, resets it, places and maps
//! its BAR, runs the peer, and stops the HCA's access to memory.

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use dat_core::Storage;
use hca_mlx5::platform::arena_words;

use crate::clock::Clock;
use crate::console::say;
use crate::entropy::Entropy;
use crate::host::{ARENA, Host, Lent};
use crate::machine::{self, Interrupts, Registers};
use crate::options::{Options, Wrong};
use crate::pci::{self, Bar, Config, Function};
use crate::peer::{self, PeerStorage};

/// Vendor of the HCAs.
const MELLANOX: u32 = 0x15b3;
/// The HCA's vectors: the first is for commands and events, the second for completions.
pub(crate) const VECTORS: u16 = 2;

/// Why the image failed.
pub(crate) type Failed = &'static str;

/// A bus that an HCA may be on.
pub(crate) struct Bus<'c, C> {
    pub(crate) config: &'c C,
    /// Maps registers at an address of the bus.
    pub(crate) map: &'c dyn Fn(Bar) -> Option<Registers>,
    /// The first of its numbers.
    pub(crate) first: u8,
    /// Where the machine has room for 64-bit BARs, if they can be moved there: address, length.
    pub(crate) window: Option<(u64, u64)>,
}

/// Reads the command line, with its echo.
pub(crate) fn options(line: &str) -> Result<Options, Failed> {
    say!("dat-metal: {line}");
    Options::parse(line).map_err(|Wrong(word, why)| {
        say!("dat-metal: {word}: {why}");
        "the command line cannot be read"
    })
}

/// Returns the HCA that the options mean.
pub(crate) fn find<'c, C: Config>(
    config: &'c C,
    first: u8,
    options: &Options,
) -> Option<Function<'c, C>> {
    pci::find(config, first, options.hca, |id| id & 0xffff == MELLANOX)
}

/// Runs the peer on the first HCA of the bus that the options mean. `memory` is the arena and the
/// firmware's pages, as [`Host::new`] wants them.
///
/// # Safety
/// Nothing else makes use of `memory`.
pub(crate) unsafe fn run<C: Config>(
    bus: &Bus<'_, C>,
    memory: [Lent; 2],
    options: &Options,
    clock: Clock,
) -> Result<(), Failed> {
    say!("clock: {} of {} MHz", machine::COUNTER, clock.hertz() / 1_000_000);
    let entropy = Entropy::new();
    say!("entropy: {}", entropy.source());
    let function =
        find(bus.config, bus.first, options).ok_or("there is no HCA (vendor 15b3) on the bus")?;
    say!("hca: {} at {}", Id(function.read(0)), function.at);
    if !function.reset(|ms| clock.spin(u64::from(ms) * 1_000_000)) {
        return Err("the HCA has no function level reset, or did not come back from it");
    }
    let bar = place(&function, bus.window, options.move_bar)?;
    let registers =
        (bus.map)(bar).ok_or("BAR 0 of the HCA is at an address that cannot be mapped")?;
    function.start();
    let interrupts = if options.interrupts { route(&function, &registers, &clock) } else { None };
    say!("interrupts: {}", if interrupts.is_some() { "MSI-X" } else { "none, polling" });

    static FREE: Only<[u64; arena_words(ARENA)]> = Only::new([0; arena_words(ARENA)]);
    static PLACE: Only<Option<Host>> = Only::new(None);
    // Initialized in place: a move over the stack would need more stack than all the rest.
    static STORAGE: Only<PeerStorage> = Only::new(Storage::new());
    let twice = "there is only one arena";
    let (free, place) = FREE.take().zip(PLACE.take()).ok_or(twice)?;
    let storage = STORAGE.take().ok_or(twice)?;
    // SAFETY: the caller's promise.
    let host = unsafe { Host::new(registers, memory, free, clock, entropy, interrupts) };
    let host: &'static Host = place.insert(host);
    let done = peer::run(host, storage, options);
    function.msix(false);
    // From here on the function reaches no memory, whatever became of the peer.
    function.stop();
    if let Some(interrupts) = &host.interrupts {
        let [events, completions, timer] = interrupts.arrivals();
        say!("interrupts: {events} of events, {completions} of completions, {timer} of the timer");
    }
    done.map_err(|error| {
        say!("dat-metal: {error}");
        "the peer failed"
    })?;
    say!("given back: {} pages and {} bytes still out", host.held(), host.used());
    if host.held() != 0 || host.used() != 0 {
        return Err("the driver kept memory");
    }
    Ok(())
}

/// Returns BAR 0, moved into the window if needed.
fn place<C: Config>(
    function: &Function<'_, C>,
    window: Option<(u64, u64)>,
    moved: bool,
) -> Result<Bar, Failed> {
    let bar = function.bar(0).ok_or("the HCA has no BAR 0")?;
    if bar.base >= 1 << 32 && !moved || bar.base != 0 && window.is_none() {
        say!("bar 0: {} MiB at {:#x}", bar.len >> 20, bar.base);
        return Ok(bar);
    }
    let none = "there is no space for BAR 0 above the memory";
    let (base, len) = window.ok_or(none)?;
    if bar.len > len {
        return Err(none);
    }
    let now = function.place(0, bar, base).ok_or("BAR 0 cannot be moved")?;
    say!("bar 0: {} MiB moved from {:#x} to {:#x}", bar.len >> 20, bar.base, now.base);
    Ok(now)
}

/// Routes the HCA's interrupt vectors to this CPU.
fn route<C: Config>(
    function: &Function<'_, C>,
    registers: &Registers,
    clock: &Clock,
) -> Option<Interrupts> {
    let (0, table, entries) = function.msix_table()? else { return None };
    let interrupts = Interrupts::start(clock)?;
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
    (entries >= VECTORS).then_some(interrupts)
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
