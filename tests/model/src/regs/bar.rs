//! BAR0: initialization segment, MSI-X table, user access regions.
//!
//! Accesses of 4 and 8 bytes, of 64 bytes as write combining makes them, and single bytes on reads.
//! A 64-bit doorbell may also arrive as two 32-bit halves, lower address first.

use super::msix::{PBA, TABLE};
use crate::cmd::engine;
use crate::hca::Hca;
use crate::objects;

/// Size of BAR0.
pub(crate) const BAR_BYTES: u64 = 32 << 20;
/// Offsets within a UAR page.
const CQ_ARM: usize = 0x20;
const EQ_ARM: usize = 0x40;
const EQ_UPDATE: usize = 0x48;
const BLUEFLAME: usize = 0x800;

/// First half of a doorbell that came in two.
#[derive(Debug, Default)]
pub(crate) struct UarLatch {
    half: Option<(u64, [u8; 4])>,
}

impl Hca {
    /// Reads BAR0. All ones where nothing answers: memory space off, beyond the BAR, or the
    /// function just reset.
    pub fn bar_read(&mut self, offset: u64, buf: &mut [u8]) {
        self.bus.stats.mmio_reads += 1;
        self.bus.push_relaxed();
        buf.fill(0xff);
        if !self.pci.memory_enabled() || self.regs.absent(self.bus.now) {
            return;
        }
        for (at, byte) in (offset..BAR_BYTES).zip(buf) {
            *byte = match at {
                TABLE..PBA => self.bus.msix.table_byte(at - TABLE),
                PBA..0x4000 => self.bus.msix.pba_byte(at - PBA),
                0..0x2000 => {
                    let word = self.iseg_word(at & !3);
                    word.to_be_bytes()[(at & 3) as usize]
                }
                // UARs are write-only.
                _ => 0,
            };
        }
    }

    /// Writes BAR0.
    pub fn bar_write(&mut self, offset: u64, bytes: &[u8]) {
        self.bus.stats.mmio_stores += 1;
        if !self.pci.memory_enabled() || self.regs.absent(self.bus.now) {
            return;
        }
        if offset % 4 != 0 || bytes.len() % 4 != 0 {
            let n = bytes.len();
            self.bus.complain(format!("BAR store of {n} bytes at {offset:#x}: not whole words"));
            return;
        }
        match offset {
            TABLE..PBA => self.bus.write_msix(offset - TABLE, bytes),
            0..0x2000 => {
                for (at, word) in (offset..).step_by(4).zip(bytes.chunks_exact(4)) {
                    let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
                    self.iseg_write(at, word);
                }
            }
            0x4000..BAR_BYTES => self.uar_write(offset, bytes),
            _ => self.bus.complain(format!("BAR store at {offset:#x}: nothing there")),
        }
    }

    fn uar_write(&mut self, offset: u64, bytes: &[u8]) {
        let uar = (offset >> 12) as u32;
        let at = (offset & 0xfff) as usize;
        if !self.ids.uar.contains(uar) {
            self.bus.complain(format!("store to UAR {uar:#x}, which is not allocated"));
            return;
        }
        let first = bytes.first_chunk::<4>().map_or(0, |b| u32::from_be_bytes(*b));
        match (at, bytes.len()) {
            (EQ_ARM, 4) => self.eqs.doorbell(&mut self.bus, uar, first, true),
            (EQ_UPDATE, 4) => self.eqs.doorbell(&mut self.bus, uar, first, false),
            (CQ_ARM, 8) => {
                self.bus.stats.cq_arms += 1;
                let cqn = bytes.last_chunk::<4>().map_or(0, |b| u32::from_be_bytes(*b));
                objects::cq_arm(self, uar, first, cqn & 0xff_ffff);
            }
            (BLUEFLAME..=0xfff, 8..) if bytes.len() % 8 == 0 => {
                objects::send_doorbell(self, uar, at, bytes);
            }
            (CQ_ARM | BLUEFLAME..=0xfff, 4) if at % 8 == 0 => {
                self.latch.half = bytes.first_chunk().map(|half| (offset, *half));
            }
            (_, 4) if self.latch.half.is_some_and(|(first, _)| first + 4 == offset) => {
                if let Some((first, half)) = self.latch.half.take() {
                    let mut whole = half.to_vec();
                    whole.extend_from_slice(bytes);
                    self.uar_write(first, &whole);
                }
            }
            (at, n) => self.bus.complain(format!("store of {n} bytes at {at:#x} of UAR {uar:#x}")),
        }
    }

    /// A store to the initialization segment.
    fn iseg_write(&mut self, offset: u64, word: u32) {
        match offset {
            0x10 => self.cmd.high = word,
            0x14 => self.set_command_page(word),
            0x18 => engine::doorbell(self, word),
            // Acknowledgement of a reset request, and INTx: nothing to do.
            0x1fc | 0x200c => {}
            _ => self.bus.complain(format!("store to read-only register {offset:#x}")),
        }
    }
}
