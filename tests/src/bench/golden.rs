//! The bytes that a post must have written: both sides of a comparison do the same work only if
//! they are the same.
//!
//! Written out from the published layout, by byte offset, not by the driver's own words.

use dat_core::LmrTriplet;

use super::stage::Lane;

/// The 64-byte blocks that the newest request must consist of, given its index.
pub type Expected = fn(&Lane, u16) -> Vec<[u8; 64]>;

fn put(block: &mut [u8; 64], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Control segment: opcode, index, queue pair, length in units of 16 bytes, completion always.
fn control(lane: &Lane, index: u16, opcode: u8, units: u8) -> [u8; 64] {
    let mut block = [0; 64];
    let [high, low] = index.to_be_bytes();
    let [_, a, b, c] = lane.qp.number.to_be_bytes();
    put(&mut block, 0, &[0, high, low, opcode, a, b, c, units, 0, 0, 0, 8]);
    block
}

fn far(block: &mut [u8; 64], lane: &Lane) {
    put(block, 16, &lane.far.addr.to_be_bytes());
    put(block, 24, &lane.far.context.to_be_bytes());
}

fn pointer(block: &mut [u8; 64], at: usize, lane: &Lane) {
    gather(block, at, &lane.piece[0], lane.lkey);
}

fn gather(block: &mut [u8; 64], at: usize, segment: &LmrTriplet, lkey: u32) {
    put(block, at, &segment.len.to_be_bytes());
    put(block, at + 4, &lkey.to_be_bytes());
    put(block, at + 8, &segment.addr.to_be_bytes());
}

/// RDMA write of 8 bytes of zeros, inline.
pub fn write8(lane: &Lane, index: u16) -> Vec<[u8; 64]> {
    let mut block = control(lane, index, 0x08, 3);
    far(&mut block, lane);
    put(&mut block, 32, &[0x80, 0, 0, 8]);
    vec![block]
}

/// RDMA write of 8 bytes of lent memory, which the device gathers.
pub fn lent8(lane: &Lane, index: u16) -> Vec<[u8; 64]> {
    let mut block = control(lane, index, 0x08, 3);
    far(&mut block, lane);
    gather(&mut block, 32, &lane.lent[0], lane.lent_lkey);
    vec![block]
}

/// RDMA write of 256 bytes by reference.
pub fn write256(lane: &Lane, index: u16) -> Vec<[u8; 64]> {
    let mut block = control(lane, index, 0x08, 3);
    far(&mut block, lane);
    pointer(&mut block, 32, lane);
    vec![block]
}

/// Send of 256 bytes by reference.
pub fn send256(lane: &Lane, index: u16) -> Vec<[u8; 64]> {
    let mut block = control(lane, index, 0x0a, 2);
    pointer(&mut block, 16, lane);
    vec![block]
}

/// Type 1 bind of 256 bytes: three blocks. The key bytes are random, so they are taken from what
/// was written.
pub fn bind(lane: &Lane, index: u16) -> Vec<[u8; 64]> {
    let written = lane.sent.block(index);
    let mut first = control(lane, index, 0x25, 12);
    // Carries the small fence of the bind before it.
    first[11] |= 1 << 5;
    put(&mut first, 12, &written[12..16]);
    put(&mut first, 16, &[0x90, 0, 0, 0, 0, 4]);
    // Length, start address, key byte, queue pair, remote rights, free: the fields a type 1 bind
    // sets.
    put(&mut first, 24, &written[24..32]);
    let mut second = [0; 64];
    let key = lane.sent.block(index.wrapping_add(1));
    put(&mut second, 0, &[0x20 & key[0] | key[0] & 0x10]);
    second[..8].copy_from_slice(&key[..8]);
    put(&mut second, 16, &lane.piece[0].addr.to_be_bytes());
    put(&mut second, 24, &u64::from(lane.piece[0].len).to_be_bytes());
    let mut third = [0; 64];
    pointer(&mut third, 0, lane);
    vec![first, second, third]
}

/// Compares the newest request with what it must be.
///
/// # Panics
/// If they differ.
pub fn check(name: &str, lane: &Lane, expected: Expected) {
    let probe = expected(lane, 0).len() as u16;
    let index = lane.sent.next_block().wrapping_sub(probe);
    let blocks = expected(lane, index);
    // As many as its control segment says; the device reads no more.
    let mut left = 16 * usize::from(blocks[0][7]);
    for (i, block) in blocks.iter().enumerate() {
        let written = lane.sent.block(index.wrapping_add(i as u16));
        let len = left.min(block.len());
        assert_eq!(written[..len], block[..len], "{name}: block {i} of the request at {index}");
        left -= len;
    }
    assert_eq!(left, 0, "{name}: the request is longer than expected");
}
