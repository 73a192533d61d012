//! The send queue of a queue pair: WQEs built in registers, stored block by block, and the doorbell
//! after them.
//!
//! PRM "Send work queue", "Doorbells" and "BlueFlame". Each WQE starts on a 64-byte block; the ring
//! is a whole number of blocks, so a WQE wraps between blocks and never inside one, and each block
//! is one bounds check and one burst of stores. The order towards the device is always: WQE, fence,
//! doorbell record, fence, register.
//!
//! The ring has room for as many of the queue's widest WQEs ([`Width`]) as the queue pair may have
//! requests outstanding, so no post looks for room. A request's token is the free-running index of
//! its first block, which is what the CQE names.
//!
//! Length: each kind of request fills the same block in its own form, and they read best side by
//! side.

use core::fmt;
use core::mem::offset_of;

use dat_core::provider::{
    Access, Atomic, Bind, Destination, PostFlags, Registration, RmrTriplet, Scope, Segment,
    SendQueue, WorkRequest,
};

use super::address_vector::address;
use super::ring::{self, RECORD, Record, Ring, SECOND};
use crate::platform::dma::{Cursor, First, Memory, Probe};
use crate::platform::{Blocks, Fence, Platform};
use crate::prm::caps::GeneralCap;
use crate::prm::wqe::{self, Av, CtrlHead, CtrlTail, UmrHead, UmrKey};

/// Blocks of the widest WQE, a window bind; a request of [`MAX_SEGMENTS`] segments is no wider.
pub const WIDEST: u32 = 3;

/// Blocks of the widest WQE that a send queue gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Width(pub(crate) u32);

impl Width {
    /// That of a connected queue whose requests have so many segments and change no key. A control
    /// segment and a remote address segment come first, or in an atomic, which has one segment, the
    /// operands as well: one block.
    pub(crate) const fn connected(segments: u8) -> Self {
        Self::of(2, segments)
    }

    /// That of a queue for datagrams: behind a control segment and an address vector.
    pub(crate) const fn datagram(segments: u8) -> Self {
        Self::of(4, segments)
    }

    /// That of so many units of 16 bytes and as many more as there are segments. One segment has
    /// room in any case: payload that travels inline takes no more than a block.
    const fn of(fixed: u32, segments: u8) -> Self {
        let segments = if segments == 0 { 1 } else { segments as u32 };
        let blocks = (fixed + segments).div_ceil(4);
        Self(if blocks < WIDEST { blocks } else { WIDEST })
    }

    /// Blocks of a ring for so many requests, each of the widest; and for one request of no bytes
    /// behind one of a single block, see [`SendQueue::has_room`].
    pub(crate) const fn blocks_of(self, requests: u16) -> u32 {
        let (widest, with_one_more) = (requests as u32 * self.0, requests as u32 + 1);
        let blocks = if widest > with_one_more { widest } else { with_one_more };
        blocks.next_power_of_two()
    }
}
/// Segments of a request: as many as fit into three blocks behind a control and a remote address
/// segment.
pub const MAX_SEGMENTS: u8 = 10;
/// Segments of a datagram: as many as fit into three blocks behind a control segment and an address
/// vector.
pub const MAX_DATAGRAM_SEGMENTS: u8 = 8;
/// Most bytes that travel inside the WQE of an RDMA WRITE, which then stays one block.
pub const INLINE_WRITE: u32 = 28;
/// Most bytes that travel inside the WQE of a SEND, likewise.
pub const INLINE_SEND: u32 = 44;

/// Offset of the first doorbell register in a UAR page.
pub const UAR_DOORBELLS: usize = 0x800;

/// The control byte of each combination of SIGNALED, SOLICITED and FENCE. The full fence implies
/// the small one, and the two codes do not add up.
const CONTROL_BYTE: [u8; 8] = {
    const {
        assert!(PostFlags::SIGNALED.bits() == 1);
        assert!(PostFlags::SOLICITED.bits() == 2);
        assert!(PostFlags::FENCE.bits() == 4);
    }
    const S: u8 = wqe::SIGNALED;
    const E: u8 = wqe::SOLICITED;
    const F: u8 = wqe::FENCE_ALL;
    [0, S, E, E | S, F, F | S, F | E, F | E | S]
};

/// Bytes of a word, the payload that is read inline at once.
const WORD: u32 = 8;

/// The first word of the control segment of a send of one segment, but for the index and the number
/// of the queue pair.
const ONE_SEND: u64 = CtrlHead::new(wqe::SEND, 0, 0, 2).word();

/// Place of the index in the first word of a control segment.
const INDEX_SHIFT: u32 = CtrlHead::new(0, 1, 0, 0).word().trailing_zeros();

/// One block, in the order of the device's bytes once turned over.
type Block = [u64; 8];

/// The two words that say what a bind changes, in the order of the device's bytes.
const BOUND: [u64; 2] =
    [UmrHead::bind(wqe::BIND_OCTOWORDS).word().to_be(), wqe::mask::BIND.to_be()];
/// Second word of the control segment of a WQE after a bind, in the order of the device's bytes.
const AFTER_BIND: u64 = CtrlTail::new(wqe::FENCE_SMALL, 0).word().to_be();

/// The key a bind makes, for any queue pair and without rights.
#[inline(always)]
fn key(bind: &Bind) -> UmrKey {
    let [_, _, _, low] = bind.new_rkey.to_be_bytes();
    let mut key = UmrKey::default();
    key.set_qpn(wqe::ANY_QPN);
    key.set_mkey_7_0(low);
    key
}

/// The control segment of a WQE at `index`, in the order of the device's bytes; `start` is its
/// first word but for that.
#[inline(always)]
fn control(start: u64, index: u32, flags: PostFlags, immediate: u32) -> [u64; 2] {
    [control_head(start, index), control_tail(flags, immediate)]
}

#[inline(always)]
fn control_head(start: u64, index: u32) -> u64 {
    (start | u64::from(index & 0xffff) << INDEX_SHIFT).to_be()
}

#[inline(always)]
fn control_tail(flags: PostFlags, immediate: u32) -> u64 {
    let combination = usize::from(flags.bits() & 7);
    let fm_ce_se = CONTROL_BYTE.get(combination).copied().unwrap_or(0);
    CtrlTail::new(fm_ce_se, immediate).word().to_be()
}

/// Where a queue rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// BAR offset of the doorbell register.
    pub register: usize,
    /// Size of one of the register's two halves, which whole blocks are written to by turns. 0:
    /// the register is shared with other queues, or the device has no BlueFlame, and only
    /// doorbells of 8 bytes may be written.
    pub half: usize,
    /// How blocks reach its page.
    pub blocks: Blocks,
}

impl Doorbell {
    /// The first doorbell register of the page at BAR offset `uar`, for queues that share it.
    #[must_use]
    pub const fn shared(uar: usize, blocks: Blocks) -> Self {
        Self { register: uar.wrapping_add(UAR_DOORBELLS), half: 0, blocks }
    }
}

/// How the device wants its fast registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Umr {
    /// In `fm_ce_se`: what it waits for.
    pub(super) fence: u8,
    /// It may change the page size and the right to atomics.
    pub(super) page_size: bool,
    pub(super) atomics: bool,
}

impl Umr {
    /// As the capabilities say (Linux `get_umr_fence`, `umr_check_mkey_mask`).
    pub(crate) fn of(caps: &GeneralCap<[u8; 256]>) -> Self {
        let fence = match caps.umr_fence() {
            0 => wqe::FENCE_STRONG,
            1 => wqe::FENCE_SMALL,
            _ => 0,
        };
        Self {
            fence,
            page_size: !caps.umr_modify_entity_size_disabled(),
            atomics: !caps.umr_modify_atomic_disabled(),
        }
    }

    /// The fields of a key that a registration sets.
    fn mask(self) -> u64 {
        let unless = |allowed: bool, field: u64| if allowed { 0 } else { field };
        let left_out =
            unless(self.page_size, wqe::mask::PAGE_SIZE) | unless(self.atomics, wqe::mask::A);
        wqe::mask::REGISTER & !left_out
    }
}

/// How the doorbell of one WQE is rung. Positive: its whole block goes to one half of the register,
/// in eight stores, and the other half lies so many bytes away. Otherwise one of the constants. It
/// is one signed word because the fast path then tells three ways apart by one test.
type Direct = i32;
/// The first 8 bytes of the WQE go to an uncached register.
const WORD_ONLY: Direct = 0;
/// The fast path does not ring: [`Sq::ring_doorbell`] does.
const INDIRECT: Direct = -1;
/// The fast path does not ring: [`Sq::post_indirect`] does, by the whole block in one store, which
/// takes it from memory.
const WHOLE: Direct = -2;
/// The fast path does not ring: a WQE waits for its doorbell.
const DEFERRED: Direct = -3;

/// The inline segment of an aligned word of the arena at `addr`: its one unit, in the order of memory.
/// Payload is bytes, and is never turned over. None if there is no such word.
#[inline(always)]
fn word<T: Probe>(memory: &Memory<T>, addr: u64) -> Option<[u64; 2]> {
    let payload = memory.word_at(addr)?;
    let header = u64::from((wqe::INLINE | WORD).to_be());
    Some(if cfg!(target_endian = "little") {
        [header | payload << 32, payload >> 32]
    } else {
        [header << 32 | payload >> 32, payload << 32]
    })
}

/// What stands behind the far end of an RDMA WRITE of one segment: a word of the arena, or a pointer.
/// For other bytes that travel inline, their offset in the arena.
#[inline(always)]
fn payload_of_write<T: Probe>(memory: &Memory<T>, one: &Segment) -> Result<[u64; 2], usize> {
    if one.len == WORD {
        if let Some(word) = word(memory, one.addr) {
            return Ok(word);
        }
    }
    payload(memory, one, INLINE_WRITE)
}

/// The pointer to a segment, or the offset in the arena of one that travels inline: of up to `most`
/// bytes. Memory that the host lent is not read here: the device gathers it, and little more is to
/// be done than for a longer segment.
#[inline(always)]
fn payload<T: Probe>(memory: &Memory<T>, one: &Segment, most: u32) -> Result<[u64; 2], usize> {
    if one.len <= most {
        if let Some(offset) = memory.block_at(one.addr) {
            return Err(offset);
        }
    }
    Ok(pointer(one))
}

/// The data segment of `one`, in the order of the device's bytes.
#[inline(always)]
fn pointer(one: &Segment) -> [u64; 2] {
    wqe::data(one.addr, one.len, one.lkey).map(u64::to_be)
}

/// Posting end of a send queue. All that a post of one block reads and writes here lies in the first
/// 64 bytes; the arena and its payload are reached through the platform, which all queues share.
#[repr(C)]
pub struct Sq<'p, P: Platform> {
    /// The ring, and the index of the next block.
    blocks: Cursor<'p, { wqe::WQEBB }, P::Probe>,
    platform: &'p P,
    record: First<'p, RECORD, P::Probe>,
    /// The first words of requests of one segment, but for the index; the other kinds get the
    /// number of the queue pair from the one of a send.
    send: u64,
    write: u64,
    /// BAR offset of the half of the doorbell register that is written next.
    register: u32,
    /// How the next WQE is rung: as usual, unless a WQE waits for its doorbell or a fence is due.
    direct: Direct,
    /// How a WQE of this queue is rung when nothing stands before it.
    usual: Direct,
    /// What differs between the offsets of both halves; 0 if there is one. It follows from `usual`,
    /// but the doorbell behind a bind would take four instructions to see how.
    half: u16,
    /// The next WQE carries a fence, because a window was bound before it.
    fence: bool,
    /// First word of the last WQE that waits for its doorbell, while one does.
    waiting: u64,
    pub(super) umr: Umr,
    /// log2 of the blocks of the ring, and those of the widest WQE.
    log_slots: u8,
    width: u8,
}

impl<P: Platform> fmt::Debug for Sq<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sq")
            .field("qpn", &CtrlHead::from_word(self.send).qpn())
            .field("head", &self.blocks.head)
            .finish_non_exhaustive()
    }
}

impl<'p, P: Platform> Sq<'p, P> {
    /// The send queue over `ring`, of a queue pair that has no number yet. None if it is not in the
    /// arena.
    pub(crate) fn new(
        platform: &'p P,
        ring: Ring,
        record: Record,
        doorbell: Doorbell,
        width: Width,
        umr: Umr,
    ) -> Option<Self> {
        let usual = match (doorbell.half, doorbell.blocks) {
            (0, Blocks::Combined) => INDIRECT,
            (0, _) => WORD_ONLY,
            (_, Blocks::Whole) => WHOLE,
            (half, _) => Direct::try_from(half).ok()?,
        };
        let half = u16::try_from(doorbell.half).ok()?;
        const { assert!(offset_of!(Self, waiting) <= 64) }
        let memory = platform.memory();
        Some(Self {
            blocks: memory.entries(ring.span(wqe::WQEBB.ilog2()))?.cursor(),
            platform,
            record: memory.entries(record.span())?.first(),
            send: ONE_SEND,
            write: 0,
            register: u32::try_from(doorbell.register).ok()?,
            direct: usual,
            usual,
            half,
            fence: false,
            waiting: 0,
            umr,
            log_slots: u8::try_from(ring.slots().ilog2()).ok()?,
            width: u8::try_from(width.0).ok()?,
        })
    }

    /// The arena.
    #[inline(always)]
    fn memory(&self) -> &'p Memory<P::Probe> {
        self.platform.memory()
    }

    /// The number the device gave the queue pair.
    pub(crate) fn set_qpn(&mut self, qpn: u32) {
        self.send = ONE_SEND | CtrlHead::new(0, 0, qpn, 0).word();
        self.write = self.start(wqe::RDMA_WRITE, 3);
    }

    /// The first word of a control segment, but for the index.
    #[inline(always)]
    fn start(&self, opcode: u8, ds: u8) -> u64 {
        self.send ^ ONE_SEND ^ CtrlHead::new(opcode, 0, 0, ds).word()
    }

    /// Starts over, as the device does when the queue pair is reset.
    pub(crate) fn restart(&mut self) {
        self.blocks.head = 0;
        self.fence = false;
        self.update_fast_path();
        ring::write::<SECOND, _>(&self.record.of(self.memory()), 0);
    }

    /// The control segment of the next WQE, but for a fence that is due.
    #[inline(always)]
    fn control(&self, start: u64, flags: PostFlags, immediate: u32) -> [u64; 2] {
        control(start, self.blocks.head, flags, immediate)
    }

    /// Takes the pending fence, as the second word of a control segment carries it.
    #[inline(always)]
    fn take_pending_fence(&mut self, flags: PostFlags) -> u64 {
        // The full fence does what the small one does, and the two codes do not add up.
        let due = core::mem::take(&mut self.fence) && !flags.contains(PostFlags::FENCE);
        if due { AFTER_BIND } else { 0 }
    }

    /// The flags of a registration or an invalidation, and the fence that it carries: what the
    /// device wants (Linux `mlx5_ib_post_send`: `umr_fence` of both), or the pending one.
    fn take_umr_fence(&mut self, flags: PostFlags) -> (PostFlags, u64) {
        let due = self.take_pending_fence(flags);
        // Strong ordering contains the other fences, and the codes do not add up.
        let (flags, fence) = match self.umr.fence {
            wqe::FENCE_STRONG => (flags.difference(PostFlags::FENCE), wqe::FENCE_STRONG),
            _ if flags.contains(PostFlags::FENCE) => (flags, 0),
            own => (flags, own),
        };
        (flags, if fence == 0 { due } else { CtrlTail::new(fence, 0).word().to_be() })
    }

    /// The WQE of that first word waits for its doorbell.
    #[inline(always)]
    fn defer(&mut self, first: u64) {
        self.waiting = first;
        self.direct = DEFERRED;
    }

    /// Decides whether the next WQE may take the fast path, when none waits for its doorbell.
    #[inline(always)]
    fn update_fast_path(&mut self) {
        self.direct = if self.fence { INDIRECT } else { self.usual };
    }

    /// Stores one block of the WQE that starts at the head.
    #[inline(always)]
    fn store(&self, index: u32, block: &Block) {
        self.blocks.of(self.memory()).store_words::<8, 0>(index, block);
    }

    /// The same of the first `WORDS` words alone.
    #[inline(always)]
    fn store_front<const WORDS: usize>(&self, index: u32, block: &Block) {
        if let Some(front) = block.first_chunk::<WORDS>() {
            self.blocks.of(self.memory()).store_words::<WORDS, 0>(index, front);
        }
    }

    /// Ends a WQE of one block, of which it takes `WORDS` words: stores it and rings, through
    /// BlueFlame where there is one. What the ring has behind the WQE the device does not read.
    // Always inline: the block stays in registers on its way to the ring and to BlueFlame.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "tokens are the index modulo 2^16")]
    fn post_block<const WORDS: usize>(&mut self, block: &Block, flags: PostFlags) -> u16 {
        // Read once: the stores between are to memory that the compiler takes for any.
        let (head, direct) = (self.blocks.head, self.direct);
        let token = head as u16;
        if flags.contains(PostFlags::DEFER) {
            let mut block = *block;
            if self.fence {
                block[1] |= self.take_pending_fence(flags);
            }
            self.store_front::<WORDS>(head, &block);
            self.blocks.head = head.wrapping_add(1);
            self.defer(block[0]);
        } else if direct > WORD_ONLY {
            self.store_front::<WORDS>(head, block);
            self.blocks.head = head.wrapping_add(1);
            self.write_block(block, direct);
        } else if direct == WORD_ONLY {
            self.store_front::<WORDS>(head, block);
            self.blocks.head = head.wrapping_add(1);
            self.write_word(block[0]);
        } else {
            self.post_indirect(*block, flags);
        }
        token
    }

    /// Ends a WQE of one block behind others that wait, behind a bind, where blocks are stored whole,
    /// or where the register is shared and write-combining.
    #[inline(never)]
    fn post_indirect(&mut self, mut block: Block, flags: PostFlags) {
        block[1] |= self.take_pending_fence(flags);
        self.store(self.blocks.head, &block);
        self.blocks.head = self.blocks.head.wrapping_add(1);
        match self.usual {
            INDIRECT | WORD_ONLY => self.ring_doorbell(block[0]),
            _ if self.direct == DEFERRED => self.ring_doorbell(block[0]),
            WHOLE => self.write_whole(&block),
            half => {
                self.update_fast_path();
                self.write_block(&block, half);
            }
        }
    }

    /// Ends a WQE of `blocks` blocks already stored, whose first word is `first`. It goes through
    /// BlueFlame if half a register holds it.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "tokens are the index modulo 2^16")]
    fn finish(&mut self, blocks: u8, first: u64, flags: PostFlags) -> u16 {
        let begin = self.blocks.head;
        self.blocks.head = begin.wrapping_add(blocks.into());
        if flags.contains(PostFlags::DEFER) {
            self.defer(first);
        } else if self.direct == DEFERRED || self.half < u16::from(blocks) * wqe::WQEBB as u16 {
            self.ring_doorbell(first);
        } else {
            self.write_blocks(begin, blocks);
        }
        begin as u16
    }

    /// Rings by a whole WQE of several blocks.
    #[inline(never)]
    fn write_blocks(&mut self, begin: u32, blocks: u8) {
        self.update_fast_path();
        self.publish();
        // ORDER: as in `write_block`.
        self.platform.fence(Fence::BeforeDoorbell);
        // A loop of its own for each: of one that stores either way, the block would be put into
        // memory again.
        if self.usual == WHOLE {
            self.copy_blocks(begin, blocks, Blocks::Whole);
        } else {
            self.copy_blocks(begin, blocks, Blocks::Combined);
        }
        self.flush(self.half.into());
    }

    /// Copies blocks from the ring to the register.
    #[inline(always)]
    fn copy_blocks(&self, begin: u32, blocks: u8, how: Blocks) {
        let (mut index, mut at) = (begin, self.register as usize);
        for _ in 0..blocks {
            self.platform.write_block(
                at,
                &self.blocks.of(self.memory()).load_words::<8, 0>(index),
                how,
            );
            (index, at) = (index.wrapping_add(1), at.wrapping_add(wqe::WQEBB));
        }
    }

    /// Tells the device through the record how far the queue goes.
    #[inline(always)]
    fn publish(&self) {
        // ORDER: the WQEs' stores precede the counter that lets the device fetch them.
        self.platform.fence(Fence::BeforeRecord);
        ring::write::<SECOND, _>(&self.record.of(self.memory()), self.blocks.head & 0xffff);
    }

    /// Rings by a whole WQE, through BlueFlame.
    #[inline(always)]
    fn write_block(&mut self, block: &Block, step: Direct) {
        self.publish();
        // ORDER: the counter precedes the register: a doorbell that overtakes it is lost.
        self.platform.fence(Fence::BeforeDoorbell);
        self.platform.write_block(self.register as usize, block, Blocks::Combined);
        self.flush(0_u32.wrapping_add_signed(step));
    }

    /// The same in one store.
    #[inline(always)]
    fn write_whole(&mut self, block: &Block) {
        self.publish();
        // ORDER: as in `write_block`: this store is as weakly ordered as a write-combining one.
        self.platform.fence(Fence::BeforeDoorbell);
        self.platform.write_block(self.register as usize, block, Blocks::Whole);
        self.flush(self.half.into());
    }

    /// Rings by the first 8 bytes of a WQE, through an uncached register.
    #[inline(always)]
    fn write_word(&mut self, first: u64) {
        self.publish();
        // ORDER: as in `write_block`.
        self.platform.fence(Fence::BeforeUncached);
        self.platform.write64(self.register as usize, first);
    }

    /// Rings the doorbell with the first 8 bytes of a WQE.
    #[inline(never)]
    fn ring_doorbell(&mut self, first: u64) {
        self.update_fast_path();
        if self.usual == WORD_ONLY {
            self.write_word(first);
        } else {
            self.publish();
            // ORDER: as in `write_block`.
            self.platform.fence(Fence::BeforeDoorbell);
            self.platform.write64(self.register as usize, first);
            self.flush(self.half.into());
        }
    }

    /// After a store to a write-combining register: out with it, and on to the other half, `step`
    /// bytes away.
    #[inline(always)]
    fn flush(&mut self, step: u32) {
        // ORDER: this doorbell leaves the CPU before the next one is written to the other half of
        // the register.
        self.platform.fence(Fence::AfterDoorbell);
        self.register ^= step;
    }

    /// The inline segment of up to [`INLINE_SEND`] bytes as six words, any alignment.
    #[inline(never)]
    fn inline_words(&self, offset: usize, len: u32) -> [u64; 6] {
        let mut bytes = [0_u8; 48];
        let (header, payload) = bytes.split_at_mut(4);
        header.copy_from_slice(&(wqe::INLINE | len).to_be_bytes());
        if let Some(to) = payload.get_mut(..len as usize) {
            self.platform.memory().read_bytes(offset, to);
        }
        let mut words = [0; 6];
        for (word, chunk) in
            words.iter_mut().zip(bytes.chunks_exact(8).filter_map(<[_]>::first_chunk::<8>))
        {
            *word = u64::from_be_bytes(*chunk);
        }
        words
    }

    /// A SEND whose payload travels inside, from an offset in the arena.
    #[inline(never)]
    fn send_short(&mut self, offset: usize, len: u32, flags: PostFlags) -> u16 {
        // Four bytes of header: a unit holds 12 bytes, two hold 28.
        let ds = 2 + u8::from(len > 12) + u8::from(len > 28);
        let [head, tail] = self.control(self.start(wqe::SEND, ds), flags, 0);
        let [a, b, c, d, e, f] = self.inline_words(offset, len).map(u64::to_be);
        self.post_block::<8>(&[head, tail, a, b, c, d, e, f], flags)
    }

    /// An RDMA WRITE whose payload travels inside, from an offset in the arena; any but one aligned
    /// word.
    #[inline(never)]
    fn write_short(
        &mut self,
        offset: usize,
        len: u32,
        remote: &RmrTriplet,
        flags: PostFlags,
    ) -> u16 {
        let block = self.short_block(self.blocks.head, offset, len, remote, flags);
        self.post_block::<8>(&block, flags)
    }

    /// The block of such a WRITE at `head`, but for a fence that is due.
    #[inline(never)]
    fn short_block(
        &self,
        head: u32,
        offset: usize,
        len: u32,
        remote: &RmrTriplet,
        flags: PostFlags,
    ) -> Block {
        let ds = 3 + u8::from(len > 12);
        let [a, b, c, d, ..] = self.inline_words(offset, len);
        let [address, key] = wqe::remote(remote.addr, remote.context);
        let [head, tail] = control(self.start(wqe::RDMA_WRITE, ds), head, flags, 0);
        let [address, key, a, b, c, d] = [address, key, a, b, c, d].map(u64::to_be);
        [head, tail, address, key, a, b, c, d]
    }

    /// Posts a datagram of one segment to the destination of `av`: two blocks.
    pub(crate) fn datagram(&mut self, segment: Segment, av: &Av, flags: PostFlags) -> u16 {
        let [head, tail] = self.control(self.start(wqe::SEND, 5), flags, 0);
        let [a, b, c, d, e, f] = av.words().map(u64::to_be);
        self.store(self.blocks.head, &[head, tail, a, b, c, d, e, f]);
        let [first, second] = wqe::data(segment.addr, segment.len, segment.lkey);
        let block = [first, second, 0, 0, 0, 0, 0, 0].map(u64::to_be);
        self.store(self.blocks.head.wrapping_add(1), &block);
        self.finish(2, head, flags)
    }

    /// A bind to nothing: two blocks. It asks nothing of the key: a peer may have closed it just
    /// before.
    #[inline(never)]
    fn unbind(&mut self, bind: &Bind, flags: PostFlags) -> u16 {
        let (flags, fence) = self.take_umr_fence(flags);
        let [head, mut tail] = self.control(self.start(wqe::UMR, 8), flags, bind.old_rkey);
        tail |= fence;
        let mask = match bind.scope {
            Scope::Domain => wqe::mask::UNBIND,
            Scope::QueuePair { .. } => wqe::mask::UNBIND_OWN,
        };
        let [umr, mask] = [UmrHead::bind(0).word(), mask].map(u64::to_be);
        let mut key = key(bind);
        key.set_free(true);
        let second = [key.word().to_be(), 0, 0, 0, 0, 0, 0, 0];
        self.store(self.blocks.head, &[head, tail, umr, mask, 0, 0, 0, 0]);
        self.store(self.blocks.head.wrapping_add(1), &second);
        // As after a bind.
        self.fence = true;
        self.finish(2, head, flags)
    }

    /// A request of any number of segments, none of them inline.
    #[inline(never)]
    fn post_list(
        &mut self,
        opcode: u8,
        fixed: &[[u64; 2]],
        segments: &[Segment],
        immediate: u32,
        flags: PostFlags,
    ) -> u16 {
        // Room of the widest WQE behind the control segment.
        let room = usize::from(MAX_SEGMENTS + 1).saturating_sub(fixed.len());
        let segments = segments.get(..room).unwrap_or(segments);
        let ds = 1 + fixed.len() + segments.len();
        // Twelve at most.
        let ds = u8::try_from(ds).unwrap_or(u8::MAX);
        let mut control = self.control(self.start(opcode, ds), flags, immediate);
        control[1] |= self.take_pending_fence(flags);
        let rest = fixed
            .iter()
            .copied()
            .chain(segments.iter().map(|one| wqe::data(one.addr, one.len, one.lkey)));
        let units = core::iter::once(control).chain(rest.map(|unit| unit.map(u64::to_be)));
        let mut block: Block = [0; 8];
        let mut index = self.blocks.head;
        let mut filled = 0;
        for [first, second] in units {
            if filled == block.len() {
                self.store(index, &block);
                block = [0; 8];
                index = index.wrapping_add(1);
                filled = 0;
            }
            if let [a, b, ..] = block.get_mut(filled..).unwrap_or_default() {
                (*a, *b) = (first, second);
            }
            filled += 2;
        }
        if index == self.blocks.head {
            return self.post_block::<8>(&block, flags);
        }
        self.store(index, &block);
        // Three at most.
        let blocks = index.wrapping_sub(self.blocks.head).wrapping_add(1);
        self.finish(u8::try_from(blocks).unwrap_or(u8::MAX), control[0], flags)
    }

    /// As [`Sq::post_list`], with a far end.
    #[inline(never)]
    fn post_far(
        &mut self,
        opcode: u8,
        remote: &RmrTriplet,
        segments: &[Segment],
        immediate: u32,
        flags: PostFlags,
    ) -> u16 {
        let far = [wqe::remote(remote.addr, remote.context)];
        self.post_list(opcode, &far, segments, immediate, flags)
    }

    /// A request of one block, with a far end and what stands behind that.
    #[inline(always)]
    fn post_one(&mut self, start: u64, far: &RmrTriplet, data: [u64; 2], flags: PostFlags) -> u16 {
        let [a, b] = self.control(start, flags, 0);
        let [c, d] = wqe::remote(far.addr, far.context).map(u64::to_be);
        let [e, f] = data;
        self.post_block::<6>(&[a, b, c, d, e, f, 0, 0], flags)
    }

    #[inline(always)]
    fn send(&mut self, segments: &[Segment], flags: PostFlags) -> u16 {
        match segments {
            _ if flags.contains(PostFlags::GATHER) => {
                self.post_list(wqe::SEND, &[], segments, 0, flags)
            }
            [one] => match payload(self.memory(), one, INLINE_SEND) {
                Ok([first, second]) => {
                    let [head, tail] = self.control(self.send, flags, 0);
                    self.post_block::<4>(&[head, tail, first, second, 0, 0, 0, 0], flags)
                }
                Err(offset) => self.send_short(offset, one.len, flags),
            },
            _ => self.post_list(wqe::SEND, &[], segments, 0, flags),
        }
    }

    #[inline(always)]
    fn write(&mut self, segments: &[Segment], remote: &RmrTriplet, flags: PostFlags) -> u16 {
        match segments {
            [one] if !flags.contains(PostFlags::GATHER) => {
                match payload_of_write(self.memory(), one) {
                    Ok(data) => self.post_one(self.write, remote, data, flags),
                    Err(offset) => self.write_short(offset, one.len, remote, flags),
                }
            }
            _ => self.post_far(wqe::RDMA_WRITE, remote, segments, 0, flags),
        }
    }

    /// RDMA WRITEs of one block each, whose payload, or the pointer to it, `data` makes.
    #[inline(always)]
    fn post_blocks(
        &mut self,
        mut writes: impl Iterator<Item = (Segment, RmrTriplet)>,
        flags: PostFlags,
        data: impl Fn(&Memory<P::Probe>, &Segment) -> Result<[u64; 2], usize>,
    ) {
        if self.fence {
            if let Some((one, remote)) = writes.next() {
                self.write(&[one], &remote, flags.union(PostFlags::DEFER));
            }
        }
        // All in registers, which the stores in between would not leave it in otherwise.
        let memory = self.memory();
        let (blocks, start, begin) = (self.blocks.of(memory), self.write, self.blocks.head);
        let (mut head, mut first, b) = (begin, 0, control_tail(flags, 0));
        for (one, remote) in writes {
            match data(memory, &one) {
                Ok([e, f]) => {
                    let a = control_head(start, head);
                    let [c, d] = wqe::remote(remote.addr, remote.context).map(u64::to_be);
                    blocks.store_words::<6, 0>(head, &[a, b, c, d, e, f]);
                    first = a;
                }
                Err(offset) => {
                    let block = self.short_block(head, offset, one.len, &remote, flags);
                    blocks.store_words::<8, 0>(head, &block);
                    first = block[0];
                }
            }
            head = head.wrapping_add(1);
        }
        if head != begin {
            self.blocks.head = head;
            self.defer(first);
        }
    }

    #[inline]
    fn read(&mut self, segments: &[Segment], remote: &RmrTriplet, flags: PostFlags) -> u16 {
        match segments {
            [one] => self.post_one(self.start(wqe::RDMA_READ, 3), remote, pointer(one), flags),
            _ => self.post_far(wqe::RDMA_READ, remote, segments, 0, flags),
        }
    }

    fn atomic(
        &mut self,
        segments: &[Segment],
        remote: &RmrTriplet,
        atomic: Atomic,
        flags: PostFlags,
    ) -> u16 {
        let (opcode, operands) = match atomic {
            Atomic::FetchAdd(add) => (wqe::ATOMIC_FA, wqe::atomic(add, 0)),
            Atomic::CmpSwap { compare, swap } => (wqe::ATOMIC_CS, wqe::atomic(swap, compare)),
        };
        let fixed = [wqe::remote(remote.addr, remote.context), operands];
        self.post_list(opcode, &fixed, segments, 0, flags)
    }

    fn send_ud(
        &mut self,
        segments: &[Segment],
        to: &Destination,
        immediate: Option<u32>,
        flags: PostFlags,
    ) -> u16 {
        let opcode = if immediate.is_some() { wqe::SEND_IMM } else { wqe::SEND };
        let own = CtrlHead::from_word(self.send).qpn();
        let [a, b, c, d, e, f] = address(&to.path, own, to.qpn, to.qkey).words();
        let fixed = [[a, b], [c, d], [e, f]];
        self.post_list(opcode, &fixed, segments, immediate.unwrap_or(0), flags)
    }

    #[inline(always)]
    fn bind(&mut self, bind: &Bind, flags: PostFlags) -> u16 {
        if bind.len == 0 {
            return self.unbind(bind, flags);
        }
        let [head, mut tail] = self.control(self.start(wqe::UMR, 12), flags, bind.old_rkey);
        tail |= self.take_pending_fence(flags);
        let mut key = key(bind);
        let [umr, mask] = match bind.scope {
            Scope::Domain => BOUND,
            Scope::QueuePair { bound } => {
                key.set_qpn(CtrlHead::from_word(self.send).qpn());
                let first = UmrHead::bind_free(wqe::BIND_OCTOWORDS);
                let head = if bound {
                    // A bound window of type 2 is bound anew as one of type 1 is.
                    UmrHead::bind(wqe::BIND_OCTOWORDS)
                } else {
                    first
                };
                [head.word(), wqe::mask::BIND_OWN].map(u64::to_be)
            }
        };
        self.store(self.blocks.head, &[head, tail, umr, mask, 0, 0, 0, 0]);

        key.set_rr(bind.access.contains(Access::REMOTE_READ));
        key.set_rw(bind.access.contains(Access::REMOTE_WRITE));
        let [a, b, c] = [key.word(), bind.start, bind.len].map(u64::to_be);
        self.store(self.blocks.head.wrapping_add(1), &[a, 0, b, c, 0, 0, 0, 0]);

        // A KLM has 32 bits of length; no region is longer (`limits`).
        let len = u32::try_from(bind.len).unwrap_or(u32::MAX);
        let [first, second] = wqe::data(bind.addr, len, bind.lkey).map(u64::to_be);
        self.store(self.blocks.head.wrapping_add(2), &[first, second, 0, 0, 0, 0, 0, 0]);
        // Later requests may use the new key, so they start only when the change has taken effect.
        self.fence = true;
        self.finish(3, head, flags)
    }

    fn register(&mut self, made: &Registration, flags: PostFlags) -> u16 {
        let (flags, fence) = self.take_umr_fence(flags);
        let [head, mut tail] = self.control(self.start(wqe::UMR, 9), flags, made.old_key);
        tail |= fence;
        let octowords = wqe::page_octowords(made.pages.count);
        let umr = UmrHead::register(octowords).word();
        let [umr, mask] = [umr, self.umr.mask()].map(u64::to_be);
        self.store(self.blocks.head, &[head, tail, umr, mask, 0, 0, 0, 0]);

        let [_, _, _, low] = made.new_key.to_be_bytes();
        let mut key = UmrKey::default();
        key.set_qpn(wqe::ANY_QPN);
        key.set_mkey_7_0(low);
        key.set_lr(made.access.contains(Access::LOCAL_READ));
        key.set_lw(made.access.contains(Access::LOCAL_WRITE));
        key.set_rr(made.access.contains(Access::REMOTE_READ));
        key.set_rw(made.access.contains(Access::REMOTE_WRITE));
        key.set_a(made.access.contains(Access::REMOTE_ATOMIC));
        let page = u64::from(made.pages.log_page) << 32;
        let key = [key.word(), 0, made.start, made.len, 0, 0, 0, page].map(u64::to_be);
        self.store(self.blocks.head.wrapping_add(1), &key);

        let bytes = 16 * u32::from(octowords);
        let [a, b] = wqe::data(made.pages.addr, bytes, made.pages.lkey).map(u64::to_be);
        self.store(self.blocks.head.wrapping_add(2), &[a, b, 0, 0, 0, 0, 0, 0]);
        // As after a bind.
        self.fence = true;
        self.finish(3, head, flags)
    }
}

impl<P: Platform> SendQueue for Sq<'_, P> {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "tokens are the index modulo 2^16")]
    fn next_token(&self) -> u16 {
        self.blocks.head as u16
    }

    fn has_room(&self, since: u16, left: u16) -> bool {
        let used = u32::from(self.next_token().wrapping_sub(since));
        used + 1 + u32::from(left) * u32::from(self.width) <= 1 << self.log_slots
    }

    #[inline(always)]
    fn post(&mut self, work: WorkRequest<'_>, segments: &[Segment], flags: PostFlags) -> u16 {
        match work {
            WorkRequest::Send => self.send(segments, flags),
            WorkRequest::SendInvalidate(rkey) => {
                self.post_list(wqe::SEND_INVAL, &[], segments, rkey, flags)
            }
            WorkRequest::SendUd(to, immediate) => self.send_ud(segments, to, immediate, flags),
            WorkRequest::Write(remote) => self.write(segments, remote, flags),
            WorkRequest::WriteImmed(remote, immediate) => {
                self.post_far(wqe::RDMA_WRITE_IMM, remote, segments, immediate, flags)
            }
            WorkRequest::Read(remote) => self.read(segments, remote, flags),
            WorkRequest::Atomic(atomic, remote) => self.atomic(segments, remote, atomic, flags),
            WorkRequest::Bind(bind) => self.bind(bind, flags),
            WorkRequest::Register(registration) => self.register(registration, flags),
        }
    }

    #[inline(always)]
    fn post_writes(
        &mut self,
        writes: impl Iterator<Item = (Segment, RmrTriplet)>,
        len: Option<u32>,
        flags: PostFlags,
    ) {
        // Of a constant the loop asks nothing.
        if len == Some(WORD) {
            self.post_blocks(writes, flags, |memory, one| match word(memory, one.addr) {
                Some(word) => Ok(word),
                None => payload(memory, one, INLINE_WRITE),
            });
        } else {
            self.post_blocks(writes, flags, payload_of_write);
        }
    }

    #[inline]
    fn ring(&mut self) {
        if self.direct == DEFERRED {
            self.ring_doorbell(self.waiting);
        }
    }
}
