//! Bytes of the process that a device may write to while the program looks at them.
#![expect(unsafe_code, reason = "no reference is made to memory that a device may write to")]

use std::cell::UnsafeCell;

/// Memory of the process that is lent to a device.
#[derive(Debug)]
pub struct Bytes<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: every access is by raw pointer, and volatile where the device may write.
unsafe impl<const N: usize> Sync for Bytes<N> {}

impl<const N: usize> Bytes<N> {
    /// Zeros.
    #[must_use]
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; N]))
    }

    /// Address of the first.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.0.get().expose_provenance() as u64
    }

    /// Stores some from the `at`th on.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= N);
        for (n, byte) in bytes.iter().enumerate() {
            let place = self.0.get().cast::<u8>().wrapping_add(at + n);
            // SAFETY: inside the bytes.
            unsafe { place.write_volatile(*byte) };
        }
    }

    /// Loads some from the `at`th on.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn get(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= N);
        let first = self.0.get().cast::<u8>();
        // SAFETY: inside the bytes.
        let one = |n| unsafe { first.wrapping_add(n).read_volatile() };
        (at..at + len).map(one).collect()
    }
}

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Self {
        Self::new()
    }
}
