//! The sending end: one WQE and one buffer a frame.
//!
//! The device wants the first bytes of a frame in the WQE itself (how many is [`InlineMode`]), the
//! rest through a data pointer. That rest must not be empty, so short frames are padded until it is
//! not. Every WQE of a port has the same length, which makes buffer and ring index the same
//! counter. PRM "Send WQE, Ethernet segment".

use dat_core::fault;
use dat_core::provider::Fault;

use super::config::FRAME_MAX;
use crate::data::ring::{Record, Ring};
use crate::platform::{Fence, Platform};
use crate::prm;
use crate::prm::object;
use crate::prm::sq::{ETH_SEGMENT_FIXED, EthInlineWord, InlineMode};
use crate::prm::wqe::{self, CtrlHead, CtrlTail};

/// Frames on their way at one time.
pub(super) const SLOTS: u16 = 16;
const LOG_SLOTS: u8 = 4;
/// log2 of a block.
pub(super) const LOG_STRIDE: u8 = 6;
/// Blocks of the longest WQE.
const BLOCKS_MAX: usize = 2;
/// Shortest frame on the wire, without frame check sequence.
const SHORTEST: usize = 60;
/// Destination, source, type.
const HEADER: usize = 14;
/// Offset in a UAR page of the send doorbell.
const DOORBELL: usize = 0x800;

/// Where the queue lies.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) ring: usize,
    pub(super) record: usize,
    pub(super) buffers: usize,
    /// Device address of the buffers, which are one page.
    pub(super) iova: u64,
    pub(super) lkey: u32,
    /// Offset in the BAR of the doorbell page.
    pub(super) uar: usize,
}

pub(super) struct Tx<'p, P> {
    platform: &'p P,
    ring: Ring,
    record: Record,
    buffers: usize,
    iova: u64,
    lkey: u32,
    doorbell: usize,
    sqn: u32,
    inline: usize,
    /// log2 of the blocks of one WQE.
    log_wqe: u8,
    /// Frames posted and frames done, free running.
    head: u16,
    tail: u16,
}

impl<'p, P: Platform> Tx<'p, P> {
    pub(super) fn new(platform: &'p P, place: &Place, inline: InlineMode) -> Self {
        let inline = inline.bytes();
        let log_wqe = u8::from(wqe_len(inline) > wqe::WQEBB);
        Self {
            platform,
            ring: Ring::new(place.ring, LOG_SLOTS + log_wqe),
            record: Record(place.record),
            buffers: place.buffers,
            iova: place.iova,
            lkey: place.lkey,
            doorbell: place.uar.wrapping_add(DOORBELL),
            sqn: 0,
            inline,
            log_wqe,
            head: 0,
            tail: 0,
        }
    }

    /// The number the device gave the queue.
    pub(super) fn name(&mut self, sqn: u32) {
        self.sqn = sqn;
    }

    /// log2 of the blocks of the ring.
    pub(super) fn log_blocks(&self) -> u8 {
        LOG_SLOTS + self.log_wqe
    }

    pub(super) fn send(&mut self, frame: &[u8]) -> Result<(), Fault> {
        if !(HEADER..=FRAME_MAX).contains(&frame.len()) {
            return Err(fault!(
                BadParameter,
                "send a frame",
                "frames have 14 to 256 bytes here",
                "send only what neighbour discovery needs",
            )
            .of(object::SQ, self.sqn));
        }
        if self.head.wrapping_sub(self.tail) >= SLOTS {
            return Err(fault!(
                Resources,
                "send a frame",
                "too many frames are on their way",
                "receive, which takes note of those that went, and send it again",
            )
            .of(object::SQ, self.sqn));
        }
        let slot = usize::from(self.head % SLOTS).wrapping_mul(FRAME_MAX);
        let mut image = [0; FRAME_MAX];
        prm::put(&mut image, 0, frame);
        let len = frame.len().max(SHORTEST).max(self.inline + 2);
        let (frame, _) = image.split_at_checked(len).unwrap_or((&image, &[]));
        self.platform.memory().write_bytes(self.buffers.wrapping_add(slot), frame);

        let address = self.iova.wrapping_add(slot as u64);
        let index = self.head << self.log_wqe;
        let wqe = build(index, self.sqn, self.inline, frame, address, self.lkey);
        for offset in 0_u16..1 << self.log_wqe {
            let at = self.ring.slot(u32::from(index.wrapping_add(offset)), u32::from(LOG_STRIDE));
            let from = usize::from(offset) * wqe::WQEBB;
            let block = wqe.get(from..from + wqe::WQEBB).unwrap_or_default();
            self.platform.memory().write_bytes(at, block);
        }
        self.head = self.head.wrapping_add(1);
        // ORDER: frame and WQE precede the counter that lets the device fetch them.
        self.platform.fence(Fence::BeforeDoorbell);
        let posted = u32::from(self.head << self.log_wqe);
        self.platform.memory().store32(self.record.second(), posted.to_be());
        // ORDER: the counter precedes the register: a doorbell that overtakes it is lost.
        self.platform.fence(Fence::BeforeDoorbell);
        let first = CtrlHead::new(wqe::SEND, index, self.sqn, units(self.inline)).word();
        self.platform.write64(self.doorbell, first.to_be());
        // ORDER: a doorbell in a write-combining page leaves the CPU now, not when somebody next
        // needs the buffer.
        self.platform.fence(Fence::AfterDoorbell);
        Ok(())
    }

    /// Takes note of a completion; false if it is not the next in turn.
    pub(super) fn completed(&mut self, token: u16) -> bool {
        let next = self.head != self.tail && token == self.tail << self.log_wqe;
        if next {
            self.tail = self.tail.wrapping_add(1);
        }
        next
    }
}

/// Bytes of a WQE with so many inline.
const fn wqe_len(inline: usize) -> usize {
    wqe::UNIT + ETH_SEGMENT_FIXED + inline + wqe::UNIT
}

/// The same in units.
fn units(inline: usize) -> u8 {
    u8::try_from(wqe_len(inline) / wqe::UNIT).unwrap_or(0)
}

/// The WQE of a frame whose buffer is at device address `address`, signalled.
pub(super) fn build(
    index: u16,
    sqn: u32,
    inline: usize,
    frame: &[u8],
    address: u64,
    lkey: u32,
) -> [u8; BLOCKS_MAX * wqe::WQEBB] {
    let mut wqe = [0; BLOCKS_MAX * wqe::WQEBB];
    let (header, rest) = frame.split_at_checked(inline).unwrap_or((frame, &[]));
    let control = CtrlHead::new(wqe::SEND, index, sqn, units(inline)).word();
    let tail = CtrlTail::new(wqe::SIGNALED, 0).word();
    let word = EthInlineWord::new(u16::try_from(header.len()).unwrap_or(0)).word();
    let head = [control, tail, 0, u64::from(word)];
    let len = u32::try_from(rest.len()).unwrap_or(0);
    let pointer = wqe::data(address.wrapping_add(inline as u64), len, lkey);
    // The inline header starts in the last two bytes of the Ethernet segment's first unit.
    let behind = wqe::UNIT + ETH_SEGMENT_FIXED + inline;
    for (at, words) in [(0, &head[..]), (behind, &pointer)] {
        for (at, word) in (at..).step_by(8).zip(words) {
            prm::put(&mut wqe, at, &word.to_be_bytes());
        }
    }
    prm::put(&mut wqe, wqe::UNIT + ETH_SEGMENT_FIXED, header);
    wqe
}

const _: () = {
    assert!(1 << LOG_SLOTS == SLOTS, "the index and the ring turn over together");
    assert!(wqe_len(InlineMode::L2.bytes()) == wqe::WQEBB, "what real cards ask for is one block");
    assert!(wqe_len(InlineMode::TcpUdp.bytes()) <= BLOCKS_MAX * wqe::WQEBB, "the longest WQE fits");
    assert!(wqe_len(InlineMode::Ip.bytes()) % (wqe::UNIT) == 0, "whole units");
    assert!(wqe_len(InlineMode::TcpUdp.bytes()) % (wqe::UNIT) == 0, "whole units");
};
