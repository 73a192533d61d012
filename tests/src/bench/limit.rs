//! The limit: the same bytes moved by the least code that can move them.
//!
//! One RDMA write of 8 bytes, inline and signalled: a 48-byte WQE built in registers and stored to
//! a ring, a cookie beside it, the doorbell record, the 64-byte copy to a BlueFlame page, then
//! ownership check of the completion, the cookie back, the consumer index. No object, no state, no
//! check of anything: what a DAT stack costs is measured in multiples of this.
//!
//! Rings are atomics in ordinary memory, read and written relaxed, which compile to plain loads and
//! stores.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use super::host::store_fence;

/// Entries of either ring.
pub const ENTRIES: usize = 1024;

/// The rings of the limit loop.
pub struct Limit {
    sq: Box<[AtomicU64; ENTRIES * 8]>,
    cookies: Box<[AtomicU64; ENTRIES]>,
    cq: Box<[AtomicU64; ENTRIES * 8]>,
    records: Box<[AtomicU32; 32]>,
    uar: Box<[AtomicU64; 512]>,
    producer: u32,
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
            cookies: words(),
            cq: words(),
            records: records.try_into().unwrap(),
            uar: words(),
            producer: 0,
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

    /// One write.
    #[inline]
    pub fn post(&mut self, remote: u64, rkey: u32, data: u64, cookie: u64) {
        let index = self.producer;
        let block = [
            (u64::from(0x14d_u32 << 8 | 3).to_be() >> 32) << 32
                | u64::from((index << 8 | 8).to_be()),
            u64::from(8_u32.to_be()),
            remote.to_be(),
            u64::from(rkey.to_be()),
            u64::from(0x8000_0008_u32.to_be()) | data << 32,
            data >> 32,
            0,
            0,
        ];
        let at = (index as usize & (ENTRIES - 1)) * 8;
        for (i, word) in block.iter().enumerate() {
            self.sq[at + i].store(*word, Ordering::Relaxed);
        }
        self.cookies[index as usize & (ENTRIES - 1)].store(cookie, Ordering::Relaxed);
        self.producer = index.wrapping_add(1);
        compiler_fence(Ordering::Release);
        self.records[1].store((self.producer & 0xffff).to_be(), Ordering::Relaxed);
        compiler_fence(Ordering::Release);
        let register = (0x800 / 8) ^ self.half;
        for (i, word) in block.iter().enumerate() {
            self.uar[(register + i) & 511].store(*word, Ordering::Relaxed);
        }
        store_fence();
        self.half ^= 0x100 / 8;
    }

    /// One completion.
    #[inline]
    pub fn poll(&mut self) -> Option<u64> {
        let index = self.consumer;
        let last = self.cq[(index as usize & (ENTRIES - 1)) * 8 + 7].load(Ordering::Acquire);
        let bytes = last.to_ne_bytes();
        let owner = (index >> ENTRIES.trailing_zeros()) & 1;
        if u32::from(bytes[7] & 1) != owner || bytes[7] >> 4 != 0 {
            return None;
        }
        let counter = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        let cookie = self.cookies[counter & (ENTRIES - 1)].load(Ordering::Relaxed);
        self.consumer = index.wrapping_add(1);
        self.records[16].store((self.consumer & 0xff_ffff).to_be(), Ordering::Relaxed);
        Some(cookie)
    }
}
