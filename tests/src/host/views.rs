//! One arena, two views: what the CPU has stored and what the device can see are different bytes
//! until a fence.
//!
//! On a real machine a missing barrier fails once in a million times, on another architecture, at a
//! user's. Here it fails every time:
//!
//! * A CPU store reaches the device's view at [`Views::release`] (before a doorbell). Without one
//!   it still arrives, as it would, but the *newest* store first ([`Views::drain_one`]), which is
//!   the order an adversary would choose.
//! * A device write reaches the CPU's view at [`Views::acquire`] (after seeing ownership). Before
//!   that, only a single 32-bit load sees it, as a coherent load of that very word would; every
//!   wider read still gets the old bytes.
//!
//! A hostile device does not keep to that: a [`Liar`] may write whatever the device may write, just
//! before any load of the driver's. Every store of the driver's must be to memory that was handed
//! out ([`Views::strays`]).
//!
//! Addresses: the device reaches the arena through a page table of its own ([`Views::iova`]), in
//! which neighbouring pages are neighbours only within short runs, so that a driver that forgets to
//! ask per page is found out. Firmware pages are a reserve outside the arena, made on first touch.

#![expect(
    unsafe_code,
    reason = "memory for a device, even an emulated one, is reached through raw pointers"
)]

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use hca_mlx5::dma::{Memory, Probe};
use hca_mlx5::platform::{Reach, Span};
use mlx5_model::host::{DmaError, HostMemory};

use super::inproc::lock;
use super::lent::Lent;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages that stay together in the device's address space.
pub const RUN: usize = 64;
/// Device pages from the beginning of a run to that of the next: some lie between them. The last
/// run of the arena is the device's first.
const STRIDE: usize = RUN + 3;
/// Device page number of the first run.
const FIRST: u64 = 0x1_0000;

/// Called before each load of the driver's from memory that the device may write, with the offset
/// and what is there for the driver: may change that.
pub type Liar = Box<dyn FnMut(usize, &mut [u8]) + Send>;

/// Memory of one HCA.
pub struct Views {
    /// What the CPU sees.
    cpu: Memory,
    /// Its memory, which never moves.
    _pages: Vec<u8>,
    device: Vec<u8>,
    /// CPU stores the device does not see yet, oldest first.
    stores: Vec<(usize, usize)>,
    /// Device writes the CPU does not see yet.
    writes: Vec<(usize, usize)>,
    firmware: BTreeMap<u64, Option<Box<[u8; PAGE]>>>,
    /// Memory of programs.
    pub(super) lent: Lent,
    /// Free firmware pages.
    reserve: Vec<u64>,
    /// Accesses refused.
    pub refused: u64,
    /// What is handed out: length, and whether the device may write it.
    spans: BTreeMap<usize, (usize, bool)>,
    /// The one of them that was looked up last, as most accesses are to the same: start, length,
    /// and whether the device may write it.
    recent: (usize, usize, bool),
    liar: Option<Liar>,
    strays: u64,
}

impl std::fmt::Debug for Views {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Views").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Views {
    /// The CPU's view, without holding anything back.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.cpu
    }

    /// An arena of `pages` pages and a firmware reserve of `reserve` pages.
    #[must_use]
    pub fn new(pages: usize, reserve: usize) -> Self {
        // Zeros that cost nothing before they are touched, and one page more to begin at one.
        let mut memory = vec![0_u8; (pages + 1) * PAGE];
        let base = memory.as_mut_ptr();
        let base = base.wrapping_add(base.align_offset(PAGE));
        let base = NonNull::new(base).expect("a vector's pointer");
        Self {
            // SAFETY: the pages are aligned, live as long as the value, and are reached through raw
            // pointers only.
            cpu: unsafe { Memory::new(base, pages * PAGE) },
            _pages: memory,
            device: vec![0; pages * PAGE],
            stores: Vec::new(),
            writes: Vec::new(),
            firmware: BTreeMap::new(),
            lent: Lent::default(),
            reserve: (0..reserve as u64).rev().map(|n| (0x80_0000 + n) << 12).collect(),
            refused: 0,
            spans: BTreeMap::new(),
            recent: (0, 0, false),
            liar: None,
            strays: 0,
        }
    }

    /// Takes note that a span was handed out.
    pub(crate) fn handed_out(&mut self, span: Span, reach: Reach) {
        self.spans.insert(span.offset, (span.len, reach == Reach::ReadWrite));
        self.recent = (0, 0, false);
    }

    /// Takes note that it was given back.
    pub(crate) fn given_back(&mut self, span: Span) {
        self.spans.remove(&span.offset);
        self.recent = (0, 0, false);
    }

    /// From now on the device is hostile, or not.
    pub fn lie(&mut self, liar: Option<Liar>) {
        self.liar = liar;
    }

    /// Stores of the driver's to memory that nobody has.
    #[must_use]
    pub const fn strays(&self) -> u64 {
        self.strays
    }

    /// The span that holds those bytes: whether the device may write it.
    fn span(&mut self, offset: usize, len: usize) -> Option<bool> {
        let (start, size, _) = self.recent;
        if offset < start || offset >= start + size {
            let (&start, &(size, writable)) = self.spans.range(..=offset).next_back()?;
            self.recent = (start, size, writable);
        }
        let (start, size, writable) = self.recent;
        (offset + len <= start + size).then_some(writable)
    }

    /// A load of the driver's is about to begin.
    fn loads(&mut self, offset: usize, len: usize) {
        if self.span(offset, len) != Some(true) {
            return;
        }
        let Some(mut liar) = self.liar.take() else { return };
        let mut bytes = vec![0; len];
        self.cpu.read_bytes(offset, &mut bytes);
        if len == 4 && !self.stores.iter().any(|&(at, size)| at < offset + 4 && offset < at + size)
        {
            bytes.copy_from_slice(&self.device[offset..offset + 4]);
        }
        let honest = bytes.clone();
        liar(offset, &mut bytes);
        if bytes != honest {
            self.device[offset..offset + len].copy_from_slice(&bytes);
            self.cpu.write_bytes(offset, &bytes);
        }
        self.liar = Some(liar);
    }

    /// Bytes of the arena.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cpu.len()
    }

    /// Never: an arena has pages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cpu.is_empty()
    }

    /// Device address of an offset, and how far the device can go on from there.
    #[must_use]
    pub fn iova(&self, offset: usize) -> Option<(u64, usize)> {
        let (page, pages) = (offset / PAGE, self.pages());
        let (run, rest) = (page / RUN, page % RUN);
        let together = (RUN - rest).min(pages.checked_sub(page).filter(|left| *left > 0)?);
        let place = (pages.div_ceil(RUN) - 1 - run) * STRIDE + rest;
        let within = offset % PAGE;
        Some((((FIRST + place as u64) << 12) + within as u64, together * PAGE - within))
    }

    /// Arena page of a device page number, the inverse.
    fn page(&self, number: u64) -> Option<usize> {
        let place = number.checked_sub(FIRST)? as usize;
        let run = self.pages().div_ceil(RUN).checked_sub(1 + place / STRIDE)?;
        let page = run * RUN + place % STRIDE;
        (place % STRIDE < RUN && page < self.pages()).then_some(page)
    }

    fn pages(&self) -> usize {
        self.cpu.len() / PAGE
    }

    /// Takes firmware pages out of the reserve.
    pub fn pages_take(&mut self, to: &mut [u64]) -> usize {
        let mut taken = 0;
        for place in to {
            let Some(page) = self.reserve.pop() else {
                break;
            };
            self.firmware.insert(page >> 12, None);
            *place = page;
            taken += 1;
        }
        taken
    }

    /// Takes firmware pages back; returns how many were really out.
    pub fn pages_return(&mut self, pages: &[u64]) -> usize {
        let mut known = 0;
        for &page in pages {
            if page & 0xfff == 0 && self.firmware.remove(&(page >> 12)).is_some() {
                self.reserve.push(page);
                known += 1;
            }
        }
        known
    }

    /// Takes back all memory that the device still holds: a reset device reaches none until it is
    /// given addresses again.
    pub fn reclaim(&mut self) {
        let pages = std::mem::take(&mut self.firmware);
        self.reserve.extend(pages.into_keys().map(|page| page << 12));
        self.spans.clear();
        self.recent = (0, 0, false);
        self.release();
        self.acquire();
    }

    /// Memory that a program has lent, as the program sees it.
    ///
    /// # Panics
    /// Where nothing is lent.
    pub fn lent_at(&mut self, addr: u64, len: usize) -> &mut [u8] {
        self.lent.near(addr, len).expect("memory that was lent")
    }

    /// Whether the device has written what the CPU does not see yet.
    #[must_use]
    pub fn unseen(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Firmware pages the device holds.
    #[must_use]
    pub fn pages_out(&self) -> usize {
        self.firmware.len()
    }

    // ---- the CPU's side ----

    /// A 32-bit load: coherent, so it sees a device write of that word even before the fence.
    fn load32(&self, offset: usize, found: u32) -> u32 {
        let own = self.stores.iter().any(|&(at, len)| at < offset + 4 && offset < at + len);
        let bytes = self.device[offset..].first_chunk().filter(|_| !own);
        bytes.map_or(found, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// Zeros memory, as a store of the CPU's.
    pub fn clear(&mut self, offset: usize, len: usize) {
        let to = self.bytes(offset, len);
        // SAFETY: they are inside the arena.
        unsafe { to.write_bytes(0, len) }
        self.stored(offset, len);
    }

    /// Where bytes of the CPU's view are. Whole pieces are copied from and to there at once: the
    /// loads and stores of [`Memory`], word by word, are what takes most of a bring-up's time.
    fn bytes(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len()), "outside the arena");
        std::ptr::with_exposed_provenance_mut::<u8>(self.cpu.addr() as usize).wrapping_add(offset)
    }

    /// Lets the device see what the CPU sees there.
    fn publish(&mut self, at: usize, len: usize) {
        let from = self.bytes(at, len);
        let to = &mut self.device[at..at + len];
        // SAFETY: both are that long, and nothing makes a reference into the CPU's.
        unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), len) }
    }

    /// Lets the CPU see what the device sees there.
    fn observe(&mut self, at: usize, len: usize) {
        let to = self.bytes(at, len);
        let from = &self.device[at..at + len];
        // SAFETY: as in `publish`.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), len) }
    }

    /// A store: in the CPU's view already. A work request is stored word by word.
    fn stored(&mut self, offset: usize, len: usize) {
        let len = len.min(self.cpu.len() - offset);
        self.strays += u64::from(self.span(offset, len).is_none());
        let step = if len <= 64 { 8 } else { len };
        let words = (0..len).step_by(step);
        self.stores.extend(words.map(|at| (offset + at, step.min(len - at))));
    }

    /// All CPU stores so far become visible to the device.
    pub fn release(&mut self) {
        let mut stores = std::mem::take(&mut self.stores);
        stores.drain(..).for_each(|(at, len)| self.publish(at, len));
        self.stores = stores;
    }

    /// Time passes without a fence: the newest store arrives, the ones before it are still under
    /// way.
    pub fn drain_one(&mut self) {
        if let Some((at, len)) = self.stores.pop() {
            self.publish(at, len);
        }
    }

    /// All device writes so far become visible to the CPU.
    pub fn acquire(&mut self) {
        let mut writes = std::mem::take(&mut self.writes);
        for (at, len) in writes.drain(..) {
            // Where the CPU has stored meanwhile and not released, its own store stands.
            if self.stores.iter().any(|&(own, size)| own < at + len && at < own + size) {
                for byte in at..at + len {
                    let own =
                        self.stores.iter().any(|&(own, size)| (own..own + size).contains(&byte));
                    if !own {
                        self.observe(byte, 1);
                    }
                }
            } else {
                self.observe(at, len);
            }
        }
        self.writes = writes;
    }

    // ---- the device's side ----

    /// Calls `f` with each piece of a device access: arena offset or firmware page, and length.
    fn pieces(
        &mut self,
        iova: u64,
        len: usize,
        mut f: impl FnMut(&mut Self, Place, usize, usize),
    ) -> Result<(), DmaError> {
        let mut done = 0;
        while done < len {
            let Some(at) = iova.checked_add(done as u64) else {
                self.refused += 1;
                return Err(DmaError::Refused(iova));
            };
            let within = (at & 0xfff) as usize;
            let part = (PAGE - within).min(len - done);
            let place = if let Some(page) = self.page(at >> 12) {
                Place::Arena(page * PAGE + within)
            } else if self.firmware.contains_key(&(at >> 12)) {
                Place::Firmware(at >> 12, within)
            } else if self.lent.far(at, part).is_some() {
                Place::Lent(at)
            } else {
                self.refused += 1;
                return Err(DmaError::Refused(at));
            };
            f(self, place, done, part);
            done += part;
        }
        Ok(())
    }
}

/// Views that the host, its driver and the device share.
#[derive(Clone, Debug)]
pub struct Shared(pub Arc<Mutex<Views>>);

impl Shared {
    /// The memory as the driver reaches it, seen by consumers at `addr`.
    #[must_use]
    pub fn memory(&self, addr: u64) -> Memory<Self> {
        let views = lock(&self.0);
        let base = std::ptr::with_exposed_provenance_mut(views.cpu.addr() as usize);
        let base = NonNull::new(base).expect("a vector's pointer");
        // SAFETY: as in `Views::new`; the probe keeps the views, and with them the pages.
        unsafe { Memory::probed(base, views.len(), addr, self.clone()) }
    }
}

/// The driver's loads and stores.
impl Probe for Shared {
    fn load32(&self, offset: usize, value: u32) -> u32 {
        let mut views = lock(&self.0);
        if views.liar.is_none() {
            return views.load32(offset, value);
        }
        views.loads(offset, 4);
        let mut bytes = [0; 4];
        views.cpu.read_bytes(offset, &mut bytes);
        views.load32(offset, u32::from_ne_bytes(bytes))
    }
    fn load(&self, offset: usize, len: usize) {
        lock(&self.0).loads(offset, len);
    }
    fn store(&self, offset: usize, bytes: &[u8]) {
        lock(&self.0).stored(offset, bytes.len());
    }
}

/// The device's way to the memory of its host.
impl HostMemory for Shared {
    fn read(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        lock(&self.0).read_dma(iova, buf)
    }

    fn write(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        lock(&self.0).write_dma(iova, buf)
    }
}

#[derive(Clone, Copy)]
enum Place {
    Arena(usize),
    Firmware(u64, usize),
    Lent(u64),
}

/// As the device sees it.
impl Views {
    /// A DMA read.
    ///
    /// # Errors
    /// Where nothing is mapped.
    pub fn read_dma(&mut self, iova: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        self.pieces(iova, buf.len(), |views, place, done, part| {
            let to = &mut buf[done..done + part];
            match place {
                Place::Arena(at) => to.copy_from_slice(&views.device[at..at + part]),
                Place::Firmware(page, within) => match views.firmware.get(&page) {
                    Some(Some(bytes)) => to.copy_from_slice(&bytes[within..within + part]),
                    Some(None) | None => to.fill(0),
                },
                Place::Lent(at) => {
                    if let Some(bytes) = views.lent.far(at, part) {
                        to.copy_from_slice(bytes);
                    }
                }
            }
        })
    }

    /// A DMA write.
    ///
    /// # Errors
    /// Where nothing is mapped.
    pub fn write_dma(&mut self, iova: u64, buf: &[u8]) -> Result<(), DmaError> {
        self.pieces(iova, buf.len(), |views, place, done, part| {
            let from = &buf[done..done + part];
            match place {
                Place::Arena(at) => {
                    views.device[at..at + part].copy_from_slice(from);
                    views.writes.push((at, part));
                }
                Place::Lent(at) => {
                    if let Some(bytes) = views.lent.far(at, part) {
                        bytes.copy_from_slice(from);
                    }
                }
                Place::Firmware(page, within) => {
                    if let Some(bytes) = views.firmware.get_mut(&page) {
                        bytes.get_or_insert_with(|| Box::new([0; PAGE]))[within..within + part]
                            .copy_from_slice(from);
                    }
                }
            }
        })
    }
}
