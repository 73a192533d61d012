//! A ring in host memory: a page list and where in its first page the ring begins.

/// Buffer of a queue as its context describes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueMemory {
    pages: Vec<u64>,
    page_bits: u32,
    offset: u64,
}

impl QueueMemory {
    /// From a list of big-endian page addresses, `log_page_size` counted from 4 KiB and
    /// `page_offset` in 64ths of a page. `None` when the list is shorter than `bytes` asks for.
    pub(crate) fn new(
        list: &[u8],
        log_page_size: u32,
        page_offset: u32,
        bytes: u64,
    ) -> Option<Self> {
        let page_bits = log_page_size + 12;
        let offset = (u64::from(page_offset) << page_bits) / 64;
        let count = usize::try_from((offset + bytes).div_ceil(1 << page_bits)).ok()?;
        let mut pages = Vec::new();
        for k in 0..count {
            let word: [u8; 8] = list.get(k * 8..k * 8 + 8)?.try_into().ok()?;
            pages.push(u64::from_be_bytes(word) & !0xfff);
        }
        Some(Self { pages, page_bits, offset })
    }

    /// From pages of which the first has the ring's first byte at `offset`.
    pub(crate) const fn of_pages(pages: Vec<u64>, page_bits: u32, offset: u64) -> Self {
        Self { pages, page_bits, offset }
    }

    /// Bus address of a byte of the ring, and how many bytes follow it in one piece. None beyond
    /// the ring, and beyond the end of addresses, where a large page may be put.
    pub(crate) fn at(&self, byte: u64) -> Option<(u64, u64)> {
        let byte = self.offset + byte;
        let page = usize::try_from(byte >> self.page_bits).ok()?;
        let within = byte & ((1 << self.page_bits) - 1);
        let iova = self.pages.get(page)?.checked_add(within)?;
        Some((iova, (1 << self.page_bits) - within))
    }
}
