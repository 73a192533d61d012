//! The two timers of a reliable connection, in nanoseconds.

use crate::host::Nanos;

/// The waits RNR timer codes 0 to 31 stand for (IBTA table 45). Code 0 is the longest.
const RNR_WAITS: [Nanos; 32] = [
    655_360_000,
    10_000,
    20_000,
    30_000,
    40_000,
    60_000,
    80_000,
    120_000,
    160_000,
    240_000,
    320_000,
    480_000,
    640_000,
    960_000,
    1_280_000,
    1_920_000,
    2_560_000,
    3_840_000,
    5_120_000,
    7_680_000,
    10_240_000,
    15_360_000,
    20_480_000,
    30_720_000,
    40_960_000,
    61_440_000,
    81_920_000,
    122_880_000,
    163_840_000,
    245_760_000,
    327_680_000,
    491_520_000,
];

/// How long an RNR NAK with this timer code asks to wait.
pub(crate) fn rnr_wait(code: u8) -> Nanos {
    RNR_WAITS
        .get(usize::from(code & 0x1f))
        .copied()
        .unwrap_or(655_360_000)
}

/// The local ACK timeout: 4.096 us times 2 to the exponent; 0 is none.
pub(crate) fn ack_timeout(exponent: u8) -> Option<Nanos> {
    match exponent & 0x1f {
        0 => None,
        n => Some(4096 << n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_codes() {
        assert_eq!(rnr_wait(0), 655_360_000);
        assert_eq!(rnr_wait(1), 10_000);
        assert_eq!(rnr_wait(12), 640_000);
        assert_eq!(rnr_wait(25), 61_440_000);
        assert_eq!(rnr_wait(31), 491_520_000);
        assert_eq!(rnr_wait(0x3f), 491_520_000);
    }

    #[test]
    fn ack_timeouts() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(14), Some(67_108_864));
        assert_eq!(ack_timeout(31), Some(4096 << 31));
    }
}
