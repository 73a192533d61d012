//! The two timers of a reliable connection, and the pace of the port, in nanoseconds.

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
    RNR_WAITS.get(usize::from(code & 0x1f)).copied().unwrap_or(655_360_000)
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

/// How fast a connection's packets leave: in bursts, as a port of 100 Gbit/s would let them go.
/// Without it a whole window, or a whole READ, would be gone before the peer could say that its
/// first packet was lost.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    sent: u32,
    resume: Option<Nanos>,
    /// A packet was held back since [`Pace::look`].
    held: bool,
}

impl Pace {
    /// Packets of one burst.
    const BURST: u32 = 16;
    /// Bytes around a payload on the wire, preamble and gap included.
    const AROUND: u64 = 100;

    /// Forgets that a packet was held back: the next query computes it anew.
    pub(crate) fn look(&mut self) {
        self.held = false;
    }

    /// Whether one more packet may leave at `now`; counts it if so.
    pub(crate) fn admit(&mut self, now: Nanos, mtu: u32) -> bool {
        self.held = self.resume.is_some_and(|resume| now < resume);
        if self.held {
            return false;
        }
        if self.resume.take().is_some() {
            self.sent = 0;
        }
        self.sent += 1;
        if self.sent >= Self::BURST {
            let bits = (u64::from(mtu) + Self::AROUND) * 8;
            self.resume = Some(now + u64::from(Self::BURST) * bits / 100 + 1);
        }
        true
    }

    /// When the next burst may leave, if a packet has to wait for it.
    pub(crate) fn resume(&self) -> Option<Nanos> {
        self.resume.filter(|_| self.held)
    }
}
