//! Mailboxes: the blocks that carry what does not fit a queue entry.
//!
//! A pool of at most 64 blocks, taken and given back by a bitmap; a chain is a set of bits, linked
//! in ascending order. Blocks of a command that never came back are not given back: the device may
//! still write them.

use dat_core::fault;
use dat_core::provider::Fault;

use crate::platform::{Platform, Reach, Span};
use crate::prm;
use crate::prm::At;
use crate::prm::cmd::{BLOCK_DATA, BLOCK_STRIDE, BlockTrailer};

/// Blocks of the pool: room for one message of the greatest length in each direction.
pub(crate) const BLOCKS: u32 = 64;
/// Bytes of a block that the device reads or writes: data and trailer.
pub(crate) const BLOCK_SIZE: usize = BLOCK_DATA + BlockTrailer::SIZE;

/// Blocks of one message, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain(u64);

impl Chain {
    /// Their numbers, in the order they are linked.
    pub(crate) fn blocks(self) -> impl Iterator<Item = u32> {
        (0..BLOCKS).filter(move |block| self.0 >> block & 1 == 1)
    }

    /// The first.
    pub(crate) fn first(self) -> Option<u32> {
        (self.0 != 0).then(|| self.0.trailing_zeros())
    }

    fn after(self, block: u32) -> Option<u32> {
        Self(self.0 & !(u64::MAX >> (63 - block))).first()
    }
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    span: Span,
    free: u64,
}

impl Pool {
    /// Takes its memory out of the arena.
    pub(crate) fn new<P: Platform>(platform: &P) -> Result<Self, Fault> {
        let len = BLOCK_STRIDE * BLOCKS as usize;
        let span = platform.alloc(len, 4096, Reach::ReadWrite).ok_or_else(|| {
            fault!(Resources, "command mailboxes", "no room in the arena", "enlarge the arena")
        })?;
        let pool = Self { span, free: u64::MAX };
        for block in 0..BLOCKS {
            if pool.address(platform, block).is_none() {
                platform.free(span);
                return Err(fault!(
                    BadParameter,
                    "command mailboxes",
                    "the arena is not contiguous for the device within a page",
                    "map the arena in whole, aligned pages"
                ));
            }
        }
        Ok(pool)
    }

    /// Gives the memory back, unless a lost command still owns some of it.
    pub(crate) fn release<P: Platform>(&mut self, platform: &P) {
        if self.free == u64::MAX {
            self.free = 0;
            platform.free(self.span);
        }
    }

    /// Takes blocks for `bytes` bytes beyond the head.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Chain> {
        let mut chain = 0u64;
        for _ in 0..bytes.div_ceil(BLOCK_DATA) {
            let left = self.free & !chain;
            chain |= left & left.wrapping_neg();
            if left == 0 {
                return None;
            }
        }
        self.free &= !chain;
        Some(Chain(chain))
    }

    /// Gives a chain back.
    pub(crate) fn give(&mut self, chain: Chain) {
        self.free |= chain.0;
    }

    /// Offset of a block in the arena.
    pub(crate) fn offset(&self, block: u32) -> usize {
        self.span.offset + BLOCK_STRIDE * block as usize
    }

    /// Device address of a block.
    pub(crate) fn address<P: Platform>(&self, platform: &P, block: u32) -> Option<u64> {
        let (address, len) = platform.iova(self.offset(block))?;
        (len >= BLOCK_SIZE && address % BLOCK_STRIDE as u64 == 0).then_some(address)
    }

    /// Device address of a chain, 0 for an empty one.
    pub(crate) fn chain_address<P: Platform>(&self, platform: &P, chain: Chain) -> u64 {
        chain.first().and_then(|block| self.address(platform, block)).unwrap_or(0)
    }

    /// Writes a chain: `data` (the message beyond its head, or nothing for an output chain), links,
    /// token, signatures.
    pub(crate) fn write<P: Platform>(&self, platform: &P, chain: Chain, token: u8, data: &[u8]) {
        let mut pieces = data.chunks(BLOCK_DATA);
        for (number, block) in (0u32..).zip(chain.blocks()) {
            let mut bytes = [0u8; BLOCK_SIZE];
            prm::put(&mut bytes, 0, pieces.next().unwrap_or(&[]));
            let next = chain.after(block).and_then(|next| self.address(platform, next));
            let mut trailer = BlockTrailer(At::<_, BLOCK_DATA>(&mut bytes));
            trailer.set_next(next.unwrap_or(0));
            trailer.set_block_number(number);
            trailer.set_token(token);
            // The signature of the trailer covers it up to the token, that of the block all before
            // its own byte.
            let sum = signature(bytes.get(BLOCK_DATA..).unwrap_or_default());
            BlockTrailer(At::<_, BLOCK_DATA>(&mut bytes)).set_ctrl_signature(sum);
            let sum = signature(&bytes);
            BlockTrailer(At::<_, BLOCK_DATA>(&mut bytes)).set_signature(sum);
            platform.memory().write_bytes(self.offset(block), &bytes);
        }
    }

    /// Reads the data of a chain.
    pub(crate) fn read<P: Platform>(&self, platform: &P, chain: Chain, data: &mut [u8]) {
        for (block, piece) in chain.blocks().zip(data.chunks_mut(BLOCK_DATA)) {
            platform.memory().read_bytes(self.offset(block), piece);
        }
    }
}

/// The XOR signature of bytes in which the signature itself is still 0.
pub(crate) fn signature(bytes: &[u8]) -> u8 {
    !bytes.iter().fold(0, |sum, byte| sum ^ byte)
}
