//! Configuration space, BAR, resets.

use crate::rig::{CMD, Rig, cmd, quick};
use mlx5_model::Config;

fn config(rig: &mut Rig, at: usize) -> u32 {
    let mut word = [0; 4];
    rig.hca.config_read(at, &mut word);
    u32::from_le_bytes(word)
}

#[test]
fn header_and_capabilities() {
    let mut rig = Rig::quick();
    assert_eq!(config(&mut rig, 0), 0x1013_15b3);
    assert_eq!(config(&mut rig, 8) >> 8, 0x02_0000, "Ethernet controller");
    let mut at = (config(&mut rig, 0x34) & 0xff) as usize;
    let mut found = Vec::new();
    while at != 0 {
        let head = config(&mut rig, at);
        found.push(head & 0xff);
        at = (head >> 8 & 0xff) as usize;
    }
    assert_eq!(found, [0x10, 0x11, 0x09], "PCI Express, MSI-X, vendor's");
    assert_ne!(config(&mut rig, 0x64) & 1 << 28, 0, "function level reset");
    assert_eq!(config(&mut rig, 0x9c) >> 16 & 0x7ff, 31, "vectors less one");
    // Extended: advanced error reporting, version 1, and nothing after it.
    assert_eq!(config(&mut rig, 0x100), 0x0001_0001);
    assert_eq!(config(&mut rig, 0x104), 0, "no error");
    rig.hca.config_write(0x108, &[0xff; 4]);
    assert_eq!(config(&mut rig, 0x108), 0x003f_f030, "masks can be set");
    rig.hca.flr();
    assert_eq!(config(&mut rig, 0x108), 0);
    let mut end = [0; 4];
    rig.hca.config_read(4094, &mut end);
    assert_eq!(end, [0, 0, 0xff, 0xff], "4096 bytes");
}

#[test]
fn bar_sizing() {
    let mut rig = Rig::quick();
    rig.hca.config_write(0x10, &[0xff; 8]);
    assert_eq!(config(&mut rig, 0x10), 0xfe00_000c, "32 MiB, 64-bit, prefetchable");
    assert_eq!(config(&mut rig, 0x14), 0xffff_ffff);
    rig.hca.config_write(0, &[0; 4]);
    assert_eq!(config(&mut rig, 0), 0x1013_15b3, "identity is read-only");
}

#[test]
fn memory_space_off_reads_ones() {
    let mut rig = Rig::quick();
    assert_eq!(rig.read(4) >> 16, 5, "command interface revision");
    rig.hca.config_write(4, &[4, 0]);
    assert_eq!(rig.read(4), u32::MAX);
}

#[test]
fn no_dma_without_bus_mastering() {
    let mut rig = Rig::quick();
    rig.set_page();
    rig.hca.config_write(4, &[2, 0]);
    rig.post(0, &cmd(0x104, 0, 16), 16);
    rig.ring(1);
    assert!(!rig.wait(0, 1_000_000_000));
    assert_eq!(rig.hca.stats().dma_reads, 0);
    assert!(rig.complained_of("bus mastering"));
}

#[test]
fn queue_geometry_survives_the_address() {
    let mut rig = Rig::quick();
    assert_eq!(rig.read(0x14) & 0xff, 0x56);
    rig.set_page();
    assert_eq!(rig.read(0x14), crate::rig::CMDQ as u32 | 0x56);
}

#[test]
fn byte_reads_of_the_health_buffer() {
    let mut rig = Rig::quick();
    let mut byte = [0xff];
    rig.hca.bar_read(0x23d, &mut byte);
    assert_eq!(byte, [0]);
    rig.hca.die(0x0d);
    rig.hca.bar_read(0x23d, &mut byte);
    assert_eq!(byte, [0x0d]);
    rig.hca.bar_read(0x1010, &mut byte);
    assert_eq!(byte, [0x0d]);
}

#[test]
fn health_counter_moves_with_time_and_stops_when_the_device_dies() {
    let mut rig = Rig::quick();
    let sample = |rig: &mut Rig| {
        rig.now += 2_000_000_000;
        rig.step();
        rig.read(0x1010)
    };
    let (a, b) = (sample(&mut rig), sample(&mut rig));
    assert_ne!(a, b);
    rig.hca.die(1);
    let (a, b) = (sample(&mut rig), sample(&mut rig));
    assert_eq!(a, b);
    assert_ne!(rig.read(0x230), u32::MAX, "firmware version still reads");
}

#[test]
fn the_clock_runs_at_the_frequency_of_the_capability() {
    let mut rig = Rig::quick();
    rig.now = 1_000_000_000;
    rig.step();
    assert_eq!(rig.read(0x1004), 275_000_000);
}

#[test]
fn initializing_lasts_as_long_as_configured() {
    let mut rig = Rig::new(Config { init_time: 500_000_000, ..quick() });
    assert_eq!(rig.read(0x1fc) >> 31, 1);
    rig.write(0x10, 0);
    rig.write(0x14, 0x1000_0000);
    assert_eq!(rig.read(0x14) & 0xffff_f000, 0, "a page written too early is lost");
    assert!(rig.complained_of("while initializing"));
    rig.now = 500_000_000;
    rig.step();
    assert_eq!(rig.read(0x1fc) >> 31, 0);
    rig.init();
}

#[test]
fn flr_by_config_space_forgets_everything() {
    let mut rig = Rig::quick();
    rig.init();
    let uar = rig.uar();
    rig.eq(uar, 4, CMD);
    rig.hca.config_write(0x68, &[0x10, 0xa8]);
    assert_eq!(config(&mut rig, 4) & 6, 0, "command register cleared");
    rig.enable_bus();
    assert_eq!(rig.hca.pages_owned(), 0);
    rig.set_page();
    assert_eq!(rig.status(&cmd(0x802, 0, 16), 16).0, 4, "back before ENABLE_HCA");
    rig.init();
    assert_eq!(rig.uar(), 0x10);
}

#[test]
fn flr_drops_a_command_under_way() {
    let mut rig = Rig::new(Config { command_latency: 1_000_000, ..quick() });
    rig.set_page();
    rig.post(0, &cmd(0x104, 0, 16), 16);
    rig.ring(1);
    rig.step();
    rig.hca.flr();
    rig.enable_bus();
    rig.now += 1_000_000_000;
    rig.step();
    assert!(rig.owned(0), "nothing may be written after the reset");
}

#[test]
fn after_a_hardware_like_flr_nobody_answers_for_a_while() {
    let mut rig = Rig::new(Config { hardware_like: true, init_time: 1_000_000, ..quick() });
    rig.hca.flr();
    rig.enable_bus();
    assert_eq!(rig.read(0x1fc), u32::MAX);
    rig.now += 50_000_000;
    rig.step();
    assert_eq!(rig.read(0x1fc) >> 31, 1);
    rig.now += 1_000_000;
    rig.step();
    rig.init();
}

#[test]
fn nic_interface_disables_and_soft_resets() {
    let mut rig = Rig::quick();
    rig.init();
    rig.write(0x14, 1 << 8);
    assert_eq!(rig.read(0x14) >> 8 & 7, 1);
    rig.set_page();
    assert_eq!(rig.read(0x14) >> 8 & 7, 0);
    rig.write(0x14, 7 << 8);
    assert_eq!(rig.hca.pages_owned(), 0, "a ConnectX-4 has a soft reset");
    assert_eq!(rig.read(0x14) >> 8 & 7, 1, "disabled by it");
    rig.init();
    rig.hca.flr();
    rig.hca.config_write(4, &[6, 0]);
    assert_eq!(rig.read(0x14) >> 8 & 7, 1, "and by the function's own reset");
    let mut rig = Rig::new(Config { device_id: 0x1017, ..quick() });
    rig.init();
    rig.write(0x14, 7 << 8);
    assert_ne!(rig.hca.pages_owned(), 0, "a ConnectX-5 has none");
    assert!(rig.complained_of("nic_interface 7"));
}

#[test]
fn stores_to_nowhere_are_complained_of() {
    let mut rig = Rig::quick();
    rig.write(0x230, 1);
    rig.write(0x10_0800, 1);
    rig.hca.bar_write(0x18, &[1]);
    rig.hca.bar_write(u64::MAX - 3, &[0; 4]);
    assert!(rig.complained_of("read-only register 0x230"));
    assert!(rig.complained_of("UAR 0x100, which is not allocated"));
    assert!(rig.complained_of("not whole words"));
}
