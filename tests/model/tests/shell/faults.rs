//! The fault wrappers do what they say.

use crate::rig::{CMD, PORT, Rig, cmd, quick, with};
use mlx5_model::faults::{Device, Faulty, Happening, Log, Refusals, Refusing, Script, When};
use mlx5_model::host::HostMemory;
use mlx5_model::{Event, Status, Verdict, Wrote};

#[test]
fn a_status_at_the_nth_command() {
    let mut rig = Rig::quick();
    let script = Script::new().refuse(When::Nth(1), Status::NoResources);
    rig.hca.set_command_hook(Some(Box::new(script)));
    rig.enable();
    assert_eq!(rig.status(&cmd(0x10a, 0, 16), 112).0, 0x0f);
    rig.ok(&cmd(0x10a, 0, 16), 112);
}

#[test]
fn a_status_at_the_kth_of_an_opcode() {
    let mut rig = Rig::quick();
    let script = Script::new().refuse(When::OpcodeNth(0x80d, 1), Status::Busy);
    rig.hca.set_command_hook(Some(Box::new(script)));
    rig.enable();
    rig.ok(&cmd(0x80d, 0, 16), 16);
    assert_eq!(rig.status(&cmd(0x80d, 0, 16), 16).0, 6);
    rig.ok(&cmd(0x80d, 0, 16), 16);
}

#[test]
fn mute_from_any_command() {
    for n in 0..6 {
        let mut rig = Rig::quick();
        rig.hca.set_command_hook(Some(Box::new(Script::new().mute_from(n))));
        rig.set_page();
        let mut answered = 0;
        for opcode in [0x104, 0x10a, 0x80d, 0x80d, 0x80d, 0x80d, 0x80d] {
            rig.post(answered, &cmd(opcode, 0, 16), 16);
            rig.ring(1 << answered);
            if !rig.wait(answered, 1_000_000_000_000) {
                break;
            }
            answered += 1;
        }
        assert_eq!(answered, n);
    }
}

#[test]
fn late_answers_still_come() {
    let mut rig = Rig::quick();
    let late = Script::new().on(When::Nth(0), Verdict::Late(74_000_000_000));
    rig.hca.set_command_hook(Some(Box::new(late)));
    rig.set_page();
    rig.post(0, &cmd(0x104, 0, 16), 16);
    rig.ring(1);
    assert!(!rig.wait(0, 60_000_000_000));
    assert!(rig.wait(0, 74_000_000_000));
}

#[test]
fn undelivered() {
    let mut rig = Rig::quick();
    rig.hca
        .set_command_hook(Some(Box::new(Script::new().on(When::Nth(0), Verdict::Undelivered(6)))));
    rig.set_page();
    assert_eq!(rig.exec(&cmd(0x104, 0, 16), 16).delivery, 6);
}

#[test]
fn a_lost_command_event_leaves_the_status_cleared() {
    let mut rig = Rig::quick();
    rig.init();
    let uar = rig.uar();
    rig.eq(uar, 4, CMD);
    rig.hca
        .set_command_hook(Some(Box::new(Script::new().on(When::Opcode(0x80d), Verdict::NoEvent))));
    rig.post(0, &cmd(0x80d, 0, 16), 16);
    rig.ring(1);
    rig.step();
    assert!(!rig.owned(0));
    assert_eq!(rig.eqe(0)[0x3f], 1, "no entry");
}

#[test]
fn a_log_reads_like_the_stock_drivers_dump() {
    let mut rig = Rig::quick();
    let log = Log::default();
    rig.hca.set_command_hook(Some(Box::new(log.clone())));
    rig.enable();
    let records = log.records();
    assert_eq!(records.len(), 1);
    let text = records[0].to_string();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("dump command ENABLE_HCA(0x104) INPUT"));
    assert_eq!(lines.next(), Some("000: 01040000 00000000 00000000 00000000"));
}

#[test]
fn bytes_written_can_be_changed_by_kind() {
    let mut rig = Rig::quick();
    rig.init();
    let uar = rig.uar();
    rig.eq(uar, 4, PORT);
    rig.hca.set_mangle(Some(Box::new(|kind, _, bytes| {
        if kind == Wrote::Eqe {
            bytes[1] = 0xee;
        }
        kind != Wrote::Mailbox
    })));
    rig.hca.set_link(false);
    assert_eq!(rig.eqe(0)[1], 0xee);
    assert_eq!(rig.ok(&cmd(0x10a, 0, 16), 112).word(0x6c), 0, "mailbox swallowed");
    rig.hca.set_mangle(None);
    assert_eq!(rig.ok(&cmd(0x10a, 0, 16), 112).word(0x6c), 2);
}

#[test]
fn refusing_memory() {
    let rig = Rig::quick();
    let refusals = Refusals::default();
    let mut memory = Refusing::new(rig.ram.clone(), refusals.clone());
    refusals.writes(0x2000_0000..0x2000_1000);
    assert!(memory.write(0x2000_0ffc, &[0; 8]).is_err());
    assert!(memory.write(0x2000_1000, &[0; 8]).is_ok());
    assert!(memory.read(0x2000_0000, &mut [0; 8]).is_ok());
    refusals.reads(0..u64::MAX);
    assert!(memory.read(0x2000_0000, &mut [0; 8]).is_err());
    refusals.clear();
    assert!(memory.write(0x2000_0ffc, &[0; 8]).is_ok());
    assert_eq!(refusals.count(), 2);
}

fn faulty() -> Faulty {
    let mut rig = Rig::quick();
    rig.init();
    let uar = rig.uar();
    rig.eq(uar, 4, PORT);
    rig.arm(uar, 0x10, 0);
    Faulty::new(rig.hca)
}

fn read(device: &mut Faulty, at: u64) -> u32 {
    let mut word = [0; 4];
    device.bar_read(at, &mut word);
    u32::from_be_bytes(word)
}

#[test]
fn a_bar_in_trouble() {
    let mut device = faulty();
    device.trouble.initializing = true;
    assert_eq!(read(&mut device, 0x1fc) >> 31, 1);
    device.trouble.frozen_health = true;
    let frozen = read(&mut device, 0x1010);
    device.step(90_000_000_000);
    assert_eq!(read(&mut device, 0x1010), frozen);
    device.trouble.frozen_health = false;
    assert_ne!(read(&mut device, 0x1010), frozen);
    device.trouble.all_ones = true;
    assert_eq!(read(&mut device, 0), u32::MAX);
    device.trouble = Default::default();
    assert_eq!(read(&mut device, 4) >> 16, 5);
}

#[test]
fn things_happen_at_their_time() {
    let mut device = faulty();
    device.at(3000, Happening::Flr);
    device.at(1000, Happening::Link(false));
    device.at(2000, Happening::Die(0x0c));
    assert_eq!(device.step(999), Some(1000));
    assert!(device.interrupts().is_empty());
    assert_eq!(device.step(1000), Some(2000));
    assert_eq!(device.interrupts(), [3]);
    device.step(2500);
    assert_eq!(read(&mut device, 0x1010) >> 24, 0x0c);
    device.step(3000);
    device.config_write(4, &[6, 0]);
    assert_eq!(read(&mut device, 0x1010) >> 24, 0, "a reset cures it");
    device.at(4000, Happening::AllOnes(true));
    device.step(4000);
    assert_eq!(read(&mut device, 0), u32::MAX);
}

#[test]
fn vectors_lost_and_invented() {
    let mut device = faulty();
    device.trouble.lost_vectors.insert(3);
    device.trouble.spurious_vectors.insert(7);
    device.hca.set_link(false);
    assert_eq!(device.interrupts(), [7]);
    assert!(device.interrupts().is_empty());
}

#[test]
fn events_nobody_caused() {
    let mut device = faulty();
    device.at(10, Happening::Event(Some(0x10), Event::new(0xf0, 0)));
    device.at(20, Happening::Pages(i32::MIN));
    device.at(30, Happening::Event(Some(200), Event::new(0, 0)));
    device.step(40);
    assert_eq!(device.hca.stats().eqes, 1);
}

#[test]
fn doorbells_lost_and_doubled() {
    let mut rig = Rig::quick();
    rig.enable();
    let ram = rig.ram.clone();
    rig.post(0, &cmd(0x80d, 0, 16), 16);
    let mut device = Faulty::new(rig.hca);
    device.trouble.lost_doorbells = 1;
    device.bar_write(0x18, &1u32.to_be_bytes());
    device.step(0);
    let own = || ram.be32(crate::rig::CMDQ + 0x3c) & 1;
    assert_eq!(own(), 1);
    device.trouble.doubled_doorbells = true;
    device.bar_write(0x18, &1u32.to_be_bytes());
    device.step(0);
    assert_eq!(own(), 0);
    assert_eq!(device.hca.stats().commands[&0x80d], 1);
}

#[test]
fn a_dead_device_answers_nothing_until_reset() {
    let mut rig = Rig::new(quick());
    rig.init();
    rig.hca.die(8);
    rig.post(0, &cmd(0x80d, 0, 16), 16);
    rig.ring(1);
    assert!(!rig.wait(0, 100_000_000_000));
    rig.hca.flr();
    rig.enable_bus();
    rig.init();
    rig.ok(&with(cmd(0x80d, 0, 16), 12, 0), 16);
}
