//! Interrupts by messages: the incoming message controller (IMSIC) of machine mode.
//!
//! Interrupts stay off at the CPU. `wfi` ends when one is pending that `mie` lets through, and then
//! it is claimed here, so there is no handler, and no Rust code is interrupted. The timer of the
//! core-local interruptor ends a sleep without other interrupts.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dtoolkit::{Node as _, Property as _};
use hca_mlx5::mmio::MappedBar;

use super::super::tree::{Tree, region};
use super::map;
use crate::clock::Clock;
use crate::pci::Bar;
use crate::program::VECTORS;

/// Extensions of the CPU that the tree names.
pub(super) const SEED: u32 = 1;
const MESSAGES: u32 = 2;
static EXTENSIONS: AtomicU32 = AtomicU32::new(0);

/// The message page and the timer, as the tree has them.
static PLACES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Number of the interrupt "external, of machine mode".
const EXTERNAL: u8 = 11;
/// Bits of `mie`: timer and external interrupts of machine mode.
const ENABLED: u64 = 1 << 7 | 1 << 11;
/// Indirect registers: delivery, threshold, the first 64 enables.
const DELIVERY: u64 = 0x70;
const THRESHOLD: u64 = 0x72;
const ENABLES: u64 = 0xc0;
/// The timer's comparison for the first hart.
const COMPARE: usize = 0x4000;

/// Returns whether the CPU has an extension.
pub(super) fn has(extension: u32) -> bool {
    EXTENSIONS.load(Ordering::Relaxed) & extension != 0
}

/// Remembers what the tree says of CPU, message page and timer.
pub(super) fn find(tree: &Tree) {
    for (name, extension) in [("zkr", SEED), ("smaia", MESSAGES)] {
        if tree.cpu_has(name) {
            EXTENSIONS.fetch_or(extension, Ordering::Relaxed);
        }
    }
    let of_machine = |node: &dtoolkit::fdt::FdtNode<'static>| {
        let parents = node.property("interrupts-extended");
        parents.is_some_and(|value| value.value().get(7) == Some(&EXTERNAL))
    };
    let page = tree.find_where("riscv,imsics", of_machine);
    let timer = ["sifive,clint0", "riscv,clint0"].into_iter().find_map(|name| tree.find(name));
    for (to, node) in PLACES.iter().zip([page, timer]) {
        let base = node.and_then(|node| region(&node, 0)).map_or(0, |region| region.base);
        to.store(base, Ordering::Relaxed);
    }
}

/// An IMSIC that takes the HCA's messages.
#[derive(Debug)]
pub(crate) struct Interrupts {
    page: u64,
    timer: MappedBar,
    hertz: u64,
    /// Of events, of completions, of the timer.
    arrivals: [AtomicU32; 3],
}

impl Interrupts {
    /// Switches it on, if there is one.
    pub(crate) fn start(clock: &Clock) -> Option<Self> {
        let [page, timer] =
            [0, 1].map(|n| PLACES.get(n).map_or(0, |place| place.load(Ordering::Relaxed)));
        if !has(MESSAGES) || page == 0 || timer == 0 {
            return None;
        }
        let timer = map(Bar { base: timer, len: 0x1_0000 })?;
        timer.write64(COMPARE, u64::MAX);
        // Identities 1 and 2 are those of the HCA's vectors; there is no identity 0.
        for (register, value) in [(DELIVERY, 1), (THRESHOLD, 0), (ENABLES, 6)] {
            // SAFETY: the CPU has these registers (Smaia): what they change is which interrupts are
            // pending.
            unsafe {
                asm!("csrw 0x350, {}", "csrw 0x351, {}", in(reg) register, in(reg) value, options(nomem, nostack));
            }
        }
        // SAFETY: which interrupts end a sleep; all stay off at the CPU.
        unsafe { asm!("csrw mie, {}", in(reg) ENABLED, options(nomem, nostack)) };
        Some(Self { page, timer, hertz: clock.hertz(), arrivals: Default::default() })
    }

    /// Returns address and data of the write by which a device raises interrupt `number`.
    pub(crate) fn message(&self, number: u16) -> Option<(u64, u32)> {
        (number < VECTORS).then(|| (self.page, u32::from(number) + 1))
    }

    /// Sleeps until an interrupt, which may be pending already, or until the timeout.
    pub(crate) fn sleep(&self, nanos: u64) {
        let ticks = u128::from(nanos) * u128::from(self.hertz) / 1_000_000_000;
        let ticks = u64::try_from(ticks).unwrap_or(u64::MAX).max(1);
        let due = super::ticks().saturating_add(ticks);
        self.timer.write64(COMPARE, due);
        // SAFETY: `wfi` ends with any interrupt that `mie` has, although all are off.
        unsafe { asm!("wfi", options(nostack)) };
        self.timer.write64(COMPARE, u64::MAX);
        if super::ticks() >= due {
            self.count(2);
        }
        // As many as there are identities switched on.
        for _ in 0..2 {
            let taken: u64;
            // SAFETY: the CPU has the register: a read and a write at once claims an interrupt.
            unsafe { asm!("csrrw {}, 0x35c, zero", out(reg) taken, options(nomem, nostack)) };
            let Some(which) = (taken >> 16).checked_sub(1) else { break };
            self.count(usize::try_from(which).unwrap_or(usize::MAX));
        }
    }

    fn count(&self, which: usize) {
        if let Some(count) = self.arrivals.get(which) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of interrupts so far: events, completions, timer.
    pub(crate) fn arrivals(&self) -> [u32; 3] {
        let [events, completions, timer] = &self.arrivals;
        [events, completions, timer].map(|count| count.load(Ordering::Relaxed))
    }
}
