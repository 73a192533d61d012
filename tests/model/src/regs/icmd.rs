//! Commands of tools and boot code, behind the gateway (ICMD): a control word, a mailbox, and how
//! long that is. mstflint `mtcr_icmd_cif.c` (`VCR_CTRL_ADDR` and its like), iPXE `mlx_icmd.c` and `mlx_reg_access.c`.
//!
//! Control: opcode in bits 31:16, status in 15:8, bit 0 busy, which begins a command. The only one
//! here is 0x9001, access to a register, as a tool does that before a driver has enabled the function.
//! In the mailbox stand an operation TLV (word 0: type 1 in 31:27, length 4 in 26:16, status in
//! 14:8; word 1: register in 31:16, bit 15 of an answer, method 1 or 2 in 14:8, class 1), then a
//! register TLV (word 4: type 3, length) and the register's data, each word with its first byte on
//! top. Who runs a command holds semaphore 0 of the gateway.

use crate::hca::Hca;
use crate::reg_access::exchange;

const CONTROL: u32 = 0;
const SIZE: u32 = 0x1000;
const MAILBOX: u32 = 0x10_0000;
/// Words of the mailbox: 832 bytes, as a log of mstflint's (`iCMD max mailbox size: 0x340`) has it.
const WORDS: usize = 208;
const BUSY: u32 = 1;
const ACCESS_REGISTER: u32 = 0x9001;
/// Words before the register's data.
const HEAD: usize = 5;

/// How a command ended (mstflint `icmd_translate_status`).
const INVALID_OPCODE: u32 = 1;
const INVALID_COMMAND: u32 = 2;
/// How access to a register ended.
const METHOD_NOT_SUPPORTED: u32 = 6;
const BAD_PARAMETER: u32 = 7;

/// The space.
#[derive(Debug)]
pub(super) struct Commands {
    control: u32,
    mailbox: [u32; WORDS],
}

impl Default for Commands {
    fn default() -> Self {
        Self { control: 0, mailbox: [0; WORDS] }
    }
}

impl Commands {
    /// A word of the space; 0 where there is none.
    pub(super) fn word(&self, address: u32) -> u32 {
        match address {
            CONTROL => self.control,
            SIZE => (WORDS * 4) as u32,
            _ => place(address).map_or(0, |nth| self.mailbox[nth]),
        }
    }
}

/// Which word of the mailbox an address is.
fn place(address: u32) -> Option<usize> {
    let nth = address.checked_sub(MAILBOX)? / 4;
    usize::try_from(nth).ok().filter(|nth| *nth < WORDS)
}

impl Hca {
    /// A store to a word of the space.
    pub(super) fn icmd_write(&mut self, address: u32, word: u32) {
        if address != CONTROL {
            if let Some(nth) = place(address) {
                self.pci.gateway.commands.mailbox[nth] = word;
            }
            return;
        }
        let mut control = word & !BUSY;
        if word & BUSY != 0 {
            if self.pci.gateway.semaphores.get(&0).is_none_or(|held| *held == 0) {
                self.bus.complain("ICMD: a command without its semaphore".to_owned());
            }
            let status = self.icmd(word >> 16);
            control = word & 0xffff_0000 | status << 8;
        }
        self.pci.gateway.commands.control = control;
    }

    fn icmd(&mut self, opcode: u32) -> u32 {
        if opcode != ACCESS_REGISTER {
            return INVALID_OPCODE;
        }
        let mailbox = self.pci.gateway.commands.mailbox;
        let [operation, register, _, _, data] = mailbox[..HEAD] else { return INVALID_COMMAND };
        let words = (data >> 16 & 0x7ff) as usize;
        if operation >> 27 != 1
            || operation >> 16 & 0x7ff != 4
            || register & 0xff != 1
            || data >> 27 != 3
            || words == 0
            || HEAD + words - 1 > WORDS
        {
            return INVALID_COMMAND;
        }
        let range = HEAD..HEAD + words - 1;
        let bytes: Vec<u8> =
            mailbox[range.clone()].iter().flat_map(|word| word.to_be_bytes()).collect();
        let answer = match register >> 8 & 0x7f {
            1 => exchange(self, register >> 16, false, &bytes).map_err(|_| BAD_PARAMETER),
            2 => exchange(self, register >> 16, true, &bytes).map_err(|_| BAD_PARAMETER),
            _ => Err(METHOD_NOT_SUPPORTED),
        };
        let status = answer.as_ref().err().copied().unwrap_or(0);
        let commands = &mut self.pci.gateway.commands;
        commands.mailbox[0] = operation & !0x7f00 | status << 8;
        commands.mailbox[1] = register | 1 << 15;
        if let Ok(answer) = answer {
            let words = answer.chunks_exact(4).filter_map(<[_]>::first_chunk::<4>);
            for (to, from) in commands.mailbox[range].iter_mut().zip(words) {
                *to = u32::from_be_bytes(*from);
            }
        }
        0
    }
}
