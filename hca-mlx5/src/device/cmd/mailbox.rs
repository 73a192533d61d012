//! Mailboxes: the blocks that carry what does not fit a queue entry.
//!
//! A pool of at most 64 blocks, taken and given back by a bitmap; a chain is a set of bits, linked
//! in ascending order. Blocks of a command that never came back are not given back: the device may
//! still write them. A message too long for the pool has a chain of blocks side by side, in memory
//! of its own that is taken for a while ([`Pool::lengthen`]).

use dat_core::fault;
use dat_core::provider::Fault;

use crate::platform::{Platform, Reach, Span};
use crate::prm;
use crate::prm::At;
use crate::prm::cmd::{BLOCK_DATA, BLOCK_STRIDE, BlockTrailer, HEAD};

/// Blocks of the pool: room for one message of [`SHORT`] blocks in each direction.
pub(crate) const BLOCKS: u32 = 64;
/// Bytes of a block that the device reads or writes: data and trailer.
pub(crate) const BLOCK_SIZE: usize = BLOCK_DATA + BlockTrailer::SIZE;

/// Blocks that a message in the pool has at most.
const SHORT: usize = 32;
/// Blocks that a longer message has at most. Linux puts the page list of a region of any length into
/// one message; three of these carry the pages of 4 KiB of a gibibyte, and fit into a cache.
const LONG: usize = 1376;

/// Bytes that a message of so many blocks carries, its head included.
const fn carried(blocks: usize) -> usize {
    HEAD + blocks * BLOCK_DATA
}

/// Longest message that the pool has blocks for.
pub const MAX_MESSAGE: usize = carried(SHORT);
/// Longest message at all.
pub(crate) const LONGEST_MESSAGE: usize = carried(LONG);

/// What follows the head of a message, made while it is written.
pub(crate) trait Tail {
    /// How many bytes it has: a multiple of 16.
    fn len(&self) -> usize;
    /// Writes the bytes from `at` on, a multiple of 16, into `to`, as many as there are. `to` is
    /// zeros before.
    fn write(&self, at: usize, to: &mut [u8]);
}

/// Nothing.
impl Tail for () {
    fn len(&self) -> usize {
        0
    }
    fn write(&self, _: usize, _: &mut [u8]) {}
}

/// Blocks of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    /// Of the pool, a bit each.
    Short(u64),
    /// So many of the memory taken for long messages, the first first.
    Long(Span, u32),
}

impl Chain {
    /// How many it has.
    fn len(self) -> u32 {
        match self {
            Self::Short(bits) => bits.count_ones(),
            Self::Long(_, blocks) => blocks,
        }
    }
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    span: Span,
    free: u64,
    /// Memory for one long message, while it is taken and no message has it.
    long: Option<Span>,
}

impl Pool {
    /// Takes its memory out of the arena.
    pub(crate) fn new<P: Platform>(platform: &P) -> Result<Self, Fault> {
        let len = BLOCK_STRIDE * BLOCKS as usize;
        let span = platform.alloc(len, 4096, Reach::ReadWrite).ok_or_else(|| {
            fault!(Resources, "command mailboxes", "no room in the arena", "enlarge the arena")
        })?;
        if !is_addressed(platform, span) {
            platform.free(span);
            return Err(fault!(
                BadParameter,
                "command mailboxes",
                "the arena is not contiguous for the device within a page",
                "map the arena in whole, aligned pages"
            ));
        }
        Ok(Self { span, free: u64::MAX, long: None })
    }

    /// Gives the memory back, unless a lost command still owns some of it.
    pub(crate) fn release<P: Platform>(&mut self, platform: &P) {
        self.shorten(platform);
        if self.free == u64::MAX {
            self.free = 0;
            platform.free(self.span);
        }
    }

    /// Takes memory for input of `len` bytes, or, if there is not enough, of as many as half of that,
    /// or a quarter, and so on. Returns the longest message that there are blocks for now.
    pub(crate) fn lengthen<P: Platform>(&mut self, platform: &P, len: usize) -> usize {
        self.shorten(platform);
        let mut blocks = len.saturating_sub(HEAD).div_ceil(BLOCK_DATA).min(LONG);
        while blocks > SHORT {
            // The device only reads it; a small part of the arena may be set apart for that.
            let take = |reach| platform.alloc(BLOCK_STRIDE * blocks, 4096, reach);
            if let Some(span) = take(Reach::Read).or_else(|| take(Reach::ReadWrite)) {
                if is_addressed(platform, span) {
                    self.long = Some(span);
                    break;
                }
                platform.free(span);
            }
            blocks /= 2;
        }
        self.longest()
    }

    /// Longest message that there are blocks for.
    pub(crate) fn longest(&self) -> usize {
        self.long.map_or(MAX_MESSAGE, |span| carried(span.len / BLOCK_STRIDE))
    }

    /// Gives the memory for long messages back, but from a command that never came back.
    pub(crate) fn shorten<P: Platform>(&mut self, platform: &P) {
        if let Some(span) = self.long.take() {
            platform.free(span);
        }
    }

    /// Takes blocks for `bytes` bytes beyond the head.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Chain> {
        let blocks = bytes.div_ceil(BLOCK_DATA);
        if blocks > SHORT {
            let span = self.long.take_if(|span| BLOCK_STRIDE * blocks <= span.len)?;
            return Some(Chain::Long(span, u32::try_from(blocks).ok()?));
        }
        let mut chain = 0u64;
        for _ in 0..blocks {
            let left = self.free & !chain;
            chain |= left & left.wrapping_neg();
            if left == 0 {
                return None;
            }
        }
        self.free &= !chain;
        Some(Chain::Short(chain))
    }

    /// Whether there are blocks for `bytes` bytes, and for the longest message of the pool besides.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let free = usize::try_from(self.free.count_ones()).unwrap_or(0);
        bytes.div_ceil(BLOCK_DATA).saturating_add(SHORT) <= free
    }

    /// Gives a chain back.
    pub(crate) fn give(&mut self, chain: Chain) {
        match chain {
            Chain::Short(bits) => self.free |= bits,
            Chain::Long(span, _) => self.long = Some(span),
        }
    }

    /// Offset in the arena of a block of a chain, by its number there.
    fn offset(&self, chain: Chain, number: u32) -> usize {
        match chain {
            Chain::Short(mut bits) => {
                for _ in 0..number {
                    bits &= bits.wrapping_sub(1);
                }
                self.span.offset + BLOCK_STRIDE * bits.trailing_zeros() as usize
            }
            Chain::Long(span, _) => span.offset + BLOCK_STRIDE * number as usize,
        }
    }

    /// Device address of a block, 0 behind the last.
    fn address<P: Platform>(&self, platform: &P, chain: Chain, number: u32) -> u64 {
        let known = (number < chain.len()).then(|| platform.iova(self.offset(chain, number)));
        known.flatten().map_or(0, |(address, _)| address)
    }

    /// Device address of a chain, 0 for an empty one.
    pub(crate) fn chain_address<P: Platform>(&self, platform: &P, chain: Chain) -> u64 {
        self.address(platform, chain, 0)
    }

    /// Writes a chain: the message beyond its head (`data`, and behind it `tail`), or nothing for an
    /// output chain, then links, token, signatures.
    pub(crate) fn write<P: Platform>(
        &self,
        platform: &P,
        chain: Chain,
        token: u8,
        data: &[u8],
        tail: &dyn Tail,
    ) {
        let mut pieces = data.chunks(BLOCK_DATA);
        let mut written = 0;
        for number in 0..chain.len() {
            let mut bytes = [0u8; BLOCK_SIZE];
            let piece = pieces.next().unwrap_or(&[]);
            prm::put(&mut bytes, 0, piece);
            if written < tail.len() {
                if let Some(behind) = bytes.get_mut(piece.len()..BLOCK_DATA) {
                    tail.write(written, behind);
                    written += behind.len();
                }
            }
            let mut trailer = BlockTrailer(At::<_, BLOCK_DATA>(&mut bytes));
            trailer.set_next(self.address(platform, chain, number + 1));
            trailer.set_block_number(number);
            trailer.set_token(token);
            // The signature of the trailer covers it up to the token, that of the block all before
            // its own byte.
            let sum = signature(bytes.get(BLOCK_DATA..).unwrap_or_default());
            BlockTrailer(At::<_, BLOCK_DATA>(&mut bytes)).set_ctrl_signature(sum);
            let sum = signature(&bytes);
            BlockTrailer(At::<_, BLOCK_DATA>(&mut bytes)).set_signature(sum);
            platform.memory().write_bytes(self.offset(chain, number), &bytes);
        }
    }

    /// Reads the data of a chain.
    pub(crate) fn read<P: Platform>(&self, platform: &P, chain: Chain, data: &mut [u8]) {
        for (number, piece) in (0..chain.len()).zip(data.chunks_mut(BLOCK_DATA)) {
            platform.memory().read_bytes(self.offset(chain, number), piece);
        }
    }

    /// The block of that number, as it stands in memory.
    pub(crate) fn block<P: Platform>(
        &self,
        platform: &P,
        chain: Chain,
        number: usize,
    ) -> Option<[u8; BLOCK_SIZE]> {
        let number = u32::try_from(number).ok().filter(|number| *number < chain.len())?;
        let mut bytes = [0; BLOCK_SIZE];
        platform.memory().read_bytes(self.offset(chain, number), &mut bytes);
        Some(bytes)
    }
}

/// Whether the device can be given the address of each block in a span.
fn is_addressed<P: Platform>(platform: &P, span: Span) -> bool {
    let mut offsets = (span.offset..span.offset.saturating_add(span.len)).step_by(BLOCK_STRIDE);
    offsets.all(|offset| {
        platform
            .iova(offset)
            .is_some_and(|(address, len)| len >= BLOCK_SIZE && address % (BLOCK_STRIDE as u64) == 0)
    })
}

/// The XOR signature of bytes in which the signature itself is still 0.
pub(crate) fn signature(bytes: &[u8]) -> u8 {
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    // By words: long messages are made of it.
    let words = words.filter_map(<[_]>::first_chunk::<8>);
    let words = words.fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word));
    !words.to_ne_bytes().iter().chain(rest).fold(0, |sum, byte| sum ^ byte)
}
