//! A host and a driver in a few lines: sparse memory, a dark wire, raw mailboxes.

use mlx5_model::host::{DmaError, HostMemory};
use mlx5_model::wire::Wire;
use mlx5_model::{Config, Hca};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Memory that exists where somebody looks, between 256 MiB and 4 GiB; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Ram(Arc<Mutex<HashMap<u64, Box<[u8; 4096]>>>>);

impl Ram {
    pub(crate) fn get(&self, at: u64, buf: &mut [u8]) {
        let pages = self.0.lock().unwrap();
        for (at, byte) in (at..).zip(buf) {
            *byte = pages.get(&(at >> 12)).map_or(0, |page| page[(at & 0xfff) as usize]);
        }
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        let mut pages = self.0.lock().unwrap();
        for (at, byte) in (at..).zip(bytes) {
            let page = pages.entry(at >> 12).or_insert_with(|| Box::new([0; 4096]));
            page[(at & 0xfff) as usize] = *byte;
        }
    }

    pub(crate) fn be32(&self, at: u64) -> u32 {
        let mut word = [0; 4];
        self.get(at, &mut word);
        u32::from_be_bytes(word)
    }
}

impl HostMemory for Ram {
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        if !(0x1000_0000..0x1_0000_0000).contains(&iova) {
            return Err(DmaError::Refused(iova));
        }
        self.get(iova, buf);
        Ok(())
    }

    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        if !(0x1000_0000..0x1_0000_0000).contains(&iova) {
            return Err(DmaError::Refused(iova));
        }
        self.put(iova, buf);
        Ok(())
    }
}

struct Dark;

impl Wire for Dark {
    fn send(&mut self, _frame: &[u8]) {}
    fn recv(&mut self) -> Option<Vec<u8>> {
        None
    }
}

pub(crate) const CMDQ: u64 = 0x1000_0000;
pub(crate) const IN_BOXES: u64 = 0x1010_0000;
pub(crate) const OUT_BOXES: u64 = 0x1040_0000;
pub(crate) const RING: u64 = 0x1080_0000;
pub(crate) const PAGES: u64 = 0x4000_0000;

/// Output of a command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) delivery: u8,
    pub(crate) out: Vec<u8>,
}

impl Answer {
    pub(crate) fn status(&self) -> u8 {
        self.out[0]
    }
    pub(crate) fn syndrome(&self) -> u32 {
        word(&self.out, 4)
    }
    pub(crate) fn word(&self, at: usize) -> u32 {
        word(&self.out, at)
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A command of `n` bytes with an opcode and modifier.
pub(crate) fn cmd(opcode: u16, op_mod: u16, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    bytes[0..2].copy_from_slice(&opcode.to_be_bytes());
    if n >= 8 {
        bytes[6..8].copy_from_slice(&op_mod.to_be_bytes());
    }
    bytes
}

/// The same with a word at an offset.
pub(crate) fn with(mut bytes: Vec<u8>, at: usize, value: u32) -> Vec<u8> {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    bytes
}

pub(crate) struct Rig {
    pub(crate) hca: Hca,
    pub(crate) ram: Ram,
    pub(crate) now: u64,
    pub(crate) token: u8,
    pub(crate) next_page: u64,
}

impl Rig {
    pub(crate) fn new(config: Config) -> Self {
        let ram = Ram::default();
        let hca = Hca::new(config, Box::new(ram.clone()), Box::new(Dark));
        let mut rig = Self { hca, ram, now: 0, token: 7, next_page: PAGES };
        rig.enable_bus();
        rig
    }

    pub(crate) fn enable_bus(&mut self) {
        self.hca.config_write(4, &[6, 0]);
    }

    /// Few pages, so that a test is quick.
    pub(crate) fn quick() -> Self {
        Self::new(quick())
    }

    pub(crate) fn read(&mut self, at: u64) -> u32 {
        let mut word = [0; 4];
        self.hca.bar_read(at, &mut word);
        u32::from_be_bytes(word)
    }

    pub(crate) fn write(&mut self, at: u64, value: u32) {
        self.hca.bar_write(at, &value.to_be_bytes());
    }

    pub(crate) fn step(&mut self) {
        self.hca.step(self.now);
    }

    pub(crate) fn set_page(&mut self) {
        self.write(0x10, (CMDQ >> 32) as u32);
        self.write(0x14, CMDQ as u32);
        while self.read(0x1fc) >> 31 != 0 {
            self.now += 1_000_000;
            self.step();
        }
    }

    /// Fills a slot and its mailboxes; does not ring.
    pub(crate) fn post(&mut self, slot: u64, input: &[u8], out_len: usize) {
        self.token = self.token.wrapping_add(1).max(1);
        let (ins, outs) = (IN_BOXES + slot * 0x8_0000, OUT_BOXES + slot * 0x8_0000);
        let chain = |base: u64, data: &[u8], count: usize| {
            for k in 0..count {
                let at = base + k as u64 * 1024;
                let mut block = [0; 576];
                let from = (k * 512).min(data.len());
                let part = &data[from..(from + 512).min(data.len())];
                block[..part.len()].copy_from_slice(part);
                let next = if k + 1 < count { at + 1024 } else { 0 };
                block[0x230..0x238].copy_from_slice(&next.to_be_bytes());
                block[0x238..0x23c].copy_from_slice(&(k as u32).to_be_bytes());
                block[0x23d] = self.token;
                self.ram.put(at, &block);
            }
        };
        let blocks = |n: usize| n.saturating_sub(16).div_ceil(512);
        let head = input.len().min(16);
        chain(ins, &input[head..], blocks(input.len()));
        chain(outs, &[], blocks(out_len));
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        if input.len() > 16 {
            entry[8..16].copy_from_slice(&ins.to_be_bytes());
        }
        entry[16..16 + head].copy_from_slice(&input[..head]);
        if out_len > 16 {
            entry[0x30..0x38].copy_from_slice(&outs.to_be_bytes());
        }
        entry[0x38..0x3c].copy_from_slice(&(out_len as u32).to_be_bytes());
        entry[0x3c] = self.token;
        entry[0x3f] = 1;
        self.ram.put(CMDQ + slot * 64, &entry);
    }

    /// Changes a byte of a slot's entry.
    pub(crate) fn poke(&mut self, slot: u64, at: u64, byte: u8) {
        self.ram.put(CMDQ + slot * 64 + at, &[byte]);
    }

    pub(crate) fn ring(&mut self, slots: u32) {
        self.write(0x18, slots);
    }

    pub(crate) fn owned(&self, slot: u64) -> bool {
        let mut byte = [0];
        self.ram.get(CMDQ + slot * 64 + 0x3f, &mut byte);
        byte[0] & 1 != 0
    }

    pub(crate) fn answer(&self, slot: u64, out_len: usize) -> Answer {
        let mut entry = [0; 64];
        self.ram.get(CMDQ + slot * 64, &mut entry);
        let mut out = entry[0x20..0x30].to_vec();
        let outs = OUT_BOXES + slot * 0x8_0000;
        for k in 0..out_len.saturating_sub(16).div_ceil(512) {
            let mut data = [0; 512];
            self.ram.get(outs + k as u64 * 1024, &mut data);
            out.extend_from_slice(&data);
        }
        out.truncate(out_len.max(16));
        Answer { delivery: entry[0x3f] >> 1, out }
    }

    /// Lets time pass until the slot comes back, at most `limit` nanoseconds.
    pub(crate) fn wait(&mut self, slot: u64, limit: u64) -> bool {
        let end = self.now + limit;
        while self.owned(slot) {
            match self.hca.step(self.now) {
                Some(next) if self.owned(slot) && next <= end => self.now = self.now.max(next),
                _ => return !self.owned(slot),
            }
        }
        true
    }

    pub(crate) fn exec(&mut self, input: &[u8], out_len: usize) -> Answer {
        self.post(0, input, out_len);
        self.ring(1);
        assert!(self.wait(0, 60_000_000_000), "no answer to {:02x?}", &input[..2]);
        self.answer(0, out_len)
    }

    pub(crate) fn ok(&mut self, input: &[u8], out_len: usize) -> Answer {
        let answer = self.exec(input, out_len);
        assert_eq!((answer.delivery, answer.status()), (0, 0), "{:02x?}: {answer:x?}", &input[..2]);
        answer
    }

    pub(crate) fn status(&mut self, input: &[u8], out_len: usize) -> (u8, u32) {
        let answer = self.exec(input, out_len);
        assert_eq!(answer.delivery, 0);
        (answer.status(), answer.syndrome())
    }

    pub(crate) fn enable(&mut self) {
        self.set_page();
        self.ok(&cmd(0x104, 0, 16), 12);
    }

    pub(crate) fn query_pages(&mut self, which: u16) -> (u32, i32) {
        let answer = self.ok(&cmd(0x107, which, 16), 16);
        (answer.word(8) & 0xffff, 0_i32.wrapping_add_unsigned(answer.word(12)))
    }

    pub(crate) fn give_command(function: u32, pages: &[u64]) -> Vec<u8> {
        let mut give = with(with(cmd(0x108, 1, 16), 8, function), 12, pages.len() as u32);
        pages.iter().for_each(|page| give.extend_from_slice(&page.to_be_bytes()));
        give
    }

    /// As many fresh pages as asked.
    pub(crate) fn give(&mut self, function: u32, count: u32) {
        let pages: Vec<u64> = (0..u64::from(count)).map(|k| self.next_page + k * 4096).collect();
        self.next_page += u64::from(count) * 4096;
        self.ok(&Self::give_command(function, &pages), 16);
    }

    /// Everything up to and including INIT_HCA.
    pub(crate) fn init(&mut self) {
        self.enable();
        self.ok(&with(cmd(0x10b, 0, 16), 8, 1), 16);
        let (function, boot) = self.query_pages(1);
        self.give(function, 0_u32.wrapping_add_signed(boot));
        let (function, init) = self.query_pages(2);
        self.give(function, 0_u32.wrapping_add_signed(init));
        self.ok(&cmd(0x102, 0, 32), 16);
    }

    pub(crate) fn uar(&mut self) -> u32 {
        self.ok(&cmd(0x802, 0, 16), 16).word(8)
    }

    /// CREATE_EQ input: 2^log entries at RING, one 4 KiB page each 64.
    pub(crate) fn eq_command(uar: u32, log: u32, vector: u32, mask: u64, oi: bool) -> Vec<u8> {
        let pages = (64usize << log).div_ceil(4096);
        let mut input = cmd(0x301, 0, 272 + pages * 8);
        input = with(input, 0x10, u32::from(oi) << 17);
        input = with(input, 0x1c, log << 24 | uar);
        input = with(input, 0x24, vector);
        input[0x58..0x60].copy_from_slice(&mask.to_be_bytes());
        for k in 0..pages {
            let at = 0x110 + k * 8;
            input[at..at + 8].copy_from_slice(&(RING + k as u64 * 4096).to_be_bytes());
        }
        input
    }

    /// An EQ with its entries handed to the hardware, and its number.
    pub(crate) fn eq(&mut self, uar: u32, log: u32, mask: u64) -> u32 {
        for k in 0..1u64 << log {
            self.ram.put(RING + k * 64 + 0x3f, &[1]);
        }
        self.ok(&Self::eq_command(uar, log, 3, mask, false), 16).word(8)
    }

    pub(crate) fn eqe(&self, index: u64) -> [u8; 64] {
        let mut entry = [0; 64];
        self.ram.get(RING + index * 64, &mut entry);
        entry
    }

    pub(crate) fn arm(&mut self, uar: u32, eqn: u32, ci: u32) {
        self.write(u64::from(uar) << 12 | 0x40, eqn << 24 | ci);
    }

    pub(crate) fn complained_of(&self, words: &str) -> bool {
        self.hca.complaints().iter().any(|c| c.contains(words))
    }
}

pub(crate) fn quick() -> Config {
    Config { init_pages: Some(10), ..Config::default() }
}

/// Event masks.
pub(crate) const CMD: u64 = 1 << 0x0a;
pub(crate) const PAGE: u64 = 1 << 0x0b;
pub(crate) const PORT: u64 = 1 << 0x09;
