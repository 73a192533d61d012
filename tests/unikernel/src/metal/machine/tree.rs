//! The device tree, as far as this image needs it.

use core::ptr;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard as _;
use dtoolkit::{Node as _, Property as _};

use super::ecam::{Ecam, Mapped};
use super::reserved;
use crate::clock::Clock;
use crate::console::say;
use crate::pci::{self, Bar};
use crate::program::{self, Bus, Failed};

/// Bytes of a command line.
const LINE: usize = 512;
/// Nodes around a node, at most.
const DEPTH: usize = 4;

/// The tree that the loader left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree(Fdt<'static>);

/// Configuration space and the addresses behind it.
#[derive(Debug)]
pub(super) struct HostBridge {
    /// Configuration space, mapped.
    pub(super) config: Mapped,
    /// Address and length of the greatest range of addresses for 64-bit BARs, which the CPU sees
    /// where the bus does.
    pub(super) window: Option<(u64, u64)>,
    /// The tree says that DMA is coherent with the caches; on RISC-V it is unless it says otherwise.
    pub(super) coherent: bool,
}

impl Tree {
    /// Reads the tree.
    ///
    /// # Safety
    /// There is memory at `at`. If there is a tree, nothing changes it any more.
    pub(super) unsafe fn read(at: usize) -> Option<Self> {
        let at = ptr::with_exposed_provenance::<u8>(at);
        // SAFETY: the caller's promise; what begins like a tree is checked before it is used.
        unsafe { Fdt::from_raw(at) }.ok().map(Self)
    }

    /// Copies the command line.
    pub(super) fn line(&self) -> Line {
        let mut line = Line { bytes: [0; LINE], len: 0 };
        if let Some(property) = self.0.find_node("/chosen").and_then(|n| n.property("bootargs")) {
            let text = property.value().iter().take_while(|byte| **byte != 0);
            for (to, from) in line.bytes.iter_mut().zip(text) {
                *to = *from;
                line.len += 1;
            }
        }
        line
    }

    /// Returns the first node that is compatible with `what` and that `fits`.
    pub(super) fn find_where(
        &self,
        what: &str,
        fits: impl Fn(&FdtNode<'static>) -> bool,
    ) -> Option<FdtNode<'static>> {
        search(self.0.root(), what, &fits, DEPTH)
    }

    /// Returns the first node that is compatible with `what`.
    pub(super) fn find(&self, what: &str) -> Option<FdtNode<'static>> {
        self.find_where(what, |_| true)
    }

    /// Returns the frequency of the counter `time`.
    #[cfg(target_arch = "riscv64")]
    pub(super) fn hertz(&self) -> Option<u32> {
        let property = self.0.find_node("/cpus")?.property("timebase-frequency")?;
        property.value_as().ok()
    }

    /// Returns whether the first CPU has an extension: a list of names, or one name of them all.
    #[cfg(target_arch = "riscv64")]
    pub(super) fn cpu_has(&self, extension: &str) -> bool {
        let Some(cpu) = self.find("riscv") else { return false };
        ["riscv,isa-extensions", "riscv,isa"].into_iter().any(|name| {
            let names = cpu.property(name);
            names.is_some_and(|names| {
                let mut names = names.value().split(|byte| matches!(byte, 0 | b'_'));
                names.any(|name| name == extension.as_bytes())
            })
        })
    }

    /// Returns the PCIe host bridge.
    pub(super) fn host_bridge(&self) -> Option<HostBridge> {
        let node = self.find("pci-host-ecam-generic")?;
        let space = region(&node, 0)?;
        let buses = node.property("bus-range").and_then(|range| {
            let bytes: [u8; 8] = range.value().try_into().ok()?;
            let [first, last] = [&bytes[3], &bytes[7]].map(|byte| *byte);
            Some((first, last))
        });
        let (first, last) = buses.unwrap_or((0, u8::MAX));
        // The space of the first bus is at its start.
        let base = space.base.checked_sub(u64::from(first) << 20)?;
        let mut window = None;
        for range in node.ranges().ok()?? {
            let (Ok(child), Ok(parent), Ok(len)) = (
                range.child_bus_address::<u128>(),
                range.parent_bus_address::<u64>(),
                range.length::<u64>(),
            ) else {
                continue;
            };
            // Three words: what kind of address, and the address.
            let wide = child >> 64 & 0x0300_0000 == 0x0300_0000;
            let equal = child & u128::from(u64::MAX) == u128::from(parent);
            if wide && equal && window.is_none_or(|(_, longest)| len > longest) {
                window = Some((parent, len));
            }
        }
        let len = (u64::from(last) + 1) << 20;
        let config =
            Mapped { window: super::map(Bar { base, len })?, buses: Ecam { base, first, last } };
        let coherent = if cfg!(target_arch = "riscv64") {
            node.property("dma-noncoherent").is_none()
        } else {
            node.dma_coherent()
        };
        Some(HostBridge { config, window, coherent })
    }
}

/// Runs the program on the bus that the tree names.
pub(super) fn run(tree: &Tree, hertz: u64) -> Result<(), Failed> {
    let line = tree.line();
    let options = program::options(line.text())?;
    let clock = Clock::new(hertz, 1_000_000_000).ok_or("the counter has no frequency")?;
    let bridge = tree.host_bridge().ok_or("the device tree names no PCIe host bridge")?;
    if !bridge.coherent {
        return Err("DMA is not coherent with this machine's caches, says the device tree");
    }
    let buses = bridge.config.buses;
    say!("pci: ECAM at {:#x}", buses.base);
    pci::number(&bridge.config, buses.first, buses.last);
    let bus =
        Bus { config: &bridge.config, map: &super::map, first: buses.first, window: bridge.window };
    // SAFETY: this is called once.
    unsafe { program::run(&bus, reserved::memory(), &options, clock) }
}

/// A copy of the command line.
#[derive(Debug)]
pub(super) struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl Line {
    /// The text; empty if it is not UTF-8.
    pub(super) fn text(&self) -> &str {
        let bytes = self.bytes.get(..self.len);
        bytes.and_then(|line| core::str::from_utf8(line).ok()).unwrap_or_default()
    }
}

fn search(
    node: FdtNode<'static>,
    what: &str,
    fits: &impl Fn(&FdtNode<'static>) -> bool,
    depth: usize,
) -> Option<FdtNode<'static>> {
    if node.is_compatible(what) && fits(&node) {
        return Some(node);
    }
    let depth = depth.checked_sub(1)?;
    node.children().find_map(|child| search(child, what, fits, depth))
}

/// Returns region `number` of a node's registers.
pub(super) fn region(node: &FdtNode<'static>, number: usize) -> Option<Bar> {
    let region = node.reg().ok()??.nth(number)?;
    Some(Bar { base: region.address().ok()?, len: region.size().ok()? })
}
