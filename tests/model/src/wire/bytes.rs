//! A cursor over big-endian bytes that answers `None` at the end instead of panicking.

/// Reads forward through a slice.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// All that is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let out = *self.rest().first_chunk::<N>()?;
        self.at += N;
        Some(out)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Appends the low 24 bits of `n`.
pub(crate) fn push_u24(out: &mut Vec<u8>, n: u32) {
    let [_, a, b, c] = n.to_be_bytes();
    out.extend_from_slice(&[a, b, c]);
}
