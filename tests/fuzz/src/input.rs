//! Reading programs of steps from bytes.

use arbitrary::{Arbitrary, Unstructured};
use mlx5_model::wire::icrc::{ICRC_LEN, icrc};

/// The steps of a program, at most so many; what is left of the bytes when they run short is none.
pub(crate) fn steps<'a, S: Arbitrary<'a>>(
    bytes: &mut Unstructured<'a>,
    most: usize,
) -> impl Iterator<Item = S> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        bytes.arbitrary().ok()
    })
    .take(most)
}

/// Bytes that replace what stands in a message.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub(crate) struct Patch {
    pub(crate) at: u8,
    pub(crate) bytes: [u8; 2],
}

/// Applies patches to a message.
pub(crate) fn patch(message: &mut [u8], patches: &[Option<Patch>]) {
    for Patch { at, bytes } in patches.iter().flatten() {
        let from = usize::from(*at).min(message.len());
        for (place, byte) in message[from..].iter_mut().zip(bytes) {
            *place = *byte;
        }
    }
}

/// Gives a RoCE frame over IPv4 without a VLAN the ICRC that goes with its bytes.
pub(crate) fn seal(frame: &mut [u8]) {
    let (start, l3, l4) = (14, 20, 8);
    if frame.get(12..15) != Some(&[8, 0, 0x45]) || frame.len() < start + l3 + l4 + ICRC_LEN {
        return;
    }
    let end = frame.len() - ICRC_LEN;
    let sum = icrc(&frame[start..end], l3, l4);
    frame[end..].copy_from_slice(&sum);
}
