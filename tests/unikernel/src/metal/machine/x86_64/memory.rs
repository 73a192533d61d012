//! Checked reads of physical memory for firmware tables, byte by byte, aligned or not.

/// Memory that can be read at any address, with a check.
pub(crate) trait Memory {
    /// Reads one byte; `None` if there is no memory.
    fn byte(&self, at: u64) -> Option<u8>;

    /// Reads `N` bytes.
    fn bytes<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for (index, byte) in (0..).zip(&mut bytes) {
            *byte = self.byte(at.checked_add(index)?)?;
        }
        Some(bytes)
    }
    /// Reads a little-endian word of 16 bits.
    fn read16(&self, at: u64) -> Option<u16> {
        self.bytes(at).map(u16::from_le_bytes)
    }
    /// Reads a little-endian word of 32 bits.
    fn read32(&self, at: u64) -> Option<u32> {
        self.bytes(at).map(u32::from_le_bytes)
    }
    /// Reads a little-endian word of 64 bits.
    fn read64(&self, at: u64) -> Option<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }
}

/// The first 4 GiB, which the boot code has mapped one to one. (Firmware puts tables even into the
/// lowest page, but none at 0.)
#[derive(Debug)]
pub(crate) struct Mapped;

impl Memory for Mapped {
    fn byte(&self, at: u64) -> Option<u8> {
        if !(1..1 << 32).contains(&at) {
            return None;
        }
        let at = core::ptr::with_exposed_provenance::<u8>(usize::try_from(at).ok()?);
        // SAFETY: mapped, and callers only read memory that firmware or the loader wrote before
        // this image ran.
        Some(unsafe { at.read_volatile() })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Memory from address 0 on, for tests of table readers.
    pub(crate) struct Bytes(Vec<u8>);

    impl Bytes {
        pub(crate) fn new(len: usize) -> Self {
            Self(vec![0; len])
        }
        pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
        }
        pub(crate) fn put32(&mut self, at: usize, value: u32) {
            self.put(at, &value.to_le_bytes());
        }
        pub(crate) fn put64(&mut self, at: usize, value: u64) {
            self.put(at, &value.to_le_bytes());
        }
        /// Sets the byte at `sum` so that the `len` bytes at `at` sum up to 0.
        pub(crate) fn seal(&mut self, at: usize, len: usize, sum: usize) {
            self.0[sum] = 0;
            let total = self.0[at..at + len].iter().fold(0u8, |a, b| a.wrapping_add(*b));
            self.0[sum] = total.wrapping_neg();
        }
    }

    impl Memory for Bytes {
        fn byte(&self, at: u64) -> Option<u8> {
            self.0.get(usize::try_from(at).ok()?).copied()
        }
    }

    #[test]
    fn words_are_little_endian_and_end_with_the_memory() {
        let mut bytes = Bytes::new(9);
        bytes.put(1, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes.read16(1), Some(0x0201));
        assert_eq!(bytes.read32(1), Some(0x0403_0201));
        assert_eq!(bytes.read64(1), Some(0x0807_0605_0403_0201));
        assert_eq!(bytes.read64(2), None);
        assert_eq!(bytes.read16(u64::MAX), None);
    }
}
