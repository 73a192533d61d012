//! The device as a client sees it: regions, configuration space, BAR, resets. Uses the `vfio_user`
//! crate's client where it can express the request.

use crate::rig::{Dir, EINVAL, Raw, command, fields, quick, serve};
use mlx5_model::server::{Server, Settings};
use mlx5_model::{Config, Personality};
use vfio_user::Client;

fn config32(client: &mut Client, at: u64) -> u32 {
    let mut word = [0; 4];
    client.region_read(7, at, &mut word).unwrap();
    u32::from_le_bytes(word)
}

fn bar32(client: &mut Client, at: u64) -> u32 {
    let mut word = [0; 4];
    client.region_read(0, at, &mut word).unwrap();
    u32::from_be_bytes(word)
}

#[test]
fn regions_and_interrupts_are_those_of_the_card() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut client = Client::new(&dir.at("a")).unwrap();
    for index in 0..9 {
        let region = client.region(index).unwrap();
        let size = match index {
            0 => 32 << 20,
            7 => 4096,
            _ => 0,
        };
        assert_eq!(region.size, size, "region {index}");
        assert_eq!(region.flags, if size == 0 { 0 } else { 3 }, "nothing can be mapped");
        assert!(region.file_offset.is_none());
    }
    for (index, count) in [(0, 1), (1, 0), (2, 32), (3, 1), (4, 1)] {
        let info = client.get_irq_info(index).unwrap();
        assert_eq!((info.index, info.count), (index, count));
        assert_eq!(info.flags & 1, 1, "by eventfd");
        assert_eq!(info.flags & 8, 0, "may grow");
    }
}

#[test]
fn configuration_space_through_the_client() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut client = Client::new(&dir.at("a")).unwrap();
    let mut all = [0; 4096];
    client.region_read(7, 0, &mut all).unwrap();
    assert_eq!(all[..4], [0xb3, 0x15, 0x13, 0x10]);
    assert_eq!(config32(&mut client, 0x10), 0xc, "64-bit, prefetchable");
    assert_ne!(config32(&mut client, 0x64) & 1 << 28, 0, "FLR");
    client.region_write(7, 4, &[0xff, 0xff]).unwrap();
    assert_eq!(config32(&mut client, 4) & 0xffff, 0x0406);
}

#[test]
fn the_initialization_segment_answers_once_memory_is_on() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut client = Client::new(&dir.at("a")).unwrap();
    assert_eq!(bar32(&mut client, 0), u32::MAX);
    client.region_write(7, 4, &[2, 0]).unwrap();
    assert_eq!(bar32(&mut client, 0), 12 << 16 | 14, "firmware 14.12");
    assert_eq!(bar32(&mut client, 4) >> 16, 5, "command interface");
    let mut both = [0; 8];
    client.region_read(0, 0, &mut both).unwrap();
    assert_eq!(both[..4], [0, 12, 0, 14]);
    let mut byte = [0];
    client.region_read(0, 3, &mut byte).unwrap();
    assert_eq!(byte, [14]);
}

#[test]
fn time_passes_while_nobody_asks() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut client = Client::new(&dir.at("a")).unwrap();
    client.region_write(7, 4, &[2, 0]).unwrap();
    let first = bar32(&mut client, 0x1004);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let ticks = bar32(&mut client, 0x1004).wrapping_sub(first);
    assert!(ticks >= 275_000 * 20, "275 MHz: {ticks} ticks in 20 ms");
}

#[test]
fn both_resets_bring_power_on_back() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut client = Client::new(&dir.at("a")).unwrap();
    let steps: [fn(&mut Client); 2] = [
        |client| client.region_write(7, 0x68, &[0x10, 0xa8]).unwrap(),
        |client| client.reset().unwrap(),
    ];
    for (done, reset) in steps.into_iter().enumerate() {
        client.region_write(7, 4, &[6, 0]).unwrap();
        client.region_write(0, 0x10, &[0, 0, 0, 1]).unwrap();
        assert_eq!(bar32(&mut client, 0x10), 1);
        reset(&mut client);
        assert_eq!(config32(&mut client, 4) & 6, 0);
        client.region_write(7, 4, &[2, 0]).unwrap();
        assert_eq!(bar32(&mut client, 0x10), 0);
        let resets = server.with(0, |one| one.stats().resets);
        assert_eq!(resets, Some(done as u64 + 1));
    }
}

#[test]
fn a_virtual_function_says_so() {
    let dir = Dir::new();
    let device = Config { personality: Personality::Vf, device_id: 0x1014, ..quick() };
    let settings = Settings::with_device(&device, [dir.at("a"), dir.at("b")]);
    assert_ne!(settings.functions[0].1.mac, settings.functions[1].1.mac);
    let _server = Server::start(settings).unwrap();
    let mut client = Client::new(&dir.at("b")).unwrap();
    assert_eq!(config32(&mut client, 0), 0x1014_15b3);
}

#[test]
fn nothing_beyond_a_region() {
    let dir = Dir::new();
    let _server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    raw.set_command(2);
    assert!(raw.read(0, (32 << 20) - 4, 4).is_ok());
    assert_eq!(raw.read(0, (32 << 20) - 4, 8), Err(EINVAL));
    assert_eq!(raw.read(0, u64::MAX - 3, 8), Err(EINVAL));
    assert_eq!(raw.read(7, 4092, 8), Err(EINVAL));
    assert_eq!(raw.read(0, 0, 0), Err(EINVAL));
    assert_eq!(raw.read(0, 0, (1 << 20) + 1), Err(EINVAL));
    assert_eq!(raw.read(2, 0, 4), Err(EINVAL), "no BAR 2");
    assert_eq!(raw.read(9, 0, 4), Err(EINVAL), "no such region");
    assert_eq!(raw.write(7, 4094, &[0; 4]), Err(EINVAL));
    assert_eq!(raw.call(command::REGION_INFO, &fields![32u64, 9u32], &[]), Err(EINVAL));
    assert_eq!(raw.call(command::IRQ_INFO, &fields![16u64, 5u32], &[]), Err(EINVAL));
    // A write that says more than it brings.
    let short = fields![0u64, 0u32, 8u32, 0u32];
    assert_eq!(raw.call(command::REGION_WRITE, &short, &[]), Err(EINVAL));
    assert!(raw.read(0, 0, 4).is_ok(), "and goes on");
}

#[test]
fn a_device_gone_reads_ones_and_comes_back() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut raw = Raw::greet(&dir.at("a"));
    raw.set_command(2);
    server.with(0, |one| one.set_gone(true)).unwrap();
    assert_eq!(raw.read(7, 0, 4).unwrap(), [0xff; 4]);
    assert_eq!(raw.be32(0), u32::MAX);
    assert_eq!(raw.read(0, 0x3000, 4).unwrap(), [0xff; 4], "pending bits too");
    raw.set_command(0);
    server.with(0, |one| one.set_gone(false)).unwrap();
    assert_eq!(raw.be32(4) >> 16, 5, "the store was lost");
}
