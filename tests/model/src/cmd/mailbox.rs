//! A command's bytes: the entry, and the chains of mailbox blocks behind it.
//!
//! Checks are those real cards make: block alignment of 1 KiB, block numbers, tokens, lengths; a
//! signature only while `cmdif_checksum` is on. Longer inputs, spare blocks and a zero token are
//! fine.

use crate::bus::{Bus, Wrote};
use crate::hca::Hca;
use crate::host::DmaError;
use crate::ifc::caps::cmd_hca_cap;
use crate::ifc::cmd::{cmd_entry, cmd_mailbox};

/// Delivery status codes.
mod delivery {
    pub(super) const SIGNATURE: u8 = 1;
    pub(super) const TOKEN: u8 = 2;
    pub(super) const BLOCK_NUMBER: u8 = 3;
    pub(super) const OUT_POINTER: u8 = 4;
    pub(super) const IN_POINTER: u8 = 5;
    pub(super) const IN_LENGTH: u8 = 7;
    pub(super) const OUT_LENGTH: u8 = 8;
    pub(super) const BAD_TYPE: u8 = 0x10;
}

/// A message that arrived whole.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) entry: u64,
    pub(super) input: Vec<u8>,
    pub(super) output_length: usize,
    pub(super) out_blocks: Vec<u64>,
    pub(super) blocks: Vec<u64>,
}

/// Output of a command.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    pub(super) entry: u64,
    pub(super) status: u8,
    pub(super) output: Vec<u8>,
    pub(super) out_blocks: Vec<u64>,
    /// Every block of the command, for the check that nobody else uses it.
    pub(super) blocks: Vec<u64>,
}

/// Inline part of a message.
const INLINE: usize = 16;
/// Data bytes of a block.
const BLOCK: usize = 512;
/// The longest message accepted; beyond, the length field is nonsense.
const LONGEST: usize = 16 << 20;

/// Reads a command. `Ok(None)`: the slot is not ours; `Err`: its page cannot be reached.
pub(super) fn fetch(
    hca: &mut Hca,
    at: u64,
) -> Result<Option<Result<Message, Delivered>>, DmaError> {
    let mut entry = [0; cmd_entry::BYTES];
    hca.bus.read(at, &mut entry)?;
    if !cmd_entry::ownership.is_set(&entry) {
        hca.bus.complain(format!("command entry {at:#x} rung while software owns it"));
        return Ok(None);
    }
    let refuse = |status| Ok(Some(Err(Delivered { entry: at, status, ..Delivered::default() })));
    let signed = hca.caps.general(cmd_hca_cap::cmdif_checksum) != 0;
    if signed && xor(&entry) != 0xff {
        return refuse(delivery::SIGNATURE);
    }
    if cmd_entry::transport.get(&entry) != 7 {
        return refuse(delivery::BAD_TYPE);
    }
    let length = cmd_entry::input_length.get(&entry) as usize;
    let output_length = cmd_entry::output_length.get(&entry) as usize;
    if !(8..=LONGEST).contains(&length) {
        return refuse(delivery::IN_LENGTH);
    }
    if !(8..=LONGEST).contains(&output_length) {
        return refuse(delivery::OUT_LENGTH);
    }
    let token = cmd_entry::token.get(&entry);
    let mut input = cmd_entry::input.bytes(&entry).to_vec();
    let chain = Chain { token, signed, pointer: delivery::IN_POINTER };
    let first = cmd_entry::input_mailbox.get64(&entry);
    let mut blocks = match chain.walk(hca, first, length, |data| input.extend_from_slice(data))? {
        Ok(blocks) => blocks,
        Err(status) => return refuse(status),
    };
    input.truncate(length);
    let chain = Chain { pointer: delivery::OUT_POINTER, signed: false, ..chain };
    let first = cmd_entry::output_mailbox.get64(&entry);
    let out_blocks = match chain.walk(hca, first, output_length, |_| ())? {
        Ok(blocks) => blocks,
        Err(status) => return refuse(status),
    };
    blocks.extend_from_slice(&out_blocks);
    if let Some(page) = core::iter::once(&at).chain(&blocks).find(|&&b| hca.pages.owns(b)) {
        hca.bus.complain(format!("command memory {page:#x} lies in a page given to the firmware"));
    }
    Ok(Some(Ok(Message { entry: at, input, output_length, out_blocks, blocks })))
}

struct Chain {
    token: u32,
    signed: bool,
    pointer: u8,
}

impl Chain {
    fn walk(
        &self,
        hca: &mut Hca,
        first: u64,
        length: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Result<Vec<u64>, u8>, DmaError> {
        let count = length.saturating_sub(INLINE).div_ceil(BLOCK);
        let mut blocks = Vec::new();
        let mut at = first;
        for number in 0..count {
            if at == 0 || at % 1024 != 0 {
                return Ok(Err(self.pointer));
            }
            let mut block = [0; cmd_mailbox::BYTES];
            hca.bus.read(at, &mut block)?;
            if cmd_mailbox::token.get(&block) != self.token {
                return Ok(Err(delivery::TOKEN));
            }
            if cmd_mailbox::block_number.get(&block) as usize != number {
                return Ok(Err(delivery::BLOCK_NUMBER));
            }
            if self.signed && xor(&block) != 0xff {
                return Ok(Err(delivery::SIGNATURE));
            }
            each(cmd_mailbox::data.bytes(&block));
            blocks.push(at);
            at = cmd_mailbox::next.get64(&block);
        }
        Ok(Ok(blocks))
    }
}

/// XOR of all bytes: 0xff over anything correctly signed.
fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |acc, b| acc ^ b)
}

/// Writes an answer: mailboxes, inline bytes, and last the ownership byte.
pub(super) fn answer(bus: &mut Bus, delivered: &Delivered) -> Result<(), DmaError> {
    let inline = delivered.output.len().min(INLINE);
    let (head, tail) = delivered.output.split_at(inline);
    for (at, data) in delivered.out_blocks.iter().zip(tail.chunks(BLOCK)) {
        bus.write(Wrote::Mailbox, *at, data)?;
    }
    if !head.is_empty() {
        bus.write(Wrote::CommandEntry, delivered.entry + cmd_entry::output.byte() as u64, head)?;
    }
    let last = delivered.entry + cmd_entry::delivery_status.byte() as u64;
    bus.write(Wrote::CommandEntry, last, &[delivered.status << 1])
}
