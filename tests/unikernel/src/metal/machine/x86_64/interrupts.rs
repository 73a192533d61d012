//! Exceptions, which end the image, and interrupts, which end a sleep.
//!
//! Interrupts are enabled only while the CPU halts in [`Interrupts::sleep`]. At any other time they
//! stay pending in the local APIC and end the next sleep at once, so none is missed and none
//! interrupts Rust code. The handlers are in `boot.s`: they count and acknowledge. The APIC's timer
//! ends a sleep without other interrupts.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hca_mlx5::mmio::MappedBar;

use super::ports;
use crate::clock::Clock;
use crate::pci::Bar;
use crate::program::VECTORS;

/// Vector of the first handler in `boot.s`.
const FIRST: u8 = 0x40;
/// Which of them is the timer's.
const TIMER: u8 = 3;
/// Vector of spurious interrupts.
const SPURIOUS: u8 = 0xff;

/// The default address of the local APIC.
const APIC: u64 = 0xfee0_0000;
/// Its registers.
const ID: usize = 0x20;
const SPURIOUS_VECTOR: usize = 0xf0;
const TIMER_VECTOR: usize = 0x320;
const TIMER_START: usize = 0x380;
const TIMER_NOW: usize = 0x390;
const TIMER_DIVIDE: usize = 0x3e0;

/// Counts of the handlers, the timer's last.
// SAFETY: no other symbol of the image has this name.
#[unsafe(no_mangle)]
static ARRIVALS: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];

/// Two words for each of 256 vectors.
#[repr(C, align(16))]
struct Gates([[AtomicU64; 2]; 256]);

static GATES: Gates = Gates([const { [const { AtomicU64::new(0) }; 2] }; 256]);

unsafe extern "C" {
    #[link_name = "exception_entries"]
    static EXCEPTIONS: [u64; 32];
    #[link_name = "interrupt_entries"]
    static HANDLERS: [u64; 5];
}

/// Installs exception handlers, which print the exception and end the image.
pub(crate) fn catch_exceptions() {
    // SAFETY: tables of the boot code, never written.
    let entries = unsafe { &EXCEPTIONS };
    for (gate, entry) in GATES.0.iter().zip(entries) {
        fill(gate, *entry);
    }
    #[repr(C, packed)]
    struct Pointer {
        limit: u16,
        base: u64,
    }
    let pointer =
        Pointer { limit: 4095, base: core::ptr::from_ref(&GATES).expose_provenance() as u64 };
    // SAFETY: the table is static, and each gate that is present leads to an entry of the boot
    // code.
    unsafe {
        asm!("lidt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags))
    };
}

/// An interrupt gate of 64-bit code on the first stack of the interrupt stack table.
fn fill([low, high]: &[AtomicU64; 2], entry: u64) {
    let word = entry & 0xffff | 8 << 16 | 1 << 32 | 0x8e << 40 | (entry & 0xffff_0000) << 32;
    high.store(entry >> 32, Ordering::Relaxed);
    low.store(word, Ordering::Relaxed);
}

/// The enabled local APIC.
#[derive(Debug)]
pub(crate) struct Interrupts {
    apic: MappedBar,
    /// Timer counts of a millisecond.
    millisecond: u32,
}

impl Interrupts {
    /// Returns whether the local APIC is on and at its default address.
    fn possible() -> bool {
        let (low, high): (u32, u32);
        // SAFETY: every x86-64 has this register (IA32_APIC_BASE), and reading it changes nothing.
        unsafe {
            asm!("rdmsr", in("ecx") 0x1b, out("eax") low, out("edx") high, options(nomem, nostack))
        };
        let base = u64::from(high) << 32 | u64::from(low & 0xffff_f000);
        // Enabled, and not in the mode (x2APIC) that has no registers in memory.
        base == APIC && low >> 10 & 3 == 0b10
    }

    /// Switches it on, if that is possible.
    pub(crate) fn start(clock: &Clock) -> Option<Self> {
        if !Self::possible() {
            return None;
        }
        let apic = super::map(Bar { base: APIC, len: 4096 })?;
        // SAFETY: a table of the boot code, never written.
        let [handlers @ .., spurious] = unsafe { &HANDLERS };
        for (gate, entry) in GATES.0.iter().skip(FIRST.into()).zip(handlers) {
            fill(gate, *entry);
        }
        if let Some(gate) = GATES.0.last() {
            fill(gate, *spurious);
        }
        // The old controllers would send to vectors of exceptions.
        ports::write8(0x21, 0xff);
        ports::write8(0xa1, 0xff);
        apic.write32(SPURIOUS_VECTOR, 0x100 | u32::from(SPURIOUS));
        apic.write32(TIMER_DIVIDE, 0b0011);
        apic.write32(TIMER_VECTOR, 1 << 16);
        apic.write32(TIMER_START, u32::MAX);
        clock.spin(1_000_000);
        let millisecond = (u32::MAX - apic.read32(TIMER_NOW)).max(1);
        apic.write32(TIMER_START, 0);
        apic.write32(TIMER_VECTOR, u32::from(FIRST + TIMER));
        Some(Self { apic, millisecond })
    }

    /// Returns address and data of the write by which a device raises interrupt `number`.
    pub(crate) fn message(&self, number: u16) -> Option<(u64, u32)> {
        let cpu = u64::from(self.apic.read32(ID) >> 24);
        (number < VECTORS).then(|| (APIC | cpu << 12, u32::from(FIRST) + u32::from(number)))
    }

    /// Halts until an interrupt, which may be pending already, or until the timeout.
    pub(crate) fn sleep(&self, nanos: u64) {
        let counts = u128::from(nanos) * u128::from(self.millisecond) / 1_000_000;
        let counts = u32::try_from(counts).unwrap_or(u32::MAX).max(1);
        self.apic.write32(TIMER_START, counts);
        // SAFETY: the handlers change nothing but their counts, and run on a stack of their own.
        // `sti` lets interrupts in only after the next instruction, so one that waits
        // already ends the halt.
        unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
    }

    /// Returns the number of interrupts so far: commands and events, completions, timer.
    pub(crate) fn arrivals(&self) -> [u32; 3] {
        let [first, second, _, timer] = &ARRIVALS;
        [first, second, timer].map(|count| count.load(Ordering::Relaxed))
    }
}

/// The stack frame that the boot code pushes for an exception.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) vector: u64,
    pub(crate) error: u64,
    pub(crate) rip: u64,
    pub(crate) cs: u64,
    pub(crate) flags: u64,
    pub(crate) rsp: u64,
}
