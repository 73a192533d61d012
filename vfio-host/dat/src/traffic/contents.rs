//! What messages contain: bytes that follow from the test's seed and the message's number, so that
//! both sides know them and no two messages of a test are alike.

/// Constants of splitmix64, whose mixing this is.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(MIX[0]);
    let word = (word ^ word >> 27).wrapping_mul(MIX[1]);
    word ^ word >> 31
}

/// The 8 bytes at `8 * index` of message `number`.
fn word(seed: u64, number: u64, index: u64) -> [u8; 8] {
    let start = mixed(seed ^ number.wrapping_mul(GOLDEN));
    mixed(start.wrapping_add(index.wrapping_mul(GOLDEN))).to_le_bytes()
}

/// Writes the contents of message `number`.
pub(crate) fn fill(seed: u64, number: u64, bytes: &mut [u8]) {
    for (index, piece) in (0..).zip(bytes.chunks_mut(8)) {
        let word = word(seed, number, index);
        for (byte, value) in piece.iter_mut().zip(word) {
            *byte = value;
        }
    }
}

/// Compares with the contents of message `number`. The place of the first byte that differs, if one
/// does.
pub(super) fn differ(seed: u64, number: u64, bytes: &[u8]) -> Option<usize> {
    for (index, piece) in (0..).zip(bytes.chunks(8)) {
        let word = word(seed, number, index);
        let wanted = word.get(..piece.len()).unwrap_or_default();
        if piece != wanted {
            let at = piece.iter().zip(wanted).position(|(a, b)| a != b);
            return at.map(|at| usize::try_from(index).unwrap_or(0) * 8 + at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_known_and_differ() {
        let mut bytes = [0; 77];
        fill(7, 3, &mut bytes);
        assert_eq!(differ(7, 3, &bytes), None);
        assert_eq!(differ(7, 3, &bytes[..1]), None);
        assert_eq!(differ(7, 3, &[]), None);
        assert!(differ(8, 3, &bytes).is_some() && differ(7, 4, &bytes).is_some());
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(differ(7, 3, &bytes), Some(at));
            bytes[at] ^= 1;
        }
    }
}
