//! The contents of messages: bytes computed from the test's seed and the message's number, so that
//! both sides know them and all messages of a test differ.

/// Constants of splitmix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(MIX[0]);
    let word = (word ^ word >> 27).wrapping_mul(MIX[1]);
    word ^ word >> 31
}

/// The words of message `number`, in order.
fn words(seed: u64, number: u64) -> impl Iterator<Item = u64> {
    let start = mixed(seed ^ number.wrapping_mul(GOLDEN));
    (0u64..).map(move |index| mixed(start.wrapping_add(index.wrapping_mul(GOLDEN))))
}

/// Writes the contents of message `number`.
pub(crate) fn fill(seed: u64, number: u64, bytes: &mut [u8]) {
    let mut words = words(seed, number);
    // Whole words first: byte by byte, this would take most of the time of a large message.
    let mut whole = bytes.chunks_exact_mut(8);
    for (piece, word) in (&mut whole).zip(&mut words) {
        piece.copy_from_slice(&word.to_le_bytes());
    }
    for (byte, value) in
        whole.into_remainder().iter_mut().zip(words.next().unwrap_or(0).to_le_bytes())
    {
        *byte = value;
    }
}

/// Compares with the contents of message `number`. Returns the offset of the first byte that
/// differs.
pub(super) fn differ(seed: u64, number: u64, bytes: &[u8]) -> Option<usize> {
    let mut words = words(seed, number);
    let whole = bytes.chunks_exact(8);
    let rest = whole.remainder();
    // Compared as numbers, for which no library function is called.
    let pieces = whole.clone().filter_map(<[_]>::first_chunk::<8>);
    let wrong = pieces.zip(&mut words).position(|(piece, word)| u64::from_le_bytes(*piece) != word);
    let Some(index) = wrong else {
        let wanted = words.next().unwrap_or(0).to_le_bytes();
        let at = rest.iter().zip(wanted).position(|(byte, wanted)| *byte != wanted)?;
        return Some(whole.len() * 8 + at);
    };
    let (piece, wanted) =
        (bytes.get(index * 8..)?.first_chunk()?, self::words(seed, number).nth(index)?);
    let differing = u64::from_le_bytes(*piece) ^ wanted;
    Some(index * 8 + differing.trailing_zeros() as usize / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_reproducible_and_differ() {
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
