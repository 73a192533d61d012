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

#[test]
fn a_virtual_function_has_none() {
    let mut rig = Rig::new(Config { personality: Personality::Vf, ..quick() });
    assert_eq!(read(&mut rig, 0), 0);
    write(&mut rig, 4, 7);
    assert_eq!(read(&mut rig, 4), 0);
}
