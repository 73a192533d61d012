//! MCIA: the memory of the module at the end of the cable, here a passive copper one for 100 Gb/s.
//!
//! SFF-8636: a lower page of 128 bytes and upper page 0, read through I2C address 0x50; and what a
//! passive cable has of them: no temperatures, no powers, nothing to write.

use crate::cmd::{Refusal, Status};
use crate::ifc::regs::mcia_reg;

const I2C_ADDRESS: u32 = 0x50;
/// Most bytes of one access.
const MOST: u32 = 48;
/// Statuses in the register.
const GOOD: u32 = 0;
const NO_EEPROM: u32 = 1;
const I2C_ERROR: u32 = 3;

/// Bytes of the memory that are not zero, below the checksums.
const BYTES: &[(usize, &[u8])] = &[
    // QSFP28, revision 2.5 of the standard; no upper pages but the first, no interrupt.
    (0, &[0x11, 0x07, 0x06]),
    // Identifier, power class 1, no separable connector.
    (128, &[0x11, 0x00, 0x23]),
    // 40GBASE-CR4, extended compliance below.
    (131, &[0x88]),
    // More than 25.4 GBd: byte 222 has it, in units of 250 MBd.
    (140, &[0xff]),
    // One metre of copper, unequalised.
    (146, &[0x01, 0xa0]),
    (148, b"Model           "),
    (165, &[0x00, 0x02, 0xc9]),
    (168, b"MODEL-100G-CU1M "),
    (184, b"A1"),
    // 100GBASE-CR4.
    (192, &[0x0b]),
    (196, b"MODEL00000000001"),
    (212, b"260101  "),
    (222, &[0x67]),
];

/// The memory.
fn memory() -> [u8; 256] {
    let mut memory = [0; 256];
    for (at, bytes) in BYTES {
        memory[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    for range in [128..191, 192..223] {
        let sum = memory[range.clone()].iter();
        memory[range.end] = sum.fold(0, |acc: u8, byte| acc.wrapping_add(*byte));
    }
    memory
}

/// Answers a read.
pub(crate) fn read(asked: &[u8], to: &mut [u8]) -> Result<(), Refusal> {
    let size = mcia_reg::size.get(asked);
    if size > MOST {
        return Err(Status::BadParam.because(0x80_5009));
    }
    let (from, page) = (mcia_reg::device_address.get(asked), mcia_reg::page_number.get(asked));
    for field in [
        mcia_reg::module,
        mcia_reg::i2c_device_address,
        mcia_reg::page_number,
        mcia_reg::device_address,
        mcia_reg::size,
    ] {
        field.set(to, field.get(asked));
    }
    let status = if mcia_reg::module.get(asked) != 0 {
        NO_EEPROM
    } else if mcia_reg::i2c_device_address.get(asked) != I2C_ADDRESS {
        I2C_ERROR
    } else {
        GOOD
    };
    mcia_reg::status.set(to, status);
    // Upper pages but the first are not there, and read as zero.
    if status == GOOD && page == 0 {
        let memory = memory();
        let bytes = memory.get(from as usize..).unwrap_or(&[]);
        let places = mcia_reg::data.bytes_mut(to).iter_mut();
        for (place, byte) in places.zip(bytes).take(size as usize) {
            *place = *byte;
        }
    }
    Ok(())
}
