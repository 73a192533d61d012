//! The initialization segment and the configuration space of a recorded card.

use crate::cmd::engine;

/// Bytes of the segment that must be there: up to `initializing`.
const SEGMENT: usize = 0x200;
/// Interface revision that every driver wants.
const REVISION: u32 = 5;
/// Most MSI-X vectors of the model's table.
const VECTORS: u16 = 256;

fn word(bytes: &[u8], at: usize) -> u32 {
    let chunk = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    chunk.map_or(0, |word| u32::from_be_bytes(*word))
}

/// Sizes of the command queue: how many slots, and how far apart, as logarithms. A report may
/// leave the word out, which has an address in it.
pub(crate) fn geometry(segment: &[u8]) -> Option<(u32, u32)> {
    let word = word(segment, 0x14);
    (word & 0xff != 0).then_some((word >> 4 & 0xf, word & 0xf))
}

/// Whether the function is that of a DPU's own processor.
pub(super) fn embedded_cpu(segment: &[u8]) -> bool {
    word(segment, 0x1fc) >> 23 & 1 != 0
}

/// Says what is wrong with an initialization segment.
pub(super) fn check_segment(bytes: &[u8]) -> Result<(), String> {
    if !(SEGMENT..=0x10_0000).contains(&bytes.len()) || bytes.len() % 4 != 0 {
        return Err(format!("{} bytes are no initialization segment", bytes.len()));
    }
    let revision = word(bytes, 4) >> 16;
    if revision != REVISION {
        return Err(format!("interface revision {revision:#x} instead of {REVISION}"));
    }
    if word(bytes, 0) == 0 {
        return Err("firmware version 0.0".into());
    }
    let (size, stride) = geometry(bytes).unwrap_or((engine::LOG_SIZE, engine::LOG_STRIDE));
    if size > engine::LOG_SIZE || stride < engine::LOG_STRIDE || size + stride > 12 {
        return Err(format!("a command queue of 2^{size} slots, 2^{stride} bytes apart"));
    }
    Ok(())
}

/// Says what is wrong with a configuration space.
pub(super) fn check_config(bytes: &[u8], device: Option<u16>) -> Result<(), String> {
    if !(64..=4096).contains(&bytes.len()) {
        return Err(format!("{} bytes are no configuration space", bytes.len()));
    }
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    if half(0) != 0x15b3 {
        return Err(format!("vendor {:#06x} instead of 0x15b3", half(0)));
    }
    if device.is_some_and(|device| device != half(2)) {
        return Err(format!("device {:#06x}, and the head has another", half(2)));
    }
    Ok(())
}

/// MSI-X vectors that a configuration space announces, as far as the model has them.
pub(super) fn vectors(config: &[u8]) -> Option<u16> {
    let byte = |at: usize| config.get(at).copied();
    let mut at = usize::from(byte(0x34)?) & !3;
    // A list cannot have more entries than the space has words.
    for _ in 0..64 {
        if at < 0x40 {
            return None;
        }
        if byte(at)? == 0x11 {
            let control = u16::from_le_bytes([byte(at + 2)?, byte(at + 3)?]);
            return Some((control & 0x7ff).saturating_add(1).min(VECTORS));
        }
        at = usize::from(byte(at + 1)?) & !3;
    }
    None
}
