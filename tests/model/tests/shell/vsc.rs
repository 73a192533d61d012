//! The vendor's capability: a semaphore, spaces, and words read and written through two registers.

use crate::rig::{Rig, quick};
use mlx5_model::{Config, Personality};

const VSC: usize = 0xc0;
const FLAG: u32 = 1 << 31;

fn read(rig: &mut Rig, at: usize) -> u32 {
    let mut word = [0; 4];
    rig.hca.config_read(VSC + at, &mut word);
    u32::from_le_bytes(word)
}

fn write(rig: &mut Rig, at: usize, word: u32) {
    rig.hca.config_write(VSC + at, &word.to_le_bytes());
}

/// Fetches a word of the space chosen, and says which address is next.
fn fetch(rig: &mut Rig, address: u32) -> (u32, u32) {
    write(rig, 0x10, address);
    assert_eq!(read(rig, 0x10) & FLAG, FLAG, "fetched");
    (read(rig, 0x14), read(rig, 0x10) & !FLAG)
}

#[test]
fn the_semaphore_goes_to_one() {
    let mut rig = Rig::quick();
    assert_eq!(read(&mut rig, 0) & 0xff_00ff, 0x18_0009);
    let (first, second) = (read(&mut rig, 8), read(&mut rig, 8));
    assert!(first != 0 && second != 0 && first != second);
    write(&mut rig, 0xc, first);
    write(&mut rig, 0xc, second);
    assert_eq!(read(&mut rig, 0xc), first, "the second is too late");
    write(&mut rig, 0xc, 0);
    assert_eq!(read(&mut rig, 0xc), 0);
}

#[test]
fn the_registers_can_be_dumped() {
    let mut rig = Rig::quick();
    write(&mut rig, 4, 7);
    assert_ne!(read(&mut rig, 4) >> 29, 0, "there is such a space");
    assert_ne!(read(&mut rig, 4) & 1 << 28, 0, "its size is known");
    assert_eq!(read(&mut rig, 0x10), 0x2000);
    let word = rig.read(4);
    assert_eq!(fetch(&mut rig, 4), (word, 8));
    write(&mut rig, 4, 5);
    assert_eq!(read(&mut rig, 4) >> 29, 0, "no such space");
}

#[test]
fn semaphores_behind_it() {
    let mut rig = Rig::quick();
    write(&mut rig, 4, 0xa);
    for (id, held) in [(7, 7), (9, 7), (0, 0), (9, 9)] {
        write(&mut rig, 0x14, id);
        write(&mut rig, 0x10, 0x20 | FLAG);
        assert_eq!(read(&mut rig, 0x10) & FLAG, 0, "stored");
        assert_eq!(fetch(&mut rig, 0x20).0, held);
    }
}

/// Stores a word of the space chosen.
fn store(rig: &mut Rig, address: u32, word: u32) {
    write(rig, 0x14, word);
    write(rig, 0x10, address | FLAG);
    assert_eq!(read(rig, 0x10) & FLAG, 0, "stored");
}

/// As iPXE does it: the space by a store of 16 bits, and whether it exists by a look at a byte.
fn choose(rig: &mut Rig, space: u16) {
    rig.hca.config_write(VSC + 4, &space.to_le_bytes());
    let mut status = [0];
    rig.hca.config_read(VSC + 7, &mut status);
    assert_eq!(status[0] & 0x20, 0x20);
}

/// Runs the command in the mailbox: how it and the access to its register ended.
fn command(rig: &mut Rig, opcode: u32) -> (u32, u32) {
    store(rig, 0, opcode << 16 | 1);
    let control = fetch(rig, 0).0;
    assert_eq!(control & 1, 0, "not busy");
    (control >> 8 & 0xff, fetch(rig, 0x10_0000).0 >> 8 & 0x7f)
}

/// Boot code reads and sets the speed of the port before it enables the function.
#[test]
fn a_register_is_reached_by_a_command_behind_it() {
    const PTYS: u32 = 0x5004 << 16;
    const DATA: u32 = 0x10_0014;
    let mut rig = Rig::new(Config::infiniband());
    choose(&mut rig, 0xa);
    store(&mut rig, 0, 77);
    choose(&mut rig, 3);
    assert!(fetch(&mut rig, 0x1000).0 >= 256, "the mailbox");
    for (at, word) in [(0, 1 << 27 | 4 << 16), (4, PTYS | 1 << 8 | 1), (0x10, 3 << 27 | 17 << 16)] {
        store(&mut rig, 0x10_0000 + at, word);
    }
    store(&mut rig, DATA, 1 << 16 | 1);
    assert_eq!(command(&mut rig, 0x9001), (0, 0));
    assert_eq!(fetch(&mut rig, 0x10_0004).0 & 1 << 15, 1 << 15, "an answer");
    assert_eq!(fetch(&mut rig, DATA + 0x10).0, 5 << 16 | 7, "widths and speeds");
    // SDR alone.
    store(&mut rig, 0x10_0004, PTYS | 2 << 8 | 1);
    store(&mut rig, DATA + 0x1c, 5 << 16 | 1);
    assert_eq!(command(&mut rig, 0x9001), (0, 0));
    assert_eq!(fetch(&mut rig, DATA + 0x1c).0, 5 << 16 | 1);
    store(&mut rig, DATA + 0x1c, 5 << 16 | 0x20);
    assert_eq!(command(&mut rig, 0x9001), (0, 7), "a speed that it does not have");
    store(&mut rig, 0x10_0004, PTYS | 3 << 8 | 1);
    assert_eq!(command(&mut rig, 0x9001), (0, 6), "a method that there is not");
    assert_eq!(command(&mut rig, 0x9002).0, 1, "a command that there is not");
    store(&mut rig, 0x10_0000, 0);
    assert_eq!(command(&mut rig, 0x9001).0, 2, "nothing in the mailbox");
}

#[test]
fn a_virtual_function_has_none() {
    let mut rig = Rig::new(Config { personality: Personality::Vf, ..quick() });
    assert_eq!(read(&mut rig, 0), 0);
    write(&mut rig, 4, 7);
    assert_eq!(read(&mut rig, 4), 0);
}
