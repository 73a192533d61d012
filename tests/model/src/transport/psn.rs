//! Packet sequence numbers: 24 bits that wrap.

/// The bits of a PSN or MSN.
pub(crate) const MASK: u32 = 0xff_ffff;

/// `psn + n`.
pub(crate) fn add(psn: u32, n: u32) -> u32 {
    psn.wrapping_add(n) & MASK
}

/// How many steps lead from `from` forward to `to`.
pub(crate) fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & MASK
}

/// Where a PSN stands relative to the expected one. Half the circle lies ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Expected,
    Ahead,
    Behind,
}

pub(crate) fn place(psn: u32, expected: u32) -> Place {
    match distance(expected, psn) {
        0 => Place::Expected,
        1..=0x7f_ffff => Place::Ahead,
        _ => Place::Behind,
    }
}

/// Packets a message of `len` bytes takes: at least one.
pub(crate) fn packets(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_at_24_bits() {
        assert_eq!(add(0xff_ffff, 1), 0);
        assert_eq!(add(0xff_fffe, 5), 3);
        assert_eq!(distance(0xff_fffe, 3), 5);
        assert_eq!(distance(3, 0xff_fffe), 0xff_fffb);
    }

    #[test]
    fn half_the_circle_is_ahead() {
        assert_eq!(place(7, 7), Place::Expected);
        assert_eq!(place(8, 7), Place::Ahead);
        assert_eq!(place(6, 7), Place::Behind);
        assert_eq!(place(2, 0xff_ffff), Place::Ahead);
        assert_eq!(place(0xff_ffff, 2), Place::Behind);
        assert_eq!(place(0x7f_ffff, 0), Place::Ahead);
        assert_eq!(place(0x80_0000, 0), Place::Behind);
    }

    #[test]
    fn packet_counts() {
        for (len, n) in [(0, 1), (1, 1), (1024, 1), (1025, 2), (2048, 2), (0x8000_0000, 0x20_0000)]
        {
            assert_eq!(packets(len, 1024), n);
        }
        assert_eq!(packets(10, 0), 10);
    }
}
