//! Commands through shared memory, and the faults that begin with them.

use crate::rig::{BASE, BYTES, Dir, Driver, cmd, memfd, quick, serve, until, word};
use mlx5_model::server::{Rude, Server, Settings};
use rustix::event::{PollFd, PollFlags};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use vfio_user::Client;

#[test]
fn a_command_by_the_crates_client() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut client = Client::new(&dir.at("a")).unwrap();
    let ram = memfd(8192);
    // The page is not at the file's beginning, nor at the same address.
    client.dma_map(4096, 0x7000, 4096, ram.as_raw_fd()).unwrap();
    client.region_write(7, 4, &[6, 0]).unwrap();
    client.region_write(0, 0x10, &[0; 4]).unwrap();
    client.region_write(0, 0x14, &0x7000u32.to_be_bytes()).unwrap();
    let mut entry = [0; 64];
    entry[0] = 7;
    entry[7] = 16;
    entry[16..18].copy_from_slice(&0x104u16.to_be_bytes());
    entry[0x3b] = 16;
    entry[0x3f] = 1;
    for opcode in [0x104u16, 0x80d] {
        entry[16..18].copy_from_slice(&opcode.to_be_bytes());
        ram.write_all_at(&entry, 4096).unwrap();
        client.region_write(0, 0x18, &1u32.to_be_bytes()).unwrap();
        let mut back = [0; 64];
        until("the answer", || {
            ram.read_exact_at(&mut back, 4096).unwrap();
            back[0x3f] == 0
        });
        assert_eq!(back[0x20..0x28], [0; 8], "status and syndrome of {opcode:#x}");
    }
    client.dma_unmap(0x7000, 4096).unwrap();
    assert_eq!(server.with(0, |one| one.maps()).unwrap(), []);
    let report = server.stop();
    assert_eq!(report.functions[0].commands, 2);
    assert_eq!(report.functions[0].complaints, [""; 0]);
    assert_eq!(report.functions[0].notes, [""; 0]);
}

#[test]
fn bring_up_through_mailboxes() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut driver = Driver::new(&dir.at("a"));
    driver.init();
    let first = word(&driver.ok(&cmd(0x802, 0, 16), 16), 8);
    assert_eq!(first, 0x10, "the first UAR a real card gave");
    let report = server.stop();
    assert_eq!(report.functions[0].dma_refused, 0);
    assert_eq!(report.functions[0].complaints, [""; 0]);
    let json = report.json();
    assert_eq!(json["functions"][0]["commands_by_opcode"]["0x802"], 1);
    assert_eq!(json["functions"][0]["mapped_bytes"], BYTES);
}

#[test]
fn no_command_without_bus_mastering() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut driver = Driver::new(&dir.at("a"));
    driver.raw.set_command(2);
    driver.post(&cmd(0x104, 0, 16), 16);
    driver.raw.be32(0);
    let complaints = server.with(0, |one| one.complaints().to_vec()).unwrap();
    assert!(complaints[0].contains("bus mastering is off"), "{complaints:?}");
    assert!(driver.owned());
    assert_eq!(server.with(0, |one| one.dma_read(BASE, 4).is_err()), Some(true));
}

#[test]
fn a_command_in_read_only_memory_is_run_and_never_answered() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut driver = Driver::new(&dir.at("a"));
    driver.raw.unmap(0, BASE, BYTES).unwrap();
    let ram = driver.ram.try_clone().unwrap();
    driver.raw.map(1, 0, BASE, BYTES, Some(&ram)).unwrap();
    driver.post(&cmd(0x104, 0, 16), 16);
    driver.raw.be32(0);
    assert_eq!(server.with(0, |one| one.dma_refused()), Some(1));
    assert!(driver.owned());
}

#[test]
fn reset_drops_the_command_page_but_not_the_mappings() {
    let dir = Dir::new();
    let server = serve(&dir);
    let mut driver = Driver::new(&dir.at("a"));
    driver.init();
    driver.raw.write(7, 0x68, &[0x10, 0xa8]).unwrap();
    assert_eq!(server.with(0, |one| one.maps().len()), Some(1));
    driver.raw.set_command(6);
    driver.set_page();
    driver.init();
}

fn rude(dir: &Dir, rude: &str) -> Settings {
    Settings { rude: vec![rude.parse().unwrap()], ..Settings::with_device(&quick(), [dir.at("a")]) }
}

#[test]
fn a_device_that_goes_after_the_second_command() {
    let dir = Dir::new();
    let _server = Server::start(rude(&dir, "gone-after=2")).unwrap();
    let mut driver = Driver::new(&dir.at("a"));
    driver.ok(&cmd(0x104, 0, 16), 16);
    driver.ok(&cmd(0x80d, 0, 16), 16);
    until("the device is gone", || driver.raw.be32(0) == u32::MAX);
}

#[test]
fn a_device_that_dies_and_one_that_falls_mute() {
    let dir = Dir::new();
    {
        let _server = Server::start(rude(&dir, "die-after=1")).unwrap();
        let mut driver = Driver::new(&dir.at("a"));
        driver.post(&cmd(0x104, 0, 16), 16);
        until("a syndrome", || driver.raw.be32(0x1010) >> 24 == 1);
    }
    let server = Server::start(rude(&dir, "mute-after=1")).unwrap();
    let mut driver = Driver::new(&dir.at("a"));
    driver.ok(&cmd(0x104, 0, 16), 16);
    driver.post(&cmd(0x80d, 0, 16), 16);
    until("it was taken", || server.with(0, |one| one.hca().commands()) == Some(2));
    assert!(driver.owned());
}

#[test]
fn a_server_that_ends_by_itself_says_so() {
    let dir = Dir::new();
    let server = Server::start(rude(&dir, "quit-after=1")).unwrap();
    let mut driver = Driver::new(&dir.at("a"));
    driver.post(&cmd(0x104, 0, 16), 16);
    let mut fd = [PollFd::from_borrowed_fd(server.ended(), PollFlags::IN)];
    let patience = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fd, Some(&patience)), Ok(1));
    assert_eq!(server.with(0, |_| ()), None);
    assert!(!dir.at("a").exists());
    assert_eq!(server.stop().functions[0].commands, 1);
}

#[test]
fn faults_are_spelt_as_said() {
    assert_eq!("dma-limit=8".parse(), Ok(Rude::DmaLimit(8)));
    for wrong in ["", "gone-after", "gone-after=", "gone-after=x", "bored-after=1"] {
        assert!(wrong.parse::<Rude>().is_err(), "{wrong}");
    }
}
