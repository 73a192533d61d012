//! Interrupts by messages: a GICv2, whose frame GICv2m turns a device's write into an interrupt.
//!
//! Interrupts stay masked at the CPU. `wfi` ends when one is pending, and then it is taken from the
//! GIC and acknowledged here, so there is no handler, and no Rust code is interrupted. The virtual
//! timer ends a sleep without other interrupts.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hca_mlx5::mmio::MappedBar;

use super::super::tree::{Tree, region};
use super::map;
use crate::clock::Clock;
use crate::pci::Bar;
use crate::program::VECTORS;

/// Registers of the distributor; those with a bit or a byte for each interrupt follow it.
const ENABLE: usize = 0x100;
const PRIORITY: usize = 0x400;
const TARGETS: usize = 0x800;
const TRIGGER: usize = 0xc00;
/// Registers of the CPU's interface.
const MASK: usize = 0x4;
const ACKNOWLEDGE: usize = 0xc;
const END: usize = 0x10;
/// Registers of the frame.
const TYPE: usize = 0x8;
const SET: usize = 0x40;

/// The virtual timer's interrupt, as the Base System Architecture has it.
const TIMER: u32 = 27;
/// Interrupts above are none.
const SPURIOUS: u32 = 1020;

/// Distributor, CPU interface and frame, as the tree has them.
static PLACES: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Remembers where the tree has the GIC.
pub(super) fn find(tree: &Tree) {
    let gic = ["arm,cortex-a15-gic", "arm,gic-400"].into_iter().find_map(|name| tree.find(name));
    let frame = tree.find("arm,gic-v2m-frame");
    let (Some(gic), Some(frame)) = (gic, frame) else { return };
    let places = [region(&gic, 0), region(&gic, 1), region(&frame, 0)];
    for (to, from) in PLACES.iter().zip(places) {
        to.store(from.map_or(0, |region| region.base), Ordering::Relaxed);
    }
}

/// A GIC that takes the HCA's messages.
#[derive(Debug)]
pub(crate) struct Interrupts {
    cpu: MappedBar,
    /// The address that a device writes to.
    doorbell: u64,
    /// The number of the HCA's first interrupt.
    first: u32,
    hertz: u64,
    /// Of events, of completions, of the timer.
    arrivals: [AtomicU32; 3],
}

impl Interrupts {
    /// Switches the GIC on, if there is one with a frame.
    pub(crate) fn start(clock: &Clock) -> Option<Self> {
        let [distributor, cpu, frame] =
            [0, 1, 2].map(|n| PLACES.get(n).map_or(0, |place| place.load(Ordering::Relaxed)));
        if frame == 0 {
            return None;
        }
        let gic = map(Bar { base: distributor, len: 4096 })?;
        let cpu = map(Bar { base: cpu, len: 4096 })?;
        let messages = map(Bar { base: frame, len: 4096 })?.read32(TYPE);
        let (first, count) = (messages >> 16 & 0x3ff, messages & 0x3ff);
        if count < VECTORS.into() {
            return None;
        }
        for number in [first, first + 1, TIMER] {
            let index = usize::try_from(number).ok()?;
            set(&gic, PRIORITY, index, 8, 0x80);
            if number >= 32 {
                set(&gic, TARGETS, index, 8, 1);
                // A message is an edge.
                set(&gic, TRIGGER, index, 2, 2);
            }
            gic.write32(ENABLE + index / 32 * 4, 1 << (index % 32));
        }
        gic.write32(0, 1);
        cpu.write32(MASK, 0xff);
        cpu.write32(0, 1);
        Some(Self {
            cpu,
            doorbell: frame + SET as u64,
            first,
            hertz: clock.hertz(),
            arrivals: Default::default(),
        })
    }

    /// Returns address and data of the write by which a device raises interrupt `number`.
    pub(crate) fn message(&self, number: u16) -> Option<(u64, u32)> {
        (number < VECTORS).then(|| (self.doorbell, self.first + u32::from(number)))
    }

    /// Sleeps until an interrupt, which may be pending already, or until the timeout.
    pub(crate) fn sleep(&self, nanos: u64) {
        let ticks = u128::from(nanos) * u128::from(self.hertz) / 1_000_000_000;
        let ticks = u64::try_from(ticks).unwrap_or(u64::MAX).clamp(1, i32::MAX as u64);
        let state: u64;
        // SAFETY: the timer's registers change nothing but when its interrupt is pending; `wfi`
        // ends with any pending interrupt, although all are masked.
        unsafe {
            asm!(
                "msr cntv_tval_el0, {ticks}",
                "msr cntv_ctl_el0, {on}",
                "isb",
                "dsb sy",
                "wfi",
                "mrs {state}, cntv_ctl_el0",
                "msr cntv_ctl_el0, xzr",
                "isb",
                ticks = in(reg) ticks,
                on = in(reg) 1_u64,
                state = lateout(reg) state,
                options(nostack)
            );
        }
        // The timer's condition is met. Off, it has no interrupt any more.
        if state & 4 != 0 {
            self.count(2);
        }
        // As many as there are interrupts of messages.
        for _ in 0..2 {
            let taken = self.cpu.read32(ACKNOWLEDGE);
            let number = taken & 0x3ff;
            if number >= SPURIOUS {
                break;
            }
            let which = number.checked_sub(self.first).and_then(|n| usize::try_from(n).ok());
            if let Some(which) = which.filter(|which| *which < 2) {
                self.count(which);
            }
            self.cpu.write32(END, taken);
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

/// Sets the `bits` of interrupt `index` in registers that have as many for each.
fn set(gic: &MappedBar, registers: usize, index: usize, bits: usize, value: u32) {
    let at = registers + index * bits / 32 * 4;
    let shift = index * bits % 32;
    let mask = (1 << bits) - 1;
    gic.write32(at, gic.read32(at) & !(mask << shift) | value << shift);
}
