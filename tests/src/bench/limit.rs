//! The limits: the same bytes moved by the least code that can move them.
//!
//! A write of 8 bytes, inline and signalled: a 48-byte WQE built in registers and stored to a ring,
//! a cookie beside it, the doorbell record, the doorbell (with write-combining the 64-byte copy to a
//! BlueFlame page), then ownership check of the completion, the cookie back, the consumer index. A
//! list of them has one doorbell; a receive is a pointer and the record, and has a length; a bind is
//! three blocks. No object, no state, no check of anything: what a DAT stack costs is measured in
//! multiples of this. The fences towards the device are those that any driver needs.
//!
//! Rings are atomics in ordinary memory, read and written relaxed, which compile to plain loads and
//! stores.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use hca_mlx5::platform::{Blocks, Fence, mmio};

/// Entries of either ring.
pub const ENTRIES: usize = 1024;

/// The rings of the limit loops.
pub struct Limit {
    sq: Box<[AtomicU64; ENTRIES * 8]>,
    rq: Box<[AtomicU64; ENTRIES * 2]>,
    cookies: Box<[AtomicU64; ENTRIES]>,
    cq: Box<[AtomicU64; ENTRIES * 8]>,
    records: Box<[AtomicU32; 32]>,
    uar: Box<[AtomicU64; 512]>,
    /// Requests and receives, and blocks of the send queue.
    producer: u32,
    block: u32,
    consumer: u32,
    half: usize,
}

impl std::fmt::Debug for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limit").field("producer", &self.producer).finish_non_exhaustive()
    }
}

fn words<const N: usize>() -> Box<[AtomicU64; N]> {
    let list: Box<[AtomicU64]> = (0..N).map(|_| AtomicU64::new(0)).collect();
    list.try_into().unwrap()
}

impl Default for Limit {
    fn default() -> Self {
        let records: Box<[AtomicU32]> = (0..32).map(|_| AtomicU32::new(0)).collect();
        let limit = Self {
            sq: words(),
            rq: words(),
            cookies: words(),
            cq: words(),
            records: records.try_into().unwrap(),
            uar: words(),
            producer: 0,
            block: 0,
            consumer: 0,
            half: 0,
        };
        for entry in 0..ENTRIES {
            limit.cq[entry * 8 + 7].store(0xf100_0000_0000_0000, Ordering::Relaxed);
        }
        limit
    }
}

impl Limit {
    /// Writes completions for the next `n` posts, as the device would.
    pub fn complete_ahead(&self, n: usize) {
        for i in 0..n as u32 {
            let at = self.consumer.wrapping_add(i);
            let owner = (at >> ENTRIES.trailing_zeros()) & 1;
            let counter = (at as u16).to_be_bytes();
            let last = [0x0a, 0, 0, 1, counter[0], counter[1], 0, owner as u8];
            self.cq[(at as usize % ENTRIES) * 8 + 7]
                .store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
    }

    /// The WQE of a write, in the order of the device's bytes.
    #[inline(always)]
    fn write(&self, remote: u64, rkey: u32, data: u64) -> [u64; 6] {
        [
            self.control(8, 3),
            u64::from(8_u32.to_be()),
            remote.to_be(),
            u64::from(rkey.to_be()),
            u64::from(0x8000_0008_u32.to_be()) | data << 32,
            data >> 32,
        ]
    }

    #[inline(always)]
    fn control(&self, opcode: u32, units: u32) -> u64 {
        u64::from((0x14d << 8 | units).to_be()) << 32
            | u64::from(((self.block & 0xffff) << 8 | opcode).to_be())
    }

    /// Stores a block, or its first words.
    #[inline(always)]
    fn store<const N: usize>(&mut self, words: [u64; N]) {
        let at = (self.block as usize & (ENTRIES - 1)) * 8;
        for (i, word) in words.into_iter().enumerate() {
            self.sq[(at + i) & (ENTRIES * 8 - 1)].store(word, Ordering::Relaxed);
        }
        self.block = self.block.wrapping_add(1);
    }

    #[inline(always)]
    fn keep(&mut self, cookie: u64) {
        self.cookies[self.producer as usize & (ENTRIES - 1)].store(cookie, Ordering::Relaxed);
        self.producer = self.producer.wrapping_add(1);
    }

    /// Says how far the send queue goes.
    #[inline(always)]
    fn publish(&self) {
        compiler_fence(Ordering::Release);
        self.records[1].store((self.block & 0xffff).to_be(), Ordering::Relaxed);
    }

    /// The register that is written next.
    #[inline(always)]
    fn register(&self) -> usize {
        (0x800 / 8) ^ self.half
    }

    /// Rings by one word.
    #[inline(always)]
    fn ring(&mut self, first: u64, how: Blocks) {
        self.publish();
        if how == Blocks::Combined {
            mmio::fence(Fence::BeforeDoorbell);
            self.uar[self.register() & 511].store(first, Ordering::Relaxed);
            mmio::fence(Fence::AfterDoorbell);
            self.half ^= 0x100 / 8;
        } else {
            mmio::fence(Fence::BeforeUncached);
            self.uar[0x800 / 8].store(first, Ordering::Relaxed);
        }
    }

    /// One write, and its doorbell.
    #[inline(always)]
    pub fn post(&mut self, remote: u64, rkey: u32, data: u64, cookie: u64, how: Blocks) {
        let block = self.write(remote, rkey, data);
        self.store(block);
        self.keep(cookie);
        if how != Blocks::Combined {
            self.ring(block[0], how);
            return;
        }
        self.publish();
        mmio::fence(Fence::BeforeDoorbell);
        let register = self.register();
        let [a, b, c, d, e, f] = block;
        for (i, word) in [a, b, c, d, e, f, 0, 0].into_iter().enumerate() {
            self.uar[(register + i) & 511].store(word, Ordering::Relaxed);
        }
        mmio::fence(Fence::AfterDoorbell);
        self.half ^= 0x100 / 8;
    }

    /// Writes under one doorbell: cookie and data of each.
    #[inline(always)]
    pub fn post_list(&mut self, remote: u64, rkey: u32, list: &[[u64; 2]], how: Blocks) {
        let mut first = 0;
        for [cookie, data] in list {
            let block = self.write(remote, rkey, *data);
            self.store(block);
            self.keep(*cookie);
            first = block[0];
        }
        self.ring(first, how);
    }

    /// One bind.
    #[inline(always)]
    pub fn bind(&mut self, addr: u64, len: u64, keys: [u32; 3], cookie: u64, how: Blocks) {
        let [old, new, local] = keys;
        let first = self.control(0x25, 12);
        let tail = u64::from(8_u32.to_be()) | u64::from(old.to_be()) << 32;
        self.store([first, tail, 0x9000_0004, 0x2c_4120, 0, 0, 0, 0]);
        self.store([u64::from(new.to_be()), 0, addr.to_be(), len.to_be(), 0, 0, 0, 0]);
        let pointer = (len << 32 | u64::from(local)).to_be();
        self.store([pointer, addr.to_be(), 0, 0, 0, 0, 0, 0]);
        self.keep(cookie);
        self.ring(first, how);
    }

    /// One receive.
    #[inline(always)]
    pub fn receive(&mut self, addr: u64, len: u32, lkey: u32, cookie: u64) {
        let at = (self.producer as usize & (ENTRIES - 1)) * 2;
        let first = (u64::from(len) << 32 | u64::from(lkey)).to_be();
        self.rq[at].store(first, Ordering::Relaxed);
        self.rq[at + 1].store(addr.to_be(), Ordering::Relaxed);
        self.keep(cookie);
        compiler_fence(Ordering::Release);
        self.records[0].store((self.producer & 0xffff).to_be(), Ordering::Relaxed);
    }

    /// One completion: its cookie.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<u64> {
        self.poll_with(|_| ()).map(|(cookie, ())| cookie)
    }

    /// One completion of a receive: its cookie and its length.
    #[inline(always)]
    pub fn poll_received(&mut self) -> Option<(u64, u32)> {
        self.poll_with(|entry| u32::from_be((entry[5].load(Ordering::Relaxed) >> 32) as u32))
    }

    #[inline(always)]
    fn poll_with<T>(&mut self, more: impl Fn(&[AtomicU64; 8]) -> T) -> Option<(u64, T)> {
        let index = self.consumer;
        let entry = self.cq[8 * (index as usize & (ENTRIES - 1))..].first_chunk()?;
        let bytes = entry[7].load(Ordering::Acquire).to_ne_bytes();
        let owner = (index >> ENTRIES.trailing_zeros()) & 1;
        if u32::from(bytes[7] & 1) != owner || bytes[7] >> 4 != 0 {
            return None;
        }
        let more = more(entry);
        let counter = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        let cookie = self.cookies[counter & (ENTRIES - 1)].load(Ordering::Relaxed);
        self.consumer = index.wrapping_add(1);
        self.records[16].store((self.consumer & 0xff_ffff).to_be(), Ordering::Relaxed);
        Some((cookie, more))
    }
}
