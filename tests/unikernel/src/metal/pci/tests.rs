use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;

/// Words, and which of their bits can be written.
type Words = [(u32, u32); 64];

#[derive(Default)]
struct Bus(RefCell<BTreeMap<(u8, u8, u8), Words>>);

impl Bus {
    fn add(&self, at: (u8, u8, u8), id: u32, kind: u8) {
        let mut words = [(0, 0); 64];
        words[0] = (id, 0);
        words[1] = (0x10_0000, 0xffff);
        words[3] = (u32::from(kind) << 16, 0);
        self.0.borrow_mut().insert(at, words);
    }
    fn set(&self, at: (u8, u8, u8), offset: usize, value: u32, writable: u32) {
        self.0.borrow_mut().get_mut(&at).unwrap()[offset / 4] = (value, writable);
    }
    fn get(&self, at: (u8, u8, u8), offset: usize) -> u32 {
        self.0.borrow()[&at][offset / 4].0
    }
}

impl Config for Bus {
    fn read(&self, at: Address, offset: u16) -> u32 {
        self.0
            .borrow()
            .get(&(at.bus, at.device, at.function))
            .map_or(u32::MAX, |words| words[usize::from(offset) / 4].0)
    }
    fn write(&self, at: Address, offset: u16, value: u32) {
        if let Some(words) = self.0.borrow_mut().get_mut(&(at.bus, at.device, at.function)) {
            let (word, writable) = &mut words[usize::from(offset) / 4];
            *word = *word & !*writable | value & *writable;
        }
    }
}

const HCA: (u8, u8, u8) = (2, 0, 0);

/// A host bridge, a root port, a switch port behind it, and an HCA with a 32 MiB BAR behind that;
/// another on bus 0.
fn machine() -> Bus {
    let bus = Bus::default();
    bus.add((0, 0, 0), 0x29c0_8086, 0);
    bus.add((0, 3, 0), 0x000c_1b36, 0x81);
    bus.add((0, 3, 1), 0x000c_1b36, 1);
    bus.add((0, 5, 0), 0x1019_15b3, 0);
    bus.add((1, 0, 0), 0x1234_104c, 1);
    bus.add(HCA, 0x1013_15b3, 0);
    for (at, numbers) in
        [((0, 3, 0), 0x00_05_05_00), ((0, 3, 1), 0x00_02_01_00), ((1, 0, 0), 0x00_02_02_01)]
    {
        bus.set(at, 0x18, numbers, 0);
        for window in [0x24, 0x28, 0x2c] {
            bus.set(at, window, 0, if window == 0x24 { 0xfff0_fff0 } else { u32::MAX });
        }
    }
    bus.set(HCA, 0x10, 0xe000_000c, !((32 << 20) - 1));
    bus.set(HCA, 0x14, 0, u32::MAX);
    bus.set(HCA, 0x34, 0x60, 0);
    bus.set(HCA, 0x60, 0x0002_9c10, 0);
    bus.set(HCA, 0x64, 1 << 28, 0);
    bus.set(HCA, 0x68, 0, 0xffff);
    bus.set(HCA, 0x9c, 0x001f_0011, 0xc000_0000);
    bus.set(HCA, 0xa0, 0x2000, 0);
    bus
}

fn hca(bus: &Bus) -> Function<'_, Bus> {
    find(bus, 0, 0, |id| id == 0x1013_15b3).unwrap()
}

#[test]
fn a_function_behind_two_bridges_is_found_with_its_path() {
    let bus = machine();
    let found = hca(&bus);
    assert_eq!(found.at.to_string(), "02:00.0");
    let path: Vec<_, 4> = found.bridges.iter().map(|b| (b.bus, b.device, b.function)).collect();
    assert_eq!(path.as_slice(), [(0, 3, 1), (1, 0, 0)]);
    let any = |id: u32| id & 0xffff == 0x15b3;
    assert_eq!(find(&bus, 0, 0, any).unwrap().at.to_string(), "00:05.0");
    assert_eq!(find(&bus, 0, 1, any).unwrap().at.to_string(), "02:00.0");
    assert!(find(&bus, 0, 2, any).is_none());
}

#[test]
fn a_bridge_to_its_own_bus_and_a_ring_of_capabilities_end() {
    let bus = machine();
    bus.set((1, 0, 0), 0x18, 0x00_01_01_01, 0);
    assert!(find(&bus, 0, 0, |id| id == 0x1013_15b3).is_none());
    let bus = machine();
    bus.set(HCA, 0x60, 0x60_05, 0);
    let hca = hca(&bus);
    assert_eq!((hca.msix_table(), hca.reset(|_| ())), (None, false));
}

#[test]
fn a_bar_is_measured_without_a_trace_and_placed_with_the_windows_before_it() {
    let bus = machine();
    let hca = hca(&bus);
    bus.set(HCA, 4, 0x10_0006, 0xffff);
    let bar = hca.bar(0).unwrap();
    assert_eq!(bar, Bar { base: 0xe000_0000, len: 32 << 20 });
    assert_eq!((bus.get(HCA, 0x10), bus.get(HCA, 4)), (0xe000_000c, 0x10_0006));
    assert_eq!(hca.bar(2), None);

    assert_eq!(hca.place(0, bar, 0x40_0010_0000), None, "not aligned to its length");
    let moved = hca.place(0, bar, 0x40_0000_0000).unwrap();
    assert_eq!((moved.base, bus.get(HCA, 0x10), bus.get(HCA, 0x14)), (0x40_0000_0000, 0xc, 0x40));
    for bridge in [(0, 3, 1), (1, 0, 0)] {
        assert_eq!([0x24, 0x28, 0x2c].map(|at| bus.get(bridge, at)), [0x01f0_0000, 0x40, 0x40]);
    }
    assert_eq!(bus.get((0, 3, 0), 0x28), 0, "not on the path");
    assert_eq!(bus.get(HCA, 4) & 6, 0, "silent until it is started");
    hca.start();
    assert_eq!((bus.get(HCA, 4) & 6, bus.get((1, 0, 0), 4) & 6), (6, 6));
    hca.stop();
    assert_eq!(bus.get(HCA, 4) & 6, 2);
}

#[test]
fn a_reset_waits_and_restores_the_bars() {
    let bus = machine();
    let hca = hca(&bus);
    let mut waited = 0;
    assert!(hca.reset(|ms| {
        if waited == 0 {
            assert_eq!(bus.get(HCA, 0x68) & 0x8000, 0x8000);
            bus.set(HCA, 0x10, 0xc, !((32 << 20) - 1));
            bus.set(HCA, 0, u32::MAX, 0);
        } else if waited > 300 {
            bus.set(HCA, 0, 0x1013_15b3, 0);
        }
        waited += ms;
    }));
    assert!(waited > 300);
    assert_eq!(bus.get(HCA, 0x10), 0xe000_000c);
    bus.set(HCA, 0, u32::MAX, 0);
    assert!(!hca.reset(|_| ()), "does not answer any more");
}

#[test]
fn the_table_of_msix_is_named_by_its_capability() {
    let bus = machine();
    let hca = hca(&bus);
    assert_eq!(hca.msix_table(), Some((0, 0x2000, 32)));
    hca.msix(true);
    assert_eq!(bus.get(HCA, 0x9c), 0x801f_0011);
    hca.msix(false);
    assert_eq!(bus.get(HCA, 0x9c), 0x001f_0011);
}

#[test]
fn buses_without_numbers_are_numbered_and_their_windows_closed() {
    let bus = Bus::default();
    bus.add((0, 0, 0), 0x0008_1b36, 0);
    bus.add((0, 1, 0), 0x000c_1b36, 0x81);
    bus.add((0, 1, 1), 0x000c_1b36, 1);
    // Found only where the numbers lead: the first port has a switch, the second an HCA.
    bus.add((1, 0, 0), 0x1234_104c, 1);
    bus.add((2, 0, 0), 0x1111_15b3, 0);
    bus.add((3, 0, 0), 0x1013_15b3, 0);
    for at in [(0, 1, 0), (0, 1, 1), (1, 0, 0)] {
        for offset in [0x18, 0x20, 0x24] {
            bus.set(at, offset, 0, u32::MAX);
        }
    }
    number(&bus, 0, 255);
    let numbers = [(0, 1, 0), (0, 1, 1), (1, 0, 0)].map(|at| bus.get(at, 0x18));
    assert_eq!(numbers, [0x02_01_00, 0x03_03_00, 0x02_02_01]);
    assert_eq!([bus.get((1, 0, 0), 0x20), bus.get((0, 1, 1), 0x24)], [0xfff0; 2]);
    assert_eq!(hca(&bus).at.to_string(), "03:00.0");
}

#[test]
fn no_more_buses_are_numbered_than_there_are() {
    let bus = Bus::default();
    for device in 0..4 {
        bus.add((0, device, 0), 0x000c_1b36, 1);
        bus.set((0, device, 0), 0x18, 0, u32::MAX);
    }
    number(&bus, 0, 2);
    let numbers = [0, 1, 2, 3].map(|device| bus.get((0, device, 0), 0x18));
    assert_eq!(numbers, [0x01_01_00, 0x02_02_00, 0, 0]);
}
